"""Fitting relevance: which passages of labelled queries answered, by what their scores were.

A passage counts as relevant when its document is labelled so; of an unanswerable query none is.
Every query weighs the same, whatever the number of its candidates. The fit is a logistic
regression (Newton's method), with a ridge of 10⁻³ that only matters where labels are separable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from catalog.core.errors import InputError
from catalog.core.params import Mode
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.ingest.sync_report import Progress
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.relevance import Calibration, Features, extract_features

if TYPE_CHECKING:
    import numpy.typing as npt

    from catalog.search_v2.service import SearchServiceV2

    Floats = npt.NDArray[np.float64]

CANDIDATES = 10  # of each query, the best ones: those that thresholds are for
LEAST = 20  # relevant and irrelevant passages a fit needs at least
_RIDGE = 1e-3
_STEPS = 50
_SLOPES = ("fused", "cosine", "lexical", "rerank")


@dataclass(frozen=True, slots=True)
class LabelledCandidate:
    """One candidate of one query: its document's grade, its fused score, and what is fitted on."""

    path: str
    grade: int
    fused: float
    features: Features


@dataclass(frozen=True, slots=True)
class CalibrationQuality:
    """How well relevance tells: the area under the ROC curve, the expected calibration error.

    ``auc`` is the chance that a relevant passage is given more than an irrelevant one;
    ``error`` the mean distance of estimate and truth over ten bins of estimates; both 0 to 1.
    """

    n: int
    auc: float
    error: float


def collect_candidates(
    service: SearchServiceV2,
    golden: GoldenSet,
    dataset: str,
    *,
    mode: Mode = "hybrid",
    rerank: bool = False,
    depth: int = CANDIDATES,
    progress: Progress,
) -> dict[str, list[LabelledCandidate]]:
    """The first ``depth`` candidates of every query, by query id.

    Expansion is left out, and so are the threshold and the token budget of the settings.
    """
    progress.start(len(golden))
    service = _uncut(service, rerank=rerank)
    found: dict[str, list[LabelledCandidate]] = {}
    weight = service.library.settings.rag_v2.original_weight
    for query in golden:
        passages = _candidates(service, query, dataset, mode, rerank=rerank, depth=depth)
        found[query.id] = [
            LabelledCandidate(
                one.chunk.path, query.relevant.get(one.chunk.path, 0), one.fused.score, seen
            )
            for one, seen in zip(passages, extract_features(passages, weight), strict=True)
        ]
        progress.advance(1, "asking")
    return found


def fit_calibration(
    groups: Sequence[Sequence[Sequence[LabelledCandidate]]],
    *,
    mode: Mode,
    reranked: bool,
    about: str = "",
) -> Calibration:
    """The calibration that makes the labels most likely; ``groups`` are collections of queries.

    Each group has its own constant, for some are labelled more densely than others, and what
    the scores tell is learned within groups; the result has the mean of their constants. Raises
    :class:`InputError` when there is too little of either kind to fit on.
    """
    _require_enough([seen for group in groups for query in group for seen in query])
    return _fitted([group for group in groups if any(group)], mode, reranked=reranked, about=about)


def _require_enough(passages: Sequence[LabelledCandidate]) -> None:
    relevant = sum(seen.grade > 0 for seen in passages)
    if min(relevant, len(passages) - relevant) < LEAST:
        raise InputError(
            f"a calibration needs {LEAST} relevant and {LEAST} irrelevant passages, and there are "
            f"{relevant} and {len(passages) - relevant}: label more queries"
        )


def _fitted(
    groups: Sequence[Sequence[Sequence[LabelledCandidate]]],
    mode: Mode,
    *,
    reranked: bool,
    about: str = "",
) -> Calibration:
    rows = [
        (number, seen, 1 / len(query))
        for number, group in enumerate(groups)
        for query in group
        for seen in query
    ]
    labels = np.array([seen.grade > 0 for _, seen, _ in rows], dtype=np.float64)
    names = _columns(mode, reranked=reranked)
    values = np.array([[getattr(seen.features, name) for name in names] for _, seen, _ in rows])
    member = np.array([[float(number == n) for n in range(len(groups))] for number, _, _ in rows])
    share = np.array([weight for _, _, weight in rows])
    share /= (member * (member.T @ share)).sum(axis=1)  # groups weigh the same
    found = _newton(np.hstack([values, member]), labels, share * len(labels) / len(groups))
    slopes = dict.fromkeys(_SLOPES, 0.0) | dict(zip(names, map(float, found), strict=False))
    return Calibration(constant=float(found[len(names) :].mean()), **slopes, about=about)


