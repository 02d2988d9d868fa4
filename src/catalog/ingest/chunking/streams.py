"""Parts a document into stretches that are cut alike: text, runs of cues, frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from catalog.core.models import Modality, ParsedDocument, Segment
from catalog.ingest.chunking.breaks import skip_space, trim_end
from catalog.ingest.chunking.sections import Outline

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


def streams(doc: ParsedDocument, outline: Outline) -> Iterator[Stream]:
    """The streams of a document's body, in order; together they hold all that is visible.

    Neighbouring segments of one modality are one stream, unless text is between them; frames
    stay apart. Headings right above a segment, with nothing else under them, belong to it.
    """
    at = skip_space(doc.text, doc.body_start, len(doc.text))
    start = at
    run: list[Segment] = []
    for segment in _visible(doc):
        if run and not (at >= segment.start and _is_joined(run[-1], segment)):
            yield _of(start, run)
            run = []
        if not run:
            start = min(outline.bare_before(at, segment.start), segment.start)
            if at < start:
                yield Stream(at, trim_end(doc.text, at, start))
        run.append(segment)
        at = skip_space(doc.text, segment.end, len(doc.text))
    if run:
        yield _of(start, run)
    if at < len(doc.text):
        yield Stream(at, trim_end(doc.text, at, len(doc.text)))


def _of(start: int, run: list[Segment]) -> Stream:
    return Stream(start, run[-1].end, run[0].modality, tuple(run))


def _is_joined(before: Segment, after: Segment) -> bool:
    return before.modality == after.modality and after.modality in _JOINED


def _visible(doc: ParsedDocument) -> Iterator[Segment]:
    """The segments within the body without white space around them; blank ones are left out."""
    least = doc.body_start
    for segment in doc.segments:
        start = skip_space(doc.text, max(segment.start, least), segment.end)
        end = trim_end(doc.text, start, segment.end)
        if start < end:
            yield replace(segment, start=start, end=end)
            least = end
