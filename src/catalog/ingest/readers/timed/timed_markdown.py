"""Text that was made of a recording or an image: frames, transcripts, captions, OCR text.

Ordinary Markdown comes out as it went in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.core.models import Heading, MetadataValue, Modality, ParsedDocument, Segment
from catalog.ingest.chunking.breaks import skip_space, trim_end
from catalog.ingest.readers.timed.cutting import Cuts
from catalog.ingest.readers.timed.made_of import MadeOf
from catalog.ingest.readers.timed.media import medium_of
from catalog.ingest.readers.timed.timecodes import CODE, parse_timecode
from catalog.ingest.readers.timed.transcript_lines import CueLines, transcript_lines

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
