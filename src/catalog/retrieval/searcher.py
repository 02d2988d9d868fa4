"""A search: one query through every stage, with a report of each stage."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from catalog.core.arguments import takes_self
from catalog.core.errors import InputError
from catalog.core.params import Mode, SearchParams
from catalog.core.query import ParsedQuery
from catalog.core.results import Comparison, Evidence, SearchResult, SearchResults
from catalog.core.retrieval_events import searching
from catalog.library.library import Library
from catalog.library.names import role_scope, roles_in_force
from catalog.retrieval.candidates import gather_candidates
from catalog.retrieval.compare import Baseline
from catalog.retrieval.legs import Question
from catalog.retrieval.nothing_found import explain_nothing, find_nearest, tell_searched
from catalog.retrieval.passages import Passage
from catalog.retrieval.refine import candidates_wanted, refine
from catalog.retrieval.request import (
    SearchRequest,
    correct_spelling,
    for_agent,
    read_request,
)
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.shape import to_result
from catalog.retrieval.stages import OnStage, StageLog
from catalog.store.chunks import find_root
from catalog.store.embedding_cache import embedded_share
from catalog.store.engine_types import Restriction, allowed_paths, allowed_seqs
from catalog.store.statistics import count_totals

_DAMAGED = 3  # documents named in notes


class Searcher:
    """Search one store. Thread-safe; keep it open, because models and indexes load once.

    ``parts`` replace those of the library's settings. ``on_stage`` is called with the report of
    each step of a search as soon as the step ends.
    """

    def __init__(
        self,
        library: Library,
        parts: SearchParts | None = None,
        *,
        on_stage: OnStage | None = None,
    ) -> None:
        self.library = library
        self.parts = parts or SearchParts(library)
        self.parts.on_stage = on_stage or self.parts.on_stage
        self._baseline = Baseline(self.parts.settings)

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a service for other v2 settings on the same store, models and indexes.

        Close only one of them. Raises :class:`ConfigError` for a setting that needs a rebuild.
        """
        return type(self)(self.library, self.parts.with_settings(changes))

    @takes_self(SearchParams)
    def search(self, params: SearchParams) -> SearchResults:
        """Return the ``top_k`` best passages for a query, best first.

        Several datasets are searched as one; without ``dataset``, all are.

        The parameters are those of :class:`SearchParams`. A stage that fails is reported in
        ``stages`` and the rest answers, unless ``strict``. ``compare_with_v1`` asks the baseline
        too and puts the differences into ``comparison``. Raises :class:`InputError` kinds for a
        bad call, :class:`ConfigError` kinds for a stage that is on and has no model.
        """
        return self.run(params)

    def run(self, params: SearchParams) -> SearchResults:
        """Return the results of a search; see :meth:`search`."""
        with searching(str(self.library.settings.home)):
            return search(self.parts, params, self._baseline)

    def run_logged(self, params: SearchParams) -> SearchResults:
        """Return the results of a search, and log it if it came from an edge."""
        with self.library.log.watching(params) as note:
            results = self.run(params)
            note(results, agent=results.agent)
        return results

    def warm_up(self, dataset: str, mode: Mode | None = None) -> None:
        """Load the models and indexes that a search of the dataset needs."""
        with searching(str(self.library.settings.home)):
            find_passages(self.parts, SearchParams("warm up", dataset=dataset, top_k=1, mode=mode))

    def close(self) -> None:
        """Release threads and library."""
        self.parts.close()


class Found(NamedTuple):
    """The passages of an answer, and how they were found."""

    passages: list[Passage]
    fusion: str
    confidence: float
    request: SearchRequest
    stages: StageLog


def search(parts: SearchParts, params: SearchParams, baseline: Baseline) -> SearchResults:
    """Return the results of one search.

    Read the query, find, refine and shape passages; if requested, ask the baseline, too, and
    compare.
    """
    params = for_agent(params, parts.settings)
    if params.doc_ids is not None and not isinstance(params.doc_ids, str):
        params = replace(params, doc_ids=list(params.doc_ids))  # it may be read twice
    if params.compare_with_v1:
        name = _only_dataset(parts, params)  # the baseline is timed warm, so v2 is, too
        if not baseline.is_warm(name):
            find_passages(parts, SearchParams("warm up", dataset=name, mode=params.mode))
    started = time.perf_counter()
    passages, fusion, confidence, request, stages = find_passages(parts, params)
    with stages.run("shape"):
        results = _shape(parts, passages, request.query, fusion, explain=params.explain)
    elapsed_ms = (time.perf_counter() - started) * 1000
    comparison = None
    if params.compare_with_v1:
        comparison = _compare(parts, baseline, params, request, results, elapsed_ms, stages)
    return SearchResults(
        tuple(results),
        query=params.query,
        datasets=tuple(request.restriction.datasets),
        mode=request.mode,
        stages=tuple(stages.reports),
        elapsed_ms=round(elapsed_ms, 3),
        confidence=confidence,
        low_confidence=confidence < parts.rag.low_confidence_below,
        comparison=comparison,
        agent=params.agent,
        searched=None if results else tell_searched(parts.library, params, request),
        nearest=() if results else tuple(find_nearest(parts, request)),
        notes=(
            *request.query.readings,
            *_tell_waiting(parts, request),
            *request.notes,
            *_name_damaged(stages),
            *(() if results else explain_nothing(parts.library, params, request, stages)),
        ),
    )


