"""The description of a video's frame on one line, as evidence shows it."""

from __future__ import annotations

import re

FRAME_CHARS = 600
"""Characters of one frame's line at most."""
_HEADING = re.compile(r"#{1,6}[ \t]")
_FIELD = re.compile(r"[\w .-]{1,40}:(\s.*)?")
_LABEL = re.compile(
    r"(?:(?:visual|image|frame|scene|slide|detailed|short) )?"
    r"(?:descriptions?|captions?|contents?|summary|analysis)|alt(?: text)?"
    r"|ocr(?: text| output| results?)?"
    r"|(?:(?:visible|on-?screen|extracted|recogni[sz]ed|transcribed|slide) )?text"
    r"|text (?:in|on) (?:the )?(?:image|frame|screen|slide)",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")


def frame_text(text: str) -> str:
    """What a frame shows, on one line: without its heading, the fields under it, and pictures.

    Of a heading below its own the text stays, as of a slide's title, unless it is only a label
    (``### Description``).

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
    told = [_titled(line) for line in _without_fields(lines)]
    return " ".join(_IMAGE.sub(" ", " ".join(told)).split()) or heading


def _titled(line: str) -> str:
    """A line as it is, a heading without its marks, a label as nothing."""
    mark = _HEADING.match(line)
    if mark is None:
        return line
    title = line[mark.end() :].strip().rstrip("#").rstrip()
    return "" if _LABEL.fullmatch(title.rstrip(":")) else title


def _without_fields(lines: list[str]) -> list[str]:
    """Without ``name: value`` lines between two ``---`` at the top."""
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return lines
    end = lines.index("---", 1)
    return lines[end + 1 :] if all(map(_FIELD.fullmatch, lines[1:end])) else lines
