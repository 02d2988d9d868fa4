"""The stages of a search as LlamaIndex postprocessors, for the nodes of any retriever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import Field, PrivateAttr, SkipValidation, field_validator

from catalog.core.arguments import rename_arguments
from catalog.core.errors import CatalogError, InputError
from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.retrieval import select
from catalog.retrieval.recordings import add_evidence
from catalog.retrieval.rerank import scoring
from catalog.retrieval.shared import shared_service
from catalog.retrieval.snippets import Passage
from catalog.search_v2.nodes import PassagePostprocessor
from catalog.store.restriction import Restriction

if TYPE_CHECKING:
    from catalog.retrieval.rerank import Reranker
    from catalog.store import Database
    from catalog.store.llm_cache import ModelCache

_log = logging.getLogger(__name__)
_dispatcher = get_dispatcher(__name__)


class DistinctText(PassagePostprocessor):
    """Keep the first of the nodes that say the same; the rest become its ``copies``.

    :func:`~catalog.retrieval.select.keep_distinct` defines this. A node without text, such as an
    image, equals no other. Other retrievers' nodes list no copies.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, DistinctText
        >>> nodes = CatalogRetriever("notes").retrieve("bake bread")
        >>> len(DistinctText().postprocess_nodes([*nodes, *nodes])) == len(nodes)
        True
    """

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:  # noqa: ARG002
        return select.keep_distinct(passages)


class KeywordChunkSelector(PassagePostprocessor):
    """Keep the best node of each document, in the place of the document's first one.

    The rule is :func:`~catalog.retrieval.select.select_by_keyword`. Nodes of other retrievers have
    no leg.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, KeywordChunkSelector
        >>> nodes = CatalogRetriever("notes", name="travel").retrieve("trains")
        >>> best = KeywordChunkSelector().postprocess_nodes(nodes, query_str="hotel")
        >>> len(nodes), [node.metadata["heading_path"] for node in best]
        (2, [['Travel', 'Hotels']])
    """

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:
        return select.select_by_keyword(passages, query)


class MaxChunksPerDocument(PassagePostprocessor):
    """Keep at most ``limit`` nodes of each document, in the given order; 0 keeps all.

    1 is best-chunk mode. Fetch more than you need, because this only removes nodes.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, MaxChunksPerDocument
        >>> nodes = CatalogRetriever("notes", name="travel").retrieve("trains and hotels")
        >>> len(nodes), len(MaxChunksPerDocument(limit=1).postprocess_nodes(nodes))
        (2, 1)
    """

    limit: int = Field(3, ge=0)

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:  # noqa: ARG002
        return select.keep_few_of_each(passages, self.limit)


class TokenBudget(PassagePostprocessor):
    """Keep nodes in the given order while their texts fit into ``limit`` tokens; 0 keeps all.

    A node that does not fit is left out, and the next one is tried. ``token_limit`` is the same as
    ``limit``. ``counter`` is any :class:`TokenCounter`; without one, four characters count as a
    token. Only texts are counted.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, TokenBudget
        >>> nodes = CatalogRetriever("notes").retrieve("bake bread")
        >>> fitting = TokenBudget(limit=20).postprocess_nodes(nodes)
        >>> [node.metadata["path"] for node in fitting]
        ['recipes/bread.txt']
    """

    limit: int = Field(0, ge=0)
    counter: SkipValidation[TokenCounter | None] = Field(None, exclude=True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**rename_arguments(settings, {"limit": ("token_limit",)})[0])

    @field_validator("counter", mode="plain")
    @classmethod
    def _counts(cls, counter: Any) -> Any:
        if counter is not None and not callable(getattr(counter, "spans", None)):
            raise ValueError("a token counter needs a method spans(text)")
        return counter

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:  # noqa: ARG002
        return select.keep_within_budget(passages, self.limit, self.counter or CharTokenCounter())


class RerankPostprocessor(PassagePostprocessor):
    """Let a reranker read the first passages, and blend its scores with theirs.

    Takes nodes of any retriever, best first. A passage is read after its title and headings, at its
    best run of words. ``candidates`` passages are scored, or fewer if ``budget_ms`` (0: no limit)
    runs out; the rest follow in their order. ``top_n`` keeps this many (0: all). ``model`` is
    another name for ``IDX_RAG_V2__RERANK_MODEL``. ``retrieval.rerank.scoring.blend`` has formulas.

    By default the first three passages of our searches are scored, and blended by ``linear``. With
    nodes of other retrievers all are scored, and these scores ``replace`` theirs.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, RerankPostprocessor
        >>> nodes = CatalogRetriever("notes", whole=False).retrieve("how hot is the oven")
        >>> reranked = RerankPostprocessor(candidates=4, weight=1.0, top_n=1).postprocess_nodes(
        ...     nodes, query_str="how hot is the oven"
        ... )
        >>> reranked[0].metadata["path"]
        'recipes/bread.txt'
    """

    candidates: int = Field(0, ge=0)
    blend: scoring.BlendName | None = None
    weight: float = Field(0.3, ge=0.0, le=1.0)
    budget_ms: int = Field(0, ge=0)
    top_n: int = Field(0, ge=0)
    model: str | None = None
    _reranker: Reranker = PrivateAttr()
    _cache: ModelCache | None = PrivateAttr(default=None)
    _clock: Callable[[], float] = PrivateAttr()

    def __init__(
        self,
        reranker: Reranker | None = None,
        cache: ModelCache | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        **settings: Any,
    ) -> None:
        """Take a reranker, by default the shared service's or ``model``, with its cache."""
        super().__init__(**settings)
        if reranker is None:
            parts = shared_service(make_store=True).parts  # nodes may be of other stores
            parts = parts.with_settings({"rerank_model": self.model}) if self.model else parts
            reranker, cache = parts.reranker, cache or parts.rerank_cache
        elif self.model:
            raise InputError("give a reranker or the name of a model, not both")
        self._reranker, self._cache, self._clock = reranker, cache, clock

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        own = self.callback_manager
        manager = own if own.handlers else LlamaSettings.callback_manager
        query, top_n = query_bundle.query_str, self.top_n or len(nodes)
        with scoring.as_rerank_errors(self._reranker):
            name = self._reranker.name
        _dispatcher.event(ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=name))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: name,
            EventPayload.QUERY_STR: query,
            EventPayload.TOP_K: top_n,
        }
        with manager.event(CBEventType.RERANKING, payload) as event:
            done = super()._postprocess_nodes(nodes, query_bundle)
            event.on_end({EventPayload.NODES: done})
        _dispatcher.event(ReRankEndEvent(nodes=done))
        return done

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:
        has_others = any(passage.chunk.seq < 0 for passage in passages)
        options = scoring.RerankOptions(
            self.candidates
            or (len(passages) if has_others else scoring.RerankOptions().candidates),
            self.blend or ("replace" if has_others else "linear"),
            self.weight,
            self.budget_ms,
            self.top_n,
        )
        try:
            outcome = scoring.rerank_passages(
                passages, query or "", self._reranker, self._cache, options, self._clock
            )
        except CatalogError as error:
            _log.warning("not reranked, the order stands: %s", error)
            return passages
        if outcome.error is not None:
            _log.warning("reranked in part: %s", outcome.error)
        return outcome.passages


