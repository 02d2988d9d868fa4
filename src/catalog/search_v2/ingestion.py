"""Ingestion pipelines of LlamaIndex into a dataset, and their steps.

    Document ─ ChunkSplitter ─> ChunkNode … ─ any further steps ─ StepResults
                   ─ EmbeddingPrefixTransform ─ CachedEmbedding
                   ─ ChunkPersistenceTransform ─ PersistenceTransform ─> stored

Each step calls the functions of ``catalog index build`` (:mod:`catalog.ingest.pipeline`); results
are passed on in the nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import (
    BaseNode,
    Document,
    MetadataMode,
    NodeRelationship,
    TextNode,
    TransformComponent,
)
from pydantic import Field, PrivateAttr

from catalog.core.arguments import check_names
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
)
from catalog.library.indexing import Indexer, Removal
from catalog.retrieval.shared import shared_service
from catalog.search_v2.ingestion_nodes import (
    LEAD,
    ChunkNode,
    GivenDocument,
    GivenDocuments,
    lead_with,
)
from catalog.search_v2.ingestion_places import collect_chunks
from catalog.search_v2.ingestion_storing import (
    RUN,
    ChunkPersistenceTransform,
    IngestionReport,
    IngestionRun,
    PersistenceTransform,
)
from catalog.store import Database, embedding_cache
from catalog.store.embedding_cache import StoredModel, require_model
from catalog.store.manifest import files_of_paths

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2

_log = logging.getLogger(__name__)


class ChunkSplitter(TransformComponent):
    """Cut documents into chunks with exact offsets and deterministic ids.

    A LlamaIndex ``splitter`` replaces the chunker. With a ``database`` no part of a source takes
    the name of another source that is stored.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.core.tokens import CharTokenCounter
        >>> from catalog.ingest.chunking import DocumentChunker
        >>> from catalog.search_v2 import ChunkSplitter
        >>> split = ChunkSplitter(DocumentChunker(CharTokenCounter()), dataset="notes")
        >>> chunk = split([Document(text="Tea is at four.", doc_id="tea.txt")])[0]
        >>> chunk.text, chunk.source.source_doc_id, chunk.span.locator.line_start
        ('Tea is at four.', 'notes:tea.txt', 1)
    """

    dataset: str
    _chunker: DocumentChunker = PrivateAttr()
    _splitter: NodeParser | None = PrivateAttr()
    _database: Database | None = PrivateAttr()

    def __init__(
        self,
        chunker: DocumentChunker,
        *,
        dataset: str,
        splitter: NodeParser | None = None,
        database: Database | None = None,
    ) -> None:
        super().__init__(dataset=dataset)
        self._chunker, self._splitter, self._database = chunker, splitter, database

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the chunks of the documents as :class:`ChunkNode`, in document order."""
        if (run := RUN.get()) is None:
            RUN.set(run := IngestionRun())
        run.start(given := GivenDocuments.read(nodes, self.dataset, self._find_files))
        return [chunk for one in given.documents.values() for chunk in self._cut(one)]

    def _find_files(self, path: str) -> list[str]:
        """Return the sources in the store that have a document at this path."""
        if self._database is None:
            return []
        with self._database.read() as connection:
            return files_of_paths(connection, self.dataset, [path])

    def _cut(self, given: GivenDocument) -> list[ChunkNode]:
        source = given.source
        if self._splitter is not None and not source.parsed.segments:
            body = source.parsed.text[source.parsed.body_start :]
            return collect_chunks(self._chunker, given, self._split(self._splitter, given, body))
        spans = cut_document(self._chunker, source).spans
        return [ChunkNode.of(source, span, given.style) for span in spans]

    def _split(self, splitter: NodeParser, given: GivenDocument, body: str) -> list[BaseNode]:
        """Return the splitter's nodes with the document's metadata, templates and excluded keys.

        The splitter does not see metadata: long ones would leave no room for the text.
        """
        nodes = splitter([Document(text=body, id_=given.source.file)])
        for node in nodes:
            for name, value in given.style.items():
                own = getattr(node, name)
                if isinstance(value, Mapping):
                    value = {**value, **own}
                elif isinstance(value, list):
                    value = [*value, *own]
                setattr(node, name, value)
        return nodes


