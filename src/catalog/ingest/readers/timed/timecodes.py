"""Timecodes and speakers as people and tools write them at the head of a line.

``[start]``, ``[start - end]`` (also ``-->``, ``→``, an en dash; also in round brackets or
bold), a bare ``MM:SS`` or ``HH:MM:SS``, and those after a name: ``Anna (00:01:05): text``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_SECONDS = 1000 * 3600.0
"""What claims to lie later in a recording than this is no time."""

CODE = r"(?:\d{1,3}:)?\d{1,3}:\d{2}(?:[.,]\d{1,9})?"
"""A timecode inside a larger pattern (to be compiled with ``re.ASCII``)."""

_TIMECODE = re.compile(r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2})(?:[.,](\d{1,9}))?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,7})(?:[.,](\d{1,9}))?", re.ASCII)


def parse_timecode(text: str, *, bare_seconds: bool = False) -> float | None:
    """Seconds of ``HH:MM:SS`` or ``MM:SS``, with ``.mmm`` or ``,mmm``; ``None`` if it is neither.

    Hours and, in ``MM:SS``, minutes have up to three digits. Minutes beside hours, and seconds,
    stay under 60. With ``bare_seconds`` a plain number of seconds is a time as well.
    """
    code = text.strip()
    found = _TIMECODE.fullmatch(code)
    if found is None:
        bare = _SECONDS.fullmatch(code) if bare_seconds else None
        return None if bare is None else valid_seconds(f"{bare.group(1)}.{bare.group(2) or 0}")
    hours, minutes, seconds, fraction = found.groups()
    if int(seconds) > 59 or (hours is not None and int(minutes) > 59):
        return None
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{fraction or 0}")


def timecode(seconds: float) -> str:
    """``HH:MM:SS``, rounded down; what is negative is ``00:00:00``."""
    whole = max(0, math.floor(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def valid_seconds(value: object) -> float | None:
    """A number (or its digits) of seconds, not negative, under 1000 hours; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 30:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < MAX_SECONDS else None


_PREFIX = re.compile(
    r"(?:>{2,3}[ ]?|[-–—>][ ])?"
    r"(?:\*\*(?P<bold>[^*:\n]{1,48}?)(?::\*\*|\*\*:)"
    r"|(?P<name>[^\W_][^:;,!?<>\[\](){}\n]{0,47}?)(?:[ ]?\([^()\n]{1,24}\))?:)(?:\s|$)"
)
_CHANGE = re.compile(r">{2,3}|[-–—][ ]?\w")
_NUMBERED = re.compile(
    r"(?:speaker|spk|voice|person|participant|sprecher(?:in)?)[ _-]?\w{1,3}", re.I
)
_PARTICLES = "van von der den de da di del la le bin al of the"
_NOT_NAMES = (
    "note notes warning caution example examples question answer step chapter part section hint "
    "tip summary remark figure table theorem proof definition lemma error info debug todo update "
    "http https important result results problem solution source edit ps so first second third"
)
_MOST_WORDS = 5


@dataclass(frozen=True, slots=True)
class _Named:
    """A name; ``is_marked`` in bold or by a number, ``is_certain`` also in capitals."""

    name: str
    is_marked: bool
    is_certain: bool


def is_name(text: str) -> bool:
    """Whether the words look like somebody's name or role, in at most five words."""
    words = text.split()
    if not 1 <= len(words) <= _MOST_WORDS or words[0].casefold().rstrip(".") in _NOT_NAMES.split():
        return False
    if _NUMBERED.fullmatch(text.strip()):
        return True
    return words[0][0].isupper() and all(
        word[0].isupper() or word[0].isdigit() or word.casefold() in _PARTICLES for word in words
    )


def speakers(texts: Sequence[str]) -> list[str | None]:
    """The speaker of each cue, by the names that the cues begin with.

    A name in capitals, in bold or numbered (``SPEAKER_01``) counts at once, any other
    if at least two cues begin with it: "Look: …" said once is nobody. It holds for the
    cues after it, until another name, ``>>`` or a dialogue dash tells of a change; but a
    name in capitals that is the only one and said once ("CPU: …") is its own cue's alone.
    """
    found = [_named(text) for text in texts]
    often = Counter(named.name for named in found if named is not None)
    names = {
        named.name
        for named in found
        if named is not None and (named.is_certain or often[named.name] > 1)
    }
    is_lone = len(names) == 1 and all(often[name] == 1 for name in names)
    current: str | None = None
    answer: list[str | None] = []
    for text, named in zip(texts, found, strict=True):
        name = named.name if named is not None and named.name in names else None
        if name is not None or _CHANGE.match(text):
            current = name
        answer.append(current)
        if named is not None and is_lone and not named.is_marked:
            current = None
    return answer


def _named(text: str) -> _Named | None:
    """The name before the first colon."""
    found = _PREFIX.match(text)
    if found is None:
        return None
    name = (found["bold"] or found["name"]).strip()
    if not name or not is_name(name):
        return None
    is_numbered = _NUMBERED.fullmatch(name) is not None
    is_capitals = name.isupper() and len(name) > 1 and "_" not in name
    is_marked = bool(found["bold"]) or is_numbered
    return _Named(name, is_marked, is_marked or is_capitals)


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
