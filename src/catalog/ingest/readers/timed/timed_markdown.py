"""Text made from a recording or an image: frames, transcripts, captions, OCR text.

A converter names the original below the title: in fields between ``---`` lines (``video_source:
`lecture.mp4```), or in lines in italics (``*Original file: `photo.png`*``). Ordinary Markdown is
not changed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from catalog.core.documents import Heading, MetadataValue, Modality, ParsedDocument, Segment, Table
from catalog.ingest.chunking.boundaries import Line, iter_lines, skip_space, trim_end
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE
from catalog.ingest.readers.timed.source_media import (
    SourceMedia,
    find_frames,
    find_medium,
    is_frame_title,
    split_extension,
    title_without_time,
)
from catalog.ingest.readers.timed.transcript_lines import CueLines, find_cues

_HEADING = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_FIELD = re.compile(r"([A-Za-z][\w -]{0,40}):[ \t]*(.*)")
_ITALIC = re.compile(r"[*_]([A-Za-z][\w -]{0,40}):[ \t]*+(.*?)[*_]")
_MAX_FIELDS = 40
_MAX_FIELD = 2000
_CONVERTER_FIELDS = frozenset(
    [
        *("source_file", "source_format", "source_url", "video_source", "original_file", "media"),
        *("frame_file", "thumbnail_file", "timestamp", "video_id", "modality", "ocr_model"),
        *("transcription_model", "transcript_source", "vision_model"),
    ]
)
"""A block with none of these is somebody's text between two rules."""


def read_converter_header(text: str, start: int) -> tuple[dict[str, str], str] | None:
    """Return the fields of a converter's header in ``text[start:]``, and the text without it.

    Names are in lower case with ``_`` for blanks. Its lines stay in the text as empty lines, so
    that later lines keep their numbers. A header with nothing visible after it counts, too, if
    there is a heading above it.
    """
    lines = _first_lines(text, start)
    contents = [text[line.start : line.end].strip() for line in lines]
    at = _next_filled(contents, 0)
    if at is None or _HEADING.match(contents[at]) is None:
        return None
    at = _next_filled(contents, at + 1)
    if at is None:
        return None
    is_between_rules = contents[at] == "---"
    block = _read_rules(contents, at) if is_between_rules else _read_italics(contents, at)
    if block is None or _CONVERTER_FIELDS.isdisjoint(block[0]):
        return None
    fields, after = block
    breaks = "".join(text[line.end : line.next] for line in lines[at:after])
    return fields, text[: lines[at].start] + breaks + text[lines[after - 1].next :]


def _first_lines(text: str, start: int) -> list[Line]:
    lines = []
    for line in iter_lines(text, start):
        lines.append(line)
        if len(lines) >= 3 * _MAX_FIELDS or line.end - line.start > _MAX_FIELD:
            break
    return lines


def _next_filled(contents: Sequence[str], at: int) -> int | None:
    return next((place for place in range(at, len(contents)) if contents[place]), None)


def _read_rules(contents: Sequence[str], at: int) -> tuple[dict[str, str], int] | None:
    """Return the fields between the rule at ``at`` and the next, and the following line."""
    fields: dict[str, str] = {}
    for place in range(at + 1, min(len(contents), at + 2 + _MAX_FIELDS)):
        if contents[place] == "---":
            return fields, place + 1
        match = _FIELD.fullmatch(contents[place])
        if match is None:
            return None
        _add_field(fields, match)
    return None


def _read_italics(contents: Sequence[str], at: int) -> tuple[dict[str, str], int] | None:
    """Return the fields in italics from ``at`` on, and the following line."""
    fields: dict[str, str] = {}
    place = at
    while place < len(contents) and (match := _ITALIC.fullmatch(contents[place])):
        _add_field(fields, match)
        place += 1
    return (fields, place) if fields else None


