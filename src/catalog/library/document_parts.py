"""Read parts of a document in its citations' units, and the places in names.

Citations count lines, cells, pages, paragraphs or seconds. The map from the text to its file joins
the maps of the document's passages. Names with places are references, citations, links and the
headers of passages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

from catalog.core.documents import Locator, listed
from catalog.core.errors import DamagedDocumentError, DocumentReferenceError, InputError
from catalog.core.places import Places, Unit, format_clock
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import iter_lines, trim_end
from catalog.store.chunks import StoredDocument, parse_places, read_chunk_places

if TYPE_CHECKING:
    from sqlalchemy import Connection


_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
_Span = tuple[int, int]
_Timed = tuple[int, int, float, float]  # start and end offset, first and last second
Place = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of the start and of the end, as a reference has them."""
CITATION = "[source: "
URI_SCHEME = "catalog://"  # of the resources that the MCP server lists
_AROUND = 15  # seconds before and after a linked one
_MAX_DIGITS = 18  # of a line's number
_MAX_ADDRESS = 8000  # characters, the least that is to be expected: RFC 9110, 4.1
_MAX_PLACE = 2000  # characters of the place at the end of a name
_SECONDS = ("t", "start")  # parameters of an address that say when to begin
_COLONS = re.compile(r":(?:t=)?(\d+(?::\d+){0,2})(?:-(\d+(?::\d+){0,2}))?$")
_DIGITS = re.compile(r"\d+")
_LINKED = re.compile(r"[#?&](page|t|start)=(\d{1,9})s?(?=[&#]|$)")
_CLOCK = r"\d{1,9}(?::\d\d){1,2}"
_SHOWN = (
    rf"(?:t=(?P<clock>{_CLOCK})|(?P<from>{_CLOCK})(?:-(?P<to>{_CLOCK}))?"
    r"|(?P<unit>page|slide|line|cell|paragraph|record)s? "
    r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?"
    r"(?: \((?:page|slide)s (?P<pages>\d{1,9}-\d{1,9})\))?"
    r"(?:, lines? (?P<line>\d{1,9})(?:-(?P<line_end>\d{1,9}))?)?"
    r"(?: of (?P<file>[^\[\]]{1,1000}))?)"
)
_AREA = r"(?:'(?:[^']|''){1,99}+'|[\w.]{1,99}+)![A-Z]{1,3}\d{1,7}(?::[A-Z]{1,3}\d{1,7})?"
_CELLS = rf" › (?P<cells>{_AREA}(?:, {_AREA})*+)"
_CITED = re.compile(rf"(?:, {_SHOWN}|{_CELLS})\]$")
_HEADED = re.compile(rf"(?: {_SHOWN}|{_CELLS})$")
_SHEET = re.compile(r" › ([^›]++)$")
_CORNER = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_HEADER = re.compile(r"@@ (.*) @@", re.DOTALL)
_RANK = re.compile(r"^\[\d{1,4}\] ")
_AFTER_TITLE, _MAX_TITLES = " — ", 5
_SUFFIX = re.compile(r"\.\w{1,8}$")


