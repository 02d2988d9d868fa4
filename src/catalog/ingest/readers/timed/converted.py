"""Text made from a recording or an image: frames, transcripts, captions, OCR text.

A converter names the original below the title: in fields between ``---`` lines (``video_source:
`lecture.mp4```), or in lines in italics (``*Original file: `photo.png`*``). Ordinary Markdown is
not changed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from catalog.core.documents import MetadataValue, Modality, ParsedDocument, Segment
from catalog.ingest.chunking.boundaries import skip_space, trim_end
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.timed.frames import (
    CONVERTED,
    RECORDINGS,
    file_type_of,
    find_frames,
    find_medium,
    media_file_name,
    read_seconds,
    title_without_time,
)
from catalog.ingest.readers.timed.transcripts import find_cues

_NAME, _NEXT = r"[A-Za-z][\w -]{0,40}:", r"[ \t]*+(?:\r\n?|\n)[ \t]*+"
_ITALIC = rf"[*_]{_NAME}[^\r\n]*[*_](?=[ \t]*(?:[\r\n]|\Z))"
_HEADER = re.compile(
    r"\s*+#{1,6}(?=\s)[^\r\n]*+\s++(?P<block>"
    rf"---(?P<ruled>(?:{_NEXT}{_NAME}[^\r\n]*+){{1,120}}){_NEXT}---(?=[ \t]*(?:[\r\n]|\Z))"
    rf"|{_ITALIC}(?:{_NEXT}{_ITALIC}){{0,120}})"
)
_FIELD = re.compile(r"(?:^|[\r\n])[ \t]*+[*_]?([A-Za-z][\w -]{0,40}):([^\r\n]*)")
_BREAK = re.compile(r"\r\n?|\n")
_CONVERTER_FIELDS = """
    source_file source_format source_url video_source original_file media frame_file thumbnail_file
    timestamp video_id modality ocr_model transcription_model transcript_source vision_model"""


def read_converter_header(text: str, start: int) -> tuple[dict[str, str], str] | None:
    """Return the fields of a converter's header in ``text[start:]``, and the text without it.

    Names are in lower case with ``_`` for blanks. Its lines stay in the text as empty lines, so
    that later lines keep their numbers. A header must have a heading above it.
    """
    if (header := _HEADER.match(text, start)) is None:
        return None
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(header["ruled"] or header["block"]):
        key = "_".join(name.lower().split())
        told = value.strip()[: None if header["ruled"] else -1].strip(" \t`")
        while fields.setdefault(key, told) != told:
            key += "_again"
    if not fields.keys() & set(_CONVERTER_FIELDS.split()):  # somebody's text between two rules
        return None
    breaks = "".join(_BREAK.findall(header["block"]))
    return fields, text[: header.start("block")] + breaks + text[header.end() :]


_SOURCE_KEYS = ("video_source", "source_file", "original_file", "media_file")
_MEDIA_KEYS = ("source", "media", "video", "audio", "recording", "image")
_KINDS = {"thumbnail_file": "image", "video_source": "video", "video_id": "video"}
_MODALITIES: tuple[Modality, ...] = ("ocr", "image_caption", "video_transcript", "audio_transcript")
_PART = re.compile(
    r"(?P<ocr>ocr(?: text| output| result)?|text(?: in (?:the )?image)?"
    r"|(?:extracted|recogni[sz]ed|visible|transcribed) text)"
    r"|(?:(?:image|thumbnail|visual) )?description|(?:image )?caption|alt(?: text)?"
)


def add_segments(
    document: ParsedDocument, stated: Mapping[Any, object], *, has_header: bool = False
) -> ParsedDocument:
    """Return the document with its segments and source, without timecodes before its cues.

    ``stated`` are the fields at its top. ``image: cover.png`` in front matter does not say where a
    text comes from, and neither does ``source: paper.pdf``: only a converter's header or its own
    terms do. A frame's title is replaced by the recording's name.
    """
    fields = {str(key).casefold(): value for key, value in stated.items()}
    modality = next((one for one in _MODALITIES if fields.get("modality") == one), None)
    files = [media_file_name(fields.get(key)) for key in _SOURCE_KEYS]
    media = [media_file_name(fields.get(key)) for key in _MEDIA_KEYS]
    name = next(filter(None, files + media if has_header or modality else files), None)
    medium = find_medium(document.path, name)
    recording = next((it for it in files + media if file_type_of(it or "") in RECORDINGS), None)
    is_converted = CONVERTED in document.path.split("/")
    is_named = bool(name) or is_converted or medium.file_type in RECORDINGS  # not by scan.pdf.md
    kinds = [kind for key, kind in _KINDS.items() if has_header and key in fields]
    kinds += filter(None, [file_type_of(f"x.{fields.get('source_format')}")])
    file_type = next(iter(kinds), medium.file_type if is_named else None)
    is_declared = has_header or is_converted or bool(file_type or modality)
    length = read_seconds(fields.get("duration")) or None
    told: dict[str, MetadataValue] = {"duration": length} if length else {}
    headings = [heading for heading in document.headings if heading.start >= document.body_start]
    frames, no_frame = find_frames(document, headings, fields)
    is_told = is_declared or recording is not None or bool(frames)
    cues, no_transcript = find_cues(document, headings, frames, is_declared=is_told, length=length)
    if not frames and not cues:
        document = replace(document, untimed=no_frame or no_transcript)
        said = {str(fields.get(key, "no")).lower() for key in ("ocr", "ocr_model")}
        is_scanned = modality == "ocr" or "ocr" in str(fields.get("method")).lower()
        is_scanned |= not said <= {"", "no", "none", "false", "0"}
        is_image = is_scanned or file_type == "image" or modality == "image_caption"
        if not is_declared and not is_image:
            return document
        file_type = file_type or medium.file_type
        told |= medium.metadata() if file_type else {}
        file_type = file_type or document.file_type
        document = replace(document, file_type=file_type, source_type="converted")
        parts = _image_segments(document, "ocr" if is_scanned else "image_caption")
        return _place(document, parts if is_image else [], [], told)
    name = recording or (None if file_type == "image" else name)
    medium = find_medium(document.path, name, is_frame=not cues)
    is_seen = bool(frames or {"video", "image"} & {file_type, medium.file_type})
    is_call = document.path.lower().endswith(".txt") and not is_seen and modality is None
    known = [one for one in (file_type, medium.file_type) if one in RECORDINGS]
    is_audio = modality == "audio_transcript" or "audio" in known or is_call
    spoken: Modality = "audio_transcript" if is_audio else "video_transcript"
    title = document.title
    if frames and (title_without_time(title) != title or title == choose_title(document.path)):
        document = replace(document, title=medium.title)
    segments = [*frames, *(replace(cue, modality=spoken) for cue, _ in cues)]
    document = _place(document, segments, [cut for _, cut in cues], told | medium.metadata())
    covered = sum(segment.end - segment.start for segment in document.segments)
    if not is_declared and 2 * covered < len(document.text) - document.body_start:
        return document
    file_type = (*known, "audio" if is_audio else "video")[0]
    return replace(document, file_type=file_type, source_type="transcript" if cues else "converted")


def _image_segments(document: ParsedDocument, default: Modality) -> list[Segment]:
    """Return the whole body, cut where captions and OCR text follow each other."""
    parts = [(document.body_start, default)]
    for heading in document.headings:
        part = _PART.fullmatch(heading.title.casefold().strip().rstrip(":"))
        modality = default if part is None else "ocr" if part["ocr"] else "image_caption"
        if modality != parts[-1][1] and heading.start >= document.body_start:
            parts.append((heading.start, modality))
    ends = [*(start for start, _ in parts[1:]), len(document.text)]
    return [Segment(at, end, kind) for (at, kind), end in zip(parts, ends, strict=True)]


def _place(
    document: ParsedDocument,
    segments: Iterable[Segment],
    cuts: Sequence[tuple[int, int]],
    told: Mapping[str, MetadataValue],
) -> ParsedDocument:
    """Return the document with its medium and its segments, without the disjoint cuts."""
    starts = [start for start, _ in cuts]
    ends = [0, *(end for _, end in cuts)]
    cut_before = [0, *accumulate(end - start for start, end in cuts)]

    def move(offset: int) -> int:
        at = bisect_right(starts, offset)
        return offset - cut_before[at] + max(0, ends[at] - offset)

    kept = zip(ends, [*starts, len(document.text)], strict=True)
    text = "".join(document.text[start:end] for start, end in kept)
    placed = []
    for segment in sorted(segments, key=lambda segment: segment.start):
        start = skip_space(text, move(segment.start), end := move(segment.end))
        if start < (end := trim_end(text, start, end)):
            placed.append(replace(segment, start=start, end=end))
    headings = [replace(one, start=move(one.start), end=move(one.end)) for one in document.headings]
    tables = [one._replace(start=move(one.start), end=move(one.end)) for one in document.tables]
    metadata = {key: it for key, it in document.metadata.items() if key.casefold() != "duration"}
    return replace(
        document,
        text=text,
        headings=tuple(headings),
        atomic=tuple((move(start), move(end)) for start, end in document.atomic),
        tables=tuple(tables),
        body_start=move(document.body_start),
        segments=tuple(placed),
        metadata={**metadata, **told},
        written=document.written - ({"media", "media_file"} & told.keys()),
    )
