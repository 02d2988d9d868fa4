"""Find the recording, image or document a text was made from, and the second a frame shows.

A frame is a section under a heading that says so (``## Frame at 00:01:12``), or a whole file that
is known as a frame by its folder (``lecture_frames/``), its name (``frame_01m12s.md``) or its
fields (``frame_file``). The second of a file is in its fields (``timestamp: 01:12``) or in a line
``Timestamp: 01:12``, else in its name, else in each heading with a time.

The original of a text is found from its path and from the text itself. Nothing here looks at the
file system, and no name in a file leads out of its folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from catalog.core.documents import Heading, MetadataValue, Modality, ParsedDocument, Segment
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import is_web_address, normalise
from catalog.ingest.readers.timed.cues import CODE, parse_timecode, valid_seconds

_TITLE = re.compile(
    r"^(?:visual |video |key ?)?(?:frame|keyframe|screenshot|snapshot)(?: #?\d{1,6})?"
    rf"(?: at| @|:)? ?[\[(]?({CODE})(?![\d:])",
    re.ASCII | re.IGNORECASE,
)
_TIMED_TITLE = re.compile(rf"(?:^[\[(]?|(?:\bat|@|[\[(]) ?)({CODE})(?![\d:])", re.ASCII | re.I)
_TIMED_START = re.compile(rf"[\[(]?(?:{CODE})[\])]?[ :–—-]{{0,4}}(?=\w)", re.ASCII)
_LABELLED = re.compile(
    r"^[ \t>*_-]{0,8}(?:frame |video )?(?:time|position|time ?stamp|time ?code)[*_]{0,3}:"
    rf"[*_ \t`\[(]{{0,8}}({CODE}|\d{{1,7}}(?:[.,]\d{{1,9}})?)[\])*_`. \t]{{0,8}}$",
    re.ASCII | re.IGNORECASE | re.MULTILINE,
)
_LABELLED_WITHIN = 2000
"""Characters of a file in which a line with its time is looked for."""
_TIME_KEYS = ("timestamp", "timecode", "frame_time", "time", "time_seconds", "seconds", "position")
_FILE_KEYS = ("frame_file", "frame", "image_file", "image")
_FOLDER = re.compile(r"(?:.+[-_. ])?(?:key|video)?frames", re.IGNORECASE)
_NAME = re.compile(
    r"(?:(?:key|video|visual)[-_ ]?)?frame[-_ ]?(?:at[-_ ])?t?=?\d|vlcsnap-"
    r"|.*(?<![A-Za-z])frame[-_ ](?:\d{1,3}h)?\d{1,3}m\d\ds",
    re.IGNORECASE,
)
_EXTENSION = re.compile(
    r"(?:\.(?:png|jpe?g|webp|gif|bmp|tiff?))?\.[A-Za-z]\w{0,7}\Z", re.IGNORECASE
)
_DATED = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_ .T]+(?:at )?\d[\dhms._-]*)?", re.A
)
_NAME_TIME = re.compile(
    r"(?<![A-Za-z0-9.])t?(?:(?:(\d{1,3})[h_.:;-])?(\d{2}|\d{1,3}(?=m))[m_.:;-](\d{2})s?|()()(\d{1,5})s)"
    r"(?:[.,_;]?(\d{3}))?(?![A-Za-z0-9])",
    re.ASCII | re.IGNORECASE,
)


def time_in_name(stem: str) -> float | None:
    """Return the seconds in the name of a file (without its extension), or ``None``.

    The forms are ``01m12s``, ``1h02m03s``, ``72s``, ``00-01-12.500`` and ``01_12``. A whole number
    alone counts frames, and a time after a date is a time of day.
    """
    for match in _NAME_TIME.finditer(_DATED.sub(" ", stem[:200])):
        hours, minutes, seconds = match[1], match[2], match[3] or match[6]
        code = f"{hours or 0}:{minutes or 0}:{seconds}.{match[7] or 0}"
        return parse_timecode(code) if minutes else valid_seconds(seconds)
    return None


def is_frame_title(title: str) -> bool:
    """Return whether a heading only says that a frame follows, and its time."""
    return _TITLE.match(title) is not None


def title_without_time(title: str) -> str:
    """Return a heading without a frame's time: "" for ``Frame at 01:12``."""
    return "" if is_frame_title(title) else _TIMED_START.sub("", title)


