"""Fit relevance to labelled queries: the probability that a passage answers, from its scores.

A passage counts as relevant if its document, or another document with its text, is labelled as
relevant; an unanswerable query has no relevant passage. Every query has the same weight, whatever
its number of candidates. The fit is a logistic regression (Newton's method) with a ridge of 10⁻³,
which matters only if labels are separable.

If a calibration is packaged, only its constant is shifted: a team's own questions have answers and
cannot teach what an unrelated question looks like. A ridge of 1 keeps the shift small for few
queries. A fit is adopted if it wins on queries that it was not fitted on: their mean squared error,
with each fifth of the queries left out in turn, must fall by more than two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.core.errors import InputError
from catalog.core.params import Mode, SearchParams
from catalog.evaluation.golden import GoldenSet
from catalog.ingest.sync_report import Progress
from catalog.retrieval.relevance import FEATURES, Calibration, Features, extract_features
from catalog.retrieval.search import find_passages

if TYPE_CHECKING:
    import numpy.typing as npt

    from catalog.retrieval.search import Searcher

    Floats = npt.NDArray[np.float64]


CANDIDATES = 10  # the best ones of each query, to which thresholds apply
MIN_PASSAGES = 20  # relevant and irrelevant passages a fit needs at least
_RIDGE = 1e-3
_STEPS = 50
_FOLDS = 5
_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class LabelledCandidate:
    """One candidate of one query: its document's grade, its fused score and its features."""

    path: str
    grade: int
    fused: float
    features: Features


@dataclass(frozen=True, slots=True)
class CalibrationQuality:
    """Quality of relevance estimates: area under the ROC curve, expected calibration error.

    ``auc`` is the probability that a relevant passage gets more than an irrelevant one. ``error``
    is the mean distance of estimate and truth over ten bins of estimates. Both are 0 to 1.
    """

    n: int
    auc: float
    error: float


@dataclass(frozen=True, slots=True)
class OwnCalibration:
    """A calibration fitted to a team's own queries, and its quality on queries left out.

    ``gain`` is the fall of the mean squared error, compared with the packaged calibration or,
    without one, with the share of relevant passages; ``error`` is its standard error.
    """

    calibration: Calibration
    quality: CalibrationQuality
    gain: float
    error: float

    @property
    def wins(self) -> bool:
        """Return whether it beats the present calibration beyond chance."""
        return self.gain > _ERRORS * self.error


def collect_candidates(
    service: Searcher,
    golden: GoldenSet,
    dataset: str,
    *,
    mode: Mode = "hybrid",
    depth: int = CANDIDATES,
    progress: Progress,
) -> dict[str, list[LabelledCandidate]]:
    """Return the first ``depth`` candidates of every query, by query id.

    Expansion, the threshold and the token budget of the settings are not applied.
    """
    progress.start(len(golden))
    service = service.with_settings({"similarity_threshold": 0.0, "token_budget": 0})
    candidates: dict[str, list[LabelledCandidate]] = {}
    for query in golden:
        options = {"dataset": dataset, "top_k": depth, "mode": mode, "filters": query.filters}
        params = SearchParams(query.query, rerank=False, expand=False, **options)
        passages = find_passages(service.parts, params).passages
        candidates[query.id] = [
            LabelledCandidate(
                passage.chunk.path,
                max(query.relevant.get(chunk.path, 0) for chunk in passage.chunks),
                passage.fused.score,
                features,
            )
            for passage, features in zip(
                passages, extract_features(passages, query.query), strict=True
            )
        ]
        progress.advance(1, "asking")
    return candidates


def fit_calibration(
    groups: Sequence[Sequence[Sequence[LabelledCandidate]]],
    *,
    has_cosines: bool,
    about: str = "",
) -> Calibration:
    """Fit the calibration that makes the labels most likely.

    ``groups`` are collections of queries. Each has its own constant, because some are labelled more
    densely than others, and the scores' coefficients are learned within groups; the result has the
    mean of the constants. Raises :class:`InputError` if there are too few relevant or irrelevant
    passages.
    """
    _require_enough([passage for group in groups for query in group for passage in query])
    return _fit([group for group in groups if any(group)], has_cosines=has_cosines, about=about)


def _require_enough(passages: Sequence[LabelledCandidate]) -> None:
    relevant = sum(passage.grade > 0 for passage in passages)
    if min(relevant, len(passages) - relevant) < MIN_PASSAGES:
        raise InputError(
            f"a calibration needs {MIN_PASSAGES} relevant and {MIN_PASSAGES} irrelevant "
            f"passages, but there are {relevant} and {len(passages) - relevant}: label more "
            "queries"
        )


