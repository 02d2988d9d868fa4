"""Text that was made of a recording or an image: frames, transcripts, captions, OCR text.

Either fields between ``---`` lines (``video_source: `lecture.mp4```), or lines in italics
(``*Original file: `photo.png`*``).

Ordinary Markdown comes out as it went in.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.core.documents import Heading, MetadataValue, Modality, ParsedDocument, Segment
from catalog.ingest.chunking.boundaries import Line, iter_lines, skip_space, trim_end
from catalog.ingest.readers.timed.source_media import MadeOf, medium_of
from catalog.ingest.readers.timed.timecodes import CODE, parse_timecode
from catalog.ingest.readers.timed.transcript_lines import CueLines, transcript_lines

_HEADING = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_FIELD = re.compile(r"([A-Za-z][\w -]{0,40}):[ \t]*(.*)")
_ITALIC = re.compile(r"[*_]([A-Za-z][\w -]{0,40}):[ \t]*(.*?)[*_]")
_MOST_FIELDS = 40
_LONGEST_FIELD = 2000
_TELLING = frozenset(
    [
        *("source_file", "source_format", "source_url", "video_source", "original_file", "media"),
        *("frame_file", "thumbnail_file", "timestamp", "video_id", "modality", "ocr_model"),
        *("transcription_model", "transcript_source", "vision_model"),
    ]
)
"""A block with none of these is somebody's text between two rules."""


@dataclass(frozen=True, slots=True)
class ConverterHeader:
    """The fields (lower case, ``_`` for blanks), and the text without the lines that hold them.

    ``text`` keeps the lines themselves, empty, so that every later line has its number still.
    """

    fields: Mapping[str, str]
    text: str


def converter_header(text: str, start: int) -> ConverterHeader | None:
    """The block in ``text`` from offset ``start`` on, or ``None``.

    A block with nothing visible after it counts too, as long as a heading stands above it.
    """
    lines = _first_lines(text, start)
    contents = [text[line.start : line.end].strip() for line in lines]
    at = _next_filled(contents, 0)
    if at is None or _HEADING.match(contents[at]) is None:
        return None
    at = _next_filled(contents, at + 1)
    if at is None:
        return None
    found = _between_rules(contents, at) if contents[at] == "---" else _in_italics(contents, at)
    if found is None or _TELLING.isdisjoint(found[0]):
        return None
    fields, after = found
    return ConverterHeader(fields, _without(text, lines[at:after]))


def _first_lines(text: str, start: int) -> list[Line]:
    found = []
    for line in iter_lines(text, start):
        found.append(line)
        if len(found) >= 3 * _MOST_FIELDS or line.end - line.start > _LONGEST_FIELD:
            break
    return found


def _next_filled(contents: Sequence[str], at: int) -> int | None:
    return next((place for place in range(at, len(contents)) if contents[place]), None)


def _between_rules(contents: Sequence[str], at: int) -> tuple[dict[str, str], int] | None:
    fields: dict[str, str] = {}
    for place in range(at + 1, min(len(contents), at + 2 + _MOST_FIELDS)):
        if contents[place] == "---":
            return fields, place + 1
        found = _FIELD.fullmatch(contents[place])
        if found is None:
            return None
        fields.setdefault(_key(found[1]), _value(found[2]))
    return None


def _in_italics(contents: Sequence[str], at: int) -> tuple[dict[str, str], int] | None:
    fields: dict[str, str] = {}
    place = at
    while place < len(contents) and (found := _ITALIC.fullmatch(contents[place])):
        fields.setdefault(_key(found[1]), _value(found[2]))
        place += 1
    return (fields, place) if fields else None


def _key(name: str) -> str:
    return "_".join(name.lower().split())


def _value(text: str) -> str:
    return text.strip().strip("`").strip()


def _without(text: str, lines: Sequence[Line]) -> str:
    breaks = "".join(text[line.end : line.next] for line in lines)
    return text[: lines[0].start] + breaks + text[lines[-1].next :]


class Cuts:
    """Disjoint spans, in order, that are cut out of a text."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._gone = [0]
        """Characters cut before each span, and in the end all of them."""
        for start, end in spans:
            self._gone.append(self._gone[-1] + end - start)

    def text(self, text: str) -> str:
        """What is left of ``text``."""
        kept = []
        at = 0
        for start, end in self._spans:
            kept.append(text[at:start])
            at = end
        kept.append(text[at:])
        return "".join(kept)

    def at(self, offset: int) -> int:
        """The new offset of the character at ``offset``; for one cut out, of that after it."""
        place = bisect_right(self._starts, offset)
        if place == 0:
            return offset
        start, end = self._spans[place - 1]
        return offset - self._gone[place - 1] - (min(offset, end) - start)

    def heading(self, heading: Heading) -> Heading:
        """The heading where it then stands."""
        return replace(heading, start=self.at(heading.start), end=self.at(heading.end))


_FRAME = re.compile(
    r"(?:visual |video |key ?)?(?:frame|keyframe|screenshot)(?: \d{1,6})?(?: at| @|:)? [\[(]?"
    rf"({CODE})(?![\d:])",
    re.ASCII | re.IGNORECASE,
)
_OCR_TITLE = re.compile(
    r"ocr(?: text| output| result)?|text(?: in (?:the )?image)?"
    r"|(?:extracted|recogni[sz]ed|visible|transcribed) text"
)
_CAPTION_TITLE = re.compile(
    r"(?:(?:image|thumbnail|visual) )?description|(?:image )?caption|alt(?: text)?"
)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A segment to be, in the text before its timecodes are cut out."""

    start: int
    end: int
    modality: Modality
    time_start: float | None = None
    time_end: float | None = None
    speaker: str | None = None


