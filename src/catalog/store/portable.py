"""Write datasets as ``chunks.jsonl``, one JSON object a line, and fill datasets from it.

header            what wrote it, and the embedding model of the vectors
└─ dataset        its folder, globs and settings
   ├─ document    its text and metadata, followed by …
   │  └─ chunk    … its passages, in order, each with its windows and perhaps their vectors
   └─ file        a file that was read, and the outcome
end               how many documents and chunks there are
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
from catalog.store.statistics import count_totals

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
    if _NUL.search(form):
        raise InputError("it contains a NUL character")
    try:
        return _LINE.validate_json(form)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        if first["type"].startswith("union_tag"):
            why = "it has no 'kind' of those that export writes"
        raise InputError(f"it is not a line that 'catalog export' writes: {why}") from None


def portable_file(path: Path) -> Path:
    """Return the file itself, or ``chunks.jsonl`` in a folder."""
    return path / "chunks.jsonl" if path.is_dir() else path


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The file that was written, and its counts; files of a recording are one document."""

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
    file, counts, of = portable_file(to), Counter[str](), schema.documents.c
    if file.exists() and not force:
        raise InputError(f"{file} exists: choose another name, or --force to replace it")
    if not to.absolute().parent.is_dir():
        raise InputError(f"there is no folder {to.parent} for {to.name}")
    with database.read() as connection:
        for name in datasets:
            stored_chunks.require_dataset(connection, name)
        known = stored_chunks.list_dataset_names(connection)
        if not (names := [name for name in known if not datasets or name in datasets]):
            raise InputError("there is no dataset to export: create one with 'catalog index build'")
        if not file.exists() and not to.suffix:
            try:
                to.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make {describe_os_error(to, error)}") from error
            file = to / "chunks.jsonl"
        total = connection.scalar(select(func.count()).where(of.dataset.in_(names))) or 0
        whole = sum(count_totals(connection, one, by_note=True).documents for one in names)
        with draft_beside(file) as draft:
            with draft.open("wb") as stream:
                for line, repeated in _lines(connection, names, vectors=vectors):
                    stream.write(_write(line, **repeated))
                    counts[line.kind] += 1
                    if isinstance(line, _Document):
                        on_document(counts["document"], total, line.path)
                end = _End(documents=counts["document"], chunks=counts["chunk"])
                stream.write(_write(end))
                stream.flush()
                os.fsync(stream.fileno())
            size = draft.stat().st_size
            draft.replace(file)
    return ExportReport(str(file), tuple(names), whole, end.chunks, size)


def _lines(
    connection: Connection, names: Sequence[str], *, vectors: bool
) -> Iterator[tuple[_AnyLine, dict[str, Any]]]:
    """Yield the lines of the datasets, each with what it repeats."""
    if (model := embedding_cache.read_model(connection)) is None:
        raise InputError("nothing to export: nothing was ever indexed in this store")
    yield _Header(model=model, vectors=vectors), {}
    of, fields = schema.documents.c, schema.document_fields.c
    is_modified = (fields.document_id == of.id) & (fields.field == "modified")
    modified = select(func.min(fields.text_value)).where(is_modified).scalar_subquery()
    columns = (of.id, of.path, of.file, of.source_type, of.dated, of.pipeline)
    query = select(*columns, modified.label("modified")).order_by(of.id)
    for source in stored_chunks.list_datasets(connection):
        if (name := source.name) not in names:
            continue
        kept = {key: getattr(source, key) for key in ("root", "include", "exclude")}
        made_with = manifest.read_dataset_settings(connection, name)
        yield _Dataset(dataset=name, made_with=made_with, **kept), {}
        for row in connection.execute(query.where(of.dataset == name)).all():
            stored = stored_chunks.find_by_path(connection, name, row.path)
            if stored is None:
                raise DamagedDocumentError(ids.source_doc_id(name, row.path), "its text")
            passages = list(_chunks(connection, row.id, name, vectors=vectors))
            values = asdict(stored) | dict(row._mapping) | {"chunks": len(passages)}
            if "modified" in stored.metadata:
                values["modified"] = None
            document = _Document.model_validate(values, strict=False)
            yield document, document.repeated()
            yield from ((one, one.repeated(document)) for one in passages)
        for _, entry in sorted(manifest.entries(connection, name).items()):
            yield _File(dataset=name, entry=entry), {}


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
        chunk_id, keys = (
            passage.repeated(line)["chunk_id"],
            tuple(key for key, _ in passage.windows),
        )
        chunks[chunk_id] = NewChunk(chunk_id, passage.span, keys)
        vectors.update((key, _read_vector(it, model.dim)) for key, it in passage.windows if it)
    if len(chunks) < len(passages):
        raise InputError(f"{line.path} has the same passage twice")
    names = ("path", "text", "title", "file_type", "source_type", "metadata")
    document = ParsedDocument(**{name: getattr(line, name) for name in names})
    made = (line.content_hash, tuple(chunks.values()), line.pipeline, line.modified, vectors)
    revision = NewRevision(line.dataset, line.file, document, *made, model.fingerprint)
    if publish.revision_date(revision) != line.dated:  # a program wrote "modified"
        revision = replace(revision, document=replace(document, written=frozenset({"created"})))
    return revision