def is_time_line(line: str) -> bool:
    """Return whether a line only says when a frame is shown: ``Timestamp: 01:12``."""
    return _LABELLED.fullmatch(line) is not None


def find_frames(
    document: ParsedDocument, headings: Sequence[Heading], second: float | None, *, is_frame: bool
) -> tuple[list[Segment], str | None]:
    """Return the frames of a document; if it ``is_frame`` and has none, also the reason.

    A frame under a heading extends to the next one, or to a heading that is not below its own.
    ``second`` is the second in the fields or the name of the file.
    """
    start, end = document.body_start, len(document.text)
    frames = list(_under_headings(headings, end, _TITLE))
    if frames or not is_frame:
        return frames, None
    labelled = _LABELLED.search(document.text, start, start + _LABELLED_WITHIN)
    told = parse_timecode(labelled[1], bare_seconds=True) if labelled else None
    second = second if told is None else told
    if second is not None:
        return [Segment(start, end, "video_frame", second, second)], None
    frames = list(_under_headings(headings, end, _TIMED_TITLE))
    return frames, None if frames else (
        "read as text, not as a frame: neither its headings nor its name have a time; name "
        "it frame_01m12s, or begin it with '# Frame at 01:12'"
    )


def _under_headings(
    headings: Sequence[Heading], end: int, pattern: re.Pattern[str]
) -> Iterator[Segment]:
    frame: tuple[Heading, float] | None = None
    for heading in [*headings, Heading(end, end, 0, "")]:
        match = pattern.search(heading.title)
        time = parse_timecode(match[1]) if match else None
        if frame is not None and (time is not None or heading.level <= frame[0].level):
            yield Segment(frame[0].start, heading.start, "video_frame", frame[1], frame[1])
            frame = None
        if time is not None:
            frame = heading, time


CONVERTED = ".converted"
"""The folder in which converters put what they made of the files beside it."""
RECORDINGS = ("video", "audio")
_MEDIA = {
    "video": "mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv 3gp",
    "audio": "mp3 wav m4a flac ogg opus aac wma aif aiff oga amr",
    "image": "png jpg jpeg gif bmp webp tif tiff svg heic avif ico",
}
_DOCUMENTS = "pdf doc docx ppt pptx xls xlsx odt odp ods rtf epub html htm ipynb"
_FILE_TYPES = {
    **{extension: media for media, names in _MEDIA.items() for extension in names.split()},
    **{extension: extension for extension in _DOCUMENTS.split()},
}
_LANGUAGE = re.compile(
    r"(.+)\.([a-z]{2,3})((?:[-_][A-Za-z0-9]{2,8})*)(?:[.-](?:auto|asr|orig|generated|forced|sdh|cc))*"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=\S)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ufffd]")


@dataclass(frozen=True, slots=True)
class Medium:
    """The recording, image or document from which a text was made.

    ``key`` groups the texts of one medium: for a recording it is the path in the dataset without
    extension, otherwise the path. ``file`` is its path if its own name is known. ``file_type`` is
    ``video``, ``audio``, ``image`` or a document's extension; ``language`` is that in the text's
    own name.
    """

    key: str
    file: str | None = None
    file_type: str | None = None
    language: str | None = None

    @property
    def title(self) -> str:
        """Return the medium's name without folder and extension."""
        return choose_title(self.key, self.key.rpartition("/")[2])

    @property
    def transcript_modality(self) -> Modality:
        """Return the modality of the words spoken in it."""
        return "audio_transcript" if self.file_type == "audio" else "video_transcript"

    def metadata(self) -> dict[str, MetadataValue]:
        """Return ``media``, and ``media_file`` and ``language`` if known."""
        known = {"media": self.key, "media_file": self.file, "language": self.language}
        return {name: value for name, value in known.items() if value}


