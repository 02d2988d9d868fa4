"""Write the datasets of a store as ``chunks.jsonl``, and fill datasets from it."""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from catalog.core import ids
from catalog.core.documents import ChunkSpan, Cue, Locator, ParsedDocument
from catalog.core.errors import (
    ConfigError,
    DamagedDocumentError,
    EmbeddingMismatchError,
    InputError,
    SourceError,
    StoreError,
)
from catalog.core.files import describe_os_error
from catalog.core.settings import Settings
from catalog.core.settings.loading import default_shaping, with_rag
from catalog.store import embedding_cache, manifest
from catalog.store.backup import draft_beside
from catalog.store.chunks import (
    StoredDataset,
    find_by_path,
    find_root,
    list_datasets,
    load_chunks,
    parse_places,
    read_headings,
    require_dataset,
)
from catalog.store.database import Database
from catalog.store.embedding_cache import StoredModel, read_model, require_model
from catalog.store.filter_sql import among
from catalog.store.manifest import ManifestEntry
from catalog.store.portable_lines import (
    ChunkLine,
    DatasetLine,
    DocumentLine,
    EndLine,
    FileLine,
    HeaderLine,
    Line,
    check_span,
    chunk_line,
    read_line,
    write_line,
)
from catalog.store.revisions import (
    NewChunk,
    NewRevision,
    ensure_dataset,
    publish_all,
    revision_date,
    set_source,
)
from catalog.store.schema import chunk_windows, chunks, document_fields, documents

if TYPE_CHECKING:
    from catalog.store.embedding_cache import Vector

FILE_NAME = "chunks.jsonl"
_TOGETHER = 100  # passages in one transaction: more would block other writers for long
_OWN = ("file", "source_type", "dated", "pipeline")  # columns that StoredDocument lacks


