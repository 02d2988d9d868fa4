"""Find documents, and parts of them, by what people type.

That is a path, a glob, ``dataset:path``, ``#docid`` or any other name, optionally with a place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

from catalog.core.bounded_calls import check_time
from catalog.core.errors import DocumentNotFoundError, DocumentReferenceError, InputError
from catalog.core.globs import Glob
from catalog.core.params import MAX_DOCUMENTS, MAX_PATTERN_CHARS, MAX_PATTERNS, MAX_TEXT_BYTES
from catalog.core.places import WITHIN
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.library.document_parts import (
    CITATION,
    CitedPlace,
    DocumentLines,
    DocumentPlaces,
    Part,
    Place,
    cut_part,
    join_parts,
    read_cited_place,
    read_clock,
    shown_forms,
    shows_place,
    split_reference,
    without_marks,
)
from catalog.library.names import DOCID, Names
from catalog.store import Database
from catalog.store.chunks import (
    StoredDocument,
    find_by_docid,
    find_by_path,
    list_dataset_names,
    list_paths,
)
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import DatasetNames
from catalog.store.listing import allowed_documents, list_source_ids

if TYPE_CHECKING:
    from sqlalchemy import Connection


_MAILS = ("eml", "mbox", "msg")
_SHOWN = 10  # names in a note
_SUGGESTIONS = 5
_ALIKE = 0.6  # share of the letters, as difflib counts
_MAX_COMPARED, _MAX_CANDIDATES = 256, 25  # characters of a name sought; names difflib compares


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """A named document: dataset, path and part of each of its files with text for the name.

    Without a place in the name, only the first file is given; ``joined`` describes the parts of
    several files, ``total`` is the last line of a file of records.
    """

    pieces: Sequence[tuple[str, str, Part]]
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    joined: str = ""
    total: int | None = None

    def lines(self, connection: Connection) -> DocumentLines:
        """Return its text, the parts of several files one after the other: 1,000 at most, or 10 MB.

        Raises ``DocumentNotFoundError`` if the first of them has gone.
        """
        parts: list[DocumentLines] = []
        size = 0
        for dataset, path, part in self.pieces[: MAX_DOCUMENTS if self.joined else 1]:
            document = find_by_path(connection, dataset, path)
            if document is None:
                raise DocumentNotFoundError(f"no document {path!r}", [])
            parts.append(cut_part(document, read_places(connection, document), part))
            size += len(parts[-1].text.encode())
            if size > MAX_TEXT_BYTES:
                break
        notes = list(self.notes)
        if len(parts) > 1:
            paths = [part.document.path for part in parts[1:]]
            more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
            notes.append(f"after blank lines, {self.joined} {', '.join(paths[:_SHOWN])}{more}")
        if size <= MAX_TEXT_BYTES and 1 < len(parts) < len(self.pieces):
            after = self.pieces[len(parts)][2].first
            next_one = "" if after is None else f"; continue with line_start {after}"
            notes.append(f"only the first {len(parts):,} of {len(self.pieces):,}{next_one}")
        lines = replace(join_parts(parts), others=self.others, notes=tuple(notes))
        return lines if self.total is None else replace(lines, total=self.total)


def find_named(
    connection: Connection,
    reference: str,
    dataset: DatasetNames | None,
    given: Part,
    seen: Scope = ALL,
) -> list[NamedDocument]:
    """Return the documents with that name; of several, those that have the place in it.

    Lines that are ``given`` win over those in the reference. A place that no document of that name
    can have is an error after a colon, and elsewhere a note on the whole document. Documents that
    are not ``seen`` are ignored. A part that a mail does not have is no document.
    """
    document = find_exactly(connection, reference, dataset, seen)
    if document is not None:
        return [_named(document, given)]
    split, cited = split_reference(reference), read_cited_place(reference)
    place: Place | None
    for name, told_place in split:
        document = find_exactly(connection, name, dataset, seen)
        if document is not None:
            part = _read_place(told_place, read_places(connection, document))
            if part is not None:
                return [_named(document, part if given == Part() else given)]
    name, place = split[0] if split else (reference, None)
    if records := _find_records(connection, dataset, (name, place, cited), given, seen):
        return records
    groups = _find_groups(connection, name, dataset, seen)
    if not groups and cited is not None and cited.name != reference:
        name, place = cited.name, None
        document = find_exactly(connection, name, dataset, seen)
        groups = [[document]] if document else _find_groups(connection, name, dataset, seen)
    told = [_cut_group(connection, files, name, place or cited, given) for files in groups]
    fitting = list(filter(None, told))
    if len(fitting) > 1:
        return [one for one in fitting if _has_text(connection, one)] or fitting
    if groups and place is not None and not fitting:
        first = groups[0][0]
        unit = read_places(connection, first).places.unit
        counted = f"{first.path} counts {unit}s: a part is {first.path}:12-20"
        raise DocumentReferenceError(counted)
    if groups and not fitting and cited is not None and cited.part.cells:
        first = groups[0][0]
        if first.file_type in _MAILS or WITHIN in first.path:
            return []  # not the mail for an attachment that it does not have
    note = f"the place in {reference!r} cannot be read, so this is the whole document"
    return fitting or [replace(_whole(files), notes=(note,)) for files in groups]


def find_exactly(
    connection: Connection, reference: str, dataset: DatasetNames | None, seen: Scope = ALL
) -> StoredDocument | None:
    """Return the document with this path, id or docid; raise unless there is exactly one."""
    docid = DOCID.fullmatch(reference)
    if docid is not None:
        found = find_by_docid(connection, docid[1], dataset)
        if found := [one for one in found if seen.allows(one.source_doc_id)]:
            return _only(found, reference)
    paths = [
        (name, reference.removeprefix(f"{name}:")) for name in named_datasets(connection, dataset)
    ]
    live = filter(None, (find_by_path(connection, *path) for path in paths))
    documents = [one for one in live if seen.allows(one.source_doc_id)]
    exact = [document for document in documents if document.source_doc_id == reference]
    return _only(exact or documents, reference)


def named_datasets(connection: Connection, dataset: DatasetNames | None) -> Sequence[str]:
    """Return the names as a list, or those of all datasets for ``None``."""
    if dataset is None:
        return list_dataset_names(connection)
    return (dataset,) if isinstance(dataset, str) else dataset


def several_documents(reference: str, source_doc_ids: Sequence[str]) -> DocumentReferenceError:
    """Return the error for a name that several documents share."""
    return DocumentReferenceError(
        f"{reference!r} names several documents: {', '.join(source_doc_ids)}"
    )


def read_places(connection: Connection, document: StoredDocument) -> DocumentPlaces:
    """Return the map of a document."""
    return DocumentPlaces.read(connection, document)


def _only(documents: list[StoredDocument], reference: str) -> StoredDocument | None:
    if len(documents) > 1:
        raise several_documents(reference, [document.source_doc_id for document in documents])
    return documents[0] if documents else None


def _named(document: StoredDocument, part: Part) -> NamedDocument:
    return NamedDocument([(document.dataset, document.path, part)])


def _whole(files: Sequence[StoredDocument]) -> NamedDocument:
    pieces = [(file.dataset, file.path, Part()) for file in files]
    return NamedDocument(pieces, tuple(file.path for file in files[1:]))


def _has_text(connection: Connection, named: NamedDocument) -> bool:
    try:
        return bool(named.lines(connection).lines)
    except DocumentReferenceError:
        return False


def _find_records(
    connection: Connection,
    dataset: DatasetNames | None,
    told: tuple[str, Place | None, CitedPlace | None],
    given: Part,
    seen: Scope,
) -> list[NamedDocument]:
    """Return the records at the given or named lines, as one document for each file."""
    name, place, cited = told
    first: int | None
    if given != Part():
        file, first, last = name, given.first, given.last
    elif place is not None and len(place[0]) == 1 and len(place[1]) <= 1:
        file, first, last = name, place[0][0], (place[1] or place[0])[0]
    elif cited is not None and cited.file is not None:
        file, first, last = cited.file, cited.part.first, cited.part.last
    else:
        return []
    found: list[NamedDocument] = []
    for one in named_datasets(connection, dataset):
        names = Names(connection, one, seen)
        records = names.records_at(file.removeprefix(f"{one}:"), first or 1, None)
        pieces = [
            (one, path, Part(line, line)) for path, line in records if last is None or line <= last
        ]
        if pieces:
            total = records[-1][1]
            found.append(NamedDocument(pieces, joined="the records", total=total))
    return found


def _find_groups(
    connection: Connection, reference: str, dataset: DatasetNames | None, seen: Scope
) -> list[list[StoredDocument]]:
    """Return the files of each document that has the name other than as its path."""
    groups: list[list[StoredDocument]] = []
    for one in named_datasets(connection, dataset):
        names = Names(connection, one, seen)
        file = reference.removeprefix(f"{one}:")
        records = names.records(file.__eq__)
        if records and file not in names.paths:
            one_of = f"{file}:12 is the one in line 12, {file}:12-20 those of these lines"
            kind = "records"
            if WITHIN in records[0]:
                kind, one_of = "documents", f"one of them is {records[0]}"
            raise DocumentReferenceError(
                f"{file} has {len(records):,} {kind}: {one_of}, multi_get {file} returns all"
            )
        paths = names.resolve(reference)
        while paths:
            whole = names.only_seen(names.documents.whole(paths[:1]))
            in_order = dict.fromkeys((paths[0], *whole))
            files = [find_by_path(connection, one, path) for path in in_order]
            groups.append(list(filter(None, files)))
            paths = [path for path in paths if path not in in_order]
    return list(filter(None, groups))


def _cut_group(
    connection: Connection,
    files: Sequence[StoredDocument],
    name: str,
    place: Place | CitedPlace | None,
    given: Part,
) -> NamedDocument | None:
    """Return a place of the document with these files and this name; ``None`` if it has none.

    A time is that of all its files, any other place that of the first file that has it.
    """
    if name.startswith(CITATION):  # the file whose title is cited comes first
        files = sorted(files, key=lambda file: not name.startswith(f"{CITATION}{file.title},"))
    first, *others = files
    if given != Part():
        return replace(_named(first, given), others=tuple(file.path for file in others))
    if place is None:
        return None if shows_place(name, first.title, first.path) else _whole(files)
    for file in files:
        places = read_places(connection, file)
        if isinstance(place, CitedPlace):
            part = _part_cited(place, places)
        else:
            is_second = len(place[0]) == 1 and places.timed and name != file.title
            part = _read_place(((0, *place[0]), place[1]) if is_second else place, places)
        if part is not None and part.seconds is not None:
            is_moment = isinstance(place, CitedPlace) and part.seconds[0] == part.seconds[1]
            return _cut_time(connection, files, part.seconds, is_moment=is_moment)
        if part is not None:
            rest = tuple(other.path for other in files if other is not file)
            return replace(_named(file, part), others=rest)
    return None


def _part_cited(place: CitedPlace, document: DocumentPlaces) -> Part | None:
    """Return the cited part of the document; ``None`` if it cannot have such a part."""
    has_it = document.timed if place.unit == "time" else place.unit == document.places.unit
    return place.part if has_it else None


def _read_place(place: Place, document: DocumentPlaces) -> Part | None:
    """Return the part of the document for a place; ``None`` if it cannot have it."""
    start, end = place
    match len(start), len(end):
        case 1, 0 | 1:
            return Part(start[0], (end or start)[0])
        case 2, 0 | 1 if document.places.unit == "cell":
            return Part(start[0], start[0], lines=(start[1], (end or start[1:])[0]))
        case 2 | 3, _ if document.timed:
            return Part(seconds=(read_clock(start), read_clock(end or start)))
    return None


def _cut_time(
    connection: Connection,
    files: Sequence[StoredDocument],
    seconds: tuple[int, int],
    *,
    is_moment: bool,
) -> NamedDocument:
    """Return the text of one recording's files in these seconds, or around that moment."""
    read = [(file, read_places(connection, file)) for file in files]
    if is_moment:
        around = (one.passage_at(seconds[0]) for _, one in read if one.has_text_at(seconds))
        seconds = next(around, seconds)
    telling = [file for file, one in read if one.has_text_at(seconds)] or [files[0]]
    return NamedDocument(
        [(file.dataset, file.path, Part(seconds=seconds)) for file in telling],
        others=tuple(file.path for file in files if file not in telling),
        joined="what is told of that time in",
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
    given, reference = Part(line_start, line_end), without_marks(storable(reference))
    with database.read() as connection:
        found = _find_shown(connection, reference, dataset, given, seen)
        if not found:
            split = split_reference(reference)
            name = split[-1][0] if split else reference
            several = "; get takes one document, multi_get several" if "," in reference else ""
            near = _near(connection, name, dataset, seen)
            raise DocumentNotFoundError(f"no document {name!r}{several}", near)
        if len(found) > 1:
            firsts = (one.pieces[0] for one in found)
            raise several_documents(reference, [f"{name}:{path}" for name, path, _ in firsts])
        return found[0].lines(connection)


def find_parts(
    database: Database, dataset: DatasetNames, patterns: Iterable[str], seen: Scope = ALL
) -> tuple[list[tuple[str, Part, tuple[str, ...]]], list[DocumentNotFoundError]]:
    """Return the ids of documents, the part of each that the patterns name, and notes on it.

    The second list has an error with near misses for each pattern without a document.

    A pattern is what :func:`resolve_documents` takes, or has a place as in :func:`find_document`:
    then each file of a recording has its own part. Documents that are not ``seen`` are ignored.
    Raises the same if no pattern has a document.
    """
    parts: dict[tuple[str, Part], tuple[str, ...]] = {}
    missing: list[DocumentNotFoundError] = []
    with database.read() as connection:
        for pattern, ids in _match_each(_names_by_dataset(connection, dataset, seen), patterns):
            parts |= {(id_, Part()): () for id_ in ids}
            found = [] if ids else _find_shown(connection, pattern, dataset, Part(), seen)
            if not ids and not found:
                missing.append(_no_document(connection, dataset, pattern, seen))
            for one in found:
                parts |= {(f"{of}:{path}", part): one.notes for of, path, part in one.pieces}
    if missing and not parts:
        raise missing[0] if len(missing) == 1 else _none_of(missing)
    return [(*part, notes) for part, notes in parts.items()], missing


def _find_shown(
    connection: Connection,
    reference: str,
    dataset: DatasetNames | None,
    given: Part,
    seen: Scope,
) -> list[NamedDocument]:
    """Return the documents that the reference names, or else those named after a title in it."""
    forms = (find_named(connection, one, dataset, given, seen) for one in shown_forms(reference))
    return next(filter(None, forms), [])


def read_part(database: Database, source_doc_id: str, part: Part) -> DocumentLines:
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
        named = _names_by_dataset(connection, dataset, seen)
        for pattern, matches in _match_each(named, patterns):
            name = without_marks(pattern)
            ids = matches or _as_ids({one: names.resolve(name) for one, names in named.items()})
            ids = [one for one in ids if seen.allows(one)]
            if not ids:
                raise _no_document(connection, dataset, pattern, seen, near)
            source_doc_ids |= dict.fromkeys(ids)
        if whole:
            wholes = (names.documents.whole_ids(source_doc_ids) for names in named.values())
            return list(chain.from_iterable(wholes))
    return list(source_doc_ids)


def _names_by_dataset(
    connection: Connection, dataset: DatasetNames, seen: Scope = ALL
) -> dict[str, Names]:
    return {one: Names(connection, one, seen) for one in named_datasets(connection, dataset)}


def _as_ids(paths: Mapping[str, Iterable[str]]) -> list[str]:
    """Return paths by dataset as ids."""
    return [f"{dataset}:{path}" for dataset, found in paths.items() for path in found]


def _match_each(
    named: Mapping[str, Names], patterns: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each pattern with the ids of its documents, an empty list for any other kind of name.

    An id is that of its dataset's document alone, a path those of every dataset.
    """
    others = 0
    for pattern in dict.fromkeys(patterns):
        dataset, _, path = pattern.partition(":")
        if dataset in named and path in named[dataset].paths:
            yield pattern, [pattern]
            continue
        if any(pattern in names.paths for names in named.values()):
            yield pattern, [f"{one}:{pattern}" for one in named if pattern in named[one].paths]
            continue
        others += 1
        if others > MAX_PATTERNS:
            raise InputError(
                f"at most {MAX_PATTERNS} patterns and #docids are allowed; give paths instead"
            )
        if len(pattern) > MAX_PATTERN_CHARS:
            raise InputError(f"{len(pattern):,} characters are too many for a path or pattern")
        check_time()
        yield pattern, _as_ids({one: _match(names, pattern) for one, names in named.items()})


def _match(names: Names, pattern: str) -> list[str]:
    """Return the paths of an original, or those that a docid or a glob matches."""
    if DOCID.fullmatch(pattern) is not None:
        return names.resolve(pattern)
    name = pattern.removeprefix(f"{names.dataset}:")
    if made := names.only_seen(names.documents.made_of(name)):
        return made
    if name.startswith(CITATION):  # its brackets are not a glob's
        return []
    glob, groups = Glob.compile(name), names.documents.groups.values()
    originals = {member.path: member.names for group in groups for member in group}
    found = dict.fromkeys(
        path for path in names.paths if any(map(glob.matches, (path, *originals.get(path, ()))))
    )
    return list(found | dict.fromkeys(names.records(glob.matches)))


def _no_document(
    connection: Connection,
    dataset: DatasetNames,
    pattern: str,
    seen: Scope,
    within: Restriction | None = None,
) -> DocumentNotFoundError:
    near = _near(connection, pattern, dataset, seen, within)
    where = " or ".join(map(repr, named_datasets(connection, dataset)))
    return DocumentNotFoundError(f"no document of {where} matches {pattern!r}", near)


def _none_of(missing: Sequence[DocumentNotFoundError]) -> DocumentNotFoundError:
    """Return one error with the problems and the near misses of all."""
    near = dict.fromkeys(chain.from_iterable(error.suggestions for error in missing))
    problems = [error.problem for error in missing[:_SUGGESTIONS]]
    more = len(missing) - len(problems)
    problems += [f"{more:,} more names"] if more else []
    return DocumentNotFoundError("; ".join(problems), list(near)[: 2 * _SUGGESTIONS])


def _near(
    connection: Connection,
    name: str,
    dataset: DatasetNames | None,
    seen: Scope,
    within: Restriction | None = None,
) -> list[str]:
    """Return seen references that may have been meant: of these datasets, ``within`` if given."""
    allowed: Collection[str] | None = seen.ids
    if within is not None and not within.is_whole_dataset:
        allowed = frozenset(list_source_ids(connection, allowed_documents(within)))
    text = name.removeprefix("#").casefold()
    outer = text.rpartition(WITHIN)[0]
    inside: list[str] = []
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name_ in named_datasets(connection, dataset):
        for path in list_paths(connection, name_):
            reference = f"{name_}:{path}"
            if allowed is not None and reference not in allowed:
                continue
            folded = reference.casefold()
            if text in folded or (outer and f"{outer}{WITHIN}" in folded):
                inside.append(reference)
            for form in {reference, path, path.rpartition("/")[2]}:
                by_name[form.casefold()].append(reference)
    alike = find_alike(text, by_name)
    return list(dict.fromkeys((*inside, *alike)))[:_SUGGESTIONS]


def find_alike(text: str, by_name: Mapping[str, Sequence[str]]) -> list[str]:
    """Return up to five of the items whose names are most like the text, in the same case.

    difflib compares few: its ratio is never above that of rapidfuzz, which is far quicker.
    """
    from rapidfuzz import fuzz, process

    text = text[:_MAX_COMPARED]
    candidates = process.extract(
        text, by_name.keys(), scorer=fuzz.ratio, score_cutoff=100 * _ALIKE, limit=_MAX_CANDIDATES
    )
    names = [name for name, _, _ in candidates]
    close = get_close_matches(text, names, n=_SUGGESTIONS, cutoff=_ALIKE)
    return list(dict.fromkeys(item for name in close for item in by_name[name]))[:_SUGGESTIONS]
