"""Find documents, and parts of them, by what people type or copy from an output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from catalog.core.bounded_calls import check_time
from catalog.core.errors import (
    DocumentNotFoundError,
    DocumentReferenceError,
    InputError,
)
from catalog.core.globs import Glob
from catalog.core.params import MAX_DOCUMENTS, MAX_PATTERN_CHARS, MAX_PATTERNS, MAX_TEXT_BYTES
from catalog.core.places import WITHIN, Unit
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.library.document_lines import (
    DocumentLines,
    DocumentPlaces,
    NumberedLine,
    cut_part,
)
from catalog.library.names import (
    DOCID,
    WHOLE,
    DocumentPart,
    Names,
    Reading,
    readings,
    without_marks,
)
from catalog.store import Database
from catalog.store.chunks import (
    StoredDocument,
    find_by_path,
    list_dataset_names,
)
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import DatasetNames
from catalog.store.listing import allowed_documents, list_source_ids

if TYPE_CHECKING:
    from sqlalchemy import Connection


_SHOWN = 10  # names in a note
_SUGGESTIONS = 5
_ALIKE = 60  # percent of the letters
_MAX_COMPARED = 256  # characters of a name sought


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """A named document: dataset, path and part of each of its files with text for the name.

    Without a place in the name, only the first file is given; ``joined`` describes the parts of
    several files, ``total`` is the last line of a file of records.
    """

    pieces: Sequence[tuple[str, str, DocumentPart]]
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    joined: str = ""
    total: int | None = None

    def lines(self, connection: Connection) -> DocumentLines:
        """Return its text, the parts of several files one after the other: 1,000 at most, or 10 MB.

        Records of one file are counted as one text. Of a recording's files only the seconds are
        common to all. Raises ``DocumentNotFoundError`` if the first of them has gone.
        """
        parts: list[DocumentLines] = []
        lines: list[NumberedLine] = []
        size = 0
        for dataset, path, part in self.pieces[: MAX_DOCUMENTS if self.joined else 1]:
            document = find_by_path(connection, dataset, path)
            if document is None:
                raise DocumentNotFoundError(f"no document {path!r}", [])
            parts.append(cut_part(document, DocumentPlaces.read(connection, document), part))
            lines += (*([NumberedLine("")] if lines else ()), *parts[-1].lines)
            size += len(parts[-1].text.encode())
            if size > MAX_TEXT_BYTES:
                break
        if not parts:  # a damaged row of the store
            raise DocumentNotFoundError("no document of that name can be read", [])
        first, notes = parts[0], list(self.notes)
        if len(parts) == 1:
            total = first.total if self.total is None else self.total
            return replace(first, total=total, others=self.others, notes=self.notes)
        paths = [part.document.path for part in parts[1:]]
        more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
        notes.append(f"after blank lines, {self.joined} {', '.join(paths[:_SHOWN])}{more}")
        if size <= MAX_TEXT_BYTES and len(parts) < len(self.pieces):
            after = self.pieces[len(parts)][2].first
            notes.append(
                f"only the first {len(parts):,} of {len(self.pieces):,}; continue with line_start "
                f"{after}"
            )
        if self.total is None:
            lines = [line._replace(least=None, most=None) for line in lines]
        unit: Unit = "time" if self.total is None else "record"
        return replace(
            first,
            lines=tuple(lines),
            total=self.total,
            unit=unit,
            ending="",
            others=self.others,
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
    """Return the document a reference names: whole, or the lines given or after its last colon.

    The place of a link, a citation or a passage's header counts the same; in a recording it is the
    passage around its second. ``dataset`` names one or several to look in, ``None`` all. The name
    of a file that several documents were made from returns the first of them; a time in a
    recording, all that was said and shown then; lines of a file of records, the records there.
    Lines that are given win over those in the reference; for a document without lines they are its
    pages, cells, paragraphs or seconds. A document that is not ``seen`` is as one that is not
    there. Raises :class:`DocumentNotFoundError` with near misses, and :class:`InputError` for a
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
            ids = ", ".join(f"{name}:{path}" for name, path, _ in (one.pieces[0] for one in found))
            raise DocumentReferenceError(f"{reference!r} names several documents: {ids}")
        return found[0].lines(connection)


