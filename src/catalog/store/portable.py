"""Write datasets as ``chunks.jsonl``, one JSON object a line, and fill datasets from it.

header            what wrote it, and the embedding model of the vectors
└─ dataset        its folder, globs and settings
   ├─ document    its text and metadata, followed by …
   │  └─ chunk    … its passages, in order, each with its windows and perhaps their vectors
   └─ file        a file that was read, and the outcome
end               how many documents and chunks there are since the header

Files may be appended to one another; of two of one document the later one holds.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from sqlalchemy import Connection, delete, func, select

from catalog.core import ids
from catalog.core.documents import ChunkSpan, Locator, ParsedDocument
from catalog.core.errors import (
    DamagedDocumentError,
    EmbeddingMismatchError,
    InputError,
    SourceError,
    StoreError,
)
from catalog.core.files import describe_os_error
from catalog.core.text import format_timecode
from catalog.store import chunks as stored_chunks
from catalog.store import embedding_cache, manifest, publish, schema
from catalog.store.backup import draft_beside
from catalog.store.database import Database
from catalog.store.embedding_cache import StoredModel
from catalog.store.filter_sql import among
from catalog.store.manifest import DatasetSettings, ManifestEntry
from catalog.store.publish import NewChunk, NewRevision

_TOGETHER = 100  # passages in one transaction: more would block other writers for long
_BEGIN = b'{"crc":"'  # then the CRC-32 of the rest: it is checked before anything is parsed
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # not a text about it, whose backslash is doubled
_Name = Annotated[str, Field(min_length=1, max_length=4096)]
_Count = Annotated[int, Field(ge=0)]
_Scalar = bool | int | float | str


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class _Header(_Line):
    kind: Literal["header"] = "header"
    format: Literal["catalog-chunks"] = "catalog-chunks"
    version: Annotated[int, Field(le=1)] = 1  # a higher one is of a later release
    model: StoredModel
    vectors: bool


class _Dataset(_Line):
    kind: Literal["dataset"] = "dataset"
    dataset: _Name
    root: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    made_with: DatasetSettings | None


class _File(_Line):
    kind: Literal["file"] = "file"
    dataset: _Name
    entry: ManifestEntry


class _Document(_Line, extra="ignore"):
    kind: Literal["document"] = "document"
    dataset: _Name
    path: _Name
    file: _Name
    title: str
    file_type: str
    source_type: str
    content_hash: str
    pipeline: str
    metadata: dict[str, _Scalar | tuple[_Scalar, ...]]
    modified: str | None  # its file's time, where the document states none
    dated: float | None  # the timestamp that bounds go by
    chunks: _Count  # the lines of passages that follow
    text: str

    def repeated(self) -> dict[str, Any]:
        """Return what follows from the rest, so that the line can be read by itself."""
        source_doc_id = ids.source_doc_id(self.dataset, self.path)
        return {
            "doc_id": ids.revision_id(source_doc_id, self.content_hash),
            "source_doc_id": source_doc_id,
            "docid": ids.docid(self.content_hash),
        }


class _Chunk(_Line, extra="ignore"):
    kind: Literal["chunk"] = "chunk"
    span: ChunkSpan
    # Keys of what is embedded at once, with base64 of the float32 vector.
    windows: tuple[tuple[Annotated[str, Field(pattern="^[0-9a-f]{40}$")], str | None], ...]

    def repeated(self, document: _Document) -> dict[str, Any]:
        """Return what follows from the document."""
        span, at, doc_id = self.span, self.span.locator, document.repeated()["doc_id"]
        seconds = {"time_start": at.time_start, "time_end": at.time_end}
        times = {k: None if it is None else format_timecode(it) for k, it in seconds.items()}
        lines = {name: getattr(at, name) for name in ("page", "line_start", "line_end")}
        return {
            "chunk_id": ids.chunk_id(doc_id, span.modality, span.start),
            "doc_id": doc_id,
            "index_version": document.pipeline,
            "modality": span.modality,
            "source": {
                "converted_path": document.path,
                "name": document.title,
                "file_type": document.file_type,
                "locator": lines | times,
            },
            "heading_path": list(span.heading_path),
            "text": document.text[span.start : span.end],
        }


class _End(_Line):
    kind: Literal["end"] = "end"
    documents: _Count
    chunks: _Count


_AnyLine = _Header | _Dataset | _File | _Document | _Chunk | _End
_LINE: TypeAdapter[_AnyLine] = TypeAdapter(Annotated[_AnyLine, Field(discriminator="kind")])
_Item = _Dataset | NewRevision | _File


def _write(line: _AnyLine, **repeated: Any) -> bytes:
    rest = b"," + to_json({"kind": line.kind, **repeated, **dict(line)})[1:]
    return b'%s%08x"%s\n' % (_BEGIN, zlib.crc32(rest), rest)


def _parse(raw: bytes) -> _AnyLine:
    form = raw.rstrip(b"\r\n")
    if form.startswith(_BEGIN):
        told, _, rest = form.removeprefix(_BEGIN).partition(b'"')
        if f"{zlib.crc32(rest):08x}".encode() != told:
            raise InputError("it is damaged: its checksum is wrong")
        form = b"{" + rest[1:]
    try:
        line = _LINE.validate_json(form)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}"
        raise InputError(f"it is not a line that 'catalog export' writes: {why}") from None
    if _NUL.search(form):
        raise InputError("it contains a NUL character")
    return line


def portable_file(path: Path) -> Path:
    """Return the file itself, or ``chunks.jsonl`` in a folder."""
    return path / "chunks.jsonl" if path.is_dir() else path


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
    with database.read() as connection:
        for name in datasets:
            stored_chunks.require_dataset(connection, name)
        names = [one.name for one in stored_chunks.list_datasets(connection)]
        names = [name for name in names if not datasets or name in datasets]
        if not names:
            raise InputError("there is no dataset to export: create one with 'catalog index build'")
        if not file.exists() and not to.suffix:
            try:
                to.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make {describe_os_error(to, error)}") from error
            file = to / "chunks.jsonl"
        with draft_beside(file) as draft:
            with draft.open("wb") as stream:
                end = _export(connection, names, stream.write, on_document, vectors=vectors)
                stream.flush()
                os.fsync(stream.fileno())
            size = draft.stat().st_size
            draft.replace(file)
    return ExportReport(str(file), tuple(names), end.documents, end.chunks, size)


def _export(
    connection: Connection,
    names: Sequence[str],
    write: Callable[[bytes], object],
    on_document: Callable[[int, int, str], None],
    *,
    vectors: bool,
) -> _End:
    model = embedding_cache.read_model(connection)
    if model is None:
        raise InputError("nothing to export: nothing was ever indexed in this store")
    write(_write(_Header(model=model, vectors=vectors)))
    table = schema.documents.c
    query = select(table.dataset, table.id, table.path).order_by(table.id)
    rows = connection.execute(query.where(table.dataset.in_(names))).all()
    count = passages = 0
    for stored in stored_chunks.list_datasets(connection):
        if (name := stored.name) not in names:
            continue
        source = {key: getattr(stored, key) for key in ("root", "include", "exclude")}
        made_with = manifest.read_dataset_settings(connection, name)
        write(_write(_Dataset(dataset=name, made_with=made_with, **source)))
        for _, number, path in (row for row in rows if row.dataset == name):
            document = _document(connection, name, path)
            own = list(_chunks(connection, number, name, vectors=vectors))
            document = document.model_copy(update={"chunks": len(own)})
            write(_write(document, **document.repeated()))
            for passage in own:
                write(_write(passage, **passage.repeated(document)))
            count, passages = count + 1, passages + len(own)
            on_document(count, len(rows), path)
        for _, entry in sorted(manifest.entries(connection, name).items()):
            write(_write(_File(dataset=name, entry=entry)))
    write(_write(end := _End(documents=count, chunks=passages)))
    return end


def _document(connection: Connection, dataset: str, path: str) -> _Document:
    stored = stored_chunks.find_by_path(connection, dataset, path)
    if stored is None:
        raise DamagedDocumentError(ids.source_doc_id(dataset, path), "its text")
    of, fields = schema.documents.c, schema.document_fields.c
    modified = select(func.min(fields.text_value)).where(
        fields.document_id == of.id, fields.field == "modified"
    )
    query = select(
        of.file, of.source_type, of.dated, of.pipeline, modified.scalar_subquery().label("modified")
    )
    row = connection.execute(query.where(of.source_doc_id == stored.source_doc_id)).one()
    values = asdict(stored) | dict(row._mapping) | {"chunks": 0}
    if "modified" in stored.metadata:
        values["modified"] = None
    known = {name: value for name, value in values.items() if name in _Document.model_fields}
    return _Document.model_validate(known, strict=False)


def _chunks(
    connection: Connection, number: int, dataset: str, *, vectors: bool
) -> Iterator[_Chunk]:
    of, windows = schema.chunks.c, schema.chunk_windows.c
    query = select(schema.chunks).where(of.document_id == number).order_by(of.position)
    rows = connection.execute(query).all()
    stored = stored_chunks.load_chunks(connection, dataset, [row.seq for row in rows])
    keys: dict[int, list[str]] = {seq: [] for seq in stored}
    query = select(windows.seq, windows.embed_key).where(among(windows.seq, stored))
    for seq, key in connection.execute(query.order_by(windows.window)):
        keys[seq].append(key)
    wanted = {key for some in keys.values() for key in some} if vectors else set()
    told = {
        key: base64.b64encode(embedding_cache.encode(vector)).decode("ascii")
        for key, vector in embedding_cache.load(connection, wanted).items()
    }
    for row in rows:
        chunk = stored[row.seq]
        lines, seconds = (row.line_start, row.line_end), (row.time_start, row.time_end)
        span = ChunkSpan(
            chunk.start_offset,
            chunk.end_offset,
            chunk.heading_path,
            chunk.modality,
            Locator(row.page, None, *lines, *seconds),
            row.tokens or 0,
            chunk.cues,
            chunk.page_breaks,
            chunk.sections,
            chunk.places,
            chunk.context,
            json.loads(row.own_metadata or "{}"),
        )
        yield _Chunk(span=span, windows=tuple((key, told.get(key)) for key in keys[row.seq]))


def _to_revision(line: _Document, passages: Sequence[_Chunk], model: StoredModel) -> NewRevision:
    """Return the revision that a document's lines describe, to publish it unchanged.

    Ids and texts of passages follow from the document; what its lines repeat is not read.
    """
    _check_inside(line.path)
    _check_inside(line.file)
    chunks: dict[str, NewChunk] = {}
    vectors: dict[str, embedding_cache.Vector] = {}
    for passage in passages:
        _check_span(passage.span, len(line.text))
        chunk_id, keys = passage.repeated(line)["chunk_id"], [key for key, _ in passage.windows]
        chunks[chunk_id] = NewChunk(chunk_id, passage.span, tuple(keys))
        vectors.update((key, _read_vector(it, model.dim)) for key, it in passage.windows if it)
    if len(chunks) < len(passages):
        raise InputError(f"{line.path} has the same passage twice")
    names = ("path", "text", "title", "file_type", "source_type", "metadata")
    revision = NewRevision(
        dataset=line.dataset,
        file=line.file,
        document=ParsedDocument(**{name: getattr(line, name) for name in names}),
        content_hash=line.content_hash,
        chunks=tuple(chunks.values()),
        pipeline=line.pipeline,
        modified=line.modified,
        vectors=vectors,
        embedded_by=model.fingerprint,
    )
    # Where the author wrote "created" and a program "modified", the first is the date.
    written = replace(revision.document, written=frozenset({"created"}))
    forms = (revision, replace(revision, document=written))
    return next((one for one in forms if publish.revision_date(one) == line.dated), revision)


def _check_inside(name: str) -> None:
    if name.startswith("/") or ".." in name.replace("\\", "/").split("/"):
        raise InputError(f"{name!r} leads out of the dataset's folder")


def _check_span(span: ChunkSpan, length: int) -> None:
    def fit(*offsets: int) -> bool:
        return all(a <= b for a, b in pairwise((0, *offsets, span.end - span.start)))

    places = span.places
    steps = {len(one) for one in (places.offsets, places.numbers)}
    has_all = len(steps) == 1 and {len(places.lines), len(places.areas)} <= {0, *steps}
    if not (
        0 <= span.start < span.end <= length
        and all(fit(cue.start, cue.end) for cue in span.cues)
        and fit(*span.page_breaks)
        and fit(*places.offsets)
        and has_all
    ):
        raise InputError("a part of the span (cues, page_breaks, places) is outside its text")


def _read_vector(told: str, dim: int) -> embedding_cache.Vector:
    import numpy as np

    try:
        vector = embedding_cache.decode(base64.b64decode(told, validate=True))
    except ValueError:
        vector = np.empty(0, np.float32)
    if len(vector) != dim or not np.isfinite(vector).all() or not vector.any():
        raise InputError(f"a vector has not {dim} finite numbers, as the header says, or is zero")
    return vector


@dataclass
class Import:
    """One pass over a file, which publishes whole documents, several in a transaction, unchanged.

    ``most`` is the greatest length of a line in bytes, ``wanted`` the model of the settings.
    ``hold`` gives a dataset's lock; one is held at a time, so that two imports never wait for each
    other. ``advance`` gets the bytes of each line. ``counts`` has the documents ``added``,
    ``replaced`` and ``unchanged``, and their ``chunks``. While documents are published, their files
    are marked to be read by the next update, which repairs the dataset if the import ends early.
    """

    database: Database
    file: Path
    most: int
    wanted: StoredModel
    summarise: Callable[[str], str]
    hold: Callable[[str], AbstractContextManager[None]]
    advance: Callable[[int], None]
    opened: dict[str, _Dataset] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, datasets: Sequence[str], root: Path | None) -> list[str]:
        """Import the named datasets, or all, and return notes.

        An error names its line; all documents before it are imported.
        """
        notes: list[str] = []
        names = set()
        for name, items in groupby(self._read(), key=attrgetter("dataset")):
            names.add(name)
            if not datasets or name in datasets:
                with self.hold(name):
                    self._fill(name, items)
                    notes += self._settle(self.opened[name], root)
        if missing := set(datasets) - names:
            known = ", ".join(sorted(names)) or "none"
            raise InputError(f"{self.file} has no dataset {min(missing)!r}; datasets: {known}")
        return notes

    def _read(self) -> Iterator[_Item]:
        number = 0

        def parsed() -> Iterator[_AnyLine]:
            nonlocal number
            with self.file.open("rb") as stream:
                while raw := stream.readline(self.most + 1):
                    number += 1
                    if len(raw) > self.most:
                        setting = "IDX_RAG_V2__INGEST__MAX_DOCUMENT_BYTES"
                        raise InputError(f"it is longer than {self.most:,} bytes ({setting})")
                    if raw.strip():
                        yield _parse(raw)
                    self.advance(len(raw))

        try:
            yield from self._checked(parsed())
        except InputError as error:
            raise InputError(f"{self.file}, line {number}: {error}") from None
        except OSError as error:
            raise SourceError(f"cannot read {describe_os_error(self.file, error)}") from error

    def _checked(self, lines: Iterator[_AnyLine]) -> Iterator[_Item]:
        """Yield what the lines say of datasets; bind the store to their model."""
        header: _Header | None = None
        is_ended, known, counts = False, set[str](), Counter[str]()
        for line in lines:
            if isinstance(line, _Header):
                if not line.vectors and self.wanted.fingerprint != line.model.fingerprint:
                    raise EmbeddingMismatchError(
                        f"{self.file} has no vectors, and its passages were cut for "
                        f"{line.model.model}, not for {self.wanted.model}: set "
                        "IDX_EMBEDDING__MODEL, or export with --vectors"
                    )
                embedding_cache.require_model(self.database, line.model)
                header, is_ended, known, counts = line, False, set(), Counter()
            elif header is None:
                raise InputError("the first line is not a header of 'catalog export'")
            elif isinstance(line, _End):
                for name in ("documents", "chunks"):
                    if (count := counts[name]) != (told := getattr(line, name)):
                        raise InputError(f"there are {count} {name}, but the file says {told}")
                is_ended = True
            elif isinstance(line, _Chunk):
                raise InputError("a passage comes before its document")
            elif isinstance(line, _Dataset):
                ids.check_dataset_name(line.dataset)
                known.add(line.dataset)
                yield line
            elif line.dataset not in known:
                raise InputError(f"no line before this describes the dataset {line.dataset!r}")
            elif isinstance(line, _File):
                _check_inside(line.entry.file)
                yield line
            else:
                passages: list[_Chunk] = []
                while len(passages) < line.chunks:
                    if not isinstance(passage := next(lines, None), _Chunk):
                        raise InputError(f"some of {line.chunks} passages are missing here")
                    passages.append(passage)
                counts.update(documents=1, chunks=len(passages))
                revision = _to_revision(line, passages, header.model)
                yield replace(revision, summary=self.summarise(line.text))
        if not is_ended:
            lacks = "last line" if header else "header"
            raise InputError(f"the file ends early: it lacks the {lacks} of 'catalog export'")

    def _fill(self, dataset: str, items: Iterator[_Item]) -> None:
        if dataset in self.opened:  # it may have been removed while another one was held
            with self.database.read() as connection:
                stored_chunks.require_dataset(connection, dataset)
        for _, run in groupby(items, key=type):
            group, files = list[NewRevision](), dict[str, ManifestEntry]()
            try:
                for item in run:
                    if isinstance(item, _Dataset):
                        self._open(item)
                    elif isinstance(item, _File):
                        files[item.entry.file] = item.entry
                    else:
                        group.append(item)
                        if sum(len(one.chunks) for one in group) >= _TOGETHER:
                            full, group = group, []
                            self._publish(dataset, full)
            finally:
                self._publish(dataset, group)
                with self.database.write() as connection:
                    manifest.record(connection, dataset, *files.values())

    def _open(self, line: _Dataset) -> None:
        """Create the dataset unless it exists."""
        self.opened[line.dataset] = line
        with self.database.write() as connection:
            publish.ensure_dataset(connection, line.dataset, time.time())
            has_settings = manifest.read_dataset_settings(connection, line.dataset) is not None
            if line.made_with is not None and not has_settings:
                manifest.note_dataset_settings(connection, line.dataset, line.made_with)

    def _settle(self, line: _Dataset, root: Path | None) -> list[str]:
        """Set the dataset's folder unless it has one, and return a note about it.

        The folder in the file is used if one of its files is there unchanged: on another machine a
        folder of that name may have other files, and an update reads them all.
        """
        name, marks, folder = line.dataset, schema.manifest.c, Path(line.root)
        with self.database.write() as connection:
            # Files that have no line, and that only the import marked: there are none.
            is_mark = (marks.dataset == name) & (marks.seen_at == 0)
            connection.execute(delete(schema.manifest).where(is_mark))
            if root is None and (known := stored_chunks.find_root(connection, name)):
                return [f"{name} is updated from {known}"]
            entries = manifest.entries(connection, name).values()
            if root is not None:
                found = str(root.resolve())
            else:
                inside = folder if folder.is_dir() else folder.parent
                is_there = folder.is_absolute() and any(_is_in(inside, one) for one in entries)
                found = line.root if is_there else ""
            publish.set_source(connection, name, found, line.include, line.exclude)
        return [f"{name} is updated from {found}" if found else f"{name} has no folder for updates"]

    def _publish(self, dataset: str, group: list[NewRevision]) -> None:
        """Store the documents that are not stored yet, and the vectors of all.

        The next update reads the present and the former files of these documents, unless the line
        of a file marks it as read.
        """
        if not group:
            return
        now, of = time.time(), schema.documents.c
        query = select(of.source_doc_id, of.file, of.content_hash, of.pipeline, of.dated)
        is_of = among(of.source_doc_id, [one.source_doc_id for one in group])
        same: list[NewRevision] = []
        new: list[NewRevision] = []
        with self.database.write() as connection:
            before = {name: tuple(rest) for name, *rest in connection.execute(query.where(is_of))}
            for one in group:
                state = (one.file, one.content_hash, one.pipeline, publish.revision_date(one))
                (same if before.get(one.source_doc_id) == state else new).append(one)
            replaced = [before[one.source_doc_id] for one in new if one.source_doc_id in before]
            files = {one.file for one in new} | {file for file, *_ in replaced}
            manifest.note_unread(connection, dataset, files)
            publish.publish_all(connection, new, now)
            for one in same:
                fingerprint = one.embedded_by
                embedding_cache.save(connection, one.vectors, fingerprint=fingerprint, now=now)
        self.counts.update(documents=len(group), chunks=sum(len(one.chunks) for one in group))
        added = len(new) - len(replaced)
        self.counts.update(added=added, replaced=len(replaced), unchanged=len(same))


def _is_in(folder: Path, entry: ManifestEntry) -> bool:
    try:
        found = (folder / entry.file).stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns)