def portable_file(path: Path) -> Path:
    """Return the file itself, or ``chunks.jsonl`` in a folder."""
    return path / FILE_NAME if path.is_dir() else path


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The file that was written, and its counts."""

    file: str
    datasets: tuple[str, ...]
    documents: int
    chunks: int
    bytes: int


def export_chunks(
    database: Database,
    to: Path,
    *,
    datasets: Sequence[str] = (),
    vectors: bool = False,
    force: bool = False,
    on_document: Callable[[int, int, str], None] = lambda *_: None,
) -> ExportReport:
    """Write one snapshot of the named datasets, or of all.

    A name without an extension is that of a folder, which is made for ``chunks.jsonl``.
    Only the user can read the file (mode 0600), which appears when it is complete; equal states
    give equal bytes. ``on_document`` gets the number of documents written, that of all, and the
    path of the last. Raises :class:`InputError` if the file exists without ``force``, or if there
    is no dataset to write; :class:`DamagedDocumentError` for a document that changed since it was
    stored; :class:`StoreError` if the file cannot be written.
    """
    file = portable_file(to)
    if file.exists() and not force:
        raise InputError(f"{file} exists: choose another name, or --force to replace it")
    if not to.absolute().parent.is_dir():
        raise InputError(f"there is no folder {to.parent} for {to.name}")
    with database.snapshot(), database.read() as connection:
        for name in datasets:
            require_dataset(connection, name)
        stored = list_datasets(connection)
        chosen = [one for one in stored if not datasets or one.name in datasets]
        if not chosen:
            raise InputError("there is no dataset to export: create one with 'catalog index build'")
        if not file.exists() and not to.suffix:
            try:
                to.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make {describe_os_error(to, error)}") from error
            file = to / FILE_NAME
        with draft_beside(file) as draft:
            with draft.open("wb") as stream:
                for line in _lines(connection, chosen, on_document, vectors=vectors):
                    stream.write(write_line(line))
                stream.flush()
                os.fsync(stream.fileno())
            size = draft.stat().st_size
            draft.replace(file)
    assert isinstance(line, EndLine)
    names = tuple(dataset.name for dataset in chosen)
    return ExportReport(str(file), names, line.documents, line.chunks, size)


def _lines(
    connection: Connection,
    datasets: Sequence[StoredDataset],
    on_document: Callable[[int, int, str], None],
    *,
    vectors: bool,
) -> Iterator[Line]:
    model = read_model(connection)
    if model is None:
        raise InputError("nothing to export: nothing was ever indexed in this store")
    yield HeaderLine(model=model, vectors=vectors)
    names = [dataset.name for dataset in datasets]
    is_of = documents.c.dataset.in_(names)
    total = connection.scalar(select(func.count()).select_from(documents).where(is_of)) or 0
    count = passages = 0
    columns = (documents.c.id, documents.c.path, *(documents.c[name] for name in _OWN))
    for dataset in datasets:
        yield DatasetLine(
            dataset=dataset.name,
            root=dataset.root,
            include=dataset.include,
            exclude=dataset.exclude,
            made_with=manifest.read_dataset_settings(connection, dataset.name),
        )
        query = select(*columns).where(documents.c.dataset == dataset.name)
        for row in connection.execute(query.order_by(documents.c.id)).all():
            document = _document_line(connection, dataset.name, row)
            own = list(_chunk_lines(connection, row.id, document, vectors=vectors))
            yield document.model_copy(update={"chunks": len(own)})
            yield from own
            count, passages = count + 1, passages + len(own)
            on_document(count, total, document.path)
        for _, entry in sorted(manifest.entries(connection, dataset.name).items()):
            yield FileLine(dataset=dataset.name, entry=entry)
    yield EndLine(documents=count, chunks=passages)


def _document_line(connection: Connection, dataset: str, row: Any) -> DocumentLine:
    stored = find_by_path(connection, dataset, row.path)
    if stored is None:
        raise DamagedDocumentError(ids.source_doc_id(dataset, row.path), "its text")
    query = select(func.min(document_fields.c.text_value)).where(
        document_fields.c.document_id == row.id, document_fields.c.field == "modified"
    )
    values = asdict(stored) | {name: getattr(row, name) for name in _OWN}
    values["doc_id"] = values.pop("revision_id")
    values["modified"] = None if "modified" in stored.metadata else connection.scalar(query)
    return DocumentLine.model_validate(values | {"chunks": 0}, strict=False)


def _chunk_lines(
    connection: Connection, document_id: int, line: DocumentLine, *, vectors: bool
) -> Iterator[ChunkLine]:
    is_of = chunks.c.document_id == document_id
    rows = connection.execute(select(chunks).where(is_of).order_by(chunks.c.position)).all()
    load_chunks(connection, line.dataset, [row.seq for row in rows])  # raises for a damaged one
    of_each: dict[int, list[str]] = {}
    windows = select(chunk_windows.c.seq, chunk_windows.c.embed_key).join(chunks).where(is_of)
    for seq, key in connection.execute(windows.order_by(chunk_windows.c.window)):
        of_each.setdefault(seq, []).append(key)
    keys = {key for some in of_each.values() for key in some} if vectors else set()
    known = {
        key: base64.b64encode(embedding_cache.encode(vector)).decode("ascii")
        for key, vector in embedding_cache.load(connection, keys).items()
    }
    for row in rows:
        heading_path, context = read_headings(row.headings)
        span = ChunkSpan(
            row.start_offset,
            row.end_offset,
            heading_path=heading_path,
            modality=row.modality,
            locator=Locator(
                row.page, None, row.line_start, row.line_end, row.time_start, row.time_end
            ),
            tokens=row.tokens or 0,
            cues=tuple(Cue(*cue) for cue in json.loads(row.cues or "[]")),
            page_breaks=tuple(json.loads(row.page_breaks or "[]")),
            sections=tuple(json.loads(row.sections or "[]")),
            places=parse_places(row.places, row.page),
            context=context,
            metadata=json.loads(row.own_metadata or "{}"),
        )
        parts = [(key, known.get(key)) for key in of_each.get(row.seq, ())]
        passage = chunk_line(line, span, parts)
        if (passage.chunk_id, passage.text) != (row.chunk_id, row.text):
            raise DamagedDocumentError(line.source_doc_id, "a passage")
        yield passage


def _to_revision(
    line: DocumentLine, passages: Sequence[ChunkLine], model: StoredModel
) -> NewRevision:
    """Return the revision that a document's lines describe, to publish it unchanged.

    Raises :class:`InputError` if an id does not follow from content and place, a passage does not
    belong to the document, or a vector does not fit the model.
    """
    source_doc_id = ids.source_doc_id(line.dataset, line.path)
    for name, value in {
        "source_doc_id": source_doc_id,
        "doc_id": ids.revision_id(source_doc_id, line.content_hash),
        "docid": ids.docid(line.content_hash),
    }.items():
        if (given := getattr(line, name)) != value:
            raise InputError(f"{name} is {given!r}, but path and content_hash give {value!r}")
    _check_inside(line.path)
    _check_inside(line.file)
    parsed = ParsedDocument(
        path=line.path,
        text=line.text,
        title=line.title,
        file_type=line.file_type,
        source_type=line.source_type,
        metadata=line.metadata,
    )
    new = [_new_chunk(line, passage) for passage in passages]
    if len({chunk.chunk_id for chunk in new}) < len(passages):
        raise InputError(f"{line.source_doc_id} has the same passage twice")
    revision = NewRevision(
        dataset=line.dataset,
        file=line.file,
        document=parsed,
        content_hash=line.content_hash,
        chunks=tuple(new),
        pipeline=line.pipeline,
        modified=line.modified,
        vectors=_read_vectors(passages, model),
        embedded_by=model.fingerprint,
    )
    if revision_date(revision) != line.dated:  # the author wrote created, a program modified
        other = replace(revision, document=replace(parsed, written=frozenset({"created"})))
        return other if revision_date(other) == line.dated else revision
    return revision


def _check_inside(name: str) -> None:
    """Raise :class:`InputError` for a file name that leads out of its dataset's folder."""
    if name.startswith("/") or ".." in name.replace("\\", "/").split("/"):
        raise InputError(f"{name!r} leads out of the dataset's folder")


