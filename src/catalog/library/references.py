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
    """Return the source document ids that paths, globs (as in ``.gitignore``) and docids name.

    Raises :class:`DocumentNotFoundError` for a pattern that names none, and :class:`InputError`
    for one that cannot name any, such as ``!``.
    """
    source_doc_ids: dict[str, None] = {}
    with database.read() as connection:
        paths = list_paths(connection, dataset)
        for pattern in patterns:
            matches = _match(connection, dataset, pattern, paths)
            if not matches:
                near = _near(connection, pattern, dataset)
                raise DocumentNotFoundError(f"no document of {dataset!r} is {pattern!r}", near)
            source_doc_ids.update(dict.fromkeys(matches))
    return list(source_doc_ids)


def _match(connection: Connection, dataset: str, pattern: str, paths: list[str]) -> list[str]:
    name = pattern.removeprefix(f"{dataset}:")
    if name in paths:
        return [f"{dataset}:{name}"]
    docid = _DOCID.fullmatch(pattern)
    if docid is not None:
        return [document.source_doc_id for document in find_by_docid(connection, docid[1], dataset)]
    glob = Glob.compile(name)
    return [f"{dataset}:{path}" for path in paths if glob.matches(path)]


def _find(connection: Connection, reference: str, dataset: str | None) -> StoredDocument | None:
    docid = _DOCID.fullmatch(reference)
    if docid is not None:
        return _only(find_by_docid(connection, docid[1], dataset), reference)
    names = [dataset] if dataset else [stored.name for stored in list_datasets(connection)]
    documents = []
    for name in names:
        path = reference.removeprefix(f"{name}:")
        document = find_by_path(connection, name, path)
        if document is not None:
            documents.append(document)
    exact = [document for document in documents if document.source_doc_id == reference]
    return _only(exact or documents, reference)


def _only(documents: list[StoredDocument], reference: str) -> StoredDocument | None:
    if len(documents) > 1:
        names = ", ".join(document.source_doc_id for document in documents)
        raise InputError(f"{reference!r} names several documents: {names}")
    return documents[0] if documents else None


def _near(connection: Connection, name: str, dataset: str | None) -> list[str]:
    """Return references that may have been meant: the same path elsewhere, then similar ones."""
    datasets = [stored.name for stored in list_datasets(connection)]
    elsewhere = [
        document.source_doc_id
        for name_ in datasets
        if name_ != dataset and (document := find_by_path(connection, name_, name)) is not None
    ]
    text = name.removeprefix("#").casefold()
    inside, by_name = [], defaultdict(list)
    for name_ in [dataset] if dataset else datasets:
        for path in list_paths(connection, name_):
            reference = f"{name_}:{path}"
            if text in reference.casefold():
                inside.append(reference)
            for form in {reference, path, path.rpartition("/")[2]}:
                by_name[form.casefold()].append(reference)
    close = difflib.get_close_matches(text, by_name, n=_SUGGESTIONS, cutoff=_ALIKE)
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
