"""Sections under their headings, and stretches of a document that are cut alike."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from catalog.core.documents import Modality, ParsedDocument, Segment
from catalog.ingest.chunking.boundaries import skip_space, trim_end


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading, without the white space around it.

    A heading with nothing under it but a deeper heading belongs to the section of that one:
    ``path`` then is the deeper path, and ``outer_path`` that of the heading it starts with.
    """

    start: int
    end: int
    path: tuple[str, ...] = ()
    outer_path: tuple[str, ...] = ()


class Outline:
    """The headings of a document's body, with their paths."""

    def __init__(self, doc: ParsedDocument) -> None:
        self._text = doc.text
        headings = [heading for heading in doc.headings if heading.start >= doc.body_start]
        self._headings = sorted(headings, key=lambda heading: heading.start)
        self._starts = [heading.start for heading in self._headings]
        self._paths = list(self._heading_paths())

    def path_at(self, offset: int) -> tuple[str, ...]:
        """Return the headings above the character at ``offset``, or that it stands in."""
        at = bisect_right(self._starts, offset)
        return self._paths[at - 1] if at else ()

    def sections(self, start: int, end: int) -> list[Section]:
        """Return the sections of ``text[start:end]`` in order, without those that have no text."""
        first = bisect_left(self._starts, start)
        stop = bisect_left(self._starts, end)
        begin = self._starts[first] if first < stop else end
        above = self.path_at(start)
        sections = [self._trim(Section(start, begin, above, above))]
        sections.extend(self._under_headings(first, stop, end))
        return [section for section in sections if section.start < section.end]

    def sections_within(self, start: int, end: int, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the other headings of the paths that begin in ``text[start:end]``, in order."""
        held = self._paths[bisect_left(self._starts, start) : bisect_left(self._starts, end)]
        titles = dict.fromkeys(title for titles in held for title in titles)
        return tuple(title for title in titles if title not in path)

    def bare_headings_start(self, start: int, end: int) -> int:
        """Return where the headings begin that the text from start to end ends with, or ``end``."""
        begin, at = end, bisect_left(self._starts, end)
        while at and self._starts[at - 1] >= start:
            at -= 1
            if skip_space(self._text, self._headings[at].end, begin) < begin:
                break
            begin = self._starts[at]
        return skip_space(self._text, begin, end)

    def _heading_paths(self) -> Iterator[tuple[str, ...]]:
        levels: list[int] = []
        titles: list[str] = []
        for heading in self._headings:
            while levels and levels[-1] >= heading.level:
                levels.pop()
                titles.pop()
            levels.append(heading.level)
            titles.append(heading.title)
            yield tuple(titles)

    def _under_headings(self, first: int, stop: int, limit: int) -> Iterator[Section]:
        start: int | None = None
        outer: tuple[str, ...] = ()
        for at in range(first, stop):
            heading, is_last = self._headings[at], at + 1 == stop
            if start is None:
                start, outer = heading.start, self._paths[at]
            end = limit if is_last else self._starts[at + 1]
            is_bare = skip_space(self._text, heading.end, end) >= end
            if is_bare and not is_last and self._headings[at + 1].level > heading.level:
                continue
            yield self._trim(Section(start, end, self._paths[at], outer))
            start = None

    def _trim(self, section: Section) -> Section:
        start = skip_space(self._text, section.start, section.end)
        return replace(section, start=start, end=trim_end(self._text, start, section.end))


TRANSCRIPTS: frozenset[Modality] = frozenset(("video_transcript", "audio_transcript"))
_JOINED: frozenset[Modality] = TRANSCRIPTS | {"ocr", "image_caption"}


@dataclass(frozen=True, slots=True)
class Stream:
    """A stretch ``text[start:end]`` of one modality, and the segments in it (none in text).

    It may begin with headings that have nothing else under them, before its first segment.
    """

    start: int
    end: int
    modality: Modality = "text"
    segments: tuple[Segment, ...] = ()


def split_streams(doc: ParsedDocument, outline: Outline) -> Iterator[Stream]:
    """Yield the streams of a document's body, in order; together they hold all that is visible.

    Neighbouring segments of one modality are one stream, unless text is between them; frames
    stay apart. Headings right above a segment, with nothing else under them, belong to it.
    """
    at = skip_space(doc.text, doc.body_start, len(doc.text))
    start = at
    run: list[Segment] = []
    for segment in _visible_segments(doc):
        if run and not (at >= segment.start and _is_joined(run[-1], segment)):
            yield _stream(start, run)
            run = []
        if not run:
            start = min(outline.bare_headings_start(at, segment.start), segment.start)
            if at < start:
                yield Stream(at, trim_end(doc.text, at, start))
        run.append(segment)
        at = skip_space(doc.text, segment.end, len(doc.text))
    if run:
        yield _stream(start, run)
    if at < len(doc.text):
        yield Stream(at, trim_end(doc.text, at, len(doc.text)))


def _stream(start: int, run: list[Segment]) -> Stream:
    return Stream(start, run[-1].end, run[0].modality, tuple(run))


def _is_joined(before: Segment, after: Segment) -> bool:
    return before.modality == after.modality and after.modality in _JOINED


def _visible_segments(doc: ParsedDocument) -> Iterator[Segment]:
    """Yield the segments within the body, without white space around them and blank ones."""
    least = doc.body_start
    for segment in doc.segments:
        start = skip_space(doc.text, max(segment.start, least), segment.end)
        end = trim_end(doc.text, start, segment.end)
        if start < end:
            yield replace(segment, start=start, end=end)
            least = end
