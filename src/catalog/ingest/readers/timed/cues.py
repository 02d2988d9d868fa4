"""Speakers and cues, the parts of every transcript, and the notations of times.

A clock is ``00:01:12`` or ``01:12``, also with ``.500`` or ``,500``, with three fields also
``0:0:3.5``. The last field of ``00:01:12:15`` counts frames and is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from catalog.core.documents import Modality, Segment
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable

MAX_SECONDS = 1000 * 3600.0
"""What claims to lie later in a recording than this is no time."""
CODE = r"\d{1,3}:\d{1,2}(?::\d{1,2}(?:[:;]\d\d)?)?(?:[.,]\d{1,9})?"
"""A clock inside a larger pattern (to be compiled with ``re.ASCII``)."""
_CLOCK = re.compile(
    r"(?:(\d{1,3}):(?=\d{1,2}:))?(\d{1,3}):(\d{1,2})(?:[:;]\d\d)?([.,]\d{1,9})?", re.A
)
_SECONDS = re.compile(r"\d{1,7}(?:[.,]\d{1,9})?", re.ASCII)


def parse_timecode(text: str, *, bare_seconds: bool = False) -> float | None:
    """Return the seconds of a clock (``HH:MM:SS``, ``MM:SS``), or ``None``.

    Hours, and minutes in ``MM:SS``, have up to three digits. Minutes after hours, and seconds, are
    under 60. With ``bare_seconds`` a plain number of seconds is a time as well.
    """
    code = text.strip()
    if bare_seconds and _SECONDS.fullmatch(code):
        return valid_seconds(code.replace(",", "."))
    if (match := _CLOCK.fullmatch(code)) is None:
        return None
    hours, minutes, seconds, fraction = match.groups()
    is_padded = len(seconds) == 2 or hours is not None
    if not is_padded or int(seconds) > 59 or (hours is not None and int(minutes) > 59):
        return None
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{(fraction or '.0')[1:]}")


def valid_seconds(value: object, limit: float = MAX_SECONDS) -> float | None:
    """Return a number (or its digits) of seconds from 0 to under 1000 hours; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 30:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < limit else None


_PREFIX = re.compile(
    r"(?:>{2,3}[ ]?|[-–—>][ ])?"
    r"(?:\*\*(?P<bold>[^*:：\n]{1,48}?)(?:[:：]\*\*|\*\*[:：])(?:\s|$)"
    r"|(?P<name>[^\W_][^:：;,!?<>\[\](){}\n]{0,47}?)(?:[ ]?[(（][^()（）\n]{1,24}[)）])?"
    r"(?:[ ]?:(?:\s|$)|：))"
)
_CHANGE = re.compile(r">{2,3}|[-–—][ ]?\w")
_NUMBERED = re.compile(
    r"(?:speaker|spk|voice|person|participant|sprecher(?:in)?)[ _-]?\w{1,3}", re.I
)
_PARTICLES = "van von der den de da di del la le bin al of the"
_NOT_NAMES = """
    note notes warning caution example examples question answer step chapter part section hint tip
    summary remark figure table theorem proof definition lemma error info debug todo update http
    https important result results problem solution source edit ps so first second third"""


def is_name(text: str) -> bool:
    """Return whether the text looks like a person's name or role, in at most five words."""
    words = text.split()
    if not 1 <= len(words) <= 5 or words[0].casefold().rstrip(".") in _NOT_NAMES.split():
        return False
    if _NUMBERED.fullmatch(text.strip()):
        return True
    others = [word for word in words[1:] if word.casefold() not in _PARTICLES.split()]
    return not words[0][0].isdigit() and all(map(_may_begin_name, [words[0], *others]))


def _may_begin_name(word: str) -> bool:
    """Return whether a word begins with a capital, a digit, or a letter without capitals (田)."""
    first = word[0]
    return first.isupper() or first.isdigit() or (first.isalpha() and not first.islower())


