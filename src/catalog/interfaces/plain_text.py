"""Plain text out of documents: never their control characters."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_KEPT = frozenset("\n\t")


def safe(text: str) -> str:
    """The text without characters that could steer a terminal (escape codes, overrides)."""
    return "".join(
        char if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "�"
        for char in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """The text with one blank for each run of white space: what a model says forges no line."""
    return " ".join(text.split())


def complaint(message: str) -> str:
    """A message of ours; its further lines are set in, so that none looks like another message."""
    first, *others = [safe(line.strip()) for line in message.splitlines() if line.strip()] or [""]
    return "\n  ".join([f"catalog: {first}", *others])


def json_text(value: Any) -> str:
    """One JSON document on a line; lone surrogates, which UTF-8 lacks, become ``?``."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode("utf-8")
