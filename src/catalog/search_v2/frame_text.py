"""The description of a video's frame on one line, as evidence shows it."""

from __future__ import annotations

import re

FRAME_CHARS = 600
"""Characters of one frame's line at most."""
_HEADING = re.compile(r"#{1,6}[ \t]")
_FIELD = re.compile(r"[\w .-]{1,40}:(\s.*)?")
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")


def frame_text(text: str) -> str:
    """What a frame shows, on one line: without its headings, the fields under it, and pictures.

    At most :data:`FRAME_CHARS` characters. A frame that has nothing else is its heading.
    """
    shown = frame_body(text)
    if len(shown) <= FRAME_CHARS:
        return shown
    cut = shown.rfind(" ", FRAME_CHARS // 2, FRAME_CHARS)
    return f"{shown[: cut if cut > 0 else FRAME_CHARS - 1]}…"


def frame_body(text: str) -> str:
    """The same in full."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    heading = lines.pop(0).lstrip("# \t") if lines and _HEADING.match(lines[0]) else ""
    told = [line for line in _without_fields(lines) if not _HEADING.match(line)]
    return " ".join(_IMAGE.sub(" ", " ".join(told)).split()) or heading


def _without_fields(lines: list[str]) -> list[str]:
    """Without ``name: value`` lines between two ``---`` at the top."""
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return lines
    end = lines.index("---", 1)
    return lines[end + 1 :] if all(map(_FIELD.fullmatch, lines[1:end])) else lines
