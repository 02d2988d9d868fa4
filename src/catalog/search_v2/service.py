"""The v2 search service: one query through every stage, and the account of how it went."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import InputError, NotAvailableYetError, UnknownModeError
from catalog.core.filters import check_fields, fields_of, parse_filters
from catalog.core.query import ParsedQuery, parse_query
from catalog.core.results import MODES, Comparison, Mode, SearchResults
from catalog.core.scope import Scope
from catalog.core.text import storable
from catalog.search_v2.adaptive import DEPTH
from catalog.search_v2.compare import Baseline, compared, not_compared
from catalog.search_v2.formatting import to_result
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.postprocessors import MaxChunksPerDocument
from catalog.search_v2.retrievers import HybridRetrieverFactoryV2
from catalog.search_v2.stages import Stages
from catalog.search_v2.workspace import Workspace
from catalog.store.passages import count_documents, dataset_fields, has_field
from catalog.store.restriction import Restriction

MAX_TOP_K = 1000
MAX_FACTOR = 300  # how many times deeper the legs may go to fill an answer


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search, checked: what to look for, where, and how many."""

    query: ParsedQuery
    restriction: Restriction
    top_k: int
    mode: Mode


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

        ``doc_ids`` (ids or paths): ``None`` is every document, ``[]`` is none. ``filters``: see
        ``core.filters.parse_filters``. A stage that fails is reported in ``stages`` and the rest
        answers, unless ``strict``. ``compare_with_v1`` asks the baseline too and tells the
        differences in ``comparison``. Raises :class:`InputError` kinds for a bad call.
        """
        rag = self.workspace.settings.rag_v2
        _refuse_unbuilt(
            rerank=rag.rerank_enabled if rerank is None else rerank,
            expand=rag.expansion_enabled if expand is None else expand,
        )
        if doc_ids is not None and not isinstance(doc_ids, str):
            doc_ids = list(doc_ids)  # it may be read twice
        if compare_with_v1 and not self._baseline.is_warm(dataset):
            self.retrieve("warm up", dataset=dataset, mode=mode)  # the baseline is timed warm, too
        started = time.perf_counter()
        stages = Stages(strict=strict)
        request = self._request(query, dataset, top_k, mode, doc_ids, filters, stages)
        nodes, fusion = self._retrieve(request, stages)
        results = []
        with stages.run("shape"):
            for rank, node in enumerate(nodes[: request.top_k], start=1):
                result = to_result(
                    node.passage,
                    node.fused,
                    rank,
                    query=request.query.text,
                    fusion=fusion,
                    snippet_chars=rag.snippet_chars,
                    explain=explain,
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
    ) -> list[NodeWithScore]:
        """The same passages as LlamaIndex nodes, for query engines and agents."""
        stages = Stages()
        request = self._request(query, dataset, top_k, mode, doc_ids, filters, stages)
        return list(self._retrieve(request, stages)[0][:top_k])

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
        stages: Stages,
    ) -> SearchRequest:
        if mode not in MODES:
            raise UnknownModeError(f"no mode {mode!r}; modes: {', '.join(MODES)}")
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
        return SearchRequest(parsed, restriction, top_k, mode)

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

    def _retrieve(self, request: SearchRequest, stages: Stages) -> tuple[list[ScoredPassage], str]:
        """Legs, fusion and selection; the legs go deeper while the cap leaves too few passages."""
        rag = self.workspace.settings.rag_v2
        select = MaxChunksPerDocument(limit=rag.max_chunks_per_doc)
        for leg in ("lexical", "vector"):
            if request.mode not in (leg, "hybrid"):
                stages.skipped(leg, f"mode is {request.mode}")
        least = DEPTH if rag.fusion_mode == "adaptive" and request.mode == "hybrid" else 1
        factor = rag.overfetch
        while True:
            round_stages = stages.fork()
            retriever = HybridRetrieverFactoryV2(self.workspace, stages=round_stages).build(
                request.query,
                request.restriction.dataset,
                max(least, max(rag.fts_top_k, request.top_k) * factor),
                max(least, max(rag.vector_top_k, request.top_k) * factor),
                max(rag.fusion_top_k, 2 * request.top_k) * max(1, factor // rag.overfetch),
                within=request.restriction,
                mode=request.mode,
            )
            nodes = retriever.retrieve(QueryBundle(request.query.text))
            kept = select.postprocess_nodes(nodes)
            if len(kept) >= request.top_k or retriever.exhausted or factor >= MAX_FACTOR:
                break
            factor *= 4
        stages.join(round_stages)
        with stages.run("select") as notes:
            notes.append(f"{len(kept)} of {len(nodes)} kept, {select.limit or 'any'} per document")
            if factor > rag.overfetch:
                notes.append(f"legs searched {factor} times deeper to fill the answer")
        return [node for node in kept if isinstance(node, ScoredPassage)], retriever.fusion


def _refuse_unbuilt(*, rerank: bool, expand: bool) -> None:
    asked = {"rerank": rerank, "expand": expand}
    for name, value in asked.items():
        if value:
            raise NotAvailableYetError(f"{name} is not available in this release: leave it off")


def _named(dataset: str, doc_ids: Iterable[str] | None) -> list[str] | None:
    """Ids as they are, and paths as ids of this dataset; ``None`` stays ``None``."""
    if doc_ids is None:
        return None
    names = [storable(given) for given in doc_ids]
    return [name for given in names for name in (given, f"{dataset}:{given}")]
