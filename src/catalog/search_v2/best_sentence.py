"""Which sentence of a passage answers a query best, without a look at all of them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from catalog.core.documents import Chunk
from catalog.ingest.chunking.boundaries import END_MARK, Line, sentence_spans, sentence_starts
from catalog.search_v2.query_words import Match, QueryWords

_PLAIN_WORD = re.compile(r"\w+")
_MARKUP = 20  # characters that a heading's line may have beyond its title


class BestSentence:
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
        """Set ``span``, and ``inside`` to its matches: without any, the first sentence.

        The most promising block comes first, so that most of the others need no look.
        """
        blocks = sorted(self._blocks(), key=itemgetter(0), reverse=True)
        for bound, low, high, first, last in blocks:
            rank = self._rank
            if self.inside and low < bisect_left(self._at, self.span[0]):
                self._rank = (*rank[:2], rank[2] - 1)  # of two alike, the first in the text wins
            if bound <= self._rank or not self._look_in_block(first, last, low, high):
                self._rank = rank
        if not self.inside:
            number = next(n for n in range(len(self._lines)) if not self._is_heading(n))
            first, last = self._block(number)
            stop = self._lines[last].end
            self.span = self._shown(*next(sentence_spans(self._text, self._starts[first], stop)))[0]

    def _blocks(self) -> Iterator[tuple[tuple[int, int, int], int, int, int, int]]:
        """The blocks that have matches: their rank, the matches' numbers, the lines' numbers."""
        at, lines = self._at, self._lines
        low = 0
        while low < len(at):
            number = self._line_of(at[low])
            if self._is_heading(number):
                low = bisect_left(at, lines[number].end, low)
                continue
            first, last = self._block(number)
            high = bisect_left(at, lines[last].end, low)
            yield self._words.rank(self._matches[low:high]), low, high, first, last
            low = high

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

    def _look_in_block(self, first: int, last: int, low: int, high: int) -> bool:
        """Rank the sentences of a block, whose matches are those from ``low`` to ``high``.

        ``low`` moves on to the first match of a sentence, which ends at ``after``; ``begin`` is
        where that one or one before it begins.
        """
        text, at = self._text, self._at
        begin = after = self._starts[first]
        stop = self._lines[last].end
        is_better = False
        while (needed := self._needed(low, high)) is not None:
            if after <= at[low]:
                after = _next_sentence(text, at[low], stop)
            if at[needed] < after:
                for part in self._shown(*_sentence_at(text, at[low], begin, after)):
                    is_better |= self._offer(*part)
                low, begin = bisect_left(at, after, low, high), after
            while after <= at[needed]:
                low, begin = bisect_left(at, after, low, high), after
                after = _next_sentence(text, at[low], stop)
        return is_better

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

    def _offer(self, start: int, end: int) -> bool:
        """Whether a piece ranks best so far; if so, keep it."""
        found = self._matches[bisect_left(self._at, start) : bisect_left(self._at, end)]
        rank = self._words.rank(found)
        if rank <= self._rank:
            return False
        self._rank, self.span, self.inside = rank, (start, end), found
        return True


def _sentence_at(text: str, offset: int, begin: int, after: int) -> tuple[int, int]:
    """The last of the sentences from ``begin`` that holds an offset; the next is at ``after``."""
    while (following := _next_sentence(text, begin, offset + 1)) <= offset:
        begin = following
    sentence = text[begin:after].rstrip()
    return begin + len(sentence) - len(sentence.lstrip()), begin + len(sentence)


def _next_sentence(text: str, start: int, stop: int) -> int:
    """Where the first sentence after ``start`` begins; ``stop`` if none does."""
    mark = END_MARK.search(text, start, stop)
    return stop if mark is None else next(sentence_starts(text, mark.start(), stop), stop)
