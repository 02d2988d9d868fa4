"""Find transcripts in Markdown: sections whose lines begin with timecodes.

A line begins with ``[start]``, ``[start - end]`` (also ``-->``, ``→``, an en dash; also in round
brackets or bold), with a bare start, or with one of these after a name: ``Anna (00:01:05): text``.
A time is a clock (``01:05``), has units (``10s``), or is a number of seconds with a fraction or as
a range (``12.5``, ``0 - 5``). The last two may mean many other things and are weak unless brackets
or an arrow set them off.

A section (the text between two headings) is a transcript if its heading says so ("Transcript",
"Subtitles" …) and it has a timed line.

In a document that names its recording, a section is a transcript if a third of its lines that are
not blank are timed, or if brackets or an arrow set off all its times.

In any other document at least two of its lines, and at least a third, must be timed. That alone
would include agendas and logs. So the times must also rise. They must either begin in the first
five minutes, or be ranges, set off by brackets or an arrow, that cannot be times of day: with
seconds, or with minutes that are not all multiples of five. No line may begin with a bare ``3:16``
before words, like verses, laps and ratios.

A document whose name says transcript is one if a third of its lines are timed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter

from catalog.core.documents import Heading
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.timed.cues import (
    CODE,
    NUMBER,
    UNITS,
    find_speakers,
    is_name,
    parse_timecode,
)

_LEAD = r"[ \t]{0,12}+(?:[-*+>][ \t]{1,4}+)?"


def _bracketed(time: str) -> str:
    """Return the pattern of a time or range, with or without brackets."""
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
_ANY_CODE = re.compile(r"\d:\d", re.ASCII)
_ANY_TIME = re.compile(
    r"\d[:：]\d|^[^\w\n]{0,16}\d{1,7}(?:[.,]\d| ?[hms-])|[\[(] ?\d{1,7}(?:[.,]\d{1,9})? ?[hms-]",
    re.ASCII | re.MULTILINE,
)
_BRACKETED_NUMBER = re.compile(r"[\[(][ \t]{0,4}\d", re.ASCII)
_RATIO = re.compile(r"[1-9]:\d\d", re.ASCII)
_LINK = re.compile(r"\[[^\[\]]{1,200}\]\([^()\s]{1,200}\)[ \t]*")
_LOGGED = re.compile(
    r"<[^<>]{1,40}> |-!- |\*\*\* |(?:\[[^\[\]]{1,60}\]:? )?\[?(?:[\w .-]{1,40}/)?"
    r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR)\b"
)
"""How a line of a chat or of a program's log goes on after its time."""
_LABEL_TRACK = re.compile(r"\d{1,7}\.\d{6}", re.ASCII)
_PAIRS = {("[", "]"), ("(", ")"), (None, None)}
_MAX_HEAD = 200
"""Characters of a line within which its timecode stands."""


