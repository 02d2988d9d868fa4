"""The LlamaIndex steps that any ingestion pipeline of ours is made of.

    SourceDocument ─ ChunkSplitter ─> ChunkNode … ─ EmbeddingPrefixTransform ─ CachedEmbedding
                   ─ ChunkPersistenceTransform ─ PersistenceTransform ─> stored

Each works on its own list of nodes; what one step finds out travels on the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.schema import BaseNode, MetadataMode, TextNode, TransformComponent
from pydantic import Field, PrivateAttr

from catalog.core.settings import get_settings
from catalog.embedding import EmbeddingModel, as_model, get_model
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.chunking.llama_splitter import split_text
from catalog.ingest.embedded_text import (
    format_labels,
    format_labels_of,
    format_place,
    format_place_of,
    split_by_time,
)
from catalog.ingest.embedding_batches import EmbeddingBatches
from catalog.ingest.executors import Executor, InPlace
from catalog.ingest.nodes import ChunkNode, PrefixedNode, Source, read_sources
from catalog.ingest.sync_report import in_groups
from catalog.store import Database, embedding_cache
from catalog.store.revisions import NewChunk, NewRevision, ensure_dataset, publish_all

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.node_parser import NodeParser

    from catalog.embedding.usage import EmbeddingUsage
    from catalog.store.embedding_cache import Vector


class ChunkSplitter(TransformComponent):
    """Cuts documents into chunks with exact offsets and deterministic ids.

    A LlamaIndex ``splitter`` cuts texts in place of the chunker. ``fallbacks`` says, by document
    id, why one was measured as four characters a token.
    """

    dataset: str
    fallbacks: dict[str, str] = Field(default_factory=dict, exclude=True)
    _chunker: DocumentChunker = PrivateAttr()
    _splitter: NodeParser | None = PrivateAttr()

    def __init__(
        self, chunker: DocumentChunker, *, dataset: str, splitter: NodeParser | None = None
    ) -> None:
        super().__init__(dataset=dataset)
        self._chunker, self._splitter = chunker, splitter

    @property
    def chunker(self) -> DocumentChunker | None:
        """What cuts every document, ``None`` where a LlamaIndex splitter cuts some."""
        return self._chunker if self._splitter is None else None

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the chunks of the documents as :class:`ChunkNode`, in document order."""
        sources = read_sources(nodes, self.dataset)
        return [node for source in sources for node in self._cut(source)]

    def _cut(self, source: Source) -> list[ChunkNode]:
        parsed = source.parsed
        if source.cut is not None:
            cut = source.cut
        elif self._splitter is None or parsed.segments:
            cut = self._chunker.cut(parsed)
        else:
            cut = self._chunker.cut_at(parsed, split_text(self._splitter, parsed))
        if cut.fallback is not None:
            self.fallbacks[source.source_doc_id] = cut.fallback
            uncounted = (replace(span, tokens=0) for span in cut.spans)
            return [ChunkNode.of(source, span) for span in uncounted]
        return [ChunkNode.of(source, span) for span in cut.spans]


