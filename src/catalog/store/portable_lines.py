"""The portable form of a store, ``chunks.jsonl``: one JSON object a line, read back whole.

header            what wrote it, and the embedding model of the vectors
└─ dataset        its folder, globs and settings
   ├─ document    its text and metadata, followed by …
   │  └─ chunk    … its passages, in order, each with its windows and perhaps their vectors
   └─ file        a file that was read, and the outcome
end               how many documents and chunks there are since the header

A line may begin with ``crc``, the CRC-32 of what follows it in the line, eight hexadecimal digits.
Files may be appended to one another; of two of one document the later one holds.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from catalog.core import ids
from catalog.core.documents import ChunkSpan, Modality
from catalog.core.errors import InputError
from catalog.core.text import format_timecode, storable
from catalog.store.embedding_cache import StoredModel
from catalog.store.manifest import DatasetSettings, ManifestEntry

VERSION = 1
# At the beginning of a line, so that it can be checked before anything is parsed.
_BEGIN, _DIGITS = b'{"crc":"', 8
_SUSPECT = re.compile(rb"\\u0000|\d{17}")  # of a line with what no store can hold
_Name = Annotated[str, Field(min_length=1, max_length=4096)]
_Count = Annotated[int, Field(ge=0)]
_Scalar = bool | int | float | str


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class HeaderLine(_Line):
    """The first line of one export, with the embedding model that passages were cut for."""

    kind: Literal["header"] = "header"
    format: Literal["catalog-chunks"] = "catalog-chunks"
    version: int = VERSION
    model: StoredModel
    vectors: bool


class DatasetLine(_Line):
    """A dataset: the place of its files, and the settings it was made with (``None``: unknown)."""

    kind: Literal["dataset"] = "dataset"
    dataset: _Name
    root: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    made_with: DatasetSettings | None


class FileLine(_Line):
    """A file of a dataset as it was when it was read."""

    kind: Literal["file"] = "file"
    dataset: _Name
    entry: ManifestEntry


class DocumentLine(_Line):
    """A document without its passages, which follow in as many lines as ``chunks`` says.

    ``doc_id`` names its content, ``source_doc_id`` the document. ``modified`` is its file's time
    where it states none, ``dated`` the timestamp that bounds go by.
    """

    kind: Literal["document"] = "document"
    doc_id: str
    source_doc_id: _Name
    dataset: _Name
    path: _Name
    file: _Name
    title: str
    file_type: str
    source_type: str
    content_hash: str
    docid: str
    pipeline: str
    metadata: dict[str, _Scalar | tuple[_Scalar, ...]]
    modified: str | None
    dated: float | None
    chunks: _Count
    text: str


class ChunkLine(_Line):
    """A passage: ``text`` is that of its document within ``span``.

    ``index_version`` says how it was cut and embedded: the ``pipeline`` of its document. ``source``
    repeats the document's names and the place, with times as ``HH:MM:SS``, so that a line can be
    read by itself. ``windows`` are embedded each at once: key, and base64 of the float32 vector.
    """

    kind: Literal["chunk"] = "chunk"
    chunk_id: str
    doc_id: str
    index_version: str
    modality: Modality
    source: dict[str, str | dict[str, int | str | None]]
    heading_path: tuple[str, ...]
    text: str
    span: ChunkSpan
    windows: tuple[tuple[Annotated[str, Field(pattern="^[0-9a-f]{40}$")], str | None], ...]


class EndLine(_Line):
    """The last line of one export: a file without it was cut short."""

    kind: Literal["end"] = "end"
    documents: _Count
    chunks: _Count


Line = HeaderLine | DatasetLine | FileLine | DocumentLine | ChunkLine | EndLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def write_line(line: Line) -> bytes:
    """Return the line with its checksum and line break."""
    rest = b"," + line.model_dump_json().encode()[1:]
    return b'%s%08x"%s\n' % (_BEGIN, zlib.crc32(rest), rest)


def read_line(raw: bytes) -> Line:
    """Parse a line; raise :class:`InputError` for one that is damaged, invalid or newer.

    Text with NUL or half a surrogate pair is invalid.
    """
    form, start = raw.rstrip(b"\r\n"), len(_BEGIN) + _DIGITS + 1
    if form.startswith(_BEGIN):
        told, form = form[len(_BEGIN) : start - 1], form[start:]
        if f"{zlib.crc32(form):08x}".encode() != told:
            raise InputError("it is damaged: its checksum is wrong")
        form = b"{" + form[1:]
    try:
        line = _LINE.validate_json(form)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] in ("json_invalid", "union_tag_not_found", "union_tag_invalid"):
            raise InputError("it is not a line that 'catalog export' writes") from None
        where = ".".join(str(part) for part in first["loc"][1:])
        raise InputError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    if isinstance(line, HeaderLine) and line.version > VERSION:
        raise InputError(
            f"it has version {line.version}, but this release reads {VERSION}: update catalog"
        )
    if _SUSPECT.search(form):
        _check_storable(json.loads(form))
    return line


def _check_storable(value: object) -> None:
    """Raise :class:`InputError` for texts and numbers that a database cannot hold."""
    if isinstance(value, dict | list):
        for one in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_storable(one)
    elif isinstance(value, str) and storable(value) != value:
        raise InputError("it contains a NUL character")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"{value} is too large")


def chunk_line(
    document: DocumentLine, span: ChunkSpan, windows: Sequence[tuple[str, str | None]]
) -> ChunkLine:
    at = span.locator
    times = {
        name: None if (at_second := getattr(at, name)) is None else format_timecode(at_second)
        for name in ("time_start", "time_end")
    }
    lines = {name: getattr(at, name) for name in ("page", "line_start", "line_end")}
    return ChunkLine(
        chunk_id=ids.chunk_id(document.doc_id, span.modality, span.start),
        doc_id=document.doc_id,
        index_version=document.pipeline,
        modality=span.modality,
        source={
            "converted_path": document.path,
            "name": document.title,
            "file_type": document.file_type,
            "locator": lines | times,
        },
        heading_path=span.heading_path,
        text=document.text[span.start : span.end],
        span=span,
        windows=tuple(windows),
    )


def check_span(span: ChunkSpan) -> None:
    """Raise :class:`InputError` for a passage with a part outside its text."""
    length, breaks, places = span.end - span.start, span.page_breaks, span.places
    if span.start < 0 or length <= 0:
        raise InputError(f"end {span.end} is not after start {span.start}")
    if any(not 0 <= cue.start <= cue.end <= length for cue in span.cues):
        raise InputError("a cue is outside the text")
    if list(breaks) != sorted(breaks) or any(not 0 <= offset <= length for offset in breaks):
        raise InputError("page_breaks must ascend and be within the text")
    count, offsets = len(places.offsets), list(places.offsets)
    if (
        {len(places.numbers), len(places.lines), len(places.areas)} - {0, count}
        or len(places.numbers) != count
        or offsets != sorted(offsets)
        or any(not 0 <= offset <= length for offset in offsets)
    ):
        raise InputError(
            "places must have equal numbers of offsets, numbers, lines and areas, within the text"
        )
