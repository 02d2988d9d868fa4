"""Bringing a dataset in line with its folder, one document at a time.

    list files ─> brake on mass deletion ─> per file: changed? ─> read ─> per document: changed?
        ─> cut ─> embed what the cache lacks (a few documents together)
        ─> publish: one transaction a document ─> note the file in the manifest
    ─> remove what vanished ─> refresh the derived indexes

The old revision answers until the new one commits. Killed anywhere, the next run ends in the
same state: whatever was published is recognised by its hash, whatever was embedded by its key.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.ingestion.pipeline import run_transformations
from llama_index.core.schema import BaseNode

from catalog.core.errors import (
    EmbeddingError,
    EmptyDocumentError,
    InputError,
    MassDeletionError,
    ReadError,
    StoreBusyError,
    TransientReadError,
)
from catalog.core.ids import sha1_hex
from catalog.core.models import ParsedDocument
from catalog.ingest.discovery import Listing, SourceFile, discover
from catalog.ingest.nodes import Source, SourceDocument
from catalog.ingest.readers import ReadFailure, ReadLimits, read_file
from catalog.ingest.readers.limits import DEFAULT_LIMITS
from catalog.ingest.report import Failure, Progress, Silent, SyncReport
from catalog.ingest.transforms import (
    CachedEmbedding,
    ChunkPersistenceTransform,
    ChunkSplitter,
)
from catalog.store import Database, embedding_cache, llm_cache, manifest
from catalog.store.documents import ensure_dataset, note_source, remove
from catalog.store.manifest import Entry, State

# What a defect in a reader or chunker may raise on one odd document: the rest must go on.
DEFECTS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
RACY_SECONDS = 2.0  # a file changed this shortly before it was read may change unseen
BRAKE_FROM = 10  # fewer vanished files than this never stop a run, unless all are gone
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How a run behaves; see :class:`~catalog.core.settings.IngestSettings` for the numbers."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limits: ReadLimits = DEFAULT_LIMITS
    group_chars: int = 64_000
    max_missing_fraction: float = 0.5
    allow_deletions: bool = False
    reread: bool = False
    lock_seconds: float = 30.0


def check_dataset_name(name: str) -> None:
    """Raise :class:`InputError` unless the name is safe in ids, file names and collections."""
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"dataset {name!r}: use 1 to 100 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )


def sync(
    database: Database,
    root: Path,
    dataset: str,
    pipeline: IngestionPipeline,
    *,
    lock: Path,
    options: SyncOptions = SyncOptions(),
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SyncReport:
    """Index what changed under ``root`` (a folder or one file) and forget what vanished.

    Raises :class:`SourceError` for a root that is not there, :class:`MassDeletionError` when
    most files vanished, :class:`StoreBusyError` when another run on the dataset does not end;
    nothing has changed then. A failing file or document is named in the report instead.
    """
    check_dataset_name(dataset)
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=options.lock_seconds):
            run = _Run(database, root, dataset, pipeline, options, progress or Silent(), clock)
            return run.run()
    except Timeout as error:
        raise StoreBusyError(f"another process is indexing {dataset!r}; try again later") from error


@dataclass(slots=True)
class _File:
    """A file being read in this run."""

    source: SourceFile
    paths: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    retry: bool = False
    whole: bool = True


@dataclass(slots=True)
class _Pending:
    """A changed document waiting to be cut, embedded and published with its group."""

    source: Source
    file: _File
    is_new: bool
    is_retry: bool


def _iso(mtime_ns: int) -> str:
    moment = datetime.fromtimestamp(mtime_ns // 1_000_000_000, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class _Run:
    def __init__(
        self,
        database: Database,
        root: Path,
        dataset: str,
        pipeline: IngestionPipeline,
        options: SyncOptions,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self.database, self.root, self.dataset = database, root, dataset
        self.top: Path | None = None
        self.options, self.progress, self.clock = options, progress, clock
        steps = list(pipeline.transformations)
        at = next(i for i, step in enumerate(steps) if isinstance(step, CachedEmbedding))
        self.cut, self.embed, self.publish = steps[:at], steps[at], steps[at + 1 :]
        staged = next(s for s in self.publish if isinstance(s, ChunkPersistenceTransform))
        self.fingerprint = staged.pipeline
        self.pending: list[_Pending] = []
        self.waiting: list[_File] = []
        self.failed: list[Failure] = []
        self.added = self.updated = self.unchanged = self.removed = self.unfinished = 0

    def run(self) -> SyncReport:
        started = time.monotonic()
        listing = discover(
            self.root,
            include=self.options.include,
            exclude=self.options.exclude,
            limits=self.options.limits,
        )
        self.top = listing.top
        with self.database.read() as connection:
            self.entries = manifest.entries(connection, self.dataset)
            self.known = manifest.known_documents(connection, self.dataset)
            self.incomplete = manifest.incomplete_documents(connection, self.dataset)
        self.begun = set(self.entries)
        self.paths_of: dict[str, set[str]] = defaultdict(set)
        for path, known in self.known.items():
            self.paths_of[known["file"]].add(path)
        self.listed = {file.path for file in listing.files}
        unread = {skipped.path for skipped in listing.skipped}
        vanished = sorted(set(self.entries) - self.listed - unread)
        self._brake(vanished, listing)
        with self.database.write() as connection:
            ensure_dataset(connection, self.dataset, self.clock())
            note_source(
                connection,
                self.dataset,
                str(self.root.resolve()),
                self.options.include,
                self.options.exclude,
            )
        self.failed += [Failure(skipped.path, skipped.reason) for skipped in listing.skipped]
        self.progress.start(sum(file.size for file in listing.files))
        for file in listing.files:
            self._file(file)
        self._flush()
        self._forget(vanished)
        return self._report(time.monotonic() - started)

    def _brake(self, vanished: Sequence[str], listing: Listing) -> None:
        if self.options.allow_deletions or not vanished:
            return
        share = len(vanished) / len(self.entries)
        all_gone = not listing.files
        if all_gone or (len(vanished) >= BRAKE_FROM and share > self.options.max_missing_fraction):
            raise MassDeletionError(
                f"{len(vanished)} of {len(self.entries)} indexed files are gone from {self.root}; "
                "if that is meant, run again with --allow-deletions"
            )

    def _file(self, source: SourceFile) -> None:
        if self._is_unchanged(source):
            self.unchanged += len(self.paths_of[source.path])
            reason = self.entries[source.path].reason
            if reason is not None:
                self.failed.append(Failure(source.path, reason))
            self.progress.advance(source.size, source.path)
            return
        file = _File(source)
        self.progress.advance(0, source.path)
        for document in self._read(file):
            self._document(document, file)
        self.waiting.append(file)
        self.progress.advance(source.size, source.path)

    def _read(self, file: _File) -> Iterator[ParsedDocument]:
        """The documents of a file; what cannot be read is noted on the file."""
        source, limits = file.source, self.options.limits
        try:
            for item in read_file(source.absolute, source.path, root=self.top, limits=limits):
                if isinstance(item, ReadFailure):
                    file.failures.append(Failure(item.path, item.reason))
                else:
                    yield item
        except EmptyDocumentError as error:
            file.failures.append(Failure(source.path, str(error)))
        except ReadError as error:
            file.failures.append(Failure(source.path, str(error)))
            file.retry, file.whole = isinstance(error, TransientReadError), False
        except DEFECTS as error:
            why = f"the reader failed: {type(error).__name__}: {error}"
            file.failures.append(Failure(source.path, why))
            file.retry, file.whole = True, False

    def _is_unchanged(self, source: SourceFile) -> bool:
        seen = self.entries.get(source.path)
        return (
            seen is not None
            and not self.options.reread
            and seen.state == "done"
            and seen.pipeline == self._read_as(seen.reason)
            and (seen.size, seen.mtime_ns) == (source.size, source.mtime_ns)
            and seen.seen_at - source.mtime_ns / 1e9 > RACY_SECONDS
        )

    def _read_as(self, reason: str | None) -> str:
        """How a file was read; one that could not be is read again under other limits."""
        if reason is None:
            return self.fingerprint
        return f"{self.fingerprint}:{sha1_hex(repr(self.options.limits))[:8]}"

    def _document(self, parsed: ParsedDocument, file: _File) -> None:
        known = self.known.get(parsed.path)
        owner = known["file"] if known is not None else file.source.path
        if owner != file.source.path and owner in self.listed:
            reason = f"the path is taken by a document of {owner}"
            file.failures.append(Failure(parsed.path, reason))
            return
        file.paths.add(parsed.path)
        modified = _iso(file.source.mtime_ns) if parsed.source_type != "record" else None
        source = Source(self.dataset, file.source.path, parsed, modified)
        is_same = (
            known is not None
            and owner == file.source.path
            and known["content_hash"] == source.content_hash
            and known["pipeline"] == self.fingerprint
        )
        is_retry = is_same and parsed.path in self.incomplete
        if is_same and not is_retry and not self.options.reread:
            self.unchanged += 1
            return
        self.pending.append(_Pending(source, file, is_new=known is None, is_retry=is_retry))
        if sum(len(one.source.parsed.text) for one in self.pending) >= self.options.group_chars:
            self._flush()

    def _flush(self) -> None:
        pending, self.pending = self.pending, []
        cut = [(one, nodes) for one in pending if (nodes := self._cut(one)) is not None]
        reason = self._embed([node for _, nodes in cut for node in nodes])
        self._note_begun(one.file.source for one, _ in cut)
        for one, nodes in cut:
            if reason is None and nodes:
                self._publish(one, nodes)
            else:
                why = reason or "it holds no text to search"
                one.file.failures.append(Failure(one.source.parsed.path, why))
                one.file.retry = one.file.retry or reason is not None
                self.unfinished += reason is not None
        self._note_files()

    def _cut(self, one: _Pending) -> list[BaseNode] | None:
        try:
            return list(run_transformations([SourceDocument.of(one.source)], self.cut))
        except DEFECTS as error:
            why = f"it cannot be cut: {type(error).__name__}: {error}"
            one.file.failures.append(Failure(one.source.parsed.path, why))
            one.file.retry = True
            return None

    def _embed(self, nodes: list[BaseNode]) -> str | None:
        try:
            if nodes:
                self.embed(nodes)
        except EmbeddingError as error:
            return str(error)
        return None

    def _publish(self, one: _Pending, nodes: list[BaseNode]) -> None:
        assert isinstance(self.embed, CachedEmbedding)
        path, failures = one.source.parsed.path, self.embed.failures
        bad = [node.node_id for node in nodes if node.node_id in failures]
        if bad:
            why = f"{len(bad)} of {len(nodes)} chunks not embedded: {failures[bad[0]]}"
            one.file.failures.append(Failure(path, why))
            one.file.retry = True
        if one.is_retry and set(bad) == self.incomplete[path]:
            return  # what is published is already all there is
        run_transformations(nodes, self.publish)
        if one.is_new:
            self.added += 1
        else:
            self.updated += 1

    def _note_begun(self, sources: Iterable[SourceFile]) -> None:
        """Note new files as begun before a document of theirs is published.

        A run that ends before they are done would else leave documents of files nobody remembers:
        were the files deleted then, the documents would stay.
        """
        new = {file.path: file for file in sources if file.path not in self.begun}
        if not new:
            return
        with self.database.write() as connection:
            for path, file in new.items():
                begun = Entry(
                    path, file.size, file.mtime_ns, self.fingerprint, "partial", None, self.clock()
                )
                manifest.record(connection, self.dataset, begun)
        self.begun.update(new)

    def _note_files(self) -> None:
        """Note in the manifest the files whose documents are all published by now."""
        files, self.waiting = self.waiting, []
        for file in files:
            self.failed += file.failures
            state: State = "done"
            if file.failures:
                state = "partial" if file.retry and file.paths else "failed"
            gone = self.paths_of[file.source.path] - file.paths if file.whole else set()
            self._note(file, "done" if state == "failed" and not file.retry else state, gone)

    def _note(self, file: _File, state: State, gone: set[str]) -> None:
        reason = file.failures[0].reason if file.failures else None
        entry = Entry(
            file=file.source.path,
            size=file.source.size,
            mtime_ns=file.source.mtime_ns,
            pipeline=self._read_as(reason),
            state=state,
            reason=reason,
            seen_at=self.clock(),
        )
        with self.database.write() as connection:
            self.removed += remove(connection, self.dataset, sorted(gone), self.clock())
            manifest.record(connection, self.dataset, entry)

    def _forget(self, vanished: Sequence[str]) -> None:
        files = set(vanished)
        paths = sorted(path for file in files for path in self.paths_of[file])
        with self.database.write() as connection:
            self.removed += remove(connection, self.dataset, paths, self.clock())
            manifest.forget(connection, self.dataset, files)
            if self.removed or self.updated:
                embedding_cache.purge_unused(connection)
                llm_cache.purge(connection, before=0.0)  # of any age: only searches know a lifetime

    def _notes(self) -> tuple[str, ...]:
        splitters = [step for step in self.cut if isinstance(step, ChunkSplitter)]
        fallbacks = {k: v for splitter in splitters for k, v in splitter.fallbacks.items()}
        if not fallbacks:
            return ()
        first = next(iter(fallbacks.values()))
        return (f"{len(fallbacks)} documents measured as 4 characters a token: {first}",)

    def _report(self, seconds: float) -> SyncReport:
        assert isinstance(self.embed, CachedEmbedding)
        with self.database.read() as connection:
            totals = manifest.totals(connection, self.dataset)
            incomplete = manifest.incomplete_documents(connection, self.dataset)
        return SyncReport(
            documents=totals.documents,
            chunks=totals.chunks,
            embedded=self.embed.computed,
            reused=max(0, totals.vectors - self.embed.computed),
            failed=tuple(self.failed),
            seconds=seconds,
            added=self.added,
            updated=self.updated,
            unchanged=self.unchanged,
            removed=self.removed,
            incomplete=len(incomplete),
            unfinished=self.unfinished,
            notes=self._notes(),
        )
