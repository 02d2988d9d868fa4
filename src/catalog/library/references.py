"""Finding documents by what people type: a path, a glob, ``dataset:path``, ``#docid``."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from catalog.core.errors import DocumentNotFoundError, InputError
from catalog.core.globs import Glob
from catalog.store import Database
from catalog.store.chunks import (
    StoredDocument,
    find_by_docid,
    find_by_path,
    list_datasets,
    list_paths,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection


_LINES = re.compile(r":(\d+)(?:-(\d+))?$")
_DOCID = re.compile(r"#([0-9a-f]{4,64})")
_BREAK = re.compile(r"\r\n|\n|\r")
_SUGGESTIONS = 5
_ALIKE = 0.6  # share of the letters, as difflib counts


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """A document, or a range of its lines; lines count from 1, both ends included.

    ``ending`` is the line end after the last line, where the range goes to the end of a document
    that has one.
    """

    document: StoredDocument
    lines: tuple[str, ...]
    line_start: int
    lines_total: int
    ending: str = ""

    @property
    def line_end(self) -> int:
        """The last line given."""
        return self.line_start + len(self.lines) - 1

    def first(self, count: int) -> DocumentLines:
        """Its first so many lines alone."""
        return replace(self, lines=self.lines[:count], ending="")

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines) + self.ending

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
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
    """The document a reference names: whole, the lines after its last colon, or those given.

    Lines that are given win over those in the reference. Raises :class:`DocumentNotFoundError`
    with near misses, and :class:`InputError` for a docid or path that several documents share,
    and for lines beyond the end.
    """
    has_lines = line_start is not None or line_end is not None
    with database.read() as connection:
        whole = _find(connection, reference, dataset)
        if whole is not None:
            return _lines_of(whole, line_start, line_end)
        ranged = _LINES.search(reference)
        if ranged is not None:
            part = _find(connection, reference[: ranged.start()], dataset)
            if part is not None and has_lines:
                return _lines_of(part, line_start, line_end)
            if part is not None:
                first = int(ranged[1])
                return _lines_of(part, first, int(ranged[2] or first))
        name = reference[: ranged.start()] if ranged else reference
        raise DocumentNotFoundError(f"no document {name!r}", _near(connection, name, dataset))


def resolve_documents(database: Database, dataset: str, patterns: Iterable[str]) -> list[str]:
    """The source document ids that paths, globs (as in ``.gitignore``) and docids name.

    Raises :class:`DocumentNotFoundError` for a pattern that names none, and :class:`InputError`
    for one that cannot name any, such as ``!``.
    """
    found: dict[str, None] = {}
    with database.read() as connection:
        paths = list_paths(connection, dataset)
        for pattern in patterns:
            matched = _match(connection, dataset, pattern, paths)
            if not matched:
                near = _near(connection, pattern, dataset)
                raise DocumentNotFoundError(f"no document of {dataset!r} is {pattern!r}", near)
            found.update(dict.fromkeys(matched))
    return list(found)


def _match(connection: Connection, dataset: str, pattern: str, paths: list[str]) -> list[str]:
    name = pattern.removeprefix(f"{dataset}:")
    if name in paths:
        return [f"{dataset}:{name}"]
    docid = _DOCID.fullmatch(pattern)
    if docid is not None:
        return [one.source_doc_id for one in find_by_docid(connection, docid[1], dataset)]
    glob = Glob.compile(name)
    return [f"{dataset}:{path}" for path in paths if glob.matches(path)]


def _find(connection: Connection, reference: str, dataset: str | None) -> StoredDocument | None:
    docid = _DOCID.fullmatch(reference)
    if docid is not None:
        return _only(find_by_docid(connection, docid[1], dataset), reference)
    names = [dataset] if dataset else [one.name for one in list_datasets(connection)]
    found = []
    for name in names:
        path = reference.removeprefix(f"{name}:")
        document = find_by_path(connection, name, path)
        if document is not None:
            found.append(document)
    exact = [one for one in found if one.source_doc_id == reference]
    return _only(exact or found, reference)


def _only(found: list[StoredDocument], reference: str) -> StoredDocument | None:
    if len(found) > 1:
        names = ", ".join(one.source_doc_id for one in found)
        raise InputError(f"{reference!r} names several documents: {names}")
    return found[0] if found else None


def _near(connection: Connection, name: str, dataset: str | None) -> list[str]:
    """References that may have been meant: the same path elsewhere, then like ones."""
    datasets = [one.name for one in list_datasets(connection)]
    elsewhere = [
        found.source_doc_id
        for one in datasets
        if one != dataset and (found := find_by_path(connection, one, name)) is not None
    ]
    wanted = name.removeprefix("#").casefold()
    inside, by_name = [], defaultdict(list)
    for one in [dataset] if dataset else datasets:
        for path in list_paths(connection, one):
            reference = f"{one}:{path}"
            if wanted in reference.casefold():
                inside.append(reference)
            for form in {reference, path, path.rpartition("/")[2]}:
                by_name[form.casefold()].append(reference)
    close = difflib.get_close_matches(wanted, by_name, n=_SUGGESTIONS, cutoff=_ALIKE)
    alike = [reference for form in close for reference in by_name[form]]
    return list(dict.fromkeys((*elsewhere, *inside, *alike)))[:_SUGGESTIONS]


def _lines_of(document: StoredDocument, first: int | None, last: int | None) -> DocumentLines:
    lines = _BREAK.split(document.text)
    ending = ""
    if len(lines) > 1 and lines[-1] == "":  # a line end ends a line, and begins none
        lines.pop()
        ending = "\n"
    start, end = first or 1, last or len(lines)
    if not 1 <= start <= end or start > len(lines):
        raise InputError(f"{document.path} has lines 1-{len(lines)}, not {start}-{end}")
    chosen = tuple(lines[start - 1 : end])
    return DocumentLines(document, chosen, start, len(lines), ending if end >= len(lines) else "")
