"""JSON Lines with one document in each line: ``_id``, ``title``, ``text``, ``metadata``.

That is the form of the BEIR collections. The file is streamed: one line is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from typing import BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.base import (
    ReadFailure,
    ReadLimits,
    byte_order_mark,
    decode,
    title_or_stem,
)
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.plain import PlainTextReader

_LOOKED_AT = 20
"""Lines looked at to tell records from other JSON; so a broken first line spoils nothing."""
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    is_cut: bool = False
    """Longer than a record may be: ``text`` is only its beginning."""


class JsonLinesReader:
    """Each line is a document whose path is its ``_id``; other JSON Lines are plain text.

    A line that is no record, is longer than ``limits.text_bytes``, or repeats an ``_id`` is
    answered as a ``ReadFailure`` named ``file.jsonl:line``.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The records in order, or the whole file as one document if it holds none."""
        with closing(_lines(handle, limits.text_bytes)) as lines:
            first = islice(lines, _LOOKED_AT)
            holds_records = any(isinstance(_parse(line.text), _Record) for line in first)
        handle.seek(0)
        if holds_records:
            yield from _records(handle, path, limits.text_bytes)
        else:
            yield from PlainTextReader().read(handle, path, limits=limits)


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    title: str
    text: str
    metadata: Mapping[str, object]

    def document(self) -> ParsedDocument:
        is_titled = bool(self.title) and not self.text.startswith(self.title)
        text = f"{self.title}\n\n{self.text}" if is_titled and self.text else self.text
        return ParsedDocument(
            path=self.id,
            text=text or self.title,
            title=title_or_stem(self.title, self.id) if self.title else self.id,
            file_type="jsonl",
            source_type="record",
            metadata=normalise(self.metadata),
        )


def _records(handle: BinaryIO, path: str, max_bytes: int) -> Iterator[ParsedDocument | ReadFailure]:
    seen: set[str] = set()
    for line in _lines(handle, max_bytes):
        where = f"{path}:{line.number}"
        if line.is_cut:
            yield ReadFailure(where, f"record too large: over {max_bytes:,} bytes")
            continue
        record = _parse(line.text)
        if isinstance(record, str):
            yield ReadFailure(where, record)
        elif record.id in seen:
            yield ReadFailure(where, f"_id {record.id!r} stands in an earlier line already")
        else:
            seen.add(record.id)
            yield record.document()


def _parse(line: str) -> _Record | str:
    """The record in a line, or what is wrong with it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not valid JSON: {error}"
    if not isinstance(value, dict):
        return "not a JSON object"
    identifier, text, title = value.get("_id"), value.get("text"), value.get("title")
    if isinstance(identifier, bool) or not isinstance(identifier, str | int):
        return "no _id"
    name = storable(str(identifier)).strip()
    if not name:
        return "no _id"
    if not isinstance(text, str):
        return "no text"
    title = storable(title).strip() if isinstance(title, str) else ""
    if not title and not text.strip():
        return "empty"
    metadata = value.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return _Record(name, title, storable(text), known)


def _lines(handle: BinaryIO, max_bytes: int) -> Generator[_Line, None, None]:
    """The lines that are not blank, numbered from 1, none longer than ``max_bytes``."""
    mark = byte_order_mark(handle.read(4))
    handle.seek(0)
    if mark is not None:
        yield from _wide_lines(handle, max_bytes)
        return
    number = 0
    while line := handle.readline(max_bytes + 1):
        number += 1
        is_cut = len(line) > max_bytes and not line.endswith(b"\n")
        if is_cut:
            _skip_line(handle)
        text = decode(line[:_PIECE] if is_cut else line)
        if text.strip():
            yield _Line(number, text, is_cut)


def _skip_line(handle: BinaryIO) -> None:
    while (piece := handle.readline(_PIECE)) and not piece.endswith(b"\n"):
        pass


def _wide_lines(handle: BinaryIO, max_bytes: int) -> Iterator[_Line]:
    """Lines of a file in UTF-16 or UTF-32, in which a line feed is no single byte."""
    mark = byte_order_mark(handle.read(4)) or (b"", "utf-8")
    handle.seek(len(mark[0]))
    decoded = TextIOWrapper(handle, mark[1], errors="replace", newline="\n")
    try:
        number = 0
        while line := decoded.readline(max_bytes + 1):
            number += 1
            is_cut = len(line) > max_bytes and not line.endswith("\n")
            while is_cut and (piece := decoded.readline(_PIECE)) and not piece.endswith("\n"):
                pass
            if line.strip():
                yield _Line(number, line, is_cut)
    finally:
        # Or the wrapper would close the file, which is read again from its start.
        decoded.detach()
