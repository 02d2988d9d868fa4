"""A hybrid search that also asks an expansion's lines."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from catalog.core.errors import LLMError
from catalog.core.param_types import Mode
from catalog.retrieval.expansion.plan import ExpansionPlan
from catalog.retrieval.hybrid import HybridRun, find, report
from catalog.retrieval.legs import LegQuery, LegRun, Question, plan_legs
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.stages import StageLog
from catalog.store.engine_types import Restriction, read_stamps
from catalog.store.statistics import count_vectors

_CACHED = "kept from an earlier search"


@dataclass(frozen=True, slots=True)
class CachedRetrieval:
    """An expanded retrieval over one state of a dataset, told as having taken no time."""

    stages: StageLog
    run: HybridRun
    since: float  # time.monotonic()


def find_expanded(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    top_k: int,
    stages: StageLog,
    *,
    plan: ExpansionPlan,
    within: Restriction,
    mode: Mode,
    k_lex: int,
    k_dense: int,
) -> HybridRun:
    """Find as :func:`~catalog.retrieval.hybrid.find` does, then ask what the plan adds as well.

    The added lists weigh ``expansion_weight``, the question's own ``original_weight``; filters and
    scope are the same for all. A plan that comes to nothing leaves the plain hybrid answer.
    A retrieval in which nothing failed is kept in memory until the dataset changes, at most for
    ``cache_ttl_seconds``, for the same question again: many legs cost more than two. Every stage
    is reported in ``stages``.
    """
    key = _cache_key(parts, legs, question, top_k, plan, strict=stages.strict)
    with parts.database.read() as connection:
        stamps = read_stamps(connection, within.dataset)
    cache = parts.cached_retrievals(within.dataset, stamps)
    cached: CachedRetrieval | None = None if key is None else cache.get(key)
    if cached is not None and time.monotonic() - cached.since <= parts.rag.cache_ttl_seconds:
        stages.join(cached.stages)
        report(cached.run, parts.rag, stages)
        return cached.run

    def count() -> int:
        with parts.database.read() as connection:
            return count_vectors(connection, within.dataset)

    def further(question: Question, runs: Sequence[LegRun]) -> list[LegQuery]:
        added = plan.sub_queries(question.text, runs, count)
        return plan_legs(parts, within, added, mode, k_lex=k_lex, k_dense=k_dense)

    run = find(parts, legs, question, top_k, further)
    stages.join(plan.stages)
    report(run, parts.rag, stages)
    has_failed = any(stage.status == "failed" for stage in plan.stages.reports)
    if key is not None and run.is_whole and not has_failed and _is_sound(run.legs):
        timeless = tuple(replace(leg, ms=0.0, note=_CACHED) for leg in run.legs)
        kept = replace(run, legs=timeless, ms=0.0)
        cache.put(key, CachedRetrieval(_timeless(plan.stages), kept, time.monotonic()))
    return run


def _cache_key(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    top_k: int,
    plan: ExpansionPlan,
    *,
    strict: bool,
) -> Hashable | None:
    """Return all that the answer depends on beside the dataset; ``None``: do not cache it."""
    if question.embedding is not None or question.texts or not parts.rag.cache_ttl_seconds:
        return None
    try:
        identity = plan.identity
    except LLMError:
        return None
    return (question.text, top_k, strict, tuple(map(_leg_key, legs)), identity)


def _leg_key(leg: LegQuery) -> Hashable:
    """Return what a leg is asked; to Python the filters ``x = 1`` and ``x = True`` are equal."""
    bounds = (leg.restriction, repr(leg.restriction.filter), leg.top_k)
    return (leg.kind, leg.sub_query, *bounds)


def _is_sound(legs: Sequence[LegRun]) -> bool:
    return all(leg.error is None and not leg.fallback for leg in legs)


def _timeless(stages: StageLog) -> StageLog:
    """Return the same account, told as that of an earlier search."""
    account = stages.fork()
    for stage in stages.reports:
        if stage.status == "ran":
            account.ran(stage.name, 0.0, f"{_CACHED}; {stage.note}")
        else:
            account.skipped(stage.name, stage.note)
    return account