@dataclass(frozen=True, slots=True)
class Part:
    """The requested part of a document: numbers of its unit, lines of a cell, or seconds.

    Both ends of each range are included; ``None`` is from the beginning, or to the end. ``cells``
    are a workbook's: ``Costs!A12:F30``, or a whole sheet, ``Costs``.
    """

    first: int | None = None
    last: int | None = None
    lines: _Span | None = None
    seconds: _Span | None = None
    cells: str | None = None

    def holds(self, number: int, line: int | None, area: str) -> bool:
        """Return whether the part contains this number, line of that cell, or row of that area."""
        if self.cells is not None:
            return _overlaps(self.cells, number, area)
        if self.lines is not None and (line is None or not self.lines[0] <= line <= self.lines[1]):
            return False
        is_after = self.first is None or number >= self.first
        return is_after and (self.last is None or number <= self.last)


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """A document, or a part of it, line by line.

    ``numbers`` give the place of each line in the file, counted in ``unit``. They are ``None`` for
    a blank line of extracted text, and for all lines if only seconds are counted. ``ranges`` are
    the least and the greatest number of each line. ``total`` is the last number with text.
    ``ending`` is the line end after the last line, if the part goes to the end of a document that
    has one. ``part`` is the requested part, ``cells`` are those of each line of a workbook.
    ``others`` are the paths of further documents made from the same original, ``notes`` are remarks
    for the reader.
    """

    document: StoredDocument
    lines: tuple[str, ...]
    numbers: tuple[int | None, ...]
    total: int | None
    unit: Unit = "line"
    ending: str = ""
    others: tuple[str, ...] = ()
    ranges: tuple[_Span | None, ...] = ()
    part: Part = Part()
    notes: tuple[str, ...] = ()
    cells: tuple[str | None, ...] = ()

    @property
    def start(self) -> int | None:
        """Return the least number of these lines."""
        return min((least for least, _ in filter(None, self.ranges)), default=None)

    @property
    def end(self) -> int | None:
        """Return the greatest number of these lines."""
        return max((greatest for _, greatest in filter(None, self.ranges)), default=None)

    def first(self, count: int) -> DocumentLines:
        """Return the first ``count`` lines, without the part if the lines have numbers."""
        return replace(
            self,
            lines=self.lines[:count],
            numbers=self.numbers[:count],
            ranges=self.ranges[:count],
            cells=self.cells[:count],
            ending="",
            part=Part() if any(self.ranges) else self.part,
        )

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self.lines) + self.ending

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; ``line_…`` are lines of a file with lines, or of a cell.

        A part requested by seconds is counted in whole seconds.
        """
        has_lines, seconds = self.unit == "line", self.part.seconds
        lines = (self.start, self.end) if has_lines else self.part.lines or (None, None)
        return {
            "source_doc_id": self.document.source_doc_id,
            "path": self.document.path,
            "docid": self.document.docid,
            "title": self.document.title,
            "metadata": listed(self.document.metadata),
            "unit": "time" if seconds else self.unit,
            "start": seconds[0] if seconds else self.start,
            "end": seconds[1] if seconds else self.end,
            "total": None if seconds else self.total,
            "line_start": lines[0],
            "line_end": lines[1],
            "lines_total": self.total if has_lines else None,
            "numbers": list(self.numbers),
            "cells": list(self.cells),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class DocumentPlaces:
    """The map of a whole document, with the seconds of its timed stretches and passages."""

    places: Places
    timed: tuple[_Timed, ...] = ()
    passages: tuple[tuple[float, float], ...] = ()

    def has_text_at(self, seconds: _Span) -> bool:
        """Return whether something is said or shown in these seconds."""
        return any(_is_within(first, last, seconds) for _, _, first, last in self.timed)

    def passage_at(self, second: int) -> _Span:
        """Return the first passage around this second, in whole seconds, or the second itself.

        Of a passage that is longer, up to 15 seconds before and after it.
        """
        for first, last in self.passages:
            if _is_within(first, last, (second, second)):
                return max(int(first), second - _AROUND), min(int(last), second + _AROUND)
        return second, second

    @classmethod
    def read(cls, connection: Connection, document: StoredDocument) -> DocumentPlaces:
        """Join the passages' places; raise ``DamagedDocumentError`` for a damaged document."""
        try:
            return cls._of_passages(read_chunk_places(connection, document.source_doc_id))
        except _UNREADABLE as error:
            raise DamagedDocumentError(document.source_doc_id, "a passage") from error

    @classmethod
    def _of_passages(cls, rows: Iterable[Any]) -> DocumentPlaces:
        unit: Unit = "line"
        steps: list[tuple[int, int, int | None, str]] = []
        timed: dict[_Timed, None] = {}
        passages: list[tuple[float, float]] = []
        covered = 0
        for row in rows:
            places, start = parse_places(row.places, row.page), row.start_offset
            unit = places.unit
            for offset, *step in _steps(places, row):
                if start + offset >= covered:  # passages may share their ends
                    steps.append((start + offset, *step))
            cues = json.loads(row.cues or "[]")
            for first, last, begin, end, *_ in cues:
                timed[start + first, start + last, begin, end] = None
            if cues:
                passages.append((min(cue[2] for cue in cues), max(cue[3] for cue in cues)))
            covered = max(covered, row.end_offset)
        columns = zip(*steps, strict=True) if steps else ((), (), (), ())
        return cls(Places(unit, *columns), tuple(timed), tuple(passages))


