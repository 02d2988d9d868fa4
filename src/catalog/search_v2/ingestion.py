"""Ingestion pipelines of LlamaIndex into a dataset, and their steps.

    Document ─ ChunkSplitter ─> ChunkNode … ─ any further steps ─ ChunkPrefixTransform
      ─ CachedEmbedding ─ ChunkPersistenceTransform ─ PersistenceTransform ─> stored

Each step calls the functions of ``catalog index build`` (:mod:`catalog.ingest.pipeline`); results
are passed on in the nodes.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter, signature
from itertools import chain
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.ingestion.pipeline import remove_unstable_values
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
    Source,
    cut_document,
    embed_keys,
    format_labels,
    format_place,
)
from catalog.library.indexing import Indexer, Removal
from catalog.retrieval.shared import shared_service
from catalog.search_v2.ingestion_nodes import LEAD, ChunkNode, GivenText, lead_with, path_below
from catalog.search_v2.ingestion_places import collect_chunks
from catalog.search_v2.ingestion_storing import (
    ONE_PROCESS,
    RUN,
    ChunkPersistenceTransform,
    IngestionReport,
    IngestionRun,
    OwnStep,
    PersistenceTransform,
)
from catalog.search_v2.retrievers import DatasetVectorStore
from catalog.store import Database, embedding_cache
from catalog.store.chunks import find_root
from catalog.store.embedding_cache import require_model
from catalog.store.manifest import files_of_paths, known_documents, paths_of_files
from catalog.store.publish import remove_documents

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher

_log = logging.getLogger(__name__)


class ChunkSplitter(OwnStep):
    """Cut documents into chunks with exact offsets and deterministic ids.

    A LlamaIndex ``splitter`` replaces the chunker. With a ``database`` no part of a source takes
    the name of another source that is stored. ``root`` is the folder of a dataset without one.

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
    _root: str = PrivateAttr()

    def __init__(
        self,
        chunker: DocumentChunker,
        *,
        dataset: str,
        splitter: NodeParser | None = None,
        database: Database | None = None,
        root: str = "",
    ) -> None:
        super().__init__(dataset=dataset)
        self._chunker, self._splitter = chunker, splitter
        self._database, self._root = database, root

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the chunks of the documents as :class:`ChunkNode`, in document order."""
        run = RUN.get()
        if run is None or run.texts:  # in a pipeline of somebody else
            RUN.set(run := IngestionRun(self.find_root()))
        run.read(nodes, self.dataset, self._find_files)
        return [chunk for document in run.documents.values() for chunk in self._cut(*document)]

    def find_root(self) -> str:
        """Return the folder of the dataset, "" without one."""
        if self._database is None:
            return self._root
        with self._database.read() as connection:
            return find_root(connection, self.dataset) or self._root

    def _find_files(self, path: str) -> list[str]:
        """Return the sources in the store that have a document at this path."""
        if self._database is None:
            return []
        with self._database.read() as connection:
            return files_of_paths(connection, self.dataset, [path])

    def _cut(self, source: Source, style: Mapping[str, Any]) -> list[ChunkNode]:
        if self._splitter is not None and not source.parsed.segments:
            body = source.parsed.text[source.parsed.body_start :]
            bare = Document(text=body, id_=source.file, **{**style, "metadata": {}})
            nodes = self._splitter([bare])
            for node in nodes:  # long metadata would leave no room for the text
                node.metadata = {**style["metadata"], **node.metadata}
            return collect_chunks(self._chunker, source, style, nodes)
        spans = cut_document(self._chunker, source).spans
        return [ChunkNode.of(source, span, style) for span in spans]


class EmbeddingPrefixTransform(TransformComponent):
    r"""Build the text to embed: document prefix, the passage's place and metadata, the passage.

    These windows are kept on the node, separate from its text; see
    :class:`~catalog.ingest.pipeline.EmbeddedText`, which also describes the arguments. In a
    pipeline that is not ours, put this step just before the embedding model: plain text nodes get
    the metadata ``embedding_lead``, which no language model reads. The prefix is that of
    ``model`` or the configured model, unless ``prefix`` is given, first or by its name.

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
        model: EmbeddingModel | BaseEmbedding | str | None = None,
        *,
        prefix: str | None = None,
        context: bool = True,
        form: Literal["place", "labels"] = "place",
        part_seconds: float = 20.0,
    ) -> None:
        model, prefix = (None, model) if isinstance(model, str) else (model, prefix)
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
        return [self._format(node) for node in nodes]

    def _format(self, node: BaseNode) -> BaseNode:
        if isinstance(node, ChunkNode):
            self._model = self._model or get_model(rag=get_settings().rag_v2)
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


