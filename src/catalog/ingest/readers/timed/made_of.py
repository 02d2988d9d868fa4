"""What a Markdown file says it was made of: a recording, an image, a scanned document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from catalog.core.models import Modality
from catalog.ingest.readers.timed.media import CONVERTED, kind_of_file, kind_of_format, medium_name
from catalog.ingest.readers.timed.recording_fields import duration

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
