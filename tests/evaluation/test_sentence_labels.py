"""Sentences that a person labels, and the bound that the labels allow."""

import dataclasses
import json

import pytest

from catalog.core.errors import GoldenSetError, InputError
from catalog.evaluation.golden_files import read_rows
from catalog.evaluation.sentence_labels import (
    SentenceLabel,
    bound_from_labels,
    sentences_to_label,
    share_answered,
    write_sentences,
)
from catalog.store.eval_runs import EvalRun
from evaluation.stubs import golden, question
from evaluation.test_answer_metrics import SILENT, answered, passage

QUERIES = golden(question(1), question(2), question(3))
CITED = [passage(1, "right.md", "in 14 days")]


def run_of(*answers):
    """A run of these answers, one a question."""
    records = {f"q{at}": one.model_dump(mode="json") for at, one in enumerate(answers, start=1)}
    blank = dict.fromkeys((field.name for field in dataclasses.fields(EvalRun)), "")
    identity = {"pipeline": "answers", "model": "m", "answers": {"sentences": 3}, "bound": None}
    return EvalRun(**(blank | {"id": "r1", "queries": 3, "identity": identity, "answers": records}))


def scored(*scores):
    answer = answered(*(((1,), score > 0.5) for score in scores), passages=CITED)
    pairs = zip(answer.sentences, scores, strict=True)
    sentences = tuple(one.model_copy(update={"score": score}) for one, score in pairs)
    return answer.model_copy(update={"sentences": sentences})


def labelled(count, wrong=0, **fields):
    base = {"run": "r1", "question": "", "sentence": "", "cited": (), "score": 0.9, **fields}
    return [SentenceLabel(id=f"s{n}", supported=n >= wrong, **base) for n in range(count)]


def test_the_sentences_shown_as_supported_are_written_with_what_they_cite(tmp_path):
    rows = sentences_to_label(run_of(scored(0.9, 0.3), SILENT, scored(0.7)), QUERIES)
    assert [(row.id, row.score, row.cited) for row in rows] == [
        ("q1#1", 0.9, ("in 14 days",)),
        ("q3#1", 0.7, ("in 14 days",)),
    ]
    file = tmp_path / "sentences.jsonl"
    write_sentences(file, rows)
    assert json.loads(file.read_text().splitlines()[0])["supported"] is None
    assert read_rows(file, SentenceLabel, "sentence") == rows
    with pytest.raises(GoldenSetError, match="may have labels"):
        write_sentences(file, rows)


def test_the_bound_is_made_for_what_the_run_was_made_with():
    bound = bound_from_labels(labelled(59), run_of(), most=0.05, confidence=0.95)
    assert bound.threshold == 0.9
    assert bound.made_for == {"model": "m", "answers.sentences": "3"}


def test_labels_that_are_missing_are_counted():
    unlabelled = labelled(1)[0].model_copy(update={"supported": None})
    rows = [*labelled(40), unlabelled]
    with pytest.raises(InputError, match=r"40 of 41 .* label 19 more; there are too few"):
        bound_from_labels(rows, run_of(), most=0.05, confidence=0.95)


def test_sentences_of_two_runs_are_refused():
    with pytest.raises(InputError, match="several runs"):
        bound_from_labels(
            [*labelled(60), *labelled(1, run="r2")], run_of(), most=0.1, confidence=None
        )


def test_the_share_of_questions_that_still_get_an_answer():
    run = run_of(scored(0.9, 0.6), SILENT, scored(0.7))
    assert share_answered(run, 0.8) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
