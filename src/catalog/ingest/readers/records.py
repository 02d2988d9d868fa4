"""JSON Lines, and any JSON or Evernote export that holds records, messages or notes.

A list of objects with a title, or with messages of their own, gives one document for each. A list
of messages without titles is one document, with a paragraph for each. Text, title, author and date
come from the usual keys, whatever the product. Other JSON is plain text.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple

from lxml import etree

from catalog.core.dates import read_written_date
from catalog.core.documents import ParsedDocument
from catalog.core.errors import CutShortError, EmptyDocumentError, ReadError
from catalog.core.places import WITHIN, Places
from catalog.core.text import storable
from catalog.ingest.readers import base
from catalog.ingest.readers.base import Items, ReadFailure, ReadLimits, one_line
from catalog.ingest.readers.decoding import decode, leave_out_base64, mend_mojibake
from catalog.ingest.readers.html import HtmlReader
from catalog.ingest.readers.mail.message import number_name
from catalog.ingest.readers.metadata import LEVEL, normalise, read_json, stated_levels
from catalog.ingest.readers.text import CodeReader, PlainTextReader
from catalog.ingest.readers.timed.frames import is_called_transcript
from catalog.ingest.readers.timed.transcripts import read_transcript_json

_NAMES = """title subject name;
    text content body message textContent parts note selftext answer markdown rendered html
    content_text content_html;
    author from sender_name sender user role username name login;
    date created_at create_time createdTimestampUsec timestamp_ms timestamp ts created createdAt
    creationDate date_published published_at created_utc time; tags labels keywords; _id id uuid"""
_TITLES, _TEXTS, _AUTHORS, _DATES, _TAGS, _IDS = map(str.split, _NAMES.split(";"))
_KNOWN = {*_NAMES.replace(";", " ").split(), "metadata", "current_node", LEVEL}
_ROLES = ("user", "assistant", "system", "human", "tool")
_DEEPEST = 4
_ESCAPES = re.compile(r"(?<!\\)(?:\\u(?!00[0-7])[0-9a-fA-F]{4})+")
_PROLOGUE = re.compile(r"\A\s*+(?:<[?!][^<>]*+>\s*+)++")
_ID = re.compile(r'"_id"\s*+:\s*+(?:"([^"\\]*+)"|(-?\d++))')
_NO_CUES = "read as text, not as a transcript: it has no list of items with a text and a start"


class JsonReader(CodeReader):
    """Read records and transcripts in JSON; other JSON is plain text with letters for escapes."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the documents of the records, or the file as a transcript or as text."""
        data, whole = base.read_bytes(handle, limits.document_bytes), _Record(0, {}, "")
        (text, left), stated = leave_out_base64(decode(data)), dict[str, Any]()
        with suppress(ValueError, RecursionError):
            whole = _read(value := read_json(text))
            stated = normalise(stated_levels(value)) if isinstance(value, dict) else {}
        has_records = whole.messages or (whole.text and whole.title)
        if not has_records or read_transcript_json(text, path):
            yield from super().read(BytesIO(data), path, limits=limits)
            return
        for item in _write_all(path, whole, limits):
            if isinstance(item, ParsedDocument):
                item = replace(item, metadata={**stated, **item.metadata})
            yield item
        yield from [ReadFailure(path, left)] if left is not None else []

    def parse(self, text: str, path: str) -> ParsedDocument:
        if (transcript := read_transcript_json(text, path)) is not None:
            return transcript
        text = _ESCAPES.sub(lambda signs: storable(json.loads(f'"{signs[0]}"')), text)
        document = super().parse(text, path)
        return replace(document, untimed=_NO_CUES) if is_called_transcript(path) else document


class EnexReader:
    """Read the notes of an Evernote export: each is a document."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the notes in order, and a remark that names what is not read of them."""
        data, notes = BytesIO(base.read_bytes(handle, limits.document_bytes)), []
        safe = {"recover": True, "huge_tree": True, "resolve_entities": False}
        for _, note in etree.iterparse(data, tag="note", **safe):
            fields = {one.tag: one.text for one in note.iter(etree.Element)}
            notes.append({**fields, "tags": [tag.text for tag in note.iter("tag")], "tag": None})
            note.clear()
        yield from _write_all(path, _read(notes), limits)