def _steps(places: Places, row: Any) -> Iterator[tuple[int, int, int | None, str]]:
    if places.unit in ("page", "slide"):
        breaks = json.loads(row.page_breaks or "[]")
        for number, offset in enumerate((0, *breaks)):
            yield offset, row.page + number, None, ""
        return
    yield from places.steps()


def cut_part(document: StoredDocument, of_file: DocumentPlaces, part: Part) -> DocumentLines:
    """Return a part of a document, all of it for ``Part()``.

    Raises ``DocumentReferenceError`` if the document has nothing there.
    """
    text, places = document.text, of_file.places
    is_file = places.unit == "line" and not places.offsets
    if is_file:
        starts = tuple(line.start for line in iter_lines(text)) or (0,)
        places = Places("line", starts, tuple(range(1, len(starts) + 1)))
    elif places.unit == "time" and part.first is not None:
        part = Part(seconds=(part.first, part.first if part.last is None else part.last))
    spans = [(0, len(text))] if part == Part() else _spans(places, of_file.timed, part, text)
    if not spans:
        raise DocumentReferenceError(_nothing_there(document, places, part))
    lines: list[str] = []
    numbers: list[int | None] = []
    ranges: list[_Span | None] = []
    cells: list[str | None] = []
    for start, end in spans:
        if is_file:  # a number for each line, and there may be millions
            found = [
                text[start + line.start : start + line.end] for line in iter_lines(text[start:end])
            ]
            counted = range(places.number_at(start) or 1, len(places.numbers) + 1)[: len(found)]
            lines += found
            numbers += counted
            ranges += zip(counted, counted, strict=True)
            continue
        for line in iter_lines(text[start : trim_end(text, start, end)]):
            words = text[start + line.start : start + line.end]
            lines.append(words)
            first = len(words) - len(words.lstrip())
            is_blank = first == len(words)
            at = start + line.start + first
            numbers.append(None if is_blank else places.number_at(at))
            ranges.append(None if is_blank else places.numbers_of(at, start + line.end))
            if places.unit == "row":
                cells.append(None if is_blank else places.cells_of(at, start + line.end))
    has_ending = spans[-1][1] == len(text) and text.endswith(("\n", "\r"))
    return DocumentLines(
        document,
        tuple(lines),
        tuple(numbers),
        max(places.numbers, default=None),
        places.unit,
        "\n" if has_ending and len(text) > 1 else "",
        ranges=tuple(ranges),
        part=part,
        cells=tuple(cells),
    )


def join_parts(parts: Sequence[DocumentLines]) -> DocumentLines:
    """Return the lines of all parts with a blank line between; numbers are those in each file.

    Records of one file are counted as one text. Of a recording's files only the seconds are common
    to all.
    """
    first, *others = parts
    if not others:
        return first
    has_one_count = first.unit == "record"
    lines, numbers, ranges = list(first.lines), list(first.numbers), list(first.ranges)
    for other in others:
        lines += ["", *other.lines]
        numbers += [None, *other.numbers]
        ranges += [None, *other.ranges]
    return replace(
        first,
        lines=tuple(lines),
        numbers=tuple(numbers),
        ranges=tuple(ranges) if has_one_count else (),
        total=first.total if has_one_count else None,
        unit=first.unit if has_one_count else "time",
        ending="",
    )


def _spans(places: Places, timed: Iterable[_Timed], part: Part, text: str) -> list[_Span]:
    """Return the ranges of the text in a part of the file, in order and disjoint."""
    if part.seconds is not None:
        seconds = part.seconds
        found = [(at, to) for at, to, first, last in timed if _is_within(first, last, seconds)]
    else:
        steps = zip(places.steps(), (*places.offsets[1:], len(text)), strict=True)
        found = [(step[0], to) for step, to in steps if part.holds(*step[1:])]
        if part.lines is not None:
            found = [_without_fences(text, at, to) for at, to in found]
    merged: list[_Span] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _is_within(first: float, last: float, seconds: _Span) -> bool:
    """Return whether a stretch of time overlaps a range, and does not just touch it.

    A clock drops fractions of a second. So the last second of a range counts as a whole one for a
    stretch that ends in it, and for a range of one second.
    """
    begin, end = seconds
    starts = first < end or last < end + 1 or (begin == end and first < end + 1)
    return starts and (last > begin or first >= begin)


