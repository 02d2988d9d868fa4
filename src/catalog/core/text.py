"""Cleaning text for storing and for showing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# The user's part ends at the last @ of the authority; a password may hold a bare / ? or #.
_MAX_MARKS = 30  # in a row, as in the Stream-Safe Text Format of Unicode
_USERINFO = re.compile(r"(?<=://)(?:[^/?#]*@|[^/?#:@]*:.*@)", re.DOTALL)


def storable(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD, so that the text can be stored; same length."""
    return _UNSTORABLE.sub("\ufffd", text)


def compose(text: str) -> str:
    """Return the text in NFC, without what follows the thirtieth mark in a row.

    Marks are sorted in time quadratic in their number, during which no other thread runs:
    http://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format.
    """
    chars, count = [], 0
    for char in text:
        count = count + 1 if unicodedata.combining(char) else 0
        if count <= _MAX_MARKS:
            chars.append(char)
    return unicodedata.normalize("NFC", "".join(chars))


def all_storable(value: Any) -> Any:
    """Return a JSON value with every text in it, names included, made :func:`storable`."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {all_storable(name): all_storable(item) for name, item in value.items()}
        case list() | tuple():
            return [all_storable(item) for item in value]
    return value


def strip_userinfo(address: str) -> str:
    """Return ``scheme://user:password@host/…`` as ``scheme://host/…``; any other text as it is.

    Where a password that is not percent-encoded makes this ambiguous, too much is left out
    rather than too little.
    """
    head, at, tail = address.rpartition("@")  # without the end, in which no user's part is
    return _USERINFO.sub("", head + at, count=1) + tail
