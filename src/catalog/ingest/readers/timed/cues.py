"""Cues of a transcript, whatever file they come from, made into text with timed segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.core.documents import Modality, Segment
from catalog.core.text import storable
from catalog.ingest.readers.timed.timecodes import speakers

_TOUCHING = 0.25
"""Seconds between two cues up to which the second may repeat what still stands of the first."""
_MOST_REPEATED = 3
"""Lines that a roll-up caption shows again at most."""


@dataclass(frozen=True, slots=True)
class HeardCue:
    """One cue as a file tells it: its lines without markup, seconds where they are known."""

    lines: tuple[str, ...]
    start: float | None = None
    end: float | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class TimedCue:
    """A cue with times: ``0 <= start <= end``; ``is_placed`` if only its neighbours tell when."""

    lines: tuple[str, ...]
    start: float
    end: float
    speaker: str | None = None
    is_placed: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """A text with one line for each cue, and the segments that are these lines."""

    text: str
    segments: tuple[Segment, ...]


def transcript(cues: Sequence[HeardCue], modality: Modality) -> Transcript:
    """The cues in the order of time, a line each, every repeated caption line once.

    A known speaker's name stands before the words with which they begin to speak.
    """
    timed = [cue for cue in without_repeats(in_order(cues)) if _words(cue)]
    texts = [_words(cue) for cue in timed]
    if any(cue.speaker is not None for cue in timed):
        names = [cue.speaker for cue in timed]
        texts = list(_introduced(texts, names))
    else:
        names = speakers(texts)
    segments = []
    at = 0
    for cue, text, name in zip(timed, texts, names, strict=True):
        segments.append(Segment(at, at + len(text), modality, cue.start, cue.end, name))
        at += len(text) + 1
    return Transcript("\n".join(texts), tuple(segments))


def in_order(cues: Sequence[HeardCue]) -> list[TimedCue]:
    """The cues sorted by start (those of one start as they stood), all with times.

    Cues without a start share the time between their neighbours evenly. A cue whose end is
    missing or before its start ends where the next one starts; the last one where it starts.
    """
    placed = sorted(_with_starts(cues), key=lambda each: each[0].start or 0.0)
    answer = []
    for position, (cue, is_placed) in enumerate(placed):
        start = cue.start or 0.0
        end = cue.end
        if end is None or end < start:
            following = placed[position + 1][0].start if position + 1 < len(placed) else start
            end = max(start, following or 0.0)
        answer.append(TimedCue(cue.lines, start, end, cue.speaker, is_placed))
    return answer


def without_repeats(cues: Iterable[TimedCue]) -> Iterator[TimedCue]:
    """Cues without the lines that roll-up captions show again from the cue just before.

    A cue that is nothing but a repetition lengthens the one that it repeats.
    """
    held: TimedCue | None = None
    shown: tuple[str, ...] = ()
    until = 0.0
    for cue in cues:
        is_touching = not cue.is_placed and cue.start - until <= _TOUCHING
        is_same_voice = held is not None and cue.speaker == held.speaker
        repeated = _overlap(shown, cue.lines) if is_touching and is_same_voice else 0
        shown, until = cue.lines, max(until, cue.end)
        rest = cue.lines[repeated:]
        if held is not None and not rest:
            held = replace(held, end=max(held.end, cue.end))
            continue
        if held is not None:
            yield held
        held = replace(cue, lines=rest)
    if held is not None:
        yield held


def _overlap(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """How many lines at the start of ``after`` are the last ones of ``before``."""
    for size in range(min(_MOST_REPEATED, len(before), len(after)), 0, -1):
        if before[-size:] == after[:size]:
            return size
    return 0


def _with_starts(cues: Sequence[HeardCue]) -> Iterator[tuple[HeardCue, bool]]:
    """The cues, all with a start, and whether it was made up from their neighbours."""
    waiting: list[HeardCue] = []
    before = 0.0
    for cue in cues:
        if cue.start is None:
            waiting.append(cue)
            continue
        yield from _shared(waiting, before, cue.start)
        waiting = []
        yield cue, False
        before = max(cue.start, cue.end or 0.0)
    yield from _shared(waiting, before, before)


def _shared(cues: Sequence[HeardCue], start: float, end: float) -> Iterator[tuple[HeardCue, bool]]:
    step = max(0.0, end - start) / max(1, len(cues))
    for position, cue in enumerate(cues):
        at = start + position * step
        yield replace(cue, start=at, end=max(at, start + (position + 1) * step)), True


def _introduced(texts: Sequence[str], names: Sequence[str | None]) -> Iterator[str]:
    before: str | None = None
    for text, name in zip(texts, names, strict=True):
        is_new = name is not None and name != before and not text.startswith(f"{name}:")
        yield f"{name}: {text}" if is_new else text
        before = name


def _words(cue: TimedCue) -> str:
    return storable(" ".join(" ".join(cue.lines).split()))