def cross_validate(
    group: Sequence[Sequence[LabelledCandidate]], *, mode: Mode, reranked: bool, folds: int = 5
) -> CalibrationQuality:
    """How well calibrations do on queries they were not fitted on, each fold left out once.

    Raises :class:`InputError` as :func:`fit` does, and for fewer than two queries.
    """
    group = [query for query in group if query]
    _require_enough([seen for query in group for seen in query])
    if len(group) < 2:
        raise InputError("one query cannot be left out of itself: label more queries")
    folds = min(folds, len(group))
    told: list[float] = []
    labels: list[bool] = []
    for fold in range(folds):
        others = [query for n, query in enumerate(group) if n % folds != fold]
        made = _fitted([others], mode, reranked=reranked)
        for seen in (one for query in group[fold::folds] for one in query):
            told.append(made.relevance(seen.features))
            labels.append(seen.grade > 0)
    return _quality(np.array(told), np.array(labels))


def measure_quality(
    observed: Sequence[Sequence[LabelledCandidate]], calibration: Calibration
) -> CalibrationQuality:
    """How well a calibration does on labelled passages."""
    seen = [one for query in observed for one in query]
    labels = np.array([one.grade > 0 for one in seen])
    told = np.array([calibration.relevance(one.features) for one in seen])
    return _quality(told, labels)


def _uncut(service: SearchServiceV2, *, rerank: bool) -> SearchServiceV2:
    """The same searches without the cuts that a calibration is for: without one they refuse."""
    from catalog.search_v2.service import SearchServiceV2

    library = service.library
    if rerank:
        _ = library.reranker  # made before the view, so that it is shared
    return SearchServiceV2(library.view({"similarity_threshold": 0.0, "token_budget": 0}))


def _candidates(
    service: SearchServiceV2,
    query: GoldenQuery,
    dataset: str,
    mode: Mode,
    *,
    rerank: bool,
    depth: int,
) -> list[ScoredPassage]:
    asked = {"dataset": dataset, "top_k": depth, "mode": mode, "filters": query.filters}
    nodes = service.retrieve(query.query, rerank=rerank, expand=False, **asked)
    return [node for node in nodes if isinstance(node, ScoredPassage)]


def _columns(mode: Mode, *, reranked: bool) -> tuple[str, ...]:
    """What the scores of such searches tell."""
    own = {"lexical": ("lexical",), "vector": ("cosine",), "hybrid": _SLOPES[:3]}[mode]
    return (*own, "rerank") if reranked else own


def _quality(told: Floats, labels: npt.NDArray[np.bool_]) -> CalibrationQuality:
    return CalibrationQuality(len(told), auc(told, labels), _calibration_error(told, labels))


def _newton(values: Floats, labels: Floats, weights: Floats) -> Floats:
    found = np.zeros(values.shape[1])
    ridge = _RIDGE * np.eye(len(found))
    for _ in range(_STEPS):
        told = 1 / (1 + np.exp(-np.clip(values @ found, -40, 40)))
        slope = values.T @ (weights * (labels - told)) - ridge @ found
        curve = (values * (weights * told * (1 - told))[:, None]).T @ values + ridge
        step = np.linalg.solve(curve, slope)
        found += step
        if np.abs(step).max() < 1e-8:
            break
    return found


def auc(told: Floats, labels: npt.NDArray[np.bool_]) -> float:
    """The chance that a positive has more than a negative, 0 to 1, ties counting half.

    By ranks (Mann and Whitney 1947); .5 when there is one class only.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return 0.5
    _, inverse, counts = np.unique(told, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[inverse]
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _calibration_error(told: Floats, labels: npt.NDArray[np.bool_]) -> float:
    bins = np.minimum((told * 10).astype(int), 9)
    parts = [
        abs(told[bins == n].mean() - labels[bins == n].mean()) * (bins == n).mean()
        for n in np.unique(bins)
    ]
    return float(sum(parts))
