"""Ingestion pipelines of LlamaIndex into a dataset, and their steps.

    Document ─ ChunkSplitter ─> ChunkNode … ─ any further steps ─ ChunkPrefixTransform
      ─ CachedEmbedding ─ ChunkPersistenceTransform ─ PersistenceTransform ─> stored

Each step calls the functions of ``catalog index build`` (:mod:`catalog.ingest.pipeline`); results
are passed on in the nodes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from inspect import Parameter, signature
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.ingestion.pipeline import remove_unstable_values
from llama_index.core.schema import BaseNode, Document, QueryBundle, TransformComponent
from llama_index.core.vector_stores import types as vectors
from pydantic import BaseModel, PrivateAttr

from catalog.core.arguments import check_names
from catalog.core.errors import EmbeddingMismatchError, InputError, UnknownDatasetError
from catalog.core.ids import check_dataset_name, sha1_hex
from catalog.embedding import EmbeddingModel, as_model
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.pipeline import Pipeline, Source, cut_document
from catalog.library.indexing import Indexer, Removal
from catalog.retrieval.request import one_of
from catalog.retrieval.shared import shared_service
from catalog.search_v2.ingestion_nodes import ChunkNode, GivenText, is_drawn, path_below
from catalog.search_v2.ingestion_places import ChunkPrefixTransform, collect_chunks
from catalog.search_v2.ingestion_storing import (
    ONE_PROCESS,
    RUN,
    CachedEmbedding,
    ChunkPersistenceTransform,
    IngestionReport,
    IngestionRun,
    OwnStep,
    PersistenceTransform,
)
from catalog.search_v2.nodes import OwnPart, read_nodes
from catalog.search_v2.retrievers import DatasetRetriever
from catalog.store import Database, embedding_cache
from catalog.store.chunks import find_root
from catalog.store.embedding_cache import require_model
from catalog.store.manifest import files_of_paths, known_documents, paths_of_files
from catalog.store.publish import remove_documents
from catalog.store.statistics import count_totals

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
    _names: dict[str, str] = PrivateAttr(default_factory=dict)  # sources by LlamaIndex's ids
    _first: ChunkSplitter = PrivateAttr()
    _report: IngestionReport = PrivateAttr(default_factory=IngestionReport)

    def __init__(
        self, first: ChunkSplitter, *others: TransformComponent, service: Searcher
    ) -> None:
        """Set the steps, and the service in whose store they put the dataset."""
        store = _StoredAlready(dataset=first.dataset, service=service)
        steps = [first, *others]
        super().__init__(transformations=steps, vector_store=store, disable_cache=True)
        self._service, self._first = service, first

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        own = {"transformations": self.transformations, "docstore": self.docstore}
        return self.model_copy(update=deepcopy(own, memo))

    @property
    def report(self) -> IngestionReport:
        """The documents that the last run added, replaced, deleted and refused."""
        return self._report

    def run(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents and return their chunks; see ``IngestionPipeline.run``.

        Raises :class:`InputError` for ``num_workers``, a cache and an argument that neither
        LlamaIndex nor a step has, :class:`EmbeddingMismatchError` for a step that embeds with
        another model, and if the store got one meanwhile, and :class:`StoreError` if it is closed.
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
        library, dataset = self._service.library, self._first.dataset
        library.require_open()
        below = path_below(self._first.find_root(), ref_doc_id)
        name = self._names.get(ref_doc_id, below)
        return Indexer(library).remove_document(dataset, name)

    def _prepare_inputs(
        self, documents: Sequence[Document] | None, nodes: Sequence[BaseNode] | None
    ) -> Sequence[BaseNode]:
        """Return what the strategies, and then the steps, are given."""
        given, run = super()._prepare_inputs(documents, nodes), RUN.get()
        assert run is not None
        dataset, names = self._first.dataset, self._names
        with self._service.library.database.read() as connection:
            for is_told_apart in (False, True):
                run.given, made_by = run.group(given), defaultdict[str, list[str]](list)
                complete = run.given.keys() - embedding_cache.files_waiting(connection, dataset)
                for one in known_documents(connection, dataset, files=complete).values():
                    made_by[one["file"]].append(one["pipeline"])
                unchanged = run.mark(made_by)
                rest = run.given.keys() - unchanged
                if is_told_apart or not run.tell_apart(connection, dataset, rest):
                    break
        for text in chain.from_iterable(run.given.values()):
            names[text.node.ref_doc_id or text.node.node_id] = text.source
        if self.docstore is None:
            run.report.unchanged = unchanged
            changed = (run.given[name] for name in run.given if name not in unchanged)
            return [text.node for text in chain.from_iterable(changed)]
        self._forget(run, run.given.keys() - made_by.keys())
        if self.docstore_strategy == DocstoreStrategy.UPSERTS_AND_DELETE:
            run.known = dict(self.docstore.docs)
            known = run.known.items()
            names |= {id_: GivenText.of(node, run.root).source for id_, node in known} | names
        return given

    def _delete_absent(self, run: IngestionRun) -> None:
        """Delete what the docstore knew and the run did not bring."""
        named, dataset = self._names, self._first.dataset
        absent = [id_ for id_ in run.known if named[id_] not in run.given]
        with self._service.library.database.write() as connection:
            paths = paths_of_files(connection, dataset, {named[id_] for id_ in absent})
            remove_documents(connection, dataset, paths, time.time())
        run.report.deleted += paths
        for id_ in absent:
            if self.docstore is not None:
                self.docstore.delete_document(id_, raise_error=False)

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
        library, earlier = self._service.library, self._names
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
            if run.known:
                self._delete_absent(run)
            if self.docstore is not None:
                run.report.unchanged = [name for name in run.given if name not in run.texts]
        finally:
            if not is_done and (store := self.docstore) is not None:
                for id_, node in run.known.items():
                    if not store.document_exists(id_):  # LlamaIndex took it out
                        store.add_documents([node])
                        store.set_document_hash(id_, node.hash)
            self._forget(run, [it for it in run.given if not is_done or it not in run.marks])
            self._report = run.report
            RUN.set(None)

    def _arrange(self) -> None:
        """Move our own last steps behind the user's steps."""
        steps = self.transformations
        for step in steps:
            if isinstance(step, BaseEmbedding):  # CachedEmbedding embeds with the same model
                _require_model(self._service.library, step)
        steps = [step for step in steps if not isinstance(step, BaseEmbedding)]
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


