"""JSON Lines with one document in each line: ``_id``, ``title``, ``text``, ``metadata``.

That is the form of the BEIR collections. The file is streamed: one line is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from io import TextIOWrapper
from itertools import islice
from typing import AnyStr, BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.base import (
    ReadFailure,
    ReadLimits,
    byte_order_mark,
    choose_title,
    decode,
)
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.plain import PlainTextReader

_SAMPLE_LINES = 20
"""Lines looked at to tell records from other JSON; so a broken first line spoils nothing."""
_PIECE = 1 << 16


class JsonLinesReader:
    """Reads each line as a document whose path is its ``_id``; other JSON Lines as plain text.

    A line that is no record, is longer than ``limits.text_bytes``, or repeats an ``_id`` is
    answered as a ``ReadFailure`` named ``file.jsonl:line``.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the records in order, or the whole file as one document if it holds none."""
        with closing(_read_lines(handle, limits.text_bytes)) as lines:
            has_records = any(
                isinstance(_parse_record(text), ParsedDocument)
                for _, text, _ in islice(lines, _SAMPLE_LINES)
            )
        handle.seek(0)
        if has_records:
            yield from _read_records(handle, path, limits.text_bytes)
        else:
            yield from PlainTextReader().read(handle, path, limits=limits)


def _read_records(
    handle: BinaryIO, path: str, max_bytes: int
) -> Iterator[ParsedDocument | ReadFailure]:
    seen: set[str] = set()
    for number, text, is_cut in _read_lines(handle, max_bytes):
        name = f"{path}:{number}"
        if is_cut:
            yield ReadFailure(name, f"record too large: over {max_bytes:,} bytes")
            continue
        record = _parse_record(text)
        if isinstance(record, str):
            yield ReadFailure(name, record)
        elif record.path in seen:
            yield ReadFailure(name, f"_id {record.path!r} stands in an earlier line already")
        else:
            seen.add(record.path)
            yield record


def _parse_record(line: str) -> ParsedDocument | str:
    """Return the document in a line, or what is wrong with it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not valid JSON: {error}"
    if not isinstance(value, dict):
        return "not a JSON object"
    raw_id, text, title = value.get("_id"), value.get("text"), value.get("title")
    if isinstance(raw_id, bool) or not isinstance(raw_id, str | int):
        return "no _id"
    identifier = storable(str(raw_id)).strip()
    if not identifier:
        return "no _id"
    if not isinstance(text, str):
        return "no text"
    title = storable(title).strip() if isinstance(title, str) else ""
    if not title and not text.strip():
        return "empty"
    text = storable(text)
    if title and not text.startswith(title):
        text = f"{title}\n\n{text}" if text else title
    metadata = value.get("metadata")
    return ParsedDocument(
        path=identifier,
        text=text,
        title=choose_title(identifier, title) if title else identifier,
        file_type="jsonl",
        source_type="record",
        metadata=normalise(metadata if isinstance(metadata, dict) else {}),
    )


def _read_lines(handle: BinaryIO, max_bytes: int) -> Generator[tuple[int, str, bool], None, None]:
    """Yield the number (from 1) and text of the lines that are not blank, and if they are cut.

    A line is cut if it is longer than ``max_bytes``: its text is only its beginning.
    """
    mark = byte_order_mark(handle.read(4))
    handle.seek(0 if mark is None else len(mark[0]))
    if mark is None:
        for number, line, is_cut in _split_lines(handle.readline, max_bytes, b"\n"):
            text = decode(line[:_PIECE] if is_cut else line)
            if text.strip():
                yield number, text, is_cut
        return
    # In UTF-16 and UTF-32 a line feed is no single byte.
    wide = TextIOWrapper(handle, mark[1], errors="replace", newline="\n")
    try:
        for number, text, is_cut in _split_lines(wide.readline, max_bytes, "\n"):
            if text.strip():
                yield number, text, is_cut
    finally:
        # Or the wrapper would close the file, which is read again from its start.
        wide.detach()


def _split_lines(
    readline: Callable[[int], AnyStr], max_length: int, line_feed: AnyStr
) -> Iterator[tuple[int, AnyStr, bool]]:
    number = 0
    while line := readline(max_length + 1):
        number += 1
        is_cut = len(line) > max_length and not line.endswith(line_feed)
        while is_cut and (piece := readline(_PIECE)) and not piece.endswith(line_feed):
            pass
        yield number, line, is_cut
