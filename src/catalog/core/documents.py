"""The data that crosses layers: documents as read, chunks as cut and as stored.

Offsets count characters (Python ``str`` indices) of the document's canonical text; lines
count from 1; times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from catalog.core.places import AS_IN_FILE, Places, Unit

MetadataScalar = str | int | float | bool
MetadataValue = MetadataScalar | tuple[MetadataScalar, ...]

Modality = Literal[
    "text", "ocr", "video_transcript", "video_frame", "image_caption", "audio_transcript",
    "quote", "signature"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Locator:
    """A passage's position in its file: numbers are from 1 and inclusive, times are seconds.

    ``start`` and ``end`` count in ``unit``. Lines are numbered in the file, or in a notebook within
    the one cell of the passage. ``cells`` are a workbook's: ``Costs!A12:F30``.
    """

    page: int | None = None
    page_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    time_start: float | None = None
    time_end: float | None = None
    unit: Unit = "line"
    start: int | None = None
    end: int | None = None
    cells: str | None = None


def locate(places: Places, start: int, end: int, known: Locator) -> Locator:
    """Return the locator of ``text[start:end]``, with missing fields from ``known``."""
    unit, own = places.unit, (known.line_start, known.line_end)
    lines = places.lines_of(start, end) or (own if unit == "line" else (None, None))
    numbers: tuple[int | None, int | None] = places.numbers_of(start, end) or (None, None)
    if unit in ("page", "slide"):
        numbers = known.page, known.page_end
    first, last = lines if unit == "line" else numbers
    known = replace(known, line_start=lines[0], line_end=lines[1], unit=unit)
    return replace(known, start=first, end=last, cells=places.cells_of(start, end))


def last_page(page: int | None, page_breaks: Sequence[int]) -> int | None:
    """Return the page on which a passage that begins on ``page`` ends; ``None`` without pages."""
    return None if page is None else page + len(page_breaks)


def part_label(metadata: Mapping[str, object], *, has_id: bool = False) -> str:
    """Return the page by which LlamaIndex readers tell texts of one source apart, or ""."""
    # of a text with an id of its own, the other two may be any field
    said = map(metadata.get, ("page_label",) if has_id else ("page_label", "page_number", "page"))
    return next((str(value) for value in said if isinstance(value, str | int) and value != ""), "")


UNLISTED = "llama_index."  # before metadata that only LlamaIndex nodes show, not filters or pages


def listed(metadata: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return the metadata that people see and filter by."""
    return {name: it for name, it in metadata.items() if not name.startswith(UNLISTED)}


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its lines are ``text[start:end]``; ``level`` counts from 1 (outermost)."""

    start: int
    end: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch ``text[start:end]`` of a document that is not plain text, such as one cue.

    Transcripts and frames have times (``0 <= time_start <= time_end``), the rest have none.
    """

    start: int
    end: int
    modality: Modality
    time_start: float | None = None
    time_end: float | None = None
    speaker: str | None = None


class Table(NamedTuple):
    """A table ``text[start:end]``, with the names of its ``columns``: ``| Name | Town |``."""

    start: int
    end: int
    columns: str


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """One document as a reader returns it.

    ``text`` is canonical: every offset anywhere refers to it, and it is stored unchanged (no NUL,
    no lone surrogate). ``body_start`` is where retrievable text begins (after front matter).
    ``atomic`` spans (code fences, tables) are not cut where they fit into a chunk. ``pages[n - 1]``
    is the offset where page (or slide) ``n`` begins, ascending. ``segments`` are disjoint and in
    the order of the text. ``metadata`` holds user metadata and the first-class fields the reader
    knows (``tags``, ``created`` …); ``written`` names the fields that the author wrote, and
    ``remarks`` say which of the author's words could not be read. ``untimed`` says why a document
    that looks like a transcript is read as text; it is reported and not stored.
    """

    path: str
    text: str
    title: str
    file_type: str
    source_type: str = "file"
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    headings: tuple[Heading, ...] = ()
    atomic: tuple[tuple[int, int], ...] = ()
    tables: tuple[Table, ...] = ()
    body_start: int = 0
    pages: tuple[int, ...] = ()
    segments: tuple[Segment, ...] = ()
    untimed: str | None = None
    written: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    places: Places = AS_IN_FILE


def find_columns(context: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of a passage's context that name the columns of its table."""
    return tuple(line for line in context if line.startswith("| ") and line.endswith(" |"))


class Cue(NamedTuple):
    """A timed part of a passage: ``passage.text[start:end]`` was said in these seconds."""

    start: int
    end: int
    time_start: float
    time_end: float
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """A passage as the chunker cuts it; the chunk is always ``text[start:end]``.

    ``heading_path`` goes from the outermost heading to the chunk's own; ``sections`` are the other
    headings in it. ``cues``, ``page_breaks`` (where the page after ``locator.page`` begins, and the
    one after that, …) and ``places`` have offsets in the chunk. ``context`` are further lines that
    both legs search: the column names of its table (:func:`find_columns`), which people are shown,
    and metadata, which they are not. ``metadata`` is the passage's own.
    """

    start: int
    end: int
    heading_path: tuple[str, ...] = ()
    modality: Modality = "text"
    locator: Locator = Locator()
    tokens: int = 0
    cues: tuple[Cue, ...] = ()
    page_breaks: tuple[int, ...] = ()
    sections: tuple[str, ...] = ()
    places: Places = AS_IN_FILE
    context: tuple[str, ...] = ()
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stored passage, joined with the fields of its document that a result needs.

    ``seq`` is the database's row number: never reused, so it names the chunk in lexical indexes;
    ``chunk_id`` is the deterministic public id. ``metadata`` is the document's and the passage's.
    ``modified`` is the document's own date, else its file's; ``dated`` is the timestamp for date
    bounds. ``file`` is the document's file: its path, unless the file holds several documents.
    """

    seq: int
    chunk_id: str
    source_doc_id: str
    dataset: str
    path: str
    docid: str
    title: str
    position: int
    start_offset: int
    end_offset: int
    heading_path: tuple[str, ...]
    modality: Modality
    locator: Locator
    text: str
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    cues: tuple[Cue, ...] = ()
    page_breaks: tuple[int, ...] = ()
    file_type: str = ""
    source_type: str = ""
    modified: str | None = None
    dated: float | None = None
    sections: tuple[str, ...] = ()
    places: Places = AS_IN_FILE
    file: str = ""
    context: tuple[str, ...] = ()