class JsonLinesReader:
    """Read each line as a document with its ``_id`` or ``id`` as path; other files as plain text.

    A line that is no record, too long, or repeats an identifier is a failure ``file.jsonl:line``.
    """

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the records in order, or the whole file as one document if it has none.

        Raises ``CutShortError`` after the last record of a file whose last line is not complete.
        """
        held, seen, left_out = list[Any](), set[str](), list[ReadFailure]()
        for number, data in enumerate(handle, start=1):
            line, name, lacks = decode(data[: limits.text_bytes]), f"{path}:{number}", ""
            if not line.strip():
                continue
            try:
                value = read_json("" if b"\0" in data else line)  # UTF-16
            except (ValueError, RecursionError) as error:
                value, lacks = None, f"not valid JSON: {error}"
                if len(data) > limits.text_bytes:
                    lacks = f"record too large: over {limits.text_bytes:,} bytes"
                elif data.startswith(b"{") and not data.endswith(b"\n"):
                    told = "is incomplete: the file is still being written, or lost its end"
                    raise CutShortError(f"line {number} {told}") from error
            fields = value if isinstance(value, dict) else {}
            stated, text = fields.get("_id", fields.get("id")), fields.get("text")
            document = storable(str(stated)).strip() if isinstance(stated, str | int) else ""
            title = str(fields.get("title") or "").strip()
            if document in seen:
                held.append(ReadFailure(name, f"_id {document!r} occurs in an earlier line"))
            elif document and isinstance(text, str) and (title or text.strip()):
                seen.add(document)
                text, left = leave_out_base64(text)
                left_out += [ReadFailure(name, left)] if left is not None else []
                held.append(_write(document, _Record(number, fields, text, title), limits, "jsonl"))
            elif not seen and stated_levels(fields):  # of all records below it, perhaps
                raise ReadError(f"{LEVEL} is in a line that is not a record")
            else:
                lacks = lacks or ("no text" if document else "no _id or id")
                known = None if fields else _ID.search(line[: 1 << 16])
                held.append(ReadFailure(name, lacks, known and known[known.lastindex or 0]))
            if seen:
                yield from held
                held.clear()
            elif len(held) == 20:  # a broken first line spoils nothing
                break
        yield from base.cap_failures(left_out)
        if not seen:
            handle.seek(0)
            yield from PlainTextReader().read(handle, path, limits=limits)
            told = "none of its first lines has both an _id (or id) and a text; if it is UTF-16"
            yield ReadFailure(path, f"read as text, not as records: {told}, save it as UTF-8")


class _Record(NamedTuple):
    """An object of an export; its ``fields`` are without the one that has its messages."""

    number: int
    fields: dict[str, Any]
    text: str
    title: str = ""
    author: str = ""
    moment: str = ""
    messages: Sequence[_Record] = ()


def _read(value: object, number: int = 0, depth: int = 0) -> _Record:
    """Return an object's record; its messages are the list in it of most text, if of records."""
    fields = dict(value) if isinstance(value, dict) else {"": value}
    best = 0, "", list[_Record]()
    for name in ("message", "content", "note", "snippet") * 2:
        if isinstance(inner := fields.get(name), dict):
            fields = {**{key: it for key, it in fields.items() if key != name}, **inner}
    for name, items in _lists(fields) if depth < 2 else ():
        objects = [(at, one) for at, one in enumerate(items, start=1) if isinstance(one, dict)]
        read = [_read(one, number or at, depth + 1) for at, one in objects]
        # In a field, they need more than a text: settings have that, too.
        found = [one for one in read if one.messages or (one.text and (not name or any(one[3:6])))]
        size = sum(len(said.text) for one in found for said in (one, *one.messages))
        if size > best[0] and 2 * len(found) > len(items):
            best = size, name, found
    fields.pop(best[1], None)
    text, title, author = _text(fields), _first(fields, _TITLES), _first(fields, _AUTHORS)
    return _Record(number or 1, fields, text, title, author, _moment(fields), best[2])


