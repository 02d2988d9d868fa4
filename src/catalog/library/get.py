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
from itertools import chain
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
from catalog.core.ids import source_doc_id
from catalog.core.params import MAX_DOCUMENTS, MAX_PATTERN_CHARS, MAX_PATTERNS, MAX_TEXT_BYTES
from catalog.core.places import WITHIN, Places, Unit
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import iter_lines, trim_end
from catalog.library.names import AREA, DOCID, WHOLE, DocumentPart, Names, Reading, readings
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
    """A line: the number where it begins in the file, its least and greatest, a row's cells.

    There are no numbers for a blank line of extracted text.
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
    the last line, if the part goes to the end of a document that has one.
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
        """Return the JSON form; ``line_…`` are lines of a file with lines, or of a cell."""
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
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class DocumentPlaces:
    """The map of a whole document; ``timed`` has offsets and seconds of its timed stretches."""

    places: Places
    timed: Collection[tuple[int, int, float, float]] = ()

    def has_text_at(self, seconds: _Span) -> bool:
        """Return whether something is said or shown in these seconds."""
        return any(_is_within(first, last, seconds) for _, _, first, last in self.timed)

    @classmethod
    def read(cls, connection: Connection, source_doc_id: str) -> DocumentPlaces:
        """Join the passages' places; raise ``DamagedDocumentError`` for a damaged document."""
        unit: Unit = "line"
        steps: list[tuple[int, int, int | None, str]] = []
        timed: dict[tuple[int, int, float, float], None] = {}
        covered = 0
        try:
            for row in chunks.read_chunk_places(connection, source_doc_id):
                places, start = chunks.parse_places(row.places, row.page), row.start_offset
                unit, own = places.unit, places.steps()
                if unit in ("page", "slide"):
                    breaks = (0, *json.loads(row.page_breaks or "[]"))
                    own = ((at, row.page + count, None, "") for count, at in enumerate(breaks))
                steps += (  # passages may share their ends
                    (start + at, *step) for at, *step in own if start + at >= covered
                )
                for first, last, begin, end, *_ in json.loads(row.cues or "[]"):
                    timed[start + first, start + last, begin, end] = None
                covered = max(covered, row.end_offset)
        except _UNREADABLE as error:
            raise DamagedDocumentError(source_doc_id, "a passage") from error
        columns = zip(*steps, strict=True) if steps else ((), (), (), ())
        return cls(Places(unit, *columns), timed)


def cut_part(
    document: StoredDocument, of_file: DocumentPlaces, part: DocumentPart
) -> DocumentLines:
    """Return a part of a document; raise ``DocumentReferenceError`` if it has nothing there."""
    text, places = document.text, of_file.places
    is_file = places.unit == "line" and not places.offsets
    if is_file:
        starts = tuple(line.start for line in iter_lines(text)) or (0,)
        places = Places("line", starts, tuple(range(1, len(starts) + 1)))
    elif places.unit == "time" and part.first is not None:
        part = DocumentPart(seconds=(part.first, part.first if part.last is None else part.last))
    spans = [(0, len(text))] if part == WHOLE else _spans(places, of_file, part, text)
    if not spans:
        raise DocumentReferenceError(f"{document.path} {_nothing_there(places, part)}")
    lines: list[NumberedLine] = []
    for start, end in spans:
        number = places.number_at(start) or 1
        for line in iter_lines(text[start : end if is_file else trim_end(text, start, end)]):
            first, last = start + line.start, start + line.end
            words = text[first:last]
            if is_file:  # a number for each line, and there may be millions
                lines.append(NumberedLine(words, number, number, number))
                number += 1
            elif not (stripped := words.lstrip()):
                lines.append(NumberedLine(words))
            else:
                first = last - len(stripped)
                least, most = places.numbers_of(first, last) or (None, None)
                cells = places.cells_of(first, last) if places.unit == "row" else None
                lines.append(NumberedLine(words, places.number_at(first), least, most, cells))
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
    """Return whether a stretch of time overlaps a range, and does not just touch it."""
    begin, end = seconds  # a clock drops fractions, so the last second may count as a whole one
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


def _nothing_there(places: Places, part: DocumentPart) -> str:
    if part.seconds is not None:
        return "has no speech at that time"
    if part.cells is not None:
        sheets = ", ".join(dict.fromkeys(area.rpartition("!")[0] for area in places.areas))
        return f"has nothing in {part.cells}; its sheets are {sheets}"
    if part.lines is not None:
        return f"has no text in those lines of {places.unit} {part.first}"
    least, most = min(places.numbers), max(places.numbers)
    first, last = (1 if part.first is None else part.first), part.last
    return f"has {places.unit}s {least}-{most}, not {first}-{most if last is None else last}"


