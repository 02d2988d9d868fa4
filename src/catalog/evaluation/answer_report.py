"""The report of a run that asked for answers: one HTML file without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog.core.settings import flatten
from catalog.evaluation.answer_metrics import AnswerRecord
from catalog.evaluation.answer_summary import account, measured, read_answers
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.report import render_template, write_page
from catalog.evaluation.report_text import format_score
from catalog.store.eval_runs import EvalRun


def write_answer_report(run: EvalRun, golden: GoldenSet, path: Path) -> None:
    """Write the page in one step; equal runs give equal pages.

    Raises :class:`~catalog.core.errors.InputError` where the file cannot be written.
    """
    write_page(render_template("answers.html.j2", _page(run, golden)), path)


def _page(run: EvalRun, golden: GoldenSet) -> Mapping[str, Any]:
    answers, errors = read_answers(run), run.summary["errors"]
    questions = [_question(query, answers.get(query.id), errors.get(query.id)) for query in golden]
    return {
        "headline": f"Answers to {run.golden} from {run.dataset}, {run.backend}",
        "run": run.id,
        "created": datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "account": account(run),
        "metrics": [
            (name, row["n"], format_score(row["mean"]), f"{row['low']:.3f} to {row['high']:.3f}")
            for name, row in measured(run).items()
        ],
        "questions": sorted(questions, key=lambda one: not one["problems"]),
        "settings": [(name, str(value)) for name, value in flatten(run.identity)],
    }


def _question(query: GoldenQuery, answer: AnswerRecord | None, error: str | None) -> dict[str, Any]:
    cited = () if answer is None else answer.cited
    return {
        "query": query.query,
        "problems": list(_problems(query, answer)),
        "reason": error if answer is None else answer.reason,
        "sentences": [
            (one.marked(), "; ".join(one.reasons)) for one in (answer.sentences if answer else ())
        ],
        "cited": [(one.n, one.path, "✓" if one.is_of(query.relevant) else "–") for one in cited],
    }


def _problems(query: GoldenQuery, answer: AnswerRecord | None) -> Iterator[str]:
    if answer is None:
        yield "it failed"
    elif answer.reason is not None:
        if query.has_answer:
            yield "not answered"
    else:
        if not query.has_answer:
            yield "answered, and nothing answers it"
        elif query.relevant and not any(one.is_of(query.relevant) for one in answer.cited):
            yield "no labelled document is cited"
        if any(not one.supported for one in answer.sentences):
            yield "a sentence is unsupported"
