"""How an answer in words is put together: ours first, then what is out of documents, marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from catalog.interfaces.tools.base import ToolData, ToolResult
from catalog.interfaces.tools.cleaning import MAX_ECHO, one_line
from catalog.interfaces.tools.marking import as_data

MAX_NOTE = 300
_TYPE = re.compile(r"[a-z0-9+_-]{1,12}")
_TYPES = 12


def tool_result(
    data: ToolData, *, ours: Iterable[str] = (), quoted: str = "", notes: Iterable[str] = ()
) -> ToolResult:
    """``ours`` are lines and notes of this package; ``quoted`` and ``notes`` may quote documents.

    Every string of the data is cleaned already.
    """
    lines = [data.message] if data.message is not None else []
    text = "\n".join([*lines, *ours])
    inside = "\n\n".join(filter(None, (quoted, "\n".join(f"note: {note}" for note in notes))))
    if inside:
        text = f"{text}\n{as_data(inside)}" if text else as_data(inside)
    return ToolResult(text, data.model_dump(mode="json"))


def noted(notes: Iterable[object]) -> tuple[str, ...]:
    """Notes of the engine, each on one line."""
    return tuple(one_line(str(note), MAX_NOTE) for note in notes)


def echoed(value: str) -> str:
    """An argument as a message repeats it."""
    return repr(one_line(value, MAX_ECHO - 2))


def types_text(types: Mapping[str, int]) -> str:
    """``pdf 8, md 4``; an extension that is no plain word is left out, as a file may bear any."""
    told = [f"{name} {count}" for name, count in types.items() if _TYPE.fullmatch(name)]
    return ", ".join(told[:_TYPES])


def without_nones(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that say something."""
    return {name: value for name, value in arguments.items() if value is not None}
