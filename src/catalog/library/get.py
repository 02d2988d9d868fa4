"""Find documents, and parts of them, by what people type or copy from an output.

A document is given line by line, counted in its citations' units: lines, cells, rows, pages,
paragraphs, records or seconds. The map from its text to its file joins the maps of its passages.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.bounded_calls import check_time
from catalog.core.documents import listed
from catalog.core.errors import (
    DamagedDocumentError,
    DocumentNotFoundError,
    DocumentReferenceError,
    InputError,
)
from catalog.core.globs import Glob
from catalog.core.params import MAX_DOCUMENTS, MAX_PATTERN_CHARS, MAX_PATTERNS, MAX_TEXT_BYTES
from catalog.core.places import WITHIN, Places, Unit
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import iter_lines, trim_end
from catalog.library.names import (
    AREA,
    DOCID,
    WHOLE,
    DocumentPart,
    Names,
    Reading,
    readings,
    without_marks,
)
from catalog.store import Database, chunks
from catalog.store.chunks import StoredDocument
from catalog.store.filter_sql import DatasetNames
from catalog.store.listing import allowed_documents, list_source_ids
from catalog.store.manifest import paths_of_files
from catalog.store.restriction import Restriction

if TYPE_CHECKING:
    from sqlalchemy import Connection


_Span = tuple[int, int]
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
_AROUND = 15  # seconds before and after a linked one
_CORNER = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_FENCED = re.compile(r"(?:```[^\n]*\n)?(.*?)(?:\n```[^\n]*)?", re.DOTALL)
_SHOWN = 10  # names in a note
_SUGGESTIONS = 5
_ALIKE = 60  # percent of the letters
_MAX_COMPARED = 256  # characters of a name sought


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
    part, ``notes`` are remarks for the reader.
    """

    document: StoredDocument
    lines: tuple[NumberedLine, ...]
    total: int | None
    unit: Unit = "line"
    ending: str = ""
    part: DocumentPart = WHOLE
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
            for row in chunks.read_chunk_places(connection, document.source_doc_id):
                places, start = chunks.parse_places(row.places, row.page), row.start_offset
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
    total, ending = max(places.numbers, default=None), "\n" if has_ending else ""
    return DocumentLines(document, tuple(lines), total, places.unit, ending, part)


def _spans(places: Places, of_file: DocumentPlaces, part: DocumentPart, text: str) -> list[_Span]:
    """Return the ranges of the text in a part of the file, in order and disjoint."""
    if (seconds := part.seconds) is not None:
        found = [
            (at, to) for at, to, first, last in of_file.timed if _is_within(first, last, seconds)
        ]
    else:
        steps = zip(places.steps(), (*places.offsets[1:], len(text)), strict=True)
        found = [(step[0], to) for step, to in steps if _holds(part, *step[1:])]
    if part.lines is not None:  # a reader's fence is in the step of the line next to it
        fenced = (_FENCED.fullmatch(text, at, trim_end(text, at, to)) for at, to in found)
        found = [one.span(1) for one in fenced if one]
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


class NamedPart(NamedTuple):
    """A part of a document, and notes on how its name was read."""

    dataset: str
    path: str
    part: DocumentPart = WHOLE
    notes: tuple[str, ...] = ()

    def read(self, connection: Connection) -> DocumentLines:
        """Return its lines; raise ``DocumentNotFoundError`` if the document has gone."""
        document = chunks.find_by_path(connection, self.dataset, self.path)
        if document is None:
            raise DocumentNotFoundError(f"no document {self.path!r}")
        lines = cut_part(document, DocumentPlaces.read(connection, document), self.part)
        return replace(lines, notes=self.notes)


