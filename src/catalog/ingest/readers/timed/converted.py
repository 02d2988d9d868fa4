"""Text made from a recording or an image: frames, transcripts, captions, OCR text.

A converter names the original below the title: in fields between ``---`` lines (``video_source:
`lecture.mp4```), or in lines in italics (``*Original file: `photo.png`*``).
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from catalog.core.documents import Modality, ParsedDocument, Segment
from catalog.ingest.chunking.boundaries import skip_space, trim_end
from catalog.ingest.chunking.cut import Span
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.timed import frames
from catalog.ingest.readers.timed.frames import RECORDINGS, file_type_of, find_medium
from catalog.ingest.readers.timed.transcripts import find_cues

_NAME, _NEXT = r"[A-Za-z][\w -]{0,40}:", r"[ \t]*+(?:\r\n?|\n)[ \t]*+"
_ITALIC = rf"[*_]{_NAME}[^\r\n]*[*_](?=[ \t]*(?:[\r\n]|\Z))"
_HEADER = re.compile(
    r"\s*+#{1,6}(?=\s)[^\r\n]*+\s++(?P<block>"
    rf"---(?P<ruled>(?:{_NEXT}{_NAME}[^\r\n]*+){{1,120}}){_NEXT}---(?=[ \t]*(?:[\r\n]|\Z))"
    rf"|{_ITALIC}(?:{_NEXT}{_ITALIC}){{0,120}})"
)
_FIELD = re.compile(r"(?:^|[\r\n])[ \t]*+[*_]?([A-Za-z][\w -]{0,40}):([^\r\n]*)")
_CONVERTER_FIELDS = """
    source_file source_format source_url video_source original_file media frame_file thumbnail_file
    timestamp video_id modality ocr_model transcription_model transcript_source vision_model"""


def read_converter_header(text: str, start: int) -> tuple[dict[str, str], str] | None:
    """Return the fields of a converter's header in ``text[start:]``, and the text without it.

    Names are in lower case with ``_`` for blanks. Its lines stay as empty lines.
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
    breaks = re.sub(r"[^\r\n]+", "", header["block"])
    return fields, text[: header.start("block")] + breaks + text[header.end() :]


_FILES = ("video_source", "source_file", "original_file", "media_file")
_MEDIA = ("source", "media", "video", "audio", "recording", "image")
_KINDS = {"thumbnail_file": "image", "video_source": "video", "video_id": "video"}
_MODALITIES: tuple[Modality, ...] = ("ocr", "image_caption", "video_transcript", "audio_transcript")
_NO = ("", "no", "none", "false")
_PART = re.compile(
    r"(?i)(?P<ocr>ocr(?: text| output| result)?|text(?: in (?:the )?image)?"
    r"|(?:extracted|recogni[sz]ed|visible|transcribed) text)"
    r"|(?:(?:image|thumbnail|visual) )?description|(?:image )?caption|alt(?: text)?"
)


