"""Finding documents by what people type: a path, a glob, ``dataset:path``, ``#docid``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

from catalog.core.errors import DocumentNotFoundError, InputError
from catalog.core.globs import Glob
from catalog.core.params import MAX_DOCUMENTS
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.library.cited_places import CITATION, shown_forms, split_reference, without_marks
from catalog.library.document_parts import DocumentLines, Part
from catalog.library.named_parts import NamedDocument, find_named, named_datasets, several_documents
from catalog.library.names import DOCID, Names
from catalog.store import Database
from catalog.store.chunks import list_paths
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import DatasetNames
from catalog.store.listing import allowed_documents, list_source_ids

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SUGGESTIONS = 5
_ALIKE = 0.6  # share of the letters, as difflib counts
_MAX_COMPARED, _MAX_CANDIDATES = 256, 25  # characters of a name sought; names difflib compares


def find_document(
    database: Database,
    reference: str,
    *,
    dataset: DatasetNames | None = None,
    line_start: int | None = None,
    line_end: int | None = None,
) -> DocumentLines:
    """Return the document a reference names: whole, or the lines given or after its last colon.

    So is the place of a link, a citation or a passage's header, of a recording the passage told
    around its second. ``dataset`` names one or several to look in, ``None`` all. By the name of a
    file that several documents were made of it is the first of these; of a recording at some time
    all that was said and shown then; of a file of records those in the lines. Lines that are given
    win over those in the reference; of a document without lines they are its pages, cells,
    paragraphs or seconds. Raises :class:`DocumentNotFoundError` with near misses, and
    :class:`InputError` for a name that several documents share, and for what is beyond the end.
    """
    given, reference = Part(line_start, line_end), without_marks(storable(reference))
    with database.read() as connection:
        found = _find_shown(connection, reference, dataset, given)
        if not found:
            split = split_reference(reference)
            name = split[-1][0] if split else reference
            several = "; get takes one document, multi_get several" if "," in reference else ""
            near = _near(connection, name, dataset)
            raise DocumentNotFoundError(f"no document {name!r}{several}", near)
        if len(found) > 1:
            firsts = (one.pieces[0] for one in found)
            raise several_documents(reference, [f"{name}:{path}" for name, path, _ in firsts])
        return found[0].lines(connection)


def find_parts(
    database: Database, dataset: DatasetNames, patterns: Iterable[str]
) -> tuple[list[tuple[str, Part, tuple[str, ...]]], list[DocumentNotFoundError]]:
    """Return the ids of documents, the part of each that the patterns name, and notes on it.

    Beside them stands an error with near misses for each pattern that names none.

    A pattern is what :func:`resolve_documents` takes, or has a place as in :func:`find_document`:
    then each file of a recording has a part of its own. Raises the same if no pattern names any.
    """
    parts: dict[tuple[str, Part], tuple[str, ...]] = {}
    missing: list[DocumentNotFoundError] = []
    with database.read() as connection:
        for pattern, ids in _match_each(_names_by_dataset(connection, dataset), patterns):
            parts |= {(id_, Part()): () for id_ in ids}
            found = [] if ids else _find_shown(connection, pattern, dataset, Part())
            if not ids and not found:
                missing.append(_no_document(connection, dataset, pattern))
            for one in found:
                parts |= {(f"{of}:{path}", part): one.notes for of, path, part in one.pieces}
    if missing and not parts:
        raise missing[0] if len(missing) == 1 else _none_of(missing)
    return [(*part, notes) for part, notes in parts.items()], missing


def _find_shown(
    connection: Connection, reference: str, dataset: DatasetNames | None, given: Part
) -> list[NamedDocument]:
    """Return what the reference names, or else what it shows after a title, if anything."""
    forms = (find_named(connection, one, dataset, given) for one in shown_forms(reference))
    return next(filter(None, forms), [])


def read_part(database: Database, source_doc_id: str, part: Part) -> DocumentLines:
    """Return a part of a document; raise ``DocumentNotFoundError`` if there is none of the id."""
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

    So does every other name (see :class:`~catalog.library.names.Names`); that of an original names
    all that was made of it. With ``whole`` any name brings those along. A document that is not
    ``seen`` is as though it were not there. Raises
    :class:`DocumentNotFoundError` for a pattern that names none, with near misses among the
    documents that ``near`` lets through, and :class:`InputError` for one that cannot name any,
    such as ``!``, and for more than 1,000 that are no paths.
    """
    source_doc_ids: dict[str, None] = {}
    with database.read() as connection:
        named = _names_by_dataset(connection, dataset, seen)
        for pattern, matches in _match_each(named, patterns):
            name = without_marks(pattern)
            ids = matches or _as_ids({one: names.resolve(name) for one, names in named.items()})
            ids = [one for one in ids if seen.allows(one)]
            if not ids:
                raise _no_document(connection, dataset, pattern, near)
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
    """Return paths, given by dataset, as ids."""
    return [f"{dataset}:{path}" for dataset, found in paths.items() for path in found]


def _match_each(
    named: Mapping[str, Names], patterns: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each pattern with the ids of what it matches or is, none for one that is another name.

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
        if others > MAX_DOCUMENTS:
            raise InputError(f"at most {MAX_DOCUMENTS:,} patterns and #docids; give paths")
        yield pattern, _as_ids({one: _match(names, pattern) for one, names in named.items()})


def _match(names: Names, pattern: str) -> list[str]:
    """Return the paths of an original, or those that a docid or a glob matches."""
    if DOCID.fullmatch(pattern) is not None:
        return names.resolve(pattern)
    name = pattern.removeprefix(f"{names.dataset}:")
    if made := names.only_seen(names.documents.made_of(name)):
        return made
    if name.startswith(CITATION):  # its brackets are none of a glob
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
    within: Restriction | None = None,
) -> DocumentNotFoundError:
    near = _near(connection, pattern, dataset, within)
    where = " or ".join(map(repr, named_datasets(connection, dataset)))
    return DocumentNotFoundError(f"no document of {where} is {pattern!r}", near)


def _none_of(missing: Sequence[DocumentNotFoundError]) -> DocumentNotFoundError:
    """Return one error that tells all, with the near misses of all."""
    near = dict.fromkeys(chain.from_iterable(error.suggestions for error in missing))
    problems = [error.problem for error in missing[:_SUGGESTIONS]]
    more = len(missing) - len(problems)
    problems += [f"{more:,} more names"] if more else []
    return DocumentNotFoundError("; ".join(problems), list(near)[: 2 * _SUGGESTIONS])


def _near(
    connection: Connection,
    name: str,
    dataset: DatasetNames | None,
    within: Restriction | None = None,
) -> list[str]:
    """Return references that may have been meant: of these datasets, and ``within`` if given."""
    allowed: Collection[str] | None = None
    if within is not None and not within.is_whole_dataset:
        allowed = frozenset(list_source_ids(connection, allowed_documents(within)))
    text = name.removeprefix("#").casefold()
    inside: list[str] = []
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name_ in named_datasets(connection, dataset):
        for path in list_paths(connection, name_):
            reference = f"{name_}:{path}"
            if allowed is not None and reference not in allowed:
                continue
            if text in reference.casefold():
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
