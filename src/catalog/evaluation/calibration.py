"""Fitting relevance: which passages of labelled queries answered, by what their scores were.

A passage counts as relevant when its document is labelled so. Every query weighs the same,
whatever the number of its candidates. The fit is a logistic regression (Newton's method), with a
ridge of 10⁻³ that only matters where the labels are separable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from catalog.core.errors import InputError
from catalog.core.results import Mode
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.ingest.report import Progress
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.relevance import Calibration, Features, features

if TYPE_CHECKING:
    import numpy.typing as npt

    from catalog.search_v2.service import SearchServiceV2

    Floats = npt.NDArray[np.float64]

CANDIDATES = 20  # of each query, the best ones
LEAST = 20  # relevant and irrelevant passages a fit needs at least
_RIDGE = 1e-3
_STEPS = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """One candidate of one query: its document's grade, its fused score, and what is fitted on."""

    path: str
    grade: int
    fused: float
    features: Features


@dataclass(frozen=True, slots=True)
class Quality:
    """How well relevance tells: the area under the ROC curve, the expected calibration error.

    ``auc`` is the chance that a relevant passage is given more than an irrelevant one;
    ``error`` the mean distance of estimate and truth over ten bins of estimates; both 0 to 1.
    """

    n: int
    auc: float
    error: float


def observe(
    service: SearchServiceV2,
    golden: GoldenSet,
    dataset: str,
    *,
    mode: Mode = "hybrid",
    rerank: bool = False,
    progress: Progress,
) -> dict[str, list[Seen]]:
    """The first candidates of every query, by query id; expansion is left out."""
    progress.start(len(golden))
    found: dict[str, list[Seen]] = {}
    weight = service.workspace.settings.rag_v2.original_weight
    for query in golden:
        passages = _candidates(service, query, dataset, mode, rerank=rerank)
        found[query.id] = [
            Seen(one.passage.path, query.relevant.get(one.passage.path, 0), one.fused.score, seen)
            for one, seen in zip(passages, features(passages, weight), strict=True)
        ]
        progress.advance(1, "asking")
    return found


def fit(observed: Sequence[Sequence[Seen]], *, reranked: bool, about: str = "") -> Calibration:
    """The calibration that makes these labels most likely.

    Raises :class:`InputError` when there is too little of either kind to fit on.
    """
    rows = [(seen, 1 / len(query)) for query in observed for seen in query]
    labels = np.array([seen.grade > 0 for seen, _ in rows], dtype=np.float64)
    if min(labels.sum(), len(labels) - labels.sum()) < LEAST:
        raise InputError(
            f"a calibration needs {LEAST} relevant and {LEAST} irrelevant passages, and there are "
            f"{int(labels.sum())} and {int(len(labels) - labels.sum())}: label more queries"
        )
    weights = np.array([weight for _, weight in rows])
    values = _matrix([seen for seen, _ in rows], reranked=reranked)
    found = list(map(float, _newton(values, labels, weights * len(weights) / weights.sum())))
    return Calibration(
        constant=found[0],
        fused=found[1],
        cosine=found[2],
        lexical=found[3],
        rerank=found[4] if reranked else 0.0,
        about=about,
    )


def quality(observed: Sequence[Sequence[Seen]], calibration: Calibration) -> Quality:
    """How well a calibration does on labelled passages."""
    seen = [one for query in observed for one in query]
    labels = np.array([one.grade > 0 for one in seen])
    told = np.array([calibration.relevance(one.features) for one in seen])
    return Quality(len(seen), _auc(told, labels), _calibration_error(told, labels))


def _candidates(
    service: SearchServiceV2, query: GoldenQuery, dataset: str, mode: Mode, *, rerank: bool
) -> list[ScoredPassage]:
    asked = {"dataset": dataset, "top_k": CANDIDATES, "mode": mode, "filters": query.filters}
    nodes = service.retrieve(query.query, rerank=rerank, expand=False, **asked)
    return [node for node in nodes if isinstance(node, ScoredPassage)]


def _matrix(seen: Sequence[Seen], *, reranked: bool) -> Floats:
    columns = [[1.0, one.features.fused, one.features.cosine, one.features.lexical] for one in seen]
    if reranked:
        columns = [[*row, one.features.rerank] for row, one in zip(columns, seen, strict=True)]
    return np.array(columns)


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


def _auc(told: Floats, labels: npt.NDArray[np.bool_]) -> float:
    """By ranks (Mann and Whitney 1947), ties counting half; .5 when there is one class only."""
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
