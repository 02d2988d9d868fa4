"""Indexes that follow the store: in memory, each saved in one file without a lock.

Every search compares the state of the dataset with that of the index. If they differ, the index
drops passages that are gone and adds the missing ones. So nothing has to notify an index, and a
killed process leaves at worst one of an older state.
"""

import json
import os
import struct
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Text, cast, func, select

from catalog.core.errors import EngineError
from catalog.core.files import make_folder
from catalog.store.database import Database
from catalog.store.restriction import Stamp, read_stamp
from catalog.store.schema import chunks

Array = npt.NDArray[Any]
Seqs = npt.NDArray[np.int64]
NO_DATASET = Stamp(0.0, 0, 0.0, "")
WORTH_SAVING = 1_000  # passages: a search that had to read as many saves the index
_ABANDONED = 3_600  # seconds after which a draft belongs to a killed process
_UNREADABLE = (OSError, ValueError, LookupError, EOFError, RuntimeError, BadZipFile, struct.error)


class IndexState(Sized, Protocol):
    """An index in one state of its dataset; immutable, because searches share it."""

    stamp: Stamp


State = TypeVar("State", bound=IndexState)


def live_seqs(
    connection: Connection, dataset: str, number: Any = chunks.c.seq, of: Any = chunks
) -> Seqs:
    """Return the ascending row numbers of the dataset's passages, or another number of each row."""
    # as one text: SQLAlchemy takes six times as long for as many rows
    numbers = select(func.aggregate_strings(cast(number, Text()), ",")).select_from(of)
    text = connection.scalar(numbers.where(chunks.c.dataset == dataset)) or ""
    return np.sort(np.fromstring(text, dtype=np.int64, sep=","))


class Following(ABC, Generic[State]):
    """Follow one dataset; a subclass says how. Safe to share between threads.

    Any number of processes may use ``file``, an archive of NumPy arrays that is replaced as a
    whole. It is ignored if it is damaged or was ``made_by`` something else, such as another model.
    """

    follows_vectors = False  # whether vectors belong to the index, in addition to passages

    def __init__(self, database: Database, dataset: str, file: Path, made_by: object) -> None:
        self.database, self.dataset, self.file = database, dataset, file
        self._made_by = [dataset, made_by]
        self.held: State | None = None  # the state last used
        self._on_disk: tuple[object, str] = (None, "")  # the file last read or written, its state
        self._lock = RLock()

    @abstractmethod
    def follow(self, connection: Connection, held: State | None, stamp: Stamp) -> State:
        """Return the index in the state ``stamp``, from an earlier or later one or from nothing."""

    @abstractmethod
    def pack(self, state: State) -> dict[str, Array]:
        """Return the arrays to save."""

    @abstractmethod
    def unpack(self, stamp: Stamp, arrays: Mapping[str, Array]) -> State:
        """Return the state that was saved."""

    def compact(self, state: State) -> State:
        """Return the same state in a form worth saving: what takes long is not left to a search."""
        return state

    def at(self, connection: Connection) -> State:
        """Return the index in the state that ``connection`` sees."""
        stamp = read_stamp(connection, self.dataset) or NO_DATASET
        if (held := self.held) is not None and self._word(held.stamp) == self._word(stamp):
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
            self.held = state = self.compact(self.at(connection))
        is_saved = self._on_disk == (self._identity(), self._word(state.stamp))
        if state.stamp != NO_DATASET and (not is_saved or self.is_damaged()):
            try:
                self._write(state)
            except OSError as error:
                raise EngineError(f"cannot write the index {self.file.parent}: {error}") from error
        return state

    def load(self) -> State | None:
        """Return the saved state, ``None`` without a file that can be used."""
        try:
            with ZipFile(self.file) as file:
                names = file.namelist()
                arrays = {name.removesuffix(".npy"): _read_array(file.read(name)) for name in names}
            about = json.loads(str(arrays.pop("about")))
            is_ours = about["made_by"] == self._made_by
            return self.unpack(Stamp(*about["stamp"]), arrays) if is_ours else None
        except _UNREADABLE:
            return None

    def is_damaged(self) -> bool:
        """Return whether the file has changed since it was written."""
        try:
            with ZipFile(self.file) as file:
                return file.testzip() is not None
        except _UNREADABLE as error:
            return not isinstance(error, FileNotFoundError)

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
            states.append(saved := self.load())
            self._on_disk = identity, "" if saved is None else self._word(saved.stamp)
        related = (one for one in states if one is not None and one.stamp.is_related(stamp))
        self.held = max(related, key=lambda one: one.stamp.generation, default=None)
        return self.held

    def _identity(self) -> object:
        """Return what tells this file from one that replaces it."""
        with suppress(OSError):
            status = self.file.stat()
            return status.st_ino, status.st_mtime_ns
        return None

    def _write(self, state: State) -> None:
        """Replace the file; remove drafts of killed processes, and all of a removed dataset."""
        about = np.array(json.dumps({"made_by": self._made_by, "stamp": state.stamp}))
        make_folder(folder := self.file.parent)
        draft = folder / f"{uuid.uuid4().hex}.new"
        try:
            with draft.open("wb") as file:
                np.savez(file, about=about, **self.pack(state))  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.file)
        finally:
            draft.unlink(missing_ok=True)
        self._on_disk = self._identity(), self._word(state.stamp)
        with self.database.read(latest=True) as connection, suppress(OSError):
            for left in folder.glob("*.new"):
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    left.unlink()
            if read_stamp(connection, self.dataset) is None:  # removed while this was written
                self.file.unlink()
                folder.rmdir()
                folder.parent.rmdir()


def _read_array(data: bytes) -> Array:
    """Return an array of an ``npy`` file; ``np.load`` takes twice as long, because it copies."""
    stream = BytesIO(data)
    np.lib.format.read_magic(stream)
    shape, is_fortran, kind = np.lib.format.read_array_header_1_0(stream)
    flat = np.frombuffer(data, kind, offset=stream.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C")