def _check_inside(name: str) -> None:
    if name.startswith("/") or ".." in name.replace("\\", "/").split("/"):
        raise InputError(f"{name!r} leads out of the dataset's folder")


def _check_span(span: ChunkSpan, length: int) -> None:
    places, size = span.places, span.end - span.start
    cues = [(cue.start, cue.end) for cue in span.cues]
    runs = [*cues, span.page_breaks, places.offsets]
    are_inside = all(a <= b for run in runs for a, b in pairwise((0, *run, size)))
    count = len(places.numbers)
    is_map = len(places.offsets) == count and {len(places.lines), len(places.areas)} <= {0, count}
    if not (0 <= span.start < span.end <= length and are_inside and is_map):
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
    other. ``advance`` gets the bytes of each line. While documents are published, their files are
    marked to be read by the next update, which repairs the dataset if the import ends early.
    """

    database: Database
    file: Path
    most: int
    wanted: StoredModel
    summarise: Callable[[str], str]
    hold: Callable[[str], AbstractContextManager[None]]
    advance: Callable[[int], None]
    opened: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    line: int = 0  # the last one read

    def run(self, datasets: Sequence[str], root: Path | None) -> list[str]:
        """Import the named datasets, or all, and return notes.

        An error names its line; all documents before it are imported.
        """
        notes, names = list[str](), set[str]()
        try:
            for name, items in groupby(self._read(), key=attrgetter("dataset")):
                names.add(name)
                if not datasets or name in datasets:
                    with self.hold(name):
                        notes.append(self._fill(items, root))
        except InputError as error:
            raise InputError(f"{self.file}, line {self.line}: {error}") from None
        if missing := set(datasets) - names:
            known = ", ".join(sorted(names)) or "none"
            raise InputError(f"{self.file} has no dataset {min(missing)!r}; datasets: {known}")
        return notes

    def _lines(self) -> Iterator[_AnyLine]:
        try:
            with self.file.open("rb") as stream:
                while raw := stream.readline(self.most + 1):
                    self.line += 1
                    if len(raw) > self.most:
                        setting = "IDX_RAG_V2__INGEST__MAX_DOCUMENT_BYTES"
                        raise InputError(f"it is longer than {self.most:,} bytes ({setting})")
                    if raw.strip():
                        yield _parse(raw)
                    self.advance(len(raw))
        except OSError as error:
            raise SourceError(f"cannot read {describe_os_error(self.file, error)}") from error

    def _read(self) -> Iterator[_Dataset | NewRevision | _File]:
        """Yield what the lines say of datasets; bind the store to their model."""
        lines = self._lines()
        if not isinstance(header := next(lines, None), _Header):
            raise InputError("the first line is not a header of 'catalog export'")
        if not header.vectors and self.wanted.fingerprint != header.model.fingerprint:
            raise EmbeddingMismatchError(
                f"{self.file} has no vectors, and its passages were cut for {header.model.model}, "
                f"not for {self.wanted.model}: set IDX_EMBEDDING__MODEL, or export with --vectors"
            )
        embedding_cache.require_model(self.database, header.model)
        dataset, counts, end = "", Counter[str](), None
        for line in lines:
            if isinstance(line, _End):
                end = line
            elif isinstance(line, _Chunk | _Header):
                raise InputError("a passage comes before its document, or a second header")
            elif isinstance(line, _Dataset):
                ids.check_dataset_name(dataset := line.dataset)
                yield line
            elif line.dataset != dataset:
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
        if end is None:
            raise InputError("the file ends early: it lacks the last line of 'catalog export'")
        for name in ("documents", "chunks"):
            if (count := counts[name]) != (told := getattr(end, name)):
                raise InputError(f"there are {count} {name}, but the file says {told}")

    def _fill(self, items: Iterator[_Dataset | NewRevision | _File], root: Path | None) -> str:
        """Store what the lines say of a dataset, and return a note about its folder.

        The folder in the file is used if one of its files is there unchanged: on another machine a
        folder of that name may have other files, and an update reads them all.
        """
        line, group, files = next(items), list[NewRevision](), list[ManifestEntry]()
        assert isinstance(line, _Dataset)  # as _read orders them
        name, of, folder = line.dataset, schema.manifest.c, Path(line.root)
        self.opened.append(name)
        with self.database.write() as connection:
            publish.ensure_dataset(connection, name, time.time())
            if line.made_with and manifest.read_dataset_settings(connection, name) is None:
                manifest.note_dataset_settings(connection, name, line.made_with)
        try:
            for item in items:
                if isinstance(item, _File):
                    files.append(item.entry)
                elif isinstance(item, NewRevision):
                    group.append(item)
                    if sum(len(one.chunks) for one in group) >= _TOGETHER:
                        full, group = group, []
                        self._publish(name, full)
        finally:
            self._publish(name, group)
            with self.database.write() as connection:
                manifest.record(connection, name, *files)
                known = manifest.entries(connection, name)
                others = {it.file for it in files if known[it.file].documents != it.documents}
                manifest.note_unread(connection, name, others)  # it had more, or has less, here
        with self.database.write() as connection:
            # Files that have no line, and that only the import marked: there are none.
            is_mark = (of.dataset == name) & (of.seen_at == 0)
            connection.execute(delete(schema.manifest).where(is_mark))
            found = stored_chunks.find_root(connection, name)
            if root is not None or not found:
                entries = manifest.entries(connection, name).values()
                inside = folder if folder.is_dir() else folder.parent
                is_there = folder.is_absolute() and any(_is_in(inside, one) for one in entries)
                found = str(root.resolve()) if root is not None else line.root if is_there else ""
                publish.set_source(connection, name, found, line.include, line.exclude)
        return f"{name} is updated from {found}" if found else f"{name} has no folder for updates"

    def _publish(self, dataset: str, group: list[NewRevision]) -> None:
        """Store the documents that are not stored yet, and the vectors of all.

        The next update reads the present and the former files of these documents, unless the line
        of a file marks it as read.
        """
        now, of, new = time.time(), schema.documents.c, list[NewRevision]()
        query = select(of.source_doc_id, of.file, of.content_hash, of.pipeline, of.dated)
        is_of = among(of.source_doc_id, [one.source_doc_id for one in group])
        with self.database.write() as connection:
            before = {name: tuple(rest) for name, *rest in connection.execute(query.where(is_of))}
            for one in group:
                state = (one.file, one.content_hash, one.pipeline, publish.revision_date(one))
                if before.get(one.source_doc_id) == state:
                    by = one.embedded_by
                    embedding_cache.save(connection, one.vectors, fingerprint=by, now=now)
                else:
                    new.append(one)
            replaced = [before[one.source_doc_id] for one in new if one.source_doc_id in before]
            manifest.note_unread(
                connection, dataset, {*(one.file for one in new), *(file for file, *_ in replaced)}
            )
            publish.publish_all(connection, new, now)
        self.counts.update(
            documents=len(group),
            chunks=sum(len(one.chunks) for one in group),
            added=len(new) - len(replaced),
            replaced=len(replaced),
            unchanged=len(group) - len(new),
        )


def _is_in(folder: Path, entry: ManifestEntry) -> bool:
    try:
        found = (folder / entry.file).stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns)
