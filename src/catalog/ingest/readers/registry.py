"""Chooses the reader of a file by its content, then by its name, and reads the file with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, cast

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.base import DEFAULT_LIMITS, Reader, ReadFailure, ReadLimits
from catalog.ingest.readers.opening import HEAD, TAIL, open_regular, sniff

_CLASSES: dict[str, tuple[str, str]] = {
    "markdown": ("markdown", "MarkdownReader"),
    "rst": ("rst", "RstReader"),
    "html": ("html", "HtmlReader"),
    "jsonl": ("jsonl", "JsonLinesReader"),
    "code": ("plain", "CodeReader"),
    "json": ("plain", "JsonReader"),
    "subtitles": ("timed.subtitles", "SubtitleReader"),
    "plain": ("plain", "PlainTextReader"),
}


def get_reader(path: str, head: bytes = b"", tail: bytes = b"") -> Reader:
    """The reader for a file of that name which begins and ends with those bytes.

    Raises ``ReadError`` for content that no reader is for (pictures, programs, archives).
    """
    return _reader(sniff(path, head, tail).reader)


def read_file(
    absolute: Path, path: str, *, root: Path | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> Iterator[ParsedDocument | ReadFailure]:
    """The documents of one file: one, or for JSON Lines one for each record.

    ``absolute`` is what is opened, ``path`` what the document is called; with ``root`` no step
    from there to the file may be a symlink. A part that cannot be read is answered as a
    ``ReadFailure`` and the rest go on; for a file that is unusable as a whole, ``ReadError``
    (whose message is the reason, without the path) is raised at the first step of the iteration.
    """
    with open_regular(absolute, root=root) as handle:
        kind = sniff(path, *_ends(handle))
        for item in _reader(kind.reader).read(handle, path, limits=limits):
            if isinstance(item, ParsedDocument) and kind.file_type is not None:
                yield replace(item, file_type=kind.file_type)
            else:
                yield item


def _ends(handle: BinaryIO) -> tuple[bytes, bytes]:
    head = handle.read(HEAD)
    size = handle.seek(0, 2)
    handle.seek(max(0, size - TAIL))
    tail = handle.read(TAIL)
    handle.seek(0)
    return head, tail


def _reader(name: str) -> Reader:
    if name in _CLASSES:
        module, class_name = _CLASSES[name]
        reader = getattr(import_module(f"catalog.ingest.readers.{module}"), class_name)
        return cast(Reader, reader())
    from catalog.ingest.readers.isolated import IsolatedReader

    return IsolatedReader(name)
