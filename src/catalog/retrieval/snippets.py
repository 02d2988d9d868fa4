"""Find the part of a passage to show: whole lines around the best sentence."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from catalog.core.documents import Chunk, Cue, Locator, locate
from catalog.core.query import ParsedQuery
from catalog.ingest.chunking.boundaries import (
    END_MARK,
    Line,
    iter_lines,
    sentence_spans,
    sentence_starts,
)
from catalog.retrieval.query_words import (
    Match,
    QueryWords,
    find_phrase,
    language_of_words,
    query_words,
    unite,
)

_PLAIN_WORD = re.compile(r"\w+")
_MARKUP = 20  # characters that a heading's line may have beyond its title


class BestSentence:
    """The sentence of a passage that ranks best, or a part of it if it exceeds ``max_chars``.

    ``span`` is its place and ``matches`` are those in it. Without matches it is the first sentence
    that is not a heading. A ``chosen`` sentence is used without a search. ``lines`` are the
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
        """Find the best sentence, most promising block first, so that most blocks can be skipped.

        Text is split into sentences only if its matches could outrank the best one so far: a part
        never ranks above the whole.
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
        """List blocks with matches: their rank, numbers of matches, and numbers of lines."""
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
        """Return whether a line only repeats a heading; never if all lines do."""
        start, end, _ = self._lines[number]
        if end - start > self._longest_heading:
            return False
        return tuple(_PLAIN_WORD.findall(self._text, start, end)) in self._titles

    def _block_around(self, number: int) -> tuple[int, int]:
        """Return the first and last line of the block, which ends at a blank or heading line."""
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

        Its matches are numbers ``low`` to ``high``. ``low`` moves to the first match of the next
        sentence. ``begin`` is the start of this sentence or an earlier one, ``after`` is its end.
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
        """Return the match up to which those from ``low`` on outrank the best, if any."""
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
        """Return a sentence, or if it is too long, its part of each line."""
        first, last = self.lines_of(start, end)
        lines = self._lines[first : last + 1]
        if lines[-1].end - lines[0].start <= self._max_chars:
            return [(start, end)]
        return [(max(start, line.start), min(end, line.end)) for line in lines]

    def _offer(self, start: int, end: int) -> bool:
        """Keep a piece if it ranks best so far; return whether it does."""
        starts = self._match_starts
        matches = self._all_matches[bisect_left(starts, start) : bisect_left(starts, end)]
        rank = self._words.rank(matches)
        if rank <= self._rank:
            return False
        self._rank, self.span, self.matches = rank, (start, end), matches
        return True


def _sentence_at(text: str, offset: int, begin: int, after: int) -> tuple[int, int]:
    """Return the last sentence from ``begin`` on that contains an offset; it ends at ``after``."""
    while (following := _next_sentence(text, begin, offset + 1)) <= offset:
        begin = following
    sentence = text[begin:after].rstrip()
    return begin + len(sentence) - len(sentence.lstrip()), begin + len(sentence)


def _next_sentence(text: str, start: int, stop: int) -> int:
    """Return the start of the first sentence after ``start``; ``stop`` if there is no other."""
    mark = END_MARK.search(text, start, stop)
    return stop if mark is None else next(sentence_starts(text, mark.start(), stop), stop)


_LATE_SECONDS = 10.0
_LONGEST_STEP = 64  # how far a cut moves to reach the end of a word


@dataclass(frozen=True, slots=True)
class Snippet:
    """A verbatim part of a passage.

    ``matches`` are the ``[start, end)`` of query words in ``text``. ``locator`` is the snippet's
    place: lines, pages, cells or paragraphs, and the seconds of its cues (or the passage's if it
    has no cues). ``moment`` is the second at which the best sentence begins and ``page`` the page,
    ``None`` if nothing is timed or has pages. ``best`` is the place in the passage of that
    sentence, or of the part of it that answers.
    """

    text: str
    matches: tuple[tuple[int, int], ...]
    locator: Locator
    moment: float | None = None
    page: int | None = None
    best: tuple[int, int] = (0, 0)


def find_snippet(
    chunk: Chunk, query: str, max_chars: int, best_sentence: tuple[int, int] | None = None
) -> Snippet:
    """Find the run of whole lines, at most ``max_chars`` long, around the best sentence.

    The best sentence has most distinct words of the query (by analysed tokens), then most of their
    parts, then most occurrences, then it is the first one. Lines that only repeat the passage's
    heading are skipped. A longer line is cut around its best sentence. A passage that fits is
    returned whole, without blank lines around it. ``best_sentence`` has the offsets of a reranker's
    choice, which replaces the search.
    """
    text = chunk.text
    words = query_words(query, language_of_words(text))
    matches = words.matches(text)
    start, end, best = _find_bounds(chunk, words, matches, max_chars, best_sentence)
    within = tuple(
        (match.start - start, match.end - start)
        for match in matches
        if match.start >= start and match.end <= end
    )
    page = _page_at(chunk, best[0])
    moment, best = _find_moment(chunk, best, matches)
    return Snippet(text[start:end], within, find_place(chunk, start, end), moment, page, best)


def find_query_snippet(chunk: Chunk, query: ParsedQuery, max_chars: int) -> Snippet:
    """Find a query's snippet: around its quoted phrase, or else as :func:`find_snippet` does."""
    places = (find_phrase(chunk.text, phrase) for phrase in query.phrases)
    return find_snippet(chunk, query.words, max_chars, next(filter(None, places), None))


