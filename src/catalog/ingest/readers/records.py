"""JSON Lines, and any JSON or Evernote export that holds records, messages or notes.

A list of objects with a title, or with messages of their own, gives one document for each. A list
of messages without titles is one document, with a line for each. There is no reader for each
product: text, title, author and date come from the usual keys. Other JSON is plain text.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from lxml import etree

from catalog.core.dates import read_written_date
from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import CutShortError, EmptyDocumentError, ReadError
from catalog.core.places import WITHIN, Places, PlacesBuilder
from catalog.core.text import storable
from catalog.ingest.readers.base import (
    JoinedText,
    ReadFailure,
    ReadLimits,
    cap_failures,
    choose_title,
    file_type,
    one_line,
    read_bytes,
)
from catalog.ingest.readers.decoding import decode, leave_out_base64, mend_mojibake, wide_encoding
from catalog.ingest.readers.html import HtmlReader
from catalog.ingest.readers.metadata import LEVEL, normalise, one_level, read_json, stated_levels
from catalog.ingest.readers.text import CodeReader, PlainTextReader
from catalog.ingest.readers.timed.frames import is_called_transcript
from catalog.ingest.readers.timed.transcripts import read_transcript_json

Item = ParsedDocument | ReadFailure

_TITLES = ("title", "subject", "name")
_TEXTS = (
    "text", "content", "body", "message", "textContent", "parts", "note", "selftext", "answer",
    "markdown", "rendered", "html", "content_text", "content_html",
)  # fmt: skip
_AUTHORS = ("author", "from", "sender_name", "sender", "user", "role", "username", "name", "login")
_DATES = (
    "date", "created_at", "create_time", "createdTimestampUsec", "timestamp_ms", "timestamp", "ts",
    "created", "createdAt", "creationDate", "date_published", "published_at", "created_utc", "time",
)  # fmt: skip
_TAGS = ("tags", "labels", "keywords")
_INNER = ("message", "content", "note", "snippet") * 2
_ROLES = ("user", "assistant", "system", "human", "tool")
_IDS = ("_id", "id", "uuid")
_KNOWN = {*_TITLES, *_TEXTS, *_AUTHORS, *_DATES, *_TAGS, *_IDS, "metadata", "current_node"}
_DEEPEST = 4


class JsonReader(CodeReader):
    """Read records and transcripts in JSON; other JSON is plain text with letters for escapes."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Iterator[Item]:
        """Yield the documents of the records, or the file as a transcript or as text.

        A file of records may have ``limits.document_bytes``.
        """
        data, whole, left = read_bytes(handle, limits.document_bytes), None, None
        with suppress(ValueError, RecursionError):
            text, left = leave_out_base64(decode(data))
            whole = _find_records(read_json(text))
            whole = None if whole and read_transcript_json(text, path) else whole
        if whole is None:
            yield from super().read(BytesIO(data), path, limits=limits)
            return
        titles = {one.title for one in whole.messages if one.title}
        holders = sum(bool(one.messages) for one in whole.messages)
        if 2 * max(len(titles), holders) > len(whole.messages):
            yield from _write_all(path, whole.messages, limits)
            yield from _other_fields(path, [whole, *whole.messages])
        else:
            yield _write(path, whole, limits, is_file=True)
            yield from _other_fields(path, [whole])
        if left is not None:
            yield ReadFailure(path, left)

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the timed transcript, or the text with its line structure."""
        transcript = read_transcript_json(text, path)
        if transcript is not None:
            return transcript
        document = super().parse(_ESCAPES.sub(_decode_escapes, text), path)
        is_called = is_called_transcript(path) or path.lower().endswith(".json3")
        return replace(document, untimed=_NO_CUES) if is_called else document


_NO_CUES = "read as text, not as a transcript: it has no list of items with a text and a start"
_ESCAPES = re.compile(r"\\\\|(?:\\u[0-9a-fA-F]{4})+")


def _decode_escapes(match: re.Match[str]) -> str:
    r"""Return the letters of ``\u0418\u0440``; signs that are none stay escaped."""
    letters = json.loads(f'"{match[0]}"')
    return letters if letters.isprintable() and not set(letters) & set('"\\') else match[0]


class _Record(NamedTuple):
    """An object of an export, with its text, and the messages in its field ``held``."""

    number: int
    fields: dict[str, Any]
    text: str
    held: str = ""
    messages: Sequence[_Record] = ()

    @property
    def title(self) -> str:
        return _first(self.fields, _TITLES)

    @property
    def author(self) -> str:
        return _first(self.fields, _AUTHORS)

    @property
    def moment(self) -> str:
        """The first date, as ``2024-03-05 10:12`` or shorter; "" without one."""
        for value in map(self.fields.get, _DATES):
            with suppress(TypeError, ValueError, OverflowError):
                seconds = float(value or "")
                while 1e11 < seconds < 1e19:  # milliseconds, microseconds
                    seconds /= 1000
                if 1e8 < seconds <= 1e11:
                    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(" ")[:16]
            if isinstance(value, str) and (date := read_written_date(value)):
                return date[:16].replace("T", " ")
        return ""


def _find_records(value: object) -> _Record | None:
    """Return the object that holds the list with the most text, with these records as messages.

    An object with a text and a title alone is itself a record. Return ``None`` for other JSON.
    """
    if not isinstance(value, dict):
        records = _list_records(value, is_bare=True)
        return _Record(1, {}, "", "", records) if records else None
    most, best, todo = 0, None, [(value, 0)]
    for holder, depth in todo:  # which grows
        for name, inner in holder.items():
            records = _list_records(inner)
            texts = (one.text for record in records for one in (record, *record.messages))
            if (length := sum(map(len, texts))) > most:
                most, best = length, _Record(1, holder, "", name, records)
            todo += [(inner, depth + 1)] if isinstance(inner, dict) and depth < _DEEPEST else []
    record = _read_record(value, 1)
    return record if best is None and record.text and record.title else best


def _list_records(value: object, *, is_bare: bool = False) -> list[_Record]:
    """Return the objects with text or messages; none if they are not most of the list.

    Unless ``is_bare``, they need a title, an author or a date as well: settings have none.
    """
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return []
    read = (_read_record(one, at) for at, one in enumerate(items, 1) if isinstance(one, dict))
    records = [
        one
        for one in read
        if one.messages or (one.text and (is_bare or one.title or one.author or one.moment))
    ]
    return records if 2 * len(records) > len(items) else []


def _read_record(value: dict[str, Any], number: int, *, is_message: bool = False) -> _Record:
    """Return the record in an object, joined with an object in it that has its content."""
    fields = dict(value)
    for name in _INNER:
        if isinstance(inner := fields.get(name), dict):
            fields = {**{key: it for key, it in fields.items() if key != name}, **inner}
    for name, inner in fields.items() if not is_message else ():
        items = _branch(inner, fields.get("current_node")) if isinstance(inner, dict) else inner
        objects = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
        read = (_read_record(one, number, is_message=True) for one in objects)
        if messages := [one for one in read if one.text and (one.author or one.moment)]:
            return _Record(number, fields, _text(fields), name, messages)
    return _Record(number, fields, _text(fields))


def _branch(tree: dict[str, Any], node: object) -> list[Any]:
    """Return the nodes from the root to the current one; all values if that is not in the tree."""
    branch = dict[str, Any]()
    while isinstance(node, str) and node not in branch and isinstance(tree.get(node), dict):
        branch[node] = tree[node]
        node = tree[node].get("parent")
    return [*reversed(branch.values())] or [*tree.values()]


def _first(fields: dict[str, Any], names: Sequence[str]) -> str:
    """Return the first of these fields that is words, or an object with a name; "" without one."""
    for value in map(fields.get, names):
        if isinstance(value, dict):
            value = next((value[one] for one in ("name", *_AUTHORS) if value.get(one)), None)
        if isinstance(value, str) and value.strip():
            return one_line(mend_mojibake(value))
    return ""


def _text(value: object, depth: int = 0) -> str:
    """Return the text of a string, of pieces, or of an object in its usual field."""
    if isinstance(value, str):
        text = storable(mend_mojibake(value)).strip("\r\n")
        if text.lstrip().startswith("<") and "</" in text:
            with suppress(EmptyDocumentError):
                return HtmlReader().parse(_PROLOGUE.sub("", text, count=1), "record.html").text
        return text if text.strip() else ""
    if depth == _DEEPEST:
        return ""
    if isinstance(value, list):
        are_mixed = len({isinstance(one, str) for one in value}) == 2  # a line with bold words
        texts = (_text(one, depth + 1) for one in value)
        return ("" if are_mixed else "\n").join(filter(None, texts))
    if isinstance(value, dict):
        return next(filter(None, (_text(value.get(name), depth + 1) for name in _TEXTS)), "")
    return ""


_PROLOGUE = re.compile(r"\A\s*+(?:<[?!][^<>]*+>\s*+)++")


def _write_all(path: str, records: Iterable[_Record], limits: ReadLimits) -> Iterator[Item]:
    """Yield a document for each record, called by its title, its id, or its number."""
    names = Counter[str]()
    for record in records:
        stated = [record.title, *map(record.fields.get, _IDS), record.number]
        known = (str(one) for one in stated if isinstance(one, str | int) and one != "")
        name = one_line(next(known)).replace(WITHIN.strip(), "-")
        names[name] += 1
        while names[name] > 1:
            name = f"{name} ({names[name]})"
            names[name] += 1
        with suppress(EmptyDocumentError):
            yield _write(f"{path}{WITHIN}{name}", record, limits)


def _write(path: str, record: _Record, limits: ReadLimits, *, is_file: bool = False) -> Item:
    """Return the document of a record, or of the file, whose messages are records themselves."""
    joined, own = JoinedText(limits, "record"), Places("record", (0,), (record.number,))
    joined.add("" if record.text.startswith(record.title) else record.title, places=own)
    joined.add(record.text, places=own)
    day, lines, places, at = "", list[str](), PlacesBuilder("record"), 0
    for one in record.messages:
        moment = one.moment
        if lines and moment[:10] not in ("", day):
            joined.add("\n".join(lines), places=places.places())
            lines, places, at = [], PlacesBuilder("record"), 0
        day = moment[:10] or day
        shown = "" if not is_file and one.author in _ROLES else moment
        said_by = ", ".join(filter(None, (one.author, shown)))
        lines.append(f"{said_by}: {one.text}" if said_by else one.text)
        places.add(at, one.number)
        at += len(lines[-1]) + 1
    joined.add("\n".join(lines), places=places.places())
    fields = {
        "author": record.author if record.author != record.title else None,
        "created": record.moment.replace(" ", "T"),
        "tags": [tag for name in _TAGS for tag in _words(record.fields.get(name))],
    }
    others = {name: value for name, value in record.fields.items() if name != record.held}
    inner = [name for one in record.messages for name in stated_levels(dict.fromkeys(one.fields))]
    metadata = _metadata({**others, **dict.fromkeys(inner)}, fields)
    kind = file_type(path.partition(WITHIN)[0])
    document = joined.document(path, title=record.title, file_type=kind, metadata=metadata)
    written = frozenset(metadata) | ({"title"} if record.title else set())
    return replace(document, source_type="file" if is_file else "record", written=written)


def _metadata(record: dict[str, Any], known: dict[str, Any]) -> dict[str, MetadataValue]:
    """Return the known fields, those in ``metadata``, and the level that the record states."""
    stated = record.get("metadata")
    own = normalise({**known, **(stated if isinstance(stated, dict) else {"metadata": stated})})
    others = {name: value for name, value in record.items() if value is not stated}
    levels = normalise(stated_levels(others))
    return {**own, **one_level(own.get(LEVEL), levels.get(LEVEL))}


def _words(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the strings with letters in a value, without addresses."""
    if isinstance(value, str) and "://" not in value and any(map(str.isalpha, value)):
        yield storable(mend_mojibake(value.strip()))
    elif isinstance(value, dict | list) and depth < _DEEPEST:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _words(inner, depth + 1)


