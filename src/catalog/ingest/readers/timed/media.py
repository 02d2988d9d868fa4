"""Which recording, image or document a text was made of: by its path and what it says itself.

Nothing here looks at the file system, and no name from inside a file leads out of its folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from catalog.core.models import MetadataValue, Modality
from catalog.ingest.readers.base import title_or_stem

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