def _fit(
    groups: Sequence[Sequence[Sequence[LabelledCandidate]]],
    *,
    has_cosines: bool,
    about: str = "",
) -> Calibration:
    rows = [
        (number, passage, 1 / len(query))
        for number, group in enumerate(groups)
        for query in group
        for passage in query
    ]
    labels = np.array([passage.grade > 0 for _, passage, _ in rows], dtype=np.float64)
    names = FEATURES if has_cosines else FEATURES[1:]
    values = np.array([[getattr(row[1].features, name) for name in names] for row in rows])
    member = np.array([[float(number == n) for n in range(len(groups))] for number, _, _ in rows])
    share = np.array([weight for _, _, weight in rows])
    share /= (member * (member.T @ share)).sum(axis=1)  # groups get equal weights
    weights = share * len(labels) / len(groups)
    solution = _newton(np.hstack([values, member]), labels, weights)
    slopes: dict[str, Any] = dict(zip(names, map(float, solution), strict=False))
    return Calibration(float(solution[len(names) :].mean()), **slopes, about=about)


def fit_own(
    group: Sequence[Sequence[LabelledCandidate]],
    packaged: Calibration | None,
    *,
    has_cosines: bool,
    about: str,
) -> OwnCalibration:
    """Fit a calibration to queries, by shifting the packaged one if it exists.

    Raises :class:`InputError` like :func:`fit_calibration`, and for fewer than two queries.
    """
    group = [query for query in group if query]
    _require_enough([passage for query in group for passage in query])
    if len(group) < 2:
        raise InputError("a single query cannot be left out of its own fit: label more queries")

    def fit(queries: Sequence[Sequence[LabelledCandidate]]) -> Calibration:
        if packaged is None:
            return _fit([queries], has_cosines=has_cosines, about=about)
        return replace(_shift(packaged, queries), about=about)

    gains: list[float] = []
    estimates: list[float] = []
    labels: list[bool] = []
    for fold in range(_FOLDS):
        others = [query for n, query in enumerate(group) if n % _FOLDS != fold]
        own, share = fit(others), _relevant_share(others)
        for query in group[fold::_FOLDS]:
            truth = np.array([passage.grade > 0 for passage in query])
            known = [own.relevance(passage.features) for passage in query]
            before = [
                share if packaged is None else packaged.relevance(passage.features)
                for passage in query
            ]
            gains.append(float(np.mean((before - truth) ** 2 - (known - truth) ** 2)))
            estimates += known
            labels += truth.tolist()
    return OwnCalibration(
        calibration=fit(group),
        quality=_quality(np.array(estimates), np.array(labels)),
        gain=float(np.mean(gains)),
        error=float(np.std(gains, ddof=1)) / len(gains) ** 0.5,
    )


def _relevant_share(queries: Sequence[Sequence[LabelledCandidate]]) -> float:
    grades = [passage.grade for query in queries for passage in query]
    return sum(grade > 0 for grade in grades) / max(1, len(grades))


def _shift(calibration: Calibration, queries: Sequence[Sequence[LabelledCandidate]]) -> Calibration:
    """Return the calibration with the constant that maximizes likelihood minus the ridge."""
    shifted = calibration
    for _ in range(_STEPS):
        slope, curvature = calibration.constant - shifted.constant, 1.0
        for query in queries:
            for passage in query:
                estimate = shifted.relevance(passage.features)
                slope += ((passage.grade > 0) - estimate) / len(query)
                curvature += estimate * (1 - estimate) / len(query)
        step = max(-1.0, min(1.0, slope / curvature))
        shifted = replace(shifted, constant=shifted.constant + step)
        if abs(step) < 1e-6:
            break
    return shifted


def measure_quality(
    queries: Sequence[Sequence[LabelledCandidate]], calibration: Calibration
) -> CalibrationQuality:
    """Measure how good a calibration is on the labelled passages of queries."""
    passages = [passage for query in queries for passage in query]
    labels = np.array([passage.grade > 0 for passage in passages])
    estimates = np.array([calibration.relevance(passage.features) for passage in passages])
    return _quality(estimates, labels)


def _quality(estimates: Floats, labels: npt.NDArray[np.bool_]) -> CalibrationQuality:
    error = _calibration_error(estimates, labels)
    return CalibrationQuality(len(estimates), auc(estimates, labels), error)


def _newton(values: Floats, labels: Floats, weights: Floats) -> Floats:
    """Solve the weighted logistic regression: ``(n, m)`` values to ``m`` coefficients."""
    solution = np.zeros(values.shape[1])
    ridge = _RIDGE * np.eye(len(solution))
    for _ in range(_STEPS):
        estimates = 1 / (1 + np.exp(-np.clip(values @ solution, -40, 40)))
        gradient = values.T @ (weights * (labels - estimates)) - ridge @ solution
        curvature = (values * (weights * estimates * (1 - estimates))[:, None]).T @ values + ridge
        step = np.linalg.solve(curvature, gradient)
        solution += step
        if np.abs(step).max() < 1e-8:
            break
    return solution


