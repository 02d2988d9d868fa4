"""Which recording, image or document a text was made of: by its path and what it says itself.

Nothing here looks at the file system, and no name from inside a file leads out of its folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from catalog.core.documents import MetadataValue, Modality
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import is_web_address, normalise
from catalog.ingest.readers.timed.frames import looks_like_frame, second_of_frame
from catalog.ingest.readers.timed.timecodes import parse_timecode, valid_seconds

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
    """The recording, image or document that a text was made of.

    ``key`` groups the texts of one medium: of a recording its path in the dataset without an
    extension, of anything else its path. ``file`` is its path where its own name is known.
    ``file_type`` is ``video``, ``audio``, ``image`` or a document's extension, ``language`` the
    one in the text's own name.
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
        """Return ``media``, and ``media_file`` and ``language`` where they are known."""
        known = {"media": self.key, "media_file": self.file, "language": self.language}
        return {name: value for name, value in known.items() if value}


def find_medium(path: str, name: str | None = None, *, is_frame: bool = False) -> Medium:
    """Return the medium of the text at ``path``.

    ``name`` is the medium's file as the text itself names it (see :func:`media_file_name`), else
    the text's own name may hold it (``talk.mp4.en.srt``). A description of a frame
    (``is_frame``, or named like one) in a folder ``talk_frames`` belongs to ``talk``
    beside that folder.
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
    """Yield the names that the file a text was made of may have, by the text's own path.

    They are whole (of ``photo.png.md``) or without an extension; the likeliest comes first.
    """
    parts = [part for part in path.split("/") if part != CONVERTED]
    *folder, own_name = parts or [path]
    stem = split_extension(own_name)[0]
    for name in dict.fromkeys([stem, _split_language(stem)[0]]):
        yield "/".join([*folder, name])
    if folder and folder[-1].endswith(_FRAMES) and folder[-1] != _FRAMES:
        yield "/".join(folder).removesuffix(_FRAMES)


def media_file_name(value: object) -> str | None:
    """Return the file name in ``value``, without folders; ``None`` for an address or no medium."""
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
    """Split off the extension (without its dot); a leading dot begins no extension."""
    stem, dot, extension = name.rpartition(".")
    return (stem, extension) if dot and stem else (name, "")


_COMPACT_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})", re.ASCII)
_RECORDING_KEYS = frozenset(
    ["channel", "upload_date", "duration", "source_url", "source_type", "media", "media_file"]
)


def normalise_recording(raw: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return metadata of a recording, normalised.

    ``channel`` is the ``author``, ``upload_date`` (``YYYYMMDD`` or ``YYYY-MM-DD``) the date
    ``created``, ``duration`` a number of seconds. What has no such form is left out, and so
    are a ``source_url`` that is no web address, and ``source_type``, ``media`` and ``media_file``,
    which are ours to set.
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
    """Return the seconds of a number or a timecode, if more than none."""
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
    r"(?<![^\W_])(?:transcripts?|subtitles?|captions|transkript|untertitel)(?![^\W_])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SourceMedia:
    """The source of a text as it describes it.

    ``name`` is its file name, ``recording`` the same from fields that count only if
    there are cues or frames. ``file_type`` is ``video``, ``audio``, ``image`` or a document's
    extension; ``duration`` in seconds. ``is_frame`` and ``is_transcript`` say what it looks like
    by path and fields, ``second`` which one of the recording it shows.
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
    """Return what ``raw`` (fields of front matter and a converter's header) and the name say.

    ``image: cover.png`` in front matter says nothing of where a text comes from, and neither
    does ``source: paper.pdf``: only a converter's header or its own words for it do.
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
    """Return the type of the original in a text's own name, which alone tells only recordings.

    Whether there is a ``scan.pdf`` beside ``scan.pdf.md`` is known to who lists the files.
    """
    file_type = file_type_of(PurePosixPath(path).stem)
    is_sure = file_type in RECORDINGS or CONVERTED in path.split("/")
    return file_type if is_sure else None


def is_called_transcript(path: str) -> bool:
    """Return whether the name of a file says that it is a transcript, or subtitles."""
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
