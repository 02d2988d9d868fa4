"""Speakers and cues, the parts of every transcript, and the notations of times.

A clock is ``00:01:12`` or ``01:12``, also with ``.500`` or ``,500``, with three fields also
``0:0:3.5``. The last field of
``00:01:12:15`` counts frames and is dropped. Units are ``1h02m03s``, ``1 min 12 sec``, ``72.5s``,
``72500ms``. A number of seconds, ``12.5``, is a time only if the context says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.core.documents import Modality, Segment
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable

MAX_SECONDS = 1000 * 3600.0
"""What claims to lie later in a recording than this is no time."""
CODE = (
    r"(?:\d{2}:\d{2}:\d{2}[:;]\d{2,3}|\d{1,3}:\d{1,2}:\d{1,2}[.,]\d{1,9}"
    r"|(?:\d{1,3}:)?\d{1,3}:\d{2}(?:[.,]\d{1,9})?)"
)
"""A clock inside a larger pattern (to be compiled with ``re.ASCII``)."""
NUMBER = r"\d{1,7}(?:[.,]\d{1,9})?"
"""A number of seconds inside a larger pattern."""
_UNITS = (
    r"(?=\d{1,10}(?:[.,]\d{1,9})? ?[hms])(?:(?P<all_ms>\d{1,10}) ?m(?:illi)?s(?:ec(?:ond)?s?)?"
    r"|(?:(?P<h>\d{1,3}) ?h(?:(?:ou)?rs?)?SEP)?(?:(?P<m>\d{1,4}) ?m(?:in(?:ute)?s?)?SEP)?"
    rf"(?:(?P<s>{NUMBER}) ?s(?:ec(?:ond)?s?)?(?:(?P<ms>\d{{3}})(?:ms)?)?)?)(?![A-Za-z0-9])"
)


def _units(separator: str) -> str:
    return _UNITS.replace("SEP", separator)


UNITS = re.sub(r"\?P<\w+>", "?:", _units("[ ]?"))
"""Hours, minutes and seconds with their units, inside a larger pattern."""
_CLOCK = re.compile(
    r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2}|(?<=\d:\d:)\d(?![:;])|(?<=\d:\d\d:)\d(?![:;]))"
    r"(?:[.,](\d{1,9})|:(\d{3})|[:;]\d{2})?",
    re.ASCII,
)
_SECONDS = re.compile(r"(\d{1,7})(?:[.,](\d{1,9}))?", re.ASCII)
_WITH_UNITS = re.compile(_units("[ ]?"), re.ASCII | re.IGNORECASE)


def parse_timecode(text: str, *, bare_seconds: bool = False) -> float | None:
    """Return the seconds of a clock (``HH:MM:SS``, ``MM:SS``) or a time with units, or ``None``.

    Hours, and minutes in ``MM:SS``, have up to three digits. Minutes after hours, and seconds, are
    under 60. With ``bare_seconds`` a plain number of seconds is a time as well.
    """
    code = text.strip()
    match = _CLOCK.fullmatch(code)
    if match is not None:
        hours, minutes, seconds, fraction, thousandths = match.groups()
        return _sum(hours, minutes, seconds, fraction or thousandths)
    units = _WITH_UNITS.fullmatch(code)
    if units is not None:
        return _parse_units(units)
    bare = _SECONDS.fullmatch(code) if bare_seconds else None
    return None if bare is None else valid_seconds(f"{bare[1]}.{bare[2] or 0}")


def valid_seconds(value: object) -> float | None:
    """Return a number (or its digits) of seconds from 0 to under 1000 hours; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 30:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < MAX_SECONDS else None


