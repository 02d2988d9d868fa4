"""Ingestion pipelines of LlamaIndex into a dataset, and their steps.

    SourceDocument ─ ChunkSplitter ─> ChunkNode … ─ EmbeddingPrefixTransform ─ CachedEmbedding
                   ─ ChunkPersistenceTransform ─ PersistenceTransform ─> stored

Each step calls the functions of ``catalog index build`` (:mod:`catalog.ingest.pipeline`); results
are passed on in the nodes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, MetadataMode, TextNode, TransformComponent
from pydantic import Field, PrivateAttr

from catalog.core.errors import EmbeddingMismatchError, InputError
from catalog.core.ids import check_dataset_name, sha1_hex
from catalog.core.settings import get_settings
from catalog.embedding import EmbeddingModel, as_model, get_model
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.embedding import keep_vectors
from catalog.ingest.pipeline import (
    EmbeddedText,
    Pipeline,
    cut_document,
    embed_keys,
    format_labels,
    format_place,
    make_revision,
    publish,
)
from catalog.retrieval.shared import shared_service
from catalog.search_v2.ingestion_nodes import ChunkNode, PrefixedNode, read_sources, split_text
from catalog.store import Database, embedding_cache
from catalog.store.embedding_cache import StoredModel, require_model
from catalog.store.revisions import NewChunk, NewRevision

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2
    from catalog.store.embedding_cache import Vector

_log = logging.getLogger(__name__)


class ChunkSplitter(TransformComponent):
    """Cut documents into chunks with exact offsets and deterministic ids.

    A LlamaIndex ``splitter`` replaces the chunker. ``fallbacks`` says, by document id, why a
    document was measured as four characters a token.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.core.tokens import CharTokenCounter
        >>> from catalog.ingest.chunking import DocumentChunker
        >>> from catalog.search_v2 import ChunkSplitter
        >>> split = ChunkSplitter(DocumentChunker(CharTokenCounter()), dataset="notes")
        >>> chunk = split([Document(text="Tea is at four.", doc_id="tea.txt")])[0]
        >>> chunk.text, chunk.metadata["path"], chunk.metadata["line_start"]
        ('Tea is at four.', 'tea.txt', 1)
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

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the chunks of the documents as :class:`ChunkNode`, in document order."""
        chunks: list[BaseNode] = []
        for source in read_sources(nodes, self.dataset):
            ranges = None
            if self._splitter is not None and not source.parsed.segments:
                ranges = split_text(self._splitter, source.parsed)
            cut = cut_document(self._chunker, source, ranges)
            if cut.fallback is not None:
                self.fallbacks[source.source_doc_id] = cut.fallback
            chunks += [ChunkNode.of(source, span) for span in cut.spans]
        return chunks


class EmbeddingPrefixTransform(TransformComponent):
    r"""Build the text to embed: the document prefix, the passage's place, the passage.

    These windows are kept on the node, separate from its text; see
    :class:`~catalog.ingest.pipeline.EmbeddedText`, which also describes the arguments. In a
    pipeline that is not ours, put this step between splitter and embedding model: plain text nodes
    become :class:`PrefixedNode`. The prefix is that of ``model`` or the configured model, unless
    ``prefix`` is given.

    Examples:
        >>> from llama_index.core.schema import MetadataMode, TextNode
        >>> from catalog.search_v2 import EmbeddingPrefixTransform
        >>> node = TextNode(text="Every ninety days.", metadata={"title": "Rotating keys"})
        >>> EmbeddingPrefixTransform()([node])[0].get_content(MetadataMode.EMBED)
        'Rotating keys\nEvery ninety days.'
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

        Whole documents and other kinds of nodes are returned unchanged.
        """
        return [self._format(node) for node in nodes]

    def _format(self, node: BaseNode) -> BaseNode:
        if isinstance(node, ChunkNode):
            embedded = EmbeddedText(self._model, self.context, self.form, self.part_seconds)
            node.windows = embedded.windows(node.source.parsed, node.span)
        elif type(node) is TextNode:
            text = node.get_content(metadata_mode=MetadataMode.EMBED)
            if self.context:
                text = _describe_place(node, self.form) + node.text
            return PrefixedNode.of(node, self._model.document_prefix + text)
        return node


def _describe_place(node: TextNode, form: Literal["place", "labels"]) -> str:
    """Return the place of a plain node from its metadata."""
    said = node.metadata
    paths = (said.get(key) for key in ("path", "file_name", "file_path"))
    path = next((str(path) for path in paths if path), "")
    given = said.get("heading_path") or str(said.get("header_path") or "").split("/")
    headings = [str(name).strip() for name in ([given] if isinstance(given, str) else given)]
    title = str(said.get("title") or "")
    if form == "place":
        return format_place(path, (title.strip(), *headings), node.text)
    named = PurePosixPath(path)
    return format_labels(
        title or named.name, str(said.get("file_type") or named.suffix[1:]), headings
    )


class CachedEmbedding(TransformComponent):
    """Give each chunk the vectors of its windows; the model embeds only new windows.

    A window on which the model fails stays without a vector and is recorded in ``failures`` by
    chunk id; the rest of its document continues. Raises ``EmbeddingError`` if the model is down.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.ingest.chunking import DocumentChunker
        >>> from catalog.library.library import Library
        >>> from catalog.search_v2 import CachedEmbedding, ChunkSplitter, EmbeddingPrefixTransform
        >>> with Library.open() as library:
        ...     chunker = DocumentChunker(library.model.encoder.counter)
        ...     chunks = ChunkSplitter(chunker, dataset="notes")([Document(text="Tea is at four.")])
        ...     chunks = EmbeddingPrefixTransform(library.model)(chunks)
        ...     chunks = CachedEmbedding(library.model, library.database)(chunks)
        >>> len(chunks[0].embedding)
        384
    """

    failures: dict[str, str] = Field(default_factory=dict, exclude=True)
    _model: EmbeddingModel = PrivateAttr()
    _database: Database = PrivateAttr()

    def __init__(self, model: EmbeddingModel | BaseEmbedding, database: Database) -> None:
        super().__init__()
        self._model, self._database = as_model(model), database

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``embed_keys``, ``vectors`` and ``embedding`` (the first window's) of each chunk."""
        chunks = [node for node in nodes if isinstance(node, ChunkNode)]
        texts: dict[str, str] = {}
        for chunk in chunks:
            chunk.embed_keys = embed_keys(self._model, chunk.windows)
            chunk.embedded_by = self._model.encoder.fingerprint
            texts |= zip(chunk.embed_keys, chunk.windows, strict=True)
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

    def _embed_missing(self, texts: dict[str, str], vectors: dict[str, Vector]) -> dict[str, str]:
        """Add missing vectors, here and to the cache; return reasons by key for failed ones."""
        keys = [key for key in texts if key not in vectors]
        if not keys:
            return {}
        result = self._model.embed([texts[key] for key in keys])
        vectors |= keep_vectors(self._database, self._model, keys, result.vectors)
        return {keys[index]: reason for index, reason in result.failures.items()}


