"""The chunker for all documents; it cuts each stream by the rules of its modality."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from catalog.ingest.chunking.boundaries import indentation_start, iter_lines
from catalog.ingest.chunking.cut import Band, Cutter, TokenSizes
from catalog.ingest.chunking.sections import TRANSCRIPTS, Outline, Section, split_streams
from catalog.ingest.chunking.windows import split_windows


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one document in order; ``fallback`` says why their sizes are estimates."""

    spans: tuple[ChunkSpan, ...]
    fallback: str | None = None


class DocumentChunker:
    """Cut text by size, transcripts by time, and frames one by one.

    ``doc.text[span.start:span.end]`` is a passage. Starts strictly increase, and together the
    passages contain every character from ``doc.body_start`` on except for white space. Sizes are
    the counter's tokens, but at least one for eight characters; ``chunk_size`` is never exceeded.
    Passages within one section share up to ``chunk_overlap`` tokens; windows of ``window_seconds``
    share none. Raises ``ConfigError`` for values out of range.
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
        if chunk_size < 16:
            raise ConfigError(f"chunk_size is {chunk_size}: use 16 or more")
        if not 0 <= 2 * chunk_overlap < chunk_size:
            raise ConfigError(f"chunk_overlap is {chunk_overlap}: use 0 to {(chunk_size - 1) // 2}")
        for name, value in {"min_size": min_size, "window_seconds": window_seconds}.items():
            if not value >= 0:
                raise ConfigError(f"{name} is {value}: use 0 or more")
        self._counter = counter
        self._band = Band(chunk_size, chunk_overlap, min(min_size, chunk_size - 1))
        self._seconds = window_seconds

    def cut(self, doc: ParsedDocument) -> Cut:
        """Return the passages, and whether their tokens were counted by a substitute."""
        cutter = _DocumentCutter(doc, self._counter, self._band)
        return Cut(tuple(cutter.spans(self._seconds)), cutter.sizes.fallback)

    def cut_at(self, doc: ParsedDocument, ranges: Sequence[tuple[int, int]]) -> Cut:
        """Return passages that were cut elsewhere at ``[start, end)``, with their places."""
        cutter = _DocumentCutter(doc, self._counter, self._band)
        spans = (cutter.span(Section(*one, cutter.outline.path_at(one[0]))) for one in ranges)
        return Cut(tuple(spans), cutter.sizes.fallback)


class _DocumentCutter:
    """Cut one document whose tokens are counted."""

    def __init__(self, doc: ParsedDocument, counter: TokenCounter, band: Band) -> None:
        self._doc, self._band, self._tables = doc, band, sorted(doc.tables)
        self.sizes, self.outline = TokenSizes(doc.text, counter), Outline(doc)
        self._lines = [line.start for line in iter_lines(doc.text)]

    def spans(self, seconds: float) -> Iterator[ChunkSpan]:
        by_size = Cutter(self._doc, self.outline, self.sizes, self._band)
        by_time = Cutter(self._doc, self.outline, self.sizes, self._band._replace(overlap=0))
        for start, end, segments in split_streams(self._doc, self.outline):
            modality = segments[0].modality if segments else "text"
            cues = [_cue(segment) for segment in segments]
            if not segments or segments[0].time_start is None:
                for passage in by_size.cut(self.outline.sections(start, end)):
                    yield self.span(passage, modality)
            elif modality in TRANSCRIPTS and seconds:
                text = self._doc.text
                for begin, window in split_windows(text, cues, start, seconds, self._fits):
                    yield from self._cut_cues(by_time, begin, window, modality)
            else:
                yield from self._cut_cues(by_size, start, cues, modality)

    def _cut_cues(
        self, cutter: Cutter, start: int, cues: Sequence[Cue], modality: Modality
    ) -> Iterator[ChunkSpan]:
        """Yield the passages of the cues, each with the parts of cues that it contains."""
        section = Section(start, cues[-1].end, self.outline.path_at(cues[0].start))
        turns = [after.start for one, after in pairwise(cues) if one.speaker != after.speaker]
        starts, ends = [cue.start for cue in cues], [cue.end for cue in cues]
        for passage in cutter.cut([section], turns):
            held = cues[bisect_right(ends, passage.start) : bisect_left(starts, passage.end)]
            parts = [_part_of_cue(cue, passage, modality) for cue in held]
            yield self.span(passage, modality if parts else "text", parts)

    def span(
        self, passage: Section, modality: Modality = "text", cues: Sequence[Cue] = ()
    ) -> ChunkSpan:
        """Add its places to a passage. Its time runs from the first cue's start to the last end."""
        (start, end, path), pages = passage, self._doc.pages
        indented = indentation_start(self._doc.text, start, self._doc.body_start)
        if not self._doc.segments and self._fits(indented, end):
            start = indented
        page = bisect_right(pages, start)
        breaks = pages[page : bisect_left(pages, end)]
        places = self._doc.places.part(start, end)
        times = (cues[0].time_start, max(cue.time_end for cue in cues)) if cues else ()
        lines = bisect_right(self._lines, start), bisect_right(self._lines, end - 1)
        locator = Locator(page or None, last_page(page or None, breaks), *lines, *times)
        return ChunkSpan(
            start,
            end,
            path,
            modality,
            locate(places, 0, end - start, locator),
            tokens=self.sizes.size(start, end),
            cues=tuple(cue._replace(start=cue.start - start, end=cue.end - start) for cue in cues),
            page_breaks=tuple(offset - start for offset in breaks),
            sections=self.outline.sections_within(start, end, path),
            places=places,
            context=self._columns(start, end),
        )

    def _columns(self, start: int, end: int) -> tuple[str, ...]:
        """Return the column names of the table in which the passage begins, or which fills it."""
        first = max(0, bisect_right(self._tables, (start, end)) - 1)
        for begin, stop, columns in self._tables[first : first + 2]:
            if begin <= start < stop or 2 * (min(end, stop) - max(start, begin)) > end - start:
                return (columns,)
        return ()

    def _fits(self, start: int, end: int) -> bool:
        return self.sizes.size(start, end) <= self._band.most


def _cue(segment: Segment) -> Cue:
    times = segment.time_start or 0.0, segment.time_end or 0.0
    return Cue(segment.start, segment.end, times[0], max(times), segment.speaker)


def _part_of_cue(cue: Cue, passage: Section, modality: Modality) -> Cue:
    """Return the part of a cue in a passage; speech takes time for its characters."""
    start, end = max(cue.start, passage.start), min(cue.end, passage.end)
    if modality not in TRANSCRIPTS:
        return cue._replace(start=start, end=end)
    pace = (cue.time_end - cue.time_start) / (cue.end - cue.start)
    first = cue.time_start + pace * (start - cue.start)
    last = cue.time_end - pace * (cue.end - end)
    return cue._replace(start=start, end=end, time_start=first, time_end=max(first, last))