def find_speakers(texts: Sequence[str]) -> list[str | None]:
    """Return the speaker of each cue, from the names with which cues begin.

    A name in capitals, in bold or with a number (``SPEAKER_01``) counts at once, any other name if
    at least two cues begin with it, or three of four cues with a name: a single "Look: …" is not a
    speaker. A name applies to the following cues until another name, ``>>`` or a dialogue dash
    marks a change. After what may be a name the speaker is unknown.
    """
    matches = [_PREFIX.match(text) for text in texts]
    found = [(match["bold"] or match["name"]).strip() if match else "" for match in matches]
    names = [name if is_name(name) else "" for name in found]
    counts = Counter(filter(None, names))
    are_most_named = counts.total() >= 0.75 * len(texts)
    marked = {name for match, name in zip(matches, names, strict=True) if match and match["bold"]}
    known = {
        name
        for name, count in counts.items()
        if count > 1
        or name in marked
        or _NUMBERED.fullmatch(name)
        or (name.isupper() and len(name) > 1 and "_" not in name)
    }
    known = set(counts) if known and are_most_named else known
    current: str | None = None
    speakers: list[str | None] = []
    for text, name in zip(texts, names, strict=True):
        if name or _CHANGE.match(text):
            current = name if name in known else None
        speakers.append(current)
    return speakers


class Caption(NamedTuple):
    """One cue as in the file: its lines without markup, and its seconds if known.

    ``numbers`` are the lines of the file that contain its lines, if the file has lines.
    """

    lines: tuple[str, ...]
    start: float | None = None
    end: float | None = None
    speaker: str | None = None
    numbers: tuple[int, ...] = ()


def build_transcript(
    captions: Sequence[Caption], modality: Modality
) -> tuple[str, tuple[Segment, ...], Places]:
    """Return a text with one line for each cue, in order of time, with segments and places.

    Places are lines of the file, or only times if the cues have no lines. A repeated caption line
    is in the text once. A known speaker's name comes before the first words of each turn.
    """
    cues = [
        (cue, words)
        for cue in _drop_repeats(_in_order(captions))
        if (words := storable(" ".join(" ".join(cue.lines).split())))
    ]
    names = [cue.speaker for cue, _ in cues]
    is_told = any(names)
    if not is_told:
        names = find_speakers([words for _, words in cues])
    texts, segments, places = [], [], PlacesBuilder("line")
    at, before = 0, None
    for (cue, words), name in zip(cues, names, strict=True):
        is_turn = is_told and name and name != before and not words.startswith(f"{name}:")
        lead, before = f"{name}: " if is_turn else "", name
        start, end = cue.start or 0.0, cue.end or 0.0
        segments.append(Segment(at, at + len(lead) + len(words), modality, start, end, name))
        texts.append(lead + words)
        begin = at
        for line, number in zip(cue.lines, cue.numbers, strict=False):
            if size := len(" ".join(line.split())):
                places.add(begin, number)
                begin += size + 1 + (len(lead) if begin == at else 0)
        at += len(lead) + len(words) + 1
    has_lines = any(cue.numbers for cue, _ in cues)
    return "\n".join(texts), tuple(segments), places.places() if has_lines else Places("time")


def _in_order(captions: Sequence[Caption]) -> list[Caption]:
    """Return the cues in order of their start (a stable sort), all with times.

    A cue without a start begins where the one before it ends. A cue whose end is missing or before
    its start ends at the start of the next one; the last one at its own start.
    """
    cues, at = [], 0.0
    for cue in captions:
        start = at if cue.start is None else cue.start
        cues.append(cue._replace(start=start))
        at = max(start, cue.end or 0.0)
    cues.sort(key=lambda cue: cue.start or 0.0)
    ordered = []
    for cue, following in zip_longest(cues, cues[1:]):
        start, end = cue.start or 0.0, cue.end
        if end is None or end < start:
            end = max(start, (following and following.start) or 0.0)
        ordered.append(cue._replace(end=end))
    return ordered


def _drop_repeats(cues: Sequence[Caption]) -> Iterator[Caption]:
    """Yield cues without the lines, up to three, that roll-up captions repeat.

    A cue that only repeats lengthens the one that it repeats.
    """
    pending: Caption | None = None
    shown: tuple[str, ...] = ()
    until = 0.0
    for cue in cues:
        start, end = cue.start or 0.0, cue.end or 0.0
        is_next = pending and start - until <= 0.25 and cue.speaker == pending.speaker
        sizes = range(min(3, len(shown), len(cue.lines)), 0, -1) if is_next else ()
        repeated = next((size for size in sizes if shown[-size:] == cue.lines[:size]), 0)
        shown, until = cue.lines, max(until, end)
        rest = cue._replace(lines=cue.lines[repeated:], numbers=cue.numbers[repeated:])
        if pending and not rest.lines:
            pending = pending._replace(end=max(pending.end or 0.0, end))
            continue
        if pending:
            yield pending
        pending = rest
    if pending:
        yield pending
