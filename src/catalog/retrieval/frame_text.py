"""The description of a video frame, as one line of text."""

from __future__ import annotations

import re

from catalog.ingest.readers.timed.frames import (
    is_frame_title,
    is_time_line,
    title_without_time,
)

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
_IMAGE = re.compile(r"!\[[^\[\]]*+\]\([^()]*+\)")


def short_frame_text(text: str) -> str:
    """Return the first :data:`FRAME_CHARS` characters of :func:`frame_text`."""
    shown = frame_text(text)
    if len(shown) <= FRAME_CHARS:
        return shown
    cut = shown.rfind(" ", FRAME_CHARS // 2, FRAME_CHARS)
    return f"{shown[: cut if cut > 0 else FRAME_CHARS - 1]}…"


def frame_text(text: str) -> str:
    """Return a frame's description on one line, without its heading, fields below it, and pictures.

    If the heading has more than the frame's time, such as a slide's title, the rest stays, unless
    it is just a label (``### Description``). A frame with nothing else gives its heading.
    """
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    titles = [line.lstrip("# \t") for line in lines if _HEADING.match(line)]
    heading = titles[0] if titles and _HEADING.match(lines[0]) else ""
    if heading and any(map(is_frame_title, titles)):
        del lines[0]
    if heading and lines and lines[0] == "---":
        lines = _without_fields(lines)
    elif heading and lines[1:2] == ["---"]:
        lines[1:] = _without_fields(lines[1:])
    shown = " ".join(_strip_heading(line) for line in lines if not is_time_line(line))
    return " ".join(_IMAGE.sub(" ", shown).split()) or heading


def _strip_heading(line: str) -> str:
    """Return a line unchanged, a heading without its marks and time, a label as ""."""
    mark = _HEADING.match(line)
    if mark is None:
        return line
    title = line[mark.end() :].strip().rstrip("#").rstrip()
    return "" if _LABEL.fullmatch(title.rstrip(":")) else title_without_time(title)


def _without_fields(lines: list[str]) -> list[str]:
    """Drop ``name: value`` lines between two ``---`` at the top."""
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return lines
    end = lines.index("---", 1)
    return lines[end + 1 :] if all(map(_FIELD.fullmatch, lines[1:end])) else lines
