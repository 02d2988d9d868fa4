"""The chunker for any document: each of its streams is cut in its own way."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from catalog.ingest.chunking.boundaries import LineIndex
from catalog.ingest.chunking.outline import TRANSCRIPTS, Outline, Section, Stream, split_streams
from catalog.ingest.chunking.packing import Band, Packer
from catalog.ingest.chunking.token_sizes import TokenSizes
from catalog.ingest.chunking.transcript_windows import TranscriptWindows, find_turns

SMALLEST_CHUNK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one document, in order of their start; none for one without text.

    ``fallback`` is ``None`` when sizes were counted in the model's tokens; otherwise it says
    what was counted instead, and why, for the report of the run.
    """

    spans: tuple[ChunkSpan, ...]
    fallback: str | None = None


class DocumentChunker:
    """Cuts text by size, transcripts by time, and frames one by one.

    ``doc.text[span.start:span.end]`` is a passage, starts are strictly increasing, no passage is
    empty, and together they hold every character from ``doc.body_start`` on that is not white
    space. The same document always gives the same spans.

    Sizes are the counter's tokens, or eight characters each where tokens are longer than that.
    A section of ``min_size`` to ``chunk_size`` tokens is one passage; a smaller one is joined
    with its neighbours. A larger section ends its passages at paragraphs, else sentences, else
    words, else anywhere; consecutive passages of it share up to ``chunk_overlap`` tokens.
    ``chunk_size`` is never exceeded; ``min_size`` is kept wherever the document and its tables
    allow it.

    A transcript becomes windows of about ``window_seconds`` that do not overlap, none over
    ``chunk_size`` tokens, each with its cues. If ``window_seconds`` is 0 it is cut by size as text
    is, rather before another speaker, else before a cue that begins a sentence, and consecutive
    passages share five sixths of ``chunk_overlap`` tokens or more. A frame of a video is one
    passage, or several of the same time if it is over ``chunk_size``. OCR text and captions are
    cut like text.
    Headings right above any of these, with nothing else under them, begin its first passage.

    Raises ``ConfigError`` unless ``chunk_size >= 16`` and ``0 <= chunk_overlap < chunk_size / 2``
    and ``min_size >= 0`` (one of ``chunk_size`` or more counts as one less than it) and
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
        """Return the passages, and whether a substitute had to count their tokens."""
        sizes, fallback = TokenSizes.count(doc.text, self._counter)
        cutter = _DocumentCutter(doc, sizes, self._band, self._seconds)
        return Cut(tuple(cutter.spans()), fallback)

    def cut_at(self, doc: ParsedDocument, ranges: Sequence[tuple[int, int]]) -> Cut:
        """Return the passages ``[start, end)`` that somebody else cut, with their places."""
        sizes, fallback = TokenSizes.count(doc.text, self._counter)
        cutter = _DocumentCutter(doc, sizes, self._band, self._seconds)
        return Cut(tuple(cutter.spans_at(ranges)), fallback)


class _DocumentCutter:
    """Cuts one document whose tokens are counted."""

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

        Its time runs from the start of the first cue to the latest end of any.
        """
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
        )

    def _fits(self, start: int, end: int) -> bool:
        return self._sizes.size(start, end) <= self._band.chunk_size


def _cue(segment: Segment) -> Cue:
    start = segment.time_start or 0.0
    end = start if segment.time_end is None else segment.time_end
    return Cue(segment.start, segment.end, start, max(start, end), segment.speaker)


def _part_of_cue(cue: Cue, start: int, end: int) -> Cue:
    """Return the part ``[start, end)`` of a cue; its times are where its characters stand."""
    if (start, end) == (cue.start, cue.end):
        return cue
    pace = (cue.time_end - cue.time_start) / (cue.end - cue.start)
    first = cue.time_start + pace * (start - cue.start)
    last = cue.time_end - pace * (cue.end - end)
    return cue._replace(start=start, end=end, time_start=first, time_end=max(first, last))
