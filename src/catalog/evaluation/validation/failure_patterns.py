"""How a question can fail: every way has a name, what it means, and what to look at first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from catalog.evaluation.validation.measurement import QueryMeasurement
from catalog.evaluation.validation.suite import ScoreKind

FailurePattern = Literal[
    "failed",
    "empty",
    "absent",
    "irrelevant",
    "incomplete",
    "low confidence",
    "unwarranted",
    "outside filters",
    "no score",
]
PATTERNS: tuple[FailurePattern, ...] = get_args(FailurePattern)
MEANINGS: dict[FailurePattern, tuple[str, str]] = {
    "failed": (
        "the search, or a stage of it, ended with an error",
        "the error beside the question; `catalog doctor`",
    ),
    "empty": (
        "nothing came, and something should have",
        "filters and threshold of the question; whether the documents are indexed",
    ),
    "absent": (
        "an expected source is of no passage of the dataset",
        "the suite's path, address or section; `catalog index update`",
    ),
    "irrelevant": (
        "passages came, and none is right",
        "`catalog search QUERY --explain`: which leg found what; words the documents do not use",
    ),
    "incomplete": (
        "a right passage came, and an expected source did not",
        "a larger top_k (R-01); several passages of one document that crowd out another",
    ),
    "low confidence": (
        "the best right passage scores below the threshold",
        "the threshold (R-02); a calibration of your own: `catalog golden calibrate`",
    ),
    "unwarranted": (
        "nothing answers the question, and a passage scores as though it did",
        "a higher threshold (R-02)",
    ),
    "outside filters": (
        "a passage came that the filters forbid",
        "this is a defect of the search: report it with the question",
    ),
    "no score": (
        "nothing answers the question, and no score tells how near what came is",
        '`catalog golden calibrate`, or `score = "cosine"` with the threshold of R-02',
    ),
}


def find_patterns(measurement: QueryMeasurement, score: ScoreKind) -> tuple[FailurePattern, ...]:
    """Return the ways in which a question failed; none of one that went as it should."""
    return tuple(_patterns(measurement, score))


def _patterns(measured: QueryMeasurement, score: ScoreKind) -> Iterator[FailurePattern]:
    if measured.failures:
        yield "failed"
    if any(passage.is_outside for passage in measured.passages):
        yield "outside filters"
    if not measured.query.is_answerable:
        yield from _unanswerable(measured, score)
        return
    if measured.absent:
        yield "absent"
    right = [passage for passage in measured.passages if passage.is_right]
    if not measured.passages:
        if not measured.failures:
            yield "empty"
    elif not right:
        yield "irrelevant"
    else:
        found = frozenset[int]().union(*(passage.sources for passage in right))
        if len(found | set(measured.absent)) < len(measured.query.sources):
            yield "incomplete"
        strengths = [passage.strength(score) for passage in right]
        known = [strength for strength in strengths if strength is not None]
        if known and max(known) < measured.threshold:
            yield "low confidence"


def _unanswerable(measured: QueryMeasurement, score: ScoreKind) -> Iterator[FailurePattern]:
    strengths = [passage.strength(score) for passage in measured.passages]
    if any(strength is not None and strength >= measured.threshold for strength in strengths):
        yield "unwarranted"
    elif strengths and all(strength is None for strength in strengths):
        yield "no score"
