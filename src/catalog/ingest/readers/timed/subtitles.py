"""Subtitles: SRT, WebVTT, SBV and whisper's TSV, recognised by their content.

The parser is our own because every cue's text, speaker and time is needed even in a broken file:
without numbers or blank lines, with reversed or unreadable times, or text without any time.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError
from catalog.ingest.readers.base import WholeFileReader
from catalog.ingest.readers.plain import PlainTextReader
from catalog.ingest.readers.timed.cues import (
    CODE,
    ParsedCue,
    build_transcript,
    parse_timecode,
    valid_seconds,
)
from catalog.ingest.readers.timed.source_media import find_medium

_Format = Literal["srt", "vtt", "sbv", "tsv"]

_BREAK = re.compile(r"\r\n?|\n")
_SBV_TIMES = re.compile(rf"[ \t]*({CODE}),({CODE})[ \t]*", re.ASCII)
_SBV_BROKEN = re.compile(r"[ \t]*[-\d][-\d:.]*,[-\d][-\d:.]*[ \t]*", re.ASCII)
_INDEX = re.compile(r"[ \t]*\d{1,9}[ \t]*", re.ASCII)
_NOTE = re.compile(r"NOTE(?:[ \t]|$)|(?:STYLE|REGION)[ \t]*$")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]([^<>]+)>|</v[ \t]*>", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:[biuvcs]|lang|ruby|rt|font|span|em|strong|br)(?=[\s.>/])[^<>]*>|<[\d:.,]{5,16}>|\{\\[^{}]*\}",
    re.IGNORECASE,
)
_ANY_TAG = re.compile(r"<(?!\s)[^<>]*>")  # nobody escapes "a < b and c > d"
_HEADER_LANGUAGE = re.compile(r"Language:[ \t]*([A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,3})[ \t]*")
_TSV_HEADER = "start\tend\ttext"
_TSV_CUE = re.compile(r"(\d{1,12})\t(\d{1,12})\t(.*)", re.ASCII)
_MAX_TIMING = 1000
_MAX_NAME = 80
_ARROW = "-->"

_Times = tuple[float | None, float | None]


class SubtitleReader(WholeFileReader):
    """Read one line and one segment for each cue, in order of time, without markup.

    A file in which no cue has a readable time is read as plain text, unchanged.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the transcript; raise ``EmptyDocumentError`` if no cue has words."""
        subtitles = _parse_subtitles(text)
        if not subtitles.cues and not subtitles.has_notes:
            raise EmptyDocumentError("no text in its cues")
        if all(cue.start is None for cue in subtitles.cues):
            return _as_text(text, path)
        medium = find_medium(path)
        transcript, segments, places = build_transcript(subtitles.cues, medium.transcript_modality)
        language = {} if subtitles.language is None else {"language": subtitles.language}
        return ParsedDocument(
            path=path,
            text=transcript,
            title=medium.title,
            file_type=medium.file_type or "video",
            source_type="subtitles",
            metadata={**medium.metadata(), **language},
            segments=segments,
            places=places,
        )


def _as_text(text: str, path: str) -> ParsedDocument:
    document = PlainTextReader().parse(text, path)
    if document.segments:
        return document
    return replace(document, untimed="read as text, not as subtitles: no cue has a valid time")


def looks_like_subtitles(text: str) -> bool:
    """Return whether the text begins like WebVTT, SRT, SBV or whisper's TSV."""
    return _format_of(text) is not None


def _format_of(text: str) -> _Format | None:
    """Return the format of the first lines."""
    lines = [line.strip() for line in _BREAK.split(text[:4000].lstrip("\ufeff"))]
    filled = [line for line in lines if line][:3]
    if not filled:
        return None
    if re.match(r"WEBVTT(?:[ \t]|$)", filled[0]):
        return "vtt"
    if filled[0] == _TSV_HEADER:
        return "tsv"
    if _SBV_TIMES.fullmatch(filled[0]):
        return "sbv"
    first = filled[1] if len(filled) > 1 and _INDEX.fullmatch(filled[0]) else filled[0]
    times = _arrow_times(first)
    return None if times is None or None in times else "srt"


def _parse_subtitles(text: str) -> _Subtitles:
    """Return the cues in the order of the file, in time linear in the text."""
    subtitles = _Subtitles(_format_of(text) or "srt")
    lines = _BREAK.split(text.lstrip("\ufeff"))
    if subtitles.format == "tsv":
        subtitles.cues.extend(_parse_tsv(lines))
        return subtitles
    for number, line in enumerate(lines, start=1):
        subtitles.feed(line, number)
    subtitles.finish()
    return subtitles


