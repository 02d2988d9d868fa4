"""Files with the metadata, or with the text, of other files.

Files with metadata are next to documents: ``report.pdf.meta.yaml``, ``.catalog.yaml``.
docs/decisions/0020-metadata-from-beside.md has the rules for finding, reading and refusing them.
Files with text were made from a recording, picture or document that is listed, too.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.ids import sha1_hex
from catalog.core.text import nfc
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise, parse_json, parse_yaml
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.timed.source_media import (
    CONVERTED,
    RECORDINGS,
    SourceMedia,
    file_type_of,
    media_file_name,
    possible_originals,
    split_extension,
)
from catalog.ingest.readers.timed.timed_markdown import add_segments


class Originals:
    """The files of a folder from which texts may be made, and these texts, by their paths.

    ``converted`` are files with a text in ``.converted``, or with one that adds an extension to
    their name (``scan.pdf.md``): they need not be read if that text was read.
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
        elif document.file_type == "audio":  # a text without a name of its recording
            segments = tuple(replace(segment, modality="video_transcript") for segment in segments)
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
    """Return whether the file is where converters put their output for the original."""
    return CONVERTED in file.split("/") or split_extension(file)[0] == original


SIDECAR, FOLDER_FILE = ".meta.yaml", ".catalog.yaml"
MAX_BYTES = 65_536
_SIDECAR = re.compile(r"\.meta\.(ya?ml|json)$", re.IGNORECASE)
_FOLDER_FILE = re.compile(r"\.catalog\.(ya?ml|json)", re.IGNORECASE)
_MEDIA = ("video", "audio", "image")
_KEPT = 256  # files whose fields are kept in memory


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A file with metadata of other files: of its ``targets`` by path, or of its whole folder.

    A target need not exist, because a transcript may have been made from it.
    """

    absolute: Path
    targets: tuple[str, ...] = ()


def sidecar_target(name: str) -> str | None:
    """Return the file whose metadata a file has, by its name; ``None`` if it is no sidecar."""
    target = _SIDECAR.sub("", name)
    return target if target not in (name, "") and not target.endswith("/") else None


def find_targets(name: str, names: Collection[str]) -> list[str] | None:
    """Return the files whose metadata a file has; ``None`` if it is a document.

    ``names`` are the files of its folder. A sidecar with a file's full name is for that file only,
    which may be missing (``report.pdf.meta.yaml``). One without the extension is for all files with
    that stem (``report.meta.yaml``). A folder file has an empty list.
    """
    if name == FOLDER_FILE:
        return []
    target = sidecar_target(name)
    if target is None:
        return None
    if target in names:
        return [target]
    same = [one for one in sorted(names) if split_extension(one)[0] == target != one]
    return same or ([target] if "." in target[1:] else None)


def is_misspelt_folder_file(name: str) -> bool:
    """Return whether a file would be a folder file with another extension or case."""
    return name != FOLDER_FILE and _FOLDER_FILE.fullmatch(name) is not None


class Sidecars:
    """The metadata files of a listing, by path, and their fields for a document.

    No path to a file may lead out of ``root``. Each file is read when first needed, up to 65,536
    bytes.
    """

    def __init__(self, files: Mapping[str, MetadataFile], root: Path) -> None:
        self._files, self._root = files, root
        self._digests: dict[str, str] = {}
        self._load = lru_cache(maxsize=_KEPT)(self._parse_or_reason)
        self._by_target: dict[str, list[str]] = {}
        self._of_originals: dict[str, list[tuple[str, str]]] = {}  # with its sidecar, by folder
        for file in sorted(
            files, key=lambda one: (sidecar_target(one) not in files[one].targets, one)
        ):
            for target in files[file].targets:
                self._by_target.setdefault(target, []).append(file)
                if file_type_of(target):
                    folder = target.rpartition("/")[0]
                    self._of_originals.setdefault(folder, []).append((target, file))

    @classmethod
    def around(cls, root: Path, path: str) -> Sidecars:
        """Return the metadata files of one file: those next to it, and of its folders."""
        folder, _, name = path.rpartition("/")
        names = {nfc(one.name): one for one in (root / folder).iterdir()}
        files: dict[str, MetadataFile] = {}
        for one, absolute in names.items():
            if nfc(name) in (find_targets(one, names) or ()):
                files[f"{folder}/{one}".lstrip("/")] = MetadataFile(absolute, (path,))
        for above in _folders_above(path):
            if os.path.lexists(root / above / FOLDER_FILE):
                files[f"{above}{FOLDER_FILE}"] = MetadataFile(root / above / FOLDER_FILE)
        return cls(files, root)

    def levels_of(self, path: str) -> frozenset[str]:
        """Return the folded levels of confidentiality that a file has by its metadata files.

        Raises ``ReadError`` if one of them cannot be read.
        """
        stated = [self._fields(file).get(LEVEL) for file in self._of_file(path)]
        level = next((one for one in stated if one is not None), ())
        levels = level if isinstance(level, list | tuple) else (level,)
        return frozenset(str(one).casefold() for one in levels)

    def __reduce__(self) -> tuple[type[Sidecars], tuple[object, ...]]:
        """Send the object to another process as the list from which it was made."""
        return Sidecars, (self._files, self._root)

    def fingerprint(self, path: str, *, anywhere: bool = False) -> str:
        """Return a hash of all files that may have metadata for ``path``; "" if there are none.

        With ``anywhere`` these are all sidecars: the file was made from one in another folder.
        """
        if anywhere:
            return sha1_hex("|".join(f"{file}:{self._digest(file)}" for file in self._files))
        files = dict.fromkeys([*self._of_file(path), *(file for _, file in self._beside(path))])
        return sha1_hex("|".join(f"{file}:{self._digest(file)}" for file in files)) if files else ""

    def check(self, path: str) -> None:
        """Raise ``ReadError`` if a sidecar of this file cannot be read.

        Two sidecars of the same name also raise it, because nothing decides between them.
        """
        for file in self._of_file(path):
            self._fields(file)
        own = sorted(self._by_target.get(path, ()), key=_name_without_ending)
        for one, other in itertools.pairwise(own):
            if _name_without_ending(one) == _name_without_ending(other):
                raise ReadError(f"{one} and {other} are both for it: keep one of them")

    def fields_of(self, document: ParsedDocument, path: str) -> list[dict[str, MetadataValue]]:
        """Return the sidecars' fields for a document of the file at ``path``, strongest first.

        The sidecar of a recording, picture or document also applies to the texts made from it.
        Raises ``ReadError`` if one of the files cannot be read.
        """
        of_file = self._of_file(path)
        own = [file for file in of_file if self._files[file].targets]
        originals = [
            file
            for original, file in self._beside(path)
            if file not in own and _is_made_of(document, path, original)
        ]
        originals += [file for one in self._named(document, path) for file in self._of_file(one)]
        folders = [file for file in of_file if file not in own]
        return [self._fields(file) for file in dict.fromkeys((*own, *originals, *folders))]

    def _named(self, document: ParsedDocument, path: str) -> list[str]:
        """Return the paths of originals that a document names, from its folder or the root."""
        folders = [path.rpartition("/")[0], path.replace(f"{CONVERTED}/", "").rpartition("/")[0]]
        root, paths = Path(os.path.normpath(self._root)), []
        for name, folder in itertools.product(named_elsewhere(document), (*folders, "")):
            full = Path(os.path.normpath(root / folder / name))
            if full.is_relative_to(root):
                paths.append(full.relative_to(root).as_posix())
        paths = list(dict.fromkeys(paths))
        return [one for one in paths if os.path.lexists(root / one)] or paths

    def _of_file(self, path: str) -> list[str]:
        """Return the sidecars of this path, of the file its name contains, and of its folders.

        The sidecars of a file also apply to a link to it.
        """
        if not self._files:
            return []
        paths = [path, *self._linked(path)]
        names = [*paths, *(name for name in possible_originals(path) if file_type_of(name))]
        files = [file for name in names for file in self._by_target.get(name, ())]
        files += [f"{folder}{FOLDER_FILE}" for one in paths for folder in _folders_above(one)]
        return [file for file in dict.fromkeys(files) if file in self._files]

    def _linked(self, path: str) -> list[str]:
        """Return the target of a symbolic link inside the root; "" for any other file."""
        link = self._root / path
        try:
            if not link.is_symlink():
                return []
            target, root = link.resolve(), self._root.resolve()
        except (OSError, RuntimeError):  # a cycle of links, made since the listing
            return []
        return [target.relative_to(root).as_posix()] if target.is_relative_to(root) else []

    def _beside(self, path: str) -> list[tuple[str, str]]:
        """Return possible originals of a text by its path, each with its sidecar."""
        if not self._of_originals or (file_type_of(path) and CONVERTED not in path.split("/")):
            return []
        folders = {name.rpartition("/")[0] for name in possible_originals(path)}
        return [pair for name in sorted(folders) for pair in self._of_originals.get(name, [])]

    def _digest(self, file: str) -> str:
        if file not in self._digests:
            try:
                self._digests[file] = sha1_hex(repr(self._read(file)))
            except ReadError as error:
                self._digests[file] = f"! {error}"
        return self._digests[file]

    def _read(self, file: str) -> bytes:
        with open_regular(self._files[file].absolute, root=self._root) as handle:
            return handle.read(MAX_BYTES + 1)

    def _fields(self, file: str) -> dict[str, MetadataValue]:
        fields = self._load(file)
        if isinstance(fields, ReadError):
            raise type(fields)(
                f"{file} cannot be read, so its documents keep their last state: {fields}"
            )
        return fields

    def _parse_or_reason(self, file: str) -> dict[str, MetadataValue] | ReadError:
        try:
            return self._parse(file)
        except ReadError as error:
            return error.with_traceback(None)

    def _parse(self, file: str) -> dict[str, MetadataValue]:
        content = self._read(file)
        if len(content) > MAX_BYTES:
            raise ReadError(f"it is longer than {MAX_BYTES:,} bytes")
        try:
            parse = parse_json if file.casefold().endswith(".json") else parse_yaml
            fields = parse(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ReadError("it is not UTF-8") from error
        if fields is None:
            return {}
        if not isinstance(fields, Mapping):
            raise ReadError("it has no fields (name: value)")
        stated = normalise(fields)
        if stated.get(LEVEL) == UNREADABLE:
            raise ReadError(f"its {LEVEL} is no text, number or list of these at the top")
        if file.rpartition("/")[2] == FOLDER_FILE:  # its title is the folder's own
            stated = {name: value for name, value in stated.items() if name.casefold() != "title"}
        return stated


def named_elsewhere(document: ParsedDocument) -> list[str]:
    """Return the original's path as a document names it, if with a folder."""
    file = str(document.metadata.get("media_file", "")).rpartition("/")[2]
    named = [
        str(value).strip().strip("`'\"[]").strip().replace("\\", "/")
        for key, value in document.metadata.items()
        if file and key != "media_file" and media_file_name(value) == file
    ]
    return [name for name in named if "/" in name]


