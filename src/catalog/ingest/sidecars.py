"""Files beside documents that say what those are: ``report.pdf.meta.yaml``, ``.catalog.yaml``.

Why they are found, read and refused as they are: docs/decisions/0020-metadata-from-beside.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.ids import sha1_hex
from catalog.ingest.readers.metadata import normalise, parse_yaml
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.timed.source_media import (
    CONVERTED,
    file_type_of,
    possible_originals,
    split_extension,
)

SIDECAR, FOLDER_FILE = ".meta.yaml", ".catalog.yaml"
MAX_BYTES = 65_536
_SPELLINGS = re.compile(r"(\.meta|^\.catalog)\.ya?ml$", re.IGNORECASE)
_MEDIA = ("video", "audio", "image")
_KEPT = 256  # files whose fields are kept in memory


def sidecar_target(name: str) -> str | None:
    """Return the name of the file that a sidecar speaks of; ``None`` for any other file."""
    return name.removesuffix(SIDECAR) or None if name.endswith(SIDECAR) else None


def is_metadata_file(name: str, names: Collection[str]) -> bool:
    """Tell whether a file speaks of others rather than for itself.

    ``names`` are those of its folder. A sidecar's file may be missing, if its name has an
    extension: ``report.pdf.meta.yaml``.
    """
    if name == FOLDER_FILE:
        return True
    target = sidecar_target(name)
    return target is not None and (target in names or "." in target[1:])


def is_misspelt_metadata_file(name: str, names: Collection[str]) -> bool:
    """Tell whether a file would be a metadata file (see above) by another ending or case."""
    spelt = _SPELLINGS.sub(lambda match: f"{match[1].lower()}.yaml", name)
    return spelt != name and is_metadata_file(spelt, names)


class Sidecars:
    """The metadata files of a listing, by path, and what they say of a document.

    ``root`` is the folder that no step to a file may lead out of. Each file is read when it is
    first asked for, up to 65,536 bytes.
    """

    def __init__(self, files: Mapping[str, Path], root: Path) -> None:
        self._files, self._root = files, root
        self._digests: dict[str, str] = {}
        self._load = lru_cache(maxsize=_KEPT)(self._parse_or_reason)
        self._of_originals: dict[str, list[str]] = {}  # by folder
        for file in sorted(files):
            target = sidecar_target(file)
            if target is not None and file_type_of(target):
                self._of_originals.setdefault(target.rpartition("/")[0], []).append(file)

    def fingerprint(self, path: str) -> str:
        """Return a hash of all files that may speak of the file at ``path``; empty for none."""
        files = dict.fromkeys([*self._of_file(path), *self._beside(path)])
        return sha1_hex("|".join(f"{file}:{self._digest(file)}" for file in files)) if files else ""

    def check(self, path: str) -> None:
        """Raise ``ReadError`` if a file that is known to speak of this one cannot be read."""
        for file in self._of_file(path):
            self._fields(file)

    def fields_of(self, document: ParsedDocument, path: str) -> list[dict[str, MetadataValue]]:
        """Return what is said of a document of the file at ``path``, what counts most first.

        The sidecar of a recording, a picture or a document speaks of the texts that were made of
        it. Raises ``ReadError`` if one of the files cannot be read.
        """
        of_file = self._of_file(path)
        own = [file for file in of_file if sidecar_target(file) is not None]
        originals = [
            file
            for file in self._beside(path)
            if file not in own and _is_made_of(document, path, file.removesuffix(SIDECAR))
        ]
        folders = [file for file in of_file if file not in own]
        return [self._fields(file) for file in (*own, *originals, *folders)]

    def _of_file(self, path: str) -> list[str]:
        """Return the files for this path and the file its name names, then those of its folders."""
        if not self._files:
            return []
        names = [path + SIDECAR]
        names += (name + SIDECAR for name in possible_originals(path) if file_type_of(name))
        names += (f"{folder}{FOLDER_FILE}" for folder in _folders_above(path))
        return [name for name in dict.fromkeys(names) if name in self._files]

    def _beside(self, path: str) -> list[str]:
        """Return the sidecars of all that a text at this path may be made of, by where it lies."""
        if not self._of_originals or (file_type_of(path) and CONVERTED not in path.split("/")):
            return []
        folders = {name.rpartition("/")[0] for name in possible_originals(path)}
        return [file for name in sorted(folders) for file in self._of_originals.get(name, [])]

    def _digest(self, file: str) -> str:
        if file not in self._digests:
            try:
                self._digests[file] = sha1_hex(repr(self._read(file)))
            except ReadError as error:
                self._digests[file] = f"! {error}"
        return self._digests[file]

    def _read(self, file: str) -> bytes:
        with open_regular(self._files[file], root=self._root) as handle:
            return handle.read(MAX_BYTES + 1)

    def _fields(self, file: str) -> dict[str, MetadataValue]:
        fields = self._load(file)
        if isinstance(fields, ReadError):
            raise type(fields)(f"{file} is not read, so nothing changes until it is: {fields}")
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
            fields = parse_yaml(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ReadError("it is not UTF-8") from error
        if fields is None:
            return {}
        if not isinstance(fields, Mapping):
            raise ReadError("it holds no fields (name: value)")
        stated = normalise(fields)
        if file.rpartition("/")[2] == FOLDER_FILE:  # its title is the folder's own
            stated = {name: value for name, value in stated.items() if name.casefold() != "title"}
        if any(name.startswith("confidentiality.") for name in stated):
            raise ReadError("its confidentiality must be a text or a number, or a list of them")
        return stated


def _is_made_of(document: ParsedDocument, path: str, original: str) -> bool:
    """Tell whether a document says, or its file's name, that it was made of the original."""
    if document.metadata.get("media_file") == original:
        return True
    if split_extension(original)[0] not in possible_originals(path):
        return False
    is_timed = file_type_of(original) in _MEDIA and document.file_type in _MEDIA
    return is_timed or CONVERTED in path.split("/")


def beside_file(path: Path) -> dict[str, Path]:
    """Return the metadata files of one file that is indexed by itself."""
    found = {path.name + SIDECAR: path.with_name(path.name + SIDECAR)}
    found[FOLDER_FILE] = path.with_name(FOLDER_FILE)
    return {name: file for name, file in found.items() if os.path.lexists(file)}


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders of a path with a slash each, the nearest first, the root (empty) last.

    A conversion lies in the folder of its original, too: ``.converted`` left out of the path.
    """
    parts = path.split("/")[:-1]
    original = [part for part in parts if part != CONVERTED]
    for names in (parts, original):
        yield from ("/".join(names[:end]) + "/" for end in range(len(names), 0, -1))
    yield ""