class EmbeddingPrefixTransform(TransformComponent):
    """Formats what is embedded: the document prefix, the passage's place, the passage.

    The formatted windows ride on the node beside its text, never in it: no prefix reaches the
    stored text, the lexical index, a snippet or a prompt. With ``context`` the path, the title
    and the headings that the passage does not itself show stand before it on one line; with the
    ``form`` of ``labels``, title, type and headings, each with its name.

    A minute of speech holds several thoughts, and one vector blurs them: besides the whole,
    parts of it of about ``part_seconds`` are embedded, too, and its score is the best one's.

    In a pipeline that is not ours, put it between splitter and embedding model: plain text nodes
    become :class:`PrefixedNode`. The prefix is that of ``model``, else of the configured one,
    unless ``prefix`` says another.
    """

    context: bool = True
    form: Literal["place", "labels"] = "place"
    part_seconds: float = Field(20.0, ge=0.0)
    _model: EmbeddingModel = PrivateAttr()

    def __init__(
        self,
        model: EmbeddingModel | BaseEmbedding | None = None,
        *,
        prefix: str | None = None,
        context: bool = True,
        form: Literal["place", "labels"] = "place",
        part_seconds: float = 20.0,
    ) -> None:
        super().__init__(context=context, form=form, part_seconds=part_seconds)
        own = get_model(rag=get_settings().rag_v2) if model is None else as_model(model)
        self._model = own if prefix is None else replace(own, document_prefix=prefix)

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``windows`` on each :class:`ChunkNode`, and return text nodes with their prefix.

        Whole documents and nodes of other kinds pass untouched.
        """
        return [self._format(node) for node in nodes]

    def _format(self, node: BaseNode) -> BaseNode:
        if isinstance(node, ChunkNode):
            lead = self._lead(node)
            windows = self._model.windows(node.text, lead, tokens=node.span.tokens or None)
            for text in split_by_time(node, self.part_seconds):
                windows += self._model.windows(text, lead)
            node.windows = tuple(windows)
        elif type(node) is TextNode:
            text = node.get_content(metadata_mode=MetadataMode.EMBED)
            if self.context:
                form = format_labels_of if self.form == "labels" else format_place_of
                text = form(node) + node.text
            return PrefixedNode.of(node, self._model.document_prefix + text)
        return node

    def _lead(self, node: ChunkNode) -> str:
        if not self.context:
            return ""
        return format_labels(node) if self.form == "labels" else format_place(node)


_TOGETHER = 100  # chunks published in one transaction: more would hold up other writers for long


class CachedEmbedding(TransformComponent):
    """Gives each chunk the vectors of its windows, asking the model only for what is new.

    A window the model fails on stays without a vector and is noted in ``failures`` by chunk
    id; the rest of its document goes on. Raises ``EmbeddingError`` when the model is down.
    """

    failures: dict[str, str] = Field(default_factory=dict, exclude=True)
    _model: EmbeddingModel = PrivateAttr()
    _database: Database = PrivateAttr()
    _batches: EmbeddingBatches = PrivateAttr()

    def __init__(self, model: EmbeddingModel | BaseEmbedding, database: Database) -> None:
        super().__init__()
        self._model = as_model(model)
        self._database = database
        self._batches = EmbeddingBatches(self._model, database)

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``embed_keys``, ``vectors`` and ``embedding`` (the first window's) of each chunk."""
        chunks = [node for node in nodes if isinstance(node, ChunkNode)]
        texts = self.assign_keys(chunks)
        with self._database.read() as connection:
            vectors = embedding_cache.load(connection, texts)
        reasons = self._embed_missing(texts, vectors)
        for chunk in chunks:
            reason = next((reasons[key] for key in chunk.embed_keys if key in reasons), None)
            if reason is not None:
                self.failures[chunk.node_id] = reason
            chunk.vectors = {key: vectors[key] for key in chunk.embed_keys if key in vectors}
            if chunk.embed_keys and chunk.embed_keys[0] in vectors:
                chunk.embedding = vectors[chunk.embed_keys[0]].tolist()
        return list(nodes)

    @property
    def computed(self) -> int:
        """The number of windows that the model answered so far."""
        return self._batches.computed

    @property
    def usage(self) -> EmbeddingUsage | None:
        """What a server took so far, ``None`` for a model that is none."""
        here, elsewhere = self._model.usage, self._batches.usage
        return here + elsewhere if here and elsewhere else here or elsewhere

    def assign_keys(self, nodes: Iterable[BaseNode]) -> dict[str, str]:
        """Set ``embed_keys`` of each chunk, asking nothing; return the texts to embed by key."""
        texts: dict[str, str] = {}
        for chunk in nodes:
            if isinstance(chunk, ChunkNode):
                chunk.embed_keys = tuple(self._key(window) for window in chunk.windows)
                chunk.embedded_by = self._model.encoder.fingerprint
                texts |= zip(chunk.embed_keys, chunk.windows, strict=True)
        return texts

    def embed_in_turn(
        self, texts: Mapping[str, str], executor: Executor | None = None
    ) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
        """Embed texts by key, a batch a transaction: the first that is left, and others as long.

        The first batch is small, each next one larger, up to the model's, as long as one takes no
        more than a few seconds. Yield of each its keys, and why there is no vector for some of
        them; what another run is at is in no batch, and for :meth:`take_elsewhere`. Raises
        ``EmbeddingError`` when the model is down.
        """
        return self._batches.embed(texts, executor or InPlace())

    def take_elsewhere(self) -> set[str]:
        """Return the keys that were left to other runs since this was last asked."""
        left, self._batches.elsewhere = self._batches.elsewhere, set()
        return left

    def _key(self, window: str) -> str:
        return embedding_cache.embed_key(self._model.encoder.fingerprint, "document", window)

    def _embed_missing(self, texts: dict[str, str], vectors: dict[str, Vector]) -> dict[str, str]:
        """Complete the vectors, here and in the cache; return why one is missing, by key."""
        keys = [key for key in texts if key not in vectors]
        if not keys:
            return {}
        result = self._model.embed([texts[key] for key in keys])
        vectors |= self._batches.keep(keys, result.vectors)
        return {keys[index]: reason for index, reason in result.failures.items()}


class ChunkPersistenceTransform(TransformComponent):
    """Turns chunk nodes into the rows that :class:`PersistenceTransform` will publish.

    ``pipeline`` names how they were cut and embedded, so that a change of that is noticed.
    """

    pipeline: str = ""
    _staged: dict[str, NewRevision] = PrivateAttr(default_factory=dict)

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Stage one revision for each document among the nodes."""
        chunks = [node for node in nodes if isinstance(node, ChunkNode)]
        for doc_id, group in groupby(chunks, key=lambda chunk: chunk.source.source_doc_id):
            self._staged[doc_id] = _revision(list(group), self.pipeline)
        return list(nodes)

    def take(self) -> list[NewRevision]:
        """Return the staged revisions, which are then no longer staged."""
        staged, self._staged = list(self._staged.values()), {}
        return staged


def _revision(chunks: list[ChunkNode], pipeline: str) -> NewRevision:
    source = chunks[0].source
    return NewRevision(
        dataset=source.dataset,
        file=source.file,
        document=source.parsed,
        content_hash=source.content_hash,
        chunks=tuple(NewChunk(chunk.node_id, chunk.span, chunk.embed_keys) for chunk in chunks),
        pipeline=source.fingerprint(pipeline),
        modified=source.modified,
        vectors={key: vector for chunk in chunks for key, vector in chunk.vectors.items()},
        embedded_by=chunks[0].embedded_by,
    )


class PersistenceTransform(TransformComponent):
    """Publishes what was staged: whole documents, some a transaction where they are short."""

    dataset: str
    _database: Database = PrivateAttr()
    _staging: ChunkPersistenceTransform = PrivateAttr()
    _clock: Callable[[], float] = PrivateAttr()

    def __init__(
        self,
        database: Database,
        staging: ChunkPersistenceTransform,
        *,
        dataset: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(dataset=dataset)
        self._database = database
        self._staging = staging
        self._clock = clock

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Commit every staged document; a search sees all of a document or nothing of it."""
        for revisions in in_groups(self._staging.take(), lambda one: len(one.chunks), _TOGETHER):
            now = self._clock()
            with self._database.write() as connection:
                ensure_dataset(connection, self.dataset, now)  # it may have been removed
                publish_all(connection, revisions, now)
        return list(nodes)
