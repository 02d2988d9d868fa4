"""Text that can be stored, and text that can be shown."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# The user's part ends at the last @ of the authority; a password may hold a bare / ? or #.
_USERINFO = re.compile(r"(?<=://)(?:[^/?#]*@|[^/?#:@]*:.*@)", re.DOTALL)


def storable(text: str) -> str:
    """The text, of the same length, with NUL and lone surrogates as U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def without_userinfo(address: str) -> str:
    """``scheme://user:password@host/…`` as ``scheme://host/…``; any other text as it is.

    Where a password that is not percent-encoded makes this ambiguous, too much is left out
    rather than too little.
    """
    return _USERINFO.sub("", address, count=1)
