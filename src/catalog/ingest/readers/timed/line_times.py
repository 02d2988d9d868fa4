"""The times that lines of a transcript open with.

A line opens with ``[start]``, ``[start - end]`` (also ``-->``, ``→``, an en dash; also in round
brackets or bold), with a bare start, or with one of those after a name: ``Anna (00:01:05): text``.
A time is a clock (``01:05``), has units (``10s``), or is a number of seconds with a fraction or as
a range (``12.5``, ``0 - 5``): the last two may be much else, and are weak unless they are set off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from catalog.ingest.readers.timed.cues import is_name
from catalog.ingest.readers.timed.timecodes import CODE, NUMBER, UNITS, parse_timecode

_LEAD = r"[ \t]{0,12}+(?:[-*+>][ \t]{1,4}+)?"


def _bracketed(time: str) -> str:
    """Return the pattern of a time or a range of such times, in brackets or not."""
    return (
        rf"(?P<open>[\[(])?[ \t]{{0,4}}(?P<start>{time})"
        rf"(?:[ \t]{{0,4}}(?P<dash>-{{1,3}}>|=>|→|-{{1,2}}|[–—]|\t)[ \t]{{0,4}}(?P<end>{time}))?"
        r"(?:[ \t]{0,4}(?P<close>[\])]))?"
    )


def _leading(time: str) -> re.Pattern[str]:
    mark = r"(?P<mark>\*\*|__|`)?"
    return re.compile(rf"{_LEAD}{mark}{_bracketed(time)}(?::?(?P<shut>(?P=mark)))?", re.ASCII)


def _after_name(time: str) -> re.Pattern[str]:
    name = r"(?P<mark>\*\*|__|)(?P<name>[^\W_][^:()\[\]<>*|]{0,59}?):?(?P=mark)?:?"
    after = r"(?P<after>:?(?:\*\*|__):?|:|[ \t]*$|)"
    return re.compile(rf"{_LEAD}{name}(?P<gap>[ \t]{{0,8}}){_bracketed(time)}{after}")


_SECONDS = f"(?:{UNITS}|{NUMBER})"
_LEADING, _NAMED = _leading(CODE), _after_name(CODE)
_LEADING_SECONDS, _NAMED_SECONDS = _leading(_SECONDS), _after_name(_SECONDS)
_SEPARATOR = re.compile(r"[ \t]*(?:(?:-{1,2}|[–—:|])(?=[ \t]|$))?[ \t]*")
_CLOCK = re.compile(r"(?:[ap]\.?m\b|uhr\b|h\b|o'clock)", re.IGNORECASE)
_ANY_CODE = re.compile(r"\d:\d\d", re.ASCII)
_ANY_TIME = re.compile(
    r"\d:\d\d|^[^\w\n]{0,16}\d{1,7}(?:[.,]\d| ?[hms-])|[\[(] ?\d{1,7}(?:[.,]\d{1,9})? ?[hms-]",
    re.ASCII | re.MULTILINE,
)
_BRACKETED_NUMBER = re.compile(r"[\[(][ \t]{0,4}\d", re.ASCII)
_RATIO = re.compile(r"[1-9]:\d\d", re.ASCII)
_LABEL_TRACK = re.compile(r"\d{1,7}\.\d{6}", re.ASCII)
_PAIRS = {("[", "]"), ("(", ")"), (None, None)}
_MAX_HEAD = 200
"""Characters of a line within which its timecode stands."""


@dataclass(frozen=True, slots=True)
class LineTime:
    """The time of a line.

    ``line[cut_start:cut_end]`` is the timecode with what sets it off from the text. ``name`` is
    a speaker named before it. ``has_seconds`` is false for two fields (``10:30``), which may
    as well be a time of day; ``is_set_off`` tells brackets or an arrow from a bare code, and
    ``may_be_ratio`` a bare ``3:16`` with text behind it, which may as well count verses, laps or
    parts of a mixture. ``is_weak`` is a length or a number, a time only in what is known to be a
    transcript: ``12.5``, ``10s``, ``[5m]``, but not ``[10s]`` or ``[0.0 -> 5.2]``.
    """

    start: float
    end: float | None
    cut_start: int
    cut_end: int
    name: str | None = None
    has_seconds: bool = False
    is_set_off: bool = False
    may_be_ratio: bool = False
    is_weak: bool = False


def may_have_times(text: str, start: int) -> bool:
    """Return whether any line from ``start`` on may open with a time: a quick no for most texts."""
    return _ANY_TIME.search(text, start) is not None


def line_time(line: str) -> LineTime | None:
    """Return the time that ``line`` (without its break) opens with, or ``None``."""
    head = line[:_MAX_HEAD]
    time = None
    if _ANY_CODE.search(head) is not None:
        time = _leading_time(_LEADING.match(head), line) or _time_after_name(_NAMED.match(head))
    time = time or _leading_time(_LEADING_SECONDS.match(head), line)
    if time is None and _BRACKETED_NUMBER.search(head) is not None:
        time = _time_after_name(_NAMED_SECONDS.match(head))
    return time


def _leading_time(match: re.Match[str] | None, line: str) -> LineTime | None:
    if match is None or (match["open"], match["close"]) not in _PAIRS:
        return None
    is_marked = match["open"] is not None or match["shut"] is not None
    if not is_marked and not _is_bare(match.string, match.end()):
        return None
    separator = _SEPARATOR.match(line, match.end())
    end = match.end() if separator is None else separator.end()
    first = "mark" if match["shut"] else "open" if match["open"] else "start"
    time = _build_time(match, (match.start(first), end), None)
    if time is None or time.is_set_off or _RATIO.fullmatch(match["start"]) is None:
        return time
    return replace(time, may_be_ratio=end < len(line))


def _is_bare(head: str, at: int) -> bool:
    """Return whether a code without brackets ends there, and is no time of day by its words."""
    following = head[at : at + 1]
    if following == ":":
        return head[at + 1 : at + 2] in ("", " ", "\t")
    if following and following not in " \t":
        return False
    return _CLOCK.match(head[at:].lstrip()) is None


def _time_after_name(match: re.Match[str] | None) -> LineTime | None:
    if match is None or (match["open"], match["close"]) not in _PAIRS:
        return None
    at_end = match["after"].strip() == "" and match.end() == len(match.string)
    is_bold = match["mark"] != ""
    name = match["name"].strip()
    if match["open"] is None and not (at_end and match["gap"] and ":" in match["start"]):
        return None
    if not is_bold and not (is_name(name) and (match["after"] == ":" or at_end)):
        return None
    return _build_time(match, (match.start("gap"), match.start("after")), name)


def _build_time(match: re.Match[str], cut: tuple[int, int], name: str | None) -> LineTime | None:
    code, last, dash = match["start"], match["end"], match["dash"]
    is_clock, is_fraction = ":" in code, "." in code or "," in code
    if code.isdigit() and last is None:
        return None
    start = parse_timecode(code, bare_seconds=not is_clock)
    if start is None:
        return None
    end = parse_timecode(last, bare_seconds=not is_clock) if last else None
    is_arrow = dash is not None and dash[-1] in ">→"
    has_seconds = code.count(":") == 2 or is_fraction or "s" in code
    is_set_off = match["open"] is not None or is_arrow
    is_exact = match["open"] == "[" and ("s" in code or (last is not None and is_fraction))
    is_exact = is_exact or (dash == "\t" and _LABEL_TRACK.fullmatch(code) is not None)
    is_weak = not (is_clock or is_exact)
    return LineTime(start, end, *cut, name, has_seconds, is_set_off, is_weak=is_weak)