def _sum(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float | None:
    if int(seconds) > 59 or (hours is not None and int(minutes) > 59):
        return None
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{fraction or 0}")


def _parse_units(match: re.Match[str]) -> float | None:
    """Return the seconds of a match of the units; after a larger unit each must be under 60."""
    if match["all_ms"] is not None:
        return valid_seconds(int(match["all_ms"]) / 1000)
    hours, minutes = int(match["h"] or 0), int(match["m"] or 0)
    seconds = float((match["s"] or "0").replace(",", ".")) + int(match["ms"] or 0) / 1000
    if (match["h"] and minutes > 59) or ((match["h"] or match["m"]) and seconds >= 60):
        return None
    return valid_seconds(hours * 3600 + minutes * 60 + seconds)


_DATED = re.compile(
    r"(?<!\d)(?:19|20)\d{2}[-_.]?[01]\d[-_.]?[0-3]\d(?!\d)"
    r"(?:[-_ .T]{0,3}(?:at[-_ ])?\d{1,2}[-_.:h]?\d{2}(?:[-_.:m]?\d{2}(?:[s.]\d{0,6}s?)?)?(?!\d))?",
    re.ASCII | re.IGNORECASE,
)
_BEFORE = r"(?<![A-Za-z0-9.])(?:(?:at|ts|t)[-_= ]?)?"
_NAME_UNITS = re.compile(_BEFORE + _units("[-_ ]?"), re.ASCII | re.IGNORECASE)
_NAME_CLOCK = re.compile(
    rf"{_BEFORE}(\d{{1,3}})([-_.:;])(\d{{2}})[-_.:;](\d{{2}})(?:[.,](\d{{1,6}})|[-_:;](\d{{3}}))?"
    r"(?!\d)",
    re.ASCII | re.IGNORECASE,
)
_NAME_MINUTES = re.compile(rf"{_BEFORE}(\d{{2}})[-_:](\d{{2}})(?![A-Za-z0-9])", re.ASCII | re.I)
_NAME_NUMBER = re.compile(
    r"(?<![A-Za-z0-9.])(?:"
    rf"(?:at|ts|t|time|timestamp|sec|secs|seconds?)[-_= ]?({NUMBER})|(\d{{1,7}}[.,]\d{{1,9}}))"
    r"(?![A-Za-z0-9.])",
    re.ASCII | re.IGNORECASE,
)


def time_in_name(stem: str, *, is_certain: bool = False) -> float | None:
    """Return the seconds in the name of a file (without its extension), or ``None``.

    The forms are those in texts, with ``-``, ``_`` or ``.`` for colons: ``01m12s``,
    ``00-01-12.500``, ``01_12``, ``12.5``, ``t72``. A whole number alone counts frames, and a time
    after a date is a time of day. ``is_certain``: only units and clocks of three fields.
    """
    name = _DATED.sub(" ", stem[:200])
    for match in _NAME_UNITS.finditer(name):
        if (seconds := _parse_units(match)) is not None:
            return seconds
    for match in _NAME_CLOCK.finditer(name):
        hours, _, minutes, second, fraction, thousandths = match.groups()
        if (seconds := _sum(hours, minutes, second, fraction or thousandths)) is not None:
            return seconds
    if is_certain:
        return None
    for match in _NAME_NUMBER.finditer(name):
        return valid_seconds((match[1] or match[2]).replace(",", "."))
    minutes_only = _NAME_MINUTES.search(name)
    return None if minutes_only is None else _sum(None, minutes_only[1], minutes_only[2], None)


_PREFIX = re.compile(
    r"(?:>{2,3}[ ]?|[-–—>][ ])?"
    r"(?:\*\*(?P<bold>[^*:：\n]{1,48}?)(?:[:：]\*\*|\*\*[:：])(?:\s|$)"
    r"|(?P<name>[^\W_][^:：;,!?<>\[\](){}\n]{0,47}?)(?:[ ]?[(（][^()（）\n]{1,24}[)）])?"
    r"(?::(?:\s|$)|：))"
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
_LABELLED = 0.75
"""Share of the cues that begin with a name from which on each such name is a speaker."""


def is_name(text: str) -> bool:
    """Return whether the text looks like a person's name or role, in at most five words."""
    words = text.split()
    if not 1 <= len(words) <= _MOST_WORDS or words[0].casefold().rstrip(".") in _NOT_NAMES.split():
        return False
    if _NUMBERED.fullmatch(text.strip()):
        return True
    if not _is_capital(words[0][0]):
        return False
    return all(
        _is_capital(word[0]) or word[0].isdigit() or word.casefold() in _PARTICLES for word in words
    )


def _is_capital(letter: str) -> bool:
    """Return whether a name may begin with the letter: a capital, or of a script without them."""
    return letter.isupper() or (letter.isalpha() and letter.lower() == letter.upper())


def find_speakers(texts: Sequence[str]) -> list[str | None]:
    """Return the speaker of each cue, from the names with which cues begin.

    A name in capitals, in bold or with a number (``SPEAKER_01``) counts at once, any other name if
    at least two cues begin with it, or most cues begin with a name: a single "Look: …" is not a
    speaker. A name applies to the following cues until another name, ``>>`` or a dialogue dash
    marks a change. After what may be a name the speaker is unknown. If the only name is in capitals
    and occurs once ("CPU: …"), it applies to that cue only.
    """
    prefixes = [_name_prefix(text) for text in texts]
    counts = Counter(prefix.name for prefix in prefixes if prefix is not None)
    names = {
        prefix.name
        for prefix in prefixes
        if prefix is not None and (prefix.is_certain or counts[prefix.name] > 1)
    }
    named = sum(prefix is not None for prefix in prefixes)
    if names and named >= _LABELLED * len(texts):
        names = set(counts)
    is_lone = len(names) == 1 and all(counts[name] == 1 for name in names)
    current: str | None = None
    speakers: list[str | None] = []
    for text, prefix in zip(texts, prefixes, strict=True):
        name = prefix.name if prefix is not None and prefix.name in names else None
        if prefix is not None or _CHANGE.match(text):
            current = name
        speakers.append(current)
        if prefix is not None and is_lone and not prefix.is_marked:
            current = None
    return speakers


@dataclass(frozen=True, slots=True)
class _NamePrefix:
    """A name; ``is_marked`` in bold or by a number, ``is_certain`` in capitals as well."""

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
    """One cue as in the file: its lines without markup, and its seconds if known.

    ``numbers`` are the lines of the file that contain its lines, if the file has lines.
    ``is_placed``: its times were derived from its neighbours'.
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
    """Return a text with one line for each cue, in order of time, with segments and places.

    Places are lines of the file, or only times if the cues have no lines. A repeated caption line
    is in the text once. A known speaker's name comes before the first words of each turn.
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
    """Record the file's line for each line of a cue; its introduction has that of the first."""
    at = start
    for line, number in zip(cue.lines, cue.numbers, strict=False):
        if words := " ".join(line.split()):
            places.add(at if at == start else at + introduction, number)
            at += len(words) + 1


def _in_order(cues: Sequence[ParsedCue]) -> Iterator[_TimedCue]:
    """Yield the cues sorted by start (a stable sort), all with times.

    Cues without a start share the time between their neighbours evenly. A cue whose end is missing
    or before its start ends at the start of the next one; the last one at its own start.
    """
    placed = sorted(_with_starts(cues), key=lambda cue: cue.start or 0.0)
    for cue, following in zip(placed, [*placed[1:], None], strict=True):
        start, end = cue.start or 0.0, cue.end
        if end is None or end < start:
            end = start if following is None else max(start, following.start or 0.0)
        yield _TimedCue(cue.lines, start, end, cue.speaker, cue.is_placed, cue.numbers)


def _drop_repeats(cues: Iterable[_TimedCue]) -> Iterator[_TimedCue]:
    """Yield cues without the lines that roll-up captions repeat from the previous cue.

    A cue that only repeats lengthens the one that it repeats.
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
    """Count the lines at the start of ``after`` that end ``before``."""
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