def _without_fences(text: str, start: int, end: int) -> _Span:
    """Remove the fence that a reader added before or after a cell's line.

    Such a fence shares a step with the line next to it, while the cell's own fences have separate
    steps.
    """
    end = trim_end(text, start, end)
    after = text.find("\n", start, end) + 1
    if after and text.startswith("```", start):
        start = after
    before = text.rfind("\n", start, end)
    if before >= 0 and text.startswith("```", before + 1):
        end = before
    return start, end


def _nothing_there(document: StoredDocument, places: Places, part: Part) -> str:
    if part.seconds is not None:
        return f"{document.path} has no speech at that time"
    if part.cells is not None:
        sheets = ", ".join(dict.fromkeys(area.rpartition("!")[0] for area in places.areas))
        return f"{document.path} has nothing in {part.cells}; its sheets are {sheets}"
    has = f"{places.unit}s {min(places.numbers)}-{max(places.numbers)}"
    if part.lines is not None:
        return f"{document.path} has no text in those lines of {places.unit} {part.first}"
    last = part.last if part.last is not None else max(places.numbers)
    return f"{document.path} has {has}, not {1 if part.first is None else part.first}-{last}"


def _overlaps(cells: str, row: int, area: str) -> bool:
    """Return whether a row of an area, ``Costs!A:F``, has some of these cells."""
    sheet, _, columns = area.rpartition("!")
    if cells in (sheet, sheet.strip("'").replace("''", "'")):
        return True
    least, most = ((len(one), one) for one in columns.split(":"))
    for found in re.finditer(_AREA, cells):
        name, _, corners = found[0].rpartition("!")
        ends = [((len(one), one), int(at)) for one, at in _CORNER.findall(corners)]
        (left, top), (right, bottom) = ends[0], ends[-1]
        if name == sheet and top <= row <= bottom and left <= most and least <= right:
            return True
    return False


@dataclass(frozen=True, slots=True)
class CitedPlace:
    """A place as outputs show it: the unit, the part, and the name of the document.

    ``name`` is the link or citation itself, or a header's text before the place. ``file`` is a
    record's file.
    """

    name: str
    unit: Unit
    part: Part
    file: str | None = None


def split_reference(reference: str) -> list[tuple[str, Place]]:
    """Return possible names with the place at the end split off, the longest name first.

    A place is ``:12``, ``:12-20``, ``:3:2-8`` for a cell's lines, or ``:1:05-1:18`` for times. Its
    parts are the numbers of its start and its end. Raises :class:`InputError` for a number that no
    line has.
    """
    ranged = _COLONS.search(reference)
    if ranged is None:
        return []
    if any(len(digits) > _MAX_DIGITS for digits in _DIGITS.findall(ranged[0])):
        raise InputError(f"{ranged[0][:_MAX_DIGITS]}…: no document has so many lines")
    start, end = (tuple((group or "").split(":")) for group in ranged.groups())
    last = tuple(map(int, filter(None, end)))
    return [
        (":".join((reference[: ranged.start()], *start[:at])), (tuple(map(int, start[at:])), last))
        for at in range(len(start))
    ]


