"""The hybrid retriever that also asks an expansion's lines."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from llama_index.core.schema import QueryBundle

from catalog.core.errors import LLMError
from catalog.core.lru_cache import LRUCache
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.leg_maker import LegMaker
from catalog.search_v2.legs import LegRetriever, LegRun
from catalog.search_v2.passages import Passage
from catalog.search_v2.retriever import HybridRetrieverV2, HybridRun
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import read_stamps
from catalog.store.filter_sql import DatasetNames
from catalog.store.statistics import count_vectors

_CACHED = "kept from an earlier search"


@dataclass(frozen=True, slots=True)
class CachedRetrieval:
    """An expanded retrieval over one state of a dataset, told as having taken no time."""

    stages: StageLog
    run: HybridRun
    since: float  # time.monotonic()


class ExpandedRetrieverV2(HybridRetrieverV2):
    """A :class:`HybridRetrieverV2` that first asks the query, then what the plan adds to it.

    The added lists weigh ``expansion_weight``, the query's own ``original_weight``; filters and
    scope are the same for all. A plan that comes to nothing leaves the plain hybrid answer.
    A retrieval in which nothing failed is kept in memory until the dataset changes, at most for
    ``cache_ttl_seconds``, for the same question again: many legs cost more than two.
    """

    def __init__(
        self,
        parts: SearchParts,
        legs: Sequence[LegRetriever],
        *,
        dataset: DatasetNames,
        top_k: int,
        stages: StageLog | None = None,
        plan: ExpansionPlan,
        maker: LegMaker,
    ) -> None:
        super().__init__(parts, legs, dataset=dataset, top_k=top_k, stages=stages)
        self._plan, self._maker = plan, maker
        self._key: Hashable | None = None
        self._cache: LRUCache[Hashable, CachedRetrieval] | None = None

    def find(self, query: QueryBundle) -> list[Passage]:
        """Return the passages that ``retrieve`` makes nodes of, as cached if nothing changed."""
        self._key = self._cache_key(query)
        with self._parts.database.read() as connection:
            stamps = read_stamps(connection, self._dataset)
        self._cache = self._parts.cached_retrievals(self._dataset, stamps)
        cached = None if self._key is None else self._cache.get(self._key)
        lifetime = self._parts.rag.cache_ttl_seconds
        if cached is None or time.monotonic() - cached.since > lifetime:
            return super().find(query)
        self.stages.join(cached.stages)
        return super()._report(cached.run)

    def _further_legs(self, query: QueryBundle, runs: Sequence[LegRun]) -> list[LegRetriever]:
        return self._maker.make(self._plan.sub_queries(query.query_str, runs, self._count))

    def _count(self) -> int:
        with self._parts.database.read() as connection:
            return count_vectors(connection, self._dataset)

    def _report(self, run: HybridRun) -> list[Passage]:
        self.stages.join(self._plan.stages)
        passages = super()._report(run)
        has_failed = any(report.status == "failed" for report in self._plan.stages.reports)
        is_sound = run.is_whole and not has_failed and _is_sound(run.legs)
        if is_sound and self._key is not None and self._cache is not None:
            legs = tuple(replace(leg, ms=0.0, note=_CACHED) for leg in run.legs)
            stages, timeless = _timeless(self._plan.stages), replace(run, legs=legs, ms=0.0)
            self._cache.put(self._key, CachedRetrieval(stages, timeless, time.monotonic()))
        return passages

    def _cache_key(self, query: QueryBundle) -> Hashable | None:
        """Return all that the answer depends on beside the dataset; ``None``: do not cache it."""
        brings_own = query.embedding is not None or query.custom_embedding_strs
        if brings_own or not self._parts.rag.cache_ttl_seconds:
            return None
        try:
            identity = self._plan.identity
        except LLMError:
            return None
        legs = tuple(_leg_key(leg) for leg in self._legs)
        return (query.query_str, self.similarity_top_k, self.stages.strict, legs, identity)


def _leg_key(leg: LegRetriever) -> Hashable:
    """Return what a leg is asked; to Python the filters ``x = 1`` and ``x = True`` are equal."""
    bounds = (leg.restriction, repr(leg.restriction.filter), leg.top_k)
    return (leg.kind, leg.sub_query, *bounds)


def _is_sound(legs: Sequence[LegRun]) -> bool:
    return all(leg.error is None and not leg.fallback for leg in legs)


def _timeless(stages: StageLog) -> StageLog:
    """Return the same account, told as that of an earlier search."""
    account = stages.fork()
    for report in stages.reports:
        if report.status == "ran":
            account.ran(report.name, 0.0, f"{_CACHED}; {report.note}")
        else:
            account.skipped(report.name, report.note)
    return account