class ChunkPersistenceTransform(TransformComponent):
    """Turn chunk nodes into the rows that :class:`PersistenceTransform` will publish.

    ``pipeline`` identifies how they were cut and embedded, so that a change is noticed.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.core.tokens import CharTokenCounter
        >>> from catalog.ingest.chunking import DocumentChunker
        >>> from catalog.search_v2 import ChunkPersistenceTransform, ChunkSplitter
        >>> split = ChunkSplitter(DocumentChunker(CharTokenCounter()), dataset="notes")
        >>> staging = ChunkPersistenceTransform()
        >>> chunks = staging(split([Document(text="Tea is at four.", doc_id="tea.txt")]))
        >>> [revision.source_doc_id for revision in staging.take()]
        ['notes:tea.txt']
    """

    pipeline: str = ""
    _staged: dict[str, NewRevision] = PrivateAttr(default_factory=dict)

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Stage one revision for each document among the nodes."""
        chunks = [node for node in nodes if isinstance(node, ChunkNode)]
        for doc_id, grouped in groupby(chunks, key=lambda chunk: chunk.source.source_doc_id):
            group = list(grouped)
            self._staged[doc_id] = make_revision(
                group[0].source,
                [NewChunk(chunk.node_id, chunk.span, chunk.embed_keys) for chunk in group],
                self.pipeline,
                embedded_by=group[0].embedded_by,
                vectors={key: vector for chunk in group for key, vector in chunk.vectors.items()},
            )
        return list(nodes)

    def take(self) -> list[NewRevision]:
        """Return the staged revisions and clear the stage."""
        staged, self._staged = list(self._staged.values()), {}
        return staged


class PersistenceTransform(TransformComponent):
    """Publish the staged documents: each whole, several short ones in one transaction.

    Examples:
        >>> from catalog.search_v2 import IngestionPipelineBuilderV2, PersistenceTransform
        >>> pipeline = IngestionPipelineBuilderV2().build_pipeline("handbook")
        >>> last = pipeline.transformations[-1]
        >>> isinstance(last, PersistenceTransform), last.dataset
        (True, 'handbook')
    """

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
        self._database, self._staging, self._clock = database, staging, clock

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Commit every staged document; a search sees all of a document or nothing."""
        publish(self._database, self.dataset, self._staging.take(), self._clock)
        return list(nodes)


