"""Text of documents and messages made safe to print."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_KEPT = frozenset("\n\t\u200c\u200d")  # also the joiners of emoji, and of scripts that need them


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
    """Return one JSON document on a line; lone surrogates, which UTF-8 lacks, become ``?``."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode("utf-8")
