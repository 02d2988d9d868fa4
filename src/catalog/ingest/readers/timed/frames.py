"""Find the second that a frame shows, and the recording, image or document a text was made of.

A frame is a section under a heading that says so (``## Frame at 00:01:12``), or a whole file that
is known as a frame by its folder (``lecture_frames/``), its name (``frame_01m12s.md``) or its
fields (``frame_file``). Nothing here looks at the file system, and no name in a file leads out of
its folder.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from catalog.core.dates import read_written_date
from catalog.core.documents import Heading, MetadataValue, ParsedDocument, Segment
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import is_web_address, normalise
from catalog.ingest.readers.timed.cues import CODE, parse_timecode, valid_seconds

_TITLE = re.compile(
    r"(?ai)^(?P<frame>(?:visual |video |key ?)?(?:frame|screenshot|snapshot)(?: #?\d{1,6})?"
    rf"(?: at| @|:)? ?)?[\[(]?(?P<time>{CODE})(?![\d:])[\])]?[ :–—-]{{0,4}}"
)
_LABELLED = re.compile(
    r"(?aim)^[ \t>*_-]{0,8}(?:frame |video )?(?:time|position|time ?stamp|time ?code)[*_]{0,3}:"
    rf"[*_ \t`\[(]{{0,8}}({CODE}|\d{{1,7}}(?:[.,]\d{{1,9}})?)[\])*_`. \t]{{0,8}}$"
)
_TIME_KEYS = ("timestamp", "timecode", "frame_time", "time", "time_seconds", "seconds", "position")
_FILE_KEYS = ("frame_file", "frame", "image_file", "image")
_FOLDER = re.compile(r"(?:.+[-_. ])?(?:key|video)?frames", re.IGNORECASE)
_NAME = re.compile(
    r"(?i)(?:(?:key|video|visual)[-_ ]?)?frame[-_ ]?(?:at[-_ ])?t?=?\d|vlcsnap-"
    r"|.*(?<![A-Za-z])frame[-_ ](?:\d{1,3}h)?\d{1,3}m\d\ds"
)
_EXTENSION = re.compile(r"(?:\.(?:png|jpe?g|webp|gif|bmp|tiff?))?\.[A-Za-z]\w{0,7}\Z", re.I)
_DATED = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_ .T]+(?:at )?\d[\dhms._-]*)?", re.A
)
_NAME_TIME = re.compile(
    r"(?ai)(?<![A-Z0-9.])t?(?:(?:(\d{1,3})[h_.:;-])?(\d{2}|\d{1,3}(?=m))[m_.:;-](\d{2})s?"
    r"|(\d{1,5})s)(?:[.,_;]?(\d{3}))?(?![A-Z0-9])"
)


def time_in_name(stem: str) -> float | None:
    """Return the seconds in a file's name: ``01m12s``, ``72s``, ``00-01-12.500``, ``01_12``.

    A whole number alone counts frames, and a time after a date is a time of day.
    """
    if (match := _NAME_TIME.search(_DATED.sub(" ", stem[:200]))) is None:
        return None
    code = f"{match[1] or 0}:{match[2]}:{match[3]}.{match[5] or 0}"
    return valid_seconds(match[4]) if match[4] else parse_timecode(code)


def is_frame_title(title: str) -> bool:
    """Return whether a heading only says that a frame follows."""
    return bool((match := _TITLE.match(title)) and match["frame"])


def title_without_time(title: str) -> str:
    """Return a heading without a frame's time: "" for ``Frame at 01:12``."""
    return "" if is_frame_title(title) else _TITLE.sub("", title)


def is_time_line(line: str) -> bool:
    """Return whether a line only says when a frame is shown: ``Timestamp: 01:12``."""
    return _LABELLED.fullmatch(line) is not None


