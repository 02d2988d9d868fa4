"""The hybrid retriever that also asks an expansion's lines."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import LLMError
from catalog.core.lru_cache import LRUCache
from catalog.library.library import Library
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.legs import EngineHits, LegQuery, LegResult
from catalog.search_v2.passages import PassageNode, ScoredPassage
from catalog.search_v2.retriever import Ask, FusedState, HybridRetrieverV2
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import read_stamp

if TYPE_CHECKING:
    from catalog.search_v2.retriever import LegMaker
    from catalog.store.engine_types import Restriction

_KEPT = "kept from an earlier search"


@dataclass(frozen=True, slots=True)
class CachedRetrieval:
    """An expanded retrieval over one state of a dataset, told as having taken no time."""

    account: StageLog
    answers: tuple[LegResult, ...]
    settled: FusedState
    since: float  # time.monotonic()


class QueryExpansionRetrieverV2(HybridRetrieverV2):
    """A :class:`HybridRetrieverV2` that first asks the query, then what the plan adds to it.

    The added lists weigh ``expansion_weight``, the query's own ``original_weight``; filters and
    scope are the same for all. A plan that comes to nothing leaves the plain hybrid answer.
    A retrieval in which nothing failed is kept in memory until the dataset changes, at most for
    ``cache_ttl_seconds``, for the same question again: many legs cost more than two.
    """

    def __init__(
        self,
        library: Library,
        asked: Sequence[LegQuery],
        *,
        dataset: str,
        top_k: int,
        stages: StageLog | None = None,
        plan: ExpansionPlan,
        legs: LegMaker,
    ) -> None:
        super().__init__(library, asked, dataset=dataset, top_k=top_k, stages=stages)
        self._plan, self._legs = plan, legs
        self._key: Hashable | None = None
        self._kept: LRUCache[Hashable, CachedRetrieval] | None = None

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self._key = self._key_of(query_bundle)
        with self._library.database.read() as connection:
            stamp = read_stamp(connection, self._dataset)
        self._kept = self._library.expanded(self._dataset, stamp)
        kept = None if self._key is None else self._kept.get(self._key)
        lifetime = self._settings.cache_ttl_seconds
        if kept is None or time.monotonic() - kept.since > lifetime:
            return super()._retrieve(query_bundle)
        self.stages.join(kept.account)
        return super()._told(kept.answers, _anew(kept.settled))

    def _further(
        self, query: QueryBundle, answers: Sequence[LegResult], ask: Ask
    ) -> list[LegResult]:
        asked = list(self._legs.asked(self._plan.sub_queries(query.query_str, answers)))
        return ask(asked, query) if asked else []

    def _told(self, answers: Sequence[LegResult], settled: FusedState) -> list[NodeWithScore]:
        self.stages.join(self._plan.stages)
        nodes = super()._told(answers, settled)
        failed = any(report.status == "failed" for report in self._plan.stages.reports)
        well = settled.is_whole and not failed and _all_well(answers)
        if well and self._key is not None and self._kept is not None:
            timeless = tuple(replace(one, ms=0.0, found=_without_note(one)) for one in answers)
            again, settled = _told_again(self._plan.stages), replace(settled, ms=0.0)
            kept = CachedRetrieval(again, timeless, settled, time.monotonic())
            self._kept.put(self._key, kept)
        return nodes

    def _key_of(self, query: QueryBundle) -> Hashable | None:
        """All that the answer depends on beside the dataset; ``None``: it is not to be kept."""
        if query.embedding is not None or not self._settings.cache_ttl_seconds:
            return None
        try:
            identity = self._plan.identity
        except LLMError:
            return None
        legs = tuple((one.part, *_bounds(one), one.leg.top_k) for one in self._asked)
        asked = (query.query_str, self.similarity_top_k, self.stages.strict)
        return (*asked, legs, identity)


def _bounds(asked: LegQuery) -> tuple[Restriction, str]:
    """What a leg is held to; to Python the filters ``x = 1`` and ``x = True`` are equal."""
    return asked.leg.restriction, repr(asked.leg.restriction.filter)


def _anew(settled: FusedState) -> FusedState:
    """The same with nodes of its own: whoever is given nodes may change them."""
    nodes = [
        ScoredPassage.of(PassageNode.of(one.chunk), one.fused, one.kinds_answered)
        for one in settled.nodes
    ]
    return replace(settled, nodes=nodes)


def _all_well(answers: Sequence[LegResult]) -> bool:
    return all(isinstance(one.found, EngineHits) and not one.found.fallback for one in answers)


def _without_note(answer: LegResult) -> EngineHits:
    assert isinstance(answer.found, EngineHits)
    return replace(answer.found, note=_KEPT)


def _told_again(stages: StageLog) -> StageLog:
    again = stages.fork()
    for report in stages.reports:
        if report.status == "ran":
            again.ran(report.name, 0.0, f"{_KEPT}; {report.note}")
        else:
            again.skipped(report.name, report.note)
    return again
