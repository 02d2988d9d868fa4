"""The v2 search service: one query through every stage, and the account of how it went."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import InputError, UnknownModeError
from catalog.core.filters import check_fields, fields_of, parse_filters
from catalog.core.query import ParsedQuery, parse_query
from catalog.core.results import MODES, Comparison, Mode, SearchResults
from catalog.core.scope import Scope
from catalog.core.text import storable
from catalog.search_v2.adaptive import DEPTH
from catalog.search_v2.compare import Baseline, compared, not_compared
from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.factory import HybridRetrieverFactoryV2
from catalog.search_v2.formatting import to_result
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.precision import Precision, selectors
from catalog.search_v2.stages import Stages
from catalog.search_v2.workspace import Workspace
from catalog.store.passages import count_documents, dataset_fields, has_field
from catalog.store.restriction import Restriction

MAX_TOP_K = 1000
MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search, checked: what to look for, where, how many, and with which stages."""

    query: ParsedQuery
    restriction: Restriction
    top_k: int
    mode: Mode
    rerank: bool
    expand: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """Fused and selected passages, best first, and the name of the fusion."""

    passages: list[ScoredPassage]
    fusion: str


class SearchServiceV2:
    """Searches one store. Thread-safe; keep it open, since models and indexes load once."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._baseline = Baseline(workspace.settings)

    def search(
        self,
        query: str,
        *,
        dataset: str,
        top_k: int = 10,
        mode: str = "hybrid",
        doc_ids: Iterable[str] | None = None,
        filters: object = None,
        rerank: bool | None = None,
        expand: bool | None = None,
        explain: bool = False,
        strict: bool = False,
        compare_with_v1: bool = False,
    ) -> SearchResults:
        """The ``top_k`` best passages of a dataset for a query, best first.

        ``query``: words, ``"phrases"``, ``-exclusions``, or typed parts (``lex: … / vec: …``).
        ``doc_ids`` (ids or paths): ``None`` is every document, ``[]`` is none. ``filters``: see
        ``core.filters.parse_filters``. ``rerank`` and ``expand`` default to the settings. A
        stage that fails is reported in ``stages`` and the rest answers, unless ``strict``.
        ``compare_with_v1`` asks the baseline too and tells the differences in ``comparison``.
        Raises :class:`InputError` kinds for a bad call, :class:`ConfigError` kinds for a stage
        that is on and has no model.
        """
        if doc_ids is not None and not isinstance(doc_ids, str):
            doc_ids = list(doc_ids)  # it may be read twice
        if compare_with_v1 and not self._baseline.is_warm(dataset):
            self.retrieve("warm up", dataset=dataset, mode=mode)  # the baseline is timed warm, too
        started = time.perf_counter()
        stages = Stages(strict=strict)
        request = self._request(
            query, dataset, top_k, mode, doc_ids, filters, rerank, expand, stages
        )
        precision = Precision(self.workspace, rerank=request.rerank, mode=request.mode)
        candidates = self._candidates(request, precision, stages)
        found = precision.refine(candidates.passages, request.query.text, request.top_k, stages)
        results = []
        with stages.run("shape"):
            for rank, node in enumerate(found.passages, start=1):
                result = to_result(
                    node.passage,
                    node.fused,
                    rank,
                    query=request.query.text,
                    fusion=candidates.fusion,
                    snippet_chars=self.workspace.settings.rag_v2.snippet_chars,
                    explain=explain,
                    score=node.score,
                    rerank=node.reranked,
                    relevance=node.relevance,
                )
                results.append(result)
        elapsed_ms = (time.perf_counter() - started) * 1000
        comparison = None
        if compare_with_v1:
            paths = [result.path for result in results]
            comparison = self._compare(request, query, filters, doc_ids, paths, elapsed_ms, stages)
        return SearchResults(
            results,
            query=query,
            dataset=dataset,
            mode=request.mode,
            stages=stages.reports,
            elapsed_ms=round(elapsed_ms, 3),
            confidence=found.confidence,
            low_confidence=found.low_confidence,
            comparison=comparison,
        )

    def retrieve(
        self,
        query: str,
        *,
        dataset: str,
        top_k: int = 10,
        mode: str = "hybrid",
        doc_ids: Iterable[str] | None = None,
        filters: object = None,
        rerank: bool | None = None,
        expand: bool | None = None,
    ) -> list[NodeWithScore]:
        """The same passages as LlamaIndex nodes, for query engines and agents."""
        stages = Stages()
        request = self._request(
            query, dataset, top_k, mode, doc_ids, filters, rerank, expand, stages
        )
        precision = Precision(self.workspace, rerank=request.rerank, mode=request.mode)
        candidates = self._candidates(request, precision, stages)
        found = precision.refine(candidates.passages, request.query.text, top_k, stages)
        return list(found.passages)

    def candidates(
        self,
        query: str,
        *,
        dataset: str,
        top_k: int = 10,
        mode: str = "hybrid",
        doc_ids: Iterable[str] | None = None,
        filters: object = None,
        rerank: bool | None = None,
        expand: bool | None = None,
    ) -> list[NodeWithScore]:
        """What ``retrieve`` starts from: passages as fused and selected, more than ``top_k``."""
        stages = Stages()
        request = self._request(
            query, dataset, top_k, mode, doc_ids, filters, rerank, expand, stages
        )
        precision = Precision(self.workspace, rerank=request.rerank, mode=request.mode)
        return list(self._candidates(request, precision, stages).passages)

    def postprocessors(
        self,
        *,
        top_k: int = 10,
        mode: str = "hybrid",
        rerank: bool | None = None,
        **_: object,
    ) -> list[BaseNodePostprocessor]:
        """The stages between ``candidates`` and ``retrieve``, which take the same arguments."""
        asked = self.workspace.settings.rag_v2.rerank_enabled if rerank is None else rerank
        chain = Precision(self.workspace, rerank=asked, mode=_mode(mode))
        return chain.postprocessors(top_k)

    def _compare(
        self,
        request: SearchRequest,
        query: str,
        filters: object,
        doc_ids: Iterable[str] | None,
        paths: Sequence[str],
        v2_ms: float,
        stages: Stages,
    ) -> Comparison:
        """The same question to the baseline; its failure is a failed stage, not a failed query."""
        name, started = self._baseline.name, time.perf_counter()
        try:
            answer, v1_ms, note = self._baseline.ask(
                query,
                dataset=request.restriction.dataset,
                top_k=request.top_k,
                mode=request.mode,
                filters=filters,
                doc_ids=None if doc_ids is None else list(doc_ids),
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another's; recorded as its failure
            stages.failed("compare", (time.perf_counter() - started) * 1000, error)
            failure = f"{type(error).__name__}: {error}"
            return not_compared(name, paths, v2_ms=v2_ms, error=failure)
        found = f"{name}: {len(answer.passages)} passages"
        stages.ran("compare", v1_ms, "; ".join(filter(None, (found, note))))
        v1_paths = [passage.path for passage in answer.passages]
        return compared(name, v1_paths, paths, v1_ms=v1_ms, v2_ms=v2_ms, note=note)

    def close(self) -> None:
        """Release the workspace."""
        self.workspace.close()

    def _request(
        self,
        query: str,
        dataset: str,
        top_k: int,
        mode: str,
        doc_ids: Iterable[str] | None,
        filters: object,
        rerank: bool | None,
        expand: bool | None,
        stages: Stages,
    ) -> SearchRequest:
        known_mode = _mode(mode)
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
            raise InputError(f"top_k must be a whole number from 1 to {MAX_TOP_K}, not {top_k!r}")
        if isinstance(doc_ids, str):
            raise InputError("doc_ids must be a list of ids or paths, not one string")
        self.workspace.require_dataset(storable(dataset))
        with stages.run("normalise") as notes:
            parsed = parse_query(query, max_chars=self.workspace.settings.rag_v2.max_query_chars)
            notes.extend(parsed.notes)
        with stages.run("scope") as notes:
            restriction = self._restriction(dataset, doc_ids, filters, notes)
        rag = self.workspace.settings.rag_v2
        return SearchRequest(
            parsed,
            restriction,
            top_k,
            known_mode,
            rerank=rag.rerank_enabled if rerank is None else rerank,
            expand=rag.expansion_enabled if expand is None else expand,
        )

    def _restriction(
        self,
        dataset: str,
        doc_ids: Iterable[str] | None,
        filters: object,
        notes: list[str],
    ) -> Restriction:
        scope = Scope.from_doc_ids(_named(dataset, doc_ids))
        tree = parse_filters(filters)
        if not scope.is_all or tree is not None:
            with self.workspace.database.read() as connection:
                if scope.ids is not None:
                    notes.append(f"{count_documents(connection, scope.ids)} documents in scope")
                if tree is not None:
                    unknown = [f for f in fields_of(tree) if not has_field(connection, dataset, f)]
                    if unknown:
                        check_fields(tree, dataset_fields(connection, dataset))
                    notes.append("filtered")
        return Restriction(dataset, scope, tree)

    def _candidates(
        self, request: SearchRequest, precision: Precision, stages: Stages
    ) -> Candidates:
        """Legs, fusion and selection; the legs go deeper while the cap leaves too few passages."""
        rag = self.workspace.settings.rag_v2
        bundle = QueryBundle(request.query.text)
        for leg in ("lexical", "vector"):
            if request.mode not in (leg, "hybrid"):
                stages.skipped(leg, f"mode is {request.mode}")
        expansion = self._expansion(request, stages)
        wanted = precision.wanted(request.top_k)
        least = DEPTH if rag.fusion_mode == "adaptive" and request.mode == "hybrid" else 1
        factor = rag.overfetch
        while True:
            round_stages = stages.fork()
            retriever = HybridRetrieverFactoryV2(self.workspace, stages=round_stages).build(
                request.query,
                request.restriction.dataset,
                max(least, max(rag.fts_top_k, request.top_k) * factor),
                max(least, max(rag.vector_top_k, request.top_k) * factor),
                max(rag.fusion_top_k, 2 * wanted) * max(1, factor // rag.overfetch),
                within=request.restriction,
                mode=request.mode,
                expansion=expansion,
            )
            nodes = kept = retriever.retrieve(bundle)
            for selector in selectors(rag):
                kept = selector.postprocess_nodes(kept, bundle)
            if len(kept) >= request.top_k or retriever.exhausted or factor >= MAX_FACTOR:
                break
            factor *= 4
        stages.join(round_stages)
        with stages.run("select") as notes:
            limit = rag.max_chunks_per_doc or "any"
            notes.append(f"{len(kept)} of {len(nodes)} kept, {limit} per document")
            if factor > rag.overfetch:
                notes.append(f"legs searched {factor} times deeper to fill the answer")
        passages = [node for node in kept if isinstance(node, ScoredPassage)]
        return Candidates(passages, retriever.fusion)

    def _expansion(self, request: SearchRequest, stages: Stages) -> ExpansionPlan | None:
        """What else to ask, if the settings or the call say so and the user did not."""
        terms = self.workspace.settings.rag_v2.feedback_terms
        if not (request.expand or terms):
            return None
        if request.query.is_typed:
            stages.skipped("expand", "the query is typed")
            return None
        return ExpansionPlan(
            self.workspace,
            request.restriction.dataset,
            expander=self.workspace.expander if request.expand else None,
            feedback_terms=terms if request.mode != "vector" else 0,
            strict=stages.strict,
        )


def _mode(name: str) -> Mode:
    if name not in MODES:
        raise UnknownModeError(f"no mode {name!r}; modes: {', '.join(MODES)}")
    return name


def _named(dataset: str, doc_ids: Iterable[str] | None) -> list[str] | None:
    """Ids as they are, and paths as ids of this dataset; ``None`` stays ``None``."""
    if doc_ids is None:
        return None
    names = [storable(given) for given in doc_ids]
    return [name for given in names for name in (given, f"{dataset}:{given}")]
