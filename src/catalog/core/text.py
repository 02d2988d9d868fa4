"""Cleaning text for storing and for showing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# The user's part ends at the last @ of the authority; a password may hold a bare / ? or #.
_USERINFO = re.compile(r"(?<=://)(?:[^/?#]*@|[^/?#:@]*:.*@)", re.DOTALL)


def storable(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD, so that the text can be stored; same length."""
    return _UNSTORABLE.sub("\ufffd", text)


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
    return _USERINFO.sub("", address, count=1)
