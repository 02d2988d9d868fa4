"""Save a snapshot in a folder, so that the next process need not read any text.

Each segment has its own folder, which is written once. ``current.json`` names the segments in use
and is replaced atomically, so readers may go on with files that were replaced. Files that are
missing, damaged or made by another analyzer load as ``None``.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.core.files import make_folder
from catalog.store.engine_types import Stamp
from catalog.store.lexical.languages import LANGUAGES
from catalog.store.lexical.postings import Mask, PostingsSegment
from catalog.store.lexical.snapshot import LiveSegment

FORMAT = 4
_POINTER = "current.json"
_CHECKSUMS = "checksums.json"  # of a segment's files; CRC-32
_NO_POINTER = (  # any error that unexpected JSON can raise
    OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
_ARRAYS = {
    "seqs": "<i8", "keys": "<i8", "lengths": "<i4", "languages": "u1", "terms": "u1",
    "term_starts": "<i8", "starts": "<i8", "rows": "<i4", "counts": "<u2",
}  # fmt: skip
_NO_SEGMENT = (*_NO_POINTER, EOFError, TokenError)


@dataclass(frozen=True, slots=True, eq=False)
class StoredSnapshot:
    """The content of an index folder; ``token`` changes with every save."""

    token: str
    stamp: Stamp
    parts: tuple[LiveSegment, ...]


@dataclass(frozen=True, slots=True)
class _Pointer:
    """The content of ``current.json``.

    ``parts`` are each segment's folder and removed rows; ``languages`` are numbers of rows.
    """

    token: str
    stamp: Stamp
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    languages: dict[str, int]


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The index folder of one dataset, for the tokens of one analyzer."""

    folder: Path
    dataset: str
    analyzer: str

    def token(self) -> str | None:
        """Return the token of the current save, ``None`` without one."""
        pointer = self._read_pointer()
        return None if pointer is None else pointer.token

    def languages(self) -> dict[str, int]:
        """Return the number of rows by language at the current save; empty without one."""
        pointer = self._read_pointer()
        return {} if pointer is None else pointer.languages

    def load(self) -> StoredSnapshot | None:
        """Return the saved state with its arrays in memory, ``None`` without one."""
        pointer = self._read_pointer()
        while pointer is not None:
            try:
                return self._open(pointer)
            except _NO_SEGMENT:
                again = self._read_pointer()  # another process may have replaced it
                pointer = again if again != pointer else None
        return None

    def count_damaged(self) -> int:
        """Count the damaged files: the pointer, and segments in use."""
        pointer = self._read_pointer()
        if pointer is None:
            return int(self._is_pointer_damaged())
        damaged = 0
        for folder, _ in pointer.parts:
            try:
                _read_segment(self.folder / folder)
            except _NO_SEGMENT:
                damaged += 1
        return damaged if self._read_pointer() == pointer else 0  # else it was replaced meanwhile

    def _is_pointer_damaged(self) -> bool:
        try:
            content = json.loads((self.folder / _POINTER).read_text("utf-8"))
            return bool(content.pop("checksum") != _checksum(content))
        except FileNotFoundError:
            return False
        except _NO_POINTER:
            return True

    def save(
        self, stamp: Stamp, parts: Sequence[LiveSegment], languages: dict[str, int]
    ) -> StoredSnapshot:
        """Write parts that have no files yet and make these parts current.

        The caller holds the lock. Raises ``OSError`` if the folder cannot be written.
        """
        make_folder(self.folder)
        replaced = self._read_pointer()
        folders_and_dead = tuple(
            (
                part.folder or self._write_segment(part.segment),
                tuple(np.flatnonzero(~part.live).tolist()),
            )
            for part in parts
        )
        pointer = _Pointer(uuid.uuid4().hex, stamp, folders_and_dead, languages)
        self._write_pointer(pointer)
        in_use = pointer.parts if replaced is None else (*pointer.parts, *replaced.parts)
        self._sweep(keep={folder for folder, _ in in_use})
        return self._open(pointer)

    def _read_pointer(self) -> _Pointer | None:
        try:
            content = json.loads((self.folder / _POINTER).read_text("utf-8"))
            if content.pop("checksum") != _checksum(content):
                return None
            if not self._origin().items() <= content.items():
                return None
            created_at, generation, updated_at, state = content["stamp"]
            stamp = Stamp(float(created_at), int(generation), float(updated_at), str(state))
            parts = tuple(
                (str(part["folder"]), tuple(int(row) for row in part["dead"]))
                for part in content["parts"]
            )
            languages = {str(name): int(n) for name, n in content["languages"].items()}
            return _Pointer(str(content["token"]), stamp, parts, languages)
        except _NO_POINTER:
            return None

    def _write_pointer(self, pointer: _Pointer) -> None:
        parts = [{"folder": folder, "dead": dead} for folder, dead in pointer.parts]
        content = {
            **self._origin(),
            "token": pointer.token,
            "stamp": pointer.stamp,
            "parts": parts,
            "languages": pointer.languages,
        }
        unfinished = self.folder / f"unfinished-{_POINTER}"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump({**content, "checksum": _checksum(content)}, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.folder / _POINTER)

    def _origin(self) -> dict[str, Any]:
        return {"format": FORMAT, "dataset": self.dataset, "analyzer": self.analyzer}

    def _open(self, pointer: _Pointer) -> StoredSnapshot:
        parts = []
        for folder, dead in pointer.parts:
            segment = _read_segment(self.folder / folder)
            parts.append(LiveSegment(segment, _live_mask(len(segment), dead), folder))
        return StoredSnapshot(pointer.token, pointer.stamp, tuple(parts))

    def _write_segment(self, segment: PostingsSegment) -> str:
        name = f"segment-{uuid.uuid4().hex}"
        unfinished = self.folder / f"unfinished-{name}"
        unfinished.mkdir()
        for field in fields(segment):
            with (unfinished / f"{field.name}.npy").open("wb") as file:
                values = getattr(segment, field.name)
                np.save(file, values.astype(_ARRAYS[field.name], copy=False), allow_pickle=False)
                os.fsync(file.fileno())
        files = {name: unfinished / f"{name}.npy" for name in _ARRAYS}
        sums = {name: zlib.crc32(file.read_bytes()) for name, file in files.items()}
        (unfinished / _CHECKSUMS).write_text(json.dumps(sums), encoding="utf-8")
        unfinished.replace(self.folder / name)
        return name

    def _sweep(self, keep: set[str]) -> None:
        """Remove all segments except those of the current pointer and of the one before it.

        Processes with open files may go on reading them.
        """
        for entry in self.folder.iterdir():
            if entry.name.startswith(("segment-", "unfinished-")) and entry.name not in keep:
                shutil.rmtree(entry, ignore_errors=True)


