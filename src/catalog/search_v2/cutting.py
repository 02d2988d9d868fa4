"""Cutting a part out of a line that is too long to show."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from catalog.ingest.chunking.lines import Line
from catalog.search_v2.query_words import Match, QueryWords

_LONGEST_STEP = 64  # how far a cut moves to reach the end of a word


def cut_line(
    text: str,
    line: Line,
    sentence: tuple[int, int],
    matches: Sequence[Match],
    words: QueryWords,
    max_chars: int,
) -> tuple[int, int]:
    """The offsets of at most ``max_chars`` of a longer line, around a sentence of it.

    Of a longer sentence, around its ``matches`` that rank best together; its head if it has none.
    """
    low, high = sentence
    begin = low
    if high - low > max_chars:
        low, high = _densest(matches, low, words, max_chars)
        begin = max(begin, low - (max_chars - (high - low)) // 3)
    start = max(line.start, min(begin, line.end - max_chars))
    if start > line.start:
        start = _break_among(text, range(start, low + 1))
    end = min(line.end, start + max_chars)
    if end < line.end:
        least = max(high, start + max_chars // 2)  # rather half a word than next to nothing
        end = _break_among(text, range(end, least - 1, -1))
    shown = text[start:end]
    return start + len(shown) - len(shown.lstrip()), start + len(shown.rstrip())


def _densest(
    matches: Sequence[Match], start: int, words: QueryWords, max_chars: int
) -> tuple[int, int]:
    """The run of matches within ``max_chars`` that ranks best; the head if there is none."""
    best, best_rank = (start, start), (0, 0, 0)
    last = 0
    for first, match in enumerate(matches):
        while last < len(matches) and matches[last].end - match.start <= max_chars:
            last += 1
        rank = words.rank(matches[first:last])
        if rank > best_rank:
            best, best_rank = (match.start, matches[last - 1].end), rank
    return best


def _break_among(text: str, offsets: range) -> int:
    """The first offset at white space, or else between words, or else between characters.

    The first two are looked for no further than a long word.
    """
    near = offsets[:_LONGEST_STEP]
    for parted in (_is_at_space, _is_between_words):
        found = next((at for at in near if parted(text, at)), None)
        if found is not None:
            return found
    return next((at for at in near if not _is_joined(text, at)), offsets[0])


def _is_at_space(text: str, at: int) -> bool:
    return text[at - 1].isspace() or text[at].isspace()


def _is_between_words(text: str, at: int) -> bool:
    return not (_is_of_word(text[at - 1]) and _is_of_word(text[at]))


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"


def _is_joined(text: str, at: int) -> bool:
    """Whether a cut would part a character from its marks."""
    return unicodedata.category(text[at])[0] == "M" or "\u200d" in (text[at - 1], text[at])
