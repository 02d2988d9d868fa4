"""Reading what a language model replied: lines of ``kind: text``, or JSON, and chatter between."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from catalog.core.query import Kind
from catalog.search_v2.expansion.text import KINDS, ExpansionLine, one_line

_LONGEST = 20_000  # characters of a reply that are read
_LINE = re.compile(
    r"[\W_]{0,12}(?:\d{1,2}[\W_]{1,6})?(lex|vec|hyde)(?:\s?\d{1,2})?[\W_]{0,4}?[:\uff1a](.*)",
    re.IGNORECASE,
)
_PAIRS = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}


def parse_lines(reply: str) -> list[ExpansionLine]:
    """The lines of a reply in their order; never raises, and what has no known form is left out.

    A line is ``lex:``, ``vec:`` or ``hyde:`` in any case and a text, behind bullets, numbers or
    bold marks, its quotes taken off. JSON, alone or between other text, is an object with these
    keys, or a list of objects with ``kind`` and ``text``.
    """
    reply = reply[:_LONGEST]
    return _from_json(reply) or [line for raw in reply.splitlines() for line in _from_line(raw)]


def _from_line(raw: str) -> Iterator[ExpansionLine]:
    match = _LINE.match(raw)
    if match is None:
        return
    text = _bare(match[2])
    if text and text[0] not in "[{":  # what is left of JSON cut short
        yield ExpansionLine(cast(Kind, match[1].lower()), text)


def _bare(text: str) -> str:
    """Without emphasis marks around it, and without quotes when one pair holds all of it."""
    text = one_line(text).strip("*_ ")
    if text.endswith(('",', "',")):
        text = text[:-1]
    while len(text) > 1 and _PAIRS.get(text[0]) == text[-1]:
        inner = text[1:-1]
        if text[0] in inner or text[-1] in inner:
            break
        text = inner.strip("*_ ")
    return text


def _from_json(reply: str) -> list[ExpansionLine]:
    for opening, closing in ("{}", "[]"):
        start, end = reply.find(opening), reply.rfind(closing)
        if start < 0 or end < start:
            continue
        try:
            read = json.loads(reply[start : end + 1])
        except (ValueError, RecursionError):
            continue
        lines = list(_from_value(read))
        if lines:
            return lines
    return []


def _from_value(value: Any) -> Iterator[ExpansionLine]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                yield from _from_line(item)
            elif isinstance(item, Mapping):
                yield from _from_object(item)
    elif isinstance(value, Mapping):
        yield from _from_object(value)


def _from_object(value: Mapping[str, Any]) -> Iterator[ExpansionLine]:
    named = {key.strip().lower(): item for key, item in value.items()}
    kind = named.get("kind", named.get("type"))
    if isinstance(kind, str):
        named = {kind.strip().lower(): named.get("text")}
    for key, item in named.items():
        if key not in KINDS:
            continue
        for text in item if isinstance(item, list) else [item]:
            if isinstance(text, str) and _bare(text):
                yield ExpansionLine(key, _bare(text))
