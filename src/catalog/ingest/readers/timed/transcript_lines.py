"""Finds transcripts in Markdown: sections whose lines open with timecodes.

A section (what stands between two headings) is a transcript if it is under a heading that says
so ("Transcript", "Subtitles" …) and has a timed line. In a document that names its recording it
is one if a third of its lines that are not blank are timed, or if all its times are set off by
brackets or an arrow. In any other at least two of its lines must be timed, and at least a third;
that alone would take an agenda or a log for one, so its times must also rise and either begin
in the first five minutes or be ranges set off by brackets or an arrow that cannot be times of
day: those have seconds, or minutes that are not all multiples of five. None begins with
a bare ``3:16`` before words, as verses, laps and ratios do.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from catalog.core.documents import Heading
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.timed.timecodes import LineTime, line_time, may_hold_times, speakers

_NAMES = re.compile(
    r"(?:full |video |audio |auto(?:matic|-generated)? |timed )?(?:transcription|transcripts?"
    r"|subtitles?|(?:closed )?captions?|transkript(?:ion)?|untertitel|transcrição|transcripción"
    r"|trascrizione|legendas|subtítulos|sottotitoli|sous-titres)(?: \(.*\))?[:.]?"
)
_FIRST_MINUTES = 300.0
_LAST_CUE = 5.0
"""Seconds that the last cue lasts where nothing tells."""
_LONGEST_LAST_CUE = 60.0
"""Seconds that it lasts at most where only the length of the recording is told."""


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


@dataclass(frozen=True, slots=True)
class _Timed:
    line: Line
    time: LineTime


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    end: int
    is_named: bool


def transcript_lines(
    text: str,
    start: int,
    headings: Sequence[Heading],
    excluded: Sequence[tuple[int, int]],
    *,
    is_declared: bool,
    duration: float | None,
) -> list[CueLines]:
    """The cues of every transcript in ``text[start:]``, in order; none inside ``excluded``.

    ``is_declared``: the document says which recording it is of. ``excluded`` are spans in order
    (code, tables, frames). A cue runs to the next one or to the end of its section. One that
    does not tell its end lasts until the next begins; the last one to ``duration`` or 5 s.
    """
    if not may_hold_times(text, start):
        return []
    outside = _Outside(excluded)
    cues: list[CueLines] = []
    for section in _sections(text, start, headings):
        lines = [line for line in _filled(text, section) if outside.holds(line.start)]
        timed = [
            _Timed(line, time)
            for line in lines
            if (time := line_time(text[line.start : line.end])) is not None
        ]
        if _is_transcript(timed, len(lines), section, is_declared=is_declared):
            end = outside.limit(timed[-1].line.start, section.end)
            cues.extend(_cue_lines(text, timed, end, outside, duration))
    return cues


class _Outside:
    """Tells what is in none of some disjoint spans, which are in order."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def holds(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at < 0 or offset >= self._ends[at]

    def limit(self, offset: int, end: int) -> int:
        """``end``, or where the next span after ``offset`` begins if that is before."""
        at = bisect_right(self._starts, offset)
        return min(end, self._starts[at]) if at < len(self._starts) else end


def _sections(text: str, start: int, headings: Sequence[Heading]) -> Iterator[_Section]:
    first = headings[0].start if headings else len(text)
    yield _Section(start, max(start, first), is_named=False)
    named_at = 0
    """Level of the heading that announces a transcript; 0 for none."""
    for position, heading in enumerate(headings):
        if heading.level <= named_at:
            named_at = 0
        if not named_at and _NAMES.fullmatch(heading.title.casefold().strip()):
            named_at = heading.level
        is_last = position + 1 == len(headings)
        end = len(text) if is_last else headings[position + 1].start
        yield _Section(heading.end, end, is_named=named_at > 0)


def _filled(text: str, section: _Section) -> Iterator[Line]:
    for line in iter_lines(text, section.start):
        if line.start >= section.end:
            return
        if not text[line.start : line.end].isspace() and line.end > line.start:
            yield line


def _is_transcript(
    timed: Sequence[_Timed], lines: int, section: _Section, *, is_declared: bool
) -> bool:
    if section.is_named:
        return bool(timed)
    is_dense = 3 * len(timed) >= lines
    if is_declared:
        return bool(timed) and (is_dense or all(each.time.is_set_off for each in timed))
    return is_dense and len(timed) >= 2 and _is_like_a_recording([each.time for each in timed])


def _is_like_a_recording(times: Sequence[LineTime]) -> bool:
    falls = sum(after.start < before.start for before, after in pairwise(times))
    if 10 * falls > len(times) - 1 or times[0].may_be_ratio:
        return False
    if times[0].start <= _FIRST_MINUTES:
        return True
    ranges = [time for time in times if time.is_set_off and time.end is not None]
    return 2 * len(ranges) > len(times) and not all(map(_may_be_time_of_day, ranges))


def _may_be_time_of_day(time: LineTime) -> bool:
    is_round = time.start % 5 == 0 and (time.end or 0.0) % 5 == 0
    return is_round and not time.has_seconds


def _cue_lines(
    text: str, timed: Sequence[_Timed], end: int, outside: _Outside, duration: float | None
) -> Iterator[CueLines]:
    rests = [text[each.line.start + each.time.cut_end : each.line.end] for each in timed]
    names = [each.time.name for each in timed]
    told = names if any(names) else speakers(rests)
    for position, each in enumerate(timed):
        line, time = each.line, each.time
        is_last = position + 1 == len(timed)
        following = None if is_last else timed[position + 1]
        stop = end if following is None else outside.limit(line.start, following.line.start)
        yield CueLines(
            line.start,
            stop,
            line.start + time.cut_start,
            line.start + time.cut_end,
            time.start,
            _time_end(time, following, duration),
            told[position],
        )


def _time_end(time: LineTime, following: _Timed | None, duration: float | None) -> float:
    if time.end is not None and time.end >= time.start:
        return time.end
    if following is not None:
        return max(time.start, following.time.start)
    if duration is not None and duration > time.start:
        return min(duration, time.start + _LONGEST_LAST_CUE)
    return time.start + _LAST_CUE
