"""The last steps of an ingestion pipeline: embed chunks, make rows of them, and publish them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, TransformComponent
from pydantic import PrivateAttr

from catalog.core.documents import part_label
from catalog.core.errors import CatalogError, InputError
from catalog.core.ids import sha1_hex
from catalog.embedding import EmbeddingModel, as_model
from catalog.ingest.embedding import keep_vectors
from catalog.ingest.pipeline import TOGETHER, Source, embed_keys
from catalog.ingest.sync_report import in_groups
from catalog.search_v2.ingestion_nodes import ChunkNode, GivenText, parse_texts
from catalog.search_v2.nodes import OwnPart, PassageNode, link_neighbours
from catalog.store import Database, embedding_cache
from catalog.store.chunks import find_chunks, find_root
from catalog.store.manifest import StoredPart, parts_of_files, texts_of_file
from catalog.store.publish import (
    NewChunk,
    NewRevision,
    describe_unfit,
    ensure_dataset,
    publish_all,
    remove_documents,
    set_source,
)

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from sqlalchemy import Connection

_log = logging.getLogger(__name__)
# Two versions of a page of docs/ share more in 93 of 100 cases, two files of one bare name in 20.
_SAME, _FEWEST = 0.2, 30
_ACCESSED = re.compile(r"'last_accessed_date': '[^']*'")  # a reader's own doing


@dataclass
class IngestionReport:
    """The paths of the documents that a run added, replaced and deleted.

    ``unchanged`` are the sources that were stored just so, and which no step was given. ``refused``
    are those that could not be stored, with the reason; they stay as they were. ``warnings`` name
    stored texts that may have been replaced by mistake.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.search_v2 import IngestionPipelineBuilderV2
        >>> pipeline = IngestionPipelineBuilderV2().build_pipeline("menu")
        >>> nodes = pipeline.run(documents=[Document(text="Soup at noon.", doc_id="soup.txt")])
        >>> pipeline.report.added
        ['soup.txt']
    """

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass
class IngestionRun:
    """The state that the steps of one run share: parallel runs of a pipeline have one each.

    ``root`` is the folder of the dataset, ``how`` tells what the steps are, and ``earlier`` are the
    sources of the pipeline's earlier runs. The run deletes those of ``known``, the docstore's
    documents, that it does not bring. By source, ``given`` are the texts that the run brings,
    ``marks`` tell what its documents are made of, and ``texts`` are those after the first steps.
    ``documents`` are these by source_doc_id, with their styles. ``renamed`` are bare names that
    other files have in the store.
    """

    root: str = ""
    how: str = ""
    earlier: frozenset[str] = frozenset()
    known: dict[str, BaseNode] = field(default_factory=dict)
    report: IngestionReport = field(default_factory=IngestionReport)
    given: dict[str, list[GivenText]] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    texts: dict[str, list[GivenText]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    documents: dict[str, tuple[Source, Mapping[str, Any]]] = field(default_factory=dict)

    def group(self, nodes: Iterable[BaseNode]) -> dict[str, list[GivenText]]:
        """Return the texts of nodes by source, in order."""
        groups: dict[str, list[GivenText]] = {}
        for text in (GivenText.of(node, self.root) for node in nodes):
            if text.known_by == "name" and text.source in self.renamed:
                text = replace(text, source=self.renamed[text.source])
            groups.setdefault(text.source, []).append(text)
        return groups

    def tell_apart(self, connection: Connection, dataset: str, names: Iterable[str]) -> bool:
        """Rename each file known by a bare name under which another file is stored, if any.

        Of ``a.pdf``, ``a (2).pdf`` …, it gets the name with most of its triples of words, or the
        next one, if a text has fewer than :data:`_SAME` of the other's. New pages are added.
        """
        for name in names:
            group, suffix, free = self.given[name], PurePosixPath(name).suffix, name
            if any(text.known_by != "name" for text in group):
                continue
            new, alike = _triples(text.text for text in group), dict[str, float]()
            before = parts_of_files(connection, dataset, [name]).get(name, {})
            if _are_new_pages(before, [frozenset({text.label} - {""}) for text in group]):
                continue
            for number in count(2):
                if not (texts := texts_of_file(connection, dataset, free)):
                    break
                least = min(len(new), len(stored := _triples(texts)))
                alike[free] = 1.0 if least < _FEWEST else len(new & stored) / least
                free = f"{name.removesuffix(suffix)} ({number}){suffix}"
            best = max(alike, key=lambda it: alike[it], default=name)
            if alike and alike[best] < _SAME:
                best = free
                self.warn(
                    f"{name}: another text is stored under this bare name, so both are kept, and "
                    f"this one is {free}. If it is an edit, delete {name}. To tell files apart, "
                    "give each its path (file_path) or an id (doc_id)"
                )
            if best != name:
                self.renamed[name] = best
        return bool(self.renamed)

    def read(
        self, nodes: Iterable[BaseNode], dataset: str, find_files: Callable[[str], Iterable[str]]
    ) -> None:
        """Read the documents; ``find_files`` returns the stored sources that have a path.

        No part of a source takes the name of another source.
        """
        self.texts = self.group(nodes)
        for name, group in self.texts.items():

            def is_free(path: str, name: str = name) -> bool:
                is_other = path != name and path in self.texts
                return "#" not in path or not (is_other or {*find_files(path)} - {name})

            try:
                for parsed, style in list(parse_texts(name, group, is_free)):
                    source = Source(dataset, name, parsed)
                    self.documents[source.source_doc_id] = source, style
            except CatalogError as error:
                self.refuse(name, str(error))

    def mark(self, made_by: Mapping[str, Sequence[str]]) -> list[str]:
        """Note what each source is made of, and return those that are stored just so.

        ``made_by`` has the fingerprints of their stored documents, which end with the mark of the
        source and the number of its documents.
        """
        told = {name: _ACCESSED.sub("", f"{self.how}{it}") for name, it in self.given.items()}
        self.marks = {name: sha1_hex(it)[:16] for name, it in told.items()}
        ends = {name: [one.rpartition(":")[2] for one in made] for name, made in made_by.items()}
        return [name for name in ends if {*ends[name]} == {f"{self.marks[name]}.{len(ends[name])}"}]

    def refuse(self, name: str, reason: str) -> None:
        """Report and log that a source cannot be stored."""
        self.report.refused[name] = reason
        self.marks.pop(name, None)
        _log.warning("left out: %s: %s", name, reason)

    def warn(self, text: str) -> None:
        """Report and log a warning."""
        self.report.warnings.append(text)
        _log.warning(text)


RUN: ContextVar[IngestionRun | None] = ContextVar("catalog_ingestion_run", default=None)
ONE_PROCESS = (
    "a pipeline holds the store of its process, and the embedding model uses every core already: "
    "leave num_workers out, or call build_pipeline() in the other process"
)


class OwnStep(OwnPart, TransformComponent):
    """A step of a run in this process: neither pickled nor replaced by LlamaIndex's cache.

    A cached result would store nothing, and a chunk from a cache has no place in its source.
    """

    def to_dict(self, **options: Any) -> dict[str, Any]:
        """Return the fields with a new number, as LlamaIndex's cache looks for them."""
        return super().to_dict(**options) | {"call": uuid4().hex}

    def __getstate__(self) -> dict[str, Any]:
        raise InputError(ONE_PROCESS)

    def _chunks(self, nodes: Sequence[BaseNode]) -> list[ChunkNode]:
        """Return the nodes; raises :class:`InputError` if one is no chunk."""
        for node in nodes:
            if not isinstance(node, ChunkNode):
                raise InputError(
                    f"{self.class_name()} needs chunks, and {node.node_id} is a "
                    f"{type(node).__name__}: keep all steps of build_pipeline() in their order"
                )
        return cast("list[ChunkNode]", list(nodes))


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

    async def acall(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Embed in a thread, so that the event loop does not wait."""
        return await asyncio.to_thread(self, nodes)


class ChunkPersistenceTransform(OwnStep):
    """Turn chunk nodes into the rows that :class:`PersistenceTransform` will publish.

    ``pipeline`` identifies how they were cut and embedded, so that a change is noticed.

    Examples:
        >>> from catalog.search_v2 import ChunkPersistenceTransform, IngestionPipelineBuilderV2
        >>> step = IngestionPipelineBuilderV2().build_pipeline("handbook").transformations[-2]
        >>> isinstance(step, ChunkPersistenceTransform), len(step.pipeline)
        (True, 16)
    """

    pipeline: str = ""

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Give the first chunk of each document its revision."""
        groups: dict[str, list[ChunkNode]] = {}
        for chunk in self._chunks(nodes):
            groups.setdefault(chunk.source.source_doc_id, []).append(chunk)
        for group in groups.values():
            group[0].revision = group[0].source.revision(
                [NewChunk(chunk.node_id, chunk.span, chunk.embed_keys) for chunk in group],
                self.pipeline,
                group[0].embedded_by,
                {key: vector for chunk in group for key, vector in chunk.vectors.items()},
            )
        return list(nodes)


class PersistenceTransform(OwnStep):
    """Publish the documents of the nodes: each source whole, several short ones in a transaction.

    A run replaces everything stored of its sources. Only if all its pages of a source are new
    numbers (``page_label``), they are added to the stored pages. A source that has no text any more
    is deleted.

    Examples:
        >>> from catalog.search_v2 import IngestionPipelineBuilderV2, PersistenceTransform
        >>> last = IngestionPipelineBuilderV2().build_pipeline("handbook").transformations[-1]
        >>> isinstance(last, PersistenceTransform), last.dataset
        (True, 'handbook')
    """

    dataset: str
    _database: Database = PrivateAttr()

    def __init__(self, database: Database, *, dataset: str) -> None:
        super().__init__(dataset=dataset)
        self._database = database

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Commit every source; return its nodes as stored. A search sees all of it or nothing."""
        run, chunks = RUN.get() or IngestionRun(), self._chunks(nodes)
        names = (name for name in run.texts if name not in run.report.refused)
        sources: dict[str, list[NewRevision]] = {name: [] for name in names}
        for revision in (chunk.revision for chunk in chunks):
            if revision is not None:
                sources.setdefault(revision.file, []).append(revision)
        if unmade := {chunk.source.file for chunk in chunks if not sources.get(chunk.source.file)}:
            raise InputError(f"{unmade.pop()} went through no ChunkPersistenceTransform")
        for name, revisions in list(sources.items()):
            found = (one.document for one in revisions)
            fields = (field for one in found for field in (one.path, *one.metadata))
            if (unfit := describe_unfit(name, *fields)) is not None:
                run.refuse(name, unfit)
                del sources[name]
            elif name in run.marks:
                mark = f":{run.marks[name]}.{len(revisions)}"
                sources[name] = [replace(one, pipeline=one.pipeline + mark) for one in revisions]
        for group in in_groups(
            sources.items(), lambda it: sum(len(one.chunks) for one in it[1]), TOGETHER
        ):
            with self._database.write() as connection:
                self._replace(connection, dict(group), run)
        return self._stored_forms({chunk.node_id: chunk for chunk in chunks})

    def _stored_forms(self, made: Mapping[str, ChunkNode]) -> list[BaseNode]:
        """Return the stored nodes as searches return them, with their embeddings and children."""
        with self._database.read() as connection:
            stored = {it.chunk_id: it for it in find_chunks(connection, self.dataset, made)}
        scored = [NodeWithScore(node=PassageNode.of(stored[id_])) for id_ in made if id_ in stored]
        forms = [one.node for one in link_neighbours(scored, self._database)]
        for node in forms:
            before = made[node.node_id]
            node.embedding = before.embedding
            if children := before.child_nodes:
                node.relationships[NodeRelationship.CHILD] = children
        return forms

    def _replace(
        self,
        connection: Connection,
        sources: Mapping[str, Sequence[NewRevision]],
        run: IngestionRun,
    ) -> None:
        now, report = time.time(), run.report
        stored = parts_of_files(connection, self.dataset, sources)
        gone: list[str] = []
        for name, revisions in sources.items():
            before = stored.get(name, {})
            paths = [one.document.path for one in revisions]
            blank = {str(text.page) for text in run.texts.get(name, ()) if text.page is not None}
            is_other = not before or (blank and blank.isdisjoint(_stored_pages(before)))
            if not revisions and is_other:
                run.refuse(name, "it has no text")
                continue
            if not _are_new_pages(before, [*map(_pages, revisions)]):
                gone += [path for path in before if path not in paths]
                _tell_of_others(run, name, before, revisions)
            report.added += [path for path in paths if path not in before]
            report.replaced += [path for path in paths if path in before]
        report.deleted += gone
        if gone:
            remove_documents(connection, self.dataset, gone, now)
        if any(sources.values()):
            ensure_dataset(connection, self.dataset, now)  # it may have been removed
            if run.root and not find_root(connection, self.dataset):
                set_source(connection, self.dataset, run.root, (), ())
            publish_all(connection, [one for some in sources.values() for one in some], now)


def _are_new_pages(before: Mapping[str, StoredPart], new: Sequence[frozenset[str]]) -> bool:
    """Return whether all texts have page numbers, and none of the new ones is stored."""
    if not (new and all(new) and all(part.pages for part in before.values())):
        return False
    return frozenset().union(*new).isdisjoint(_stored_pages(before))


def _stored_pages(before: Mapping[str, StoredPart]) -> frozenset[str]:
    return frozenset().union(*(part.pages for part in before.values()))


def _tell_of_others(
    run: IngestionRun, name: str, before: Mapping[str, StoredPart], revisions: Sequence[NewRevision]
) -> None:
    """Warn if pages are lost, or if other texts replace all stored ones: both may be wanted.

    One text that replaces another is usual for a file that changed. So only two cases give a
    warning: the same pipeline stored the first text, or many files may have this bare name.
    """
    new = frozenset().union(*map(_pages, revisions))
    if new and (lost := _stored_pages(before) - new):
        pages = ", ".join(sorted(lost, key=lambda page: (len(page), page))[:20])
        run.warn(
            f"{name}: the stored pages {pages} are deleted, for this run has only others. Run all "
            "pages of a source together, or only new ones"
        )
        return
    hashes = {part.content_hash for part in before.values()}
    if not before or not hashes.isdisjoint(revision.content_hash for revision in revisions):
        return
    known_by = {text.known_by for text in run.texts.get(name, ())}
    is_unsure = "name" in known_by or ("address" in known_by and name in run.earlier)
    if is_unsure or len(revisions) > 1:
        run.warn(
            f"{name}: all {len(before)} stored texts are replaced by {len(revisions)} others. To "
            "keep both, give each its path (file_path) or an id (doc_id), or run them together"
        )


def _triples(texts: Iterable[str]) -> set[tuple[str, str, str]]:
    words = re.findall(r"\w+", " ".join(texts).casefold())
    return set(zip(words, words[1:], words[2:], strict=False))


def _pages(revision: NewRevision) -> frozenset[str]:
    if label := part_label(revision.document.metadata):
        return frozenset([label])
    places = (chunk.span.locator for chunk in revision.chunks)
    spans = ((at.page, at.page_end or at.page) for at in places if at.page is not None)
    return frozenset(str(page) for first, last in spans for page in range(first, (last or 0) + 1))