def _read_segment(folder: Path) -> PostingsSegment:
    sums = json.loads((folder / _CHECKSUMS).read_text("utf-8"))
    arrays = {}
    for name in _ARRAYS:
        # Not mapped: if another process truncated a mapped file, this one would die of SIGBUS.
        content = (folder / f"{name}.npy").read_bytes()
        if zlib.crc32(content) != sums[name]:
            raise ValueError(f"{folder.name} has changed since it was written")
        arrays[name] = _array_in(content)
    if any(values.ndim != 1 or values.dtype != _ARRAYS[name] for name, values in arrays.items()):
        raise ValueError(f"{folder.name} has other arrays than an index segment")
    if int(arrays["languages"].max(initial=0)) >= len(LANGUAGES):
        raise ValueError(f"{folder.name} is not an index segment")
    segment = PostingsSegment(**{name: values.view(np.ndarray) for name, values in arrays.items()})
    segment.check()
    return segment


def _array_in(content: bytes) -> npt.NDArray[Any]:
    """Return the array in the bytes of an ``.npy`` file, without a copy."""
    header = BytesIO(content)
    version = np.lib.format.read_magic(header)
    if version != (1, 0):
        raise ValueError(f"unexpected version {version} of NumPy's file format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(header)
    return np.frombuffer(content, dtype, offset=header.tell()).reshape(shape)


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _live_mask(size: int, dead: Sequence[int]) -> Mask:
    rows = np.array(dead, dtype=np.int64)
    if len(rows) > 0 and not (int(rows.min()) >= 0 and int(rows.max()) < size):
        raise ValueError("a removed row is not in its segment")
    live = np.ones(size, dtype=np.bool_)
    live[rows] = False
    return live
