"""Jupyter notebooks: prose as Markdown, code and its printed results as fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from catalog.core.errors import ReadError
from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import ReadFailure
from catalog.ingest.readers.containers.joined import JoinedText
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.limits import ReadLimits
from catalog.ingest.readers.markdown_scan import scan
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.notebook_cells import Cell, parse_notebook

_BACKTICKS = re.compile(r"`{3,}")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


class NotebookReader:
    """The cells in order; pictures, HTML and controls among the outputs are left out."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The one document of the file; ``kernel`` names the language that it runs.

        Raises ``ReadError`` if it is no notebook or over a limit, or holds no text.
        """
        data = handle.read(limits.document_bytes + 1)
        if len(data) > limits.document_bytes:
            raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
        notebook = parse_notebook(decode(data))
        language = _language(notebook.metadata)
        joined = JoinedText(limits)
        for cell in notebook.cells:
            _add(joined, cell, language)
        first = joined.headings[0].title if joined.headings else None
        yield joined.document(
            path,
            title=first or notebook.metadata.get("title"),
            file_type="ipynb",
            metadata=normalise(_fields(notebook.metadata, language)),
        )


def _add(joined: JoinedText, cell: Cell, language: str) -> None:
    if cell.kind == "code":
        for kind, text in ((language, cell.source), *(("", output) for output in cell.outputs)):
            if text.strip():
                block = _fenced(text, kind)
                joined.add(block, atomic=[(0, len(block))])
        return
    source = cell.source.strip("\r\n").rstrip()
    if cell.kind == "raw":
        joined.add(source)
    else:
        outline = scan(source)
        joined.add(source, outline.headings, outline.atomic)


def _fenced(text: str, language: str) -> str:
    """A fenced block whose fence is longer than any in the text."""
    longest = max((len(mark) for mark in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    body = text.strip("\r\n").rstrip()
    return f"{fence}{language}\n{body}\n{fence}"


def _language(metadata: Mapping[str, object]) -> str:
    for holder, key in (("language_info", "name"), ("kernelspec", "language")):
        values = metadata.get(holder)
        name = values.get(key) if isinstance(values, dict) else None
        if isinstance(name, str) and _LANGUAGE.fullmatch(name):
            return name
    return ""


def _fields(metadata: Mapping[str, object], language: str) -> dict[str, object]:
    authors = metadata.get("authors")
    names = [
        author.get("name") if isinstance(author, dict) else author
        for author in (authors if isinstance(authors, list) else [])
    ]
    found = [name for name in names if isinstance(name, str)]
    author = found[0] if len(found) == 1 else found
    return {
        "kernel": language or None,
        "author": author or None,
        "tags": metadata.get("tags"),
        "date": metadata.get("date"),
    }