class StepResults(TransformComponent):
    """Take over what steps after the splitter changed: metadata, texts, other nodes.

    Raises :class:`InputError` for a node of no document of this run.
    """

    _chunker: DocumentChunker = PrivateAttr()

    def __init__(self, chunker: DocumentChunker) -> None:
        super().__init__()
        self._chunker = chunker

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the nodes of each document as its chunks."""
        run = RUN.get()
        documents = {} if run is None else run.given.documents
        owned: dict[str, list[BaseNode]] = {}
        for node in nodes:
            owned.setdefault(_owner(node, documents), []).append(node)
        return [
            chunk
            for name, some in owned.items()
            for chunk in collect_chunks(self._chunker, documents[name], some)
        ]


def _owner(node: BaseNode, documents: Mapping[str, GivenDocument]) -> str:
    """Return the id of the document that a node was made of."""
    if isinstance(node, ChunkNode):
        name = node.source.source_doc_id
    else:
        made_of = node.source_node
        name = "" if made_of is None else str(made_of.metadata.get("source_doc_id") or "")
    if name in documents:
        return name
    raise InputError(
        f"a step returned the node {node.node_id} of no document of this run: keep the node's "
        f"relationship {NodeRelationship.SOURCE.name}, and give a splitter as build_pipeline("
        "splitter=…)"
    )


class EmbeddingPrefixTransform(TransformComponent):
    r"""Build the text to embed: document prefix, the passage's place and metadata, the passage.

    These windows are kept on the node, separate from its text; see
    :class:`~catalog.ingest.pipeline.EmbeddedText`, which also describes the arguments. In a
    pipeline that is not ours, put this step just before the embedding model: plain text nodes get
    the metadata ``embedding_lead``, which no language model reads. The prefix is that of
    ``model`` or the configured model, unless ``prefix`` is given.

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
    prefix: str = ""
    _model: EmbeddingModel | None = PrivateAttr()

    def __init__(
        self,
        model: EmbeddingModel | BaseEmbedding | None = None,
        *,
        prefix: str | None = None,
        context: bool = True,
        form: Literal["place", "labels"] = "place",
        part_seconds: float = 20.0,
    ) -> None:
        own = None if model is None else as_model(model)
        if prefix is None:  # else no model is needed for plain nodes
            own = own or get_model(rag=get_settings().rag_v2)
            prefix = own.document_prefix
        super().__init__(context=context, form=form, part_seconds=part_seconds, prefix=prefix)
        self._model = own

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores it."""
        return cls.__name__

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``windows`` on each :class:`ChunkNode`, and return text nodes with their prefix.

        Whole documents and other kinds of nodes are returned unchanged.
        """
        if self._model is None and any(isinstance(node, ChunkNode) for node in nodes):
            self._model = get_model(rag=get_settings().rag_v2)
        return [self._format(node) for node in nodes]

    def _format(self, node: BaseNode) -> BaseNode:
        if isinstance(node, ChunkNode):
            assert self._model is not None
            model = replace(self._model, document_prefix=self.prefix)
            embedded = EmbeddedText(model, self.context, self.form, self.part_seconds)
            node.windows = embedded.windows(node.source.parsed, node.span)
        elif isinstance(node, TextNode) and LEAD not in node.metadata:
            place, told = "", node.get_metadata_str(MetadataMode.EMBED)
            if self.context:
                place = _describe_place(node, self.form)
                excluded = [*node.excluded_embed_metadata_keys, *_OF_PLACE]
                rest = node.model_copy(update={"excluded_embed_metadata_keys": excluded})
                told = rest.get_metadata_str(MetadataMode.EMBED)
            told = f"{told.strip()}\n\n" if told.strip() else ""
            return lead_with(node, self.prefix + place + told)
        return node


_OF_PLACE = ("path", "file_name", "file_path", "file_type", "title", "heading_path", "header_path")


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
        reasons: Mapping[str, str] = {}
        if missing := [key for key in texts if key not in vectors]:
            result = self._model.embed([texts[key] for key in missing])
            vectors |= keep_vectors(self._database, self._model, missing, result.vectors)
            reasons = {missing[index]: reason for index, reason in result.failures.items()}
        for chunk in chunks:
            reason = next((reasons[key] for key in chunk.embed_keys if key in reasons), None)
            if reason is not None:
                self.failures[chunk.node_id] = reason
            chunk.vectors = {key: vectors[key] for key in chunk.embed_keys if key in vectors}
            if chunk.embed_keys and chunk.embed_keys[0] in vectors:
                chunk.embedding = vectors[chunk.embed_keys[0]].tolist()
        return list(nodes)


