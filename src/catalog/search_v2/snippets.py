"""The part of a passage to show: whole lines around the sentence that answers best."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from catalog.core.models import Chunk
from catalog.ingest.chunking.lines import Line, LineIndex, iter_lines
from catalog.ingest.chunking.sentences import sentence_spans
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """``text[start:end]``, a sentence or a line's part of one, and the lines it stands in."""

    start: int
    end: int
    first: int
    last: int


def snippet_of(chunk: Chunk, query: str, max_chars: int) -> Snippet:
    """The run of whole lines, at most ``max_chars`` long, around the best sentence.

    Best is the sentence with most different words of the query (by their analysed tokens), then
    with most of their parts, then with most occurrences, then the first; lines that only repeat
    the passage's heading are no candidates. A longer line is cut around its best sentence. A
    passage that fits is given whole, without the blank lines around it.
    """
    words = query_words(query)
    matches = words.matches(chunk.text)
    start, end = _bounds(chunk, words, matches, max_chars)
    first = last = chunk.locator.line_start
    if first is not None:
        lines = LineIndex(chunk.text[:end])
        last = first + lines.line_of(max(start, end - 1)) - 1
        first += lines.line_of(start) - 1
    shown = (match for match in matches if match.start >= start and match.end <= end)
    marked = tuple((match.start - start, match.end - start) for match in shown)
    return Snippet(chunk.text[start:end], first, last, marked)


def _bounds(
    chunk: Chunk, words: QueryWords, matches: Sequence[Match], max_chars: int
) -> tuple[int, int]:
    text = chunk.text
    lines = [line for line in iter_lines(text) if text[line.start : line.end].strip()]
    if not lines:
        return 0, 0
    if lines[-1].end - lines[0].start <= max_chars:
        return lines[0].start, lines[-1].end
    at = [match.start for match in matches]
    pieces = _pieces(text, lines, _headings(chunk, lines), at, max_chars)
    best, best_rank = next(pieces), (0, 0, 0)
    inside: Sequence[Match] = ()
    for piece in chain([best], pieces) if matches else ():
        found = matches[bisect_left(at, piece.start) : bisect_left(at, piece.end)]
        rank = words.rank(found) if found else best_rank
        if rank > best_rank:
            best, best_rank, inside = piece, rank, found
    if lines[best.last].end - lines[best.first].start <= max_chars:
        return _grown(lines, best, max_chars)
    line, sentence = lines[best.first], (best.start, best.end)
    return cut_line(text, line, sentence, inside, words, max_chars)


def _headings(chunk: Chunk, lines: Sequence[Line]) -> set[int]:
    """The lines that say no more than the heading path, or nothing; none if all are such lines."""
    titles = {tuple(_PLAIN_WORD.findall(title)) for title in chunk.heading_path} | {()}
    longest = max(map(len, chunk.heading_path), default=0) + _MARKUP
    found = {
        number
        for number, line in enumerate(lines)
        if line.end - line.start <= longest
        and tuple(_PLAIN_WORD.findall(chunk.text, line.start, line.end)) in titles
    }
    return found if len(found) < len(lines) else set()


def _pieces(
    text: str,
    lines: Sequence[Line],
    skipped: set[int],
    matches: Sequence[int],
    max_chars: int,
) -> Iterator[_Piece]:
    """The sentences of the first paragraph and of those where a match starts.

    One whose lines are too long together comes line by line.
    """
    starts = [line.start for line in lines]
    for number, block in enumerate(_blocks(lines, skipped)):
        begin, stop = starts[block[0]], lines[block[-1]].end
        if number > 0 and bisect_left(matches, begin) == bisect_left(matches, stop):
            continue
        for start, end in sentence_spans(text, begin, stop):
            first, last = bisect_right(starts, start) - 1, bisect_left(starts, end) - 1
            if lines[last].end - lines[first].start <= max_chars:
                yield _Piece(start, end, first, last)
                continue
            for at in range(first, last + 1):
                yield _Piece(max(start, starts[at]), min(end, lines[at].end), at, at)


def _blocks(lines: Sequence[Line], skipped: set[int]) -> Iterator[list[int]]:
    """Runs of line numbers with no blank or skipped line between them."""
    block: list[int] = []
    for number, line in enumerate(lines):
        if block and (number in skipped or lines[block[-1]].next != line.start):
            yield block
            block = []
        if number not in skipped:
            block.append(number)
    if block:
        yield block


def _grown(lines: Sequence[Line], piece: _Piece, max_chars: int) -> tuple[int, int]:
    """The piece's lines, and in turn one before and one after as long as they fit."""
    first, last = piece.first, piece.last
    grew = True
    while grew:
        grew = False
        if first > 0 and lines[last].end - lines[first - 1].start <= max_chars:
            first, grew = first - 1, True
        if last + 1 < len(lines) and lines[last + 1].end - lines[first].start <= max_chars:
            last, grew = last + 1, True
    return lines[first].start, lines[last].end