@dataclass(frozen=True, slots=True)
class LineTime:
    """The time of a line.

    ``line[cut_start:cut_end]`` is the timecode with its brackets or punctuation. ``name`` is a
    speaker named before it. ``has_seconds`` is false for two fields (``10:30``), which may be a
    time of day. ``is_set_off`` is true with brackets or an arrow. ``may_be_ratio`` is a bare
    ``3:16`` followed by text, which may count verses, laps or parts of a mixture. ``is_weak`` is a
    length or number that is a time only in a known transcript: ``12.5``, ``10s``, ``[5m]``, but not
    ``[10s]`` or ``[0.0 -> 5.2]``.
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
    """Return whether any line from ``start`` on may begin with a time; fast for most texts."""
    return _ANY_TIME.search(text, start) is not None


def line_time(line: str) -> LineTime | None:
    """Return the time with which ``line`` (without its break) begins, or ``None``.

    A line with nothing but a link after its time is one of a list of frames or chapters, not a cue.
    """
    head = line[:_MAX_HEAD].replace("：", ":")
    time = None
    if _ANY_CODE.search(head) is not None:
        time = _leading_time(_LEADING.match(head), line) or _time_after_name(_NAMED.match(head))
    time = time or _leading_time(_LEADING_SECONDS.match(head), line)
    if time is None and _BRACKETED_NUMBER.search(head) is not None:
        time = _time_after_name(_NAMED_SECONDS.match(head))
    is_listed = time is not None and _LINK.fullmatch(line, time.cut_end) is not None
    return None if is_listed or time is None else time


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
    """Return whether a code without brackets ends there and is no time of day by its words."""
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


_TITLES = re.compile(
    r"(?:full |video |audio |auto(?:matic|-generated)? |timed )?(?:transcription|transcripts?"
    r"|subtitles?|(?:closed )?captions?|transkript(?:ion)?|untertitel|transcrição|transcripción"
    r"|trascrizione|legendas|subtítulos|sottotitoli|sous-titres)(?: \(.*\))?[:.]?"
)
_OF_PICTURES = re.compile(r"(?:captions?|subtitles?)[^\n]*+\Z", re.IGNORECASE)
_AS_TEXT = "read as text, not as a transcript: "
_NO_TIMES = f"{_AS_TEXT}none of its lines begins with a time"
_NO_TIMES_BELOW = "none of the lines under its heading begins with a time"
_FIRST_MINUTES = 300.0
_LONGEST_RECORDING = 12 * 3600.0
"""Seconds; undeclared times that cover more are times of day."""
_LAST_CUE = 5.0
"""Seconds that the last cue lasts where nothing tells."""
_LONGEST_LAST_CUE = 60.0
"""Seconds that it lasts at most where only the length of the recording is known."""


@dataclass(frozen=True, slots=True)
class CueLines:
    """A cue: the lines ``text[start:end]``; ``text[cut_start:cut_end]`` is its timecode."""

    start: int
    end: int
    cut_start: int
    cut_end: int
    time_start: float
    time_end: float
    speaker: str | None = None


def find_cues(
    text: str,
    start: int,
    headings: Sequence[Heading],
    excluded: Sequence[tuple[int, int]],
    *,
    is_declared: bool,
    is_recording: bool,
    is_called_transcript: bool,
    duration: float | None,
) -> tuple[list[CueLines], str | None]:
    """Return the cues of every transcript in ``text[start:]``, or the reason for no cues.

    The reason is given only for a text that looks like a transcript. ``is_declared``: the document
    names the file from which it was made; ``is_recording``: that file is a recording;
    ``is_called_transcript``: its own name says transcript. ``excluded`` are disjoint spans in order
    (code, tables, frames). A cue extends to the next one or to the end of its section. A cue
    without an end lasts until the next one begins, the last one to ``duration`` or 5 s.
    """
    cues: list[CueLines] = []
    timed_lines = all_lines = 0
    doubt: str | None = None
    if not (may_have_times(text, start) or any(map(_is_transcript_title, headings))):
        return [], _NO_TIMES if is_called_transcript else None
    for section_start, section_end, is_named in _sections(text, start, headings):
        lines = [
            line
            for line in _filled_lines(text, section_start, section_end)
            if not _is_inside(excluded, line.start)
        ]
        timed = _choose_times(
            [
                (line, time)
                for line in lines
                if (time := line_time(text[line.start : line.end])) is not None
            ],
            len(lines),
            is_told=is_named or is_recording or is_called_transcript,
        )
        times = [time for _, time in timed]
        all_lines, timed_lines = all_lines + len(lines), timed_lines + len(times)
        if is_named:
            is_transcript = bool(times)
            if lines and not times:
                # "Captions" may as well head a chapter of a thesis.
                is_chapter = _OF_PICTURES.search(
                    text, max(start, section_start - 60), section_start
                )
                if is_chapter is None or _ANY_TIME.search(text, section_start, section_end):
                    doubt = doubt or _NO_TIMES_BELOW
        elif is_called_transcript and times and 3 * len(times) >= len(lines):
            is_transcript = True
        else:
            is_transcript = _is_transcript(times, len(lines), is_declared=is_declared)
            is_transcript = is_transcript and (is_declared or not _is_log(text, timed))
        if is_transcript:
            cues.extend(_build_cues(text, timed, section_end, excluded, duration))
        elif len(times) > 1 and 3 * len(times) >= len(lines):
            doubt = doubt or _doubt(times, len(lines))
    if cues:
        return cues, None
    if is_called_transcript and doubt is None:
        doubt = f"only {timed_lines} of its {all_lines} lines begin with a time"
        return [], f"{_AS_TEXT}{doubt}" if timed_lines else _NO_TIMES
    return [], None if doubt is None else f"{_AS_TEXT}{doubt}"


def _choose_times(
    timed: Sequence[tuple[Line, LineTime]], lines: int, *, is_told: bool
) -> list[tuple[Line, LineTime]]:
    """Drop weak times next to strong ones, and outside a known transcript.

    A section with only weak times counts if a third of its lines have one, and they rise.
    """
    strong = [pair for pair in timed if not pair[1].is_weak]
    if strong or not is_told or 3 * len(timed) < lines:
        return strong
    return list(timed) if _rise([time for _, time in timed]) else []


def _is_inside(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    at = bisect_right(spans, offset, key=itemgetter(0)) - 1
    return at >= 0 and offset < spans[at][1]


def _next_start(spans: Sequence[tuple[int, int]], offset: int, end: int) -> int:
    """Return the start of the next span after ``offset``, at most ``end``."""
    at = bisect_right(spans, offset, key=itemgetter(0))
    return min(end, spans[at][0]) if at < len(spans) else end


def _sections(
    text: str, start: int, headings: Sequence[Heading]
) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of each section, and whether a heading calls it a transcript."""
    first = headings[0].start if headings else len(text)
    yield start, max(start, first), False
    named_level = 0
    """Level of the heading that announces a transcript; 0 for none."""
    for position, heading in enumerate(headings):
        if heading.level <= named_level:
            named_level = 0
        if not named_level and _is_transcript_title(heading):
            named_level = heading.level
        is_last = position + 1 == len(headings)
        end = len(text) if is_last else headings[position + 1].start
        yield heading.end, end, named_level > 0


