"""Transcripts as JSON: YouTube's, whisper's and its relatives', and services' with speakers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import read_json, stated_levels
from catalog.ingest.readers.timed.cues import (
    ParsedCue,
    build_transcript,
    parse_timecode,
    valid_seconds,
)
from catalog.ingest.readers.timed.source_media import find_medium, normalise_recording

_LISTS = ("chunks", "snippets", "segments", "utterances", "transcript", "transcription", "events")
_VIDEO_ID = re.compile(r"[A-Za-z0-9_-]{11}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8}){0,3}")
_SLOWEST_SPEECH = 0.5
"""Characters in a second under which whole numbers can only be milliseconds (usual: 15)."""
_MILLISECONDS = 1000.0
_WORDS_OF_A_CUE = 12
_FILE_KEYS = ("media_file", "source_file", "audio_path", "video", "audio", "file", "filename")


def read_transcript_json(text: str, path: str) -> ParsedDocument | None:
    """Return the JSON's transcript with a line for each cue, ``None`` for other JSON.

    Supported are lists of ``{text, start, duration | end}`` (bare, or under ``transcript``,
    ``snippets`` or ``segments``: youtube-transcript-api, whisper, WhisperX), YouTube's json3
    (``events``), whisper.cpp (``transcription``), ``utterances`` with speakers (Deepgram,
    AssemblyAI), and ``chunks`` (Hugging Face, transformers.js). At least half of the items must
    have both words and a time.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cues = _find_cues(data)
    if not cues:
        return None
    data = read_json(text)
    top: Mapping[str, Any] = data if isinstance(data, Mapping) else {"items": data}
    names = [top[key] for key in _FILE_KEYS if isinstance(top.get(key), str)]
    medium = find_medium(path, names[0] if names else None)
    transcript, segments, places = build_transcript(cues, medium.transcript_modality)
    if not segments:
        return None
    return ParsedDocument(
        path=path,
        text=transcript,
        title=choose_title(medium.key, top.get("title")),
        file_type=medium.file_type or "video",
        source_type="transcript",
        metadata={**medium.metadata(), **_source_elsewhere(names), **_metadata(top)},
        segments=segments,
        places=places,
    )


def _find_cues(data: object) -> list[ParsedCue]:
    """Return the cues in the data; empty if it is not a transcript."""
    for items in _find_lists(data):
        cues = [cue for item in items if (cue := _parse_cue(item)) is not None]
        if cues and 2 * sum(cue.start is not None for cue in cues) >= len(items):
            is_paired = all(isinstance(item, Mapping) and "timestamp" in item for item in items)
            if is_paired and not any(" " in line for cue in cues for line in cue.lines):
                return list(_join_single_words(cues))
            return _in_seconds(cues) if _is_in_milliseconds(cues, data) else cues
    return []


def _join_single_words(words: Sequence[ParsedCue]) -> Iterator[ParsedCue]:
    """Yield cues of up to 12 words for a list with a time for each word, cut after sentences."""
    group: list[ParsedCue] = []
    for word, following in zip(words, [*words[1:], None], strict=True):
        group.append(word)
        is_end = word.lines[0].endswith((".", "?", "!")) or len(group) == _WORDS_OF_A_CUE
        if is_end or following is None or following.speaker != word.speaker:
            line = " ".join(each.lines[0] for each in group)
            yield ParsedCue((line,), group[0].start, group[-1].end, word.speaker)
            group = []


def _find_lists(data: object) -> Iterator[Sequence[Any]]:
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
    """Return whether an event of json3 has words; some only set up windows and line breaks."""
    return isinstance(event, Mapping) and not _join_words(event.get("segs")).isspace()


def _parse_cue(item: object) -> ParsedCue | None:
    if not isinstance(item, Mapping):
        return None
    words = item.get("text", item.get("transcript"))
    if isinstance(item.get("segs"), list):
        words = _join_words(item["segs"])
    if not isinstance(words, str) or not words.strip():
        return None
    start, end = _parse_times(item)
    lines = tuple(" ".join(line.split()) for line in words.splitlines() if line.strip())
    return ParsedCue(lines, start, end, _parse_speaker(item.get("speaker")))


