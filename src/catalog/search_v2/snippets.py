"""The part of a passage to show: whole lines around the sentence that answers best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.core.models import Chunk
from catalog.ingest.chunking.lines import Line, iter_lines
from catalog.search_v2.best_sentence import BestSentence
from catalog.search_v2.cutting import cut_line
from catalog.search_v2.query_words import Match, QueryWords, query_words


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
    best = BestSentence(chunk, lines, words, matches, max_chars)
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