class NamedPart(NamedTuple):
    """A part of a document, and notes on its name; ``total`` is the last line of its records."""

    dataset: str
    path: str
    part: DocumentPart = WHOLE
    notes: tuple[str, ...] = ()
    total: int | None = None

    def read(self, connection: Connection) -> DocumentLines:
        """Return its lines; raise ``DocumentNotFoundError`` if the document has gone."""
        document = chunks.find_by_path(connection, self.dataset, self.path)
        if document is None:
            raise DocumentNotFoundError(f"no document {self.path!r}")
        lines = cut_part(document, self.places(connection), self.part)
        return replace(lines, total=self.total or lines.total, notes=self.notes)

    def places(self, connection: Connection) -> DocumentPlaces:
        """Return the map of the whole document."""
        return DocumentPlaces.read(connection, source_doc_id(self.dataset, self.path))


def _read_together(connection: Connection, parts: Sequence[NamedPart]) -> DocumentLines:
    """Return the parts one after the other, 1,000 at most, or 10 MB; of whole files the first."""
    read: list[DocumentLines] = []
    size = 0
    for part in parts[: 1 if parts[0].part == WHOLE else MAX_DOCUMENTS]:
        read.append(part.read(connection))
        size += len(read[-1].text.encode())
        if size > MAX_TEXT_BYTES:
            break
    first, *rest = read
    if not rest:
        return first
    lines = tuple(chain(first.lines, *((NumberedLine(""), *one.lines) for one in rest)))
    paths = [one.document.path for one in rest[:_SHOWN]] + ["…"] * (len(rest) > _SHOWN)
    notes = (f"after blank lines, the text in {', '.join(paths)}", *first.notes)
    if len(read) < len(parts):
        notes += (f"continue with line_start {parts[len(read)].part.first}",)
    if parts[0].total is not None:
        return replace(first, lines=lines, unit="record", ending="", notes=notes)
    lines = tuple(line._replace(least=None, most=None) for line in lines)
    return replace(first, lines=lines, total=None, unit="time", ending="", notes=notes)


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

    A link to a second means also 15 seconds before and after it, a time in a recording all that was
    said and shown then. ``line_start`` and ``line_end`` win over the reference; without lines they
    are pages, cells, paragraphs or seconds. Raises :class:`InputError` kinds for an unknown name,
    with near misses, one that several documents share, and a place beyond the end.
    """
    given, reference = DocumentPart(line_start, line_end), storable(reference)
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        found = _find_named(named, reference, given)
        if not found:
            first, *ways = readings(reference)
            name = next((way.name for way in ways if way.form == "colon"), first.name)
            several = "; get takes one document, multi_get several" if "," in reference else ""
            raise DocumentNotFoundError(f"no document {name!r}{several}", _near(named, name))
        if len(found) > 1:
            ids = ", ".join(f"{one.dataset}:{one.path}" for one, *_ in found)
            raise DocumentReferenceError(f"{reference!r} names several documents: {ids}")
        return _read_together(connection, found[0])


def find_parts(
    database: Database, dataset: DatasetNames, patterns: Iterable[str], seen: Scope = ALL
) -> tuple[list[NamedPart], list[DocumentNotFoundError]]:
    """Return the parts of documents that the patterns name, and an error for each without any.

    A pattern is what :func:`resolve_documents` takes, or has a place as in :func:`find_document`:
    then each file of a recording has its own part. If no pattern has a document, one error is
    raised.
    """
    parts: dict[tuple[str, str, DocumentPart], NamedPart] = {}
    missing: list[DocumentNotFoundError] = []
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        for pattern, ids in _match_each(named, patterns):
            found = [NamedPart(of, path) for of, _, path in (one.partition(":") for one in ids)]
            found = found or [*chain.from_iterable(_find_named(named, pattern, WHOLE))]
            if not found:
                missing.append(_no_document(named, pattern))
            parts |= {(part.dataset, part.path, part.part): part for part in found}
    if missing and not parts:  # one error with the problems and the near misses of all
        near = dict.fromkeys(chain.from_iterable(error.suggestions for error in missing))
        problems = "; ".join(error.problem for error in missing[:_SUGGESTIONS])
        raise DocumentNotFoundError(problems, list(near)[: 2 * _SUGGESTIONS])
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

    So does every other name; it names all documents made from the same original. Raises
    :class:`DocumentNotFoundError` for a pattern without a document, with near misses among those
    that ``near`` lets through, and :class:`InputError` for more than 100 that are no paths.
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
    """Return the paths of exactly one document: by path, source or file, or by ``#docid``."""
    names = Names(connection, dataset)
    paths = paths_of_files(connection, dataset, [names.own(name)]) or names.exactly(Reading(name))
    if not paths:
        raise DocumentNotFoundError(f"no document {name!r}", _near([names], name))
    return paths


def _names(connection: Connection, dataset: DatasetNames | None, seen: Scope) -> list[Names]:
    if dataset is None:
        dataset = tuple(chunks.list_dataset_names(connection))
    every = (dataset,) if isinstance(dataset, str) else dataset
    return [Names(connection, one, seen) for one in every]


