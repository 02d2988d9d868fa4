"""Find files with the metadata of documents, and files from which texts were made.

docs/decisions/0020-metadata-from-beside.md has the rules for finding, reading and refusing them.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import cast

from catalog.core.documents import MetadataValue, Modality, ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.ids import sha1_hex
from catalog.core.text import nfc
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise, parse_yaml
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.registry import EXTENSIONS
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

    ``converted`` files have a text in ``.converted``, or in the same folder (``scan.pdf.md``).
    """

    def __init__(self, files: Iterable[str]) -> None:
        files, by_name = sorted(files), defaultdict[str, list[str]](list)
        for file in files:
            for name in () if _may_be_text(file) else (file, split_extension(file)[0]):
                by_name[name.casefold()].append(file)
        self._beside: dict[str, tuple[str, ...]] = {}
        self.converted: set[str] = set()
        for text in filter(_may_be_text, files if by_name else ()):
            names = map(str.casefold, possible_originals(text))
            found = [one for name in names for one in by_name.get(name, ())]
            self._beside[text] = tuple(dict.fromkeys(found))
            self.converted.update(one for one in found if _is_conversion(text, one))

    def beside(self, file: str) -> tuple[str, ...]:
        """Return the files from which the one at this path may be made, likeliest first."""
        return self._beside.get(file, ())

    def converted_from(self, file: str) -> list[str]:
        """Return the originals that are not read, because this text of them is."""
        return [one for one in self.beside(file) if _is_conversion(file, one)]

    def name_original(self, document: ParsedDocument, file: str) -> ParsedDocument:
        """Return a document of the file under the name and type of its original, if known."""
        if document.path != file or "media_file" in document.metadata or not self.beside(file):
            return document
        if any(segment.time_start is not None for segment in document.segments):
            return self._of_recording(document, file)
        named = self.converted_from(file)
        return add_segments(document, {"source_file": named[0]}) if len(named) == 1 else document

    def _of_recording(self, document: ParsedDocument, file: str) -> ParsedDocument:
        has_frames = any(segment.modality == "video_frame" for segment in document.segments)
        by_type = {file_type_of(one): one for one in reversed(self.beside(file))}
        kinds = RECORDINGS[: 1 if has_frames else None]
        if (kind := next(filter(by_type.__contains__, kinds), None)) is None:
            return document
        segments = document.segments
        if "audio" in (kind, document.file_type):  # or a text without a name of its recording
            told: Modality = "audio_transcript" if kind == "audio" else "video_transcript"
            segments = tuple(replace(segment, modality=told) for segment in segments)
        media = {"media": split_extension(by_type[kind])[0], "media_file": by_type[kind]}
        file_type = kind if document.file_type in RECORDINGS else document.file_type
        metadata = {**document.metadata, **media}
        return replace(document, file_type=file_type, segments=segments, metadata=metadata)


def _may_be_text(file: str) -> bool:
    return file_type_of(file) is None or CONVERTED in file.split("/")


def _is_conversion(file: str, original: str) -> bool:
    name = split_extension(file)[0].casefold()
    return CONVERTED in file.split("/") or name == original.casefold()


SIDECAR, FOLDER_FILE = ".meta.yaml", ".catalog.yaml"
_MAX_BYTES = 4 * 65_536 + 4  # of the characters that ``parse_yaml`` takes, and one more
_FORM = re.compile(  # and how programs name a copy
    r"(.+\.meta|\.catalog)((?: ?\([^()/]{1,80}\)| copy[\d ]*+|[ _]\d+| [-–—] [^./]*+"
    r"|\.sync-conflict-[\w-]*+)*)\.(?:ya?ml|json)"
    r"(~| \(\d+\)|\.(?:txt|bak|old|orig|save|tmp|part|rej|ya?ml|json|\d+))?",
    re.IGNORECASE | re.DOTALL,
)


def is_metadata(path: str) -> bool:
    """Return whether a file has a name of a metadata file, rightly or wrongly written."""
    return _FORM.fullmatch(path.rpartition("/")[2]) is not None


def is_rightly_named(name: str, files: Collection[str], folded: Collection[str]) -> bool:
    """Return whether a metadata file can be read; ``files`` are the names in its folder.

    ``folded`` are these names without regard to case: one in another case is a mistake.
    """
    target = name.removesuffix(SIDECAR)
    if target != name and target not in files and target.casefold() in folded:
        return False
    is_known = target in files or split_extension(target)[1].lower() in EXTENSIONS
    is_for_one = target != name and (is_known or file_type_of(target) is not None)
    return is_for_one or name == FOLDER_FILE


def find_beside(root: Path, path: str) -> dict[str, Path | None]:
    """Return the metadata files in the folders of one file, as in :class:`~.discovery.Listing`."""
    found: dict[str, Path | None] = {}
    for folder in filter(lambda one: (root / one).is_dir(), dict.fromkeys(_folders_above(path))):
        entries = {nfc(entry.name): entry for entry in (root / folder).iterdir()}
        files = {name for name, entry in entries.items() if not entry.is_dir()}
        folded = set(map(str.casefold, files))
        for name in filter(is_metadata, entries):
            is_read = is_rightly_named(name, files, folded)
            found[nfc(folder) + name] = entries[name] if is_read else None
    return found