def timed(document: ParsedDocument, source: MadeOf) -> ParsedDocument:
    """The document with its segments, what it was made of, and no timecodes before its cues.

    A frame (``## Frame at 00:01:05``) runs to the next frame or the next heading that is not
    below its own. How transcripts are found is said in
    :mod:`catalog.ingest.readers.timed.transcript_lines`. In the text of an image every section
    is a caption, or OCR text if its heading or the file says so. The lines of the file stay
    the lines of the text. A title that is a frame's gives way to the recording's name.
    """
    frames = list(_frames(document))
    cues = transcript_lines(
        document.text,
        document.body_start,
        [heading for heading in document.headings if heading.start >= document.body_start],
        _joined([(each.start, each.end) for each in frames], document.atomic),
        is_declared=source.is_declared or source.is_recording or bool(frames),
        duration=source.duration,
    )
    if frames or cues:
        return _of_recording(document, source, frames, cues)
    if source.kind == "image" or source.modality in ("ocr", "image_caption") or source.is_scanned:
        stretches = list(_of_image(document, source))
        return _converted(replace(document, segments=_segments(document.text, stretches)), source)
    return _converted(document, source) if source.is_declared else document


def _of_recording(
    document: ParsedDocument, source: MadeOf, frames: Sequence[_Stretch], cues: Sequence[CueLines]
) -> ParsedDocument:
    named = source.name or source.recording
    medium = medium_of(document.path, named, is_frame=bool(frames) and not cues)
    is_audio = source.modality == "audio_transcript" or medium.file_type == "audio"
    spoken: Modality = "audio_transcript" if is_audio else "video_transcript"
    cuts = Cuts([(cue.cut_start, cue.cut_end) for cue in cues])
    text = cuts.text(document.text)
    stretches = [
        *frames,
        *(
            _Stretch(cue.start, cue.end, spoken, cue.time_start, cue.time_end, cue.speaker)
            for cue in cues
        ),
    ]
    moved = sorted(
        (replace(each, start=cuts.at(each.start), end=cuts.at(each.end)) for each in stretches),
        key=lambda each: each.start,
    )
    segments = _segments(text, moved)
    covered = sum(segment.end - segment.start for segment in segments)
    is_mostly = source.is_declared or 2 * covered >= len(text) - cuts.at(document.body_start)
    found = replace(
        document,
        text=text,
        title=medium.title if _FRAME.match(document.title) else document.title,
        headings=tuple(cuts.heading(heading) for heading in document.headings),
        atomic=tuple((cuts.at(start), cuts.at(end)) for start, end in document.atomic),
        body_start=cuts.at(document.body_start),
        segments=segments,
        metadata={**_timed_metadata(document.metadata, source), **medium.metadata()},
    )
    if not is_mostly:
        return found
    kind = source.kind if source.kind in ("video", "audio") else medium.file_type
    file_type = kind if kind in ("video", "audio") else ("audio" if is_audio else "video")
    return replace(found, file_type=file_type, source_type="transcript" if cues else "converted")


def _converted(document: ParsedDocument, source: MadeOf) -> ParsedDocument:
    """A document made of a file that tells no times."""
    medium = medium_of(document.path, source.name)
    is_known = medium.file is not None or source.kind is not None
    known = medium.metadata() if is_known else {}
    return replace(
        document,
        file_type=source.kind or medium.file_type or document.file_type,
        source_type="converted",
        metadata={**_timed_metadata(document.metadata, source), **known},
    )


def _timed_metadata(
    metadata: Mapping[str, MetadataValue], source: MadeOf
) -> dict[str, MetadataValue]:
    """The metadata with the length in seconds, or without one that is no length."""
    kept = {key: value for key, value in metadata.items() if key.casefold() != "duration"}
    return kept if source.duration is None else {**kept, "duration": source.duration}


def _frames(document: ParsedDocument) -> Iterator[_Stretch]:
    headings = [heading for heading in document.headings if heading.start >= document.body_start]
    shown: tuple[Heading, float] | None = None
    for heading in headings:
        found = _FRAME.match(heading.title)
        time = parse_timecode(found[1]) if found else None
        if shown is not None and (time is not None or heading.level <= shown[0].level):
            yield _frame(shown, heading.start)
            shown = None
        if time is not None:
            shown = heading, time
    if shown is not None:
        yield _frame(shown, len(document.text))


def _frame(shown: tuple[Heading, float], end: int) -> _Stretch:
    return _Stretch(shown[0].start, end, "video_frame", shown[1], shown[1])


def _of_image(document: ParsedDocument, source: MadeOf) -> Iterator[_Stretch]:
    """The whole body, cut where captions and OCR text follow each other."""
    usual: Modality = "ocr" if source.is_scanned else "image_caption"
    at, modality = document.body_start, usual
    for heading in document.headings:
        if heading.start < document.body_start:
            continue
        following = _modality_of(heading.title, usual)
        if following != modality:
            yield _Stretch(at, heading.start, modality)
            at, modality = heading.start, following
    yield _Stretch(at, len(document.text), modality)


def _modality_of(title: str, usual: Modality) -> Modality:
    name = title.casefold().strip().rstrip(":")
    if _OCR_TITLE.fullmatch(name):
        return "ocr"
    return "image_caption" if _CAPTION_TITLE.fullmatch(name) else usual


def _segments(text: str, stretches: Sequence[_Stretch]) -> tuple[Segment, ...]:
    """Segments without the white space around them; none for what is blank."""
    found = []
    for each in stretches:
        start = skip_space(text, each.start, each.end)
        end = trim_end(text, start, each.end)
        if start < end:
            times = (each.time_start, each.time_end)
            found.append(Segment(start, end, each.modality, *times, each.speaker))
    return tuple(found)


def _joined(*groups: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """All spans in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(span for group in groups for span in group):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