def find_medium(path: str, name: str | None = None, *, is_frame: bool = False) -> Medium:
    """Return the medium of the text at ``path``.

    ``name`` is the medium's file as the text itself names it (see :func:`media_file_name`);
    otherwise the text's own name may contain it (``talk.mp4.en.srt``). A description of a frame
    (``is_frame``, or named like one) in a folder ``talk_frames`` belongs to ``talk`` next to that
    folder.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..", CONVERTED)]
    *folder, own_name = parts or [path]
    stem, language = _split_language(split_extension(own_name)[0])
    if (is_frame or _NAME.match(stem)) and _is_of_frames(folder):
        stem = folder.pop().removesuffix("_frames")
    file_name = media_file_name(name) or (stem if file_type_of(stem) else None)
    file_type = file_type_of(file_name) if file_name else None
    key = file_name or stem
    if file_type in RECORDINGS:
        key = split_extension(key)[0]
    file = "/".join([*folder, file_name]) if file_name else None
    return Medium("/".join([*folder, key]), file, file_type, language)


def possible_originals(path: str) -> Iterator[str]:
    """Yield possible names of the file from which a text was made, by the text's own path.

    They are complete (for ``photo.png.md``) or without an extension; the likeliest comes first.
    """
    parts = [part for part in path.split("/") if part != CONVERTED]
    *folder, own_name = parts or [path]
    stem = split_extension(own_name)[0]
    for name in dict.fromkeys([stem, _split_language(stem)[0]]):
        yield "/".join([*folder, name])
    if _is_of_frames(folder):
        yield "/".join(folder).removesuffix("_frames")


def _is_of_frames(folder: list[str]) -> bool:
    return bool(folder) and folder[-1].endswith("_frames") and folder[-1] != "_frames"


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
    stem, dot, extension = name.rpartition(".")
    return (stem, extension) if dot and stem else (name, "")


_COMPACT_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})", re.ASCII)
_RECORDING_KEYS = (
    "channel",
    "upload_date",
    "duration",
    "source_url",
    "source_type",
    "media",
    "media_file",
)


def normalise_recording(raw: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return metadata of a recording, normalised.

    ``channel`` becomes the ``author``, ``upload_date`` (``YYYYMMDD`` or ``YYYY-MM-DD``) the date
    ``created``, ``duration`` a number of seconds. Values in other forms are left out. So are a
    ``source_url`` that is not a web address, and ``source_type``, ``media`` and ``media_file``,
    which only the reader sets.
    """
    fields = normalise({key: value for key, value in raw.items() if key not in _RECORDING_KEYS})
    channel, address = raw.get("channel"), raw.get("source_url")
    if isinstance(channel, str) and channel.strip():
        fields.setdefault("author", " ".join(channel.split()))
    if date := _COMPACT_DATE.fullmatch(str(raw.get("upload_date", "")).strip()):
        fields.setdefault("created", "-".join(date.groups()))
    if isinstance(address, str) and is_web_address(address):
        fields["source_url"] = address
    if duration := _read_seconds(raw.get("duration")):
        fields["duration"] = duration
    return normalise(fields)


def _read_seconds(value: object) -> float | None:
    """Return the seconds of a number or a timecode."""
    if isinstance(value, str):
        return parse_timecode(value.strip().strip("`[]()"), bare_seconds=True)
    return valid_seconds(value)


