"""What the store holds, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from catalog.interfaces.terminal.plain import safe
from catalog.interfaces.terminal.printed import TerminalText


def status_text(status: dict[str, Any]) -> TerminalText:
    """One line for each thing, and one for each dataset."""
    return TerminalText.of(map(safe, _out(status)))


def _out(status: dict[str, Any]) -> Iterator[str]:
    for name, value in status.items():
        if name != "datasets":
            yield f"{name:16} {value}"
    for one in status["datasets"]:
        yield (
            f"dataset          {one['dataset']}: {one['documents']} documents, "
            f"{one['chunks']} chunks, {one['vectors']} of {one['windows']} vectors, "
            f"from {one['root']}"
        )