def _add_field(fields: dict[str, str], match: re.Match[str]) -> None:
    name = "_".join(match[1].lower().split())
    value = match[2].strip().strip("`").strip()
    if fields.setdefault(name, value) != value and name == LEVEL:
        fields[name] = UNREADABLE


_OCR_TITLE = re.compile(
    r"ocr(?: text| output| result)?|text(?: in (?:the )?image)?"
    r"|(?:extracted|recogni[sz]ed|visible|transcribed) text"
)
_NAMING_THE_SOURCE = frozenset(["media", "media_file"])
_CAPTION_TITLE = re.compile(
    r"(?:(?:image|thumbnail|visual) )?description|(?:image )?caption|alt(?: text)?"
)


def add_segments(document: ParsedDocument, source: SourceMedia) -> ParsedDocument:
    """Return the document with its segments and source, without timecodes before its cues.

    :mod:`catalog.ingest.readers.timed.source_media` finds frames,
    :mod:`catalog.ingest.readers.timed.transcript_lines` transcripts. ``untimed`` has the reason why
    a document that looks like either is not read as one. In the text of an image every section is a
    caption, or OCR text if its heading or the file says so. The lines of the file stay the lines of
    the text. A frame's title is replaced by the recording's name.
    """
    headings = [heading for heading in document.headings if heading.start >= document.body_start]
    frames, no_frame = find_frames(document, headings, source.second, is_frame=source.is_frame)
    is_recording = source.is_recording or bool(frames)
    cues, no_transcript = find_cues(
        document.text,
        document.body_start,
        headings,
        _merge_spans([*((frame.start, frame.end) for frame in frames), *document.atomic]),
        is_declared=source.is_declared or is_recording,
        is_recording=is_recording,
        is_called_transcript=source.is_transcript,
        duration=source.duration,
    )
    if frames or cues:
        return _as_recording(document, source, frames, cues)
    document = replace(document, untimed=no_frame or no_transcript)
    if (
        source.file_type == "image"
        or source.modality in ("ocr", "image_caption")
        or source.is_scanned
    ):
        segments = _trim(document.text, _image_segments(document, headings, source))
        return _as_converted(replace(document, segments=segments), source)
    return _as_converted(document, source) if source.is_declared else document


def _as_recording(
    document: ParsedDocument,
    source: SourceMedia,
    frames: Sequence[Segment],
    cues: Sequence[CueLines],
) -> ParsedDocument:
    name = source.name or source.recording
    if frames and not cues and source.file_type == "image":
        name = source.recording  # its own file is the picture of the frame
    medium = find_medium(document.path, name, is_frame=bool(frames) and not cues)
    is_audio = source.modality == "audio_transcript" or medium.file_type == "audio"
    is_audio = is_audio or (
        not frames
        and split_extension(document.path)[1].lower() == "txt"
        and source.modality is None
        and not {source.file_type, medium.file_type}.intersection(("video", "image"))
    )
    modality: Modality = "audio_transcript" if is_audio else "video_transcript"
    cuts = _Cuts([(cue.cut_start, cue.cut_end) for cue in cues])
    text = cuts.apply(document.text)
    spoken = [
        Segment(cue.start, cue.end, modality, cue.time_start, cue.time_end, cue.speaker)
        for cue in cues
    ]
    segments = sorted(map(cuts.shift, [*frames, *spoken]), key=lambda segment: segment.start)
    recording = replace(
        document,
        text=text,
        title=medium.title if _is_title_of_frame(document, frames) else document.title,
        headings=tuple(map(cuts.shift, document.headings)),
        atomic=tuple((cuts.move(start), cuts.move(end)) for start, end in document.atomic),
        tables=tuple(
            Table(cuts.move(start), cuts.move(end), names) for start, end, names in document.tables
        ),
        body_start=cuts.move(document.body_start),
        segments=_trim(text, segments),
        metadata={**_with_duration(document.metadata, source), **medium.metadata()},
        written=document.written - _NAMING_THE_SOURCE.intersection(medium.metadata()),
    )
    covered = sum(segment.end - segment.start for segment in recording.segments)
    if not (source.is_declared or 2 * covered >= len(text) - recording.body_start):
        return recording
    file_types = [source.file_type, medium.file_type, "audio" if is_audio else "video"]
    return replace(
        recording,
        file_type=next(name for name in file_types if name in ("video", "audio")),
        source_type="transcript" if cues else "converted",
    )