class DatasetPipeline(IngestionPipeline):
    """An ``IngestionPipeline`` whose runs end in a dataset, in this process.

    Each run replaces the documents with the given paths and leaves the rest. A passage that could
    not be embedded is stored nevertheless, found by its words, and logged. LlamaIndex's own
    docstore strategies and cache are off, because they lose documents when an embedding fails.
    """

    _prepare: Callable[[], None] = PrivateAttr()

    def __init__(
        self, transformations: list[TransformComponent], prepare: Callable[[], None]
    ) -> None:
        """Set the steps, and the check to run before each run."""
        super().__init__(transformations=transformations, disable_cache=True)
        self._prepare = prepare

    def run(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents and return their chunks; see ``IngestionPipeline.run``.

        Raises :class:`InputError` for ``num_workers``, and :class:`EmbeddingMismatchError` if the
        store adopted another model meanwhile.
        """
        self._begin(num_workers)
        nodes = super().run(*arguments, **more)
        self._report()
        return nodes

    async def arun(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents like :meth:`run`."""
        self._begin(num_workers)
        nodes = await super().arun(*arguments, **more)
        self._report()
        return nodes

    def _begin(self, num_workers: int | None) -> None:
        if num_workers is not None and num_workers > 1:
            raise InputError(
                f"num_workers is {num_workers}: leave it out. One process writes the store, and "
                "the embedding model uses every core already"
            )
        self._prepare()

    def _report(self) -> None:
        for step in self.transformations:
            if isinstance(step, CachedEmbedding) and step.failures:
                count, reason = len(step.failures), next(iter(step.failures.values()))
                _log.warning("%d passages have no vector, only words: %s", count, reason)
                step.failures.clear()


class IngestionPipelineBuilderV2:
    """Build pipelines that put LlamaIndex ``Document`` objects into a dataset of a service's store.

    Searches of the store find them at once.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.search_v2 import IngestionPipelineBuilderV2, search
        >>> pipeline = IngestionPipelineBuilderV2().build_pipeline("handbook")
        >>> nodes = pipeline.run(documents=[Document(text="Tea is at four.", doc_id="tea.txt")])
        >>> search("when is tea", dataset="handbook")[0].path
        'tea.txt'
    """

    def __init__(self, service: SearchServiceV2 | None = None) -> None:
        self._service = service

    def build_pipeline(
        self,
        dataset_id: str | int | None = None,
        dataset_name: str | None = None,
        embed_model: BaseEmbedding | None = None,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        *,
        splitter: NodeParser | None = None,
    ) -> DatasetPipeline:
        """Return the pipeline of one dataset, which the first run creates.

        A dataset's id is its name, so either argument is enough; a number is not a name and needs
        ``dataset_name`` as well. ``embed_model`` is by default the store's and must be equal to it;
        it may be any LlamaIndex model with which the service was opened. Sizes are in the model's
        tokens, by default the settings'. A LlamaIndex ``splitter`` cuts texts instead of our
        chunker; recordings are still cut by time.

        Raises :class:`EmbeddingMismatchError` for another model than the store's and
        :class:`InputError` for an invalid name; nothing has been written then.
        """
        name = _dataset_name(dataset_id, dataset_name)
        library = (self._service or shared_service(make_store=True)).library
        model = library.model if embed_model is None else as_model(embed_model)
        _check_model(library, model)
        made = Pipeline.of(
            library.settings.rag_v2, model, chunk_size=chunk_size, chunk_overlap=chunk_overlap
        )
        fingerprint = made.fingerprint
        if splitter is not None:
            fingerprint = sha1_hex(f"{fingerprint}|{splitter.to_json()}")[:16]
        text, encoder = made.embedded, model.encoder
        staging = ChunkPersistenceTransform(pipeline=fingerprint)
        return DatasetPipeline(
            [
                ChunkSplitter(made.chunker, dataset=name, splitter=splitter),
                EmbeddingPrefixTransform(
                    model, context=text.context, form=text.form, part_seconds=text.part_seconds
                ),
                CachedEmbedding(model, library.database),
                staging,
                PersistenceTransform(library.database, staging, dataset=name),
            ],
            lambda: require_model(
                library.database, StoredModel(encoder.model, encoder.fingerprint, encoder.dim)
            ),
        )


def _dataset_name(dataset_id: str | int | None, dataset_name: str | None) -> str:
    name = dataset_id if dataset_name is None else dataset_name
    if not isinstance(name, str):
        raise InputError("say which dataset: build_pipeline('notes')")
    check_dataset_name(name)
    if isinstance(dataset_id, str) and dataset_id != name:
        raise InputError(f"dataset_id is {dataset_id!r} and dataset_name {name!r}: they are one")
    return name


def _check_model(library: Library, model: EmbeddingModel) -> None:
    """Raise unless searches of the store use this very model."""
    own, encoder = library.wanted_model, model.encoder
    if (encoder.fingerprint, encoder.dim) != (own.fingerprint, own.dim):
        raise EmbeddingMismatchError(
            f"this store is searched by {own.model} ({own.dim} numbers), and the pipeline would "
            f"embed with {encoder.model} ({encoder.dim} numbers): leave embed_model out, or open "
            "the store with it: SearchServiceV2(Library.open(model=…))"
        )
