"""The last steps of an ingestion pipeline: make rows of chunks, and publish them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import (
    BaseNode,
    NodeRelationship,
    NodeWithScore,
    TransformComponent,
)
from pydantic import PrivateAttr

from catalog.core.documents import part_label
from catalog.ingest.pipeline import TOGETHER
from catalog.ingest.sync_report import in_groups
from catalog.search_v2.ingestion_nodes import ChunkNode, GivenDocuments
from catalog.search_v2.nodes import PassageNode, link_neighbours
from catalog.store import Database
from catalog.store.chunks import find_chunks
from catalog.store.manifest import StoredPart, parts_of_files
from catalog.store.publish import (
    NewChunk,
    NewRevision,
    describe_unfit,
    ensure_dataset,
    publish_all,
    remove_documents,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

_log = logging.getLogger(__name__)


@dataclass
class IngestionReport:
    """The paths of the documents that a run added, replaced and deleted.

    ``refused`` are the sources that could not be stored, with the reason; they stay as they were.
    ``warnings`` name stored texts that may have been replaced by mistake.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.search_v2 import IngestionPipelineBuilderV2
        >>> pipeline = IngestionPipelineBuilderV2().build_pipeline("menu")
        >>> nodes = pipeline.run(documents=[Document(text="Soup at noon.", doc_id="soup.txt")])
        >>> pipeline.report
        IngestionReport(added=['soup.txt'], replaced=[], deleted=[], refused={}, warnings=[])
    """

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass
class IngestionRun:
    """The state that the steps of one run share: parallel runs of a pipeline have one each.

    ``earlier`` are the sources of the pipeline's earlier runs.
    """

    given: GivenDocuments = field(default_factory=GivenDocuments)
    report: IngestionReport = field(default_factory=IngestionReport)
    earlier: frozenset[str] = frozenset()

    def start(self, given: GivenDocuments) -> None:
        """Take the documents of the run."""
        self.given = given
        self.report.refused |= given.refused

    def warn(self, text: str) -> None:
        """Report and log a warning."""
        self.report.warnings.append(text)
        _log.warning(text)


RUN: ContextVar[IngestionRun | None] = ContextVar("catalog_ingestion_run", default=None)


class ChunkPersistenceTransform(TransformComponent):
    """Turn chunk nodes into the rows that :class:`PersistenceTransform` will publish.

    ``pipeline`` identifies how they were cut and embedded, so that a change is noticed.

    Examples:
        >>> from llama_index.core import Document
        >>> from catalog.core.tokens import CharTokenCounter
        >>> from catalog.ingest.chunking import DocumentChunker
        >>> from catalog.search_v2 import ChunkPersistenceTransform, ChunkSplitter
        >>> split = ChunkSplitter(DocumentChunker(CharTokenCounter()), dataset="notes")
        >>> chunks = split([Document(text="Tea is at four.", doc_id="tea.txt")])
        >>> [node.revision.source_doc_id for node in ChunkPersistenceTransform()(chunks)]
        ['notes:tea.txt']
    """

    pipeline: str = ""

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Give the first chunk of each document its revision."""
        groups: dict[str, list[ChunkNode]] = {}
        for node in nodes:
            if isinstance(node, ChunkNode):
                groups.setdefault(node.source.source_doc_id, []).append(node)
        for group in groups.values():
            group[0].revision = group[0].source.revision(
                [NewChunk(chunk.node_id, chunk.span, chunk.embed_keys) for chunk in group],
                self.pipeline,
                group[0].embedded_by,
                {key: vector for chunk in group for key, vector in chunk.vectors.items()},
            )
        return list(nodes)