class ChunkPrefixTransform(OwnStep, EmbeddingPrefixTransform):
    """The same for a dataset: takes over what steps after the splitter changed, and other nodes.

    Raises :class:`InputError` for a node of no document of this run.
    """

    _chunker: DocumentChunker = PrivateAttr()

    def __init__(self, made: Pipeline) -> None:
        it, own = made.embedded, EmbeddingPrefixTransform.__init__
        own(self, it.model, context=it.context, form=it.form, part_seconds=it.part_seconds)
        self._chunker = made.chunker

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the nodes of each document as its chunks, with their windows."""
        documents = (RUN.get() or IngestionRun()).documents
        owned: dict[str, list[BaseNode]] = {}
        for node in nodes:
            made_of = node.source_node
            name = "" if made_of is None else str(made_of.metadata.get("source_doc_id") or "")
            if name not in documents:
                raise InputError(
                    f"a step returned the node {node.node_id} of no document of this run: keep the "
                    f"node's relationship {NodeRelationship.SOURCE.name}, and give a splitter as "
                    "build_pipeline(splitter=…)"
                )
            owned.setdefault(name, []).append(node)
        made = (collect_chunks(self._chunker, *documents[name], owned[name]) for name in owned)
        return super().__call__(list(chain.from_iterable(made)))


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
    kind = str(said.get("file_type") or named.suffix[1:])
    return format_labels(title or named.name, kind, headings)


class CachedEmbedding(OwnStep):
    """Give each chunk the vectors of its windows; the model embeds only new windows.

    A window on which the model fails stays without a vector, which is logged; the rest of its
    document continues. Raises ``EmbeddingError`` if the model is down.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.search_v2 import CachedEmbedding, IngestionPipelineBuilderV2
        >>> nodes = [Document(text="Tea is at four.")]
        >>> for step in IngestionPipelineBuilderV2().build_pipeline("notes").transformations[:3]:
        ...     nodes = step(nodes)
        >>> isinstance(step, CachedEmbedding), len(nodes[0].embedding)
        (True, 384)
    """

    _model: EmbeddingModel = PrivateAttr()
    _database: Database = PrivateAttr()

    def __init__(self, model: EmbeddingModel | BaseEmbedding, database: Database) -> None:
        super().__init__()
        self._model, self._database = as_model(model), database

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``embed_keys``, ``vectors`` and ``embedding`` (the first window's) of each chunk."""
        chunks = self._chunks(nodes)
        texts: dict[str, str] = {}
        for chunk in chunks:
            chunk.embed_keys = embed_keys(self._model, chunk.windows)
            chunk.embedded_by = self._model.encoder.fingerprint
            texts |= zip(chunk.embed_keys, chunk.windows, strict=True)
        with self._database.read() as connection:
            vectors = embedding_cache.load(connection, texts)
        if missing := [key for key in texts if key not in vectors]:
            result = self._model.embed([texts[key] for key in missing])
            vectors |= keep_vectors(self._database, self._model, missing, result.vectors)
            reasons = [*result.failures.values(), ""]
        if count := sum(any(key not in vectors for key in chunk.embed_keys) for chunk in chunks):
            _log.warning("%d passages have no vector, only words: %s", count, reasons[0])
        for chunk in chunks:
            chunk.vectors = {key: vectors[key] for key in chunk.embed_keys if key in vectors}
            if chunk.embed_keys and chunk.embed_keys[0] in vectors:
                chunk.embedding = vectors[chunk.embed_keys[0]].tolist()
        return list(nodes)


class _DatasetDeletions(DatasetVectorStore):
    """The dataset as the strategies of LlamaIndex's docstore see it: documents can be deleted.

    There is nothing to add after our last step, which also replaces what the run brings again.
    ``names`` are the sources by the ids of LlamaIndex documents.
    """

    names: dict[str, str] = Field(default_factory=dict)

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Return the ids of the nodes."""
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the source of a document unless the run brings it again."""
        run, name = RUN.get() or IngestionRun(), self.names.get(ref_doc_id, ref_doc_id)
        if name not in run.given:
            with self.client.library.database.write() as connection:
                paths = paths_of_files(connection, self.dataset, [name])
                remove_documents(connection, self.dataset, paths, time.time())
            run.report.deleted += paths


