"""Bytes to canonical text: no byte order mark, no NUL, no lone surrogate; line ends as they are."""

from __future__ import annotations

import codecs
import re

from catalog.core.text import storable
from catalog.ingest.readers.binary import byte_order_mark

_HIGH_BYTES = re.compile(rb"[\x80-\xff]")
_DECLARATION = re.compile(rb"""(?:charset|encoding|coding)\s*[:=]\s*["']?([A-Za-z0-9_.:-]{2,40})""")
_DECLARED_WITHIN = 1024
_GUESS_SAMPLE = 64 * 1024
_GUESS_NEEDS = 12
"""High bytes under which a statistical guess is worse than the commonest legacy encoding."""
_MOSTLY_UTF8 = 4
"""Good UTF-8 sequences for every bad one, from which on the text is taken for damaged UTF-8."""


_WIDE = ("utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le")
_NEVER = frozenset(["punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined"]).union(
    name.replace("_", "-") for name in _WIDE
)
"""Encodings of names or literals, and those that need a mark or would hold NUL bytes."""


def decode(data: bytes, *, declared: bool = False) -> str:
    """The text of a file that is not binary.

    Tried in turn: a byte order mark, UTF-8, with ``declared`` the encoding the text names
    for itself, UTF-8 with few errors, a statistical guess, Windows-1252 with replacement.
    """
    mark = byte_order_mark(data)
    if mark is not None:
        return storable(data[len(mark[0]) :].decode(mark[1], "replace"))
    try:
        return storable(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return storable(_decode_legacy(data, declared=declared))


def _decode_legacy(data: bytes, *, declared: bool) -> str:
    text = _decode_declared(data) if declared else None
    if text is None and _is_damaged_utf8(data):
        text = data.decode("utf-8-sig", "replace")
    if text is None:
        text = _decode_guessed(data)
    return data.decode("cp1252", "replace") if text is None else text


def _decode_declared(data: bytes) -> str | None:
    found = _DECLARATION.search(data[:_DECLARED_WITHIN])
    return None if found is None else _strictly(data, found.group(1).decode("ascii"))


def _is_damaged_utf8(data: bytes) -> bool:
    replaced = data.decode("utf-8", "replace")
    bad = replaced.count("\ufffd")
    kept = sum(character > "\x7f" for character in replaced) - bad
    return kept >= _MOSTLY_UTF8 * bad


def _decode_guessed(data: bytes) -> str | None:
    high = _HIGH_BYTES.search(data)
    start = 0 if high is None else max(0, high.start() - 1024)
    sample = data[start : start + _GUESS_SAMPLE]
    if len(_HIGH_BYTES.findall(sample)) < _GUESS_NEEDS:
        return _strictly(data, "cp1252")
    from charset_normalizer import from_bytes

    for guess in from_bytes(sample, cp_exclusion=list(_WIDE)):
        text = _strictly(data, guess.encoding)
        if text is not None:
            return text
    return None


def _strictly(data: bytes, encoding: str) -> str | None:
    """The text in that encoding, or ``None`` if it is unknown, not for files, or fails."""
    try:
        if codecs.lookup(encoding).name.replace("_", "-") in _NEVER:
            return None
        return data.decode(encoding)
    except (LookupError, ValueError):
        return None
