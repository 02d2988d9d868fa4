"""Speakers and cues: what every form of transcript is made of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.core.documents import Modality, Segment
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable

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


def is_name(text: str) -> bool:
    """Return whether the words look like somebody's name or role, in at most five words."""
    words = text.split()
    if not 1 <= len(words) <= _MOST_WORDS or words[0].casefold().rstrip(".") in _NOT_NAMES.split():
        return False
    if _NUMBERED.fullmatch(text.strip()):
        return True
    return words[0][0].isupper() and all(
        word[0].isupper() or word[0].isdigit() or word.casefold() in _PARTICLES for word in words
    )


def find_speakers(texts: Sequence[str]) -> list[str | None]:
    """Return the speaker of each cue, by the names that the cues begin with.

    A name in capitals, in bold or numbered (``SPEAKER_01``) counts at once, any other
    if at least two cues begin with it: "Look: …" said once is nobody. It holds for the
    cues after it, until another name, ``>>`` or a dialogue dash tells of a change; but a
    name in capitals that is the only one and said once ("CPU: …") is its own cue's alone.
    """
    prefixes = [_name_prefix(text) for text in texts]
    counts = Counter(prefix.name for prefix in prefixes if prefix is not None)
    names = {
        prefix.name
        for prefix in prefixes
        if prefix is not None and (prefix.is_certain or counts[prefix.name] > 1)
    }
    is_lone = len(names) == 1 and all(counts[name] == 1 for name in names)
    current: str | None = None
    speakers: list[str | None] = []
    for text, prefix in zip(texts, prefixes, strict=True):
        name = prefix.name if prefix is not None and prefix.name in names else None
        if name is not None or _CHANGE.match(text):
            current = name
        speakers.append(current)
        if prefix is not None and is_lone and not prefix.is_marked:
            current = None
    return speakers


@dataclass(frozen=True, slots=True)
class _NamePrefix:
    """A name; ``is_marked`` in bold or by a number, ``is_certain`` also in capitals."""

    name: str
    is_marked: bool
    is_certain: bool


def _name_prefix(text: str) -> _NamePrefix | None:
    """Return the name before the first colon."""
    match = _PREFIX.match(text)
    if match is None:
        return None
    name = (match["bold"] or match["name"]).strip()
    if not name or not is_name(name):
        return None
    is_capitals = name.isupper() and len(name) > 1 and "_" not in name
    is_marked = bool(match["bold"]) or _NUMBERED.fullmatch(name) is not None
    return _NamePrefix(name, is_marked, is_marked or is_capitals)


_TOUCHING = 0.25
"""Seconds between two cues up to which the second may repeat what still stands of the first."""
_MOST_REPEATED = 3
"""Lines that a roll-up caption shows again at most."""


@dataclass(frozen=True, slots=True)
class ParsedCue:
    """One cue as a file has it: its lines without markup, seconds where they are known.

    ``numbers`` are the lines of the file in which its lines stand, if it has lines.
    ``is_placed``: its times were made up from its neighbours'.
    """

    lines: tuple[str, ...]
    start: float | None = None
    end: float | None = None
    speaker: str | None = None
    is_placed: bool = False
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _TimedCue:
    """A cue with times: ``0 <= start <= end``."""

    lines: tuple[str, ...]
    start: float
    end: float
    speaker: str | None
    is_placed: bool
    numbers: tuple[int, ...]

    @property
    def words(self) -> str:
        return storable(" ".join(" ".join(self.lines).split()))


