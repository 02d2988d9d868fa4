"""Fill datasets from ``chunks.jsonl``: several whole documents in a transaction, unchanged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError, EmbeddingMismatchError, InputError, SourceError
from catalog.core.files import describe_os_error
from catalog.core.ids import check_dataset_name
from catalog.core.portable_lines import (
    ChunkLine,
    DatasetLine,
    DocumentLine,
    EndLine,
    FileLine,
    HeaderLine,
    Line,
    ModelLine,
    read_line,
)
from catalog.core.settings.loading import with_rag
from catalog.core.settings.shaping import default_shaping
from catalog.ingest.sync_report import Failure, Progress, Silent
from catalog.library.exporting import portable_file
from catalog.library.indexing import Indexer, complete_dataset
from catalog.store import Database, embedding_cache, manifest
from catalog.store.chunks import find_root
from catalog.store.embedding_cache import StoredModel, count_waiting, require_model
from catalog.store.manifest import (
    DatasetSettings,
    ManifestEntry,
    note_dataset_settings,
    read_dataset_settings,
)
from catalog.store.portable_rows import check_inside, find_files, find_stored, to_revision
from catalog.store.revisions import NewRevision, ensure_dataset, publish_all, set_source

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.library.library import Library


_TOGETHER = 100  # passages in one transaction: more would block other writers for long
_FILES = 1_000  # noted in one transaction
_OUTCOMES = ("added", "replaced", "unchanged")


class ImportedDocuments:
    """Publish documents of one dataset after another; the caller holds the dataset's lock.

    ``counts`` has the documents ``added``, ``replaced`` and ``unchanged``, and their ``chunks``.
    While documents are published, their files are marked to be read by the next update, which
    repairs the dataset if the import ends early.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dataset = ""
        self.counts: Counter[str] = Counter()
        self._group: list[NewRevision] = []
        self._files: list[FileLine] = []
        self._begun: set[str] = set()  # files without an entry before this import
        self._deprived: set[str] = set()  # files that lost a document to another file

    def add(self, revision: NewRevision) -> None:
        """Add a document of the dataset; of two with the same id the later one is kept."""
        self._dataset = revision.dataset
        if any(one.source_doc_id == revision.source_doc_id for one in self._group):
            self.publish()
        self._group.append(revision)
        if sum(len(one.chunks) for one in self._group) >= _TOGETHER:
            self.publish()

    def add_file(self, line: FileLine) -> None:
        """Add the line of a file of the dataset."""
        self._dataset = line.dataset
        self._files.append(line)
        if len(self._files) >= _FILES:
            self.note_files()

    def publish(self) -> None:
        """Store the documents of the group that are not stored yet."""
        group, self._group = self._group, []
        if not group:
            return
        now = time.time()
        with self._database.write() as connection:
            before = find_files(connection, group)
            same = find_stored(connection, group)
            new = [it for it in group if it.source_doc_id not in same]
            self._note_unread(connection, new, before)
            publish_all(connection, new, now)
            for one in (it for it in group if it.source_doc_id in same and it.vectors):
                embedding_cache.save(
                    connection,
                    one.vectors,
                    fingerprint=one.embedded_by,
                    side="document",
                    now=now,
                )
        for one in group:
            name = one.source_doc_id
            outcome = "unchanged" if name in same else "replaced" if name in before else "added"
            self.counts[outcome] += 1
            self.counts["chunks"] += len(one.chunks)

    def note_files(self) -> None:
        """Publish the group, and record in the manifest how the files were read."""
        self.publish()
        files, self._files = {line.file: line for line in self._files}, []
        if not files:
            return
        kept = [line.model_dump(exclude={"kind", "dataset"}) for line in files.values()]
        entries = [ManifestEntry(**one) for one in kept]
        with self._database.write() as connection:
            manifest.record(connection, self._dataset, *entries)
            manifest.note_unread(connection, self._dataset, files.keys() & self._deprived)
        self._begun -= files.keys()

    def leave_dataset(self) -> None:
        """Record the files of the dataset; drop the entries of files that have no line."""
        self.note_files()
        if self._begun:
            with self._database.write() as connection:
                manifest.forget(connection, self._dataset, self._begun)
        self._begun.clear()
        self._deprived.clear()

    def _note_unread(
        self, connection: Connection, new: Sequence[NewRevision], before: Mapping[str, str]
    ) -> None:
        """Have the next update read the present and the former files of these documents.

        The line of a file later marks it as read. A file that lost a document to another one may
        still contain it, so it stays marked.
        """
        lost = {file for it in new if (file := before.get(it.source_doc_id, it.file)) != it.file}
        files = lost | {it.file for it in new}
        self._begun |= manifest.note_unread(connection, self._dataset, files)
        self._deprived |= lost


class _LineError(InputError):
    """An error with the line at which a file cannot be imported."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The counts of an import.

    ``added`` documents are new, ``replaced`` ones had another content, ``unchanged`` ones were
    equal to the file's. ``waiting`` passages have no vector and are found by words.
    """

    datasets: tuple[str, ...]
    added: int
    replaced: int
    unchanged: int
    chunks: int
    embedded: int
    waiting: int
    failed: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


