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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from catalog.core.documents import Heading, MetadataValue, Modality, ParsedDocument, Segment
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import is_web_address, normalise
from catalog.ingest.readers.timed.cues import (
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
    """Return whether a heading only says that a frame follows, and its time."""
    return _TITLE.match(title) is not None


def title_without_time(title: str) -> str:
    """Return a heading without a frame's time: "" for ``Frame at 01:12``."""
    if is_frame_title(title):
        return ""
    return _TIMED_START.sub("", title)


def is_time_line(line: str) -> bool:
    """Return whether a line only says when a frame is shown: ``Timestamp: 01:12``."""
    return _LABELLED.fullmatch(line) is not None


def looks_like_frame(path: str, fields: Mapping[str, object]) -> bool:
    """Return whether a file has one or more frames, by its folder, name or fields."""
    stem, folder = _stem(path), PurePosixPath(path).parent.name
    if "frame_file" in fields or ("video_source" in fields and "timestamp" in fields):
        return True
    if _FOLDER.fullmatch(folder) or _FOLDER.fullmatch(stem) or _NAME.match(stem):
        return True
    is_named = _WITHIN_NAME.search(stem) is not None
    return is_named and time_in_name(stem, is_certain=True) is not None


def second_of_frame(path: str, fields: Mapping[str, object]) -> float | None:
    """Return the second in the fields or in the file's name; ``None`` if neither has one."""
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
    """Return the frames of a document; if it ``is_frame`` and has none, also the reason.

    A frame under a heading extends to the next one, or to a heading that is not below its own.
    ``second`` is the result of :func:`second_of_frame`.
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
        "read as text, not as a frame: neither its headings nor its name have a time; name "
        "it frame_01m12s, or begin it with '# Frame at 01:12'"
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


CONVERTED = ".converted"
"""The folder in which converters put what they made of the files beside it."""
_MEDIA_EXTENSIONS = {
    "video": "mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv 3gp",
    "audio": "mp3 wav m4a flac ogg opus aac wma aif aiff oga amr",
    "image": "png jpg jpeg gif bmp webp tif tiff svg heic avif ico",
}
_DOCUMENT_EXTENSIONS = "pdf doc docx ppt pptx xls xlsx odt odp ods rtf epub html htm ipynb"
_FILE_TYPES = {
    **{ext: media for media, names in _MEDIA_EXTENSIONS.items() for ext in names.split()},
    **{extension: extension for extension in _DOCUMENT_EXTENSIONS.split()},
}
RECORDINGS = ("video", "audio")
_LANGUAGES = (
    "aa ab af ak am ar as ay az ba be bg bn bo br bs ca co cs cy da de dz el en eo es et eu fa "
    "fi fj fo fr fy ga gd gl gn gu ha haw he hi hr ht hu hy ia id ig is it iw ja jv ka kk km kn "
    "ko ku ky la lb ln lo lt lv mg mi mk ml mn mr ms mt my nb ne nl nn no ny oc or pa pl ps pt "
    "qu rm ro ru rw sa sd si sk sl sm sn so sq sr st su sv sw ta te tg th ti tk tl tn to tr ts "
    "tt ug uk ur uz vi wo xh yi yo zh zu ara ces chi cze dan deu dut ell eng fin fra fre ger "
    "gre heb hin hun ita jpn kor nld nor pol por ron rum rus spa swe tha tur ukr vie zho"
)
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})((?:[-_][A-Za-z0-9]{2,8}){0,3})")
_MARKERS = frozenset(
    ["auto", "asr", "orig", "original", "generated", "forced", "sdh", "cc", "default", "manual"]
)
_FRAME_NAME = re.compile(r"(?:key)?frame[-_ ]?\d", re.IGNORECASE)
_FRAMES = "_frames"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=\S)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ufffd]")
_MAX_NAME = 255


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
    is_frames_folder = bool(folder) and folder[-1].endswith(_FRAMES) and folder[-1] != _FRAMES
    if is_frames_folder and (is_frame or _FRAME_NAME.match(stem)):
        stem = folder.pop().removesuffix(_FRAMES)
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
    if folder and folder[-1].endswith(_FRAMES) and folder[-1] != _FRAMES:
        yield "/".join(folder).removesuffix(_FRAMES)


def media_file_name(value: object) -> str | None:
    """Return the file name in ``value`` without folders; ``None`` for an address or other text."""
    if not isinstance(value, str) or _SCHEME.match(value.strip()[:40]):
        return None
    name = re.split(r"[/\\]", value.strip().strip("`'\"[]").strip())[-1].strip()
    if len(name) > _MAX_NAME or _CONTROL.search(name) or file_type_of(name) is None:
        return None
    return name


def file_type_of(name: str) -> str | None:
    """Return ``video``, ``audio``, ``image`` or a document's extension, by the extension."""
    stem, extension = split_extension(name)
    return _FILE_TYPES.get(extension.lower()) if stem else None


def _split_language(stem: str) -> tuple[str, str | None]:
    """Split ``lecture.en-US.auto`` into ``lecture`` and ``en-US``."""
    rest = stem
    while "." in rest and rest.rpartition(".")[2].lower() in _MARKERS:
        rest = rest.rpartition(".")[0]
    name, dot, last = rest.rpartition(".")
    match = _LANGUAGE.fullmatch(last)
    if not (dot and name) or match is None or match[1].lower() not in _LANGUAGES.split():
        return stem, None
    subtags = [tag for tag in re.split("[-_]", match[2]) if tag and tag.lower() not in _MARKERS]
    return name, "-".join([match[1].lower(), *subtags])


def split_extension(name: str) -> tuple[str, str]:
    """Split off the extension without its dot; a leading dot does not begin an extension."""
    stem, dot, extension = name.rpartition(".")
    return (stem, extension) if dot and stem else (name, "")


_COMPACT_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})", re.ASCII)
_RECORDING_KEYS = frozenset(
    ["channel", "upload_date", "duration", "source_url", "source_type", "media", "media_file"]
)