def add_segments(
    document: ParsedDocument, stated: Mapping[Any, object], *, has_header: bool = False
) -> ParsedDocument:
    """Return the document with its segments and source, without timecodes before its cues.

    ``stated`` are the fields at its top. ``image: cover.png`` and ``source: paper.pdf`` in front
    matter do not say where a text comes from: only a converter's header or its own terms do.
    """
    path, said = document.path, {str(key).casefold(): value for key, value in stated.items()}
    fields = {key: it for key, it in said.items() if str(it).lower() not in _NO}
    modality = next((one for one in _MODALITIES if fields.get("modality") == one), None)
    named = {key: frames.media_file_name(fields.get(key)) for key in (*_FILES, *_MEDIA)}
    name = next(filter(None, map(named.get, named if has_header or modality else _FILES)), None)
    recording = next((it for it in named.values() if file_type_of(it or "") in RECORDINGS), None)
    title, medium_type, medium = find_medium(path, name)
    is_converted = frames.CONVERTED in path.split("/")
    kinds = [kind for key, kind in _KINDS.items() if has_header and key in fields]
    kinds += filter(None, [file_type_of(f"x.{fields.get('source_format')}")])
    if medium_type and (name or is_converted or medium_type in RECORDINGS):  # not scan.pdf.md
        kinds.append(medium_type)
    is_declared = bool(has_header or is_converted or kinds or modality)
    length = frames.read_seconds(fields.get("duration"))
    shown, no_frame = frames.find_frames(document, fields)
    is_named = bool(is_declared or recording or shown)
    cues, no_transcript = find_cues(document, shown, is_named=is_named, length=length)
    if shown or cues:
        name = recording or (None if kinds[:1] == ["image"] else name)  # a frame's own picture
        title, medium_type, medium = find_medium(path, name, is_frame=not cues)
        kinds = [kind for kind in (*kinds[:1], medium_type) if kind in RECORDINGS]
        is_call = path.lower().endswith(".txt") and not (shown or modality or kinds)
        is_audio = "audio" in kinds or modality == "audio_transcript" or is_call
        spoken: Modality = "audio_transcript" if is_audio else "video_transcript"
        kinds.append(spoken.removesuffix("_transcript"))
        segments = [*shown, *(replace(cue, modality=spoken) for cue, _ in cues)]
        own = document.title
        if shown and (own == choose_title(path) or own != frames.title_without_time(own)):
            document = replace(document, title=title)
    else:
        document = replace(document, untimed=no_frame or no_transcript)
        told = f"{modality} {fields.get('method')}".lower()
        ocr = "ocr" in told or "ocr" in fields or "ocr_model" in fields
        is_image = ocr or kinds[:1] == ["image"] or modality == "image_caption"
        if not is_declared and not is_image:
            return document
        segments = _parts(document, "ocr" if ocr else "image_caption") if is_image else []
        medium = medium if kinds or medium_type else {}
    document = _cut(document, segments, [cut for _, cut in cues])
    metadata = {**document.metadata, **({"duration": length} if length else {}), **medium}
    written = document.written - ({"media", "media_file"} & medium.keys())
    document = replace(document, metadata=metadata, written=written)
    covered = sum(segment.end - segment.start for segment in document.segments)
    if not is_declared and 2 * covered < len(document.text) - document.body_start:
        return document  # a note with a short transcript in it
    file_type = next(filter(None, [*kinds, medium_type]), document.file_type)
    return replace(document, file_type=file_type, source_type="transcript" if cues else "converted")


def _parts(document: ParsedDocument, default: Modality) -> list[Segment]:
    """Return the whole body, cut where captions and OCR text follow each other."""
    parts = [(document.body_start, default)]
    for heading in document.headings:
        part = _PART.fullmatch(heading.title.strip().rstrip(":"))
        modality = default if part is None else "ocr" if part["ocr"] else "image_caption"
        parts += [(heading.start, modality)] if modality != parts[-1][1] else []
    ends = [*(start for start, _ in parts[1:]), len(document.text)]
    return [Segment(at, end, kind) for (at, kind), end in zip(parts, ends, strict=True)]


def _cut(document: ParsedDocument, segments: list[Segment], cuts: list[Span]) -> ParsedDocument:
    """Return the document with its segments and without the disjoint cuts."""
    starts, ends = [start for start, _ in cuts], [0, *(end for _, end in cuts)]
    removed = [0, *accumulate(end - start for start, end in cuts)]

    def move(offset: int) -> int:
        at = bisect_right(starts, offset)
        return max(offset, ends[at]) - removed[at]

    kept = zip(ends, [*starts, len(document.text)], strict=True)
    text, placed = "".join(document.text[start:end] for start, end in kept), list[Segment]()
    for segment in sorted(segments, key=lambda segment: segment.start):
        start = skip_space(text, move(segment.start), end := move(segment.end))
        if start < (end := trim_end(text, start, end)):
            placed.append(replace(segment, start=start, end=end))
    headings = [replace(one, start=move(one.start), end=move(one.end)) for one in document.headings]
    tables = [one._replace(start=move(one.start), end=move(one.end)) for one in document.tables]
    return replace(
        document,
        text=text,
        headings=tuple(headings),
        atomic=tuple((move(start), move(end)) for start, end in document.atomic),
        tables=tuple(tables),
        segments=tuple(placed),
    )
