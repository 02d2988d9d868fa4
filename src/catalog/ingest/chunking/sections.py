"""Split a document into sections under its headings, and into streams of text, speech or images."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from catalog.core.documents import Modality, ParsedDocument, Segment
from catalog.ingest.chunking.boundaries import skip_space, trim_end

TRANSCRIPTS: frozenset[Modality] = frozenset(("video_transcript", "audio_transcript"))
_JOINED: frozenset[Modality] = TRANSCRIPTS | {"ocr", "image_caption"}


class Section(NamedTuple):
    """Text under one heading, and any bare headings above it, without white space around it."""

    start: int
    end: int
    path: tuple[str, ...] = ()


class Outline:
    """The headings of a document's body, with their paths."""

    def __init__(self, doc: ParsedDocument) -> None:
        self._text = doc.text
        headings = [heading for heading in doc.headings if heading.start >= doc.body_start]
        self._headings = sorted(headings, key=lambda heading: heading.start)
        self._starts = [heading.start for heading in self._headings]
        self._paths: list[tuple[str, ...]] = []
        levels, titles = list[int](), list[str]()
        for heading in self._headings:
            while levels and levels[-1] >= heading.level:
                levels.pop()
                titles.pop()
            levels.append(heading.level)
            titles.append(heading.title)
            self._paths.append(tuple(titles))

    def path_at(self, offset: int) -> tuple[str, ...]:
        """Return the headings above the character at ``offset``, including one that contains it."""
        at = bisect_right(self._starts, offset)
        return self._paths[at - 1] if at else ()

    def sections(self, start: int, end: int) -> Iterator[Section]:
        """Yield the sections of ``text[start:end]`` in order, without empty ones."""
        path, level = self.path_at(start), 0  # the level of a heading without a text of its own
        for at in range(bisect_left(self._starts, start), bisect_left(self._starts, end)):
            heading = self._headings[at]
            if not 0 < level < heading.level:
                yield from self._trim(Section(start, heading.start, path))
                start = heading.start
            following = min([*self._starts[at + 1 : at + 2], end])
            is_bare = skip_space(self._text, heading.end, following) >= following
            path, level = self._paths[at], heading.level if is_bare else 0
        yield from self._trim(Section(start, end, path))

    def _trim(self, section: Section) -> Iterator[Section]:
        start = skip_space(self._text, section.start, section.end)
        if start < section.end:
            yield section._replace(start=start, end=trim_end(self._text, start, section.end))

    def sections_within(self, start: int, end: int, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return further headings of the paths that begin in ``text[start:end]``, in order."""
        held = self._paths[bisect_left(self._starts, start) : bisect_left(self._starts, end)]
        titles = dict.fromkeys(title for titles in held for title in titles)
        return tuple(title for title in titles if title not in path)

    def bare_headings_start(self, start: int, end: int) -> int:
        """Return the start of the headings that end ``text[start:end]``, or ``end`` without any."""
        begin, at = end, bisect_left(self._starts, end)
        while at and self._starts[at - 1] >= start:
            at -= 1
            if skip_space(self._text, self._headings[at].end, begin) < begin:
                break
            begin = self._starts[at]
        return skip_space(self._text, begin, end)


Stream = tuple[int, int, tuple[Segment, ...]]  # start and end of one modality, its segments


def split_streams(doc: ParsedDocument, outline: Outline) -> Iterator[Stream]:
    """Yield the streams of a document's body, in order; together they have all visible text.

    Neighbouring segments of one modality are one stream, unless text is between them; frames stay
    separate. Headings directly above a segment belong to it.
    """
    text, end = doc.text, len(doc.text)
    at = start = skip_space(text, doc.body_start, end)
    run: list[Segment] = []
    for whole in doc.segments:
        begin = skip_space(text, max(whole.start, at), whole.end)
        segment = replace(whole, start=begin, end=trim_end(text, begin, whole.end))
        if begin >= segment.end:
            continue
        is_next = bool(run) and at >= segment.start and run[-1].modality == segment.modality
        if run and not (is_next and segment.modality in _JOINED):
            yield start, run[-1].end, tuple(run)
            run = []
        if not run:
            start = min(outline.bare_headings_start(at, segment.start), segment.start)
            if at < start:
                yield at, trim_end(text, at, start), ()
        run.append(segment)
        at = skip_space(text, segment.end, end)
    if run:
        yield start, run[-1].end, tuple(run)
    if at < end:
        yield at, trim_end(text, at, end), ()