class _Named(NamedTuple):
    """A named document: the part of each of its files with text for the name, and its other files.

    Without a place in the name, only the first file is shown. ``total`` is the last line of a file
    of records.
    """

    parts: Sequence[NamedPart]
    others: tuple[str, ...] = ()
    total: int | None = None

    def read(self, connection: Connection) -> DocumentLines:
        """Return its text, the parts of several files one after the other: 1,000 at most, or 10 MB.

        Records of one file are counted as one text. Of a recording's files only the seconds are
        common to all.
        """
        read: list[DocumentLines] = []
        size, parts = 0, self.parts[: 1 if self.parts[0].part == WHOLE else MAX_DOCUMENTS]
        for part in parts:
            read.append(part.read(connection))
            size += len(read[-1].text.encode())
            if size > MAX_TEXT_BYTES:
                break
        first, *rest = read
        others = f"other files of the same document: {', '.join(self.others)}"
        notes = [*first.notes, *([others] if self.others else ())]
        if not rest:
            total = first.total if self.total is None else self.total
            return replace(first, total=total, notes=tuple(notes))
        what = "what is told of that time in" if self.total is None else "the records"
        paths = [one.document.path for one in rest]
        more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
        notes.insert(0, f"after blank lines, {what} {', '.join(paths[:_SHOWN])}{more}")
        if size <= MAX_TEXT_BYTES and len(read) < len(self.parts):
            first_left = self.parts[len(read)].part.first
            left = f"only the first {len(read):,} of {len(self.parts):,}"
            notes.insert(1, f"{left}; continue with line_start {first_left}")
        lines = tuple(chain(first.lines, *((NumberedLine(""), *one.lines) for one in rest)))
        if self.total is None:
            lines = tuple(line._replace(least=None, most=None) for line in lines)
        return replace(
            first,
            lines=lines,
            total=self.total,
            unit="time" if self.total is None else "record",
            ending="",
            notes=tuple(notes),
        )


def find_document(
    database: Database,
    reference: str,
    *,
    dataset: DatasetNames | None = None,
    line_start: int | None = None,
    line_end: int | None = None,
    seen: Scope = ALL,
) -> DocumentLines:
    """Return the document a reference names, or the part that is given or told in the reference.

    A link to a second means the passage around it, a time in a recording all that was said and
    shown then, lines of a file of records the records there. ``line_start`` and ``line_end`` win
    over the reference; in a document without lines they are its pages, cells, paragraphs or
    seconds. Raises :class:`DocumentNotFoundError` with near misses, and :class:`InputError` for a
    name that several documents share, and for a place beyond the end.
    """
    given, reference = DocumentPart(line_start, line_end), storable(reference)
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        found = _find_named(named, reference, given)
        if not found:
            name = next((way.name for way in readings(reference) if way.form == "colon"), None)
            name = name or without_marks(reference)
            several = "; get takes one document, multi_get several" if "," in reference else ""
            raise DocumentNotFoundError(f"no document {name!r}{several}", _near(named, name))
        if len(found) > 1:
            ids = ", ".join(f"{one.parts[0].dataset}:{one.parts[0].path}" for one in found)
            raise DocumentReferenceError(f"{reference!r} names several documents: {ids}")
        return found[0].read(connection)


def find_parts(
    database: Database, dataset: DatasetNames, patterns: Iterable[str], seen: Scope = ALL
) -> tuple[list[NamedPart], list[DocumentNotFoundError]]:
    """Return the parts of documents that the patterns name, and an error for each without any.

    A pattern is what :func:`resolve_documents` takes, or has a place as in :func:`find_document`:
    then each file of a recording has its own part. Documents that are not ``seen`` are ignored.
    Raises an error with near misses if no pattern has a document.
    """
    parts: dict[tuple[str, str, DocumentPart], NamedPart] = {}
    missing: list[DocumentNotFoundError] = []
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        for pattern, ids in _match_each(named, patterns):
            found = [NamedPart(of, path) for of, _, path in (one.partition(":") for one in ids)]
            for one in [] if ids else _find_named(named, pattern, WHOLE):
                found += one.parts
            if not found:
                missing.append(_no_document(named, pattern))
            parts |= {part[:3]: part for part in found}
    if missing and not parts:  # one error with the problems and the near misses of all
        near = dict.fromkeys(chain.from_iterable(error.suggestions for error in missing))
        problems = [error.problem for error in missing[:_SUGGESTIONS]]
        more = len(missing) - len(problems)
        problems += [f"{more:,} more names"] if more else []
        raise DocumentNotFoundError("; ".join(problems), list(near)[: 2 * _SUGGESTIONS])
    return list(parts.values()), missing


def resolve_documents(
    database: Database,
    dataset: DatasetNames,
    patterns: Iterable[str],
    *,
    seen: Scope = ALL,
    near: Restriction | None = None,
) -> list[str]:
    """Return the source document ids that paths, globs (as in ``.gitignore``) and docids name.

    So does every other name (see :class:`~catalog.library.names.Names`); it names all documents
    made from the same original. Raises :class:`DocumentNotFoundError` for a pattern without a
    document, with near misses among those that ``near`` lets through, and :class:`InputError` for
    more than 100 that are no paths.
    """
    ids: dict[str, None] = {}
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        for pattern, matches in _match_each(named, patterns):
            found = matches or [f"{n.dataset}:{path}" for n in named for path in n.resolve(pattern)]
            if not found:
                raise _no_document(named, pattern, near)
            ids |= dict.fromkeys(found)
        return [one for names in named for one in names.documents.whole_ids(ids)]


