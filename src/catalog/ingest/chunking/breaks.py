"""Where a text may be broken, from the best place to the worst.

Every function looks at ``(low, high]`` and answers an offset at which a new passage may start.
``high`` is the first character that does not fit any more. All of them take time linear in
the window, never in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from catalog.ingest.chunking.sentences import sentence_starts

Finder = Callable[[str, int, int], int | None]

_BLANK_LINES = re.compile(r"(?>\r\n?|\n)[^\S\r\n]*+(?>\r\n?|\n)\s*+|\f\s*+")
_LINE_START = re.compile(r"[\r\n]\s*+")
_WORD_START = re.compile(r"\s(?=\S)")
_TEXT = re.compile(r"\S")
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def skip_space(text: str, start: int, end: int) -> int:
    """The first offset in ``[start, end)`` that is not white space, or ``end``."""
    found = _TEXT.search(text, start, end)
    return end if found is None else found.start()


def trim_end(text: str, start: int, end: int) -> int:
    """``end`` moved before the white space at the end of ``text[start:end]``."""
    return start + len(text[start:end].rstrip())


def last_paragraph(text: str, low: int, high: int) -> int | None:
    """The last start of a paragraph (after a blank line or a form feed)."""
    last = None
    for found in _BLANK_LINES.finditer(text, low, high):
        last = found.end()
    return last


def last_sentence(text: str, low: int, high: int) -> int | None:
    """The last start of a sentence."""
    last = None
    for last in sentence_starts(text, low, min(high + 1, len(text))):  # noqa: B007
        pass
    return last


def last_line(text: str, low: int, high: int) -> int | None:
    """The last start of a line that is not blank."""
    at = max(text.rfind("\n", low, high), text.rfind("\r", low, high))
    return None if at < 0 else skip_space(text, at + 1, high)


def last_word(text: str, low: int, high: int) -> int | None:
    """The last start of a word."""
    window = text[low:high]
    at = high if window[-1:].isspace() else high - len(window.rsplit(None, 1)[-1])
    return at if at > low and not _is_joined(text, at) else None


def last_character(text: str, low: int, high: int) -> int:
    """``high``, or before it where that would part a character from its marks."""
    at = high
    while at > low and _is_joined(text, at):
        at -= 1
    return at if at > low else high


def overlap_starts(text: str, low: int, high: int, *, lines_first: bool) -> Iterator[int]:
    """Offsets in ``[low, high)`` where an overlap may start, best kind first, each ascending."""
    begin = max(0, low - 4)
    kinds: list[Iterator[int]] = [
        iter(sentence_starts(text, begin, high)),
        (found.end() for found in _LINE_START.finditer(text, begin, high)),
    ]
    if lines_first:
        kinds.reverse()
    kinds.append(found.end() for found in _WORD_START.finditer(text, begin, high))
    for kind in kinds:
        yield from (at for at in kind if low <= at < high and not _is_joined(text, at))
    if not any(character.isspace() for character in text[low:high]):
        # The passage before ended inside one long word: there is no better place.
        yield from (at for at in range(low, high) if not _is_joined(text, at))


def _is_joined(text: str, at: int) -> bool:
    """Whether a cut at ``at`` would part what a reader takes for one character."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if before == "\r":
        return after == "\n"
    return (
        _JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or (ord(after) > 0x2FF and unicodedata.category(after)[0] == "M")
    )
