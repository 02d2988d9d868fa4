"""Subtitles: SRT, WebVTT, SBV, ASS, TTML, LRC and whisper's TSV, recognised by their content.

The parser is our own because every cue's text, speaker and time is needed even in a broken file:
without numbers or blank lines, with reversed or unreadable times, or text without any time.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal
from xml.parsers import expat

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError
from catalog.ingest.readers.base import WholeFileReader, choose_title
from catalog.ingest.readers.plain import PlainTextReader
from catalog.ingest.readers.timed.cues import (
    CODE,
    ParsedCue,
    build_transcript,
    parse_timecode,
    valid_seconds,
)
from catalog.ingest.readers.timed.source_media import find_medium

_Format = Literal["srt", "vtt", "sbv", "tsv", "ass", "ttml", "lrc"]

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
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,3}")
_TSV_HEADER = "start\tend\ttext"
_TSV_CUE = re.compile(r"(\d{1,12})\t(\d{1,12})\t(.*)", re.ASCII)
_TTML = re.compile(r"(?:<\?xml[^>]*+>\s*+)?(?:<!--[^>]*+-->\s*+)?<(?:\w{1,20}:)?tt[\s>]")
_TTML_COUNT = re.compile(r"(\d{1,12})([tf])", re.ASCII)
_FRAME_RATE = 30.0  # where a TTML file names none
_LRC_TIME = re.compile(r"[ \t]{0,8}\[([^\[\]]{1,20})\]")
_LRC_FIELD = re.compile(r"\[([A-Za-z#]{1,10}):([^\[\]]{0,500})\]\s{0,8}")
_ASS_OVERRIDE = re.compile(r"\{[^{}]*\}")
_ASS_DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")
_THUMBNAIL = re.compile(r"\S{1,500}\.(?:jpe?g|png|webp|gif|avif)(?:[#?]\S{0,200})?", re.IGNORECASE)
_MOST_REPEATED = 10_000
"""Characters that the times before one line of lyrics repeat at most."""
_MAX_TIMING = 1000
_MAX_NAME = 80
_NEW_LINE = "\u2028"
"""Stands for a line break among the pieces of a paragraph."""
_ARROW = "-->"

_Times = tuple[float | None, float | None]


class SubtitleReader(WholeFileReader):
    """Read one line and one segment for each cue, in order of time, without markup.

    A file in which no cue has a readable time is read as plain text, unchanged.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the transcript; raise ``EmptyDocumentError`` if no cue has words."""
        subtitles = _parse_subtitles(text, is_lyrics=path.lower().endswith(".lrc"))
        if not subtitles.cues and not subtitles.has_notes:
            raise EmptyDocumentError("no text in its cues")
        if all(cue.start is None for cue in subtitles.cues):
            return _as_text(text, path)
        if all(_THUMBNAIL.fullmatch(" ".join(cue.lines)) for cue in subtitles.cues):
            raise EmptyDocumentError("no speech: its cues name the pictures of a preview")
        medium = find_medium(path)
        if subtitles.format == "lrc" and medium.file_type is None:
            medium = replace(medium, file_type="audio")
        transcript, segments, places = build_transcript(subtitles.cues, medium.transcript_modality)
        language = {} if subtitles.language is None else {"language": subtitles.language}
        return ParsedDocument(
            path=path,
            text=transcript,
            title=choose_title(medium.title, subtitles.title),
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
    """Return whether the text begins like WebVTT, SRT, SBV, ASS, TTML or whisper's TSV."""
    return _format_of(text) is not None


def _format_of(text: str) -> _Format | None:
    """Return the format of the first lines."""
    lines = [line.strip() for line in _BREAK.split(text[:4000].lstrip("\ufeff"))]
    filled = [line for line in lines if line][:3]
    if not filled:
        return None
    if re.match(r"WEBVTT(?:[ \t]|$)", filled[0]):
        return "vtt"
    if filled[0].casefold() == "[script info]":
        return "ass"
    if _TTML.match(text[:4000].lstrip("\ufeff \t\r\n")):
        return "ttml"
    if filled[0] == _TSV_HEADER:
        return "tsv"
    if _SBV_TIMES.fullmatch(filled[0]):
        return "sbv"
    first = filled[1] if len(filled) > 1 and _INDEX.fullmatch(filled[0]) else filled[0]
    times = _arrow_times(first)
    return None if times is None or None in times else "srt"


def _parse_subtitles(text: str, *, is_lyrics: bool) -> _Subtitles:
    """Return the cues in the order of the file, in time linear in the text."""
    subtitles = _Subtitles("lrc" if is_lyrics else _format_of(text) or "srt")
    lines = _BREAK.split(text.lstrip("\ufeff"))
    if subtitles.format == "ttml":
        _TtmlParser(subtitles).parse(text)
        return subtitles
    if subtitles.format == "lrc":
        _parse_lyrics(lines, subtitles)
        return subtitles
    if subtitles.format == "ass":
        subtitles.cues.extend(_parse_ass(lines))
        return subtitles
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


def _parse_ass(lines: list[str]) -> Iterator[ParsedCue]:
    """Yield the spoken lines of a SubStation file, whose columns its format line names."""
    columns = ["layer", "start", "end", "style", "name", "l", "r", "v", "effect", "text"]
    for number, line in enumerate(lines, start=1):
        kind, _, rest = line.partition(":")
        if kind == "Format" and "Start" in rest and "Text" in rest:
            columns = [column.strip().casefold() for column in rest.split(",")]
        elif kind == "Dialogue":
            values = rest.strip().split(",", len(columns) - 1)
            found = dict(zip(columns, values, strict=False))
            if _ASS_DRAWING.search(found.get("text", "")):
                continue
            plain = _ASS_OVERRIDE.sub("", found.get("text", "")).replace("\\h", " ")
            spoken = [" ".join(part.split()) for part in re.split(r"\\[Nn]", plain)]
            if words := tuple(filter(None, spoken)):
                start, end = (parse_timecode(found.get(key, "")) for key in ("start", "end"))
                name = " ".join((found.get("name") or found.get("actor") or "").split())
                numbers = (number,) * len(words)
                yield ParsedCue(words, start, end, name[:_MAX_NAME] or None, numbers=numbers)