def _lists(fields: dict[str, Any], depth: int = 0) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists in the fields and in objects in them; of a tree, its current branch."""
    for name, inner in fields.items():
        if isinstance(inner, list):
            yield name, inner
        elif isinstance(inner, dict) and depth < _DEEPEST:
            tree, branch, node = dict(inner), list[Any](), fields.get("current_node")
            while isinstance(one := tree.pop(str(node), None), dict):
                branch.append(one)
                node = one.get("parent")
            yield name, branch[::-1] or [*inner.values()]
            yield from ((name, items) for _, items in _lists(inner, depth + 1))


def _moment(fields: dict[str, Any]) -> str:
    """Return the first date, as ``2024-03-05 10:12`` or shorter; "" without one."""
    for value in map(fields.get, _DATES):
        with suppress(TypeError, ValueError, OverflowError):
            seconds = float(value or "")
            seconds /= 1000 ** sum(seconds > most for most in (1e11, 1e14))  # milli-, microseconds
            if seconds > 1e8:
                return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(" ")[:16]
        if isinstance(value, str) and (date := read_written_date(value)):
            return re.sub(r"[T ](\d\d):?(\d\d).*", r" \1:\2", date)
    return ""


def _first(fields: dict[str, Any], names: Sequence[str]) -> str:
    return next((one_line(word) for name in names for word in _words(fields.get(name))), "")


def _words(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the strings in a value; of an object with a name only that."""
    if isinstance(value, str) and value.strip():
        yield storable(mend_mojibake(value.strip()))
    elif isinstance(value, dict) and depth < _DEEPEST:
        yield from _words(value.get("name") or [*value.values()], depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        yield from (word for one in value for word in _words(one, depth + 1))


def _text(value: object) -> str:
    """Return the text of a string, of pieces, or of an object in its usual field."""
    if isinstance(value, dict):
        return next(filter(None, map(_text, map(value.get, _TEXTS))), "")
    if isinstance(value, list):
        are_mixed = len({isinstance(one, str) for one in value}) == 2  # a line with bold words
        return ("" if are_mixed else "\n").join(filter(None, map(_text, value)))
    text = storable(mend_mojibake(value)).strip("\r\n") if isinstance(value, str) else ""
    if text.lstrip().startswith("<") and "</" in text:
        with suppress(EmptyDocumentError):
            return HtmlReader().parse(_PROLOGUE.sub("", text), "record.html").text
    return text if text.strip() else ""


def _write_all(path: str, whole: _Record, limits: ReadLimits) -> Items:
    """Yield a document for each record, called by its title, id or number, or one for all."""
    records, names, kind = whole.messages, Counter[str](), base.file_type(path)
    apart = {one.number if one.messages else one.title for one in records}
    if kind != "enex" and 2 * len(apart - {""}) <= len(records):
        yield replace(_write(path, whole, limits, kind), source_type="file")
        records = ()
    for record in records:
        name = next(filter(None, [record.title, *map(record.fields.get, _IDS), record.number]))
        name = number_name(names, one_line(name).replace(WITHIN.strip(), "-"))
        with suppress(EmptyDocumentError):
            yield _write(f"{path}{WITHIN}{name}", record, limits, kind)
    fields = chain(*(one.fields.items() for one in (whole, *records)))
    others = dict.fromkeys(one for one, it in fields if one not in _KNOWN and any(_words(it)))
    if others:
        told = ", ".join(map(one_line, islice(others, 20)))
        yield ReadFailure(path, f"fields that are not read: {told}")


def _write(path: str, record: _Record, limits: ReadLimits, kind: str) -> ParsedDocument:
    """Return the document of a record, or of the file, whose messages are records themselves."""
    joined, title, fields = base.JoinedText(limits, "record"), record.title, dict(record.fields)
    own = Places("record", (0,), (record.number,))
    joined.add("" if record.text.startswith(title) else title, places=own)
    joined.add(record.text, places=own)
    for one in record.messages:
        facts = one.author, "" if one.author in _ROLES else one.moment
        said = ": ".join(filter(None, (", ".join(filter(None, facts)), one.text)))
        joined.add(said, places=replace(own, numbers=(one.number,)))
    stated = fields.pop("metadata", None)
    inner = stated_levels(dict.fromkeys(chain(*(one.fields for one in record.messages))))
    metadata = normalise({
        "author": record.author if record.author != title else None,
        "created": record.moment.replace(" ", "T"),
        "tags": [tag for name in _TAGS for tag in _words(fields.get(name))],
        **(stated if isinstance(stated, dict) else {"metadata": stated}),
        **{f"{name} ": it for name, it in (stated_levels(fields) | inner).items()},  # two differ
    })  # fmt: skip
    document = joined.document(path, title=title, file_type=kind, metadata=metadata)
    written = frozenset(metadata) | ({"title"} if title else set())
    return replace(document, source_type="record", written=written)
