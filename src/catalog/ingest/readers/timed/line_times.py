"""The timecode with which a line of a transcript opens, in the forms that people and tools write.

``[start]``, ``[start - end]`` (also ``-->``, ``→``, an en dash; also in round brackets or
bold), a bare ``MM:SS`` or ``HH:MM:SS``, and those after a name: ``Anna (00:01:05): text``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from catalog.ingest.readers.timed.speakers import is_name
from catalog.ingest.readers.timed.timecodes import CODE, parse_timecode

_RANGE = (
    rf"(?P<start>{CODE})"
    rf"(?:[ \t]{{0,4}}(?P<dash>-{{1,3}}>|=>|→|-{{1,2}}|[–—])[ \t]{{0,4}}(?P<end>{CODE}))?"
)
_BRACKETED = rf"(?P<open>[\[(])?[ \t]{{0,4}}{_RANGE}(?:[ \t]{{0,4}}(?P<close>[\])]))?"
_LEADING = re.compile(
    rf"[ \t]{{0,12}}+(?:[-*+>][ \t]{{1,4}}+)?(?P<mark>\*\*|__|`)?{_BRACKETED}"
    r"(?::?(?P<shut>(?P=mark)))?",
    re.ASCII,
)
_NAMED = re.compile(
    r"[ \t]{0,12}+(?:[-*+>][ \t]{1,4}+)?(?P<mark>\*\*|__|)(?P<name>[^\W_][^:()\[\]<>*|]{0,59}?):?"
    rf"(?P=mark)?:?(?P<gap>[ \t]{{0,8}}){_BRACKETED}(?P<after>:?(?:\*\*|__):?|:|[ \t]*$|)"
)
_SEPARATOR = re.compile(r"[ \t]*(?:(?:-{1,2}|[–—:|])(?=[ \t]|$))?[ \t]*")
_CLOCK = re.compile(r"(?:[ap]\.?m\b|uhr\b|h\b|o'clock)", re.IGNORECASE)
_ANY_CODE = re.compile(r"\d:\d\d", re.ASCII)
_RATIO = re.compile(r"[1-9]:\d\d", re.ASCII)
_PAIRS = {("[", "]"), ("(", ")"), (None, None)}
_LONGEST = 200
"""Characters of a line within which its timecode stands."""


@dataclass(frozen=True, slots=True)
class LineTime:
    """The time of a line.

    ``line[cut_start:cut_end]`` is the timecode with what sets it off from the text. ``name`` is
    a speaker named before it. ``has_seconds`` is false for two fields (``10:30``), which may
    as well be a time of day; ``is_set_off`` tells brackets or an arrow from a bare code, and
    ``may_be_ratio`` a bare ``3:16`` with text behind it, which may as well count verses, laps or
    parts of a mixture.
    """

    start: float
    end: float | None
    cut_start: int
    cut_end: int
    name: str | None = None
    has_seconds: bool = False
    is_set_off: bool = False
    may_be_ratio: bool = False


def may_hold_times(text: str, start: int = 0) -> bool:
    """Whether there is anything like a timecode in ``text[start:]``: a quick no for most texts."""
    return _ANY_CODE.search(text, start) is not None


def line_time(line: str) -> LineTime | None:
    """The time that ``line`` (without its break) opens with, or ``None``."""
    head = line[:_LONGEST]
    if _ANY_CODE.search(head) is None:
        return None
    return _leading(head, line) or _after_name(head)


def _leading(head: str, line: str) -> LineTime | None:
    found = _LEADING.match(head)
    if found is None or (found["open"], found["close"]) not in _PAIRS:
        return None
    following = head[found.end() : found.end() + 1]
    is_marked = found["open"] is not None or found["shut"] is not None
    if not is_marked and not _is_bare(head, found.end(), following):
        return None
    separator = _SEPARATOR.match(line, found.end())
    end = found.end() if separator is None else separator.end()
    first = "mark" if found["shut"] else "open" if found["open"] else "start"
    start = found.start(first)
    time = _timed(found, (start, end), None)
    if time is None or time.is_set_off or _RATIO.fullmatch(found["start"]) is None:
        return time
    return replace(time, may_be_ratio=end < len(line))


def _is_bare(head: str, at: int, following: str) -> bool:
    """Whether a code without brackets stands alone there, and is no time of day by its words."""
    if following == ":":
        return head[at + 1 : at + 2] in ("", " ", "\t")
    if following and following not in " \t":
        return False
    return _CLOCK.match(head[at:].lstrip()) is None


def _after_name(head: str) -> LineTime | None:
    found = _NAMED.match(head)
    if found is None or (found["open"], found["close"]) not in _PAIRS:
        return None
    at_end = found["after"].strip() == "" and found.end() == len(head)
    is_bold = found["mark"] != ""
    name = found["name"].strip()
    if found["open"] is None and not (at_end and found["gap"]):
        return None
    if not is_bold and not (is_name(name) and (found["after"] == ":" or at_end)):
        return None
    return _timed(found, (found.start("gap"), found.start("after")), name)


def _timed(found: re.Match[str], cut: tuple[int, int], name: str | None) -> LineTime | None:
    start = parse_timecode(found["start"])
    if start is None:
        return None
    end = parse_timecode(found["end"]) if found["end"] else None
    has_seconds = found["start"].count(":") == 2 or "." in found["start"] or "," in found["start"]
    dash = found["dash"]
    is_arrow = dash is not None and dash[-1] in ">→"
    return LineTime(start, end, *cut, name, has_seconds, found["open"] is not None or is_arrow)