def read_cited_place(name: str) -> CitedPlace | None:
    """Return the place in a link, a citation or the header of a passage, ``None`` without one."""
    linked = _LINKED.search(name)
    if linked is not None and (linked[0].startswith("#") or "://" in name):
        number = int(linked[2])
        at = number, number
        if linked[1] == "page":
            return CitedPlace(name, "page", Part(*at))
        return CitedPlace(name, "time", Part(seconds=at))
    is_citation, end = name.startswith(CITATION), name[-_MAX_PLACE:]
    shown = (_CITED if is_citation else _HEADED).search(end)
    sheet = _SHEET.search(end)
    if shown is None and sheet is not None and not is_citation:
        return CitedPlace(name[: sheet.start() - len(end)], "row", Part(cells=sheet[1]))
    if shown is None:
        return None
    if not is_citation:
        name = name[: shown.start() - len(end)]
    if shown["cells"]:
        return CitedPlace(name, "row", Part(cells=shown["cells"]))
    if shown["unit"] is None:
        first, last = shown["clock"] or shown["from"], shown["to"]
        begin = read_clock(map(int, first.split(":")))
        end_second = read_clock(map(int, last.split(":"))) if last else begin
        return CitedPlace(name, "time", Part(seconds=(begin, end_second)))
    numbers = shown["pages"] or f"{shown['first']}-{shown['last'] or shown['first']}"
    line, line_end = shown["line"], shown["line_end"]
    lines = (int(line), int(line_end or line)) if line else None
    begin, end_number = map(int, numbers.split("-"))
    part = Part(begin, end_number, lines=lines)
    return CitedPlace(name, cast(Unit, shown["unit"]), part, shown["file"])


def without_marks(reference: str) -> str:
    """Return the name in a passage's header or in a resource's URI; other texts unchanged.

    >>> without_marks("catalog://notes/a%20b.md")
    'notes:a b.md'
    """
    header = _HEADER.fullmatch(reference)
    name = reference if header is None else header[1]
    if not name.startswith(URI_SCHEME):
        return name
    dataset, _, path = name.removeprefix(URI_SCHEME).partition("/")
    try:
        return storable(f"{unquote_uri(dataset)}:{unquote_uri(path)}")
    except UnicodeError:
        return name


def unquote_uri(text: str) -> str:
    """Decode a part of a resource's URI; raise ``UnicodeError`` for bytes that are not text."""
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass")


def shown_forms(reference: str) -> list[str]:
    """Return the names that a reference may contain, the likeliest first.

    They are the reference itself, and the ends of a passage's first line, ``[1] Title — scan.pdf —
    .converted/scan.md:23``, or of a part of it.
    """
    bare = without_marks(reference)
    line = _RANK.sub("", bare)
    parts = line.split(_AFTER_TITLE)[:_MAX_TITLES]
    ends = (line.split(_AFTER_TITLE, at)[at] for at in range(len(parts)))
    return list(dict.fromkeys((bare, *ends)))


def shows_place(name: str, title: str, path: str) -> bool:
    """Return whether a name of the document also contains a place."""
    if name.startswith(CITATION):
        return name not in (f"{CITATION}{title}]", f"{CITATION}{path}]")
    bare, _, fragment = name.partition("#")
    return bool(fragment) and ("://" in bare or _SUFFIX.search(bare) is not None)


def without_seconds(address: str) -> str:
    """Remove the second from an address; return an invalid or too long one unchanged."""
    if len(address) > _MAX_ADDRESS:
        return address
    try:
        url = urlsplit(address)
    except ValueError:
        return address
    query = [(name, value) for name, value in parse_qsl(url.query) if name not in _SECONDS]
    return url._replace(query=urlencode(query), fragment="").geturl()


def read_clock(clock: Iterable[int]) -> int:
    """Return the seconds of minutes and seconds, or of hours, minutes and seconds."""
    return reduce(lambda seconds, number: 60 * seconds + number, clock)


def refer_to(path: str, locator: Locator) -> str:
    """Return the reference to a part of a document: ``notes.md:3-9``, ``talk.srt:0:14-0:20``."""
    if locator.cells is not None:
        return f"{path} › {locator.cells}"
    if locator.time_start is not None and locator.page is None:
        ends = (locator.time_start, locator.time_end or locator.time_start)
        return f"{path}:{'-'.join(map(format_clock, ends))}"
    if locator.start is None:
        return path
    cell = ""
    first, last = locator.start, locator.end
    if locator.unit == "cell" and locator.line_start is not None:
        cell, first, last = f"{first}:", locator.line_start, locator.line_end
    return f"{path}:{cell}{first}" + (f"-{last}" if last not in (None, first) else "")
