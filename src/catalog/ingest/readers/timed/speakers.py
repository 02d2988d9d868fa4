"""Who speaks: names that stand before what is said (``ANNA: …``, ``Speaker 1: …``, ``>> …``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

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
    cues after it, until another name, ``>>`` or a dialogue dash tells of a change.
    """
    found = [_named(text) for text in texts]
    often = Counter(name for name, _ in found)
    current: str | None = None
    answer: list[str | None] = []
    for text, (name, is_certain) in zip(texts, found, strict=True):
        if name is not None and (is_certain or often[name] > 1):
            current = name
        elif _CHANGE.match(text):
            current = None
        answer.append(current)
    return answer


def _named(text: str) -> tuple[str | None, bool]:
    """The name before the first colon, and whether it can be nothing else."""
    found = _PREFIX.match(text)
    if found is None:
        return None, False
    name = (found["bold"] or found["name"]).strip()
    if not name or not is_name(name):
        return None, False
    is_capitals = name.isupper() and len(name) > 1
    return name, bool(found["bold"]) or is_capitals or _NUMBERED.fullmatch(name) is not None
