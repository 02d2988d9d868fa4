"""Who speaks: names that stand before what is said (``ANNA: …``, ``Speaker 1: …``, ``>> …``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