class DatasetPipeline(IngestionPipeline):
    """An ``IngestionPipeline`` whose runs end in a dataset, in this process.

    A run replaces everything stored of its sources; pages whose numbers are all new are added.
    Other sources stay. ``report`` lists what the last run changed. A passage that could not be
    embedded is stored nevertheless, found by its words, and logged. Steps that you add to
    ``transformations``, wherever, run before texts are embedded and stored. LlamaIndex's own
    docstore strategies and cache are off, because they lose documents when an embedding fails.
    """

    _dataset: str = PrivateAttr()
    _library: Library = PrivateAttr()
    _model: StoredModel = PrivateAttr()
    _report: IngestionReport = PrivateAttr(default_factory=IngestionReport)
    _names: dict[str, str] = PrivateAttr(default_factory=dict)  # sources by LlamaIndex's ids

    def __init__(
        self,
        transformations: list[TransformComponent],
        library: Library,
        dataset: str,
        model: StoredModel,
    ) -> None:
        """Set the steps, the dataset of the library for which they are, and their model."""
        super().__init__(transformations=transformations, disable_cache=True)
        self._library, self._dataset, self._model = library, dataset, model

    @property
    def report(self) -> IngestionReport:
        """The documents that the last run added, replaced, deleted and refused."""
        return self._report

    def __getstate__(self) -> dict[str, Any]:
        raise InputError(
            "a pipeline holds the store of its process and cannot be pickled: call "
            "build_pipeline() in the other process. One process is usually enough, for the "
            "embedding model uses every core already"
        )

    def run(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents and return their chunks; see ``IngestionPipeline.run``.

        Raises :class:`InputError` for ``num_workers``, a cache, a docstore, a step that embeds and
        an argument that neither LlamaIndex nor a step has, :class:`EmbeddingMismatchError` if the
        store got another model meanwhile, and :class:`StoreError` if it is closed.
        """
        with self._reported(num_workers, more):
            return super().run(*arguments, **more)

    async def arun(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents like :meth:`run`."""
        with self._reported(num_workers, more):
            return await super().arun(*arguments, **more)

    def delete(self, ref_doc_id: str) -> Removal:
        """Delete all documents of a source, by its name or the id of a document that was run.

        Raises :class:`InputError` for an unknown one.
        """
        self._library.require_open()
        name = self._names.get(ref_doc_id, ref_doc_id)
        return Indexer(self._library).remove_document(self._dataset, name)

    @contextmanager
    def _reported(self, num_workers: int | None, more: Mapping[str, Any]) -> Iterator[None]:
        taking = (IngestionPipeline.run, *(type(step).__call__ for step in self.transformations))
        taken = (one for call in taking for one in signature(call).parameters.values())
        kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        names = {one.name: () for one in taken if one.kind in kinds and one.name != "self"}
        check_names(more, names)
        self._library.require_open()
        if num_workers is not None and num_workers > 1:
            raise InputError(
                f"num_workers is {num_workers}: leave it out. One process writes the store, and "
                "the embedding model uses every core already"
            )
        if not self.disable_cache or self.docstore is not None:
            raise InputError(
                "this pipeline has neither LlamaIndex's cache nor a docstore: the dataset itself "
                "knows what is stored, and unchanged texts are not embedded again"
            )
        self._arrange()
        require_model(self._library.database, self._model)
        run = IngestionRun(earlier=frozenset(self._names.values()))
        RUN.set(run)
        try:
            yield
        finally:
            self._report = run.report
            self._names |= run.given.names
            RUN.set(None)
        self._log(run.report)

    def _arrange(self) -> None:
        """Move our own last steps behind the user's steps."""
        for step in self.transformations:
            if isinstance(step, BaseEmbedding):
                raise InputError(
                    f"{step.class_name()} is a step: leave it out. The pipeline embeds with the "
                    "store's model, or build_pipeline(embed_model=…)"
                )
        kinds = {type(step) for step in self.transformations}
        if missing := [one.__name__ for one in (ChunkSplitter, *_LAST) if one not in kinds]:
            raise InputError(
                f"the pipeline lost its own steps {', '.join(missing)}: add yours to "
                "transformations, and give a splitter as build_pipeline(splitter=…)"
            )
        last = [step for step in self.transformations if isinstance(step, _LAST)]
        others = [step for step in self.transformations if not isinstance(step, _LAST)]
        self.transformations = [*others, *last]

    def _log(self, report: IngestionReport) -> None:
        for name, reason in report.refused.items():
            _log.warning("left out: %s: %s", name, reason)
        for step in self.transformations:
            if isinstance(step, CachedEmbedding) and step.failures:
                count, reason = len(step.failures), next(iter(step.failures.values()))
                _log.warning("%d passages have no vector, only words: %s", count, reason)
                step.failures.clear()


_LAST = (
    StepResults,
    EmbeddingPrefixTransform,
    CachedEmbedding,
    ChunkPersistenceTransform,
    PersistenceTransform,
)


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
        cut = ChunkSplitter(
            made.chunker, dataset=name, splitter=splitter, database=library.database
        )
        return DatasetPipeline(
            [
                cut,
                StepResults(made.chunker),
                EmbeddingPrefixTransform(
                    model, context=text.context, form=text.form, part_seconds=text.part_seconds
                ),
                CachedEmbedding(model, library.database),
                ChunkPersistenceTransform(pipeline=fingerprint),
                PersistenceTransform(library.database, dataset=name),
            ],
            library,
            name,
            StoredModel(encoder.model, encoder.fingerprint, encoder.dim),
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