def import_chunks(
    library: Library,
    source: Path,
    *,
    datasets: Sequence[str] = (),
    root: Path | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Import the named datasets, or all, from a file or a folder's ``chunks.jsonl``.

    Documents in the file replace stored ones with the same path; the rest stay. If run again, it
    continues where it ended and adds nothing twice. Passages without a vector in the file are
    embedded. ``root`` is the folder for updates of the datasets. Without it, the folder in the file
    is used if one of the dataset's files is there unchanged. Raises :class:`InputError` with the
    line for a damaged, invalid or newer record; then all documents before it are imported
    completely. Raises :class:`EmbeddingMismatchError` for vectors of another model than the
    store's, and the errors of ``Indexer.build``.
    """
    file = portable_file(source)
    progress = progress or Silent()
    with ExitStack() as locks:
        run = _ImportRun(library, file, datasets, root, progress, locks)
        run.read()
        return run.finish()


class _ImportRun:
    """One pass over a file, which publishes documents in groups."""

    def __init__(
        self,
        library: Library,
        file: Path,
        datasets: Sequence[str],
        root: Path | None,
        progress: Progress,
        locks: ExitStack,
    ) -> None:
        self._library, self._file, self._wanted, self._root = library, file, datasets, root
        self._progress, self._locks, self._held = progress, locks, ""
        self._model: ModelLine | None = None
        self._opened: list[str] = []  # datasets that are imported
        self._known: set[str] = set()  # datasets named in the file so far
        self._documents = ImportedDocuments(library.database)
        self._unproven: dict[str, DatasetLine] = {}  # whose folders were not seen here yet
        self._since_header: Counter[str] = Counter()
        self._notes: list[str] = []
        self._is_ended = True
        self._number = 0  # of the line that was read last

    def read(self) -> None:
        """Import every line, in order; an error names its line, and all before it are imported."""
        lines = self._read_lines()
        try:
            for number, line in lines:
                with self._named(number):
                    self._take(line, lines)
            if self._model is None:
                raise InputError(f"{self._file} is empty: it lacks the header of 'catalog export'")
            with self._named(self._number):
                self._require_end()
            self._documents.leave_dataset()
        finally:
            self._documents.note_files()
        for name in self._wanted:
            if name not in self._opened:
                known = ", ".join(sorted(self._known)) or "none"
                raise InputError(f"{self._file} has no dataset {name!r}; datasets: {known}")

    def finish(self) -> ImportReport:
        """Embed waiting passages, update the datasets' indexes, and return the report."""
        embedded = waiting = 0
        failed: tuple[Failure, ...] = ()
        for name, line in self._unproven.items():
            self._notes.append(
                f"{name} has no folder for updates, because {line.root} does not have its files "
                f"unchanged; set one with 'catalog index build FOLDER --dataset {name}' or --root"
            )
        for dataset in self._opened:
            self._hold(dataset)
            report = complete_dataset(self._library, dataset, self._progress)
            embedded += report.embedded
            failed += report.failed
            self._notes += report.notes
            with self._library.database.read() as connection:
                waiting += count_waiting(connection, dataset)[1]
        return ImportReport(
            tuple(self._opened),
            self._documents.counts["added"],
            self._documents.counts["replaced"],
            self._documents.counts["unchanged"],
            self._documents.counts["chunks"],
            embedded,
            waiting,
            failed,
            tuple(dict.fromkeys(self._notes)),  # several datasets may have the same
        )

    @contextmanager
    def _named(self, number: int) -> Iterator[None]:
        """Name the line in an error that does not name one yet."""
        try:
            yield
        except _LineError:
            raise
        except InputError as error:
            raise _LineError(f"{self._file}, line {number}: {error}") from None

    def _read_lines(self) -> Iterator[tuple[int, Line]]:
        """Yield the lines that are not blank with their numbers; report bytes as progress."""
        most = 2 * self._library.settings.rag_v2.ingest.max_document_bytes
        try:
            with self._file.open("rb") as stream:
                self._progress.start(self._file.stat().st_size, "importing")
                while raw := stream.readline(most + 1):
                    self._number += 1
                    with self._named(self._number):
                        line = _parse(raw, most)
                    if line is not None:
                        yield self._number, line
                    documents = sum(self._documents.counts[name] for name in _OUTCOMES)
                    self._progress.advance(len(raw), "", f"{documents:,} documents")
        except OSError as error:
            raise SourceError(f"cannot read {describe_os_error(self._file, error)}") from error

    def _take(self, line: Line, lines: Iterator[tuple[int, Line]]) -> None:
        if isinstance(line, HeaderLine):
            self._model = self._begin(line)
            return
        if self._model is None:
            raise InputError("the first line is not a header of 'catalog export'")
        match line:
            case DatasetLine():
                self._open(line)
            case DocumentLine():
                self._add(line, lines, self._model)
            case FileLine():
                self._require_told(line.dataset)
                check_inside(line.file)
                if line.dataset in self._opened:
                    self._hold(line.dataset)
                    self._documents.add_file(line)
                    self._prove_root(line)
            case EndLine():
                self._end(line)
            case ChunkLine():
                raise InputError("a passage comes before its document")

    def _begin(self, line: HeaderLine) -> ModelLine:
        """Bind the store to the file's model, or check that it is bound to it; return the model."""
        self._documents.note_files()  # of an earlier header
        model, library = line.model, self._library
        if not line.vectors and library.wanted_model.fingerprint != model.fingerprint:
            raise EmbeddingMismatchError(
                f"{self._file} has no vectors, and its passages were cut for {model.model} "
                f"({model.fingerprint}), not for {library.wanted_model.model}: set "
                "IDX_EMBEDDING__MODEL, or export with --vectors"
            )
        require_model(library.database, StoredModel(**model.model_dump()))
        self._is_ended = False
        self._known.clear()
        self._since_header.clear()
        return model

    def _open(self, line: DatasetLine) -> None:
        """Take the dataset's lock, and create the dataset unless it exists."""
        name = line.dataset
        check_dataset_name(name)
        self._known.add(name)
        if self._wanted and name not in self._wanted:
            return
        self._hold(name)
        if name not in self._opened:
            self._opened.append(name)
        made_with = self._settings(line)
        with self._library.database.write() as connection:
            ensure_dataset(connection, name, time.time())
            root = find_root(connection, name) if self._root is None else str(self._root.resolve())
            if self._root is not None or not root:
                set_source(connection, name, root, line.include, line.exclude)
            if made_with is not None and read_dataset_settings(connection, name) is None:
                note_dataset_settings(connection, name, made_with)
        if root:
            self._notes.append(f"{name} is updated from {root}")
        elif line.root:
            self._unproven[name] = line

    def _prove_root(self, file: FileLine) -> None:
        """Use the folder in the file if one of the dataset's files is there unchanged.

        On another machine a folder of that name may have other files, and an update reads them all.
        """
        line = self._unproven.get(file.dataset)
        if line is None or not _is_unchanged(Path(line.root), file):
            return
        del self._unproven[file.dataset]
        with self._library.database.write() as connection:
            set_source(connection, file.dataset, line.root, line.include, line.exclude)
        self._notes.append(f"{file.dataset} is updated from {line.root}")

    def _hold(self, name: str) -> None:
        """Hold the lock of this dataset only, so that two imports never wait for each other."""
        if name != self._held:
            self._documents.leave_dataset()
            self._locks.close()
            self._held = ""
            self._locks.enter_context(Indexer(self._library).hold(name, self._progress))
            self._held = name
            if name in self._opened:
                self._library.require_dataset(name)  # it may have been removed

    def _settings(self, line: DatasetLine) -> DatasetSettings | None:
        if line.settings is None:
            return None
        unknown = line.settings.keys() - default_shaping().keys()
        if unknown:
            raise InputError(f"settings: {', '.join(sorted(unknown))} does not shape passages")
        try:
            with_rag(self._library.settings, line.settings)
        except ConfigError as error:
            raise InputError(str(error)) from None
        return DatasetSettings(line.preset, line.settings)

    def _add(self, line: DocumentLine, lines: Iterator[tuple[int, Line]], model: ModelLine) -> None:
        """Add a document with the passages that follow it; publish several together."""
        passages = []
        for _ in range(line.chunks):
            _, passage = next(lines, (0, None))
            if not isinstance(passage, ChunkLine):
                raise InputError(
                    f"{line.source_doc_id} has {line.chunks} passages, but some are missing here"
                )
            passages.append(passage)
        self._since_header.update(documents=1, chunks=len(passages))
        self._require_told(line.dataset)
        if line.dataset not in self._opened:
            return
        self._hold(line.dataset)
        self._documents.add(to_revision(line, passages, model))

    def _require_told(self, dataset: str) -> None:
        if dataset not in self._known:
            raise InputError(f"no line before this describes the dataset {dataset!r}")

    def _end(self, line: EndLine) -> None:
        for name in ("documents", "chunks"):
            if (count := self._since_header[name]) != (told := getattr(line, name)):
                raise InputError(
                    f"there are {count} {name}, but the file says {told}: some are missing"
                )
        self._is_ended = True

    def _require_end(self) -> None:
        if not self._is_ended:
            raise InputError("the file ends early; the documents before this are imported")


def _is_unchanged(root: Path, file: FileLine) -> bool:
    """Return whether the file has the recorded size and date; ``False`` for a relative root."""
    try:
        found = ((root if root.is_dir() else root.parent) / file.file).stat()
    except OSError:
        return False
    return root.is_absolute() and (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)


def _parse(raw: bytes, most: int) -> Line | None:
    """Return the line, ``None`` for a blank one."""
    if len(raw) > most:
        raise InputError(
            f"it is longer than {most:,} bytes (IDX_RAG_V2__INGEST__MAX_DOCUMENT_BYTES)"
        )
    return read_line(raw) if raw.strip() else None
