"""The chunker for any document: each of its streams is cut in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from catalog.core.errors import ConfigError
from catalog.core.models import ChunkSpan, Cue, ParsedDocument, Segment
from catalog.core.tokens import TokenCounter
from catalog.ingest.chunking.band import Band
from catalog.ingest.chunking.base import Cut
from catalog.ingest.chunking.measure import Measure, measure
from catalog.ingest.chunking.placing import Placer
from catalog.ingest.chunking.sections import Outline
from catalog.ingest.chunking.streams import TRANSCRIPTS, Stream, streams
from catalog.ingest.chunking.text import TextCutter, checked
from catalog.ingest.chunking.windows import Windows


class DocumentChunker:
    """Cuts text by size, transcripts by time, and frames one by one.

    Sizes are the counter's tokens, or eight characters each where tokens are longer than that.
    Passages of text have ``min_size`` to ``chunk_size`` tokens where the document allows it (see
    :class:`~catalog.ingest.chunking.text.TextCutter`), and are never larger.

    A transcript becomes windows of about ``window_seconds`` that do not overlap, none over
    ``chunk_size`` tokens, each with its cues. A frame of a video is one passage, or several of
    the same time if it is over ``chunk_size``. OCR text and captions are cut like text.
    Headings right above any of these, with nothing else under them, begin its first passage.

    Raises ``ConfigError`` unless ``chunk_size >= 16`` and ``0 <= chunk_overlap < chunk_size / 2``
    and ``min_size >= 0`` (one of ``chunk_size`` or more counts as one less than it) and
    ``window_seconds > 0``.
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
        self._counter = counter
        self._band = checked(chunk_size, chunk_overlap, min_size)
        if not window_seconds > 0:
            raise ConfigError(f"window_seconds is {window_seconds}: use more than 0")
        self._seconds = window_seconds

    def chunk(self, doc: ParsedDocument) -> tuple[ChunkSpan, ...]:
        """The passages in order of their start; none for a document without text."""
        return self.cut(doc).spans

    def cut(self, doc: ParsedDocument) -> Cut:
        """The passages, and whether a substitute had to count their tokens."""
        sizes, fallback = measure(doc.text, self._counter)
        return Cut(tuple(_Work(doc, sizes, self._band, self._seconds).spans()), fallback)


class _Work:
    """One document on its way into passages."""

    def __init__(self, doc: ParsedDocument, sizes: Measure, band: Band, seconds: float) -> None:
        self._doc = doc
        self._sizes = sizes
        self._band = band
        self._outline = Outline(doc)
        self._place = Placer(doc, sizes)
        self._text = TextCutter(doc, self._outline, sizes, band)
        self._apart = TextCutter(doc, self._outline, sizes, replace(band, overlap=0))
        self._windows = Windows(doc.text, seconds, self._fits)

    def spans(self) -> Iterator[ChunkSpan]:
        for stream in streams(self._doc, self._outline):
            if stream.modality in TRANSCRIPTS:
                yield from self._transcript(stream)
            elif stream.modality == "video_frame":
                yield from self._frame(stream)
            else:
                for start, end, path in self._text.cut(stream.start, stream.end):
                    yield self._place.span(start, end, path, stream.modality)

    def _transcript(self, stream: Stream) -> Iterator[ChunkSpan]:
        cues = [_cue(segment) for segment in stream.segments]
        start = stream.start
        if not self._fits(start, cues[0].end):
            start = cues[0].start
            yield from self._plain(stream.start, start)
        for begin, window in self._windows.of(cues, start):
            if self._fits(begin, window[-1].end):
                path = self._outline.path_at(window[0].start)
                yield self._place.span(begin, window[-1].end, path, stream.modality, window)
                continue
            for first, last, path in self._apart.cut(begin, window[0].end):
                part = _part(window[0], first, last)
                yield self._place.span(first, last, path, stream.modality, [part])

    def _frame(self, stream: Stream) -> Iterator[ChunkSpan]:
        cue = _cue(stream.segments[0])
        if self._fits(stream.start, cue.end):
            path = self._outline.path_at(cue.start)
            yield self._place.span(stream.start, cue.end, path, stream.modality, [cue])
            return
        yield from self._plain(stream.start, cue.start)
        for start, end, path in self._text.cut(cue.start, cue.end):
            part = replace(cue, start=start, end=end)
            yield self._place.span(start, end, path, stream.modality, [part])

    def _plain(self, start: int, end: int) -> Iterator[ChunkSpan]:
        for first, last, path in self._text.cut(start, end):
            yield self._place.span(first, last, path)

    def _fits(self, start: int, end: int) -> bool:
        return self._sizes.size(start, end) <= self._band.chunk_size


def _cue(segment: Segment) -> Cue:
    start = segment.time_start or 0.0
    end = start if segment.time_end is None else segment.time_end
    return Cue(segment.start, segment.end, start, max(start, end), segment.speaker)


def _part(cue: Cue, start: int, end: int) -> Cue:
    """The part ``[start, end)`` of a cue; its times are where its characters stand in it."""
    pace = (cue.time_end - cue.time_start) / (cue.end - cue.start)
    first = cue.time_start + pace * (start - cue.start)
    last = cue.time_end - pace * (cue.end - end)
    return replace(cue, start=start, end=end, time_start=first, time_end=max(first, last))
