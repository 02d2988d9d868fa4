"""A hybrid search that may also search for expansion lines: when, which, and from the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from catalog.core.errors import CatalogError, LLMError
from catalog.core.query import SubQuery
from catalog.retrieval.expansion import Expander, ExpansionLine, describe_dropped
from catalog.retrieval.fusion import Leg
from catalog.retrieval.hybrid import HybridRun, find, report
from catalog.retrieval.legs import LegQuery, LegRun, Question
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.stages import StageLog
from catalog.store.engine_types import Hit, read_stamps
from catalog.store.statistics import count_vectors

# A line must be as near to the query as its 100th passage, or the one at a quarter of all passages
# if that comes earlier, but not the first.
_FOUND = 100
_SHARE = 4
_LEAST = 2
_CACHED = "cached from an earlier search"
MakeLegs = Callable[[Sequence[SubQuery]], list[LegQuery]]


class ExpansionPlan:
    """The additional sub-queries of a request, and the reports of how they were found.

    No model is asked if the lexical leg is certain already. Raises :class:`ConfigError` if the
    library has no language model.
    """

    def __init__(
        self, search: SearchParts, *, strict: bool = False, expander: Expander | None = None
    ) -> None:
        self._search, self._expander = search, expander or search.expander
        self._sub_queries: tuple[SubQuery, ...] | None = None
        self.stages = StageLog(strict=strict)

    @property
    def identity(self) -> str:
        """Identify the source of expansions: equal identities give a query the same expansions."""
        return self._expander.identity

    def sub_queries(
        self, query: str, runs: Sequence[LegRun], count: Callable[[], int]
    ) -> tuple[SubQuery, ...]:
        """Return the sub-queries to add to those answered; later calls return the same.

        ``count`` is the number of passages in the dataset that have a vector.
        """
        if self._sub_queries is None:
            self._sub_queries = tuple(self._decide(query, runs, count))
        return self._sub_queries

    def _decide(
        self, query: str, runs: Sequence[LegRun], count: Callable[[], int]
    ) -> list[SubQuery]:
        rag = self._search.rag
        reason = explain_strong_signal(
            [hit.score for hit in _first_hits(runs, "lexical")],
            score=rag.strong_signal_score,
            gap=rag.strong_signal_gap,
        )
        if reason:
            self.stages.skipped("expand", reason)
            return []
        expansion = self._expander.expand(query)
        if expansion.error is not None:
            self.stages.failed("expand", expansion.ms, expansion.error)
            return []
        least = _nearness(next((run for run in runs if run.leg == "vector"), None), count)
        near: list[SubQuery] = []
        far: list[tuple[ExpansionLine, str]] = []
        for line in expansion.lines:
            if line.kind == "lex" or least is None or self._is_near(query, line, least):
                near.append(SubQuery(line.kind, line.text, origin="expansion"))
            else:
                far.append((line, "off the subject"))
        note = "; ".join(filter(None, (expansion.note, describe_dropped(far))))
        if not near:
            note = f"{note}; only the query itself is searched"
            self.stages.fell_back("expand", note, reason="only the query itself is searched")
        self.stages.ran("expand", expansion.ms, note)
        return near

    def _is_near(self, query: str, line: ExpansionLine, least: float) -> bool:
        """Return whether the cosine of line and query is ``least`` or more."""
        import numpy as np

        vectors = self._search.query_vectors
        try:
            a, _ = vectors.embed(query)
            b, _ = vectors.embed(line.text, "document" if line.kind == "hyde" else "query")
        except CatalogError:
            return True  # its leg will fail the same way, and say so
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) >= least


def explain_strong_signal(scores: Sequence[float], *, score: float, gap: float) -> str:
    """Explain why the best lexical hit makes expansion unnecessary; "" if it does not.

    BM25 scores are mapped to 0-1 by ``s / (1 + s)``. The best must reach ``score`` and lead by
    ``gap`` over the second (over 0 without a second).
    """
    normalised = [max(0.0, raw) / (1 + max(0.0, raw)) for raw in scores[:2]]
    best, second = (*normalised, 0.0, 0.0)[:2]
    if not scores or best < score or best - second < gap:
        return ""
    return f"the best lexical hit is certain: {best:.2f}, {best - second:.2f} ahead"


def _nearness(run: LegRun | None, count: Callable[[], int]) -> float | None:
    """Return the least cosine of a line with the query, from the hits of the query's vector leg.

    ``None`` if the leg found nothing. In a test with 188 golden queries and their labelled answers
    as lines, 176 answers pass, and 17 % of other queries' answers. With the median of the first
    three hits as the bound only 104 passed.
    """
    if run is None or not run.hits:
        return None
    passages = count() if len(run.hits) >= run.top_k else len(run.hits)
    place = min(_FOUND, max(_LEAST, passages // _SHARE), len(run.hits))
    return run.hits[place - 1].score


def _first_hits(runs: Sequence[LegRun], leg: Leg) -> Sequence[Hit]:
    """Return the hits of the first run of a leg."""
    return next((run.hits for run in runs if run.leg == leg), ())


@dataclass(frozen=True, slots=True)
class CachedRetrieval:
    """An expanded retrieval for one state of a dataset, with all its times set to 0."""

    stages: StageLog
    run: HybridRun
    since: float  # time.monotonic()


def find_reported(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    top_k: int,
    stages: StageLog,
    plan: ExpansionPlan | None = None,
    make_legs: MakeLegs | None = None,
) -> HybridRun:
    """Find passages like :func:`~catalog.retrieval.hybrid.find`, and report every stage.

    With a ``plan``, its sub-queries are searched as well, by the legs that ``make_legs`` makes.
    Their lists have the weight ``expansion_weight``, the question's own ``original_weight``. A plan
    that adds nothing leaves the plain hybrid answer. An expanded retrieval without failures is
    cached until the dataset changes, for at most ``cache_ttl_seconds``, because many legs take
    longer than two.
    """
    if plan is None or make_legs is None:
        run = find(parts, legs, question, top_k)
        report(run, parts.rag, stages)
        return run
    dataset = legs[0].restriction.dataset
    key = _cache_key(parts, legs, question, top_k, plan, strict=stages.strict)
    with parts.database.read() as connection:
        stamps = read_stamps(connection, dataset)
    cache = parts.cached_retrievals(dataset, stamps)
    cached: CachedRetrieval | None = None if key is None else cache.get(key)
    if cached is not None and time.monotonic() - cached.since <= parts.rag.cache_ttl_seconds:
        stages.join(cached.stages)
        report(cached.run, parts.rag, stages)
        return cached.run

    def count() -> int:
        with parts.database.read() as connection:
            return count_vectors(connection, dataset)

    def further(question: Question, runs: Sequence[LegRun]) -> list[LegQuery]:
        return make_legs(plan.sub_queries(question.text, runs, count))

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
    """Return all that the answer depends on except the dataset; ``None`` to disable caching."""
    if question.embedding is not None or question.texts or not parts.rag.cache_ttl_seconds:
        return None
    try:
        identity = plan.identity
    except LLMError:
        return None
    return (question.text, top_k, strict, tuple(map(_leg_key, legs)), identity)


def _leg_key(leg: LegQuery) -> Hashable:
    """Return a leg's cache key; it has the filter as text.

    Python takes the filters ``x = 1`` and ``x = True`` for equal.
    """
    bounds = (leg.restriction, repr(leg.restriction.filter), leg.top_k)
    return (leg.kind, leg.sub_query, *bounds)


def _is_sound(legs: Sequence[LegRun]) -> bool:
    return all(leg.error is None and not leg.fallback for leg in legs)


def _timeless(stages: StageLog) -> StageLog:
    """Return the same reports, marked as coming from an earlier search."""
    account = stages.fork()
    for stage in stages.reports:
        if stage.status == "ran":
            account.ran(stage.name, 0.0, f"{_CACHED}; {stage.note}")
        else:
            account.skipped(stage.name, stage.note)
    return account