def find_parts(
    database: Database, dataset: DatasetNames, patterns: Iterable[str], seen: Scope = ALL
) -> tuple[list[tuple[str, DocumentPart, tuple[str, ...]]], list[DocumentNotFoundError]]:
    """Return the ids of documents, the part of each that the patterns name, and notes on it.

    The second list has an error with near misses for each pattern without a document.

    A pattern is what :func:`resolve_documents` takes, or has a place as in :func:`find_document`:
    then each file of a recording has its own part. Documents that are not ``seen`` are ignored.
    Raises the same if no pattern has a document.
    """
    parts: dict[tuple[str, DocumentPart], tuple[str, ...]] = {}
    missing: list[DocumentNotFoundError] = []
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        for pattern, ids in _match_each(named, patterns):
            parts |= {(id_, WHOLE): () for id_ in ids}
            found = [] if ids else _find_named(named, pattern, WHOLE)
            if not ids and not found:
                missing.append(_no_document(named, pattern))
            for one in found:
                parts |= {(f"{of}:{path}", part): one.notes for of, path, part in one.pieces}
    if missing and not parts:
        raise missing[0] if len(missing) == 1 else _none_of(missing)
    return [(*part, notes) for part, notes in parts.items()], missing


def read_part(database: Database, source_doc_id: str, part: DocumentPart) -> DocumentLines:
    """Return a part of a document; raise ``DocumentNotFoundError`` for an unknown id."""
    with database.read() as connection:
        dataset, _, path = source_doc_id.partition(":")
        return NamedDocument([(dataset, path, part)]).lines(connection)


def resolve_documents(
    database: Database,
    dataset: DatasetNames,
    patterns: Iterable[str],
    *,
    whole: bool = False,
    seen: Scope = ALL,
    near: Restriction | None = None,
) -> list[str]:
    """Return the source document ids that paths, globs (as in ``.gitignore``) and docids name.

    So does every other name (see :class:`~catalog.library.names.Names`); the name of an original
    names all documents made from it. With ``whole`` any name includes those. A document that is not
    ``seen`` is ignored. Raises :class:`DocumentNotFoundError` for a pattern without a document,
    with near misses among the documents that ``near`` lets through, and :class:`InputError` for one
    that cannot name any, such as ``!``, and for more than 100 that are no paths.
    """
    source_doc_ids: dict[str, None] = {}
    with database.read() as connection:
        named = _names(connection, dataset, seen)
        for pattern, matches in _match_each(named, patterns):
            ids = matches or [
                f"{names.dataset}:{path}" for names in named for path in names.resolve(pattern)
            ]
            if not ids:
                raise _no_document(named, pattern, near)
            source_doc_ids |= dict.fromkeys(ids)
        if whole:
            wholes = (names.documents.whole_ids(source_doc_ids) for names in named)
            return list(chain.from_iterable(wholes))
    return list(source_doc_ids)


def _names(connection: Connection, dataset: DatasetNames | None, seen: Scope) -> list[Names]:
    if dataset is None:
        dataset = tuple(list_dataset_names(connection))
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
        if ids:
            yield pattern, ids
            continue
        others += 1
        if others > MAX_PATTERNS:
            raise InputError(
                f"at most {MAX_PATTERNS} patterns and #docids are allowed; give paths instead"
            )
        if len(pattern) > MAX_PATTERN_CHARS:
            raise InputError(f"{len(pattern):,} characters are too many for a path or pattern")
        check_time()
        yield (
            pattern,
            [f"{names.dataset}:{path}" for names in named for path in _match(names, pattern)],
        )


def _match(names: Names, pattern: str) -> list[str]:
    """Return the paths of an original, or those that a docid or a glob matches."""
    name = pattern.removeprefix(f"{names.dataset}:")
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


def _find_named(named: Sequence[Names], reference: str, given: DocumentPart) -> list[NamedDocument]:
    """Return the documents of that name; of several, those that have the place in it.

    A place that no document of that name can have is an error after a colon, and elsewhere a note
    on the whole document.
    """
    ways, unfit = list(readings(reference)), list[tuple[Reading, list[StoredDocument]]]()
    for is_exact in (True, False):
        for way in ways:
            records = None if is_exact else _find_records(named, way, given)
            if records is not None:
                return records
            fitting: list[tuple[Names, NamedDocument]] = []
            for names in named:
                for files in _files_of(names, way, is_exact=is_exact):
                    one = _cut_named(names, files, way, given, is_exact=is_exact)
                    if one is not None:
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
    return [_piece(files, WHOLE, (note,)) for way, files in unfit if way == unfit[0][0]]


