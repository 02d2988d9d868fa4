"""Writing to a terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from catalog.interfaces.terminal.plain import complaint, json_text, safe


def complain(message: str) -> None:
    """A message on standard error."""
    note(f"{complaint(message)}\n")


def note(text: str) -> None:
    """Text on standard error, as it is; lost where that is full, which is no failure."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def say(line: str = "") -> None:
    """One line on standard output, safe for a terminal."""
    print(safe(line))


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json_text(value))


def styles(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows bold, unless the environment has ``NO_COLOR``."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