def _is_title_of_frame(document: ParsedDocument, frames: Sequence[Segment]) -> bool:
    """Return whether the title is a heading with a frame's time, or a frame file's name."""
    if is_frame_title(document.title):
        return True
    is_timed = title_without_time(document.title) != document.title
    return bool(frames) and (is_timed or document.title == choose_title(document.path))


def _as_converted(document: ParsedDocument, source: SourceMedia) -> ParsedDocument:
    """Return a document converted from a file without times."""
    medium = find_medium(document.path, source.name)
    is_known = medium.file is not None or source.file_type is not None
    told = medium.metadata() if is_known else {}
    return replace(
        document,
        file_type=source.file_type or medium.file_type or document.file_type,
        source_type="converted",
        metadata={**_with_duration(document.metadata, source), **told},
        written=document.written - _NAMING_THE_SOURCE.intersection(told),
    )


def _with_duration(
    metadata: Mapping[str, MetadataValue], source: SourceMedia
) -> dict[str, MetadataValue]:
    """Return the metadata with the duration in seconds, without an invalid one."""
    others = {key: value for key, value in metadata.items() if key.casefold() != "duration"}
    return others if source.duration is None else {**others, "duration": source.duration}


def _image_segments(
    document: ParsedDocument, headings: Sequence[Heading], source: SourceMedia
) -> Iterator[Segment]:
    """Yield the whole body, cut where captions and OCR text follow each other."""
    default: Modality = "ocr" if source.is_scanned else "image_caption"
    at, modality = document.body_start, default
    for heading in headings:
        following = _section_modality(heading.title, default)
        if following != modality:
            yield Segment(at, heading.start, modality)
            at, modality = heading.start, following
    yield Segment(at, len(document.text), modality)


def _section_modality(title: str, default: Modality) -> Modality:
    name = title.casefold().strip().rstrip(":")
    if _OCR_TITLE.fullmatch(name):
        return "ocr"
    return "image_caption" if _CAPTION_TITLE.fullmatch(name) else default


def _trim(text: str, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return segments without the white space around them; blank ones are dropped."""
    trimmed = []
    for segment in segments:
        start = skip_space(text, segment.start, segment.end)
        end = trim_end(text, start, segment.end)
        if start < end:
            trimmed.append(replace(segment, start=start, end=end))
    return tuple(trimmed)


def _merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return all spans in order; those that overlap are joined."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


_Stretch = TypeVar("_Stretch", Heading, Segment)


class _Cuts:
    """Disjoint spans, in order, to cut out of a text."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._cut_before = [0]
        """Characters cut before each span, and in the end all of them."""
        for start, end in spans:
            self._cut_before.append(self._cut_before[-1] + end - start)

    def apply(self, text: str) -> str:
        """Return ``text`` without the cut spans."""
        starts = [0, *(end for _, end in self._spans)]
        ends = [*self._starts, len(text)]
        return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))

    def move(self, offset: int) -> int:
        """Return the new offset of a character; for a cut one, that of the next character."""
        place = bisect_right(self._starts, offset)
        if place == 0:
            return offset
        start, end = self._spans[place - 1]
        return offset - self._cut_before[place - 1] - (min(offset, end) - start)

    def shift(self, stretch: _Stretch) -> _Stretch:
        """Return a heading or segment with its new offsets."""
        return replace(stretch, start=self.move(stretch.start), end=self.move(stretch.end))