def find_passages(
    parts: SearchParts,
    params: SearchParams,
    question: Question | None = None,
    *,
    is_refined: bool = True,
    is_filled: bool = False,
) -> Found:
    """Find the passages of a search; without ``is_refined``, the candidates for them.

    With ``is_filled`` documents give more than their share if there are not enough passages.

    A ``question`` may have an embedding, or texts to embed, instead of the query's. An agent in the
    params is ignored.
    """
    stages = StageLog(strict=params.strict, on_stage=parts.on_stage)
    request = correct_spelling(read_request(params, parts, stages), parts)
    request = replace(request, is_filled=is_filled)
    if request.rerank:
        _ = parts.reranker  # a missing setting is an error, not a failed stage
    wanted = candidates_wanted(parts.rag, request.top_k, rerank=request.rerank)
    passages, fusion = gather_candidates(parts, request, stages, wanted=wanted, question=question)
    confidence = 0.0
    if is_refined:
        passages, confidence = refine(parts, request, passages, stages)
    if request.sort == "date":
        passages = _newest_first(passages)
    return Found(passages, fusion, confidence, request, stages)


def _shape(
    parts: SearchParts,
    passages: Sequence[Passage],
    query: ParsedQuery,
    fusion: str,
    *,
    explain: bool,
) -> list[SearchResult]:
    first: dict[Evidence | None, int | None] = {None: None}
    return [
        to_result(
            passage,
            rank,
            query=query,
            fusion=fusion,
            snippet_chars=parts.rag.snippet_chars,
            explain=explain,
            evidence_at=first.setdefault(passage.evidence, rank),
        )
        for rank, passage in enumerate(passages, start=1)
    ]


def _tell_waiting(parts: SearchParts, request: SearchRequest) -> Iterator[str]:
    """Return a note on the share of passages that can be found by meaning, unless it is all."""
    if request.mode == "lexical":
        return
    with parts.database.read() as connection:
        share = embedded_share(connection, request.restriction)
    if share is not None:
        others = "no other passages were searched" if request.mode == "vector" else "by words: all"
        yield f"by meaning: {math.floor(100 * share)} % of the passages so far; {others}"


def _only_dataset(parts: SearchParts, params: SearchParams) -> str:
    """Return the searched dataset; the baseline cannot search several."""
    dataset, _ = parts.library.seen_datasets(params.role, params.dataset)
    if isinstance(dataset, str):
        return dataset
    raise InputError(f"v1 searches one dataset: choose one of {', '.join(dataset)} to compare on")


def _compare(
    parts: SearchParts,
    baseline: Baseline,
    params: SearchParams,
    request: SearchRequest,
    results: Sequence[SearchResult],
    elapsed_ms: float,
    stages: StageLog,
) -> Comparison:
    """Put the same question to the baseline, as the caller put it if possible."""
    filters, doc_ids = params.filters, params.doc_ids
    if params.file_type is not None or params.name is not None:
        filters = request.restriction.filter
    if (params.docs, params.after, params.before) != (None, None, None):
        doc_ids = sorted(request.restriction.scope.ids or ())
    dataset = _only_dataset(parts, params)
    with parts.database.read() as connection:
        root = find_root(connection, dataset)
    return baseline.compare(
        params.query,
        [path for result in results for path in result.paths],
        stages,
        dataset=dataset,
        root=root,
        top_k=request.top_k,
        mode=request.mode,
        filters=filters,
        doc_ids=None if doc_ids is None else list(doc_ids),
        allowed=_allowed(parts, request),
        hidden=_count_hidden(parts, params),
        v2_ms=elapsed_ms,
    )


def _count_hidden(parts: SearchParts, params: SearchParams) -> int | None:
    """Count the passages that the role may not see; ``None`` without a role."""
    if not roles_in_force(parts.settings, params.role):
        return None
    name = _only_dataset(parts, params)
    seen = role_scope(parts.database, parts.settings, params.role, [name])
    with parts.database.read() as connection:
        total = count_totals(connection, name, none_waits=True).chunks
        allowed = allowed_seqs(connection, Restriction(name, seen))
        return 0 if allowed is None else total - len(allowed)


def _allowed(parts: SearchParts, request: SearchRequest) -> frozenset[str] | None:
    """Return the paths of the documents that may answer, ``None`` for all."""
    if request.restriction.is_whole_dataset:
        return None
    with parts.database.read() as connection:
        return allowed_paths(connection, request.restriction)


def _newest_first(passages: Sequence[Passage]) -> list[Passage]:
    """Sort passages by the date of their document, newest first, those without a date last."""

    def age(passage: Passage) -> float:
        dated = passage.chunk.dated
        return math.inf if dated is None else -dated

    return sorted(passages, key=age)


def _name_damaged(stages: StageLog) -> Iterator[str]:
    """Name the documents whose damaged passages or vectors were left out."""
    notes = [one.note for one in stages.reports if (one.name, one.status) == ("read", "failed")]
    yield from (note.partition(": ")[2] for note in notes[:_DAMAGED])
    if len(notes) > _DAMAGED:
        yield f"{len(notes) - _DAMAGED} more documents are damaged: run 'catalog doctor'"