def build_transcript(
    cues: Sequence[ParsedCue], modality: Modality
) -> tuple[str, tuple[Segment, ...], Places]:
    """Return a text with one line for each cue, in the order of time, their segments and places.

    Places are lines of the file, or where the cues have none only times. Every repeated caption
    line stands in the text once. A known speaker's name stands before the words with which they
    begin to speak.
    """
    timed = [cue for cue in _drop_repeats(_in_order(cues)) if cue.words]
    texts = [cue.words for cue in timed]
    if any(cue.speaker is not None for cue in timed):
        names = [cue.speaker for cue in timed]
        texts = list(_introduce(texts, names))
    else:
        names = find_speakers(texts)
    segments = []
    places = PlacesBuilder("line")
    at = 0
    for cue, text, name in zip(timed, texts, names, strict=True):
        segments.append(Segment(at, at + len(text), modality, cue.start, cue.end, name))
        _add_places(places, cue, at, len(text) - len(cue.words))
        at += len(text) + 1
    has_lines = any(cue.numbers for cue in timed)
    return "\n".join(texts), tuple(segments), places.places() if has_lines else Places("time")


def _add_places(places: PlacesBuilder, cue: _TimedCue, start: int, introduction: int) -> None:
    """Note in which line of the file each line of a cue stands, its introduction with the first."""
    at = start
    for line, number in zip(cue.lines, cue.numbers, strict=False):
        if words := " ".join(line.split()):
            places.add(at if at == start else at + introduction, number)
            at += len(words) + 1


def _in_order(cues: Sequence[ParsedCue]) -> Iterator[_TimedCue]:
    """Yield the cues sorted by start (those of one start as they stood), all with times.

    Cues without a start share the time between their neighbours evenly. A cue whose end is
    missing or before its start ends where the next one starts; the last one where it starts.
    """
    placed = sorted(_with_starts(cues), key=lambda cue: cue.start or 0.0)
    for cue, following in zip(placed, [*placed[1:], None], strict=True):
        start, end = cue.start or 0.0, cue.end
        if end is None or end < start:
            end = start if following is None else max(start, following.start or 0.0)
        yield _TimedCue(cue.lines, start, end, cue.speaker, cue.is_placed, cue.numbers)


def _drop_repeats(cues: Iterable[_TimedCue]) -> Iterator[_TimedCue]:
    """Yield cues without the lines that roll-up captions show again from the cue just before.

    A cue that is nothing but a repetition lengthens the one that it repeats.
    """
    pending: _TimedCue | None = None
    shown: tuple[str, ...] = ()
    until = 0.0
    for cue in cues:
        is_touching = not cue.is_placed and cue.start - until <= _TOUCHING
        is_same_voice = pending is not None and cue.speaker == pending.speaker
        repeated = _overlap(shown, cue.lines) if is_touching and is_same_voice else 0
        shown, until = cue.lines, max(until, cue.end)
        rest = cue.lines[repeated:]
        if pending is not None and not rest:
            pending = replace(pending, end=max(pending.end, cue.end))
            continue
        if pending is not None:
            yield pending
        pending = replace(cue, lines=rest, numbers=cue.numbers[repeated:])
    if pending is not None:
        yield pending


def _overlap(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """Count the lines at the start of ``after`` that are the last ones of ``before``."""
    for size in range(min(_MOST_REPEATED, len(before), len(after)), 0, -1):
        if before[-size:] == after[:size]:
            return size
    return 0


def _with_starts(cues: Sequence[ParsedCue]) -> Iterator[ParsedCue]:
    waiting: list[ParsedCue] = []
    before = 0.0
    for cue in cues:
        if cue.start is None:
            waiting.append(cue)
            continue
        yield from _share_time(waiting, before, cue.start)
        waiting = []
        yield cue
        before = max(cue.start, cue.end or 0.0)
    yield from _share_time(waiting, before, before)


def _share_time(cues: Sequence[ParsedCue], start: float, end: float) -> Iterator[ParsedCue]:
    step = max(0.0, end - start) / max(1, len(cues))
    for position, cue in enumerate(cues):
        at = start + position * step
        cue_end = max(at, start + (position + 1) * step)
        yield replace(cue, start=at, end=cue_end, is_placed=True)


def _introduce(texts: Sequence[str], names: Sequence[str | None]) -> Iterator[str]:
    before: str | None = None
    for text, name in zip(texts, names, strict=True):
        is_new = name is not None and name != before and not text.startswith(f"{name}:")
        yield f"{name}: {text}" if is_new else text
        before = name