def find_named(connection: Connection, dataset: str, name: str) -> list[str]:
    """Return the paths of exactly one document: by path, source or file, or by ``#docid``.

    Raises :class:`InputError` if there is none, with near misses.
    """
    names = Names(connection, dataset)
    paths = paths_of_files(connection, dataset, [names.own(name)]) or names.exactly(Reading(name))
    if not paths:
        raise DocumentNotFoundError(f"no document {name!r}", _near([names], names.own(name)))
    return paths


def _names(connection: Connection, dataset: DatasetNames | None, seen: Scope) -> list[Names]:
    if dataset is None:
        dataset = tuple(chunks.list_dataset_names(connection))
    every = (dataset,) if isinstance(dataset, str) else dataset
    return [Names(connection, one, seen) for one in every]


def _match_each(named: Sequence[Names], patterns: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each pattern with the ids of its documents, an empty list for any other kind of name.

    An id is that of its dataset's document alone, a path those of every dataset.
    """
    others = 0
    for pattern in dict.fromkeys(patterns):
        ids = [f"{names.dataset}:{pattern}" for names in named if pattern in names.paths]
        dataset, _, path = pattern.partition(":")
        if any(names.dataset == dataset and path in names.paths for names in named):
            ids = [pattern]
        if not ids:
            others += 1
            if others > MAX_PATTERNS:
                raise InputError(
                    f"at most {MAX_PATTERNS} patterns and #docids are allowed; give paths instead"
                )
            if len(pattern) > MAX_PATTERN_CHARS:
                raise InputError(f"{len(pattern):,} characters are too many for a path or pattern")
            check_time()
            ids = [f"{one.dataset}:{path}" for one in named for path in _match(one, pattern)]
        yield pattern, ids


def _match(names: Names, pattern: str) -> list[str]:
    """Return the paths of an original, or those that a docid or a glob matches."""
    name = names.own(pattern)
    if DOCID.fullmatch(name) is not None:
        return names.exactly(Reading(name))
    if made := names.only_seen(names.documents.made_of(name)):
        return made
    if name.startswith("[source: "):  # its brackets are not a glob's
        return []
    glob, groups = Glob.compile(name), names.documents.groups.values()
    originals = {member.path: member.names for group in groups for member in group}
    found = dict.fromkeys(
        path for path in names.paths if any(map(glob.matches, (path, *originals.get(path, ()))))
    )
    return list(found | dict.fromkeys(names.records(glob.matches)))


def _find_named(named: Sequence[Names], reference: str, given: DocumentPart) -> list[_Named]:
    """Return the documents of that name; of several, those that have the place in it.

    A place that no document of that name can have is an error after a colon, and elsewhere a note
    on the whole document.
    """
    unfit: list[tuple[Reading, list[StoredDocument]]] = []
    for is_exact, way in product((True, False), list(readings(reference))):
        if not is_exact and (records := _find_records(named, way, given)):
            return records
        fitting: list[tuple[Names, _Named]] = []
        for names in named:
            for files in _files_of(names, way, is_exact=is_exact):
                if one := _cut_named(names, files, way, given, is_exact=is_exact):
                    fitting.append((names, one))
                elif way.form != "sheet":  # else it may be an attachment that the mail lacks
                    unfit.append((way, files))
        if len(fitting) > 1:
            fitting = [pair for pair in fitting if _has_text(*pair)] or fitting
        if fitting:
            return [one for _, one in fitting]
    for way, (first, *_) in unfit:
        if way.form == "colon":
            unit = DocumentPlaces.read(named[0].connection, first).places.unit
            told = f"{first.path} counts {unit}s: a part is {first.path}:12-20"
            raise DocumentReferenceError(told)
    note = f"the place in {reference!r} cannot be read, so this is the whole document"
    return [_piece(files, WHOLE, note) for way, files in unfit if way == unfit[0][0]]


def _find_records(named: Sequence[Names], way: Reading, given: DocumentPart) -> list[_Named]:
    """Return the records at a place of a file of records, as one document for each file.

    Raises an error if there are none, or for a file of several documents without a place.
    """
    at_place = [(names, *found) for names in named if (found := names.records_at(way, given))]
    documents = [
        _Named(
            [NamedPart(one.dataset, path, DocumentPart(at, at)) for path, at in records], (), total
        )
        for one, records, total in at_place
        if total
    ]
    if at_place and not documents:
        names = at_place[-1][0]
        file = names.own(way.name)
        paths = names.records(file.__eq__)
        one_of = f"{file}:12 is the one in line 12, {file}:12-20 those of these lines"
        kind = "records"
        if WITHIN in paths[0]:
            kind, one_of = "documents", f"one of them is {paths[0]}"
        raise DocumentReferenceError(
            f"{file} has {len(paths):,} {kind}: {one_of}, multi_get {file} returns all"
        )
    return documents


def _files_of(names: Names, way: Reading, *, is_exact: bool) -> Iterator[list[StoredDocument]]:
    """Yield the files of each document with that name, the first to show first."""
    paths = names.exactly(way) if is_exact else names.otherwise(way)
    while paths:
        whole = () if is_exact else names.only_seen(names.documents.whole(paths[:1]))
        in_order = dict.fromkeys((paths[0], *whole))
        read = (chunks.find_by_path(names.connection, names.dataset, path) for path in in_order)
        yield sorted(
            filter(None, read), key=lambda file: way.form == "title" and file.title != way.name
        )
        paths = [path for path in paths if path not in in_order]


def _cut_named(
    names: Names,
    files: Sequence[StoredDocument],
    way: Reading,
    given: DocumentPart,
    *,
    is_exact: bool,
) -> _Named | None:
    """Return the place of the document with these files; ``None`` if it cannot have it.

    A time is that of all its files, or of the passage around it; any other place that of the first
    file that has it.
    """
    if given != WHOLE or way.parts is None:
        return _piece(files, given)
    read = [(file, DocumentPlaces.read(names.connection, file)) for file in files]
    for file, places in read:
        units = ("moment", "time", *(() if is_exact else ("second",))) if places.timed else ()
        fits = (way.parts.get(unit) for unit in (*units, places.places.unit, "any"))
        part = next(filter(None, fits), None)
        if part is None:
            continue
        if part.seconds is None:
            return _piece([file, *(other for other in files if other is not file)], part)
        seconds = part.seconds
        if "moment" in way.parts:
            around = (one.passage_at(seconds[0]) for _, one in read if one.has_text_at(seconds))
            seconds = next(around, seconds)
        telling = [file for file, one in read if one.has_text_at(seconds)] or [files[0]]
        at = DocumentPart(seconds=seconds)
        others = tuple(file.path for file in files if file not in telling)
        parts = [NamedPart(file.dataset, file.path, at) for file in telling]
        return _Named(parts, others)
    return None


def _piece(files: Sequence[StoredDocument], part: DocumentPart, *notes: str) -> _Named:
    """Return the part of the first of a document's files, or the whole of all."""
    told = files if part == WHOLE else files[:1]
    parts = [NamedPart(file.dataset, file.path, part, notes) for file in told]
    return _Named(parts, tuple(file.path for file in files[1:]))


def _has_text(names: Names, named: _Named) -> bool:
    try:
        return bool(named.read(names.connection).lines)
    except DocumentReferenceError:
        return False


def _no_document(
    named: Sequence[Names], pattern: str, within: Restriction | None = None
) -> DocumentNotFoundError:
    where = " or ".join(repr(names.dataset) for names in named)
    near = _near(named, pattern, within)
    return DocumentNotFoundError(f"no document of {where} matches {pattern!r}", near)


def _near(named: Sequence[Names], name: str, within: Restriction | None = None) -> list[str]:
    """Return references that may have been meant, of documents that ``within`` lets through."""
    allowed: Collection[str] | None = None
    if within is not None and not within.is_whole_dataset:
        allowed = list_source_ids(named[0].connection, allowed_documents(within))
    text = name.removeprefix("#").casefold()
    outer = text.rpartition(WITHIN)[0]
    inside: list[str] = []
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for dataset, path in ((names.dataset, path) for names in named for path in names.paths):
        reference = f"{dataset}:{path}"
        if allowed is not None and reference not in allowed:
            continue
        folded = reference.casefold()
        if text in folded or (outer and f"{outer}{WITHIN}" in folded):
            inside.append(reference)
        for form in {reference, path, path.rpartition("/")[2]}:
            by_name[form.casefold()].append(reference)
    return list(dict.fromkeys((*inside, *find_alike(text, by_name))))[:_SUGGESTIONS]


def find_alike(text: str, by_name: Mapping[str, Sequence[str]]) -> list[str]:
    """Return up to five of the items whose names are most like the text, in any case."""
    from rapidfuzz import fuzz, process

    near = process.extract(
        text[:_MAX_COMPARED],
        by_name.keys(),
        scorer=fuzz.ratio,
        processor=str.casefold,
        score_cutoff=_ALIKE,
        limit=_SUGGESTIONS,
    )
    items = (item for name, *_ in near for item in by_name[name])
    return list(dict.fromkeys(items))[:_SUGGESTIONS]
