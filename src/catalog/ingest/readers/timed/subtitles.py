"""Subtitles: SRT, WebVTT, SBV and whisper's TSV, told apart by their content.

It is our own because every cue's text, speaker and time is needed even where a file is broken:
indexes or blank lines missing, times reversed or unreadable, text without any time.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError
from catalog.ingest.readers.base import WholeFileReader
from catalog.ingest.readers.plain import PlainTextReader
from catalog.ingest.readers.timed.cues import HeardCue, transcript
from catalog.ingest.readers.timed.source_media import medium_of
from catalog.ingest.readers.timed.timecodes import CODE, parse_timecode, valid_seconds

Kind = Literal["srt", "vtt", "sbv", "tsv"]

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
_LONGEST_TIMING = 1000
_LONGEST_NAME = 80
_ARROW = "-->"

_Times = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a file holds; ``has_notes`` tells of comments that are in no cue."""

    cues: tuple[HeardCue, ...] = ()
    language: str | None = None
    has_notes: bool = False


def kind_of(text: str) -> Kind | None:
    """Which of the formats the first lines are in, or ``None``."""
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


def scan(text: str) -> Scanned:
    """The cues in the order of the file, in time linear in the text."""
    kind = kind_of(text) or "srt"
    lines = _BREAK.split(text.lstrip("\ufeff"))
    if kind == "tsv":
        return Scanned(tuple(_rows(lines)))
    scanner = _Scanner(kind)
    for line in lines:
        scanner.feed(line)
    return scanner.finish()


def _rows(lines: list[str]) -> Iterator[HeardCue]:
    """The cues of whisper's table, whose times are whole milliseconds; other lines are words."""
    for line in lines:
        found = _TSV_CUE.fullmatch(line)
        if found is not None and found[3].strip():
            start, end = (valid_seconds(int(found[each]) / 1000) for each in (1, 2))
            yield HeardCue((found[3].strip(),), start, end)
        elif found is None and line.strip() and line.strip() != _TSV_HEADER:
            yield HeardCue((line.strip(),))


@dataclass(slots=True)
class _Scanner:
    kind: Kind
    cues: list[HeardCue] = field(default_factory=list)
    language: str | None = None
    has_notes: bool = False
    _times: _Times | None = None
    _lines: list[str] = field(default_factory=list)
    _is_header: bool = False
    _is_note: bool = False

    def __post_init__(self) -> None:
        self._is_header = self.kind == "vtt"

    def feed(self, line: str) -> None:
        """Takes one line. Only an empty one ends a cue: captions hold lines of one blank."""
        times = self._timing(line)
        if times is not None:
            self._open(times)
        elif not line:
            self._close()
        elif self._is_header:
            found = _HEADER_LANGUAGE.fullmatch(line)
            self.language = found.group(1) if found else self.language
        elif self._begins_note(line):
            self._is_note = self.has_notes = True
        elif not self._is_note:
            self._lines.append(line)

    def finish(self) -> Scanned:
        self._close()
        return Scanned(tuple(self.cues), self.language, self.has_notes)

    def _begins_note(self, line: str) -> bool:
        is_first = self._times is None and not self._lines
        return self.kind == "vtt" and is_first and _NOTE.match(line) is not None

    def _timing(self, line: str) -> _Times | None:
        if len(line) > _LONGEST_TIMING:
            return None
        is_start = self._times is None and len(self._lines) <= 1
        if self.kind == "sbv":
            found = _SBV_TIMES.fullmatch(line)
            if found is not None:
                return parse_timecode(found.group(1)), parse_timecode(found.group(2))
            is_broken = is_start and not self._lines and _SBV_BROKEN.fullmatch(line) is not None
            return (None, None) if is_broken else None
        times = _arrow_times(line)
        return times if times is not None and (is_start or times[0] is not None) else None

    def _open(self, times: _Times) -> None:
        """Begins a cue; the line just above its times is its number or identifier."""
        is_identified = self.kind == "vtt" and self._times is None
        if self._lines and (is_identified or _INDEX.fullmatch(self._lines[-1])):
            self._lines.pop()
        self._close()
        self._times = times

    def _close(self) -> None:
        lines, times = self._lines, self._times
        if times is None and lines and _INDEX.fullmatch(lines[0]):
            lines = lines[1:]
        self._lines, self._times = [], None
        self._is_header = self._is_note = False
        start, end = (None, None) if times is None else times
        for speaker, spoken in _voices(lines):
            said = tuple(clean for clean in (self._clean(line) for line in spoken) if clean)
            if said:
                self.cues.append(HeardCue(said, start, end, speaker))

    def _clean(self, line: str) -> str:
        tags = _ANY_TAG if self.kind == "vtt" else _TAG
        return " ".join(html.unescape(_TAG.sub("", tags.sub("", line))).split())


def _arrow_times(line: str) -> _Times | None:
    """The two times of ``start --> end settings``, each ``None`` if it is unreadable."""
    if _ARROW not in line:
        return None
    left, _, right = line.partition(_ARROW)
    ends = right.split(maxsplit=1)
    return parse_timecode(left), parse_timecode(ends[0]) if ends else None


def _voices(lines: list[str]) -> Iterator[tuple[str | None, list[str]]]:
    """The lines by who says them in WebVTT's voice tags."""
    text = "\n".join(lines)
    speaker: str | None = None
    at = 0
    for found in _VOICE.finditer(text):
        yield speaker, text[at : found.start()].split("\n")
        name = html.unescape(found.group(1) or "")
        speaker = " ".join(name.split())[:_LONGEST_NAME].strip() or None
        at = found.end()
    yield speaker, text[at:].split("\n")


def looks_like_subtitles(text: str) -> bool:
    """Whether the text opens as WebVTT, SRT, SBV or whisper's TSV does."""
    return kind_of(text) is not None


class SubtitleReader(WholeFileReader):
    """One line and one segment for each cue, in the order of time, without markup.

    A file in which no cue has a readable time is plain text as it stands.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The transcript; raises ``EmptyDocumentError`` if no cue says anything."""
        found = scan(text)
        if not found.cues and not found.has_notes:
            raise EmptyDocumentError("no text in its cues")
        if all(cue.start is None for cue in found.cues):
            return PlainTextReader().parse(text, path)
        medium = medium_of(path)
        spoken = transcript(found.cues, medium.transcript_modality)
        language = {} if found.language is None else {"language": found.language}
        return ParsedDocument(
            path=path,
            text=spoken.text,
            title=medium.title,
            file_type=medium.file_type or "video",
            source_type="subtitles",
            metadata={**medium.metadata(), **language},
            segments=spoken.segments,
        )