class PersistenceTransform(TransformComponent):
    """Publish the documents of the nodes: each source whole, several short ones in a transaction.

    A run replaces everything stored of its sources. Only if all its pages of a source are new
    numbers (``page_label``), they are added to the stored pages. A source that has no text any more
    is deleted.

    Examples:
        >>> from catalog.search_v2 import IngestionPipelineBuilderV2, PersistenceTransform
        >>> pipeline = IngestionPipelineBuilderV2().build_pipeline("handbook")
        >>> last = pipeline.transformations[-1]
        >>> isinstance(last, PersistenceTransform), last.dataset
        (True, 'handbook')
    """

    dataset: str
    _database: Database = PrivateAttr()
    _clock: Callable[[], float] = PrivateAttr()

    def __init__(
        self, database: Database, *, dataset: str, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(dataset=dataset)
        self._database, self._clock = database, clock

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Commit every source; return its nodes as stored. A search sees all of it or nothing."""
        run = RUN.get() or IngestionRun()
        sources: dict[str, list[NewRevision]] = {name: [] for name in run.given.sources}
        for node in nodes:
            if isinstance(node, ChunkNode) and (revision := node.revision) is not None:
                sources.setdefault(revision.file, []).append(revision)
        for name, revisions in list(sources.items()):
            documents = [one.document for one in revisions]
            names = chain.from_iterable((one.path, *one.metadata) for one in documents)
            if (unfit := describe_unfit(name, *names)) is not None:
                run.report.refused[name] = unfit
                del sources[name]
        for group in in_groups(sources.items(), _count_chunks, TOGETHER):
            with self._database.write() as connection:
                self._replace(connection, dict(group), run)
        return self._stored_forms(nodes)

    def _stored_forms(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        """Return the stored nodes as searches return them, with their embeddings and children."""
        made = {node.node_id: node for node in nodes if isinstance(node, ChunkNode)}
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
        now, report = self._clock(), run.report
        stored = parts_of_files(connection, self.dataset, sources)
        gone: list[str] = []
        for name, revisions in sources.items():
            before = stored.get(name, {})
            paths = [one.document.path for one in revisions]
            blank = run.given.blank.get(name, frozenset())
            if not revisions and (
                not before or (blank and blank.isdisjoint(_stored_pages(before)))
            ):
                report.refused[name] = "it has no text"
                continue
            if not _are_new_pages(before, revisions):
                gone += [path for path in before if path not in paths]
                _tell_of_others(run, name, before, revisions)
            report.added += [path for path in paths if path not in before]
            report.replaced += [path for path in paths if path in before]
        report.deleted += gone
        if gone:
            remove_documents(connection, self.dataset, gone, now)
        if any(sources.values()):
            ensure_dataset(connection, self.dataset, now)  # it may have been removed
            publish_all(connection, [one for some in sources.values() for one in some], now)


_SHOWN = 20  # pages in a warning


def _count_chunks(source: tuple[str, Sequence[NewRevision]]) -> int:
    return sum(len(revision.chunks) for revision in source[1])


def _are_new_pages(before: Mapping[str, StoredPart], revisions: Sequence[NewRevision]) -> bool:
    """Return whether all texts have page numbers, and none of the new ones is stored."""
    new = [_pages(revision) for revision in revisions]
    if not (new and all(new) and all(part.pages for part in before.values())):
        return False
    return frozenset().union(*new).isdisjoint(_stored_pages(before))


def _stored_pages(before: Mapping[str, StoredPart]) -> frozenset[str]:
    return frozenset().union(*(part.pages for part in before.values()))


def _tell_of_others(
    run: IngestionRun,
    name: str,
    before: Mapping[str, StoredPart],
    revisions: Sequence[NewRevision],
) -> None:
    """Warn if pages are lost, or if other texts replace all stored ones: both may be wanted.

    One text that replaces another is usual for a file that changed. So only two cases give a
    warning: the same pipeline stored the first text, or many files may have this bare name.
    """
    new = frozenset().union(*map(_pages, revisions))
    if new and (lost := _stored_pages(before) - new):
        pages = ", ".join(sorted(lost, key=lambda page: (len(page), page))[:_SHOWN])
        run.warn(
            f"{name}: the stored pages {pages} are deleted, for this run has only others. Run all "
            "pages of a source together, or only new ones"
        )
        return
    hashes = {part.content_hash for part in before.values()}
    if not before or not hashes.isdisjoint(revision.content_hash for revision in revisions):
        return
    known_by = run.given.known_by.get(name, "id")
    is_unsure = known_by == "name" or (known_by == "address" and name in run.earlier)
    if is_unsure or len(revisions) > 1:
        run.warn(
            f"{name}: all {len(before)} stored texts are replaced by {len(revisions)} others. To "
            "keep both, give each an id of its own (doc_id) or a page_label, or run them together"
        )


def _pages(revision: NewRevision) -> frozenset[str]:
    if label := part_label(revision.document.metadata):
        return frozenset([label])
    places = (chunk.span.locator for chunk in revision.chunks)
    spans = ((at.page, at.page_end or at.page) for at in places if at.page is not None)
    return frozenset(str(page) for first, last in spans for page in range(first, (last or 0) + 1))