def _parse_lyrics(lines: list[str], subtitles: _Subtitles) -> None:
    """Add a cue for each time before a line of lyrics, and the title."""
    ends = []
    for number, line in enumerate(lines, start=1):
        if (field_ := _LRC_FIELD.fullmatch(line)) and not field_[1].isdigit():
            subtitles.title = field_[2].strip() if field_[1] == "ti" else subtitles.title
            continue
        at, times = 0, []
        while (mark := _LRC_TIME.match(line, at)) and (time := parse_timecode(mark[1])) is not None:
            times.append(time)
            at = mark.end()
        if words := " ".join(_TAG.sub("", line[at:]).split()):
            starts: list[float | None] = [*times[: max(1, _MOST_REPEATED // len(words))]] or [None]
            subtitles.cues += [ParsedCue((words,), start, numbers=(number,)) for start in starts]
        else:
            ends += times
    starts_at = sorted([*ends, *(cue.start for cue in subtitles.cues if cue.start is not None)])
    subtitles.cues = [
        replace(cue, end=_next_time(starts_at, cue.start)) if cue.start is not None else cue
        for cue in subtitles.cues
    ]


def _next_time(times: list[float], start: float) -> float:
    at = bisect_right(times, start)
    return times[at] if at < len(times) else start


@dataclass(slots=True)
class _TtmlParser:
    """Reads the paragraphs of a TTML file; one that is not well-formed gives no cue."""

    subtitles: _Subtitles
    _parser: expat.XMLParserType = field(default_factory=lambda: expat.ParserCreate("utf-8"))
    _names: dict[str, str] = field(default_factory=dict)
    _rates: dict[str, float] = field(default_factory=dict)
    _agent: str | None = None
    _open: dict[str, str] | None = None
    _pieces: list[tuple[str, int]] = field(default_factory=list)

    def parse(self, text: str) -> None:
        """Read all paragraphs; entities are not expanded."""
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._read
        self._parser.EntityDeclHandler = _refuse_entity
        self._parser.buffer_text = False
        try:
            self._parser.Parse(text.lstrip("\ufeff \t\r\n").encode(), True)
        except (expat.ExpatError, ValueError):
            self.subtitles.cues, self.subtitles.has_notes = [], True

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(":")[2]
        found = {key.rpartition(":")[2]: value for key, value in attributes.items()}
        if tag == "tt":
            for key in ("tickRate", "frameRate"):
                if rate := valid_seconds(found.get(key)):
                    self._rates[key] = rate
            if _LANGUAGE.fullmatch(found.get("lang", "")):
                self.subtitles.language = found["lang"]
        elif tag == "agent":
            self._agent = found.get("id")
        elif tag == "p":
            self._open, self._pieces = found, []
        elif tag == "br" and self._open is not None:
            self._pieces.append((_NEW_LINE, 0))
        elif tag == "span" and self._open is not None and "begin" in found:
            self._open.setdefault("begin", found["begin"])
            self._open["last"] = found.get("end", "")

    def _read(self, data: str) -> None:
        if self._open is None:
            if self._agent and data.strip():
                self._names.setdefault(self._agent, " ".join(data.split())[:_MAX_NAME])
            return
        self._pieces.append((data, self._parser.CurrentLineNumber))

    def _end(self, name: str) -> None:
        tag = name.rpartition(":")[2]
        if tag == "agent":
            self._agent = None
        if tag != "p" or self._open is None:
            return
        found, self._open = self._open, None
        if spoken := list(_join_pieces(self._pieces)):
            words, numbers = zip(*spoken, strict=True)
            start, end = self._seconds(found.get("begin")), self._seconds(found.get("end"))
            end = self._seconds(found.get("last")) if end is None else end
            lasting = self._seconds(found.get("dur"))
            if end is None and start is not None and lasting is not None:
                end = start + lasting
            speaker = self._names.get(found.get("agent", ""))
            self.subtitles.cues.append(ParsedCue(words, start, end, speaker, numbers=numbers))

    def _seconds(self, value: str | None) -> float | None:
        counted = _TTML_COUNT.fullmatch((value or "").strip())
        if counted is None:
            return parse_timecode(value or "")
        rate = self._rates.get("frameRate", _FRAME_RATE)
        if counted[2] == "t":
            rate = self._rates.get("tickRate", 1.0)
        return valid_seconds(int(counted[1]) / rate)


def _join_pieces(pieces: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the lines of a paragraph, each with the number of its first word's line."""
    texts: list[str] = []
    first = 0
    for text, number in [*pieces, (_NEW_LINE, 0)]:
        if text != _NEW_LINE:
            first = first if texts else number
            texts += [text] if texts or text.strip() else []
        elif texts:
            yield " ".join("".join(texts).split()), first
            texts = []


def _refuse_entity(*_: object) -> None:
    raise ValueError("entities are not expanded")


@dataclass(slots=True)
class _Subtitles:
    """The cues of a file, read line by line; ``has_notes`` if it has comments outside the cues."""

    format: _Format
    cues: list[ParsedCue] = field(default_factory=list)
    language: str | None = None
    has_notes: bool = False
    title: str | None = None
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
