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

import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from catalog.core import ids
from catalog.core.documents import ChunkSpan, Cue, Locator, Modality
from catalog.core.errors import InputError
from catalog.core.places import AS_IN_FILE, Places, Unit
from catalog.core.text import all_storable, format_timecode

FORMAT, VERSION = "catalog-chunks", 1
# At the beginning of a line, so that it can be checked before anything is parsed.
_BEGIN, _DIGITS = b'{"crc":"', 8
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Name = Annotated[str, Field(min_length=1, max_length=4096)]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{40,64}$")]
_Seconds = Annotated[float, Field(ge=0.0, le=1e12)]
_Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Scalar = bool | int | float | str


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelLine(_Line):
    """The embedding model that passages were cut for."""

    model: _Name
    fingerprint: _Name
    dim: Annotated[int, Field(ge=1, le=65_536)]


class HeaderLine(_Line):
    """The first line of one export."""

    kind: Literal["header"] = "header"
    format: Literal["catalog-chunks"] = FORMAT  # type: ignore[assignment]
    version: int = VERSION
    model: ModelLine
    vectors: bool


class DatasetLine(_Line):
    """A dataset: the place of its files, and the settings it was made with (``None``: unknown)."""

    kind: Literal["dataset"] = "dataset"
    dataset: _Name
    root: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    preset: str | None
    settings: dict[str, bool | int | float | str | None] | None


class FileLine(_Line):
    """A file of a dataset as it was when it was read; see ``store.manifest``."""

    kind: Literal["file"] = "file"
    dataset: _Name
    file: _Name
    size: _Count
    mtime_ns: _Number
    pipeline: str
    state: Literal["done", "kept", "partial", "failed"]
    reason: str | None
    seen_at: float
    mount: str | None
    documents: _Count
    ctime_ns: _Number | None = None
    inode: _Number | None = None
    digest: str | None = None


class DocumentLine(_Line):
    """A document without its passages, which follow in as many lines as ``chunks`` says.

    ``doc_id`` names its content, ``source_doc_id`` the document. ``modified`` is its file's time
    where it states none, ``dated`` the timestamp that bounds go by.
    """

    kind: Literal["document"] = "document"
    doc_id: _Hash
    source_doc_id: _Name
    dataset: _Name
    path: _Name
    file: _Name
    title: str
    file_type: str
    source_type: str
    content_hash: _Hash
    docid: str
    pipeline: Annotated[str, Field(max_length=200)]
    metadata: dict[str, _Scalar | tuple[_Scalar, ...]]
    modified: str | None
    dated: float | None
    chunks: _Count
    text: str


class LocatorPart(_Line):
    """The place of a passage; times are ``HH:MM:SS``, rounded down."""

    page: _Count | None
    time_start: str | None
    time_end: str | None
    line_start: _Count | None
    line_end: _Count | None


class SourcePart(_Line):
    """The document of a passage, so that its line can be read by itself."""

    converted_path: str
    name: str
    file_type: str
    locator: LocatorPart


class WindowPart(_Line):
    """What of a passage is embedded at once: its key, and base64 of its float32 vector."""

    key: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]
    vector: str | None = None


class PlacesPart(_Line):
    """The stored form of :class:`~catalog.core.places.Places`."""

    unit: Unit
    offsets: tuple[_Count, ...] = ()
    numbers: tuple[_Number, ...] = ()
    lines: tuple[_Count | None, ...] = ()
    areas: tuple[tuple[str, _Count], ...] = ()


class ChunkLine(_Line):
    """A passage: ``text`` is ``[start, end)`` of its document's; see ``core.documents``.

    ``index_version`` says how it was cut and embedded: the ``pipeline`` of its document.
    """

    kind: Literal["chunk"] = "chunk"
    chunk_id: _Hash
    doc_id: _Hash
    index_version: Annotated[str, Field(max_length=200)]
    modality: Modality
    source: SourcePart
    heading_path: tuple[str, ...]
    text: str
    start: _Count
    end: _Count
    seconds: tuple[_Seconds | None, _Seconds | None]
    tokens: _Count
    cues: tuple[tuple[_Count, _Count, _Seconds, _Seconds, str | None], ...]
    page_breaks: tuple[_Count, ...]
    sections: tuple[str, ...]
    context: tuple[str, ...] = ()
    metadata: dict[str, _Scalar | tuple[_Scalar, ...]] = {}
    places: PlacesPart | None
    windows: tuple[WindowPart, ...]


class EndLine(_Line):
    """The last line of one export: a file without it was cut short."""

    kind: Literal["end"] = "end"
    documents: _Count
    chunks: _Count


