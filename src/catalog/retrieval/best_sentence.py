"""Which sentence of a passage answers a query best, without a look at all of them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from catalog.core.documents import Chunk
from catalog.ingest.chunking.boundaries import END_MARK, Line, sentence_spans, sentence_starts
from catalog.retrieval.query_words import Match, QueryWords

_PLAIN_WORD = re.compile(r"\w+")
_MARKUP = 20  # characters that a heading's line may have beyond its title


class BestSentence:
    """The sentence of a passage that ranks best, or a line's part of one over ``max_chars``.

    ``span`` is where it stands and ``matches`` are those in it. Without any match it is the first
    sentence that is no heading. One that is ``chosen`` already is taken. ``lines`` are the
    passage's lines that are not blank.
    """

    def __init__(
        self,
        chunk: Chunk,
        lines: Sequence[Line],
        words: QueryWords,
        matches: Sequence[Match],
        max_chars: int,
        chosen: tuple[int, int] | None = None,
    ) -> None:
        self._text, self._lines, self._words = chunk.text, lines, words
        self._all_matches, self._max_chars = matches, max_chars
        self._match_starts = [match.start for match in matches]
        self._line_starts = [line.start for line in lines]
        titles = (*chunk.heading_path, *chunk.sections)
        self._titles = {tuple(_PLAIN_WORD.findall(title)) for title in titles} | {()}
        self._longest_heading = max(map(len, titles), default=0) + _MARKUP
        if all(map(self._is_heading, range(len(lines)))):
            self._longest_heading = -1
        self._rank = (0, 0, 0)
        self.span = (0, 0)
        self.matches: Sequence[Match] = ()
        if chosen is None:
            self._find()
        else:
            self.span = chosen
            first, last = (bisect_left(self._match_starts, offset) for offset in chosen)
            self.matches = matches[first:last]

    def lines_of(self, start: int, end: int) -> tuple[int, int]:
        """Return the numbers of the first and the last line of ``[start, end)``."""
        return self._line_at(start), bisect_left(self._line_starts, end) - 1

    def _find(self) -> None:
        """Find the best sentence: the most promising block first, so that most need no look.

        Sentences are told apart only where the matches between could outrank the best so far: the
        rank of a part is never above that of the whole.
        """
        blocks = sorted(self._blocks(), key=itemgetter(0), reverse=True)
        for bound, low, high, first, last in blocks:
            rank = self._rank
            if self.matches and low < bisect_left(self._match_starts, self.span[0]):
                self._rank = (*rank[:2], rank[2] - 1)  # of two alike, the first in the text wins
            if bound <= self._rank or not self._search_block(first, last, low, high):
                self._rank = rank
        if not self.matches:
            number = next(n for n in range(len(self._lines)) if not self._is_heading(n))
            first, last = self._block_around(number)
            stop = self._lines[last].end
            sentence = next(sentence_spans(self._text, self._line_starts[first], stop))
            self.span = self._pieces(*sentence)[0]

    def _blocks(self) -> Iterator[tuple[tuple[int, int, int], int, int, int, int]]:
        """List blocks that have matches: their rank, the matches' numbers, the lines' numbers."""
        starts, lines = self._match_starts, self._lines
        low = 0
        while low < len(starts):
            number = self._line_at(starts[low])
            if self._is_heading(number):
                low = bisect_left(starts, lines[number].end, low)
                continue
            first, last = self._block_around(number)
            high = bisect_left(starts, lines[last].end, low)
            yield self._words.rank(self._all_matches[low:high]), low, high, first, last
            low = high

    def _line_at(self, offset: int) -> int:
        return bisect_right(self._line_starts, offset) - 1

    def _is_heading(self, number: int) -> bool:
        """Return whether a line says no more than a heading; never if all are such lines."""
        start, end, _ = self._lines[number]
        if end - start > self._longest_heading:
            return False
        return tuple(_PLAIN_WORD.findall(self._text, start, end)) in self._titles

    def _block_around(self, number: int) -> tuple[int, int]:
        """Return the first and last line around one, up to a blank or a heading line."""
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

    def _search_block(self, first: int, last: int, low: int, high: int) -> bool:
        """Rank the sentences of a block; return whether one is the best so far.

        Its matches are those from ``low`` to ``high``. ``low`` moves on to the first match of a
        sentence, which ends at ``after``; ``begin`` is where that one or one before it begins.
        """
        text, starts = self._text, self._match_starts
        begin = after = self._line_starts[first]
        stop = self._lines[last].end
        is_better = False
        while (needed := self._match_needed(low, high)) is not None:
            if after <= starts[low]:
                after = _next_sentence(text, starts[low], stop)
            if starts[needed] < after:
                for piece in self._pieces(*_sentence_at(text, starts[low], begin, after)):
                    is_better |= self._offer(*piece)
                low, begin = bisect_left(starts, after, low, high), after
            while after <= starts[needed]:
                low, begin = bisect_left(starts, after, low, high), after
                after = _next_sentence(text, starts[low], stop)
        return is_better

    def _match_needed(self, low: int, high: int) -> int | None:
        """Return the match with which those from ``low`` on outrank the best, if any does."""
        rank_of, best = self._words.rank_of, self._rank
        tokens, rank = 0, (0, 0)
        for number in range(low, high):
            bits = self._all_matches[number].tokens
            if bits & ~tokens:
                tokens |= bits
                rank = rank_of(tokens, 0)[:2]
            if (*rank, number - low + 1) > best:
                return number
        return None

    def _pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return a sentence, or its part of each line if they are too long together."""
        first, last = self.lines_of(start, end)
        lines = self._lines[first : last + 1]
        if lines[-1].end - lines[0].start <= self._max_chars:
            return [(start, end)]
        return [(max(start, line.start), min(end, line.end)) for line in lines]

    def _offer(self, start: int, end: int) -> bool:
        """Keep a piece if it ranks best so far, and return whether it does."""
        starts = self._match_starts
        matches = self._all_matches[bisect_left(starts, start) : bisect_left(starts, end)]
        rank = self._words.rank(matches)
        if rank <= self._rank:
            return False
        self._rank, self.span, self.matches = rank, (start, end), matches
        return True


def _sentence_at(text: str, offset: int, begin: int, after: int) -> tuple[int, int]:
    """Return the last sentence from ``begin`` that holds an offset; the next is at ``after``."""
    while (following := _next_sentence(text, begin, offset + 1)) <= offset:
        begin = following
    sentence = text[begin:after].rstrip()
    return begin + len(sentence) - len(sentence.lstrip()), begin + len(sentence)


def _next_sentence(text: str, start: int, stop: int) -> int:
    """Return where the first sentence after ``start`` begins; ``stop`` if none does."""
    mark = END_MARK.search(text, start, stop)
    return stop if mark is None else next(sentence_starts(text, mark.start(), stop), stop)