class Sidecars:
    """The metadata files of a listing, by path, and their fields for a document.

    No path to a file may lead out of ``root``. A misnamed file (``None``) gives the level
    ``unreadable`` to all whose path begins with its own up to the first dot of its name, in any
    case; but a copy of a rightly named one that is there, too, says nothing.
    ``links`` has the targets of symlinks.
    """

    def __init__(
        self, files: Mapping[str, Path | None], root: Path, links: Mapping[str, str] | None = None
    ) -> None:
        self._root, self._links = root, links or {}
        self._files = {file: absolute for file, absolute in files.items() if absolute is not None}
        self._digest, self._digest_folder = cache(self._hash), cache(self._hash_folder)
        self._load = lru_cache(maxsize=256)(self._parse)
        self._closed: set[str] = set()  # beginnings of paths
        self._by_folder = defaultdict[str, list[str]](list)  # what may be for originals of texts
        self._by_stem = defaultdict[str, list[str]](list)  # by their originals without extension
        for file in sorted(files):
            folder, _, name = file.rpartition("/")
            original = file.removesuffix(SIDECAR)
            form = cast("re.Match[str]", _FORM.fullmatch(name))
            is_copy = form[2] or form[3]
            if is_copy and f"{file.removesuffix(name)}{form[1]}.yaml" in self._files:
                continue
            if file not in self._files:
                self._closed.add((file.removesuffix(name) + name.partition(".")[0]).casefold())
            elif file_type_of(original):
                self._by_stem[split_extension(original)[0]].append(file)
            else:
                continue
            self._by_folder[folder].append(file)

    def levels_of(self, path: str) -> frozenset[str]:
        """Return the folded levels of a file by its metadata files; raise if one is unreadable."""
        fields = self.fields_of(ParsedDocument(path, "", "", ""), path)
        level = next((one[LEVEL] for one in fields if LEVEL in one), ())
        levels = level if isinstance(level, tuple) else (level,)
        return frozenset(str(one).casefold() for one in levels)

    def fingerprint(self, path: str) -> str:
        """Return a hash of all files that may have metadata for ``path``, or "" without any."""
        parts = [*map(self._digest, self._of_file(path)), *[UNREADABLE] * self._is_closed(path)]
        if self._by_folder and _may_be_text(path):
            folders = {name.rpartition("/")[0] for name in possible_originals(path)}
            parts += map(self._digest_folder, sorted(folders & self._by_folder.keys()))
        return sha1_hex("|".join(parts)) if parts else ""

    def fields_of(self, document: ParsedDocument, path: str) -> list[dict[str, MetadataValue]]:
        """Return the sidecars' fields for a document of the file at ``path``, strongest first.

        The sidecar of a recording, picture or document also applies to the texts made from it.
        Raises ``ReadError`` if one of the files cannot be read.
        """
        media = str(document.metadata.get("media_file", path))
        files = self._of_file(path) + [one for one in (media + SIDECAR,) if one in self._files]
        for name in possible_originals(path) if _may_be_text(path) else ():
            for file in self._by_stem.get(name, ()):
                kinds = {file_type_of(file.removesuffix(SIDECAR)), document.file_type}
                if kinds <= {*RECORDINGS, "image"} or CONVERTED in path.split("/"):
                    files.append(file)
        files.sort(key=lambda file: file.endswith(FOLDER_FILE))
        is_closed = self._is_closed(path) or self._is_closed(media)
        closed: list[dict[str, MetadataValue]] = [{LEVEL: UNREADABLE}] if is_closed else []
        return closed + [self._fields(file) for file in dict.fromkeys(files)]

    def _of_file(self, path: str) -> list[str]:
        if not self._files:
            return []
        paths = (path, self._links.get(path, path))  # what is said of a file is said of its links
        files = [one + SIDECAR for one in (*paths, *filter(file_type_of, possible_originals(path)))]
        files += [folder + FOLDER_FILE for one in paths for folder in _folders_above(one)]
        return [file for file in dict.fromkeys(files) if file in self._files]

    def _is_closed(self, path: str) -> bool:
        paths = {path, self._links.get(path, path), path.replace(f"{CONVERTED}/", "")}
        paths = set(map(str.casefold, paths)) if self._closed else set()
        starts = {one[:end] for one in paths for end in range(len(one) + 1)}
        return not self._closed.isdisjoint(starts)

    def _hash_folder(self, folder: str) -> str:
        return sha1_hex("|".join(map(self._digest, self._by_folder[folder])))

    def _hash(self, file: str) -> str:
        try:
            return f"{file}:{sha1_hex(repr(self._read(file))) if file in self._files else ''}"
        except ReadError as error:
            return f"{file}! {error}"

    def _read(self, file: str) -> bytes:
        with open_regular(self._files[file], root=self._root) as handle:
            return handle.read(_MAX_BYTES)

    def _fields(self, file: str) -> dict[str, MetadataValue]:
        if isinstance(fields := self._load(file), ReadError):
            reason = f"{file} cannot be read, so its documents keep their last state: {fields}"
            raise type(fields)(reason)
        return fields

    def _parse(self, file: str) -> dict[str, MetadataValue] | ReadError:
        try:  # the reason is kept, too: many documents may ask for it
            fields = parse_yaml(self._read(file).decode("utf-8-sig")) or {}
        except UnicodeDecodeError:
            return ReadError("it is not UTF-8")
        except ReadError as error:
            return error.with_traceback(None)
        if not isinstance(fields, Mapping):
            return ReadError("it has no fields (name: value)")
        if file.endswith(FOLDER_FILE):  # its title is the folder's own
            fields = {name: it for name, it in fields.items() if str(name).casefold() != "title"}
        return normalise(fields)


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders of a path, and of its original, with a slash; the root (empty) last."""
    for one in dict.fromkeys((path, path.replace(f"{CONVERTED}/", ""))):
        folders = one.split("/")[:-1]
        yield from ("/".join(folders[:end]) + "/" for end in range(len(folders), 0, -1))
    yield ""
