"""Passages as searches work on them, and the part to show: lines around the best sentence."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from catalog.core.documents import Chunk, Cue, Locator, locate
from catalog.core.places import AS_IN_FILE
from catalog.core.query import SubQueryKind
from catalog.core.results import Certainty, Evidence, Recency, Reranked
from catalog.ingest.chunking.boundaries import Line, is_joined, iter_lines, sentence_spans
from catalog.retrieval.fusion import FusedHit
from catalog.retrieval.query_words import (
    Match,
    QueryWords,
    find_phrase,
    language_of_words,
    query_words,
    unite,
)
from catalog.store.document_names import document_key
from catalog.store.restriction import Restriction

_PLAIN_WORD = re.compile(r"\w+")
_MARKUP = 20  # characters that a heading's line may have beyond its title
_LATE_SECONDS = 10.0
_LONGEST_STEP = 64  # how far a cut moves to reach the end of a word


class Snippet(NamedTuple):
    """A verbatim part of a passage.

    ``matches`` are the ``[start, end)`` of query words in ``text``. ``locator`` is the snippet's
    place. ``moment`` and ``page`` are those at which the best sentence begins, ``best`` is its
    place in the passage, or that of the part of it that answers.
    """

    text: str
    matches: tuple[tuple[int, int], ...]
    locator: Locator
    moment: float | None = None
    page: int | None = None
    best: tuple[int, int] = (0, 0)


class Passage(NamedTuple):
    """A stored chunk that a search found, with its score and the parts of the score."""

    chunk: Chunk
    score: float
    fused: FusedHit
    kinds_answered: frozenset[SubQueryKind] = frozenset()
    reranked: Reranked | None = None
    relevance: float | None = None
    certainty: Certainty | None = None
    restriction: Restriction | None = None
    snippet: Snippet | None = None
    evidence: Evidence | None = None
    repeats_evidence: bool = False  # an earlier passage has the evidence already
    recency: Recency | None = None
    copies: tuple[Chunk, ...] = ()  # passages that say the same

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The passage's chunk, then those of its copies."""
        return (self.chunk, *self.copies)

    @property
    def document(self) -> str:
        """The key of its document; the files of one recording are one document."""
        return document_key(self.chunk)


def find_snippet(chunk: Chunk, query: str, max_chars: int, phrases: Sequence[str] = ()) -> Snippet:
    """Find the run of whole lines, at most ``max_chars`` long, around the best sentence.

    The best sentence is the first of the ``phrases``, or it has most distinct words of the query,
    then most of their parts, then most occurrences. A longer line is cut around it.
    """
    text = chunk.text
    words = query_words(query, language_of_words(text))
    matches = words.matches(text)
    starts = [match.start for match in matches]

    def within(span: tuple[int, int]) -> Sequence[Match]:
        return matches[bisect_left(starts, span[0]) : bisect_left(starts, span[1])]

    lines = [line for line in iter_lines(text) if text[line.start : line.end].strip()]
    start, end = (lines[0].start, lines[-1].end) if lines else (0, 0)
    is_whole = end - start <= max_chars
    if phrase := next(filter(None, (find_phrase(text, phrase) for phrase in phrases)), None):
        best = phrase
    elif is_whole and (not lines or chunk.locator.time_start is None):
        best = (matches[0].start if matches else start, end)  # nobody asks for its second
    else:
        sentences = [*_sentences(chunk, lines, max_chars)]
        telling = [(words.rank(held), span) for span in sentences if (held := within(span))]
        best = max(telling, key=itemgetter(0), default=(None, sentences[0]))[1]
    if not is_whole:
        start, end = _find_bounds(text, lines, best, within(best), words, max_chars)
        best = max(best[0], start), max(best[1], start)
    marked = [match for match in matches if match.start >= start and match.end <= end]
    shown = tuple((match.start - start, match.end - start) for match in marked)
    page = _page_at(chunk, best[0])
    moment, best = _find_moment(chunk, best, matches)
    return Snippet(text[start:end], shown, find_place(chunk, start, end), moment, page, best)


def find_place(chunk: Chunk, start: int, end: int) -> Locator:
    """Return the place of ``chunk.text[start:end]``: its lines, pages, cells and seconds."""
    where = chunk.locator
    first = last = where.line_start
    if first is not None:
        first += _count_breaks(chunk.text, 0, start)
        last = first + _count_breaks(chunk.text, start, end)
    cues = _cues_within(chunk, start, end)
    begin = min((cue.time_start for cue in cues), default=where.time_start)
    stop = max((cue.time_end for cue in cues), default=where.time_end)
    pages = _page_at(chunk, start), _page_at(chunk, max(start, end - 1))
    shown = chunk.text[start:end]
    visible = start + len(shown) - len(shown.lstrip())  # blanks are not part of the place
    known = Locator(*pages, first, last, begin, stop, "line", first, last)
    if chunk.places is AS_IN_FILE and pages[0] is None:  # most passages: nothing to look up
        return known
    return locate(chunk.places, visible, max(end, visible + 1), known)