class DatasetPipeline(IngestionPipeline):
    """An ``IngestionPipeline`` whose runs end in a dataset, in this process.

    A run replaces everything stored of its sources; pages whose numbers are all new are added.
    Other sources stay. No step is given a source that the same steps made of the same texts; with a
    ``docstore``, LlamaIndex's ``docstore_strategy`` decides that instead. ``report`` lists what the
    last run changed. A passage that could not be embedded is stored nevertheless, found by its
    words, and logged; the next run tries it again. Steps that you add to ``transformations``,
    wherever, run before texts are embedded and stored.
    """

    _service: Searcher = PrivateAttr()
    _deletions: _DatasetDeletions = PrivateAttr()
    _first: ChunkSplitter = PrivateAttr()
    _report: IngestionReport = PrivateAttr(default_factory=IngestionReport)

    def __init__(
        self, first: ChunkSplitter, *others: TransformComponent, service: Searcher
    ) -> None:
        """Set the steps, and the service in whose store they put the dataset."""
        store = _DatasetDeletions(dataset=first.dataset, service=service)
        steps = [first, *others]
        super().__init__(transformations=steps, vector_store=store, disable_cache=True)
        self._service, self._deletions, self._first = service, store, first

    @property
    def report(self) -> IngestionReport:
        """The documents that the last run added, replaced, deleted and refused."""
        return self._report

    def run(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents and return their chunks; see ``IngestionPipeline.run``.

        Raises :class:`InputError` for ``num_workers``, a cache, a step that embeds and an argument
        that neither LlamaIndex nor a step has, :class:`EmbeddingMismatchError` if the store got
        another model meanwhile, and :class:`StoreError` if it is closed.
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
        library, dataset = self._service.library, self._deletions.dataset
        library.require_open()
        below = path_below(self._first.find_root(), ref_doc_id)
        name = self._deletions.names.get(ref_doc_id, below)
        return Indexer(library).remove_document(dataset, name)

    def _prepare_inputs(
        self, documents: Sequence[Document] | None, nodes: Sequence[BaseNode] | None
    ) -> Sequence[BaseNode]:
        """Return what the strategies, and then the steps, are given."""
        given, run = super()._prepare_inputs(documents, nodes), RUN.get()
        assert run is not None
        run.given, made_by = run.group(given), defaultdict[str, list[str]](list)
        dataset, names = self._deletions.dataset, self._deletions.names
        with self._service.library.database.read() as connection:
            complete = run.given.keys() - embedding_cache.files_waiting(connection, dataset)
            for one in known_documents(connection, dataset, files=complete).values():
                made_by[one["file"]].append(one["pipeline"])
        unchanged = dict.fromkeys(run.mark(made_by))
        for text in chain.from_iterable(run.given.values()):
            names[text.node.ref_doc_id or text.node.node_id] = text.source
        if self.docstore is None:
            run.report.unchanged = [*unchanged]
            changed = (run.given[name] for name in run.given if name not in unchanged)
            return [text.node for text in chain.from_iterable(changed)]
        self._forget(run, run.given.keys() - made_by.keys())
        if self.docstore_strategy == DocstoreStrategy.UPSERTS_AND_DELETE:
            known = self.docstore.docs.items()
            names |= {id_: GivenText.of(node, run.root).source for id_, node in known} | names
        return given

    def _forget(self, run: IngestionRun, names: Iterable[str]) -> None:
        """Have the docstore count these sources as new: they are not stored, or not as a whole."""
        nodes = [text.node for name in names for text in run.given[name]]
        for id_ in {id_ for node in nodes for id_ in (node.node_id, node.ref_doc_id) if id_}:
            if self.docstore is not None:
                self.docstore.delete_document(id_, raise_error=False)

    @contextmanager
    def _reported(self, num_workers: int | None, more: Mapping[str, Any]) -> Iterator[None]:
        stock = signature(IngestionPipeline.run).parameters
        taking = (signature(type(step).__call__).parameters for step in self.transformations)
        taken = (one for call in (stock, *taking) for one in call.values())
        kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        names = {one.name: () for one in taken if one.kind in kinds and one.name != "self"}
        check_names(more, names)
        library, earlier = self._service.library, self._deletions.names
        library.require_open()
        if num_workers is not None and num_workers > 1:
            raise InputError(ONE_PROCESS)
        if not self.disable_cache:
            raise InputError(
                "this pipeline does without LlamaIndex's cache: the dataset itself knows what is "
                "stored, so unchanged documents skip every step"
            )
        self._arrange()
        require_model(library.database, library.wanted_model)
        steps = [(type(one).__qualname__, one.model_dump()) for one in self.transformations]
        how = remove_unstable_values(f"{steps}{[more[it] for it in sorted(more.keys() - stock)]}")
        RUN.set(run := IngestionRun(self._first.find_root(), how, frozenset(earlier.values())))
        is_done = False
        try:
            yield
            is_done = True
            if self.docstore is not None:
                run.report.unchanged = [name for name in run.given if name not in run.texts]
        finally:
            self._forget(run, [it for it in run.given if not is_done or it not in run.marks])
            self._report = run.report
            RUN.set(None)

    def _arrange(self) -> None:
        """Move our own last steps behind the user's steps."""
        steps = self.transformations
        for step in steps:
            if isinstance(step, BaseEmbedding):
                raise InputError(
                    f"{step.class_name()} is a step: leave it out. The pipeline embeds with the "
                    "store's model, or build_pipeline(embed_model=…)"
                )
        kinds = {type(step) for step in steps}
        if missing := [one.__name__ for one in (ChunkSplitter, *_LAST) if one not in kinds]:
            raise InputError(
                f"the pipeline lost its own steps {', '.join(missing)}: add yours to "
                "transformations, and give a splitter as build_pipeline(splitter=…)"
            )
        self.transformations = sorted(steps, key=lambda step: isinstance(step, _LAST))


_LAST = (ChunkPrefixTransform, CachedEmbedding, ChunkPersistenceTransform, PersistenceTransform)


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

    def __init__(self, service: Searcher | None = None) -> None:
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
        root: str | PathLike[str] | None = None,
    ) -> DatasetPipeline:
        """Return the pipeline of one dataset, which the first run creates.

        A dataset's id is its name, so either argument is enough; a number is not a name and needs
        ``dataset_name`` as well. ``embed_model``, or LlamaIndex's ``Settings.embed_model`` if that
        is set, must be the model with which the store is searched. Sizes are in the model's tokens,
        by default the settings'. A LlamaIndex ``splitter`` cuts texts instead of our chunker;
        recordings are still cut by time. Files below ``root``, the dataset's folder, are named by
        their path in it, as ``catalog index build`` names them.

        Raises :class:`EmbeddingMismatchError` for another model than the store's and
        :class:`InputError` for an invalid name or another folder than the dataset's; nothing has
        been written then.
        """
        name = _dataset_name(dataset_id, dataset_name)
        service = self._service or shared_service(make_store=True)
        library = service.library
        folder = "" if root is None else str(Path(root).resolve(strict=True))
        model = _require_model(library, embed_model)
        made = Pipeline.of(
            library.settings.rag_v2, model, chunk_size=chunk_size, chunk_overlap=chunk_overlap
        )
        fingerprint, store = made.fingerprint, library.database
        if splitter is not None:
            how = remove_unstable_values(splitter.to_json())
            fingerprint = sha1_hex(f"{fingerprint}|{how}")[:16]
        cut = ChunkSplitter(
            made.chunker, dataset=name, splitter=splitter, database=store, root=folder
        )
        if root is not None and (own := cut.find_root()) != folder:
            raise InputError(f"root is {folder}, and {name!r} has the folder {own}: leave root out")
        return DatasetPipeline(
            cut,
            ChunkPrefixTransform(made),
            CachedEmbedding(model, store),
            ChunkPersistenceTransform(pipeline=fingerprint),
            PersistenceTransform(store, dataset=name),
            service=service,
        )


