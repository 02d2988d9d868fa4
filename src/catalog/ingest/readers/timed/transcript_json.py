"""Transcripts as JSON: of YouTube, of whisper and its kin, of services that tell speakers apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.base import title_or_stem
from catalog.ingest.readers.timed.cues import HeardCue, transcript
from catalog.ingest.readers.timed.source_media import medium_of, recording_fields
from catalog.ingest.readers.timed.timecodes import parse_timecode, valid_seconds

_LISTS = ("snippets", "segments", "utterances", "transcript", "transcription", "events")
_VIDEO_ID = re.compile(r"[A-Za-z0-9_-]{11}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8}){0,3}")
_SLOWEST_SPEECH = 0.5
"""Characters in a second under which whole numbers can only be milliseconds (usual: 15)."""
_THOUSAND = 1000.0


def read_transcript_json(text: str, path: str) -> ParsedDocument | None:
    """The transcript that the JSON is, a line for each cue, or ``None`` if it is something else.

    Known are lists of ``{text, start, duration | end}`` (bare, or under ``transcript``,
    ``snippets`` or ``segments``: youtube-transcript-api, whisper, WhisperX), YouTube's json3
    (``events``), whisper.cpp (``transcription``), and ``utterances`` with speakers (Deepgram,
    AssemblyAI). At least half of the items must have both words and a time.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cues = _cues(data)
    if not cues:
        return None
    top = data if isinstance(data, Mapping) else {}
    medium = medium_of(path, _named(top))
    spoken = transcript(cues, medium.transcript_modality)
    if not spoken.segments:
        return None
    return ParsedDocument(
        path=path,
        text=spoken.text,
        title=title_or_stem(top.get("title"), medium.key),
        file_type=medium.file_type or "video",
        source_type="transcript",
        metadata={**medium.metadata(), **_metadata(top)},
        segments=spoken.segments,
    )


def _cues(data: object) -> list[HeardCue]:
    """The cues that the data holds; none if it is no transcript."""
    for items in _lists(data):
        cues = [cue for item in items if (cue := _cue(item)) is not None]
        if cues and 2 * sum(cue.start is not None for cue in cues) >= len(items):
            return _in_seconds(cues, data)
    return []


def _lists(data: object) -> Iterator[Sequence[Any]]:
    if isinstance(data, list):
        yield data
    if not isinstance(data, Mapping):
        return
    results = data.get("results")
    for holder in (data, results if isinstance(results, Mapping) else {}):
        for name in _LISTS:
            items = holder.get(name)
            if isinstance(items, list):
                is_json3 = name == "events"
                yield [item for item in items if _has_words(item)] if is_json3 else items


def _has_words(event: object) -> bool:
    """Whether an event of json3 says anything: others only set up windows and line breaks."""
    return isinstance(event, Mapping) and not _joined_words(event.get("segs")).isspace()


def _cue(item: object) -> HeardCue | None:
    if not isinstance(item, Mapping):
        return None
    words = item.get("text", item.get("transcript"))
    if isinstance(item.get("segs"), list):
        words = _joined_words(item["segs"])
    if not isinstance(words, str) or not words.strip():
        return None
    start, end = _times(item)
    lines = tuple(" ".join(line.split()) for line in words.splitlines() if line.strip())
    return HeardCue(lines, start, end, _speaker(item.get("speaker")))


def _joined_words(parts: object) -> str:
    if not isinstance(parts, list):
        return " "
    words = [part.get("utf8") for part in parts if isinstance(part, Mapping)]
    return "".join(word for word in words if isinstance(word, str)) or " "


def _times(item: Mapping[str, object]) -> tuple[float | None, float | None]:
    if "tStartMs" in item:
        return _span(item.get("tStartMs"), None, item.get("dDurationMs"), unit=_THOUSAND)
    offsets = item.get("offsets")
    if isinstance(offsets, Mapping):
        return _span(offsets.get("from"), offsets.get("to"), None, unit=_THOUSAND)
    return _span(item.get("start"), item.get("end"), item.get("duration"))


def _span(
    start: object, end: object, duration: object, *, unit: float = 1.0
) -> tuple[float | None, float | None]:
    first, last, length = (_number(value, unit) for value in (start, end, duration))
    if last is None and first is not None and length is not None:
        last = valid_seconds(round(first + length, 6))
    return first, last


def _number(value: object, unit: float) -> float | None:
    if isinstance(value, str) and ":" in value:
        return parse_timecode(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return valid_seconds(float(value) / unit)
    except (ValueError, OverflowError):
        return None


def _speaker(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    name = storable(" ".join(str(value).split())[:80].strip())
    return (
        f"Speaker {name}"
        if name.isdecimal() or (len(name) == 1 and name.isalpha())
        else name or None
    )


def _in_seconds(cues: list[HeardCue], data: object) -> list[HeardCue]:
    """The cues as they are, or with milliseconds made seconds where they can be nothing else."""
    if not _is_in_milliseconds(cues, data):
        return cues
    return [HeardCue(cue.lines, _less(cue.start), _less(cue.end), cue.speaker) for cue in cues]


def _is_in_milliseconds(cues: Sequence[HeardCue], data: object) -> bool:
    if not isinstance(data, Mapping) or not isinstance(data.get("utterances"), list):
        return False
    times = [time for cue in cues for time in (cue.start, cue.end) if time is not None]
    length = _number(data.get("audio_duration"), 1.0)
    if length:
        return max(times) > 2 * length
    if not all(time.is_integer() for time in times):
        return False
    said = sum(len(line) for cue in cues for line in cue.lines)
    seconds = sum(
        max(0.0, cue.end - cue.start) for cue in cues if cue.start is not None and cue.end
    )
    return seconds > 0 and said / seconds < _SLOWEST_SPEECH


def _less(time: float | None) -> float | None:
    return None if time is None else time / _THOUSAND


def _named(top: Mapping[str, object]) -> str | None:
    names = ("media_file", "source_file", "audio_path", "video", "audio", "file", "filename")
    return next((name for key in names if isinstance(name := top.get(key), str)), None)


def _metadata(top: Mapping[str, object]) -> dict[str, MetadataValue]:
    fields = {
        "source_url": _address(top),
        "channel": top.get("channel") or top.get("uploader"),
        "upload_date": top.get("upload_date"),
        "duration": top.get("duration", top.get("audio_duration")),
    }
    language = top.get("language_code") or top.get("language")
    is_code = isinstance(language, str) and _LANGUAGE.fullmatch(language) is not None
    known = {"language": str(language).replace("_", "-")} if is_code else {}
    return {**recording_fields(fields), **known}


def _address(top: Mapping[str, object]) -> object:
    for key in ("video_id", "id"):
        name = top.get(key)
        if isinstance(name, str) and _VIDEO_ID.fullmatch(name):
            return f"https://www.youtube.com/watch?v={name}"
    return top.get("webpage_url") or top.get("source_url")