class TemporalExpansion(PassagePostprocessor):
    """Give passages of recordings their evidence; other nodes do not change.

    A node with evidence is a new one. Its metadata ``evidence`` is the text, which is not embedded
    and is for a language model to read; of nodes that share evidence only the first has it. A
    :class:`ScoredPassage` also has it as ``evidence``. Neighbours are passages that ``restriction``
    allows, by default that of the passage's own search; without either, the evidence is the passage
    itself. Nodes of other retrievers do not change.

    Examples:
        >>> from catalog.search_v2 import CatalogRetriever, TemporalExpansion
        >>> nodes = CatalogRetriever("notes", file_type="video").retrieve("keys on Monday")
        >>> print(TemporalExpansion().postprocess_nodes(nodes)[0].metadata["evidence"])
        > 00:00:00–00:00:04 (Audio, Ada): "We rotate the keys on Monday."
        00:00:04–00:00:09 (Audio, Ben): "Then the backup server needs the new key."
    """

    transcript_seconds: float = Field(15.0, ge=0.0, le=600.0)
    frame_seconds: float = Field(10.0, ge=0.0, le=600.0)
    max_chars: int = Field(6000, ge=0)
    _database: Database = PrivateAttr()
    _restriction: Restriction | None = PrivateAttr(default=None)

    def __init__(
        self,
        database: Database | None = None,
        restriction: Restriction | None = None,
        **settings: Any,
    ) -> None:
        """Take the store to read, by default the shared service's."""
        super().__init__(**settings)
        self._database = database or shared_service().library.database
        self._restriction = restriction

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:
        try:
            expanded, _ = add_evidence(
                passages,
                self._database,
                transcript_seconds=self.transcript_seconds,
                frame_seconds=self.frame_seconds,
                max_chars=self.max_chars,
                restriction=self._restriction,
                words=query or "",
            )
        except CatalogError as error:
            _log.warning("passages of recordings stand alone: %s", error)
            return passages
        return expanded
