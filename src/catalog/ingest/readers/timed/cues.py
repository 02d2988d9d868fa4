"""Speakers and cues, the parts of every transcript, and the notations of times.

A clock is ``00:01:12`` or ``01:12``, also with ``.500`` or ``,500``; with three fields also
``0:0:3.5``. Its first field has up to three digits. The last one of ``00:01:12:15`` counts frames
and is dropped.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

from catalog.core.documents import Modality, Segment
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable

MAX_SECONDS = 1000 * 3600.0  # what claims to lie later in a recording than this is no time
# A clock inside a larger pattern, which is to be compiled with re.ASCII.
CODE = r"\d{1,3}:\d{1,2}(?::\d{1,2}(?:[:;]\d\d)?)?(?:[.,]\d{1,9})?"
_CLOCK = re.compile(
    r"(?a)(?:(\d{1,3}):([0-5]?\d):([0-5]?\d)(?:[:;]\d\d)?|(\d{1,3}):([0-5]\d))(?:[.,](\d{1,9}))?"
)
_SECONDS = re.compile(r"\d{1,7}(?:[.,]\d{1,9})?", re.ASCII)


def parse_timecode(text: str, *, bare_seconds: bool = False) -> float | None:
    """Return the seconds of a clock, with ``bare_seconds`` also of a plain number, or ``None``."""
    code = text.strip()
    if bare_seconds and _SECONDS.fullmatch(code):
        return valid_seconds(code.replace(",", "."))
    if (match := _CLOCK.fullmatch(code)) is None:
        return None
    hours, minutes, seconds = match[1] or 0, match[2] or match[4], match[3] or match[5]
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{match[6] or 0}")


def valid_seconds(value: object, limit: float = MAX_SECONDS) -> float | None:
    """Return a number (or its digits) of seconds from 0 to under 1000 hours; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 30:
        return None
    with suppress(ValueError):
        return seconds if 0 <= (seconds := float(value)) < limit else None
    return None


_PREFIX = re.compile(
    r"(?:>{2,3} ?|[-–—>] )?(?P<bold>\*\*)?(?P<name>[^\W_][^*:：;,!?<>\[\](){}\n]{0,47}?)"
    r"(?(bold)(?:[:：]\*\*|\*\*[:：])(?:\s|$)|(?: ?[(（][^()（）\n]{1,24}[)）])?(?: ?:(?:\s|$)|：))"
)
_CHANGE = re.compile(r">{2,3}|[-–—][ ]?\w")
_NUMBERED = re.compile(r"(?i)(?:speaker|spk|voice|person|participant|sprecher(?:in)?)[ _-]?\w{1,3}")
_ROLLING = 0.25  # seconds: live captions repeat a line in the next cue, which follows at once
_PARTICLES = "van von der den de da di del la le bin al of the"
_NOT_NAMES = """
    note warning caution example question answer step chapter part section hint tip summary remark
    figure table theorem proof definition lemma error info debug todo update http important result
    problem solution source edit p so first second third"""


def is_name(text: str) -> bool:
    """Return whether the text looks like a person's name or role, in at most five words."""
    words = text.split()
    if not 1 <= len(words) <= 5 or words[0].casefold().rstrip(".s") in _NOT_NAMES.split():
        return False
    # A capital, or a letter of a script that has none (田); a digit only from the second word on.
    firsts = [word[0] for word in words if word.casefold() not in _PARTICLES.split()]
    are_names = all(one.isdigit() or (one.isalpha() and not one.islower()) for one in firsts)
    is_one = are_names and text[0] in firsts[:1] and not text[0].isdigit()
    return is_one or _NUMBERED.fullmatch(text) is not None


def find_speakers(texts: Sequence[str]) -> list[str | None]:
    """Return the speaker of each cue, from the names with which cues begin.

    A name in capitals, in bold or with a number (``SPEAKER_01``) counts at once, any other if two
    cues begin with it, or three of four cues with a name: a single "Look: …" is no speaker. It
    applies to the following cues until another name, ``>>`` or a dialogue dash marks a change.
    """
    found = [_PREFIX.match(text) for text in texts]
    names = [it["name"].strip() if it and is_name(it["name"].strip()) else "" for it in found]
    counts = Counter(filter(None, names))
    known = {name for it, name in zip(found, names, strict=True) if name and it and it["bold"]}
    known |= {name for name, count in counts.items() if count > 1 or _NUMBERED.fullmatch(name)}
    known |= {name for name in counts if name.isupper() and len(name) > 1 and "_" not in name}
    if known and counts.total() >= 0.75 * len(texts):
        known = set(counts)
    current: str | None = None
    speakers: list[str | None] = []
    for text, name in zip(texts, names, strict=True):
        if name or _CHANGE.match(text):
            current = name if name in known else None
        speakers.append(current)
    return speakers


class Caption(NamedTuple):
    """One cue as in the file: its lines without markup, the numbers of these, and its seconds."""

    lines: tuple[str, ...]
    start: float | None = None
    end: float | None = None
    speaker: str | None = None
    numbers: tuple[int, ...] = ()


def build_transcript(
    captions: Sequence[Caption], file_type: str | None
) -> tuple[str, tuple[Segment, ...], Places]:
    """Return a text with one line for each cue, in order of time, with segments and places.

    Places are lines of the file, or times. A speaker's name comes before each turn that lacks it.
    """
    cues = _in_order(captions)
    words = [storable(" ".join(cue.lines)) for cue in cues]
    is_told = any(cue.speaker for cue in cues)
    names = [cue.speaker for cue in cues] if is_told else find_speakers(words)
    modality: Modality = "audio_transcript" if file_type == "audio" else "video_transcript"
    texts, segments, at, before = list[str](), list[Segment](), 0, None
    places = PlacesBuilder("line" if any(cue.numbers for cue in cues) else "time")
    for cue, spoken, name in zip(cues, words, names, strict=True):
        is_turn = is_told and name and name != before and not spoken.startswith(f"{name}:")
        begin, lead, before = at, f"{name}: " if is_turn else "", name
        for line, number in zip(cue.lines, cue.numbers, strict=False):
            places.add(begin, number)
            begin += len(line) + 1 + (len(lead) if begin == at else 0)
        texts.append(lead + spoken)
        end = at + len(texts[-1])
        segments.append(Segment(at, end, modality, cue.start, cue.end, name))
        at = end + 1
    return "\n".join(texts), tuple(segments), places.places()


def _in_order(captions: Sequence[Caption]) -> list[Caption]:
    """Return the cues in order, all with times, without lines that roll-up captions repeat."""
    timed, until = list[tuple[float, Caption]](), 0.0
    for cue in captions:
        start = until if cue.start is None else cue.start
        timed.append((start, cue))
        until = max(start, cue.end or 0.0)
    timed.sort(key=itemgetter(0))
    kept, shown, until = list[Caption](), tuple[str, ...](), 0.0
    for (start, cue), (following, _) in zip(timed, timed[1:] + timed[-1:], strict=True):
        end = following if cue.end is None or cue.end < start else cue.end
        is_next = kept and start - until <= _ROLLING and cue.speaker == kept[-1].speaker
        repeated = max((n for n in (1, 2, 3) if is_next and shown[-n:] == cue.lines[:n]), default=0)
        lines, shown, until = cue.lines[repeated:], cue.lines, max(until, end)
        if lines:
            kept.append(Caption(lines, start, end, cue.speaker, cue.numbers[repeated:]))
        else:
            kept[-1] = kept[-1]._replace(end=max(kept[-1].end or 0.0, end))
    return kept
