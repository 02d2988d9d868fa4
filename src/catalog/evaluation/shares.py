"""Share the difference between two searches among their stages, by exact Shapley values.

Each stage of the baseline is swapped for the candidate's, alone and with each set of other stages:

    share(s) = Σ over sets S without s of  |S|! (n - |S| - 1)! / n! · (score(S + s) - score(S))

where score(S) is the metric of the search with the stages of S from the candidate. The shares add
up to the difference of the two searches. Stages that are equal in both are left out: they have no
share. n differing stages take 2^n runs.

Source: Shapley 1953, "A value for n-person games", Contributions to the Theory of Games II.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.core.errors import InputError
from catalog.core.filters import And, parse_filters
from catalog.core.user_search import Ranking
from catalog.evaluation.backends import V2_MODES, V2Backend, parse_changes
from catalog.evaluation.metrics import PRIMARY, score_run
from catalog.evaluation.runs import run_backends
from catalog.evaluation.significance import Interval, bootstrap_interval

if TYPE_CHECKING:
    from catalog.evaluation.golden import GoldenQuery, GoldenSet
    from catalog.ingest.sync_report import Progress
    from catalog.retrieval.search import Searcher

MOST_STAGES = 6  # 64 runs
_LEGS = {"words": "lexical", "meaning": "vector"}
_BY_PREFIX = {
    "rerank": "rerank",
    "router": "router",
    "expansion": "expansion",
    "strong": "expansion",
    "lexical_engine": "words",
    "bm25": "words",
    "vector_engine": "meaning",
    "embed_prefix": "meaning",
    "fts_top_k": "depth",
    "vector_top_k": "depth",
    "overfetch": "depth",
    "fusion_top_k": "depth",
    "fusion_mode": "fusion",
    "rrf_k": "fusion",
    "bonus": "fusion",
    "original_weight": "fusion",
    "lexical_weight": "fusion",
    "vector_weight": "fusion",
}
_REST = "selection"  # the limit per document, copies, dates, threshold, budget


class SearchSetup(NamedTuple):
    """One of the two searches: its spec (``v2:name=value,…``, ``lexical``, ``vector``) and more.

    ``dataset`` may be another index of the same documents. ``filters`` apply in addition to those
    of the query.
    """

    spec: str
    dataset: str
    filters: Any = None


class StageShare(NamedTuple):
    """A stage's part of the difference, mean over the queries, with a 95 % interval."""

    stage: str
    share: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class SharesOfStages:
    """The difference candidate minus baseline in a metric, and the stages' shares of it."""

    baseline: str
    candidate: str
    metric: str
    queries: int
    before: float
    after: float
    shares: tuple[StageShare, ...]


def share_out(
    service: Searcher,
    baseline: SearchSetup,
    candidate: SearchSetup,
    golden: GoldenSet,
    progress: Progress,
    metric: str = PRIMARY,
) -> SharesOfStages:
    """Run every mix of the two searches' stages; return what each stage adds to the metric.

    Raises :class:`InputError` for a search that is not v2's, for two equal ones, and for more than
    :data:`MOST_STAGES` differing stages.
    """
    sides = _stages(baseline), _stages(candidate)
    stages = [it for it in {**sides[0], **sides[1]} if sides[0].get(it) != sides[1].get(it)]
    if not stages:
        raise InputError(f"{baseline.spec} and {candidate.spec} are the same search")
    if len(stages) > MOST_STAGES:
        told = ", ".join(stages)
        raise InputError(f"{len(stages)} stages differ, at most {MOST_STAGES} can: {told}")
    mixes = [frozenset(one) for n in range(len(stages) + 1) for one in combinations(stages, n)]
    scores: dict[frozenset[str], npt.NDArray[np.float64]] = {}
    backends: dict[str, list[_Mix]] = {}
    for mix in mixes:
        chosen = {name: sides[name in mix].get(name, {}) for name in stages}
        backend = _Mix(service, mix, {**sides[0], **chosen})
        backends.setdefault(backend.dataset, []).append(backend)
    for dataset, these in backends.items():
        runs = run_backends(these, golden, dataset=dataset, repeats=0, progress=progress)
        for backend, run in zip(these, runs, strict=True):
            column = score_run(run, golden).per_query[metric]
            scores[backend.mix] = np.asarray(list(column.values()), dtype=np.float64)
    by_stage = shapley(stages, scores.__getitem__)
    shares = [
        StageShare(name, float(values.mean()), bootstrap_interval(values))
        for name, values in by_stage.items()
    ]
    shares.sort(key=lambda one: -abs(one.share))
    first, last = scores[mixes[0]], scores[mixes[-1]]
    ends = float(first.mean()), float(last.mean())
    specs = baseline.spec, candidate.spec
    return SharesOfStages(*specs, metric, len(first), *ends, tuple(shares))