def find_frames(
    document: ParsedDocument, fields: Mapping[str, object]
) -> tuple[list[Segment], str | None]:
    """Return the frames of a document; if it should be one and tells no second, also the reason.

    A frame under a heading extends to the next one, or to a heading that is not below its own.
    """
    start, end = document.body_start, len(document.text)
    path = PurePosixPath(document.path)
    stem = _EXTENSION.sub("", path.name)
    is_told = "frame_file" in fields or {"video_source", "timestamp"} <= fields.keys()
    is_named = _FOLDER.fullmatch(path.parent.name) or _FOLDER.fullmatch(stem) or _NAME.match(stem)
    frames = list(_under_headings(document.headings, end, is_known=False))
    if frames or not (is_told or is_named):
        return frames, None
    line = _LABELLED.search(document.text, start, start + 2000)  # characters
    names = [PurePosixPath(str(fields[key])).name for key in _FILE_KEYS if key in fields]
    told = [*(fields.get(key) for key in _TIME_KEYS), line and line[1]]
    seconds = [*map(read_seconds, told)]
    seconds += [time_in_name(_EXTENSION.sub("", name)) for name in (*names, stem)]
    if (second := next((it for it in seconds if it is not None), None)) is not None:
        return [Segment(start, end, "video_frame", second, second)], None
    frames = list(_under_headings(document.headings, end, is_known=True))
    return frames, None if frames else (
        "read as text, not as a frame: neither its headings nor its name have a time; name "
        "it frame_01m12s, or begin it with '# Frame at 01:12'"
    )


def _under_headings(headings: Sequence[Heading], end: int, *, is_known: bool) -> Iterator[Segment]:
    """Yield the frames; in a file known to have frames a heading's time is enough."""
    frame: tuple[Heading, float] | None = None
    for heading in [*headings, Heading(end, end, 0, "")]:
        match = _TITLE.match(heading.title)
        time = parse_timecode(match["time"]) if match and (is_known or match["frame"]) else None
        if frame is not None and (time is not None or heading.level <= frame[0].level):
            yield Segment(frame[0].start, heading.start, "video_frame", frame[1], frame[1])
            frame = None
        if time is not None:
            frame = heading, time


CONVERTED = ".converted"  # the folder where converters put what they make of the files beside it
RECORDINGS = ("video", "audio")
_MEDIA = {
    "video": "mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv 3gp",
    "audio": "mp3 wav m4a flac ogg opus aac wma aif aiff oga amr",
    "image": "png jpg jpeg gif bmp webp tif tiff svg heic avif ico",
}
_DOCUMENTS = "pdf doc docx ppt pptx xls xlsx odt odp ods rtf epub html htm ipynb"
_FILE_TYPES = {name: kind for kind, names in _MEDIA.items() for name in names.split()}
_FILE_TYPES |= {name: name for name in _DOCUMENTS.split()}
_LANGUAGE = re.compile(
    r"(.+)\.([a-z]{2,3})((?:[-_][A-Za-z0-9]{2,8})*)(?:[.-](?:auto|asr|orig|generated|forced|sdh|cc))*"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=\S)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ufffd]")