def _find_records(
    named: Sequence[Names], way: Reading, given: DocumentPart
) -> list[NamedDocument] | None:
    """Return the records at a place of a file of records, as one document for each file."""
    found: list[NamedDocument] = []
    is_of_records: Names | None = None
    for names in named:
        at_place = names.records_at(way, given)
        if at_place is None:
            continue
        is_of_records = names
        records, total = at_place
        if records:
            pieces = [(names.dataset, path, DocumentPart(line, line)) for path, line in records]
            found.append(NamedDocument(pieces, joined="the records", total=total))
    if is_of_records is not None and not found:
        _refuse_whole(is_of_records, way.name.removeprefix(f"{is_of_records.dataset}:"))
    return found if is_of_records else None


def _refuse_whole(names: Names, file: str) -> None:
    """Raise an error if the name is that of a file of several documents."""
    paths = names.records(file.__eq__)
    if paths:
        one_of = f"{file}:12 is the one in line 12, {file}:12-20 those of these lines"
        kind = "records"
        if WITHIN in paths[0]:
            kind, one_of = "documents", f"one of them is {paths[0]}"
        raise DocumentReferenceError(
            f"{file} has {len(paths):,} {kind}: {one_of}, multi_get {file} returns all"
        )


def _files_of(names: Names, way: Reading, *, is_exact: bool) -> Iterator[list[StoredDocument]]:
    """Yield the files of each document with that name, the first to show first."""
    paths = names.exactly(way) if is_exact else names.otherwise(way)
    own = way.name.removeprefix(f"{names.dataset}:")
    is_file = not is_exact and way.form not in ("sheet", "title")
    if paths and is_file and not names.documents.named(own):
        _refuse_whole(names, own)
    while paths:
        whole = () if is_exact else names.only_seen(names.documents.whole(paths[:1]))
        in_order = dict.fromkeys((paths[0], *whole))
        read = (find_by_path(names.connection, names.dataset, path) for path in in_order)
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
) -> NamedDocument | None:
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
        return NamedDocument(
            [(file.dataset, file.path, DocumentPart(seconds=seconds)) for file in telling],
            others=tuple(file.path for file in files if file not in telling),
            joined="what is told of that time in",
        )
    return None


def _piece(
    files: Sequence[StoredDocument], part: DocumentPart, notes: tuple[str, ...] = ()
) -> NamedDocument:
    """Return the part of the first of a document's files, or the whole of all."""
    told = files if part == WHOLE else files[:1]
    pieces = [(file.dataset, file.path, part) for file in told]
    return NamedDocument(pieces, tuple(file.path for file in files[1:]), notes)


def _has_text(names: Names, named: NamedDocument) -> bool:
    try:
        return bool(named.lines(names.connection).lines)
    except DocumentReferenceError:
        return False


def _no_document(
    named: Sequence[Names], pattern: str, within: Restriction | None = None
) -> DocumentNotFoundError:
    where = " or ".join(repr(names.dataset) for names in named)
    near = _near(named, pattern, within)
    return DocumentNotFoundError(f"no document of {where} matches {pattern!r}", near)


def _none_of(missing: Sequence[DocumentNotFoundError]) -> DocumentNotFoundError:
    """Return one error with the problems and the near misses of all."""
    near = dict.fromkeys(chain.from_iterable(error.suggestions for error in missing))
    problems = [error.problem for error in missing[:_SUGGESTIONS]]
    more = len(missing) - len(problems)
    problems += [f"{more:,} more names"] if more else []
    return DocumentNotFoundError("; ".join(problems), list(near)[: 2 * _SUGGESTIONS])


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
    """Return up to five of the items whose names are most like the text, in the same case."""
    from rapidfuzz import fuzz, process

    text = text[:_MAX_COMPARED]
    near = process.extract(
        text, by_name.keys(), scorer=fuzz.ratio, score_cutoff=_ALIKE, limit=_SUGGESTIONS
    )
    items = (item for name, *_ in near for item in by_name[name])
    return list(dict.fromkeys(items))[:_SUGGESTIONS]