def _other_fields(path: str, records: Iterable[_Record]) -> Iterator[ReadFailure]:
    names = dict[str, None]()
    for one in records:
        others = (name for name in one.fields if name not in _KNOWN and name != one.held)
        names |= {one_line(name): None for name in others if any(_words(one.fields[name]))}
    if names:
        yield ReadFailure(path, f"fields that are not read: {', '.join(islice(names, 20))}")


class EnexReader:
    """Read the notes of an Evernote export: each is a document."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Iterator[Item]:
        """Yield the notes in order, and a remark if they have attachments."""
        data, notes, attached = BytesIO(read_bytes(handle, limits.document_bytes)), [], 0
        parsed = etree.iterparse(
            data, tag="note", recover=True, huge_tree=True, resolve_entities=False, no_network=True
        )
        for number, (_, note) in enumerate(parsed, start=1):
            fields = {
                "title": note.findtext("title"),
                "html": note.findtext("content"),
                "created": _COMPACT.sub(r"\1-\2-\3T\4:\5", note.findtext("created") or ""),
                "author": note.findtext("note-attributes/author"),
                "tags": [tag.text for tag in note.iter("tag")],
            }
            notes.append(_read_record(fields, number))
            attached += len(note.findall("resource"))
            note.clear()
        yield from _write_all(path, notes, limits)
        if attached:
            yield ReadFailure(path, f"{attached:,} attachments of its notes are not read")


_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ")

_PIECE = 1 << 16
_ID = re.compile(r'"_id"\s*+:\s*+(?:"([^"\\]*+)"|(-?\d++))')
_NO_RECORDS = (
    "read as text, not as records: none of its first lines has both an _id (or id) and a text; "
    "if it is UTF-16, save it as UTF-8"
)


class JsonLinesReader:
    """Read each line as a document with its ``_id`` or ``id`` as path; other files as plain text.

    The file is streamed. A line that is not a record, is longer than ``limits.text_bytes``, or
    repeats an identifier becomes a ``ReadFailure`` named ``file.jsonl:line``.
    """

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Iterator[Item]:
        """Yield the records in order, or the whole file as one document if it has none.

        Raises ``CutShortError`` after the last record of a file whose last line is not complete.
        """
        # Twenty lines, so that a broken first one spoils nothing.
        sample = [line for _, line, _ in islice(_read_lines(handle, limits.text_bytes), 20)]
        handle.seek(0)
        is_wide = wide_encoding(handle.read(_PIECE)) is not None
        handle.seek(0)
        values = list(map(_load, sample))
        others = [value for value in values if isinstance(_parse_record(value), str)]
        is_cut = len(sample) == 1 and sample[0].startswith("{") and _is_torn(sample[0], values[0])
        if is_wide or (not is_cut and len(others) == len(sample)):
            yield from PlainTextReader().read(handle, path, limits=limits)
            yield ReadFailure(path, _NO_RECORDS)
            return
        if any(isinstance(value, dict) and stated_levels(value) for value in others):
            raise ReadError(f"{LEVEL} is in a line that is not a record")
        yield from _read_json_lines(handle, path, limits.text_bytes)


def _read_json_lines(handle: BinaryIO, path: str, max_bytes: int) -> Iterator[Item]:
    seen, left_out = set[str](), list[ReadFailure]()
    for number, line, is_cut in _read_lines(handle, max_bytes):
        name, value = f"{path}:{number}", None if is_cut else _load(line)
        record = f"record too large: over {max_bytes:,} bytes" if is_cut else _parse_record(value)
        if isinstance(record, str):
            if not is_cut and _is_torn(line, value):
                raise CutShortError(
                    f"line {number} is incomplete: the file is still being written, or lost its end"
                )
            is_broken = is_cut or isinstance(value, Exception)
            match = _ID.search(line[:_PIECE]) if is_broken else None
            yield ReadFailure(name, record, (match[1] or match[2]) if match is not None else None)
        elif record.path in seen:
            yield ReadFailure(name, f"_id {record.path!r} occurs in an earlier line")
        else:
            seen.add(record.path)
            text, left = leave_out_base64(record.text)
            left_out += [ReadFailure(name, left)] if left is not None else []
            yield replace(record, text=text, places=Places("record", (0,), (number,)))
    yield from cap_failures(left_out)


def _load(line: str) -> object:
    """Return the value of a line, or the error if it is no JSON."""
    try:
        return read_json(line)
    except (ValueError, RecursionError) as error:
        return error


def _is_torn(line: str, value: object) -> bool:
    return isinstance(value, Exception) and not line.endswith("\n")


def _parse_record(value: object) -> ParsedDocument | str:
    """Return the document of a line's value, or the problem with it."""
    if isinstance(value, Exception):
        return f"not valid JSON: {value}"
    if not isinstance(value, dict):
        return "not a JSON object"
    raw = value["_id"] if "_id" in value else value.get("id")
    is_valid = isinstance(raw, str | int) and not isinstance(raw, bool)
    identifier = storable(str(raw)).strip() if is_valid else ""
    text, title = value.get("text"), value.get("title")
    if not identifier:
        return "no _id or id"
    if not isinstance(text, str):
        return "no text"
    title, text = storable(title).strip() if isinstance(title, str) else "", storable(text)
    if not title and not text.strip():
        return "empty"
    fields = _metadata(value, {})
    return ParsedDocument(
        path=identifier,
        text=text if text.startswith(title) else f"{title}\n\n{text}".rstrip("\n"),
        title=choose_title(identifier, title) if title else identifier,
        file_type="jsonl",
        source_type="record",
        metadata=fields,
        written=frozenset(fields) | ({"title"} if title else set()),
    )


def _read_lines(handle: BinaryIO, max_bytes: int) -> Iterator[tuple[int, str, bool]]:
    """Yield number and text of lines that are not blank, and whether just their beginning."""
    number = 0
    while line := handle.readline(max_bytes + 1):
        number += 1
        is_cut = len(line) > max_bytes and not line.endswith(b"\n")
        while is_cut and (piece := handle.readline(_PIECE)) and not piece.endswith(b"\n"):
            pass
        text = decode(line[:_PIECE] if is_cut else line)
        if text.strip():
            yield number, text, is_cut
