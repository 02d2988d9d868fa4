"""Sentences of answers for a person to label, and the bound that follows from the labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from catalog.answers.risk import RiskBound, bound_risk, flat_conditions, labels_needed
from catalog.core.errors import GoldenSetError, InputError
from catalog.evaluation.answer_runs import read_answers
from catalog.evaluation.golden import GoldenSet
from catalog.store.eval_runs import EvalRun

_NO_CONDITION = ("pipeline", "judge", "code", "bound")


class SentenceLabel(BaseModel):
    """One sentence with the text that it cites; a person fills in ``supported``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str = Field(min_length=1)
    run: str = Field(min_length=1)
    question: str
    sentence: str
    cited: tuple[str, ...]
    score: float = Field(ge=0, le=1)
    supported: bool | None = None


def sentences_to_label(run: EvalRun, golden: GoldenSet) -> list[SentenceLabel]:
    """Return the sentences of a run that are shown as supported, question by question."""
    answers = read_answers(run)
    rows = []
    for query in golden:
        answer = answers.get(query.id)
        for number, sentence in enumerate(answer.sentences if answer else (), start=1):
            if answer is None or not sentence.supported:
                continue
            texts = {passage.n: passage.text for passage in answer.passages}
            rows.append(
                SentenceLabel(
                    id=f"{query.id}#{number}",
                    run=run.id,
                    question=query.query,
                    sentence=sentence.text,
                    cited=tuple(texts[n] for n in sentence.citations),
                    score=sentence.score,
                )
            )
    return rows


def write_sentences(path: Path, rows: Sequence[SentenceLabel]) -> None:
    """Write one JSON object on each line; raise :class:`GoldenSetError` if the file exists.

    It might contain labels.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(f"{row.model_dump_json()}\n" for row in rows)
    except FileExistsError as error:
        raise GoldenSetError(f"{path} exists, and may have labels: name another file") from error
    except OSError as error:
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error


def bound_from_labels(
    rows: Sequence[SentenceLabel], run: EvalRun, *, most: float, confidence: float
) -> RiskBound:
    """Return the bound that follows from the labelled rows, for the settings of the run.

    Raises :class:`InputError` if they are from another run or too few, with the number missing.
    """
    if others := {row.run for row in rows} - {run.id}:
        raise InputError(f"the sentences are of several runs ({run.id}, {', '.join(others)})")
    labelled = [row for row in rows if row.supported is not None]
    needed = labels_needed(most, confidence) if 0 < most < 1 else 0
    if len(labelled) < needed:
        more = "" if len(rows) >= needed else "; there are too few: measure with more questions"
        raise InputError(
            f"{len(labelled)} of {len(rows)} sentences are labelled, but at most {most:.1%} "
            f"needs at least {needed}: label {needed - len(labelled)} more{more}"
        )
    identity: dict[str, Any] = {n: v for n, v in run.identity.items() if n not in _NO_CONDITION}
    return bound_risk(
        [row.score for row in labelled],
        [bool(row.supported) for row in labelled],
        most=most,
        confidence=confidence,
        made_for=flat_conditions(identity),
    )


def share_answered(run: EvalRun, threshold: float) -> tuple[float, float]:
    """Return two shares of a run's questions: answered, and answered with this threshold."""
    answers = [answer for answer in read_answers(run).values() if answer.reason is None]
    still = sum(
        any(one.supported and one.score >= threshold for one in answer.sentences)
        for answer in answers
    )
    return len(answers) / run.queries, still / run.queries
