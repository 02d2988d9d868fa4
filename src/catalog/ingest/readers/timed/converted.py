"""Text made from a recording or an image: frames, transcripts, captions, OCR text.

A converter names the original below the title: in fields between ``---`` lines (``video_source:
`lecture.mp4```), or in lines in italics (``*Original file: `photo.png`*``). Ordinary Markdown is
not changed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, islice

from catalog.core.documents import Modality, ParsedDocument, Segment
from catalog.ingest.chunking.boundaries import iter_lines, skip_space, trim_end
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE
from catalog.ingest.readers.timed.frames import (
    RECORDINGS,
    Medium,
    SourceMedia,
    find_frames,
    find_medium,
    is_frame_title,
    title_without_time,
)
from catalog.ingest.readers.timed.transcripts import find_cues

_HEADING = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_FIELD = re.compile(r"([A-Za-z][\w -]{0,40}):[ \t]*(.*)")
_ITALIC = re.compile(r"[*_]([A-Za-z][\w -]{0,40}):[ \t]*+(.*?)[*_]")
_MOST_LINES, _LONGEST_LINE = 120, 2000
_CONVERTER_FIELDS = """
    source_file source_format source_url video_source original_file media frame_file thumbnail_file
    timestamp video_id modality ocr_model transcription_model transcript_source vision_model"""
"""A block with none of these is somebody's text between two rules."""
_OCR_TITLE = re.compile(
    r"ocr(?: text| output| result)?|text(?: in (?:the )?image)?"
    r"|(?:extracted|recogni[sz]ed|visible|transcribed) text"
)
_CAPTION_TITLE = re.compile(
    r"(?:(?:image|thumbnail|visual) )?description|(?:image )?caption|alt(?: text)?"
)


def read_converter_header(text: str, start: int) -> tuple[dict[str, str], str] | None:
    """Return the fields of a converter's header in ``text[start:]``, and the text without it.

    Names are in lower case with ``_`` for blanks. Its lines stay in the text as empty lines, so
    that later lines keep their numbers. A header must have a heading above it.
    """
    lines = list(islice(iter_lines(text, start), _MOST_LINES))
    contents = [text[one.start : min(one.end, one.start + _LONGEST_LINE)].strip() for one in lines]
    filled = [at for at, content in enumerate(contents) if content][:2]
    if len(filled) < 2 or _HEADING.match(contents[filled[0]]) is None:
        return None
    first = at = filled[1]
    is_ruled = contents[first] == "---"
    fields: dict[str, str] = {}
    for content in contents[first + is_ruled :]:
        if (match := (_FIELD if is_ruled else _ITALIC).fullmatch(content)) is None:
            break
        name, value = "_".join(match[1].lower().split()), match[2].strip().strip("`").strip()
        if fields.setdefault(name, value) != value and name == LEVEL:
            fields[name] = UNREADABLE
        at += 1
    after = first + is_ruled + (at - first)
    if is_ruled:
        if contents[after : after + 1] != ["---"]:
            return None
        after += 1
    if not fields.keys() & set(_CONVERTER_FIELDS.split()):
        return None
    breaks = "".join(text[line.end : line.next] for line in lines[first:after])
    return fields, text[: lines[first].start] + breaks + text[lines[after - 1].next :]