Line = HeaderLine | DatasetLine | FileLine | DocumentLine | ChunkLine | EndLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def write_line(line: Line) -> bytes:
    """Return the line with its checksum and line break."""
    form = line.model_dump_json().encode()
    rest = b"," + form[1:]
    return b'%s%08x"%s\n' % (_BEGIN, zlib.crc32(rest), rest)


def read_line(raw: bytes) -> Line:
    """Parse a line; raise :class:`InputError` for one that is damaged, invalid or newer.

    Text with NUL or half a surrogate pair is invalid.
    """
    form = _without_checksum(raw.rstrip(b"\r\n"))
    try:
        line = _LINE.validate_json(form)
    except ValidationError as error:
        raise InputError(_describe(error)) from None
    if isinstance(line, HeaderLine) and line.version > VERSION:
        raise InputError(
            f"it has version {line.version}, but this release reads {VERSION}: update catalog"
        )
    if b"\\u0000" in form and all_storable(plain := line.model_dump(mode="json")) != plain:
        raise InputError("it contains a NUL character")
    return line


def _without_checksum(raw: bytes) -> bytes:
    if not raw.startswith(_BEGIN):
        return raw
    start = len(_BEGIN) + _DIGITS + 1
    rest = raw[start:]
    if f"{zlib.crc32(rest):08x}".encode() != raw[len(_BEGIN) : start - 1]:
        raise InputError("it is damaged: its checksum is wrong")
    return b"{" + rest[1:]


def _describe(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] in ("json_invalid", "union_tag_not_found", "union_tag_invalid"):
        return "it is not a line that 'catalog export' writes"
    where = ".".join(str(part) for part in first["loc"][1:])
    return f"{where}: {first['msg']}" if where else first["msg"]


def chunk_line(document: DocumentLine, span: ChunkSpan, windows: Sequence[WindowPart]) -> ChunkLine:
    """Return the line of a passage of a document."""
    at = span.locator
    places = span.places.to_dict()
    return ChunkLine(
        chunk_id=ids.chunk_id(document.doc_id, span.modality, span.start),
        doc_id=document.doc_id,
        index_version=document.pipeline,
        modality=span.modality,
        source=SourcePart(
            converted_path=document.path,
            name=document.title,
            file_type=document.file_type,
            locator=LocatorPart(
                page=at.page,
                time_start=_timecode(at.time_start),
                time_end=_timecode(at.time_end),
                line_start=at.line_start,
                line_end=at.line_end,
            ),
        ),
        heading_path=span.heading_path,
        text=document.text[span.start : span.end],
        start=span.start,
        end=span.end,
        seconds=(at.time_start, at.time_end),
        tokens=span.tokens,
        cues=span.cues,
        page_breaks=span.page_breaks,
        sections=span.sections,
        context=span.context,
        metadata=dict(span.metadata),
        places=None if places is None else PlacesPart.model_validate(places, strict=False),
        windows=tuple(windows),
    )


def span_of(line: ChunkLine) -> ChunkSpan:
    """Return the passage of a line; raise :class:`InputError` where it stands outside its text."""
    for problem in _problems(line):
        raise InputError(problem)
    at = line.source.locator
    places = AS_IN_FILE
    if line.places is not None:
        places = Places.from_dict(line.places.model_dump())
    elif at.page is not None:
        places = Places("page")
    return ChunkSpan(
        line.start,
        line.end,
        heading_path=line.heading_path,
        modality=line.modality,
        locator=Locator(at.page, None, at.line_start, at.line_end, *line.seconds),
        tokens=line.tokens,
        cues=tuple(Cue(*cue) for cue in line.cues),
        page_breaks=line.page_breaks,
        sections=line.sections,
        places=places,
        context=line.context,
        metadata=line.metadata,
    )


def _problems(line: ChunkLine) -> Iterator[str]:
    """Yield a message for each part of the passage that is outside its text."""
    length = line.end - line.start
    if length <= 0:
        yield f"end {line.end} is not after start {line.start}"
    if any(not start <= end <= length for start, end, *_ in line.cues):
        yield "a cue is outside the text"
    breaks = line.page_breaks
    if list(breaks) != sorted(breaks) or any(offset > length for offset in breaks):
        yield "page_breaks must ascend and be within the text"
    places = line.places
    if places is not None and (
        len(places.offsets) != len(places.numbers)
        or len(places.lines) not in (0, len(places.offsets))
        or sum(count for _, count in places.areas) not in (0, len(places.offsets))
        or sum(places.offsets) > length
    ):
        yield "places must have equal numbers of offsets, numbers, lines and areas, within the text"


def _timecode(seconds: float | None) -> str | None:
    return None if seconds is None else format_timecode(seconds)
