"""Chooses the reader of a file by its extension, and reads the file with it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import cast

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import Reader, ReadFailure, file_type
from catalog.ingest.readers.opening import open_regular

DEFAULT_MAX_BYTES = 20_000_000

_FORMATS = {
    "markdown": ("MarkdownReader", "md markdown mdown mkd mdx"),
    "rst": ("RstReader", "rst rest"),
    "html": ("HtmlReader", "html htm xhtml"),
    "jsonl": ("JsonLinesReader", "jsonl ndjson"),
    "code": (
        "CodeReader",
        "bash bat c cc cfg clj conf cpp cs css cxx dart el erl ex exs go gradle h hpp hs ini java "
        "jl js json jsx kt less lisp lua mjs ml php pl proto ps1 py pyi r rb rs scala scss sh sql "
        "svelte svg swift tex toml ts tsx vb vue xml xsd xsl yaml yml zig",
    ),
}
_BY_EXTENSION = {
    extension: (module, name)
    for module, (name, extensions) in _FORMATS.items()
    for extension in extensions.split()
}
_PLAIN = ("plain", "PlainTextReader")


def get_reader(path: str) -> Reader:
    """The reader for that name; plain text for any extension it does not know."""
    module, name = _BY_EXTENSION.get(file_type(path), _PLAIN)
    reader = getattr(import_module(f"catalog.ingest.readers.{module}"), name)
    return cast(Reader, reader())


def read_file(
    absolute: Path, path: str, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> Iterator[ParsedDocument | ReadFailure]:
    """The documents of one file: one, or for JSON Lines one for each record.

    ``absolute`` is what is opened, ``path`` what the document is called. A part that cannot
    be read is answered as a ``ReadFailure`` and the rest go on; for a file that is unusable as
    a whole, ``ReadError`` (whose message is the reason, without the path) is raised at the first
    step of the iteration. ``max_bytes`` bounds a file, or one record of a JSON Lines file.
    """
    with open_regular(absolute) as handle:
        yield from get_reader(path).read(handle, path, max_bytes=max_bytes)