def _new_chunk(document: DocumentLine, passage: ChunkLine) -> NewChunk:
    check_span(passage.span)
    own = chunk_line(document, passage.span, passage.windows)
    for name in ChunkLine.model_fields:
        if (given := getattr(passage, name)) != (value := getattr(own, name)):
            raise InputError(
                f"{name} of the passage {passage.chunk_id} does not fit its document: "
                f"{given!r:.60} instead of {value!r:.60}"
            )
    return NewChunk(passage.chunk_id, passage.span, tuple(key for key, _ in passage.windows))


def _read_vectors(passages: Sequence[ChunkLine], model: StoredModel) -> Mapping[str, Vector]:
    import numpy as np

    vectors: dict[str, Vector] = {}
    for chunk_id, key, told in (
        (one.chunk_id, *window) for one in passages for window in one.windows
    ):
        if told is None:
            continue
        try:
            blob = base64.b64decode(told, validate=True)
        except (binascii.Error, ValueError):
            blob = b""
        if len(blob) != 4 * model.dim:
            raise InputError(
                f"a vector of the passage {chunk_id} has {len(blob) / 4:g} numbers, but the "
                f"header's model has {model.dim}"
            )
        vector = vectors[key] = embedding_cache.decode(blob)
        if not np.isfinite(vector).all() or not vector.any():
            raise InputError(
                f"a vector of the passage {chunk_id} is zero, or contains NaN or infinity"
            )
    return vectors