_SOURCE_KEYS = ("video_source", "source_file", "original_file", "media_file")
"""Fields that only something made of a file has."""
_RECORDING_FILE_KEYS = ("source", "media", "video", "audio", "recording")
"""Fields that may mean anything, unless they name a recording."""
_MODALITIES = ("ocr", "image_caption", "video_transcript", "audio_transcript")
_METHOD_KEYS = ("method", "extraction_method", "extraction", "converter", "parser")
_TRANSCRIPT_NAME = re.compile(
    r"(?<![^\W_])(?:(?:transcripts?|transkript)(?![^\W_])"
    r"|(?:subtitles?|captions|untertitel)(?:[._-][a-z]{2}(?:-[a-z]{2})?)?\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SourceMedia:
    """The source of a text as the text describes it.

    ``name`` is its file name; ``recording`` is the same from fields that count only if there are
    cues or frames. ``file_type`` is ``video``, ``audio``, ``image`` or a document's extension;
    ``duration`` is in seconds. ``is_frame`` and ``is_transcript`` follow from path and fields.
    ``second`` is the second of the recording that it shows.
    """

    name: str | None = None
    recording: str | None = None
    file_type: str | None = None
    modality: Modality | None = None
    is_scanned: bool = False
    is_declared: bool = False
    duration: float | None = None
    is_frame: bool = False
    is_transcript: bool = False
    second: float | None = None


def describe_source(path: str, raw: Mapping[Any, object], *, has_header: bool) -> SourceMedia:
    """Return the source described by ``raw`` (front matter, a converter's header) and the name.

    ``image: cover.png`` in front matter does not say where a text comes from, and neither does
    ``source: paper.pdf``. Only a converter's header or its own terms do.
    """
    fields = {str(key).casefold(): value for key, value in raw.items()}
    known = fields.get("modality") if fields.get("modality") in _MODALITIES else None
    keys = _SOURCE_KEYS + ((*_RECORDING_FILE_KEYS, "image") if has_header else ())
    keys += ("image", "source", "media") if known in ("ocr", "image_caption") else ()
    name, recording = _first_file(fields, keys), _first_file(fields, _RECORDING_FILE_KEYS)
    on_site = "image" if "thumbnail_file" in fields else "video"
    is_on_site = bool({"thumbnail_file", "video_source", "video_id"} & fields.keys())
    stated = str(fields.get("source_format", "")).strip().lstrip(".").lower()
    by_name = file_type_of(PurePosixPath(path).stem)  # scan.pdf.md says nothing, talk.mp4.md does
    is_converted = CONVERTED in path.split("/")
    file_type = (
        (on_site if has_header and is_on_site else None)
        or (stated if stated in _MEDIA else _FILE_TYPES.get(stated))
        or file_type_of(name or "")
        or (by_name if by_name in RECORDINGS or is_converted else None)
    )
    ocr = [fields.get(key) for key in ("ocr", "ocr_model", "ocr_engine")]
    methods = " ".join(str(fields.get(key, "")) for key in _METHOD_KEYS).casefold().split()
    is_scanned = any(one not in (None, False, "", "false", "no") for one in ocr) or "ocr" in methods
    stem, folder = _stem(path), PurePosixPath(path).parent.name
    names = [_stem(one) for key in _FILE_KEYS if isinstance(one := fields.get(key), str)]
    seconds = [_read_seconds(fields[key]) for key in _TIME_KEYS if key in fields]
    seconds += [time_in_name(one) for one in [*names, stem]]
    is_told = "frame_file" in fields or {"video_source", "timestamp"} <= fields.keys()
    is_named = _FOLDER.fullmatch(folder) or _FOLDER.fullmatch(stem) or _NAME.match(stem)
    return SourceMedia(
        name=name,
        recording=recording if file_type_of(recording or "") in RECORDINGS else None,
        file_type=file_type,
        modality=cast("Modality | None", known),
        is_scanned=known == "ocr" or is_scanned,
        is_declared=has_header or is_converted or (name, file_type, known) != (None, None, None),
        duration=_read_seconds(fields.get("duration")) or None,
        is_frame=bool(is_told or is_named),
        is_transcript=is_called_transcript(path),
        second=next((one for one in seconds if one is not None), None),
    )


def _first_file(fields: Mapping[str, object], keys: Sequence[str]) -> str | None:
    return next((name for key in keys if (name := media_file_name(fields.get(key)))), None)


def _stem(path: str) -> str:
    """Return the name without extension, and without a picture's (``frame_12.5.jpg.md``)."""
    return _EXTENSION.sub("", PurePosixPath(path).name)


def is_called_transcript(path: str) -> bool:
    """Return whether a file is a transcript or subtitles by its name."""
    return _TRANSCRIPT_NAME.search(PurePosixPath(path).stem) is not None
