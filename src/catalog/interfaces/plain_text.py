"""Text of documents and messages made safe to print."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_KEPT = frozenset("\n\t\u200c\u200d")  # also the joiners of emoji, and of scripts that need them

_STEERING = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Return the text with characters that could steer a terminal as U+FFFD."""
    return "".join(
        char if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "�"
        for char in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """Return the text with one blank for each run of white space, so that it cannot fake a line."""
    return " ".join(text.split())


def complaint(message: str) -> str:
    """Return a message for printing; indent further lines so that none looks like another."""
    first, *others = [safe(line.strip()) for line in message.splitlines() if line.strip()] or [""]
    return "\n  ".join([f"catalog: {first}", *others])


def json_text(value: Any) -> str:
    """Return one JSON document on a line; lone surrogates, which UTF-8 lacks, become ``?``.

    Characters that steer a terminal or turn the direction of text are escaped.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8", "replace").decode("utf-8")
