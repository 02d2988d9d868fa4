"""Indexes that follow the store: in memory, each saved in one file without a lock.

Every search compares the state of the dataset with that of the index. If they differ, the index
drops passages that are gone and adds the missing ones. So nothing has to notify an index, and a
killed process leaves at worst one of an older state.
"""

from __future__ import annotations

import json
import math
import os
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import reduce
from pathlib import Path
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Text, cast, func, select

from catalog.core.errors import EngineError
from catalog.core.files import make_folder
from catalog.store.database import Database
from catalog.store.engine_types import Stamp, read_stamp
from catalog.store.schema import chunks

Array = npt.NDArray[Any]
Seqs = npt.NDArray[np.int64]
NO_DATASET = Stamp(0.0, 0, 0.0, "")
WORTH_SAVING = 1_000  # passages: a search that had to read as many saves the index
_ABANDONED = 3_600  # seconds after which a draft belongs to a killed process


class IndexState(Protocol):
    """An index in one state of its dataset; immutable, because searches share it."""

    stamp: Stamp

    def __len__(self) -> int:
        """Return the number of passages."""
        ...


State = TypeVar("State", bound=IndexState)


def live_seqs(connection: Connection, dataset: str) -> Seqs:
    """Return the ascending row numbers of the dataset's passages."""
    # as one text: SQLAlchemy takes six times as long for as many rows
    numbers = select(func.aggregate_strings(cast(chunks.c.seq, Text()), ","))
    text = connection.scalar(numbers.where(chunks.c.dataset == dataset)) or ""
    return np.sort(np.fromstring(text, dtype=np.int64, sep=","))


class Following(ABC, Generic[State]):
    """Follow one dataset; a subclass says how. Safe to share between threads.

    Any number of processes may use ``file``, which is replaced as a whole. It is ignored if it is
    damaged or was ``made_by`` something else, such as another model.
    """

    follows_vectors = False  # whether vectors belong to the index, in addition to passages

    def __init__(self, database: Database, dataset: str, file: Path, made_by: object) -> None:
        self.database, self.dataset, self.file = database, dataset, file
        self._made_by = json.dumps([dataset, made_by])
        self.held: State | None = None  # the state last used
        self._on_disk: tuple[object, str] = (None, "")  # the file last read or written, its state
        self._lock = RLock()

    @abstractmethod
    def follow(self, connection: Connection, held: State | None, stamp: Stamp) -> State:
        """Return the index in the state ``stamp``, from an earlier or later one or from nothing."""

    @abstractmethod
    def pack(self, state: State) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return what to save: values for JSON, and arrays."""

    @abstractmethod
    def unpack(self, stamp: Stamp, about: dict[str, Any], arrays: dict[str, Array]) -> State:
        """Return the state that was saved."""

    def at(self, connection: Connection) -> State:
        """Return the index in the state that ``connection`` sees."""
        stamp = read_stamp(connection, self.dataset) or NO_DATASET
        held = self.held
        if held is not None and self._word(held.stamp) == self._word(stamp):
            return held
        with self._lock:
            held = self._nearest(stamp)
            if held is not None and self._word(held.stamp) == self._word(stamp):
                return held
            state = self.follow(connection, held, stamp)
            if held is None or held.stamp.generation <= stamp.generation:  # else an older snapshot
                self.held = state
        if held is None and len(state) >= WORTH_SAVING:
            with suppress(OSError):  # optional: it only saves the next process the work
                self._write(state)
        return state

    def save(self) -> State:
        """Save the present state unless the file has it, and return it.

        Raises :class:`EngineError` if the file cannot be written.
        """
        with self.database.read() as connection:
            state = self.at(connection)
        is_saved = self._on_disk == (self._identity(), self._word(state.stamp))
        if state.stamp != NO_DATASET and (not is_saved or self.is_damaged()):
            try:
                self._write(state)
            except OSError as error:
                raise EngineError(f"cannot write the index {self.file.parent}: {error}") from error
        return state

    def load(self) -> State | None:
        """Return the saved state, ``None`` without a file that can be used."""
        found = self._read()
        if found is None or found[0]["made_by"] != self._made_by:
            return None
        about, content = found
        arrays, at = {}, 0
        for name, dtype, shape in about["arrays"]:
            flat = np.frombuffer(content, dtype, math.prod(shape), at)
            arrays[name], at = flat.reshape(shape), at + flat.nbytes
        return self.unpack(Stamp(*about["stamp"]), about, arrays)

    def is_damaged(self) -> bool:
        """Return whether the file has changed since it was written."""
        return self.file.exists() and self._read() is None

    def close(self) -> None:
        """Release the memory; the next search reads the file again."""
        with self._lock:
            self.held, self._on_disk = None, (None, "")

    def _word(self, stamp: Stamp) -> str:
        return stamp.state if self.follows_vectors else stamp.rows

    def _nearest(self, stamp: Stamp) -> State | None:
        """Return the state to start from: ours, or the file's if another process saved a newer one.

        ``None`` if neither is of this store, whose row numbers mean the same passages.
        """
        identity, states = self._identity(), [self.held]
        if self.held is None or identity != self._on_disk[0]:
            saved = self.load()
            self._on_disk = identity, "" if saved is None else self._word(saved.stamp)
            states.append(saved)
        related = [one for one in states if one is not None and one.stamp.is_related(stamp)]
        self.held = max(related, key=lambda one: one.stamp.generation, default=None)
        return self.held

    def _identity(self) -> object:
        """Return what tells this file from one that replaces it."""
        try:
            status = self.file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _read(self) -> tuple[dict[str, Any], memoryview] | None:
        """Return description and content of the file, ``None`` if it is missing or damaged."""
        try:
            # not mapped: if another program cut it short, this process would die of SIGBUS
            with self.file.open("rb") as file:
                checksum, rest = int(file.readline()), file.read()
            end = rest.index(b"\n") + 1
            is_whole = checksum == zlib.crc32(rest)
            return (json.loads(rest[:end]), memoryview(rest)[end:]) if is_whole else None
        except (OSError, ValueError):
            return None

    def _write(self, state: State) -> None:
        """Replace the file; remove drafts that killed processes left."""
        about, arrays = self.pack(state)
        largest_first = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
        about |= {"made_by": self._made_by, "stamp": state.stamp}
        about["arrays"] = [(name, one.dtype.str, one.shape) for name, one in largest_first]
        line = json.dumps(about).encode()
        line += b" " * (-(len(line) + 1) % 8) + b"\n"  # so that the arrays are aligned in memory
        pieces = [memoryview(line), *(np.ascontiguousarray(one).data for _, one in largest_first)]
        checksum = reduce(lambda crc, piece: zlib.crc32(piece, crc), pieces, 0)
        make_folder(folder := self.file.parent)
        draft = folder / f"{uuid.uuid4().hex}.new"
        try:
            with draft.open("wb") as file:
                file.writelines([b"%d\n" % checksum, *pieces])
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.file)
        finally:
            draft.unlink(missing_ok=True)
        self._on_disk = self._identity(), self._word(state.stamp)
        with suppress(OSError):
            for left in folder.glob("*.new"):
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    left.unlink()
            with self.database.read(latest=True) as connection:
                if read_stamp(connection, self.dataset) is None:  # removed meanwhile
                    self.file.unlink()
                    folder.rmdir()
                    folder.parent.rmdir()
