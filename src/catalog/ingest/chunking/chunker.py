"""The chunker for any document: each of its streams is cut in its own way."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from catalog.core.documents import (
    ChunkSpan,
    Cue,
    Locator,
    Modality,
    ParsedDocument,
    Segment,
    last_page,
)
from catalog.core.errors import ConfigError
from catalog.core.tokens import TokenCounter
from catalog.ingest.chunking.boundaries import LineIndex
from catalog.ingest.chunking.measure import Atoms, Measure, measure
from catalog.ingest.chunking.outline import TRANSCRIPTS, Outline, Stream, streams
from catalog.ingest.chunking.packing import Band, Packer, grouped
from catalog.ingest.chunking.transcript_windows import Windows


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one document.

    ``fallback`` is ``None`` when sizes were counted in the model's tokens; otherwise it says
    what was counted instead, and why, for the report of the run.
    """

    spans: tuple[ChunkSpan, ...]
    fallback: str | None = None


class Chunker(Protocol):
    """Cuts one kind of document.

    ``doc.text[span.start:span.end]`` is the passage, starts are strictly increasing, no
    passage is empty, and together they hold every character from ``doc.body_start`` on that
    is not white space. The same document always gives the same spans.
    """

    def chunk(self, doc: ParsedDocument) -> tuple[ChunkSpan, ...]:
        """The passages in order of their start; none for a document without text."""
        ...

    def cut(self, doc: ParsedDocument) -> Cut:
        """The same, and whether a substitute had to count their tokens."""
        ...


class Placer:
    """Makes the spans of one document."""

    def __init__(self, doc: ParsedDocument, measure: Measure) -> None:
        self._pages = doc.pages
        self._lines = LineIndex(doc.text)
        self._measure = measure

    def span(
        self,
        start: int,
        end: int,
        path: tuple[str, ...],
        modality: Modality = "text",
        cues: Sequence[Cue] = (),
    ) -> ChunkSpan:
        """The passage ``[start, end)``; ``cues`` have their offsets in the document.

        Its time runs from the start of the first cue to the latest end of any.
        """
        lines = self._lines.locator(start, end)
        before = bisect_right(self._pages, start)
        page = before or None
        following = self._pages[before : bisect_left(self._pages, end)]
        return ChunkSpan(
            start,
            end,
            path,
            modality,
            Locator(
                page=page,
                page_end=last_page(page, following),
                line_start=lines.line_start,
                line_end=lines.line_end,
                time_start=cues[0].time_start if cues else None,
                time_end=max(cue.time_end for cue in cues) if cues else None,
            ),
            tokens=self._measure.size(start, end),
            cues=tuple(
                Cue(cue.start - start, cue.end - start, cue.time_start, cue.time_end, cue.speaker)
                for cue in cues
            ),
            page_breaks=tuple(offset - start for offset in following),
        )


SMALLEST_CHUNK_SIZE = 16

_LINE_ORIENTED_TEXT = """
    bash bat c cc cfg clj conf cpp cs css csv cxx dart env erl ex exs fish go gradle h hh hpp hs
    ini java jl js json jsx kt kts less log lua m mjs ml php pl plist proto ps1 psv py pyi r rb rs
    sass scala scss sh sql svelte swift tf toml ts tsv tsx vb vue xml yaml yml zig zsh"""
_LINE_ORIENTED = frozenset(_LINE_ORIENTED_TEXT.split())


class TextCutter:
    """Cuts any stretch of one document as text.

    A section within the band is one passage; one under it is joined with its neighbours. A
    larger section ends its passages at paragraphs, else sentences, else words, else anywhere;
    consecutive passages of it share up to ``band.overlap`` tokens. ``band.chunk_size`` is never
    exceeded; ``band.min_size`` is kept wherever the document and its tables allow it.
    """

    def __init__(self, doc: ParsedDocument, outline: Outline, sizes: Measure, band: Band) -> None:
        self._outline = outline
        self._sizes = sizes
        self._band = band
        self._packer = Packer(
            doc.text,
            sizes,
            Atoms(doc.atomic, sizes, band.chunk_size),
            band,
            lines_first=doc.file_type in _LINE_ORIENTED,
        )

    def cut(self, start: int, end: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Start, end and heading path of every passage of ``text[start:end]``."""
        for group in grouped(self._outline.sections(start, end), self._sizes, self._band):
            for begin, stop in self._packer.pieces(group):
                yield begin, stop, group.path(begin, stop)


def checked(chunk_size: int, chunk_overlap: int, min_size: int) -> Band:
    """The band of these settings; raises ``ConfigError`` for sizes without a meaning."""
    if chunk_size < SMALLEST_CHUNK_SIZE:
        raise ConfigError(f"chunk_size is {chunk_size}: use {SMALLEST_CHUNK_SIZE} or more")
    if not 0 <= 2 * chunk_overlap < chunk_size:
        raise ConfigError(
            f"chunk_overlap is {chunk_overlap}: use 0 or more, and less than half of "
            f"chunk_size ({chunk_size})"
        )
    if min_size < 0:
        raise ConfigError(f"min_size is {min_size}: use 0 or more")
    return Band(chunk_size, chunk_overlap, min(min_size, chunk_size - 1))


class DocumentChunker:
    """Cuts text by size, transcripts by time, and frames one by one.

    Sizes are the counter's tokens, or eight characters each where tokens are longer than that.
    Passages of text have ``min_size`` to ``chunk_size`` tokens where the document allows it (see
    :class:`~catalog.ingest.chunking.chunker.TextCutter`), and are never larger.

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