def _parse_tsv(lines: list[str]) -> Iterator[ParsedCue]:
    """Yield the cues of whisper's table, whose times are whole milliseconds."""
    for number, line in enumerate(lines, start=1):
        match = _TSV_CUE.fullmatch(line)
        if match is not None and match[3].strip():
            start, end = (valid_seconds(int(match[column]) / 1000) for column in (1, 2))
            yield ParsedCue((match[3].strip(),), start, end, numbers=(number,))
        elif match is None and line.strip() and line.strip() != _TSV_HEADER:
            yield ParsedCue((line.strip(),), numbers=(number,))  # words without times


@dataclass(slots=True)
class _Subtitles:
    """The cues of a file, read line by line; ``has_notes`` if it has comments outside the cues."""

    format: _Format
    cues: list[ParsedCue] = field(default_factory=list)
    language: str | None = None
    has_notes: bool = False
    _times: _Times | None = None
    _lines: list[tuple[str, int]] = field(default_factory=list)
    _is_header: bool = False
    _is_note: bool = False

    def __post_init__(self) -> None:
        self._is_header = self.format == "vtt"

    def feed(self, line: str, number: int) -> None:
        """Read a line and its number.

        An empty line ends a cue; a line of one blank does not, because captions contain such lines.
        """
        times = self._parse_times(line)
        if times is not None:
            self._open(times)
        elif not line:
            self.finish()
        elif self._is_header:
            match = _HEADER_LANGUAGE.fullmatch(line)
            self.language = match[1] if match else self.language
        elif self._begins_note(line):
            self._is_note = self.has_notes = True
        elif not self._is_note:
            self._lines.append((line, number))

    def finish(self) -> None:
        """Close the cue that is open."""
        lines, times = self._lines, self._times
        if times is None and lines and _INDEX.fullmatch(lines[0][0]):
            lines = lines[1:]
        self._lines, self._times = [], None
        self._is_header = self._is_note = False
        start, end = (None, None) if times is None else times
        for speaker, spoken in _split_voices(lines):
            cleaned = [(text, number) for line, number in spoken if (text := self._clean(line))]
            if cleaned:
                texts, numbers = zip(*cleaned, strict=True)
                self.cues.append(ParsedCue(texts, start, end, speaker, numbers=numbers))

    def _begins_note(self, line: str) -> bool:
        is_first = self._times is None and not self._lines
        return self.format == "vtt" and is_first and _NOTE.match(line) is not None

    def _parse_times(self, line: str) -> _Times | None:
        if len(line) > _MAX_TIMING:
            return None
        is_start = self._times is None and len(self._lines) <= 1
        if self.format == "sbv":
            match = _SBV_TIMES.fullmatch(line)
            if match is not None:
                return parse_timecode(match[1]), parse_timecode(match[2])
            is_broken = is_start and not self._lines and _SBV_BROKEN.fullmatch(line) is not None
            return (None, None) if is_broken else None
        times = _arrow_times(line)
        return times if times is not None and (is_start or times[0] is not None) else None

    def _open(self, times: _Times) -> None:
        """Begin a cue; the line directly above its times is its number or identifier."""
        is_identified = self.format == "vtt" and self._times is None
        if self._lines and (is_identified or _INDEX.fullmatch(self._lines[-1][0])):
            self._lines.pop()
        self.finish()
        self._times = times

    def _clean(self, line: str) -> str:
        tags = _ANY_TAG if self.format == "vtt" else _TAG
        return " ".join(html.unescape(_TAG.sub("", tags.sub("", line))).split())


def _arrow_times(line: str) -> _Times | None:
    """Return the times of ``start --> end settings``, ``None`` for unreadable ones."""
    if _ARROW not in line:
        return None
    left, _, right = line.partition(_ARROW)
    ends = right.split(maxsplit=1)
    return parse_timecode(left), parse_timecode(ends[0]) if ends else None


def _split_voices(
    lines: list[tuple[str, int]],
) -> Iterator[tuple[str | None, list[tuple[str, int]]]]:
    """Yield lines with their numbers, by speaker in WebVTT's voice tags."""
    if not lines:
        return
    text = "\n".join(line for line, _ in lines)
    speaker: str | None = None
    at = row = 0

    def numbered(part: str) -> list[tuple[str, int]]:
        return [(line, lines[at][1]) for at, line in enumerate(part.split("\n"), start=row)]

    for match in _VOICE.finditer(text):
        yield speaker, numbered(text[at : match.start()])
        row += text.count("\n", at, match.end())
        name = html.unescape(match[1] or "")
        speaker = " ".join(name.split())[:_MAX_NAME].strip() or None
        at = match.end()
    yield speaker, numbered(text[at:])