def _match_each(named: Sequence[Names], patterns: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each pattern with the ids of its documents, none for any other kind of name."""
    others = 0
    for pattern in dict.fromkeys(map(storable, patterns)):
        ids = [f"{names.dataset}:{pattern}" for names in named if pattern in names.paths]
        dataset, _, path = pattern.partition(":")
        if any(names.dataset == dataset and path in names.paths for names in named):
            ids = [pattern]
        if not ids:
            others += 1
            if others > MAX_PATTERNS:
                few = f"at most {MAX_PATTERNS} patterns and #docids are allowed"
                raise InputError(f"{few}; give paths instead")
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
    glob, groups = Glob.compile(re.sub(r"^\./", "/", name)), names.documents.groups.values()
    originals = {member.path: member.names for group in groups for member in group}
    found = dict.fromkeys(
        path for path in names.paths if any(map(glob.matches, (path, *originals.get(path, ()))))
    )
    return list(found | dict.fromkeys(names.records(glob.matches)))


def _find_named(
    named: Sequence[Names], reference: str, given: DocumentPart
) -> list[list[NamedPart]]:
    """Return the parts of each document of that name; of several, of those that have the place."""
    note = f"the place in {reference!r} cannot be read, so this is the whole document"
    unfit: list[tuple[Reading, list[NamedPart]]] = []
    ways = readings(reference)  # a path, in any reading, comes before every other name
    for way in sorted(ways, key=lambda way: not any(names.exactly(way) for names in named)):
        exact = [names for names in named if names.exactly(way)]
        if not exact and (records := _find_records(named, way, given)):
            return records
        fitting: list[list[NamedPart]] = []
        for names in exact or named:
            for files in names.documents_of(way):
                if parts := _cut_named(names, files, way, given):
                    fitting.append(parts)
                elif way.form != "sheet":  # else it may be an attachment that the mail lacks
                    unfit.append((way, _parts(names, files, WHOLE, (), note)))
        if len(fitting) > 1:
            fitting = [one for one in fitting if _has_text(named[0].connection, one)] or fitting
        if fitting:
            return fitting
    for way, (first, *_) in unfit:
        if way.form == "colon":
            unit, path = first.places(named[0].connection).places.unit, first.path
            raise DocumentReferenceError(f"{path} counts {unit}s: a part is {path}:12-20")
    return [parts for way, parts in unfit if way == unfit[0][0]]


def _find_records(
    named: Sequence[Names], way: Reading, given: DocumentPart
) -> list[list[NamedPart]]:
    """Return the records at a place of each file of that name; without any there is an error."""
    at_place = [(names, *found) for names in named if (found := names.records_at(way, given))]
    if at_place and not any(total for *_, total in at_place):
        names, file = at_place[-1][0], at_place[-1][0].own(way.name)
        paths = names.records(file.__eq__)
        few = f"one of them is {paths[0]}, {file}:12 the record in line 12, multi_get {file} all"
        raise DocumentReferenceError(f"{file} has {len(paths):,} documents: {few}")
    return [
        [NamedPart(of.dataset, path, DocumentPart(at, at), (), total) for path, at in records]
        for of, records, total in at_place
        if total
    ]


def _cut_named(
    names: Names, files: Sequence[str], way: Reading, given: DocumentPart
) -> list[NamedPart]:
    """Return the place of the document with these files: a time in all, another in the first."""
    if given != WHOLE or way.parts is None:
        return _parts(names, files, given)
    read = {one: NamedPart(names.dataset, one).places(names.connection) for one in files}
    for path, places in read.items():
        units = ("moment", "time", "any" if names.exactly(way) else "second")
        fits = map(way.parts.get, (*(units if places.timed else ()), places.places.unit, "any"))
        part = next(filter(None, fits), None)
        if part is None:
            continue
        if (seconds := part.seconds) is None:
            return _parts(names, sorted(files, key=lambda one: one != path), part)
        telling = [file for file, one in read.items() if one.has_text_at(seconds)]
        if "moment" in way.parts:
            seconds = max(0, seconds[0] - _AROUND), seconds[1] + _AROUND
        return _parts(names, files, DocumentPart(seconds=seconds), telling)
    return []


def _parts(
    names: Names, files: Sequence[str], part: DocumentPart, telling: Sequence[str] = (), *notes: str
) -> list[NamedPart]:
    told = telling or (files if part == WHOLE else files[:1])
    if rest := files[1:] if part == WHOLE else [one for one in files if one not in told]:
        notes += (f"other files of the same document: {', '.join(rest)}",)
    parts = [NamedPart(names.dataset, path, part) for path in told]
    return [parts[0]._replace(notes=notes), *parts[1:]]


def _has_text(connection: Connection, parts: Sequence[NamedPart]) -> bool:
    try:
        return bool(_read_together(connection, parts).lines)
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
    text = named[0].own(name).removeprefix("#").casefold()
    outer = text.rpartition(WITHIN)[0]
    inside, by_name = list[str](), defaultdict[str, list[str]](list)
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

    how: Any = {"scorer": fuzz.ratio, "processor": str.casefold, "score_cutoff": _ALIKE}
    near = process.extract(text[:_MAX_COMPARED], by_name.keys(), limit=_SUGGESTIONS, **how)
    items = (item for name, *_ in near for item in by_name[name])
    return list(dict.fromkeys(items))[:_SUGGESTIONS]
