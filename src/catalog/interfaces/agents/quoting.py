"""Text out of documents as a language model may be shown it: cleaned, and marked as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from catalog.core.quoted_text import clean, draw_nonce, mark_as_data

__all__ = [
    "MAX_ECHO",
    "clean",
    "document_reference",
    "draw_nonce",
    "mark_as_data",
    "one_line",
    "without_long_echoes",
]

MAX_ECHO = 60
"""Characters of an argument that a message repeats at most."""
_MAX_COMPARED = 20_000  # characters of an argument; a message is far shorter


def one_line(text: str, limit: int = 300) -> str:
    """Return the clean text on one line, cut at ``limit`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def document_reference(document: Mapping[str, Any]) -> str:
    """Return what ``get`` takes: ``dataset:path``, or the docid if that does not fit on a line."""
    name: str = document["source_doc_id"]
    return name if one_line(name) == name else f"#{document['docid']}"


def without_long_echoes(message: str, arguments: Mapping[str, Any]) -> str:
    """Return the message with every stretch of an argument cut at :data:`MAX_ECHO` characters."""
    for text in _texts(arguments):
        for form in (text, repr(text)[1:-1]):
            if len(form) > MAX_ECHO:
                message = _cut_echoes(message, form[:_MAX_COMPARED])
    return message


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(name)
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value[:100]:
            yield from _texts(part)


def _cut_echoes(message: str, echoed: str) -> str:
    pieces, at = [], 0
    while at < len(message):
        end = at + MAX_ECHO + 1
        if end > len(message) or message[at:end] not in echoed:
            pieces.append(message[at])
            at += 1
            continue
        while end < len(message) and message[at : end + 1] in echoed:
            end += 1
        pieces.append(f"{message[at : at + MAX_ECHO - 3]}…")
        at = end
    return "".join(pieces)
