"""Subtitles: SRT and WebVTT, recognised by their content.

The parser is our own because every cue's text, speaker, time and line is needed even in a broken
file: without numbers or blank lines, with reversed or unreadable times, or without any time.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import replace

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError
from catalog.ingest.readers.base import WholeFileReader
from catalog.ingest.readers.text import PlainTextReader
from catalog.ingest.readers.timed.cues import Caption, build_transcript, parse_timecode
from catalog.ingest.readers.timed.frames import find_medium

_BREAK = re.compile(r"\r\n?|\n")
_INDEX = re.compile(r"[ \t]*\d{1,9}[ \t]*", re.ASCII)
_NOTE = re.compile(r"NOTE(?:[ \t]|$)|(?:STYLE|REGION)[ \t]*$")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]([^<>]+)>|</v[ \t]*>", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:[biuvcs]|lang|ruby|rt|font|span|em|strong|br)(?=[\s.>/])[^<>]*>|<[\d:.,]{5,16}>"
    r"|\{\\[^{}]*\}",
    re.IGNORECASE,
)
_ANY_TAG = re.compile(r"<(?!\s)[^<>]*>")  # in WebVTT; nobody escapes "a < b and c > d"
_LANGUAGE = re.compile(r"Language:[ \t]*([A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,3})[ \t]*")
_PICTURE = re.compile(r"\S{1,500}\.(?:jpe?g|png|webp|gif|avif)(?:[#?]\S{0,200})?", re.IGNORECASE)
_LONGEST_TIMES = 1000
_LONGEST_NAME = 80

_Lines = list[tuple[str, int]]
_Times = tuple[float | None, float | None]


class SubtitleReader(WholeFileReader):
    """Read one line and one segment for each cue, in order of time, without markup.

    A file in which no cue has such a time is read as plain text, unchanged: also SBV, SubStation,
    TTML and SAMI, which the report names.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the transcript; raise ``EmptyDocumentError`` if no cue has words."""
        language = _LANGUAGE.search(text[:_LONGEST_TIMES]) if _is_webvtt(text) else None
        captions = list(_read_captions(text))
        if not captions:
            raise EmptyDocumentError("no text in its cues")
        if all(caption.start is None for caption in captions):
            document = PlainTextReader().parse(text, path)
            reason = "read as text, not as subtitles: no cue has a time; convert it to .srt or .vtt"
            return document if document.segments else replace(document, untimed=reason)
        if all(_PICTURE.fullmatch(" ".join(caption.lines)) for caption in captions):
            raise EmptyDocumentError("no speech: its cues name the pictures of a preview")
        title, file_type, metadata = find_medium(path)
        transcript, segments, places = build_transcript(captions, file_type)
        metadata |= {"language": language[1]} if language else {}
        about = path, transcript, title, file_type or "video", "subtitles", metadata
        return ParsedDocument(*about, segments=segments, places=places)


def looks_like_subtitles(text: str) -> bool:
    """Return whether the text begins like WebVTT or SRT, or SAMI, which is then named as text."""
    lines = [line.strip() for line in _BREAK.split(text[:4000].lstrip("\ufeff"))]
    filled = [line for line in lines if line][:2]
    if _is_webvtt("\n".join(filled)) or filled[:1] == ["<SAMI>"]:
        return True
    first = filled[-1] if len(filled) == 2 and _INDEX.fullmatch(filled[0]) else "".join(filled[:1])
    times = _read_times(first)
    return times is not None and None not in times


def _is_webvtt(text: str) -> bool:
    return re.match(r"\ufeff?\s*+WEBVTT(?:[ \t\r\n]|\Z)", text) is not None


def _read_captions(text: str) -> Iterator[Caption]:
    """Yield the cues in the order of the file.

    An empty line ends a cue; a line of one blank does not, because captions contain such lines. The
    line directly above the times is the number of the cue, or in WebVTT its identifier.
    """
    is_webvtt = is_skipped = _is_webvtt(text)  # its header, then notes and styles
    times: _Times | None = None
    lines: _Lines = []
    for number, line in enumerate([*_BREAK.split(text), ""], start=1):
        found = _read_times(line)
        if found is not None and (times is None or found[0] is not None):
            if lines and ((is_webvtt and times is None) or _INDEX.fullmatch(lines[-1][0])):
                lines.pop()
            yield from _split_voices(lines, times, is_webvtt=is_webvtt)
            times, lines, is_skipped = found, [], False
        elif not line:
            if times is None and lines and _INDEX.fullmatch(lines[0][0]):
                del lines[0]
            yield from _split_voices(lines, times, is_webvtt=is_webvtt)
            times, lines, is_skipped = None, [], is_skipped and number == 1
        elif is_webvtt and times is None and not lines and _NOTE.match(line):
            is_skipped = True
        elif not is_skipped:
            lines.append((line, number))


def _read_times(line: str) -> _Times | None:
    """Return the times of ``start --> end settings``, ``None`` for unreadable ones."""
    if "-->" not in line or len(line) > _LONGEST_TIMES:
        return None
    left, _, right = line.partition("-->")
    return parse_timecode(left), parse_timecode("".join(right.split(maxsplit=1)[:1]))


def _split_voices(lines: _Lines, times: _Times | None, *, is_webvtt: bool) -> Iterator[Caption]:
    """Yield a cue for each voice tag of WebVTT in these lines, or one for all."""
    voices: list[tuple[str | None, _Lines]] = [(None, [])]
    for line, number in lines:
        for at, part in enumerate(_VOICE.split(line)):
            if at % 2:
                name = " ".join(html.unescape(part or "").split())
                voices.append((name[:_LONGEST_NAME].strip() or None, []))
            elif part:
                spoken = _TAG.sub("", (_ANY_TAG if is_webvtt else _TAG).sub("", part))
                if words := " ".join(html.unescape(spoken).split()):
                    voices[-1][1].append((words, number))
    for speaker, spoken_lines in voices:
        if spoken_lines:
            texts, numbers = zip(*spoken_lines, strict=True)
            yield Caption(texts, *(times or (None, None)), speaker, numbers)