def _dataset_name(dataset_id: str | int | None, dataset_name: str | None) -> str:
    name = dataset_id if dataset_name is None else dataset_name
    if not isinstance(name, str):
        raise InputError("say which dataset: build_pipeline('notes')")
    check_dataset_name(name)
    if isinstance(dataset_id, str) and dataset_id != name:
        raise InputError(f"dataset_id is {dataset_id!r} and dataset_name {name!r}: they are one")
    return name


def _require_model(
    library: Library, given: EmbeddingModel | BaseEmbedding | None
) -> EmbeddingModel:
    """Return the model, which must be the very one with which the store is searched."""
    name = "embed_model" if given is not None else "LlamaIndex's Settings.embed_model"
    if given is None and getattr(LlamaSettings._embed_model, "embed_dim", None) != _DISABLED:
        given = LlamaSettings._embed_model  # Settings.embed_model would look for OpenAI
    if given is None:
        return library.model
    model, own = as_model(given), library.wanted_model
    if (model.encoder.fingerprint, model.encoder.dim) != (own.fingerprint, own.dim):
        raise EmbeddingMismatchError(
            f"this store is searched by {own.model} ({own.dim} numbers), and {name} is "
            f"{model.encoder.model} ({model.encoder.dim} numbers): open the store with it, as "
            "SearchServiceV2(library := Library.open(model=…)), or give embed_model=library.model"
        )
    return model


_DISABLED = 1  # dimension of the MockEmbedding that Settings.embed_model = None sets
