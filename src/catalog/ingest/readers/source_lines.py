"""Find the source lines of words from an HTML parser that reports no line numbers.

Both sides are read in order: the words of the parser, and those between the tags of the source.
They are equal except in broken HTML. A word that does not follow is searched among the next few
thousand, and accepted if the following words agree; otherwise it gets the line of the previous
word. Time is linear in the source.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import eq

RAW_TEXT = frozenset(["script", "style"])
"""Elements whose text is none to read, and may hold what looks like tags."""
_ATTRIBUTES = r"""(?:[^<>"'=]++|=\s*+"[^"]*+"|=\s*+'[^']*+'|["'=])*+"""
_BREAK = re.compile(r"\r\n?|\n")
_MARKUP = re.compile(
    r"""<!--(?:(?!-->).)*+(?:-->|\Z)"""
    rf"""|<({"|".join(sorted(RAW_TEXT))})\b{_ATTRIBUTES}>(?:(?!</\1).)*+"""
    rf"""|<[a-z/]{_ATTRIBUTES}>?"""
    r"""|<[!?][^<>]*+>?""",
    re.IGNORECASE | re.DOTALL,
)
_NEAR = 8
_FAR = 2000
"""Words of the source that may be passed over."""
_AGREEING = 2
"""Words after the one sought that must agree where it is far; one of them where it is near."""
_TRIED = 16
"""Places of a word that are tried, so that the time is linear."""


class SourceLines:
    """Find the lines of words in ``source``, in the order in which they are asked for."""

    def __init__(self, source: str) -> None:
        self._rest = _words(source)
        self._ahead: list[tuple[str, int]] = []
        self._places: dict[str, list[int]] = {}
        self._at = 0
        self._line = 1

    def lines_of(self, words: Sequence[str]) -> list[int]:
        """Return the line, from 1, of each of the next words."""
        lines = []
        for number, word in enumerate(words):
            place = self._find(word, words[number + 1 : number + 1 + _AGREEING])
            if place is not None:
                self._line = self._ahead[place][1]
                self._at = place + 1
            lines.append(self._line)
        return lines

    def _find(self, word: str, following: Sequence[str]) -> int | None:
        """Return the position of the word among those ahead, ``None`` if it is not there."""
        if len(self._ahead) - self._at <= _FAR:
            self._read_on()
        if self._at < len(self._ahead) and self._ahead[self._at][0] == word:
            return self._at
        places = self._places.get(word, ())
        first = bisect_left(places, self._at)
        for place in places[first : first + _TRIED]:
            after = (ahead for ahead, _ in self._ahead[place + 1 : place + 1 + _AGREEING])
            agreeing = sum(map(eq, after, following))
            is_near = place - self._at <= _NEAR
            if agreeing >= (min(1, len(following)) if is_near else _AGREEING):
                return place
        return None

    def _read_on(self) -> None:
        more = list(islice(self._rest, 4 * _FAR))
        if more:
            self._ahead = self._ahead[self._at :] + more
            self._at = 0
            self._places = {}
            for place, (word, _) in enumerate(self._ahead):
                self._places.setdefault(word, []).append(place)


def _words(source: str) -> Iterator[tuple[str, int]]:
    """Yield the words between the tags, with their lines."""
    line, at = 1, 0
    for markup in _MARKUP.finditer(source):
        yield from _words_of(source[at : markup.start()], line)
        line += count_breaks(source[at : markup.end()])
        at = markup.end()
    yield from _words_of(source[at:], line)


def _words_of(text: str, line: int) -> Iterator[tuple[str, int]]:
    for number, part in enumerate(_BREAK.split(text) if text else (), start=line):
        for word in (html.unescape(part) if "&" in part else part).split():
            yield word, number


def count_breaks(text: str) -> int:
    r"""Count the line ends; ``\r\n`` counts once."""
    return text.count("\n") + (text.count("\r") - text.count("\r\n") if "\r" in text else 0)
