"""A document line by line, counted in its citations' units, and the parts of it.

Units are lines, cells, rows, pages, paragraphs or seconds. The map from a document's text to its
file joins the maps of its passages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.documents import listed
from catalog.core.errors import DamagedDocumentError, DocumentReferenceError
from catalog.core.places import Places, Unit
from catalog.ingest.chunking.boundaries import iter_lines, trim_end
from catalog.library.names import AREA, WHOLE, DocumentPart
from catalog.store.chunks import StoredDocument, parse_places, read_chunk_places

if TYPE_CHECKING:
    from sqlalchemy import Connection


_Span = tuple[int, int]
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
_AROUND = 15  # seconds before and after a linked one
_CORNER = re.compile(r"([A-Z]{1,3})(\d{1,7})")


class NumberedLine(NamedTuple):
    """A line of a document: the number where it begins in the file, and its least and greatest.

    They are ``None`` for a blank line of extracted text. ``cells`` are those of a workbook's row.
    """

    text: str
    number: int | None = None
    least: int | None = None
    most: int | None = None
    cells: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """A document, or a part of it, line by line.

    Numbers count in ``unit``; ``total`` is the last one with text. ``ending`` is the line end after
    the last line, if the part goes to the end of a document that has one. ``part`` is the requested
    part. ``others`` are the paths of further documents made from the same original, ``notes`` are
    remarks for the reader.
    """

    document: StoredDocument
    lines: tuple[NumberedLine, ...]
    total: int | None
    unit: Unit = "line"
    ending: str = ""
    part: DocumentPart = WHOLE
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def start(self) -> int | None:
        """Return the least number of these lines."""
        return min((line.least for line in self.lines if line.least is not None), default=None)

    @property
    def end(self) -> int | None:
        """Return the greatest number of these lines."""
        return max((line.most for line in self.lines if line.most is not None), default=None)

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join(line.text for line in self.lines) + self.ending

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
            "numbers": [line.number for line in self.lines],
            "cells": [line.cells for line in self.lines] if self.unit == "row" else [],
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class DocumentPlaces:
    """The map of a whole document.

    ``timed`` has the offsets and the seconds of its timed stretches, ``passages`` the seconds of
    its passages.
    """

    places: Places
    timed: Collection[tuple[int, int, float, float]] = ()
    passages: Sequence[tuple[float, float]] = ()

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
        unit: Unit = "line"
        steps: list[tuple[int, int, int | None, str]] = []
        timed: dict[tuple[int, int, float, float], None] = {}
        passages: list[tuple[float, float]] = []
        covered = 0
        try:
            for row in read_chunk_places(connection, document.source_doc_id):
                places, start = parse_places(row.places, row.page), row.start_offset
                unit, own = places.unit, places.steps()
                if unit in ("page", "slide"):
                    breaks = (0, *json.loads(row.page_breaks or "[]"))
                    own = ((at, row.page + count, None, "") for count, at in enumerate(breaks))
                steps += (  # passages may share their ends
                    (start + at, *step) for at, *step in own if start + at >= covered
                )
                cues = json.loads(row.cues or "[]")
                for first, last, begin, end, *_ in cues:
                    timed[start + first, start + last, begin, end] = None
                if cues:
                    passages.append((min(cue[2] for cue in cues), max(cue[3] for cue in cues)))
                covered = max(covered, row.end_offset)
        except _UNREADABLE as error:
            raise DamagedDocumentError(document.source_doc_id, "a passage") from error
        columns = zip(*steps, strict=True) if steps else ((), (), (), ())
        return cls(Places(unit, *columns), timed, passages)


def cut_part(
    document: StoredDocument, of_file: DocumentPlaces, part: DocumentPart
) -> DocumentLines:
    """Return a part of a document, all of it for ``DocumentPart()``.

    Raises ``DocumentReferenceError`` if the document has nothing there.
    """
    text, places = document.text, of_file.places
    is_file = places.unit == "line" and not places.offsets
    if is_file:
        starts = tuple(line.start for line in iter_lines(text)) or (0,)
        places = Places("line", starts, tuple(range(1, len(starts) + 1)))
    elif places.unit == "time" and part.first is not None:
        part = DocumentPart(seconds=(part.first, part.first if part.last is None else part.last))
    spans = [(0, len(text))] if part == WHOLE else _spans(places, of_file, part, text)
    if not spans:
        raise DocumentReferenceError(_nothing_there(document, places, part))
    lines: list[NumberedLine] = []
    for start, end in spans:
        number = places.number_at(start) or 1
        for line in iter_lines(text[start : end if is_file else trim_end(text, start, end)]):
            first, last = start + line.start, start + line.end
            words = text[first:last]
            if is_file:  # a number for each line, and there may be millions
                lines.append(NumberedLine(words, number, number, number))
                number += 1
                continue
            first += len(words) - len(words.lstrip())
            span = None if first == last else places.numbers_of(first, last)
            if span is None:
                lines.append(NumberedLine(words))
            else:
                cells = places.cells_of(first, last) if places.unit == "row" else None
                lines.append(NumberedLine(words, places.number_at(first), *span, cells))
    has_ending = spans[-1][1] == len(text) > 1 and text.endswith(("\n", "\r"))
    total = max(places.numbers, default=None)
    ending = "\n" if has_ending else ""
    return DocumentLines(document, tuple(lines), total, places.unit, ending, part)


def _spans(places: Places, of_file: DocumentPlaces, part: DocumentPart, text: str) -> list[_Span]:
    """Return the ranges of the text in a part of the file, in order and disjoint."""
    if part.seconds is not None:
        seconds = part.seconds
        found = [
            (at, to) for at, to, *ends in of_file.timed if _is_within(ends[0], ends[1], seconds)
        ]
    else:
        steps = zip(places.steps(), (*places.offsets[1:], len(text)), strict=True)
        found = [(step[0], to) for step, to in steps if _holds(part, *step[1:])]
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


def _holds(part: DocumentPart, number: int, line: int | None, area: str) -> bool:
    """Return whether a part contains this number, line of that cell, or row of that area."""
    if part.cells is not None:
        return _overlaps(part.cells, number, area)
    if part.lines is not None and (line is None or not part.lines[0] <= line <= part.lines[1]):
        return False
    is_after = part.first is None or number >= part.first
    return is_after and (part.last is None or number <= part.last)


def _overlaps(cells: str, row: int, area: str) -> bool:
    """Return whether a row of an area, ``Costs!A:F``, has some of these cells."""
    sheet, _, columns = area.rpartition("!")
    if cells in (sheet, sheet.strip("'").replace("''", "'")):
        return True
    least, most = ((len(one), one) for one in columns.split(":"))
    for found in re.finditer(AREA, cells):
        name, _, corners = found[0].rpartition("!")
        ends = [((len(one), one), int(at)) for one, at in _CORNER.findall(corners)]
        (left, top), (right, bottom) = ends[0], ends[-1]
        if name == sheet and top <= row <= bottom and left <= most and least <= right:
            return True
    return False


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


def _nothing_there(document: StoredDocument, places: Places, part: DocumentPart) -> str:
    if part.seconds is not None:
        return f"{document.path} has no speech at that time"
    if part.cells is not None:
        sheets = ", ".join(dict.fromkeys(area.rpartition("!")[0] for area in places.areas))
        return f"{document.path} has nothing in {part.cells}; its sheets are {sheets}"
    if part.lines is not None:
        return f"{document.path} has no text in those lines of {places.unit} {part.first}"
    least, most = min(places.numbers), max(places.numbers)
    asked = f"{1 if part.first is None else part.first}-{most if part.last is None else part.last}"
    return f"{document.path} has {places.unit}s {least}-{most}, not {asked}"
