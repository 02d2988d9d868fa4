"""Which recording, image or document a text was made of: by its path and what it says itself.

Nothing here looks at the file system, and no name from inside a file leads out of its folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from catalog.core.documents import MetadataValue, Modality
from catalog.ingest.readers.base import title_or_stem
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.timed.timecodes import parse_timecode, valid_seconds

CONVERTED = ".converted"
"""The folder in which converters put what they made of the files beside it."""

_KINDS = {
    "video": "mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv 3gp",
    "audio": "mp3 wav m4a flac ogg opus aac wma aif aiff oga amr",
    "image": "png jpg jpeg gif bmp webp tif tiff svg heic avif ico",
}
_DOCUMENTS = "pdf doc docx ppt pptx xls xlsx odt odp ods rtf epub html htm ipynb"
_KIND_OF = {
    **{extension: kind for kind, names in _KINDS.items() for extension in names.split()},
    **{extension: extension for extension in _DOCUMENTS.split()},
}
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
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Medium:
    """What a text was made of.

    ``key`` groups the texts of one medium: its path in the dataset without an extension.
    ``file`` is its path where its own name is known. ``file_type`` is ``video``, ``audio``,
    ``image`` or a document's extension, ``language`` that which the text's own name tells.
    """

    key: str
    file: str | None = None
    file_type: str | None = None
    language: str | None = None

    @property
    def title(self) -> str:
        """The medium's name without folder and extension."""
        name = self.key.rpartition("/")[2]
        return title_or_stem(name, self.key)

    @property
    def transcript_modality(self) -> Modality:
        """What the words spoken in it are called."""
        return "audio_transcript" if self.file_type == "audio" else "video_transcript"

    def metadata(self) -> dict[str, MetadataValue]:
        """``media``, and ``media_file`` and ``language`` where they are known."""
        known = {"media": self.key, "media_file": self.file, "language": self.language}
        return {name: value for name, value in known.items() if value}


def medium_of(path: str, named: str | None = None, *, is_frame: bool = False) -> Medium:
    """The medium of the text at ``path``.

    ``named`` is the medium's file as the text itself names it (see :func:`medium_name`), else
    the text's own name may hold it (``talk.mp4.en.srt``). A description of a frame
    (``is_frame``, or named like one) in a folder ``talk_frames`` belongs to ``talk``
    beside that folder.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..", CONVERTED)]
    *folder, name = parts or [path]
    stem, language = _without_language(_split(name)[0])
    if folder and _is_frames_folder(folder[-1]) and (is_frame or _FRAME_NAME.match(stem)):
        stem = folder.pop().removesuffix(_FRAMES)
    known = medium_name(named) or (stem if kind_of_file(stem) else None)
    key = _split(known)[0] if known else stem
    return Medium(
        _joined(folder, key),
        _joined(folder, known) if known else None,
        kind_of_file(known) if known else None,
        language,
    )


def medium_name(value: object) -> str | None:
    """The file name in ``value``, without folders; ``None`` if it is an address or no medium."""
    if not isinstance(value, str) or _SCHEME.match(value.strip()[:40]):
        return None
    name = re.split(r"[/\\]", value.strip().strip("`'\"[]").strip())[-1].strip()
    if len(name) > _LONGEST_NAME or _CONTROL.search(name) or kind_of_file(name) is None:
        return None
    return name


def kind_of_file(name: str) -> str | None:
    """``video``, ``audio``, ``image``, a document's extension, or ``None`` by the extension."""
    stem, extension = _split(name)
    return _KIND_OF.get(extension.lower()) if stem else None


def kind_of_format(value: object) -> str | None:
    """The same for a bare format (``png``, ``.PDF``, ``video``)."""
    name = value.strip().lstrip(".").lower() if isinstance(value, str) else ""
    return name if name in _KINDS else _KIND_OF.get(name)


def _is_frames_folder(name: str) -> bool:
    return name.endswith(_FRAMES) and name != _FRAMES


def _without_language(stem: str) -> tuple[str, str | None]:
    """``lecture.en-US.auto`` as ``lecture`` and ``en-US``."""
    rest = stem
    while "." in rest and rest.rpartition(".")[2].lower() in _MARKERS:
        rest = rest.rpartition(".")[0]
    name, dot, last = rest.rpartition(".")
    found = _LANGUAGE.fullmatch(last)
    if not (dot and name) or found is None or found.group(1).lower() not in _LANGUAGES.split():
        return stem, None
    subtags = [tag for tag in re.split("[-_]", found.group(2)) if tag]
    kept = [tag for tag in subtags if tag.lower() not in _MARKERS]
    return name, "-".join([found.group(1).lower(), *kept])


def _split(name: str) -> tuple[str, str]:
    """Name and extension (without its dot); a leading dot begins no extension."""
    stem, dot, extension = name.rpartition(".")
    return (stem, extension) if dot and stem else (name, "")


