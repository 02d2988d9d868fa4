"""Descriptions of frames of a video, and the second that each shows.

A frame is a section under a heading that says so (``## Frame at 00:01:12``), or else a whole file
that is one by its folder (``lecture_frames/``), its name (``frame_01m12s.md``) or its fields
(``frame_file``). The second of a file is the one of its fields (``timestamp: 01:12``) or of a line
``Timestamp: 01:12``, else that in its name, else that of each heading with a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from catalog.core.documents import Heading, ParsedDocument, Segment
from catalog.ingest.readers.timed.timecodes import (
    CODE,
    NUMBER,
    UNITS,
    parse_timecode,
    time_in_name,
    valid_seconds,
)

_TITLE = re.compile(
    r"(?:visual |video |key ?)?(?:frame|keyframe|screenshot|snapshot)(?: #?\d{1,6})?"
    rf"(?:(?: at| @|:)? ?[\[(]?({CODE}|{UNITS})(?![\d:])"
    rf"|(?: at| @)?(?:(?<=at)|(?<=@)| (?=[\[(])) ?[\[(]?({NUMBER})(?= *(?:$|[])(–—:-])))",
    re.ASCII | re.IGNORECASE,
)
_TIMED_TITLE = re.compile(
    rf"(?:^[\[(]?|(?:\bat|@|[\[(]) ?)({CODE}|{UNITS})(?![\d:])", re.ASCII | re.IGNORECASE
)
_TIMED_START = re.compile(rf"[\[(]?(?:{CODE})[\])]?[ :–—-]{{0,4}}(?=\w)", re.ASCII)
_LABELLED = re.compile(
    r"^[ \t>*_-]{0,8}(?:frame |video )?(?:time|position|time ?stamp|time ?code)[*_]{0,3}:"
    r"[*_ \t`\[(]{0,8}"
    rf"({CODE}|{UNITS}|{NUMBER})[\])*_`. \t]{{0,8}}$",
    re.ASCII | re.IGNORECASE | re.MULTILINE,
)
_LABELLED_WITHIN = 2000
"""Characters of a file in which a line with its time is looked for."""
_TIME_KEYS = ("timestamp", "timecode", "frame_time", "time", "time_seconds", "seconds", "position")
_MILLISECOND_KEYS = ("timestamp_ms", "time_ms")
_FILE_KEYS = ("frame_file", "frame", "image_file", "image")
_FOLDER = re.compile(r"(?:.+[-_. ])?(?:key|video)?frames", re.IGNORECASE)
_NAME = re.compile(r"(?:(?:key|video|visual)[-_ ]?)?frame[-_ ]?(?:at[-_ ])?t?=?\d|vlcsnap-", re.I)
_WITHIN_NAME = re.compile(r"(?<![A-Za-z])(?:frame|snapshot)[-_ ]", re.IGNORECASE)
_PICTURE = re.compile(r"\.(?:png|jpe?g|webp|gif|bmp|tiff?)$", re.IGNORECASE)


def is_frame_title(title: str) -> bool:
    """Return whether a heading says no more than that a frame follows, and when it is shown."""
    return _TITLE.match(title) is not None


def title_without_time(title: str) -> str:
    """Return what a heading says besides a frame's time: of ``Frame at 01:12`` nothing."""
    if is_frame_title(title):
        return ""
    return _TIMED_START.sub("", title)


def is_time_line(line: str) -> bool:
    """Return whether a line says only when a frame is shown: ``Timestamp: 01:12``."""
    return _LABELLED.fullmatch(line) is not None


def looks_like_frame(path: str, fields: Mapping[str, object]) -> bool:
    """Return whether a file is a frame's, or several frames', by its folder, name or fields."""
    stem, folder = _stem(path), PurePosixPath(path).parent.name
    if "frame_file" in fields or ("video_source" in fields and "timestamp" in fields):
        return True
    if _FOLDER.fullmatch(folder) or _FOLDER.fullmatch(stem) or _NAME.match(stem):
        return True
    is_named = _WITHIN_NAME.search(stem) is not None
    return is_named and time_in_name(stem, is_certain=True) is not None


def second_of_frame(path: str, fields: Mapping[str, object]) -> float | None:
    """Return the second that fields tell, else the file's name; ``None`` if neither does."""
    told = (_parse_field(fields[key]) for key in _TIME_KEYS if key in fields)
    thousandths = (valid_seconds(fields[key]) for key in _MILLISECOND_KEYS if key in fields)
    names = (fields[key] for key in _FILE_KEYS if key in fields)
    for seconds in (
        *told,
        *(None if value is None else value / 1000 for value in thousandths),
        *(time_in_name(_stem(name)) for name in names if isinstance(name, str)),
        time_in_name(_stem(path)),
    ):
        if seconds is not None:
            return seconds
    return None


def find_frames(
    document: ParsedDocument, headings: Sequence[Heading], second: float | None, *, is_frame: bool
) -> tuple[list[Segment], str | None]:
    """Return the frames of a document, and why it has none though it ``is_frame`` by its looks.

    A frame under a heading runs to the next one, or to a heading that is not below its own.
    ``second`` is the one of :func:`second_of_frame`.
    """
    end = len(document.text)
    frames = list(_under_headings(headings, end, _second_of_title))
    if frames or not is_frame:
        return frames, None
    labelled = _LABELLED.search(
        document.text, document.body_start, document.body_start + _LABELLED_WITHIN
    )
    if labelled is not None:
        told = parse_timecode(labelled[1], bare_seconds=True)
        second = second if told is None else told
    if second is not None:
        return [Segment(document.body_start, end, "video_frame", second, second)], None
    frames = list(_under_headings(headings, end, _second_in_title))
    if frames:
        return frames, None
    return [], (
        "as text, not as a frame: neither its headings nor its name tell a second; "
        "call it frame_01m12s, or begin it with '# Frame at 01:12'"
    )


def _stem(path: str) -> str:
    """Return the name without extension, and without a picture's (``frame_12.5.jpg.md``)."""
    return _PICTURE.sub("", re.sub(r"\.[A-Za-z][A-Za-z0-9]{0,7}$", "", PurePosixPath(path).name))


def _parse_field(value: object) -> float | None:
    if isinstance(value, str):
        return parse_timecode(value.strip().strip("`[]()"), bare_seconds=True)
    return valid_seconds(value)


def _second_of_title(title: str) -> float | None:
    """Return the second of a heading such as ``Visual Frame at 01:12``."""
    match = _TITLE.match(title)
    if match is None:
        return None
    return parse_timecode(match[1] or match[2], bare_seconds=match[1] is None)


def _second_in_title(title: str) -> float | None:
    """Return the second of a heading of frames, ``01:12 BatchNorm`` or ``BatchNorm (72s)``."""
    match = _TIMED_TITLE.search(title)
    return None if match is None else parse_timecode(match[1])


def _under_headings(
    headings: Sequence[Heading], end: int, second_of: Callable[[str], float | None]
) -> Iterator[Segment]:
    frame: tuple[Heading, float] | None = None
    for heading in headings:
        time = second_of(heading.title)
        if frame is not None and (time is not None or heading.level <= frame[0].level):
            yield Segment(frame[0].start, heading.start, "video_frame", frame[1], frame[1])
            frame = None
        if time is not None:
            frame = heading, time
    if frame is not None:
        yield Segment(frame[0].start, end, "video_frame", frame[1], frame[1])