def find_place(chunk: Chunk, start: int, end: int) -> Locator:
    """Return the place of ``chunk.text[start:end]``: its lines, pages, cells and seconds."""
    first = last = chunk.locator.line_start
    if first is not None:
        first += _count_breaks(chunk.text, 0, start)
        last = first + _count_breaks(chunk.text, start, end)
    pages = _page_at(chunk, start), _page_at(chunk, max(start, end - 1))
    known = Locator(*pages, first, last, *_find_seconds(chunk, start, end))
    shown = chunk.text[start:end]
    visible = start + len(shown) - len(shown.lstrip())  # blanks are not part of the place
    return locate(chunk.places, visible, max(end, visible + 1), known)


def _find_bounds(
    chunk: Chunk,
    words: QueryWords,
    matches: Sequence[Match],
    max_chars: int,
    chosen: tuple[int, int] | None,
) -> tuple[int, int, tuple[int, int]]:
    """Find the start and end of the snippet, and of its best sentence."""
    lines = _nonblank_lines(chunk.text)
    if not lines:
        return 0, 0, (0, 0)
    start, end = lines[0].start, lines[-1].end
    is_whole = end - start <= max_chars
    is_timed = chunk.locator.time_start is not None
    if is_whole and not is_timed and chosen is None:
        return start, end, (matches[0].start if matches else start, end)
    best = BestSentence(chunk, lines, words, matches, max_chars, chosen)
    if is_whole:
        return start, end, best.span
    start, end = best.span
    first, last = best.lines_of(start, end)
    if lines[last].end - lines[first].start <= max_chars:
        return *_grow(lines, first, last, max_chars), best.span
    cut = _cut_line(chunk.text, lines[first], best, words, max_chars)
    return *cut, (max(start, cut[0]), max(end, cut[0]))


def _nonblank_lines(text: str) -> list[Line]:
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


def _grow(lines: Sequence[Line], first: int, last: int, max_chars: int) -> tuple[int, int]:
    """Extend the lines by one before and one after, in turn, as long as they fit."""
    has_grown = True
    while has_grown:
        has_grown = False
        if first > 0 and lines[last].end - lines[first - 1].start <= max_chars:
            first, has_grown = first - 1, True
        if last + 1 < len(lines) and lines[last + 1].end - lines[first].start <= max_chars:
            last, has_grown = last + 1, True
    return lines[first].start, lines[last].end