def _is_transcript_title(heading: Heading) -> bool:
    return _TITLES.fullmatch(heading.title.casefold().strip()) is not None


def _filled_lines(text: str, start: int, end: int) -> Iterator[Line]:
    for line in iter_lines(text, start):
        if line.start >= end:
            return
        if not text[line.start : line.end].isspace() and line.end > line.start:
            yield line


def _is_transcript(times: Sequence[LineTime], lines: int, *, is_declared: bool) -> bool:
    is_dense = 3 * len(times) >= lines
    if is_declared:
        return bool(times) and (is_dense or all(time.is_set_off for time in times))
    return is_dense and len(times) >= 2 and _is_like_a_recording(times)


def _doubt(times: Sequence[LineTime], lines: int) -> str:
    """Return why the times are not a recording's although most lines have one."""
    what = "they do not increase" if not _rise(times) else "they may be times of day"
    if times[0].may_be_ratio:
        what = "they may be numbers of verses or laps"
    return (
        f"{len(times)} of {lines} lines begin with a time, but {what}; to read it as a "
        "transcript, put 'transcript' in its name"
    )


def _rise(times: Sequence[LineTime]) -> bool:
    falls = sum(after.start < before.start for before, after in pairwise(times))
    return 10 * falls <= max(0, len(times) - 1)


def _is_like_a_recording(times: Sequence[LineTime]) -> bool:
    if not _rise(times) or times[0].may_be_ratio:
        return False
    if times[0].start <= _FIRST_MINUTES:
        return True
    ranges = [time for time in times if time.is_set_off and time.end is not None]
    return 2 * len(ranges) > len(times) and not all(map(_may_be_time_of_day, ranges))


def _is_log(text: str, timed: Sequence[tuple[Line, LineTime]]) -> bool:
    """Return whether most lines go on like those of a chat or log, or cover half a day."""
    first, last = timed[0][1].start, timed[-1][1].start
    logged = sum(
        _LOGGED.match(text, line.start + time.cut_end, line.end) is not None for line, time in timed
    )
    return 2 * logged > len(timed) or last - first > _LONGEST_RECORDING


def _may_be_time_of_day(time: LineTime) -> bool:
    is_round = time.start % 5 == 0 and (time.end or 0.0) % 5 == 0
    return is_round and not time.has_seconds


def _build_cues(
    text: str,
    timed: Sequence[tuple[Line, LineTime]],
    section_end: int,
    excluded: Sequence[tuple[int, int]],
    duration: float | None,
) -> Iterator[CueLines]:
    speakers = [time.name for _, time in timed]
    if not any(speakers):
        speakers = find_speakers(
            [text[line.start + time.cut_end : line.end] for line, time in timed]
        )
    for (line, time), following, speaker in zip(timed, [*timed[1:], None], speakers, strict=True):
        end = section_end if following is None else following[0].start
        yield CueLines(
            line.start,
            _next_start(excluded, line.start, end),
            line.start + time.cut_start,
            line.start + time.cut_end,
            time.start,
            _time_end(time, None if following is None else following[1], duration),
            speaker,
        )


def _time_end(time: LineTime, following: LineTime | None, duration: float | None) -> float:
    if time.end is not None and time.end >= time.start:
        return time.end
    if following is not None:
        return max(time.start, following.start)
    if duration is not None and duration > time.start:
        return min(duration, time.start + _LONGEST_LAST_CUE)
    return time.start + _LAST_CUE
