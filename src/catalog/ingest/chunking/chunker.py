"""The chunker for all documents; it cuts each stream by the rules of its modality."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from catalog.core.documents import (
    ChunkSpan,
    Cue,
    Locator,
    Modality,
    ParsedDocument,
    Segment,
    last_page,
    locate,
)
from catalog.core.errors import ConfigError
from catalog.core.tokens import TokenCounter
from catalog.ingest.chunking.boundaries import LineIndex, indentation_start
from catalog.ingest.chunking.packing import (
    TRANSCRIPTS,
    Band,
    Outline,
    Packer,
    Section,
    Stream,
    TokenSizes,
    split_streams,
)

SHORTEST, LONGEST = 3 / 4, 5 / 4
"""When a window may close, as shares of its nominal length."""
SHORTEST_TURN = 1 / 2
"""From when on it may close before another speaker, as a share of the nominal length."""
SHORTEST_LAST = 1 / 3
"""A last window under this share of the nominal length is joined to the one before."""

_SENTENCE_END = re.compile(r"""[.!?…。！？｡]["'”’»)\]」』）】]*\s*\Z""")
_TAIL = 8


@dataclass(frozen=True, slots=True)
class TranscriptWindows:
    """Group the cues of one transcript into windows.

    ``seconds`` is the nominal length of a window. ``fits`` returns whether the text between two
    offsets is small enough for one passage.
    """

    text: str
    seconds: float
    fits: Callable[[int, int], bool]

    def split(self, cues: Sequence[Cue], start: int) -> Iterator[tuple[int, Sequence[Cue]]]:
        """Yield the start of each window's text (the first is ``start``) and its cues.

        The cues are in the order of the text. A window closes between 3/4 and 5/4 of ``seconds``
        after its start. The best place is before another speaker or at the end of the transcript
        (before another speaker already from 1/2 on, if there is no later place). The next best is
        after a sentence, nearest to ``seconds``, then in the longest pause, then wherever
        necessary. A single cue that is too long or too large is a window by itself.
        """
        begin = before = before_start = 0
        while begin < len(cues):
            end = self._close(cues, begin, start)
            is_last = end == len(cues) and begin > before
            if is_last and self._belongs_to_the_one_before(cues, before, begin, before_start):
                yield before_start, cues[before:]
                return
            if begin > before:
                yield before_start, cues[before:begin]
            before, before_start, begin = begin, start, end
            start = cues[end].start if end < len(cues) else start
        if before < len(cues):
            yield before_start, cues[before:]

    def _close(self, cues: Sequence[Cue], begin: int, start: int) -> int:
        """Return the end of the window of ``cues[begin]``, whose text begins at ``start``."""
        opened = latest = cues[begin].time_start
        end, best, chosen = begin, (9, 0.0), begin
        for at in range(begin, len(cues)):
            cue = cues[at]
            latest = max(latest, cue.time_end)
            is_over = latest - opened > LONGEST * self.seconds or cue.time_start < opened
            if at > begin and (is_over or not self.fits(start, cue.end)):
                break
            end = at + 1
            rank = self._rank(cues, at, latest - opened, latest)
            if rank is not None and rank < best:
                best, chosen = rank, end
        return chosen if chosen > begin else end

    def _rank(
        self, cues: Sequence[Cue], at: int, length: float, latest: float
    ) -> tuple[int, float] | None:
        """Rate a close after ``cues[at]``, smaller is better; ``None`` if it is not possible."""
        is_last = at + 1 == len(cues)
        is_turn = is_last or cues[at].speaker != cues[at + 1].speaker
        off = abs(length - self.seconds)
        if length < SHORTEST * self.seconds:
            is_early = is_turn and not is_last and length >= SHORTEST_TURN * self.seconds
            return (1, off) if is_early else None
        if is_turn:
            return 0, off
        if self._ends_sentence(cues[at]):
            return 2, off
        pause = cues[at + 1].time_start - latest
        return (3, -pause) if pause > 0 else None

    def _belongs_to_the_one_before(
        self, cues: Sequence[Cue], before: int, begin: int, start: int
    ) -> bool:
        """Return whether the last window, ``cues[begin:]``, is too short to be separate.

        The previous window is ``cues[before:begin]``, and its text begins at ``start``.
        """
        opened, reopened = cues[before].time_start, cues[begin].time_start
        ends = max(cue.time_end for cue in cues[before:])
        return (
            max(cue.time_end for cue in cues[begin:]) - reopened < SHORTEST_LAST * self.seconds
            and ends - opened <= (LONGEST + SHORTEST_LAST) * self.seconds
            and reopened >= opened
            and self.fits(start, cues[-1].end)
        )

    def _ends_sentence(self, cue: Cue) -> bool:
        return _ends_sentence(self.text, cue)


