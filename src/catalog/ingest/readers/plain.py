"""Read text, source code and JSON unchanged, unless it has the form of a transcript.

JSON Lines have one document in each line: ``_id`` or ``id``, ``title``, ``text``, ``metadata``, as
in BEIR collections. The file is streamed, with one line in memory at a time.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from io import TextIOWrapper
from itertools import islice
from pathlib import PurePosixPath
from typing import AnyStr, BinaryIO

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import CutShortError, ReadError
from catalog.core.places import Places
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import (
    ReadFailure,
    ReadLimits,
    WholeFileReader,
    cap_failures,
    choose_title,
    file_type,
)
from catalog.ingest.readers.decoding import decode, leave_out_base64, wide_encoding
from catalog.ingest.readers.metadata import (
    LEVEL,
    normalise,
    one_level,
    read_json,
    stated_levels,
)
from catalog.ingest.readers.tables import make_table, names_columns
from catalog.ingest.readers.timed.converted import add_segments
from catalog.ingest.readers.timed.frames import describe_source, is_called_transcript
from catalog.ingest.readers.timed.transcripts import read_transcript_json


class PlainTextReader(WholeFileReader):
    """Read text unchanged, except if its lines begin with times."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged, or as a transcript; a ``.log`` stays a log."""
        document = _as_it_stands(text, path)
        if ".log" in PurePosixPath(path.lower()).suffixes:
            return document
        return add_segments(document, describe_source(path, {}, has_header=False))


class CsvReader(PlainTextReader):
    """Read rows unchanged; the names of their columns go with each passage of them."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged, with its table, or as a transcript."""
        told = _DIRECTIVE.match(text)
        if told is not None:
            text = text[told.end() :]  # from its line end on: the lines keep their numbers
        document = super().parse(text, path)
        delimiters = _DELIMITERS if told is None else told[1]
        return document if document.segments else _add_table(document, delimiters)


_DELIMITERS = ",;\t|"
_DIRECTIVE = re.compile(r'"?sep=([^\r\n"])"?(?=\r?\n)', re.IGNORECASE)
"""The first line by which Excel is told the delimiter."""
_ROWS_COMPARED = 50


def _add_table(document: ParsedDocument, delimiters: str) -> ParsedDocument:
    """Add the table of a text with delimiters, and rows of several lines that should stay whole.

    Of the delimiters it is the one that gives most of the first rows one number of columns. Lines
    above the first of these rows are a title.
    """
    text = document.text
    tried = [
        (*_count_columns(rows), -at, rows)
        for at, mark in enumerate(delimiters)
        if (rows := [row for row, *_ in islice(_read_rows(text, mark), _ROWS_COMPARED)])
    ]
    if not tried:
        return document
    _, columns, at, rows = max(tried)
    first = next(number for number, row in enumerate(rows) if len(row) == columns)
    starts, atomic = [], []
    for _, start, end, has_lines in _read_rows(text, delimiters[-at]):
        starts.append(start)
        atomic += [(start, end)] if has_lines else []
    has_names = columns > 1 and names_columns(rows[first:], may_be_form=False)
    tables = make_table(starts[first], len(text), [rows[first]]) if has_names else ()
    return replace(document, tables=tuple(tables), atomic=tuple(atomic))