def auc(estimates: Floats, labels: npt.NDArray[np.bool_]) -> float:
    """Compute the probability that a positive has more than a negative; ties count half.

    By ranks (Mann and Whitney 1947); .5 if there is only one class.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return 0.5
    _, inverse, counts = np.unique(estimates, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[inverse]
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _calibration_error(estimates: Floats, labels: npt.NDArray[np.bool_]) -> float:
    bins = np.minimum((estimates * 10).astype(int), 9)
    parts = [
        abs(estimates[bins == n].mean() - labels[bins == n].mean()) * (bins == n).mean()
        for n in np.unique(bins)
    ]
    return float(sum(parts))


_SHRINKAGE = 2.0


@dataclass(frozen=True, slots=True)
class ShiftFit:
    """The chosen shift, and its gain on queries that were not used to choose it.

    ``gain`` is in the share of right decisions; ``error`` is its standard error. ``is_other`` if it
    is not 0.
    """

    queries: int
    shift: float
    gain: float
    error: float
    is_other: bool

    @property
    def wins(self) -> bool:
        """Return whether the shift beats none beyond chance."""
        return self.is_other and self.gain > _ERRORS * self.error


def fit_shift(scores: Floats, shifts: Sequence[float]) -> ShiftFit:
    """Choose a shift from the score of each query (row) at each of the ``shifts`` (column).

    The same shift is for every query. The best mean wins, averaged with its neighbours and reduced
    by ``_SHRINKAGE · shift² / queries``, so that few queries move the shift little. The result is
    better than none if the mean gain on queries that were left out (each fifth in turn) is above 0
    by two standard errors.
    """
    steps = np.array(shifts)
    none = int(np.argmin(np.abs(steps)))
    chosen = _choose(scores, none, steps)
    gains = np.concatenate(
        [
            fold[:, _choose(np.delete(scores, np.s_[number::_FOLDS], axis=0), none, steps)]
            - fold[:, none]
            for number in range(_FOLDS)
            if len(fold := scores[number::_FOLDS])
        ]
    )
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    is_other = chosen != none
    return ShiftFit(len(scores), float(steps[chosen]), float(gains.mean()), error, is_other)


def _choose(scores: Floats, none: int, shifts: Floats) -> int:
    padded = np.pad(scores.mean(axis=0), 1, mode="edge")
    smooth = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]
    away = shifts - shifts[none]
    return int(np.argmax(smooth - _SHRINKAGE * np.square(away) / len(scores)))


ANSWER_SHIFTS = tuple(0.25 * step for step in range(-8, 9))  # of a logit
LEAST_OF_A_KIND = 10  # answerable and unanswerable queries
_REFUSED_WRONGLY = 2.0  # what a refused question that has an answer counts; the reverse counts 1


@dataclass(frozen=True, slots=True)
class AnswerDecisions:
    """Whether each query (row) is rightly answered or refused, by :data:`ANSWER_SHIFTS` (column).

    ``is_answerable`` says it of each row.
    """

    is_right: npt.NDArray[np.bool_]
    is_answerable: npt.NDArray[np.bool_]

    @property
    def weighted(self) -> Floats:
        """Return the decisions so weighted that both kinds count alike, however many there are.

        An answerable query counts twice, because a refusal hides what the documents say.
        """
        count, answerable = len(self.is_answerable), int(self.is_answerable.sum())
        share = np.where(
            self.is_answerable,
            _REFUSED_WRONGLY / max(1, answerable),
            1 / max(1, count - answerable),
        )
        return self.is_right * (share * count / (1 + _REFUSED_WRONGLY))[:, None]

    def refused(self, shift: float) -> tuple[float, float]:
        """Return the shares of answerable and of unanswerable queries that are refused."""
        right = self.is_right[:, ANSWER_SHIFTS.index(shift)]
        return float(1 - right[self.is_answerable].mean()), float(right[~self.is_answerable].mean())


def measure_answers(
    service: Searcher, golden: GoldenSet, dataset: str, *, progress: Progress
) -> AnswerDecisions:
    """Return how ``ask`` decides about each query at each of :data:`ANSWER_SHIFTS`."""
    from catalog.answers.answerable import answer_logit, logit_of, read_candidates
    from catalog.answers.extracting import rank_candidates

    progress.start(len(golden))
    least = logit_of(service.parts.settings.answers.answered_from)
    rows, answerable = [], []
    for query in golden:
        results = service.run(SearchParams(query.query, dataset=dataset, filters=query.filters))
        ranked = rank_candidates(query.query, results.results)
        candidates = read_candidates(service.parts, query.query, results, ranked)
        logit = answer_logit(query.query, results, candidates)
        is_answered = len(results) > 0
        answerable.append(bool(query.relevant))
        rows.append(
            [(is_answered and logit + shift >= least) == answerable[-1] for shift in ANSWER_SHIFTS]
        )
        progress.advance(1, "asking")
    return AnswerDecisions(np.array(rows), np.array(answerable))