class Import:
    """One pass over a file, which publishes whole documents, several in a transaction, unchanged.

    ``counts`` has the documents ``added``, ``replaced`` and ``unchanged``, and their ``chunks``;
    ``opened`` the datasets that are imported. ``hold`` takes a dataset's lock and frees that of the
    one before, so that two imports never wait for each other. While documents are published, their
    files are marked to be read by the next update, which repairs the dataset if the import ends
    early.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        file: Path,
        *,
        datasets: Sequence[str],
        root: Path | None,
        wanted: StoredModel,
        hold: Callable[[str], None],
    ) -> None:
        self._database, self._settings, self._file = database, settings, file
        self._wanted, self._root, self._model_wanted, self._hold = datasets, root, wanted, hold
        self.counts: Counter[str] = Counter()
        self.opened: list[str] = []
        self.notes: list[str] = []
        self._unproven: dict[str, DatasetLine] = {}  # whose folders were not seen here yet
        self._held = ""
        self._model: StoredModel | None = None
        self._known: set[str] = set()  # datasets named in the file so far
        self._since_header: Counter[str] = Counter()
        self._is_ended = True
        self._document: DocumentLine | None = None  # whose passages are read
        self._passages: list[ChunkLine] = []
        self._group: dict[str, NewRevision] = {}
        self._files: dict[str, ManifestEntry] = {}
        self._begun: set[str] = set()  # files without an entry before this import
        self._deprived: set[str] = set()  # files that lost a document to another file

    def read(self) -> Iterator[int]:
        """Import every line, in order, and yield its bytes.

        An error names its line, and all before it are imported.
        """
        most = 2 * self._settings.rag_v2.ingest.max_document_bytes
        number = 0
        try:
            with self._file.open("rb") as stream:
                while raw := stream.readline(most + 1):
                    number += 1
                    self._take(raw, most)
                    yield len(raw)
            self._require_end()
            self._leave_dataset()
        except InputError as error:
            raise InputError(f"{self._file}, line {number}: {error}") from None
        except OSError as error:
            raise SourceError(f"cannot read {describe_os_error(self._file, error)}") from error
        finally:
            self._note_files()
        for name in self._wanted:
            if name not in self.opened:
                known = ", ".join(sorted(self._known)) or "none"
                raise InputError(f"{self._file} has no dataset {name!r}; datasets: {known}")
        self.notes += (
            f"{name} has no folder for updates, because {line.root} does not have its files "
            f"unchanged; set one with 'catalog index build FOLDER --dataset {name}' or --root"
            for name, line in self._unproven.items()
        )

    def hold(self, name: str) -> None:
        """Hold the lock of this dataset only."""
        if name != self._held:
            self._leave_dataset()
            self._held = ""
            self._hold(name)
            self._held = name
            if name in self.opened:  # it may have been removed
                with self._database.read() as connection:
                    require_dataset(connection, name)

    def _take(self, raw: bytes, most: int) -> None:
        if len(raw) > most:
            raise InputError(
                f"it is longer than {most:,} bytes (IDX_RAG_V2__INGEST__MAX_DOCUMENT_BYTES)"
            )
        if not raw.strip():
            return
        line, document = read_line(raw), self._document
        if document is not None and not isinstance(line, ChunkLine):
            raise InputError(
                f"{document.source_doc_id} has {document.chunks} passages, but some are missing "
                "here"
            )
        if isinstance(line, HeaderLine):
            self._begin(line)
            return
        if self._model is None:
            raise InputError("the first line is not a header of 'catalog export'")
        if isinstance(line, DocumentLine | FileLine) and line.dataset not in self._known:
            raise InputError(f"no line before this describes the dataset {line.dataset!r}")
        match line:
            case DatasetLine():
                self._open(line)
            case DocumentLine():
                self._document, self._passages = line, []
                self._add_if_whole(line, self._model)
            case ChunkLine():
                if document is None:
                    raise InputError("a passage comes before its document")
                self._passages.append(line)
                self._add_if_whole(document, self._model)
            case FileLine():
                _check_inside(line.entry.file)
                if line.dataset in self.opened:
                    self.hold(line.dataset)
                    self._files[line.entry.file] = line.entry
                    self._prove_root(line.dataset, line.entry)
            case EndLine():
                for name in ("documents", "chunks"):
                    if (count := self._since_header[name]) != (told := getattr(line, name)):
                        raise InputError(
                            f"there are {count} {name}, but the file says {told}: some are missing"
                        )
                self._is_ended = True

    def _require_end(self) -> None:
        if self._model is None:
            raise InputError("it lacks the header of 'catalog export'")
        if not self._is_ended:
            raise InputError("the file ends early; the documents before this are imported")

    def _begin(self, line: HeaderLine) -> None:
        """Bind the store to the file's model, or check that it is bound to it."""
        self._note_files()  # of an earlier header
        model, wanted = line.model, self._model_wanted
        if not line.vectors and wanted.fingerprint != model.fingerprint:
            raise EmbeddingMismatchError(
                f"{self._file} has no vectors, and its passages were cut for {model.model} "
                f"({model.fingerprint}), not for {wanted.model}: set IDX_EMBEDDING__MODEL, or "
                "export with --vectors"
            )
        require_model(self._database, model)
        self._model, self._is_ended = model, False
        self._known.clear()
        self._since_header.clear()

    def _open(self, line: DatasetLine) -> None:
        """Take the dataset's lock, and create the dataset unless it exists."""
        name = line.dataset
        ids.check_dataset_name(name)
        self._known.add(name)
        if self._wanted and name not in self._wanted:
            return
        self.hold(name)
        if name not in self.opened:
            self.opened.append(name)
        made = line.made_with
        if made is not None:
            self._check_settings(made.values)
        with self._database.write() as connection:
            ensure_dataset(connection, name, time.time())
            root = find_root(connection, name) if self._root is None else str(self._root.resolve())
            if self._root is not None or not root:
                set_source(connection, name, root, line.include, line.exclude)
            if made is not None and manifest.read_dataset_settings(connection, name) is None:
                manifest.note_dataset_settings(connection, name, made)
        if root:
            self.notes.append(f"{name} is updated from {root}")
        elif line.root:
            self._unproven[name] = line

    def _check_settings(self, values: Mapping[str, Any]) -> None:
        if unknown := values.keys() - default_shaping().keys():
            raise InputError(f"settings: {', '.join(sorted(unknown))} does not shape passages")
        try:
            with_rag(self._settings, values)
        except ConfigError as error:
            raise InputError(str(error)) from None

    def _prove_root(self, dataset: str, entry: ManifestEntry) -> None:
        """Use the folder in the file if one of the dataset's files is there unchanged.

        On another machine a folder of that name may have other files, and an update reads them all.
        """
        line = self._unproven.get(dataset)
        if line is None or not (root := Path(line.root)).is_absolute():
            return
        try:
            found = ((root if root.is_dir() else root.parent) / entry.file).stat()
        except OSError:
            return
        if (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns):
            del self._unproven[dataset]
            with self._database.write() as connection:
                set_source(connection, dataset, line.root, line.include, line.exclude)
            self.notes.append(f"{dataset} is updated from {line.root}")

    def _add_if_whole(self, line: DocumentLine, model: StoredModel) -> None:
        """Add the document once all its passages are read; publish several together."""
        passages = self._passages
        if len(passages) < line.chunks:
            return
        self._document = None
        self._since_header.update(documents=1, chunks=len(passages))
        if line.dataset not in self.opened:
            return
        self.hold(line.dataset)
        if line.source_doc_id in self._group:
            self._publish()
        self._group[line.source_doc_id] = _to_revision(line, passages, model)
        if sum(len(one.chunks) for one in self._group.values()) >= _TOGETHER:
            self._publish()

    def _publish(self) -> None:
        """Store the documents of the group that are not stored yet.

        The next update reads the present and the former files of these documents. The line of a
        file later marks it as read; a file that lost a document to another one stays marked,
        because it may still contain it.
        """
        group, self._group = self._group, {}
        if not group:
            return
        now = time.time()
        names = ("source_doc_id", "file", "content_hash", "pipeline", "dated")
        query = select(*(documents.c[name] for name in names))
        query = query.where(among(documents.c.source_doc_id, group))
        with self._database.write() as connection:
            before = {name: tuple(rest) for name, *rest in connection.execute(query)}
            same = {
                name
                for name, one in group.items()
                if before.get(name)
                == (one.file, one.content_hash, one.pipeline, revision_date(one))
            }
            new = [one for name, one in group.items() if name not in same]
            lost = {before[one.source_doc_id][0] for one in new if one.source_doc_id in before}
            lost -= {one.file for one in new}
            files = lost | {one.file for one in new}
            self._begun |= manifest.note_unread(connection, self._held, files)
            self._deprived |= lost
            publish_all(connection, new, now)
            for one in (group[name] for name in same if group[name].vectors):
                fingerprint = one.embedded_by
                embedding_cache.save(connection, one.vectors, fingerprint=fingerprint, now=now)
        for name, one in group.items():
            outcome = "unchanged" if name in same else "replaced" if name in before else "added"
            self.counts.update({outcome: 1, "documents": 1, "chunks": len(one.chunks)})

    def _note_files(self) -> None:
        """Publish the group, and record in the manifest how the files were read."""
        self._publish()
        files, self._files = self._files, {}
        if not files:
            return
        with self._database.write() as connection:
            manifest.record(connection, self._held, *files.values())
            manifest.note_unread(connection, self._held, files.keys() & self._deprived)
        self._begun -= files.keys()

    def _leave_dataset(self) -> None:
        """Record the files of the dataset; drop the entries of files that have no line."""
        self._note_files()
        if self._begun:
            with self._database.write() as connection:
                manifest.forget(connection, self._held, self._begun)
        self._begun.clear()
        self._deprived.clear()