def find_medium(
    path: str, name: str | None = None, *, is_frame: bool = False
) -> tuple[str, str | None, dict[str, MetadataValue]]:
    """Return the title, type and metadata of what the text at ``path`` was made of.

    Its ``name`` is as the text gives it, else in the text's own name (``talk.mp4.en.srt``). Frames
    (by ``is_frame`` or their name) in ``talk_frames/`` or ``talk_frames.md`` belong to ``talk``.
    ``media`` groups the texts of one medium: its path, for a recording without extension.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..", CONVERTED)]
    *folder, own_name = parts or [path]
    stem, language = _split_language(split_extension(own_name)[0])
    if is_frame or _NAME.match(stem):
        is_inside = bool(folder) and folder[-1].endswith("_frames")
        stem = (folder.pop() if is_inside else stem).removesuffix("_frames") or stem
    file = media_file_name(name) or (stem if file_type_of(stem) else None)
    file_type = file_type_of(file or "")
    key = split_extension(file or stem)[0] if file_type in RECORDINGS else file or stem
    found = {
        "media": "/".join([*folder, key]),
        "media_file": "/".join([*folder, file]) if file else None,
        "language": language,
    }
    metadata: dict[str, MetadataValue] = {key: value for key, value in found.items() if value}
    return choose_title(path, key, stem), file_type, metadata


def possible_originals(path: str) -> Iterator[str]:
    """Yield the paths, some without extension, of what a text may be made from, likeliest first."""
    parts = [part for part in path.split("/") if part != CONVERTED]
    *folder, own_name = parts or [path]
    stem = split_extension(own_name)[0]
    for name in dict.fromkeys([stem, _split_language(stem)[0], stem.removesuffix("_frames")]):
        yield "/".join([*folder, name])
    if folder and folder[-1].endswith("_frames"):
        yield "/".join(folder).removesuffix("_frames")


def media_file_name(value: object) -> str | None:
    """Return the file name in ``value`` without folders; ``None`` for an address or other text."""
    if not isinstance(value, str) or _SCHEME.match(value.strip()[:40]):
        return None
    name = re.split(r"[/\\]", value.strip().strip("`'\"[]").strip())[-1].strip()
    return None if len(name) > 255 or _CONTROL.search(name) or not file_type_of(name) else name


def file_type_of(name: str) -> str | None:
    """Return ``video``, ``audio``, ``image`` or a document's extension, by the extension."""
    stem, extension = split_extension(name)
    return _FILE_TYPES.get(extension.lower()) if stem else None


def _split_language(stem: str) -> tuple[str, str | None]:
    """Split ``lecture.en-US.auto`` into ``lecture`` and ``en-US``."""
    match = _LANGUAGE.fullmatch(stem)
    if match is None or match[2] in _FILE_TYPES:
        return stem, None
    return match[1], match[2] + match[3].replace("_", "-")


def split_extension(name: str) -> tuple[str, str]:
    """Split off the extension without its dot; a leading dot does not begin an extension."""
    stem, _, extension = name.rpartition(".")
    return (stem, extension) if stem else (name, "")


_RECORDING_KEYS = "channel upload_date duration source_url source_type media media_file"


def normalise_recording(raw: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return metadata of a recording, normalised.

    ``channel`` becomes the ``author``, ``upload_date`` the date ``created``, ``duration`` a number
    of seconds. Those in other forms are left out, as are a ``source_url`` that is no web address,
    and ``source_type``, ``media`` and ``media_file``, which only the reader sets.
    """
    others = {key: value for key, value in raw.items() if key not in _RECORDING_KEYS.split()}
    channel, address = raw.get("channel"), raw.get("source_url")
    told = {
        "author": " ".join(channel.split()) if isinstance(channel, str) else None,
        "created": read_written_date(raw.get("upload_date")),
        "source_url": address if is_web_address(address) else None,
        "duration": read_seconds(raw.get("duration")),
    }
    return normalise({**{key: value for key, value in told.items() if value}, **others})


def read_seconds(value: object) -> float | None:
    """Return the seconds of a number or a timecode, perhaps in quotes or brackets."""
    if isinstance(value, str):
        return parse_timecode(value.strip().strip("`[]()"), bare_seconds=True)
    return valid_seconds(value)


_TRANSCRIPT_NAME = re.compile(
    r"(?<![^\W_])(?:(?:transcripts?|transkript)(?![^\W_])"
    r"|(?:subtitles?|captions|untertitel)(?:[._-][a-z]{2}(?:-[a-z]{2})?)?\Z)",
    re.IGNORECASE,
)


def is_called_transcript(path: str) -> bool:
    """Return whether a file is a transcript or subtitles by its name."""
    return _TRANSCRIPT_NAME.search(PurePosixPath(path).stem) is not None