def find_turns(text: str, cues: Sequence[Cue]) -> tuple[list[int], list[int]]:
    """Return the offsets where another speaker begins, and where a cue follows a sentence end."""
    pairs = list(pairwise(cues))
    turns = [after.start for before, after in pairs if before.speaker != after.speaker]
    return turns, [after.start for before, after in pairs if _ends_sentence(text, before)]


def _ends_sentence(text: str, cue: Cue) -> bool:
    return _SENTENCE_END.search(text, max(cue.start, cue.end - _TAIL), cue.end) is not None


def _other_names(doc: ParsedDocument) -> tuple[str, ...]:
    """Return the names in ``aliases``, by which people look for a note."""
    values = [value for name, value in doc.metadata.items() if name.casefold() in _ALIASES]
    names = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return tuple(" ".join(str(name).split())[:_LONGEST_NAME] for name in names[:_MOST_NAMES])


_ALIASES = ("alias", "aliases")
_MOST_NAMES, _LONGEST_NAME = 50, 200
SMALLEST_CHUNK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one document, in order of their start; empty for one without text.

    ``fallback`` is ``None`` if sizes were counted in the model's tokens. Otherwise it names the
    unit that was counted instead, with the reason, for the report of the run.
    """

    spans: tuple[ChunkSpan, ...]
    fallback: str | None = None


class DocumentChunker:
    """Cut text by size, transcripts by time, and frames one by one.

    ``doc.text[span.start:span.end]`` is a passage. Starts strictly increase, no passage is empty,
    and together they contain every character from ``doc.body_start`` on except for white space. A
    passage of plain text keeps the indentation of its first line. Equal documents give equal spans.

    Sizes are the counter's tokens, but at least one for eight characters. A section of ``min_size``
    to ``chunk_size`` tokens is one passage; a smaller one is joined with its neighbours. A larger
    section is cut at paragraphs, else sentences, else words, else anywhere; its consecutive
    passages share up to ``chunk_overlap`` tokens. ``chunk_size`` is never exceeded; ``min_size`` is
    reached wherever the document and its tables allow it.

    A transcript becomes windows of about ``window_seconds`` with their cues. They do not overlap
    and have at most ``chunk_size`` tokens. If ``window_seconds`` is 0, a transcript is cut by size
    like text, preferably before another speaker, then before a cue that begins a sentence;
    consecutive passages share at least five sixths of ``chunk_overlap`` tokens. A video frame is
    one passage, or several with the same time if it exceeds ``chunk_size``. OCR text and captions
    are cut like text. Headings directly above any of these, with nothing else below them, begin its
    first passage.

    Raises ``ConfigError`` unless ``chunk_size >= 16``, ``0 <= chunk_overlap < chunk_size / 2``,
    ``min_size >= 0`` (a value of ``chunk_size`` or more is reduced to ``chunk_size - 1``) and
    ``window_seconds >= 0``.
    """

    def __init__(
        self,
        counter: TokenCounter,
        *,
        chunk_size: int = 800,
        chunk_overlap: int = 120,
        min_size: int = 64,
        window_seconds: float = 60.0,
    ) -> None:
        if chunk_size < SMALLEST_CHUNK_SIZE:
            raise ConfigError(f"chunk_size is {chunk_size}: use {SMALLEST_CHUNK_SIZE} or more")
        if not 0 <= 2 * chunk_overlap < chunk_size:
            raise ConfigError(
                f"chunk_overlap is {chunk_overlap}: use 0 or more, and less than half of "
                f"chunk_size ({chunk_size})"
            )
        if min_size < 0:
            raise ConfigError(f"min_size is {min_size}: use 0 or more")
        if not window_seconds >= 0:
            raise ConfigError(f"window_seconds is {window_seconds}: use 0 or more")
        self._counter = counter
        self._band = Band(chunk_size, chunk_overlap, min(min_size, chunk_size - 1))
        self._seconds = window_seconds

    def cut(self, doc: ParsedDocument) -> Cut:
        """Return the passages, and whether their tokens were counted by a substitute."""
        sizes, fallback = TokenSizes.count(doc.text, self._counter)
        spans = list(_DocumentCutter(doc, sizes, self._band, self._seconds).spans())
        if spans and (names := _other_names(doc)):
            spans[0] = replace(spans[0], context=names)
        return Cut(tuple(spans), fallback)

    def cut_at(self, doc: ParsedDocument, ranges: Sequence[tuple[int, int]]) -> Cut:
        """Return passages that were cut elsewhere at ``[start, end)``, with their places."""
        sizes, fallback = TokenSizes.count(doc.text, self._counter)
        cutter = _DocumentCutter(doc, sizes, self._band, self._seconds)
        return Cut(tuple(cutter.spans_at(ranges)), fallback)


class _DocumentCutter:
    """Cut one document whose tokens are counted."""

    def __init__(
        self, doc: ParsedDocument, sizes: TokenSizes, band: Band, window_seconds: float
    ) -> None:
        self._doc, self._sizes, self._band = doc, sizes, band
        self._outline = Outline(doc)
        self._lines = LineIndex(doc.text)
        self._packer = Packer(doc, sizes, band)
        self._packer_without_overlap = Packer(doc, sizes, replace(band, overlap=0))
        self._windows = TranscriptWindows(doc.text, window_seconds, self._fits)
        self._is_by_time = window_seconds > 0
        self._tables = sorted(doc.tables)

    def spans(self) -> Iterator[ChunkSpan]:
        for stream in split_streams(self._doc, self._outline):
            if stream.modality in TRANSCRIPTS:
                yield from self._cut_transcript(stream)
            elif stream.modality == "video_frame":
                yield from self._cut_frame(stream)
            else:
                sections = self._outline.sections(stream.start, stream.end)
                for start, end, path in self._packer.cut(sections):
                    yield self._span(start, end, path, stream.modality)

    def spans_at(self, ranges: Sequence[tuple[int, int]]) -> Iterator[ChunkSpan]:
        for start, end in ranges:
            yield self._span(start, end, self._outline.path_at(start))

    def _cut_transcript(self, stream: Stream) -> Iterator[ChunkSpan]:
        cues = [_cue(segment) for segment in stream.segments]
        if not self._is_by_time:
            yield from self._cut_by_size(stream, cues)
            return
        start = stream.start
        if not self._fits(start, cues[0].end):
            start = cues[0].start
            yield from self._cut_headings(stream.start, start)
        for begin, window in self._windows.split(cues, start):
            if self._fits(begin, window[-1].end):
                path = self._outline.path_at(window[0].start)
                yield self._span(begin, window[-1].end, path, stream.modality, window)
                continue
            sections = self._outline.sections(begin, window[0].end)
            for first, last, path in self._packer_without_overlap.cut(sections):
                part = _part_of_cue(window[0], first, last)
                yield self._span(first, last, path, stream.modality, [part])

    def _cut_by_size(self, stream: Stream, cues: Sequence[Cue]) -> Iterator[ChunkSpan]:
        path = self._outline.path_at(cues[0].start)
        packer = Packer(self._doc, self._sizes, self._band, find_turns(self._doc.text, cues))
        starts, ends = [cue.start for cue in cues], [cue.end for cue in cues]
        for first, last, _ in packer.cut([Section(stream.start, stream.end, path, path)]):
            parts = [
                _part_of_cue(cue, max(first, cue.start), min(last, cue.end))
                for cue in cues[bisect_right(ends, first) : bisect_left(starts, last)]
            ]
            yield self._span(first, last, path, stream.modality, parts)

    def _cut_frame(self, stream: Stream) -> Iterator[ChunkSpan]:
        cue = _cue(stream.segments[0])
        if self._fits(stream.start, cue.end):
            path = self._outline.path_at(cue.start)
            yield self._span(stream.start, cue.end, path, stream.modality, [cue])
            return
        yield from self._cut_headings(stream.start, cue.start)
        sections = self._outline.sections(cue.start, cue.end)
        for start, end, path in self._packer.cut(sections):
            part = cue._replace(start=start, end=end)
            yield self._span(start, end, path, stream.modality, [part])

    def _cut_headings(self, start: int, end: int) -> Iterator[ChunkSpan]:
        for first, last, path in self._packer.cut(self._outline.sections(start, end)):
            yield self._span(first, last, path)

    def _span(
        self,
        start: int,
        end: int,
        path: tuple[str, ...],
        modality: Modality = "text",
        cues: Sequence[Cue] = (),
    ) -> ChunkSpan:
        """Make the passage ``[start, end)``; ``cues`` have their offsets in the document.

        Its time runs from the start of the first cue to the latest end of all cues.
        """
        if not self._doc.segments:
            indented = indentation_start(self._doc.text, start, self._doc.body_start)
            start = indented if self._fits(indented, end) else start
        pages = self._doc.pages
        pages_before = bisect_right(pages, start)
        page = pages_before or None
        breaks = pages[pages_before : bisect_left(pages, end)]
        places = self._doc.places.part(start, end)
        locator = Locator(
            page=page,
            page_end=last_page(page, breaks),
            line_start=self._lines.line_of(start),
            line_end=self._lines.line_of(end - 1),
            time_start=cues[0].time_start if cues else None,
            time_end=max(cue.time_end for cue in cues) if cues else None,
        )
        return ChunkSpan(
            start,
            end,
            path,
            modality,
            locate(places, 0, end - start, locator),
            tokens=self._sizes.size(start, end),
            cues=tuple(cue._replace(start=cue.start - start, end=cue.end - start) for cue in cues),
            page_breaks=tuple(offset - start for offset in breaks),
            sections=self._outline.sections_within(start, end, path),
            places=places,
            context=self._columns(start, end),
        )

    def _columns(self, start: int, end: int) -> tuple[str, ...]:
        """Return the column names of the table in which the passage begins, or which fills it."""
        first = max(0, bisect_right(self._tables, (start, end)) - 1)
        for table in self._tables[first:]:
            if table.start >= end:
                break
            shared = min(end, table.end) - max(start, table.start)
            if table.start <= start < table.end or 2 * shared > end - start:
                return (table.columns,)
        return ()

    def _fits(self, start: int, end: int) -> bool:
        return self._sizes.size(start, end) <= self._band.chunk_size


def _cue(segment: Segment) -> Cue:
    start = segment.time_start or 0.0
    end = start if segment.time_end is None else segment.time_end
    return Cue(segment.start, segment.end, start, max(start, end), segment.speaker)


def _part_of_cue(cue: Cue, start: int, end: int) -> Cue:
    """Return the part ``[start, end)`` of a cue, with times in proportion to its characters."""
    if (start, end) == (cue.start, cue.end):
        return cue
    pace = (cue.time_end - cue.time_start) / (cue.end - cue.start)
    first = cue.time_start + pace * (start - cue.start)
    last = cue.time_end - pace * (cue.end - end)
    return cue._replace(start=start, end=end, time_start=first, time_end=max(first, last))
