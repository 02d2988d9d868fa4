"""Which file each text was made of: a recording, picture or document listed beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.timed.source_media import (
    CONVERTED,
    RECORDINGS,
    SourceMedia,
    file_type_of,
    possible_originals,
    split_extension,
)
from catalog.ingest.readers.timed.timed_markdown import add_segments


class Originals:
    """The files of a folder that texts may be made of, and which texts those are, by their paths.

    ``converted`` are those of which a text lies in ``.converted``, or has their name and more
    (``scan.pdf.md``): they need not be read where that has been.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        files = sorted(files)
        for file in files:
            if file_type_of(file) and CONVERTED not in file.split("/"):
                for name in (file, split_extension(file)[0]):
                    self._by_name.setdefault(name, []).append(file)
        self._beside = {file: beside for file in files if (beside := self._find_beside(file))}
        self.converted = frozenset(
            original
            for file, originals in self._beside.items()
            for original in originals
            if _is_conversion(file, original)
        )

    def beside(self, file: str) -> tuple[str, ...]:
        """Return the files of which the one at the path may be made, the likeliest first."""
        return self._beside.get(file, ())

    def name_original(self, document: ParsedDocument, file: str) -> ParsedDocument:
        """Return a document of the file under the name and type of what it was made of, if known.

        A transcript is of the recording beside it, and in the words of one that has only sound.
        A record in the file is made of nothing: its path is its own.
        """
        if document.path != file or "media_file" in document.metadata or not self.beside(file):
            return document
        if any(segment.time_start is not None for segment in document.segments):
            return self._of_recording(document, file)
        named = [one for one in self.beside(file) if _is_conversion(file, one)]
        if len(named) != 1:
            return document
        name = named[0].rpartition("/")[2]
        return add_segments(document, SourceMedia(name, None, file_type_of(name), is_declared=True))

    def _of_recording(self, document: ParsedDocument, file: str) -> ParsedDocument:
        has_frames = any(segment.modality == "video_frame" for segment in document.segments)
        kinds = RECORDINGS[:1] if has_frames else RECORDINGS
        recordings = [one for one in self.beside(file) if file_type_of(one) in kinds]
        if not recordings:
            return document
        recording = min(recordings, key=lambda one: kinds.index(file_type_of(one) or ""))
        file_type, segments = file_type_of(recording) or "", document.segments
        if file_type == "audio":
            segments = tuple(replace(segment, modality="audio_transcript") for segment in segments)
        return replace(
            document,
            file_type=file_type if document.file_type in RECORDINGS else document.file_type,
            segments=segments,
            metadata={
                **document.metadata,
                "media": split_extension(recording)[0],
                "media_file": recording,
            },
        )

    def _find_beside(self, file: str) -> tuple[str, ...]:
        if file_type_of(file) and CONVERTED not in file.split("/"):
            return ()
        found = (one for name in possible_originals(file) for one in self._by_name.get(name, ()))
        return tuple(dict.fromkeys(found))


def _is_conversion(file: str, original: str) -> bool:
    """Return whether the file lies where converters put what they make of the original."""
    return CONVERTED in file.split("/") or split_extension(file)[0] == original