def _sentences(chunk: Chunk, lines: Sequence[Line], max_chars: int) -> Iterator[tuple[int, int]]:
    """Yield the sentences of each paragraph; of those whose lines are too long, each line's part.

    Lines that only repeat a heading, or are a rule, belong to no paragraph, unless all do.
    """
    text, titles = chunk.text, (*chunk.heading_path, *chunk.sections)
    headings = {tuple(_PLAIN_WORD.findall(title)) for title in titles} | {()}
    longest = max(map(len, titles), default=0) + _MARKUP

    def is_heading(line: Line) -> bool:
        start, end, _ = line
        is_short = end - start <= longest
        return is_short and tuple(_PLAIN_WORD.findall(text, start, end)) in headings

    said = [line for line in lines if not is_heading(line)] or lines
    starts = [line.start for line in said]
    begins = [at for at, line in enumerate(said) if not at or said[at - 1].next != line.start]
    for first, after in zip(begins, [*begins[1:], len(said)], strict=True):
        spans = sentence_spans(text, starts[first], said[after - 1].end)
        if after - first == 1:  # then no sentence has another line
            yield from spans
        for start, end in spans:
            of_it = said[bisect_right(starts, start) - 1 : bisect_left(starts, end)]
            if of_it[-1].end - of_it[0].start <= max_chars:
                yield start, end
            else:
                yield from ((max(start, line.start), min(end, line.end)) for line in of_it)


def _find_bounds(
    text: str,
    lines: Sequence[Line],
    best: tuple[int, int],
    matches: Sequence[Match],
    words: QueryWords,
    max_chars: int,
) -> tuple[int, int]:
    """Extend the lines of the best sentence by one before and one after, in turn, while they fit.

    If these do not fit, cut the first one around the sentence, or its best matches.
    """
    starts = [line.start for line in lines]
    first, last = bisect_right(starts, best[0]) - 1, bisect_left(starts, best[1]) - 1
    before: tuple[int, int] | None = None
    while before != (first, last) and lines[last].end - lines[first].start <= max_chars:
        before = first, last
        if first > 0 and lines[last].end - lines[first - 1].start <= max_chars:
            first -= 1
        if last + 1 < len(lines) and lines[last + 1].end - lines[first].start <= max_chars:
            last += 1
    if before is not None:
        return lines[first].start, lines[last].end
    line, (low, high) = lines[first], best
    begin = low
    if high - low > max_chars:
        ends = [match.end for match in matches]
        runs = (
            matches[at : bisect_right(ends, match.start + max_chars)]
            for at, match in enumerate(matches)
        )
        run = max(filter(None, runs), key=words.rank, default=())
        low, high = (run[0].start, run[-1].end) if run else (low, low)
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


def _choose_break(text: str, offsets: range) -> int:
    """Return the first offset at white space, else between words, else between characters."""
    near = offsets[:_LONGEST_STEP]
    spaced = (at for at in near if text[at - 1].isspace() or text[at].isspace())
    if (at := next(spaced, None)) is not None:
        return at
    whole = [at for at in near if not is_joined(text, at)] or [offsets[0]]
    apart = (at for at in whole if not (text[at - 1].isalnum() and text[at].isalnum()))
    return next(apart, whole[0])


def _page_at(chunk: Chunk, offset: int) -> int | None:
    page = chunk.locator.page
    return None if page is None else page + bisect_right(chunk.page_breaks, offset)


def _find_moment(
    chunk: Chunk, best: tuple[int, int], matches: Sequence[Match]
) -> tuple[float | None, tuple[int, int]]:
    """Return when and where the best sentence begins, or a late cue with most of the query.

    Captions without punctuation are one long sentence.
    """
    cues = _cues_within(chunk, *best)
    if not cues:
        return chunk.locator.time_start, best

    def held(cue: Cue) -> int:
        of_it = (match.tokens for match in matches if cue.start <= match.start < cue.end)
        return unite(of_it).bit_count()

    answer = max(cues, key=held)
    if answer.time_start - cues[0].time_start > _LATE_SECONDS:
        return answer.time_start, (max(best[0], answer.start), min(best[1], answer.end))
    return cues[0].time_start, best


def _cues_within(chunk: Chunk, start: int, end: int) -> list[Cue]:
    return [cue for cue in chunk.cues if cue.start < end and cue.end > start]


def _count_breaks(text: str, start: int, end: int) -> int:
    """Count the line breaks in a part that neither begins nor ends inside one."""
    feeds, returns = text.count("\n", start, end), text.count("\r", start, end)
    return feeds + returns - (text.count("\r\n", start, end) if returns else 0)