def shapley(
    players: Sequence[str], value: Callable[[frozenset[str]], npt.NDArray[np.float64]]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return each player's Shapley value; they add up to ``value(all) - value(none)``.

    >>> worth = {"": 0.0, "a": 1.0, "b": 2.0, "ab": 6.0}
    >>> by = shapley("ab", lambda who: np.array(worth["".join(sorted(who))]))
    >>> float(by["a"]), float(by["b"])
    (2.5, 3.5)
    """
    n, shares = len(players), {}
    for player in players:
        others = [one for one in players if one != player]
        total = np.zeros_like(value(frozenset()))
        for size in range(n):
            weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for one in map(frozenset, combinations(others, size)):
                total = total + weight * (value(one | {player}) - value(one))
        shares[player] = total
    return shares


def round_to_sum(values: Sequence[float], total: float, digits: int = 4) -> list[float]:
    """Round numbers so that they add up to the rounded total, by largest remainders.

    >>> round_to_sum([0.33333, 0.33333, 0.33334], 1.0, 2)
    [0.33, 0.33, 0.34]
    """
    unit = 10**digits
    scaled = [value * unit for value in values]
    whole = [math.floor(value) for value in scaled]
    missing = round(total * unit) - sum(whole)
    order = sorted(range(len(values)), key=lambda at: whole[at] - scaled[at])
    for at in order[:missing]:
        whole[at] += 1
    return [value / unit for value in whole]


def share_lines(shares: SharesOfStages) -> Iterator[str]:
    """Yield both scores, and a line for each stage; the printed shares add up."""
    difference = round(shares.after, 4) - round(shares.before, 4)
    yield (
        f"{shares.metric}: {shares.baseline} {shares.before:.4f}, {shares.candidate} "
        f"{shares.after:.4f}, difference {difference:+.4f} over {shares.queries} queries"
    )
    printed = round_to_sum([one.share for one in shares.shares], difference)
    for (stage, _, ends), share in zip(shares.shares, printed, strict=True):
        yield f"  {share:+.4f} [{ends.low:+.4f}, {ends.high:+.4f}]  {stage}"


def share_dict(shares: SharesOfStages) -> dict[str, Any]:
    """Return the same as data."""
    told = [{**one._asdict(), "interval": asdict(one.interval)} for one in shares.shares]
    return {**asdict(shares), "difference": shares.after - shares.before, "shares": told}


def _stages(setup: SearchSetup) -> dict[str, dict[str, Any]]:
    """Return a search's settings by stage; a leg that it does not have is off."""
    base, _, changes = setup.spec.partition(":")
    if base not in V2_MODES:
        raise InputError(
            f"{setup.spec!r} has no stages to swap: name two of v2, lexical, vector and "
            "v2:setting=value,…"
        )
    stages: dict[str, dict[str, Any]] = {"index": {"dataset": setup.dataset}}
    for name, value in parse_changes(setup.spec, changes).items():
        parts = (stage for prefix, stage in _BY_PREFIX.items() if name.startswith(prefix))
        stages.setdefault(next(parts, _REST), {})[name] = value
    for stage, leg in _LEGS.items():
        if V2_MODES[base] not in (leg, "hybrid"):
            stages[stage] = {"off": True}
    if setup.filters:
        stages["filters"] = {"filters": setup.filters}
    return stages


class _Mix(V2Backend):
    """A search with some stages of the candidate; without any leg it finds nothing."""

    def __init__(
        self, service: Searcher, mix: frozenset[str], stages: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.mix, self.dataset = mix, str(stages["index"]["dataset"])
        self._filters = stages.get("filters", {}).get("filters")
        self._legs = [leg for stage, leg in _LEGS.items() if "off" not in stages.get(stage, {})]
        settings = {name: it for one in stages.values() for name, it in one.items()}
        for name in ("dataset", "off", "filters"):
            settings.pop(name, None)
        mode: Any = self._legs[0] if len(self._legs) == 1 else "hybrid"
        super().__init__(
            " + ".join(sorted(mix)) or "baseline", service.with_settings(settings), mode
        )

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search with the query's filters and its own."""
        if not self._legs:
            return Ranking(())
        if self._filters:
            both = (parse_filters(self._filters), parse_filters(query.filters))
            tree = And(tuple(one for one in both if one is not None))
            query = query.model_copy(update={"filters": tree})
        return super().search(query, dataset=dataset, top_k=top_k)
