"""Finding documents by what people type: a path, a glob, ``dataset:path``, ``#docid``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from catalog.core.errors import DocumentNotFoundError, DocumentReferenceError, InputError
from catalog.core.globs import Glob
from catalog.core.params import MAX_DOCUMENTS
from catalog.core.text import storable
from catalog.library.document_parts import (
    DocumentLines,
    DocumentPlaces,
    Part,
    cut_part,
    read_clock,
    read_shown_place,
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

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PLACE = re.compile(r":(?:t=)?(\d+(?::\d+){0,2})(?:-(\d+(?::\d+){0,2}))?$")
_DIGITS = re.compile(r"\d+")
_SOURCE = "[source: "
_SUFFIX = re.compile(r"\.\w{1,8}$")
_Place = tuple[tuple[int, ...], tuple[int, ...]]  # the numbers of the start and of the end
_SUGGESTIONS, _MAX_DIGITS = 5, 18  # digits: of a line's number
_ALIKE = 0.6  # share of the letters, as difflib counts
_MAX_COMPARED, _MAX_CANDIDATES = 256, 25  # characters of a name sought; names difflib compares


def find_document(
    database: Database,
    reference: str,
    *,
    dataset: str | None = None,
    line_start: int | None = None,
    line_end: int | None = None,
) -> DocumentLines:
    """Return the document a reference names: whole, or the lines given or after its last colon.

    So is the place of a link or a citation, of a recording the passage told around its second. By
    the name of a file that several documents were made of it is the first of these; of a recording
    at some time all that was said and shown then. Lines that are given win over those in the
    reference; of a document without lines they are its pages, cells, paragraphs or seconds. Raises
    :class:`DocumentNotFoundError` with near misses, and :class:`InputError` for a name that
    several documents share, and for what is beyond the end.
    """
    given, reference = Part(line_start, line_end), storable(reference)
    with database.read() as connection:
        whole = _find(connection, reference, dataset)
        if whole is not None:
            return cut_part(whole, DocumentPlaces.read(connection, whole), given)
        named = split_reference(reference)
        for name, place in named:
            document = _find(connection, name, dataset)
            part = None if document is None else _cut_place(connection, document, place, given)
            if part is not None:
                return part
        longest: tuple[str, _Place | None] = named[0] if named else (reference, None)
        document, others = _find_by_name(connection, longest[0], dataset)
        part = None
        if document is not None and given == Part():
            found = [find_by_path(connection, document.dataset, path) for path in others]
            files = list(filter(None, (document, *found)))
            part = _cut_named(connection, files, *longest)
        if part is None and document is not None:
            part = _cut_place(connection, document, longest[1], given)
        if part is not None:
            return replace(part, others=others)
        if document is not None:
            unit = DocumentPlaces.read(connection, document).places.unit
            counted = f"{document.path} is cited by {unit}s: {document.path}:12-20 picks some"
            raise DocumentReferenceError(counted)
        name = named[-1][0] if named else reference
        raise DocumentNotFoundError(f"no document {name!r}", _near(connection, name, dataset))


def split_reference(reference: str) -> list[tuple[str, _Place]]:
    """Return what may be named before the place at the end, with the place; the longest first.

    A place is ``:12``, ``:12-20``, of a cell's lines ``:3:2-8``, of times ``:1:05-1:18``. Its parts
    are the numbers of its start and its end. Raises :class:`InputError` for a number that no line
    has.
    """
    ranged = _PLACE.search(reference)
    if ranged is None:
        return []
    if any(len(digits) > _MAX_DIGITS for digits in _DIGITS.findall(ranged[0])):
        raise InputError(f"{ranged[0][:_MAX_DIGITS]}… names lines by numbers no document has")
    start, end = (tuple((group or "").split(":")) for group in ranged.groups())
    last = tuple(map(int, filter(None, end)))
    return [
        (":".join((reference[: ranged.start()], *start[:at])), (tuple(map(int, start[at:])), last))
        for at in range(len(start))
    ]


def _cut_place(
    connection: Connection, document: StoredDocument, place: _Place | None, given: Part
) -> DocumentLines | None:
    """Return what is given of a document, or else the place; ``None`` if it can have none such."""
    places = DocumentPlaces.read(connection, document)
    part = Part() if place is None else _read_place(place, places)
    return None if part is None else cut_part(document, places, part if given == Part() else given)


def _read_place(place: _Place, document: DocumentPlaces) -> Part | None:
    """Return what part of the document a place is; ``None`` if it can be none."""
    start, end = place
    match len(start), len(end):
        case 1, 0 | 1:
            return Part(start[0], (end or start)[0])
        case 2, 0 | 1 if document.places.unit == "cell":
            return Part(start[0], start[0], lines=(start[1], (end or start[1:])[0]))
        case 2 | 3, _ if document.timed:
            return Part(seconds=(read_clock(start), read_clock(end or start)))
    return None


def _cut_named(
    connection: Connection, files: Sequence[StoredDocument], name: str, place: _Place | None
) -> DocumentLines | None:
    """Return a place of the document that has these files and this name; ``None`` if it has none.

    A time is that of all its files, any other place that of the first.
    """
    if name.startswith(_SOURCE):  # the file whose title is cited comes first
        files = sorted(files, key=lambda file: not name.startswith(f"{_SOURCE}{file.title},"))
    document = files[0]
    places = DocumentPlaces.read(connection, document)
    if place is not None:
        is_second = len(place[0]) == 1 and places.timed and name != document.title
        part = _read_place(((0, *place[0]), place[1]) if is_second else place, places)
        if part is None or part.seconds is None:
            return None
        return _cut_time(connection, files, part.seconds)
    unit, part = read_shown_place(name) or ("", None)
    if part is None and not _shows_place(name, document):
        return None
    if part is not None and part.seconds is not None:
        second, stored = part.seconds[0], [DocumentPlaces.read(connection, file) for file in files]
        around = [one.passage_at(second) for one in stored if one.has_text_at(part.seconds)]
        if any(one.timed for one in stored):
            return _cut_time(connection, files, around[0] if around else part.seconds)
    elif part is not None and unit == places.places.unit:
        return cut_part(document, places, part)
    note = f"the place in {name!r} cannot be read: this is the whole document"
    return replace(cut_part(document, places, Part()), notes=(note,))


def _cut_time(
    connection: Connection, files: Iterable[StoredDocument], seconds: tuple[int, int]
) -> DocumentLines:
    """Return what the files of one recording tell of these seconds, one file after the other."""
    read = [(file, DocumentPlaces.read(connection, file)) for file in files]
    telling = [pair for pair in read if pair[1].has_text_at(seconds)] or read[:1]
    first, *others = (cut_part(*pair, Part(seconds=seconds)) for pair in telling)
    if not others:
        return first
    lines = [line for other in others for line in ("", *other.lines)]
    unnumbered = (None,) * len(lines)
    paths = ", ".join(other.document.path for other in others)
    return replace(
        first,
        lines=(*first.lines, *lines),
        numbers=first.numbers + unnumbered,
        ranges=first.ranges + unnumbered,
        ending="",
        notes=(f"after blank lines, what is told of that time in {paths}",),
    )


def _shows_place(name: str, document: StoredDocument) -> bool:
    """Tell whether a name that resolved to the document has more in it than the name."""
    if name.startswith(_SOURCE):
        return name not in (f"{_SOURCE}{document.title}]", f"{_SOURCE}{document.path}]")
    bare, _, fragment = name.partition("#")
    return bool(fragment) and ("://" in bare or _SUFFIX.search(bare) is not None)


def resolve_documents(
    database: Database, dataset: str, patterns: Iterable[str], *, whole: bool = False
) -> list[str]:
    """Return the source document ids that paths, globs (as in ``.gitignore``) and docids name.

    So does every other name (see :class:`~catalog.library.names.Names`); that of an original names
    all that was made of it. With ``whole`` any name brings those along. Raises
    :class:`DocumentNotFoundError` for a pattern that names none, and :class:`InputError` for one
    that cannot name any, such as ``!``, and for more than 1,000 that are no paths.
    """
    source_doc_ids: dict[str, None] = {}
    others = 0
    with database.read() as connection:
        names = Names(connection, dataset)
        for pattern in dict.fromkeys(patterns):
            path = pattern.removeprefix(f"{dataset}:")
            if path in names.paths:
                source_doc_ids[f"{dataset}:{path}"] = None
                continue
            others += 1
            if others > MAX_DOCUMENTS:
                raise InputError(f"at most {MAX_DOCUMENTS:,} patterns and #docids; give paths")
            matches = _match(names, pattern)
            if not matches:
                near = _near(connection, pattern, dataset)
                raise DocumentNotFoundError(f"no document of {dataset!r} is {pattern!r}", near)
            source_doc_ids |= dict.fromkeys(f"{dataset}:{path}" for path in matches)
        if whole:
            return names.documents.whole_ids(source_doc_ids)
    return list(source_doc_ids)


def _match(names: Names, pattern: str) -> list[str]:
    """Return the paths that a pattern names, or any other name of :class:`Names`."""
    if DOCID.fullmatch(pattern) is not None:
        return names.resolve(pattern)
    name = pattern.removeprefix(f"{names.dataset}:")
    if made := names.documents.made_of(name):
        return made
    glob, groups = Glob.compile(name), names.documents.groups.values()
    originals = {member.path: member.names for group in groups for member in group}
    found = dict.fromkeys(
        path for path in names.paths if any(map(glob.matches, (path, *originals.get(path, ()))))
    )
    return list(found | dict.fromkeys(names.records(glob.matches))) or names.resolve(pattern)


def _find(connection: Connection, reference: str, dataset: str | None) -> StoredDocument | None:
    docid = DOCID.fullmatch(reference)
    if docid is not None and (found := find_by_docid(connection, docid[1], dataset)):
        return _only(found, reference)
    names = [dataset] if dataset else list_dataset_names(connection)
    documents = []
    for name in names:
        path = reference.removeprefix(f"{name}:")
        document = find_by_path(connection, name, path)
        if document is None and (record := Names(connection, name).record(path)) is not None:
            document = find_by_path(connection, name, record)
        if document is not None:
            documents.append(document)
    exact = [document for document in documents if document.source_doc_id == reference]
    return _only(exact or documents, reference)


def _find_by_name(
    connection: Connection, reference: str, dataset: str | None
) -> tuple[StoredDocument | None, tuple[str, ...]]:
    """Return the document that has the name though not as its path, and its other files."""
    found: list[tuple[StoredDocument | None, tuple[str, ...]]] = []
    for one in [dataset] if dataset else list_dataset_names(connection):
        names = Names(connection, one)
        file = reference.removeprefix(f"{one}:")
        records = names.records(file.__eq__)
        if records and file not in names.paths:
            counted = f"{file} holds {len(records):,} records: {file}:12 gives the one in line 12"
            raise DocumentReferenceError(f"{counted}, multi_get {file} all")
        paths = names.resolve(reference)
        while paths:
            first, whole = paths[0], names.documents.whole(paths[:1])
            others = tuple(path for path in whole if path != first)
            found.append((find_by_path(connection, one, first), others))
            paths = [path for path in paths if path not in whole]
    documents = [document for document, _ in found if document is not None]
    return (_only(documents, reference), found[0][1]) if documents else (None, ())


def _only(documents: list[StoredDocument], reference: str) -> StoredDocument | None:
    if len(documents) > 1:
        names = ", ".join(document.source_doc_id for document in documents)
        raise DocumentReferenceError(f"{reference!r} names several documents: {names}")
    return documents[0] if documents else None


def _near(connection: Connection, name: str, dataset: str | None) -> list[str]:
    """Return references that may have been meant: the same path elsewhere, then similar ones."""
    datasets = list_dataset_names(connection)
    elsewhere = [
        document.source_doc_id
        for name_ in datasets
        if name_ != dataset and (document := find_by_path(connection, name_, name)) is not None
    ]
    text = name.removeprefix("#").casefold()
    inside: list[str] = []
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name_ in [dataset] if dataset else datasets:
        for path in list_paths(connection, name_):
            reference = f"{name_}:{path}"
            if text in reference.casefold():
                inside.append(reference)
            for form in {reference, path, path.rpartition("/")[2]}:
                by_name[form.casefold()].append(reference)
    alike = find_alike(text, by_name)
    return list(dict.fromkeys((*elsewhere, *inside, *alike)))[:_SUGGESTIONS]


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