def add_segments(document: ParsedDocument, source: SourceMedia) -> ParsedDocument:
    """Return the document with its segments and source, without timecodes before its cues.

    ``untimed`` has the reason why a document that looks like frames or a transcript is not read as
    one. In the text of an image every section is a caption, or OCR text if its heading or the file
    says so. The lines of the file stay the lines of the text. A frame's title is replaced by the
    recording's name.
    """
    headings = [heading for heading in document.headings if heading.start >= document.body_start]
    frames, no_frame = find_frames(document, headings, source.second, is_frame=source.is_frame)
    is_recording = source.file_type in RECORDINGS or source.recording is not None or bool(frames)
    cues, no_transcript = find_cues(
        document.text,
        document.body_start,
        headings,
        _merge([*((frame.start, frame.end) for frame in frames), *document.atomic]),
        is_declared=source.is_declared or is_recording,
        is_called_transcript=source.is_transcript,
        duration=source.duration,
    )
    if not frames and not cues:
        document = replace(document, untimed=no_frame or no_transcript)
        is_image = source.file_type == "image" or source.modality in ("ocr", "image_caption")
        if is_image or source.is_scanned:
            document = replace(document, segments=_image_segments(document, source))
        elif not source.is_declared:
            return document
        medium = find_medium(document.path, source.name)
        file_type = source.file_type or medium.file_type
        document = _of_medium(document, medium if medium.file or file_type else None, source)
        return replace(document, file_type=file_type or document.file_type, source_type="converted")
    name = source.name or source.recording
    if frames and not cues and source.file_type == "image":
        name = source.recording  # its own file is the picture of the frame
    medium = find_medium(document.path, name, is_frame=bool(frames) and not cues)
    types = {source.file_type, medium.file_type}
    is_call = document.path.lower().endswith(".txt") and not (frames or source.modality)
    is_audio = source.modality == "audio_transcript" or medium.file_type == "audio"
    is_audio = is_audio or (is_call and not types & {"video", "image"})
    modality: Modality = "audio_transcript" if is_audio else "video_transcript"
    segments = [replace(cue, modality=modality) for cue, _ in cues]
    title = document.title
    is_timed = title_without_time(title) != title or title == choose_title(document.path)
    if is_frame_title(title) or (frames and is_timed):
        title = medium.title
    document = replace(document, title=title, segments=(*frames, *segments))
    document = _cut_out(_of_medium(document, medium, source), [cut for _, cut in cues])
    covered = sum(segment.end - segment.start for segment in document.segments)
    if not source.is_declared and 2 * covered < len(document.text) - document.body_start:
        return document
    told = [one for one in (source.file_type, medium.file_type) if one in RECORDINGS]
    return replace(
        document,
        file_type=[*told, "audio" if is_audio else "video"][0],
        source_type="transcript" if cues else "converted",
    )


def _of_medium(
    document: ParsedDocument, medium: Medium | None, source: SourceMedia
) -> ParsedDocument:
    """Return the document with the names of its original, and its length in seconds if valid."""
    told = medium.metadata() if medium else {}
    metadata = {key: it for key, it in document.metadata.items() if key.casefold() != "duration"}
    length = {} if source.duration is None else {"duration": source.duration}
    written = document.written - ({"media", "media_file"} & told.keys())
    return replace(document, metadata={**metadata, **length, **told}, written=written)


def _image_segments(document: ParsedDocument, source: SourceMedia) -> tuple[Segment, ...]:
    """Return the whole body, cut where captions and OCR text follow each other."""
    default: Modality = "ocr" if source.modality == "ocr" or source.is_scanned else "image_caption"
    parts: list[tuple[int, Modality]] = [(document.body_start, default)]
    for heading in document.headings:
        name = heading.title.casefold().strip().rstrip(":")
        is_caption = _CAPTION_TITLE.fullmatch(name) is not None
        modality = (
            "ocr" if _OCR_TITLE.fullmatch(name) else "image_caption" if is_caption else default
        )
        if modality != parts[-1][1] and heading.start >= document.body_start:
            parts.append((heading.start, modality))
    ends = [*(start for start, _ in parts[1:]), len(document.text)]
    segments = [Segment(at, end, kind) for (at, kind), end in zip(parts, ends, strict=True)]
    return _trim(document.text, segments, lambda offset: offset)


def _cut_out(document: ParsedDocument, spans: Sequence[tuple[int, int]]) -> ParsedDocument:
    """Return the document without the disjoint spans, with all its offsets moved."""
    starts = [start for start, _ in spans]
    ends = [0, *(end for _, end in spans)]
    cut_before = [0, *accumulate(end - start for start, end in spans)]

    def move(offset: int) -> int:
        at = bisect_right(starts, offset)
        return offset - cut_before[at] + max(0, ends[at] - offset)

    kept = zip(ends, [*starts, len(document.text)], strict=True)
    text = "".join(document.text[start:end] for start, end in kept)
    segments = sorted(document.segments, key=lambda segment: segment.start)
    return replace(
        document,
        text=text,
        headings=tuple(
            replace(one, start=move(one.start), end=move(one.end)) for one in document.headings
        ),
        atomic=tuple((move(start), move(end)) for start, end in document.atomic),
        tables=tuple(
            one._replace(start=move(one.start), end=move(one.end)) for one in document.tables
        ),
        body_start=move(document.body_start),
        segments=_trim(text, segments, move),
    )


def _trim(
    text: str, segments: Sequence[Segment], move: Callable[[int], int]
) -> tuple[Segment, ...]:
    """Return moved segments without the white space around them; blank ones are dropped."""
    trimmed = []
    for segment in segments:
        start, end = move(segment.start), move(segment.end)
        start = skip_space(text, start, end)
        if start < (end := trim_end(text, start, end)):
            trimmed.append(replace(segment, start=start, end=end))
    return tuple(trimmed)


def _merge(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return all spans in order; those that overlap are joined."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