class DatasetVectorStore(OwnPart, vectors.BasePydanticVectorStore):
    """A dataset as a vector store, for ``VectorStoreIndex.from_vector_store``.

    The query's embedding and filters are used, whatever engine the dataset has. Give the index the
    store's own model: an embedding of another length is ignored. ``insert`` stores what the index's
    splitter makes by :class:`IngestionPipelineBuilderV2`, and replaces a document it has.

    Examples:
        >>> from llama_index.core.vector_stores import VectorStoreQuery
        >>> from catalog.search_v2 import DatasetVectorStore
        >>> query = VectorStoreQuery(query_str="how hot is the oven", similarity_top_k=1)
        >>> DatasetVectorStore("notes").query(query).nodes[0].metadata["path"]
        'recipes/bread.txt'
    """

    stores_text: bool = True
    dataset: str
    _service: Searcher | None = PrivateAttr()
    _pipeline: DatasetPipeline | None = PrivateAttr(default=None)

    # LlamaIndex's leaves out what cannot be pickled, such as the service
    __getstate__, __setstate__ = BaseModel.__getstate__, BaseModel.__setstate__

    def __init__(
        self,
        dataset: str | None = None,
        *,
        service: Searcher | None = None,
        dataset_name: str | None = None,
    ) -> None:
        name = one_of(dataset=dataset, dataset_name=dataset_name)
        super().__init__(stores_text=True, dataset=name)
        self._service = service

    @property
    def client(self) -> Searcher:
        """The service that searches."""
        return self._service or shared_service()

    @property
    def pipeline(self) -> DatasetPipeline:
        """The pipeline that stores and deletes documents."""
        if self._pipeline is None:
            self._pipeline = IngestionPipelineBuilderV2(self._service).build_pipeline(self.dataset)
        return self._pipeline

    def query(self, query: vectors.VectorStoreQuery, **_: Any) -> vectors.VectorStoreQueryResult:
        """Return the nearest passages, best first.

        LlamaIndex's mode may be default, hybrid, or sparse or text_search, which search by words.
        ``node_ids`` are theirs, or those that you set before ingestion; ids that LlamaIndex drew
        are not stored and count for nothing.
        """
        count = query.similarity_top_k
        ids = [one for one in query.node_ids or () if not is_drawn(one)]
        if ids:
            with self.client.library.database.read() as connection:
                count = max(1, count_totals(connection, self.dataset, by_note=True).chunks)
        if (mode := _MODES.get(query.mode)) is None:
            raise InputError(f"no query mode {query.mode.value}: use {', '.join(_MODES)}")
        depths: Any = dict.fromkeys(("k_lex", "k_dense", "k_fused"), count)
        narrow: Any = {"mode": mode, "filters": query.filters, "doc_ids": query.doc_ids}
        retriever = DatasetRetriever(self.dataset, service=self.client, **depths, **narrow)
        text = "a vector" if query.query_str is None else query.query_str  # it is not embedded
        found = retriever.retrieve(QueryBundle(text, embedding=query.query_embedding))
        found = [one for one in found if not ids or _is_among(one.node, ids)]
        found = found[: query.similarity_top_k]
        nodes, scores = [one.node for one in found], [one.get_score() for one in found]
        ids = [node.node_id for node in nodes]
        return vectors.VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)

    async def aquery(
        self, query: vectors.VectorStoreQuery, **_: Any
    ) -> vectors.VectorStoreQueryResult:
        """Return the nearest passages like :meth:`query`."""
        return await asyncio.to_thread(self.query, query)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: vectors.MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the passages that have one of the ids and pass the filters, by default all."""
        found = chain.from_iterable(read_nodes(self.client, self.dataset, filters=filters))
        return [node for node in found if node_ids is None or _is_among(node, node_ids)]

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Store the documents of nodes and return the nodes' ids, which ``get_nodes`` takes.

        Raises :class:`InputError` for a document of which only the later nodes are given.
        """
        ids = {node.node_id for node in nodes}
        beside = (near for node in nodes for near in (node.prev_node, node.next_node) if near)
        if any(near.node_id not in ids for near in beside):
            raise InputError(
                "nodes of a document are missing, and a run replaces all of it: give its nodes "
                "together (a larger insert_batch_size)"
            )
        self.pipeline.run(nodes=list(nodes))
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Store the documents of nodes like :meth:`add`."""
        return await asyncio.to_thread(self.add, nodes)

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete a document by its id, or a node's ``ref_doc_id``; an unknown one is no error."""
        pipeline = self.pipeline
        with suppress(InputError):
            pipeline.delete(ref_doc_id)

    def clear(self, **_: Any) -> None:
        """Remove the dataset; one that is not there is no error."""
        with suppress(UnknownDatasetError):
            Indexer(self.client.library).remove(self.dataset)

    def copy_to(self, vector_store: vectors.BasePydanticVectorStore) -> int:
        """Add all passages with their vectors to another vector store; return their number.

        Ids are UUIDs of version 5, as Qdrant requires, made of the passages' ids: a second copy
        replaces the first. A passage longer than the model's window has the vector of its first
        part. Passages without a vector are left out.
        """
        count = 0
        for nodes in read_nodes(self.client, self.dataset, for_stores=True):
            count += len(vector_store.add([node for node in nodes if node.embedding is not None]))
        return count


_MODES = {"default": "vector", "hybrid": "hybrid", "sparse": "lexical", "text_search": "lexical"}


def _is_among(node: BaseNode, ids: Sequence[str]) -> bool:
    return node.node_id in ids or node.metadata.get("node_id") in ids


class _StoredAlready(DatasetVectorStore):
    """The vector store that LlamaIndex's strategies need: in a run our steps do what it would do.

    The last one replaces what a run brings again, and the end of the run deletes the rest.
    """

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Return the ids of the nodes, which are stored."""
        return [node.node_id for node in nodes] if RUN.get() else super().add(nodes)

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Leave the document as it is: the run may fail."""
        if RUN.get() is None:
            super().delete(ref_doc_id)
