"""Finding documents by what people type: a path, a glob, ``dataset:path``, ``#docid``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from catalog.core.errors import DocumentNotFoundError, DocumentReferenceError, InputError
from catalog.core.globs import Glob
from catalog.core.params import MAX_DOCUMENTS
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


_LINES = re.compile(r":(\d+)(?:-(\d+))?$")
_BREAK = re.compile(r"\r\n|\n|\r")
_SUGGESTIONS = 5
_MAX_DIGITS = 18  # of a line's number
_ALIKE = 0.6  # share of the letters, as difflib counts
_MAX_COMPARED, _MAX_CANDIDATES = 256, 25  # characters of a name sought; names difflib compares


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """A document, or a range of its lines; lines count from 1, both ends included.

    ``ending`` is the line end after the last line, where the range goes to the end of a document
    that has one. ``others`` are the paths of what else was made of the same original.
    """

    document: StoredDocument
    lines: tuple[str, ...]
    line_start: int
    lines_total: int
    ending: str = ""
    others: tuple[str, ...] = ()

    @property
    def line_end(self) -> int:
        """Return the last line given."""
        return self.line_start + len(self.lines) - 1

    def first(self, count: int) -> DocumentLines:
        """Return its first so many lines alone."""
        return replace(self, lines=self.lines[:count], ending="")

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self.lines) + self.ending

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "source_doc_id": self.document.source_doc_id,
            "path": self.document.path,
            "docid": self.document.docid,
            "title": self.document.title,
            "metadata": self.document.metadata,
            "line_start": self.line_start,
            "line_end": self.line_end,
            "lines_total": self.lines_total,
            "text": self.text,
        }


def find_document(
    database: Database,
    reference: str,
    *,
    dataset: str | None = None,
    line_start: int | None = None,
    line_end: int | None = None,
) -> DocumentLines:
    """Return the document a reference names: whole, or the lines given or after its last colon.

    By the name of a file that several documents were made of it is the first of these. Lines that
    are given win over those in the reference. Raises :class:`DocumentNotFoundError` with near
    misses, and :class:`InputError` for a name that several documents share, and for lines beyond
    the end.
    """
    has_lines = line_start is not None or line_end is not None
    with database.read() as connection:
        whole = _find(connection, reference, dataset)
        if whole is not None:
            return _lines_of(whole, line_start, line_end)
        name, lines = split_reference(reference)
        part, others = None if lines is None else _find(connection, name, dataset), ()
        if part is None:
            part, others = _find_by_name(connection, name, dataset)
        if part is not None:
            first, last = (line_start, line_end) if has_lines else lines or (None, None)
            return replace(_lines_of(part, first, last), others=others)
        raise DocumentNotFoundError(f"no document {name!r}", _near(connection, name, dataset))


def split_reference(reference: str) -> tuple[str, tuple[int, int] | None]:
    """Return what is named before the lines at the end, and the first and last of these, if any.

    Raises :class:`InputError` for a number that no line has.
    """
    ranged = _LINES.search(reference)
    if ranged is None:
        return reference, None
    first, last = ranged[1], ranged[2] or ranged[1]
    if max(len(first), len(last)) > _MAX_DIGITS:
        raise InputError(f"{ranged[0][:_MAX_DIGITS]}… names lines by numbers no document has")
    return reference[: ranged.start()], (int(first), int(last))


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
    glob = Glob.compile(pattern.removeprefix(f"{names.dataset}:"))
    groups = names.documents.groups.values()
    originals = {member.path: member.names for group in groups for member in group}
    return [
        path for path in names.paths if any(map(glob.matches, (path, *originals.get(path, ()))))
    ] or names.resolve(pattern)


def _find(connection: Connection, reference: str, dataset: str | None) -> StoredDocument | None:
    docid = DOCID.fullmatch(reference)
    if docid is not None:
        return _only(find_by_docid(connection, docid[1], dataset), reference)
    names = [dataset] if dataset else list_dataset_names(connection)
    documents = []
    for name in names:
        path = reference.removeprefix(f"{name}:")
        document = find_by_path(connection, name, path)
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


def _lines_of(document: StoredDocument, first: int | None, last: int | None) -> DocumentLines:
    lines = _BREAK.split(document.text)
    ending = ""
    if len(lines) > 1 and lines[-1] == "":  # a line end ends a line, and begins none
        lines.pop()
        ending = "\n"
    start = 1 if first is None else first
    end = len(lines) if last is None else last
    if not 1 <= start <= end or start > len(lines):
        raise DocumentReferenceError(f"{document.path} has lines 1-{len(lines)}, not {start}-{end}")
    chosen = tuple(lines[start - 1 : end])
    return DocumentLines(document, chosen, start, len(lines), ending if end >= len(lines) else "")