def _join_words(parts: object) -> str:
    if not isinstance(parts, list):
        return " "
    words = [part.get("utf8") for part in parts if isinstance(part, Mapping)]
    return "".join(word for word in words if isinstance(word, str)) or " "


def _parse_times(item: Mapping[str, object]) -> tuple[float | None, float | None]:
    offsets, stamp = item.get("offsets"), item.get("timestamp")
    fields: tuple[object, object, object]
    fields, unit = (item.get("start"), item.get("end"), item.get("duration")), 1.0
    if "tStartMs" in item:
        fields, unit = (item.get("tStartMs"), None, item.get("dDurationMs")), _MILLISECONDS
    elif isinstance(stamp, list) and len(stamp) == 2:
        fields = (*stamp, None)
    elif isinstance(offsets, Mapping):
        fields, unit = (offsets.get("from"), offsets.get("to"), None), _MILLISECONDS
    start, end, duration = (_parse_number(field, unit) for field in fields)
    if end is None and start is not None and duration is not None:
        end = valid_seconds(round(start + duration, 6))
    return start, end


def _parse_number(value: object, unit: float) -> float | None:
    if isinstance(value, str) and ":" in value:
        return parse_timecode(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return valid_seconds(float(value) / unit)
    except (ValueError, OverflowError):
        return None


def _parse_speaker(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    name = storable(" ".join(str(value).split())[:80].strip())
    is_label = name.isdecimal() or (len(name) == 1 and name.isalpha())
    return f"Speaker {name}" if is_label else name or None


def _in_seconds(cues: Sequence[ParsedCue]) -> list[ParsedCue]:
    def seconds(time: float | None) -> float | None:
        return None if time is None else time / _MILLISECONDS

    return [ParsedCue(cue.lines, seconds(cue.start), seconds(cue.end), cue.speaker) for cue in cues]


def _is_in_milliseconds(cues: Sequence[ParsedCue], data: object) -> bool:
    """Return whether the times of utterances can only be milliseconds."""
    if not isinstance(data, Mapping) or not isinstance(data.get("utterances"), list):
        return False
    times = [time for cue in cues for time in (cue.start, cue.end) if time is not None]
    duration = _parse_number(data.get("audio_duration"), 1.0)
    if duration:
        return max(times) > 2 * duration
    if not all(time.is_integer() for time in times):
        return False
    characters = sum(len(line) for cue in cues for line in cue.lines)
    seconds = sum(
        max(0.0, cue.end - cue.start) for cue in cues if cue.start is not None and cue.end
    )
    return seconds > 0 and characters / seconds < _SLOWEST_SPEECH


def _metadata(top: Mapping[str, object]) -> dict[str, MetadataValue]:
    fields = {
        "source_url": _address_of(top),
        "channel": top.get("channel") or top.get("uploader"),
        "upload_date": top.get("upload_date"),
        "duration": top.get("duration", top.get("audio_duration")),
    }
    language = top.get("language_code") or top.get("language")
    is_code = isinstance(language, str) and _LANGUAGE.fullmatch(language) is not None
    known = {"language": str(language).replace("_", "-")} if is_code else {}
    return {**normalise_recording({**fields, **stated_levels(top)}), **known}


def _source_elsewhere(names: Sequence[str]) -> dict[str, MetadataValue]:
    """Return the recording's file as the transcript names it, if with a folder."""
    is_elsewhere = bool(names) and re.search(r"[/\\]", names[0]) is not None
    return {"source_file": storable(names[0])} if is_elsewhere else {}


def _address_of(top: Mapping[str, object]) -> object:
    for key in ("video_id", "id"):
        name = top.get(key)
        if isinstance(name, str) and _VIDEO_ID.fullmatch(name):
            return f"https://www.youtube.com/watch?v={name}"
    return top.get("webpage_url") or top.get("source_url")