def _count_columns(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return how many rows have the most frequent number of columns, if over 1, and that number."""
    counts = Counter(len(row) for row in rows)
    columns = max(counts, key=lambda number: (counts[number], number))
    return (counts[columns], columns) if columns > 1 else (0, columns)


def _read_rows(text: str, delimiter: str) -> Iterator[tuple[list[str], int, int, bool]]:
    """Yield the cells of each row, its start and end, and whether it has several lines.

    It ends at a row that the library refuses, such as one with a quotation that is not closed.
    """
    spans = list[tuple[int, int]]()

    def lines() -> Iterator[str]:
        for line in iter_lines(text):
            spans.append((line.start, line.end))
            yield text[line.start : line.next]

    with suppress(csv.Error):
        for row in csv.reader(lines(), delimiter=delimiter):
            if row:
                yield [cell.strip() for cell in row], spans[0][0], spans[-1][1], len(spans) > 1
            spans.clear()


class CodeReader(WholeFileReader):
    """Read text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding = True

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged."""
        return _as_it_stands(text, path)


class YamlReader(CodeReader):
    """Read YAML; text between ``---`` is data there and not front matter."""


class JsonReader(CodeReader):
    """Read the transcripts of YouTube, whisper and similar tools; other JSON is plain text."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the timed transcript, or the text with its line structure."""
        transcript = read_transcript_json(text, path)
        if transcript is not None:
            return transcript
        document = super().parse(_ESCAPES.sub(_decode_escapes, text), path)
        if is_called_transcript(path) or path.lower().endswith(".json3"):
            return replace(document, untimed=_NO_CUES)
        return document


_ESCAPES = re.compile(r"\\\\|(?:\\u[0-9a-fA-F]{4})+")


def _decode_escapes(match: re.Match[str]) -> str:
    r"""Return the letters of ``\u0418\u0440``; signs that are none stay escaped."""
    if "u" not in match[0]:
        return match[0]
    units = [f"{int(code, 16):04x}" for code in match[0].split("\\u")[1:]]
    letters = bytes.fromhex("".join(units)).decode("utf-16-be", "replace")
    is_safe = letters.isprintable() and "\ufffd" not in letters
    return letters if is_safe and not set(letters) & set('"\\') else match[0]


_NO_CUES = "read as text, not as a transcript: it has no list of items with a text and a start"


def _as_it_stands(text: str, path: str) -> ParsedDocument:
    return ParsedDocument(path=path, text=text, title=choose_title(path), file_type=file_type(path))


_SAMPLE_LINES = 20
"""Lines looked at to tell records from other JSON; so a broken first line spoils nothing."""
_PIECE = 1 << 16
_IDS = tuple(re.compile(rf'"{name}"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)') for name in ("_id", "id"))
_NO_RECORDS = (
    "read as text, not as records: none of its first lines has both an _id (or id) and a text"
)


class JsonLinesReader:
    """Read each line as a document with its ``_id`` or ``id`` as path; other files as plain text.

    A record's place is its line of the file. A line that is not a record, is longer than
    ``limits.text_bytes``, or repeats an identifier becomes a ``ReadFailure`` named
    ``file.jsonl:line``. A last line without a line end that is not JSON means that the file is
    still being written or was cut short.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the records in order, or the whole file as one document if it has none.

        Raises ``CutShortError`` after the last record of a file that is cut short.
        """
        with closing(_read_lines(handle, limits.text_bytes)) as lines:
            sample = [text for _, text, _ in islice(lines, _SAMPLE_LINES)]
        handle.seek(0)
        is_cut_record = len(sample) == 1 and sample[0].startswith("{") and _is_torn(sample[0])
        if is_cut_record or any(map(_is_record, sample)):
            if any(map(_is_label_alone, sample)):
                raise ReadError(f"{LEVEL} is in a line that is not a record")
            yield from _read_records(handle, path, limits.text_bytes)
        else:
            yield from PlainTextReader().read(handle, path, limits=limits)
            yield ReadFailure(path, _NO_RECORDS)


def _read_records(
    handle: BinaryIO, path: str, max_bytes: int
) -> Iterator[ParsedDocument | ReadFailure]:
    seen: set[str] = set()
    left_out: list[ReadFailure] = []
    for number, text, is_cut in _read_lines(handle, max_bytes):
        name = f"{path}:{number}"
        if is_cut:
            reason = f"record too large: over {max_bytes:,} bytes"
            yield ReadFailure(name, reason, _find_identifier(text))
            continue
        try:
            record = _parse_record(text)
        except ReadError as error:
            record = str(error)
        if isinstance(record, str) and _is_torn(text):
            raise CutShortError(
                f"line {number} is incomplete: the file is still being written, or lost its end"
            )
        if isinstance(record, str):
            yield ReadFailure(name, record, None if _is_json(text) else _find_identifier(text))
        elif record.path in seen:
            yield ReadFailure(name, f"_id {record.path!r} occurs in an earlier line")
        else:
            seen.add(record.path)
            text, left = leave_out_base64(record.text)
            if left is not None:
                left_out.append(ReadFailure(name, left))
            yield replace(record, text=text, places=Places("record", (0,), (number,)))
    yield from cap_failures(left_out)


def _is_record(line: str) -> bool:
    """Return whether a line is a record, even if its confidentiality cannot be read."""
    try:
        return isinstance(_parse_record(line), ParsedDocument)
    except ReadError:
        return True


def _is_label_alone(line: str) -> bool:
    """Return whether a line is no record but names a confidentiality, perhaps the file's."""
    if _is_record(line):
        return False
    try:
        value = read_json(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(stated_levels(value))


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _is_torn(line: str) -> bool:
    return not line.endswith("\n") and not _is_json(line)


def _find_identifier(line: str) -> str | None:
    """Return the identifier in a line of invalid JSON, ``None`` without one."""
    searches = (pattern.search(line[:_PIECE]) for pattern in _IDS)
    match = next(filter(None, searches), None)
    try:
        return None if match is None else _identifier(json.loads(match[1]))
    except ValueError:
        return None


def _identifier(raw: object) -> str | None:
    """Return the path of a record with this ``_id``; ``None`` for an invalid one."""
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        return None
    return storable(str(raw)).strip() or None


def _parse_record(line: str) -> ParsedDocument | str:
    """Return the document in a line, or the problem with it.

    Raises ``ReadError`` for a confidentiality that cannot be read.
    """
    try:
        value = read_json(line)
    except (ValueError, RecursionError) as error:
        return f"not valid JSON: {error}"
    if not isinstance(value, dict):
        return "not a JSON object"
    identifier = _identifier(value["_id"] if "_id" in value else value.get("id"))
    text, title = value.get("text"), value.get("title")
    if identifier is None:
        return "no _id or id"
    if not isinstance(text, str):
        return "no text"
    title = storable(title).strip() if isinstance(title, str) else ""
    if not title and not text.strip():
        return "empty"
    text = storable(text)
    if title and not text.startswith(title):
        text = f"{title}\n\n{text}" if text else title
    fields = _read_metadata(value)
    return ParsedDocument(
        path=identifier,
        text=text,
        title=choose_title(identifier, title) if title else identifier,
        file_type="jsonl",
        source_type="record",
        metadata=fields,
        written=frozenset(fields) | ({"title"} if title else set()),
    )


def _read_metadata(record: dict[str, object]) -> dict[str, MetadataValue]:
    """Return ``metadata`` and the confidentiality that the record itself states."""
    metadata = record.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {"metadata": metadata}
    own = normalise(fields)
    levels = normalise(
        stated_levels({name: it for name, it in record.items() if it is not metadata})
    )
    return {**own, **one_level(own.get(LEVEL), levels.get(LEVEL))}


def _read_lines(handle: BinaryIO, max_bytes: int) -> Generator[tuple[int, str, bool], None, None]:
    """Yield number (from 1) and text of lines that are not blank, and whether they are cut.

    A line longer than ``max_bytes`` is cut: its text is just its beginning.
    """
    mark = wide_encoding(handle.read(_PIECE))
    handle.seek(0 if mark is None else len(mark[0]))
    if mark is None:
        for number, line, is_cut in _split_lines(handle.readline, max_bytes, b"\n"):
            text = decode(line[:_PIECE] if is_cut else line)
            if text.strip():
                yield number, text, is_cut
        return
    # In UTF-16 and UTF-32 a line feed is not a single byte.
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
