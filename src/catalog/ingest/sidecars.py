"""Files with the metadata, or with the text, of other files.

Files with metadata are next to documents: ``report.pdf.meta.yaml``, ``.catalog.yaml``.
docs/decisions/0020-metadata-from-beside.md has the rules for finding, reading and refusing them.
Files with text were made from a recording, picture or document that is listed, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import ReadError, TransientReadError
from catalog.core.ids import sha1_hex
from catalog.core.text import nfc
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise, parse_yaml
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.timed.converted import add_segments
from catalog.ingest.readers.timed.frames import (
    CONVERTED,
    RECORDINGS,
    file_type_of,
    possible_originals,
    split_extension,
)


class Originals:
    """The files of a folder from which texts may be made, and these texts, by their paths.

    ``converted`` are files with a text in ``.converted``, or with one that adds an extension to
    their name (``scan.pdf.md``): they need not be read if that text was read.
    """

    def __init__(self, files: Iterable[str]) -> None:
        by_name: dict[str, list[str]] = {}
        files = sorted(files)
        texts = [file for file in files if _may_be_text(file)]
        for file in set(files).difference(texts):
            for name in (file, split_extension(file)[0]):
                by_name.setdefault(name, []).append(file)
        self._beside: dict[str, tuple[str, ...]] = {}
        for file in texts if by_name else ():
            named = (sorted(by_name.get(name, ())) for name in possible_originals(file))
            if found := tuple(dict.fromkeys(one for names in named for one in names)):
                self._beside[file] = found
        self.converted = frozenset(
            original
            for file, originals in self._beside.items()
            for original in originals
            if _is_conversion(file, original)
        )

    def beside(self, file: str) -> tuple[str, ...]:
        """Return the files from which the one at this path may be made, likeliest first."""
        return self._beside.get(file, ())

    def name_original(self, document: ParsedDocument, file: str) -> ParsedDocument:
        """Return a document of the file under the name and type of its original, if known.

        The original of a transcript is the recording next to it, whose sound or video its segments
        are then a transcript of. A record in the file has no original and keeps its path.
        """
        if document.path != file or "media_file" in document.metadata or not self.beside(file):
            return document
        if any(segment.time_start is not None for segment in document.segments):
            return self._of_recording(document, file)
        named = [one for one in self.beside(file) if _is_conversion(file, one)]
        if len(named) != 1:
            return document
        return add_segments(document, {"source_file": named[0]})

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
        elif document.file_type == "audio":  # a text without a name of its recording
            segments = tuple(replace(segment, modality="video_transcript") for segment in segments)
        media = {"media": split_extension(recording)[0], "media_file": recording}
        return replace(
            document,
            file_type=file_type if document.file_type in RECORDINGS else document.file_type,
            segments=segments,
            metadata={**document.metadata, **media},
        )


def _may_be_text(file: str) -> bool:
    """Return whether a file may be the text of another one, by its path."""
    return file_type_of(file) is None or CONVERTED in file.split("/")


def _is_conversion(file: str, original: str) -> bool:
    """Return whether the file is where converters put their output for the original."""
    return CONVERTED in file.split("/") or split_extension(file)[0] == original


SIDECAR, FOLDER_FILE = ".meta.yaml", ".catalog.yaml"
MAX_BYTES = 65_536
_FORM = re.compile(r"(?:(.+)\.meta|\.catalog)\.(?:ya?ml|json)", re.IGNORECASE | re.DOTALL)
_MEDIA = ("video", "audio", "image")
_KEPT = 256  # files whose fields are kept in memory


def may_be_metadata(path: str) -> bool:
    """Return whether a file has a name of a metadata file, rightly or wrongly written."""
    return _FORM.fullmatch(path.rpartition("/")[2]) is not None


def place_of(path: str) -> str:
    """Return the file that a metadata file is for, or its folder with a slash ("" for the root)."""
    folder = path[: path.rfind("/") + 1]
    form = _FORM.fullmatch(path, len(folder))
    return folder + ((form and form[1]) or "")


def known_names(names: Iterable[str]) -> dict[str, str]:
    """Return the files of a folder by their names, and the first one by each stem."""
    files = sorted(names, reverse=True)
    return {split_extension(name)[0]: name for name in files} | {name: name for name in files}


def is_metadata(name: str, known: Mapping[str, str]) -> bool:
    """Return whether a file has metadata of others; ``known`` are the names of its folder.

    The file that it is for may be missing, as a transcript may have been made from it. Without an
    extension there must be one: ``model.meta.yaml`` is a document if there is no ``model.…``.
    """
    form = _FORM.fullmatch(name)
    return form is not None and (form[1] is None or "." in form[1][1:] or form[1] in known)


def right_name(path: str, known: Mapping[str, str]) -> str:
    """Return how a metadata file must be named to be read; ``known`` are the names of its folder.

    That is ``.catalog.yaml``, not ``.catalog.yml``; ``a.txt.meta.yaml``, not ``a.meta.yaml``.
    """
    folder = path[: path.rfind("/") + 1]
    target = place_of(path)[len(folder) :]
    if not target:
        return folder + FOLDER_FILE
    return folder + (target if file_type_of(target) else known.get(target, target)) + SIDECAR


def find_beside(root: Path, path: str) -> dict[str, Path | None]:
    """Return the metadata files of one file: those next to it, and of its folders.

    They are as in :class:`~.discovery.Listing`: ``None`` for one that is not read.
    """
    found: dict[str, Path | None] = {}
    own = path[path.rfind("/") + 1 :]
    known = known_names([own])
    places = {path, split_extension(path)[0], *_folders_above(path)}
    for folder in dict.fromkeys(_folders_above(path)):
        try:
            names = [entry.name for entry in (root / folder).iterdir()]
        except OSError:  # a folder that cannot be listed may be gone into: by the plain names then
            names = [own + SIDECAR, FOLDER_FILE]
            names = [name for name in names if os.path.lexists(root / folder / name)]
        for name in names:
            one = nfc(folder + name)
            if may_be_metadata(one) and place_of(one) in places:
                found[one] = root / folder / name if one == right_name(one, known) else None
    return found


class Sidecars:
    """The metadata files of a listing, by path, and their fields for a document.

    No path to a file may lead out of ``root``. Each file is read when first needed, up to 65,536
    bytes. What a file with another name is for, or has as its stem, gets the level ``unreadable``.
    ``links`` has the paths to which the symbolic links of the listing lead.
    """

    def __init__(
        self, files: Mapping[str, Path | None], root: Path, links: Mapping[str, str] | None = None
    ) -> None:
        self._files, self._root, self._links = files, root, links or {}
        self._digest = cache(self._hash)
        self._digest_folder = cache(self._hash_folder)
        self._load = lru_cache(maxsize=_KEPT)(self._parse_or_reason)
        self._at: dict[str, list[str]] = {}  # by the file or folder that they are for
        self._stems: dict[str, list[str]] = {}  # originals with a sidecar, without extension
        self._of_originals: dict[str, list[str]] = {}  # their sidecars, by folder
        self._misnamed: dict[str, list[str]] = {}  # by the file or stem that they are for
        for file in sorted(files, key=lambda one: (files[one] is not None, one)):
            place = place_of(file)
            self._at.setdefault(place, []).append(file)
            if files[file] is None:
                self._misnamed.setdefault(place, []).append(file)
            if file_type_of(place):
                self._stems.setdefault(split_extension(place)[0], []).append(place)
                self._of_originals.setdefault(place.rpartition("/")[0], []).append(file)

    def levels_of(self, path: str) -> frozenset[str]:
        """Return the folded levels of confidentiality that a file has by its metadata files.

        Raises ``ReadError`` if one of them cannot be read.
        """
        stated = [self._fields(file).get(LEVEL) for file in self._of_file(path)]
        level = next((one for one in stated if one is not None), ())
        levels = level if isinstance(level, list | tuple) else (level,)
        return frozenset(str(one).casefold() for one in levels)

    def fingerprint(self, path: str) -> str:
        """Return a hash of all files that may have metadata for ``path``; "" if there are none."""
        if not self._files:
            return ""
        parts = [f"{file}:{self._digest(file)}" for file in self._of_file(path)]
        if self._of_originals and _may_be_text(path):
            parts += filter(None, map(self._digest_folder, _folders_of_originals(path)))
        return sha1_hex("|".join(parts)) if parts else ""

    def check(self, path: str) -> None:
        """Raise ``ReadError`` if a metadata file of this file cannot be read."""
        for file in self._of_file(path):
            self._fields(file)

    def fields_of(self, document: ParsedDocument, path: str) -> list[dict[str, MetadataValue]]:
        """Return the sidecars' fields for a document of the file at ``path``, strongest first.

        The sidecar of a recording, picture or document also applies to the texts made from it.
        Raises ``ReadError`` if one of the files cannot be read.
        """
        if not self._files:
            return []
        of_file = self._of_file(path)
        own = [file for file in of_file if place_of(file) != file[: file.rfind("/") + 1]]
        made_of = [file for one in self._made_of(document, path) for file in self._at[one]]
        return [self._fields(file) for file in dict.fromkeys((*own, *made_of, *of_file))]

    def _of_file(self, path: str) -> list[str]:
        """Return the sidecars of this path, of the file its name contains, and of its folders.

        The sidecars of a file also apply to a link to it.
        """
        if not self._files:
            return []
        paths = [path, self._links.get(path, path)]
        named = (name for name in possible_originals(path) if file_type_of(name))
        places = [*paths, *named, *(folder for one in paths for folder in _folders_above(one))]
        files = [file for place in places for file in self._at.get(place, ())]
        stems = {split_extension(one)[0] for one in paths} | set(possible_originals(path))
        named_so = (file for stem in sorted(stems) for file in self._misnamed.get(stem, ()))
        return list(dict.fromkeys((*named_so, *files)))

    def _made_of(self, document: ParsedDocument, path: str) -> Iterator[str]:
        """Yield the originals with a sidecar from which the document was made."""
        if not self._of_originals or not _may_be_text(path):
            return
        named = document.metadata.get("media_file")
        folder = str(named).rpartition("/")[0]
        if named in self._at and folder in _folders_of_originals(path):
            yield str(named)
        for name in possible_originals(path):
            for original in self._stems.get(name, ()):
                is_timed = file_type_of(original) in _MEDIA and document.file_type in _MEDIA
                if is_timed or CONVERTED in path.split("/"):
                    yield original

    def _hash_folder(self, folder: str) -> str:
        files = self._of_originals.get(folder, ())
        return sha1_hex("|".join(f"{file}:{self._digest(file)}" for file in files)) if files else ""

    def _hash(self, file: str) -> str:
        try:
            return sha1_hex(repr(self._read(file)))
        except ReadError as error:
            return f"! {error}"

    def _read(self, file: str) -> bytes:
        if (absolute := self._files[file]) is None:
            return b""
        with open_regular(absolute, root=self._root) as handle:
            return handle.read(MAX_BYTES + 1)

    def _fields(self, file: str) -> dict[str, MetadataValue]:
        fields = self._load(file)
        if isinstance(fields, ReadError):
            kind = TransientReadError if isinstance(fields, TransientReadError) else ReadError
            raise kind(f"{file} cannot be read, so its documents keep their last state: {fields}")
        return fields

    def _parse_or_reason(self, file: str) -> dict[str, MetadataValue] | ReadError:
        try:
            return self._parse(file)
        except ReadError as error:
            return error.with_traceback(None)

    def _parse(self, file: str) -> dict[str, MetadataValue]:
        if self._files[file] is None:
            return {LEVEL: UNREADABLE}
        content = self._read(file)
        if len(content) > MAX_BYTES:
            raise ReadError(f"it is longer than {MAX_BYTES:,} bytes")
        try:
            fields = parse_yaml(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ReadError("it is not UTF-8") from error
        if fields is None:
            return {}
        if not isinstance(fields, Mapping):
            raise ReadError("it has no fields (name: value)")
        stated = normalise(fields)
        if file.rpartition("/")[2] == FOLDER_FILE:  # its title is the folder's own
            stated = {name: value for name, value in stated.items() if name.casefold() != "title"}
        return stated


def _folders_of_originals(path: str) -> list[str]:
    return sorted({name.rpartition("/")[0] for name in possible_originals(path)})


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders of a path, each with a slash, nearest first, the root (empty) last.

    A conversion also belongs to the folder of its original, so ``.converted`` is left out of the
    path.
    """
    parts = path.split("/")[:-1]
    original = [part for part in parts if part != CONVERTED]
    for names in (parts, original) if len(original) < len(parts) else (parts,):
        yield from ("/".join(names[:end]) + "/" for end in range(len(names), 0, -1))
    yield ""