def _name_without_ending(file: str) -> str:
    return _SIDECAR.sub("", file)


def _is_made_of(document: ParsedDocument, path: str, original: str) -> bool:
    """Return whether a document or its file's name says that it was made from the original."""
    if document.metadata.get("media_file") == original:
        return True
    if split_extension(original)[0] not in possible_originals(path):
        return False
    is_timed = file_type_of(original) in _MEDIA and document.file_type in _MEDIA
    return is_timed or CONVERTED in path.split("/")


def beside_file(path: Path) -> dict[str, MetadataFile]:
    """Return the metadata files of a file that is indexed by itself."""
    try:
        names = [entry.name for entry in os.scandir(path.parent)]
    except OSError:  # a folder that cannot be listed may be gone into: by the plain names then
        names = [
            name
            for name in (path.name + SIDECAR, FOLDER_FILE)
            if os.path.lexists(path.with_name(name))
        ]
    of_file = {name: find_targets(name, [path.name]) for name in names}
    return {
        name: MetadataFile(path.with_name(name), tuple(targets))
        for name, targets in of_file.items()
        if targets is not None and path.name in (targets or [path.name])
    }


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders of a path, each with a slash, nearest first, the root (empty) last.

    A conversion also belongs to the folder of its original, so ``.converted`` is left out of the
    path.
    """
    parts = path.split("/")[:-1]
    original = [part for part in parts if part != CONVERTED]
    for names in (parts, original):
        yield from ("/".join(names[:end]) + "/" for end in range(len(names), 0, -1))
    yield ""