def _joined(folder: Sequence[str], name: str) -> str:
    return "/".join([*folder, name])


_COMPACT_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})", re.ASCII)
_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_TAKEN = frozenset(["channel", "upload_date", "duration", "source_url", "source_type"])


def recording_fields(raw: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Metadata of a recording, normalised.

    ``channel`` is the ``author``, ``upload_date`` (``YYYYMMDD`` or ``YYYY-MM-DD``) the date
    ``created``, ``duration`` a number of seconds. What has no such form is left out, and so
    are a ``source_url`` that is no web address and a ``source_type``, which is ours to set.
    """
    fields = normalise({key: value for key, value in raw.items() if key not in _TAKEN})
    channel = raw.get("channel")
    if isinstance(channel, str) and channel.strip():
        fields.setdefault("author", " ".join(channel.split()))
    date = _COMPACT_DATE.fullmatch(str(raw.get("upload_date", "")).strip())
    if date is not None:
        fields.setdefault("created", "-".join(date.groups()))
    address = raw.get("source_url")
    if isinstance(address, str) and _ADDRESS.fullmatch(address):
        fields["source_url"] = address
    length = duration(raw.get("duration"))
    if length is not None:
        fields["duration"] = length
    return normalise(fields)


def duration(value: object) -> float | None:
    """Seconds of a number or a timecode, if more than none."""
    seconds = (
        parse_timecode(value, bare_seconds=True) if isinstance(value, str) else valid_seconds(value)
    )
    return seconds or None


_PLAIN_WORDS = ("video_source", "source_file", "original_file", "media_file")
"""Fields that only something made of a file has."""
_COMMON_WORDS = ("source", "media", "video", "audio", "recording")
"""Fields that may mean anything, unless they name a recording."""
_MODALITIES = ("ocr", "image_caption", "video_transcript", "audio_transcript")
_OCR_FIELDS = ("ocr", "ocr_model", "ocr_engine")
_OCR_WAYS = ("method", "extraction_method", "extraction", "converter", "parser")
_RECORDINGS = ("video", "audio")


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What is told of the source.

    ``name`` is its file name, ``recording`` the same from fields that count only if
    there are cues or frames. ``kind`` is ``video``, ``audio``, ``image`` or a document's
    extension; ``duration`` in seconds.
    """

    name: str | None = None
    recording: str | None = None
    kind: str | None = None
    modality: Modality | None = None
    is_scanned: bool = False
    is_declared: bool = False
    duration: float | None = None

    @property
    def is_recording(self) -> bool:
        """Whether it names sound or video as its source."""
        return self.kind in _RECORDINGS or self.recording is not None


def made_of(path: str, fields: Mapping[Any, object], *, has_header: bool) -> MadeOf:
    """What ``fields`` (of the front matter and a converter's header) and the name say.

    ``image: cover.png`` in front matter says nothing of where a text comes from, and neither
    does ``source: paper.pdf``: only a converter's header or its own words for it do.
    """
    told = {str(key).casefold(): value for key, value in fields.items()}
    stem = PurePosixPath(path).stem
    name = _first_name(
        told, (*_PLAIN_WORDS, *_COMMON_WORDS, "image") if has_header else _PLAIN_WORDS
    )
    recording = _first_name(told, _COMMON_WORDS)
    if recording is not None and kind_of_file(recording) not in _RECORDINGS:
        recording = None
    modality = told.get("modality")
    known = cast("Modality", modality) if modality in _MODALITIES else None
    if name is None and known in ("ocr", "image_caption"):
        name = _first_name(told, ("image", "source", "media"))
    site_kind = _kind_on_a_site(told) if has_header else None
    kind = site_kind or _kind(told, name or (stem if kind_of_file(stem) else None))
    is_told = name is not None or kind is not None or known is not None
    return MadeOf(
        name=name,
        recording=recording,
        kind=kind,
        modality=known,
        is_scanned=known == "ocr" or _is_scanned(told),
        is_declared=has_header or is_told or CONVERTED in path.split("/"),
        duration=duration(told.get("duration")),
    )


def _first_name(told: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    return next((name for key in keys if (name := medium_name(told.get(key)))), None)


def _kind_on_a_site(told: Mapping[str, object]) -> str | None:
    if "thumbnail_file" in told:
        return "image"
    return "video" if "video_source" in told or "video_id" in told else None


def _kind(told: Mapping[str, object], name: str | None) -> str | None:
    return kind_of_format(told.get("source_format")) or (kind_of_file(name) if name else None)


def _is_scanned(told: Mapping[str, object]) -> bool:
    if any(told.get(key) not in (None, False, "", "false", "no") for key in _OCR_FIELDS):
        return True
    return any("ocr" in str(told.get(key, "")).casefold().split() for key in _OCR_WAYS)
