"""Text that can be stored: what no database and no UTF-8 file can hold is replaced."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text, of the same length, with NUL and lone surrogates as U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)