def normalise_recording(raw: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return metadata of a recording, normalised.

    ``channel`` becomes the ``author``, ``upload_date`` (``YYYYMMDD`` or ``YYYY-MM-DD``) the date
    ``created``, ``duration`` a number of seconds. Values in other forms are left out. So are a
    ``source_url`` that is not a web address, and ``source_type``, ``media`` and ``media_file``,
    which only the reader sets.
    """
    fields = normalise({key: value for key, value in raw.items() if key not in _RECORDING_KEYS})
    channel = raw.get("channel")
    if isinstance(channel, str) and channel.strip():
        fields.setdefault("author", " ".join(channel.split()))
    date = _COMPACT_DATE.fullmatch(str(raw.get("upload_date", "")).strip())
    if date is not None:
        fields.setdefault("created", "-".join(date.groups()))
    address = raw.get("source_url")
    if isinstance(address, str) and is_web_address(address):
        fields["source_url"] = address
    duration = _parse_duration(raw.get("duration"))
    if duration is not None:
        fields["duration"] = duration
    return normalise(fields)


def _parse_duration(value: object) -> float | None:
    """Return the seconds of a number or timecode if they are above 0."""
    seconds = (
        parse_timecode(value, bare_seconds=True) if isinstance(value, str) else valid_seconds(value)
    )
    return seconds or None


_SOURCE_KEYS = ("video_source", "source_file", "original_file", "media_file")
"""Fields that only something made of a file has."""
_RECORDING_FILE_KEYS = ("source", "media", "video", "audio", "recording")
"""Fields that may mean anything, unless they name a recording."""
_MODALITIES = ("ocr", "image_caption", "video_transcript", "audio_transcript")
_OCR_KEYS = ("ocr", "ocr_model", "ocr_engine")
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

    @property
    def is_recording(self) -> bool:
        """Return whether it names sound or video as its source."""
        return self.file_type in RECORDINGS or self.recording is not None


def describe_source(path: str, raw: Mapping[Any, object], *, has_header: bool) -> SourceMedia:
    """Return the source described by ``raw`` (front matter, a converter's header) and the name.

    ``image: cover.png`` in front matter does not say where a text comes from, and neither does
    ``source: paper.pdf``. Only a converter's header or its own terms do.
    """
    fields = {str(key).casefold(): value for key, value in raw.items()}
    header_keys = (*_SOURCE_KEYS, *_RECORDING_FILE_KEYS, "image")
    name = _first_file_name(fields, header_keys if has_header else _SOURCE_KEYS)
    recording = _first_file_name(fields, _RECORDING_FILE_KEYS)
    if recording is not None and file_type_of(recording) not in RECORDINGS:
        recording = None
    modality = fields.get("modality")
    known = cast("Modality", modality) if modality in _MODALITIES else None
    if name is None and known in ("ocr", "image_caption"):
        name = _first_file_name(fields, ("image", "source", "media"))
    file_type = (
        (_file_type_on_a_site(fields) if has_header else None)
        or _file_type_of_format(fields.get("source_format"))
        or file_type_of(name or "")
        or _file_type_by_name(path)
    )
    return SourceMedia(
        name=name,
        recording=recording,
        file_type=file_type,
        modality=known,
        is_scanned=known == "ocr" or _is_scanned(fields),
        is_declared=has_header
        or (name, file_type, known) != (None, None, None)
        or CONVERTED in path.split("/"),
        duration=_parse_duration(fields.get("duration")),
        is_frame=looks_like_frame(path, fields),
        is_transcript=is_called_transcript(path),
        second=second_of_frame(path, fields),
    )


def _file_type_by_name(path: str) -> str | None:
    """Return the original's type in a text's own name, which is enough only for recordings.

    Only the listing knows whether there is a ``scan.pdf`` next to ``scan.pdf.md``.
    """
    file_type = file_type_of(PurePosixPath(path).stem)
    is_sure = file_type in RECORDINGS or CONVERTED in path.split("/")
    return file_type if is_sure else None


def is_called_transcript(path: str) -> bool:
    """Return whether a file is a transcript or subtitles by its name."""
    return _TRANSCRIPT_NAME.search(PurePosixPath(path).stem) is not None


def _first_file_name(fields: Mapping[str, object], keys: Sequence[str]) -> str | None:
    return next((name for key in keys if (name := media_file_name(fields.get(key)))), None)


def _file_type_on_a_site(fields: Mapping[str, object]) -> str | None:
    if "thumbnail_file" in fields:
        return "image"
    return "video" if "video_source" in fields or "video_id" in fields else None


def _file_type_of_format(value: object) -> str | None:
    """Return the file type of a bare format (``png``, ``.PDF``, ``video``)."""
    name = value.strip().lstrip(".").lower() if isinstance(value, str) else ""
    return name if name in _MEDIA_EXTENSIONS else _FILE_TYPES.get(name)


def _is_scanned(fields: Mapping[str, object]) -> bool:
    if any(fields.get(key) not in (None, False, "", "false", "no") for key in _OCR_KEYS):
        return True
    return any("ocr" in str(fields.get(key, "")).casefold().split() for key in _METHOD_KEYS)