def _cut_line(
    text: str, line: Line, best: BestSentence, words: QueryWords, max_chars: int
) -> tuple[int, int]:
    """Return the offsets of at most ``max_chars`` of a long line, around its best sentence.

    If the sentence is too long, they are around its best matches, or its head without any.
    """
    low, high = best.span
    begin = low
    if high - low > max_chars:
        low, high = _densest_run(best.matches, low, words, max_chars)
        begin = max(begin, low - (max_chars - (high - low)) // 3)
    start = max(line.start, min(begin, line.end - max_chars))
    if start > line.start:
        start = _choose_break(text, range(start, low + 1))
    end = min(line.end, start + max_chars)
    if end < line.end:
        least = max(high, start + max_chars // 2)  # half a word is better than almost nothing
        end = _choose_break(text, range(end, least - 1, -1))
    shown = text[start:end]
    return start + len(shown) - len(shown.lstrip()), start + len(shown.rstrip())


def _densest_run(
    matches: Sequence[Match], start: int, words: QueryWords, max_chars: int
) -> tuple[int, int]:
    """Return the best run of matches within ``max_chars``, or the head if there are no matches."""
    best, best_rank = (start, start), (0, 0, 0)
    counts = dict.fromkeys([match.tokens for match in matches], 0)  # from first to last
    tokens = last = 0
    for first, match in enumerate(matches):
        last = max(last, first)  # past one that is too long
        before, limit = last, match.start + max_chars
        while last < len(matches) and matches[last].end <= limit:
            added = matches[last].tokens
            counts[added] += 1
            tokens |= added
            last += 1
        if last == first:
            continue
        if last > before:  # else it is part of the run before
            rank = words.rank_of(tokens, last - first)
            if rank > best_rank:
                best, best_rank = (match.start, matches[last - 1].end), rank
        counts[match.tokens] -= 1
        if counts[match.tokens] == 0:
            tokens = unite([some for some, count in counts.items() if count > 0])
    return best


def _choose_break(text: str, offsets: range) -> int:
    """Return the first offset at white space, else between words, else between characters.

    The first two are searched no further than a long word.
    """
    near = offsets[:_LONGEST_STEP]
    for is_break in (_is_at_space, _is_between_words):
        offset = next((at for at in near if is_break(text, at)), None)
        if offset is not None:
            return offset
    return next((at for at in near if not _is_joined(text, at)), offsets[0])


def _is_at_space(text: str, at: int) -> bool:
    return text[at - 1].isspace() or text[at].isspace()


def _is_between_words(text: str, at: int) -> bool:
    return not (_is_of_word(text[at - 1]) and _is_of_word(text[at]))


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"


def _is_joined(text: str, at: int) -> bool:
    """Return whether a cut would separate a character from its marks."""
    return unicodedata.category(text[at])[0] == "M" or "\u200d" in (text[at - 1], text[at])


def _page_at(chunk: Chunk, offset: int) -> int | None:
    page = chunk.locator.page
    return None if page is None else page + bisect_right(chunk.page_breaks, offset)


def _find_moment(
    chunk: Chunk, best: tuple[int, int], matches: Sequence[Match]
) -> tuple[float | None, tuple[int, int]]:
    """Return when and where the best sentence begins, or the part of it that answers.

    Captions without punctuation are one long sentence. If the cue with most distinct words of the
    query comes more than ten seconds after the beginning, that cue is the moment.
    """
    cues = _cues_within(chunk, *best)
    if not cues:
        return chunk.locator.time_start, best
    answer = max(cues, key=lambda cue: _count_tokens(matches, cue.start, cue.end))
    is_late = answer.time_start - cues[0].time_start > _LATE_SECONDS
    if is_late:
        return answer.time_start, (max(best[0], answer.start), min(best[1], answer.end))
    return cues[0].time_start, best


def _count_tokens(matches: Sequence[Match], start: int, end: int) -> int:
    """Count the distinct tokens of the query that begin within ``[start, end)``."""
    bits = 0
    for match in matches:
        if start <= match.start < end:
            bits |= match.tokens
    return bits.bit_count()


def _find_seconds(chunk: Chunk, start: int, end: int) -> tuple[float | None, float | None]:
    cues = _cues_within(chunk, start, end)
    if not cues:
        return chunk.locator.time_start, chunk.locator.time_end
    return min(cue.time_start for cue in cues), max(cue.time_end for cue in cues)


def _cues_within(chunk: Chunk, start: int, end: int) -> list[Cue]:
    return [cue for cue in chunk.cues if cue.start < end and cue.end > start]


def _count_breaks(text: str, start: int, end: int) -> int:
    """Count the line breaks in a part that neither begins nor ends inside one."""
    feeds, returns = text.count("\n", start, end), text.count("\r", start, end)
    return feeds + returns - (text.count("\r\n", start, end) if returns else 0)
