"""The block of facts that converters put under a document's first heading.

Either fields between ``---`` lines (``video_source: `lecture.mp4```), or lines in italics
(``*Original file: `photo.png`*``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog.ingest.chunking.lines import Line, iter_lines

_HEADING = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_FIELD = re.compile(r"([A-Za-z][\w -]{0,40}):[ \t]*(.*)")
_ITALIC = re.compile(r"[*_]([A-Za-z][\w -]{0,40}):[ \t]*(.*?)[*_]")
_MOST_FIELDS = 40
_LONGEST_FIELD = 2000
_TELLING = frozenset(
    [
        *("source_file", "source_format", "source_url", "video_source", "original_file", "media"),
        *("frame_file", "thumbnail_file", "timestamp", "video_id", "modality", "ocr_model"),
        *("transcription_model", "transcript_source", "vision_model"),
    ]
)
"""A block with none of these is somebody's text between two rules."""


@dataclass(frozen=True, slots=True)
class ConverterHeader:
    """The fields (lower case, ``_`` for blanks), and the text without the lines that hold them.

    ``text`` keeps the lines themselves, empty, so that every later line has its number still.
    """

    fields: Mapping[str, str]
    text: str


def converter_header(text: str, start: int) -> ConverterHeader | None:
    """The block in ``text`` from offset ``start`` on, or ``None``.

    A block with nothing visible after it counts too, as long as a heading stands above it.
    """
    lines = _first_lines(text, start)
    contents = [text[line.start : line.end].strip() for line in lines]
    at = _next_filled(contents, 0)
    if at is None or _HEADING.match(contents[at]) is None:
        return None
    at = _next_filled(contents, at + 1)
    if at is None:
        return None
    found = _between_rules(contents, at) if contents[at] == "---" else _in_italics(contents, at)
    if found is None or _TELLING.isdisjoint(found[0]):
        return None
    fields, after = found
    return ConverterHeader(fields, _without(text, lines[at:after]))


def _first_lines(text: str, start: int) -> list[Line]:
    found = []
    for line in iter_lines(text, start):
        found.append(line)
        if len(found) >= 3 * _MOST_FIELDS or line.end - line.start > _LONGEST_FIELD:
            break
    return found


def _next_filled(contents: Sequence[str], at: int) -> int | None:
    return next((place for place in range(at, len(contents)) if contents[place]), None)


def _between_rules(contents: Sequence[str], at: int) -> tuple[dict[str, str], int] | None:
    fields: dict[str, str] = {}
    for place in range(at + 1, min(len(contents), at + 2 + _MOST_FIELDS)):
        if contents[place] == "---":
            return fields, place + 1
        found = _FIELD.fullmatch(contents[place])
        if found is None:
            return None
        fields.setdefault(_key(found[1]), _value(found[2]))
    return None


def _in_italics(contents: Sequence[str], at: int) -> tuple[dict[str, str], int] | None:
    fields: dict[str, str] = {}
    place = at
    while place < len(contents) and (found := _ITALIC.fullmatch(contents[place])):
        fields.setdefault(_key(found[1]), _value(found[2]))
        place += 1
    return (fields, place) if fields else None


def _key(name: str) -> str:
    return "_".join(name.lower().split())


def _value(text: str) -> str:
    return text.strip().strip("`").strip()


def _without(text: str, lines: Sequence[Line]) -> str:
    breaks = "".join(text[line.end : line.next] for line in lines)
    return text[: lines[0].start] + breaks + text[lines[-1].next :]
