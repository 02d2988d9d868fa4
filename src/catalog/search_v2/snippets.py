"""The part of a passage to show: whole lines around the sentence that answers best."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from catalog.core.models import Chunk
from catalog.ingest.chunking.lines import Line, iter_lines
from catalog.ingest.chunking.sentences import sentence_spans, sentence_starts
from catalog.search_v2.cutting import cut_line
from catalog.search_v2.query_words import Match, QueryWords, query_words

_PLAIN_WORD = re.compile(r"\w+")
_MARKUP = 20  # characters that a heading's line may have beyond its title


@dataclass(frozen=True, slots=True)
class Snippet:
    """A verbatim part of a passage.

    ``line_start`` and ``line_end`` are lines of the document, from 1, both included, and ``None``
    where the passage has none. ``matches`` are the ``[start, end)`` of query words in ``text``.
    """

    text: str
    line_start: int | None
    line_end: int | None
    matches: tuple[tuple[int, int], ...]


def snippet_of(chunk: Chunk, query: str, max_chars: int) -> Snippet:
    """The run of whole lines, at most ``max_chars`` long, around the best sentence.

    Best is the sentence with most different words of the query (by their analysed tokens), then
    with most of their parts, then with most occurrences, then the first; lines that only repeat
    the passage's heading are no candidates. A longer line is cut around its best sentence. A
    passage that fits is given whole, without the blank lines around it.
    """
    text, words = chunk.text, query_words(query)
    matches = words.matches(text)
    start, end = _bounds(chunk, words, matches, max_chars)
    first = last = chunk.locator.line_start
    if first is not None:
        first += _breaks(text, 0, start)
        last = first + _breaks(text, start, end)
    marked = tuple(
        (match.start - start, match.end - start)
        for match in matches
        if match.start >= start and match.end <= end
    )
    return Snippet(text[start:end], first, last, marked)


def _breaks(text: str, start: int, end: int) -> int:
    """How many line breaks stand in a part that does not begin or end within one."""
    feeds, returns = text.count("\n", start, end), text.count("\r", start, end)
    return feeds + returns - (text.count("\r\n", start, end) if returns else 0)


def _bounds(
    chunk: Chunk, words: QueryWords, matches: Sequence[Match], max_chars: int
) -> tuple[int, int]:
    lines = _lines(chunk.text)
    if not lines:
        return 0, 0
    if lines[-1].end - lines[0].start <= max_chars:
        return lines[0].start, lines[-1].end
    best = _Best(chunk, lines, words, matches, max_chars)
    best.look()
    start, end = best.span
    first, last = best.lines_of(start, end)
    if lines[last].end - lines[first].start <= max_chars:
        return _grown(lines, first, last, max_chars)
    return cut_line(chunk.text, lines[first], best.span, best.inside, words, max_chars)


def _lines(text: str) -> list[Line]:
    """The lines that are not blank."""
    if "\r" in text:
        return [line for line in iter_lines(text) if text[line.start : line.end].strip()]
    lines = []
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        if line and not line.isspace():
            lines.append(Line(start, end, end + 1))
        start = end + 1
    return lines


class _Best:
    """Looks for the sentence of a passage that ranks best, or a line's part of a longer one.

    Sentences are told apart only where the matches between could outrank the best so far: the
    rank of a part is never above that of the whole.
    """

    def __init__(
        self,
        chunk: Chunk,
        lines: Sequence[Line],
        words: QueryWords,
        matches: Sequence[Match],
        max_chars: int,
    ) -> None:
        self._text, self._lines, self._words = chunk.text, lines, words
        self._matches, self._max_chars = matches, max_chars
        self._at = [match.start for match in matches]
        self._starts = [line.start for line in lines]
        self._titles = {tuple(_PLAIN_WORD.findall(title)) for title in chunk.heading_path} | {()}
        self._longest = max(map(len, chunk.heading_path), default=0) + _MARKUP
        if all(map(self._is_heading, range(len(lines)))):
            self._longest = -1
        self._rank = (0, 0, 0)
        self.span = (0, 0)
        self.inside: Sequence[Match] = ()

    def look(self) -> None:
        """Set ``span``, and ``inside`` to its matches: without any, the first sentence."""
        low = 0
        while low < len(self._at):
            number = self._line_of(self._at[low])
            if self._is_heading(number):
                low = bisect_left(self._at, self._lines[number].end, low)
                continue
            first, last = self._block(number)
            high = bisect_left(self._at, self._lines[last].end, low)
            self._look_in_block(first, last, low, high)
            low = high
        if not self.inside:
            number = next(n for n in range(len(self._lines)) if not self._is_heading(n))
            first, last = self._block(number)
            stop = self._lines[last].end
            self.span = self._shown(*next(sentence_spans(self._text, self._starts[first], stop)))[0]

    def lines_of(self, start: int, end: int) -> tuple[int, int]:
        """The numbers of the first and the last line of ``[start, end)``."""
        return self._line_of(start), bisect_left(self._starts, end) - 1

    def _line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def _is_heading(self, number: int) -> bool:
        """Whether a line says no more than a heading, or nothing; never if all are such lines."""
        start, end, _ = self._lines[number]
        if end - start > self._longest:
            return False
        return tuple(_PLAIN_WORD.findall(self._text, start, end)) in self._titles

    def _block(self, number: int) -> tuple[int, int]:
        """The first and last of the lines around one with no blank or heading line between."""
        lines = self._lines
        first = last = number
        while first and lines[first - 1].next == lines[first].start:
            if self._is_heading(first - 1):
                break
            first -= 1
        while last + 1 < len(lines) and lines[last].next == lines[last + 1].start:
            if self._is_heading(last + 1):
                break
            last += 1
        return first, last

    def _look_in_block(self, first: int, last: int, low: int, high: int) -> None:
        """Rank the sentences of a block, whose matches are those from ``low`` to ``high``.

        ``low`` moves on to the first match of a sentence; ``begin`` is where that one or one
        before it begins.
        """
        text, at = self._text, self._at
        begin, stop = self._starts[first], self._lines[last].end
        while (needed := self._needed(low, high)) is not None:
            hint = text.rfind(". ", at[low], at[needed])
            after = next(sentence_starts(text, hint, at[needed] + 1), stop) if hint >= 0 else stop
            if after == stop:
                after = next(sentence_starts(text, at[low], stop), stop)
            if after > at[needed]:
                *_, sentence = sentence_spans(text, begin, after)
                for start, end in self._shown(*sentence):
                    self._offer(start, end)
            low, begin = bisect_left(at, after, low, high), after

    def _needed(self, low: int, high: int) -> int | None:
        """The match with which those from ``low`` on outrank the best; ``None`` if none does."""
        rank_of, best = self._words.rank_of, self._rank
        tokens, rank = 0, (0, 0)
        for number in range(low, high):
            bits = self._matches[number].tokens
            if bits & ~tokens:
                tokens |= bits
                rank = rank_of(tokens, 0)[:2]
            if (*rank, number - low + 1) > best:
                return number
        return None

    def _shown(self, start: int, end: int) -> list[tuple[int, int]]:
        """A sentence, or its part of each line if they are too long together."""
        first, last = self.lines_of(start, end)
        lines = self._lines[first : last + 1]
        if lines[-1].end - lines[0].start <= self._max_chars:
            return [(start, end)]
        return [(max(start, line.start), min(end, line.end)) for line in lines]

    def _offer(self, start: int, end: int) -> None:
        found = self._matches[bisect_left(self._at, start) : bisect_left(self._at, end)]
        rank = self._words.rank(found)
        if rank > self._rank:
            self._rank, self.span, self.inside = rank, (start, end), found


def _grown(lines: Sequence[Line], first: int, last: int, max_chars: int) -> tuple[int, int]:
    """Those lines, and in turn one before and one after as long as they fit."""
    grew = True
    while grew:
        grew = False
        if first > 0 and lines[last].end - lines[first - 1].start <= max_chars:
            first, grew = first - 1, True
        if last + 1 < len(lines) and lines[last + 1].end - lines[first].start <= max_chars:
            last, grew = last + 1, True
    return lines[first].start, lines[last].end
