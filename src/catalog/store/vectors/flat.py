"""Nearest neighbours by one matrix product: the default vector engine.

Every window of a dataset is a row of a matrix, so a search is exact. The matrix follows the store
and is kept in one file without a lock (:mod:`catalog.store.derived`), so every process finds the
same. Qdrant is faster from about 100,000 passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from catalog.core.errors import EmbeddingMismatchError
from catalog.store.database import Database, EngineSetup
from catalog.store.derived import NO_DATASET, Array, Following, Seqs, live_seqs
from catalog.store.embedding_cache import documents_of_vectors, is_whole_vector
from catalog.store.engines import unit_vector
from catalog.store.filter_sql import DatasetNames, among, of_datasets
from catalog.store.restriction import FLAT, Hits, Spread, Stamp, best_first, read_stamp
from catalog.store.schema import chunk_windows, chunks, embeddings

Floats = npt.NDArray[np.float32]
FILE = "vectors.index"
SAMPLE = 2_000  # passages: in 19 of 20 samples the deviation is within 3 % of the dataset's
_BATCH = 2_000  # passages whose vectors are read at a time
_ROUNDING = 1e-6  # scores have six decimals
_RAGGED = 8  # a matrix is made anew if one row in as many came later or is gone


class Windows(NamedTuple):
    """Windows read from the store: rows of length 1 (or 0), passage of each, and its number there.

    Passages ascend. ``waiting`` are those that lack a vector or have a damaged one, and ``damaged``
    the keys of the latter.
    """

    rows: Floats
    seqs: Seqs
    places: list[int]
    waiting: list[int]
    damaged: set[str]


def read_windows(connection: Connection, seqs: Iterable[int], dim: int = 0) -> Windows:
    """Read the vectors of these passages; ``dim`` is their length, 0 for that of the first.

    Raises :class:`EmbeddingMismatchError` for a vector of another length.
    """
    wanted, window, stored = sorted(seqs), chunk_windows.c, embeddings.c
    joined = chunk_windows.outerjoin(embeddings, stored.embed_key == window.embed_key)
    columns = select(chunk_windows, stored.vector, stored.checksum).select_from(joined)
    columns = columns.order_by(window.seq, window.window)
    owners, places, waiting = list[int](), list[int](), list[int]()
    parts, damaged = list[Floats](), set[str]()
    for start in range(0, len(wanted), _BATCH):
        blobs, is_wanted = [], among(window.seq, wanted[start : start + _BATCH])
        for seq, place, key, blob, crc in connection.execute(columns.where(is_wanted)):
            if blob is None or not is_whole_vector(key, blob, crc):
                waiting.append(seq)
                damaged.update([] if blob is None else [key])
                continue
            dim = dim or len(blob) // 4
            if len(blob) != 4 * dim:
                raise EmbeddingMismatchError(
                    "the store has vectors of different dimensions: rebuild it with one embedding "
                    "model"
                )
            owners.append(seq)
            places.append(place)
            blobs.append(blob)
        if blobs:
            read = np.frombuffer(b"".join(blobs), "<f4").reshape(-1, dim).astype(np.float32)
            lengths = np.linalg.norm(read, axis=1, keepdims=True)
            parts.append(np.divide(read, lengths, out=read, where=lengths > 0))
    rows = np.concatenate(parts or [np.empty((0, dim), np.float32)])
    return Windows(rows, np.array(owners, np.int64), places, waiting, damaged)


class Vectors:
    """The vectors of a dataset in one state, immutable.

    ``parts`` are matrices of windows, one below the other; ``seqs`` is the passage of each row, -1
    if it is gone. The windows of a passage are neighbours. ``known`` are all passages, ``waiting``
    those that lack a vector, and ``damaged`` documents with a damaged one.
    """

    def __init__(
        self,
        stamp: Stamp,
        known: Seqs,
        parts: Sequence[Floats],
        seqs: Seqs,
        waiting: Iterable[int] = (),
        damaged: Iterable[str] = (),
    ) -> None:
        self.stamp, self.known, self.parts, self.seqs = stamp, known, parts, seqs
        self.waiting, self.damaged = np.array([*waiting], np.int64), frozenset(damaged)
        self._first = np.flatnonzero(np.diff(seqs, prepend=-2))  # of each passage's windows
        owners = seqs[self._first]
        self._is_live = owners >= 0
        self._owners = owners[self._is_live]

    def __len__(self) -> int:
        return len(self.known)

    def rank(self, vector: Floats, k: int, allowed: Seqs | None = None) -> Hits:
        """Rank as ``RankedVectors`` says; the spread is that of all."""
        if len(self._owners) == 0 or k <= 0:
            return Hits()
        query = unit_vector(vector, self.parts[0].shape[1])
        # not a product of matrices: BLAS starts threads for it, which wait busily for the next one
        cosines = np.concatenate([np.vecdot(part, query) for part in self.parts])
        scores, seqs = np.maximum.reduceat(cosines, self._first)[self._is_live], self._owners
        spread = Spread(float(scores.mean()), float(scores.std()))
        if allowed is not None:
            is_allowed = np.isin(seqs, allowed)
            scores, seqs = scores[is_allowed], seqs[is_allowed]
        if len(scores) > k:
            is_best = scores >= np.partition(scores, -k)[-k] - _ROUNDING
            scores, seqs = scores[is_best], seqs[is_best]
        rounded = np.round(np.clip(scores.astype(float), -1, 1), 6) + 0.0  # no -0.0
        hits = best_first(zip(seqs.tolist(), rounded.tolist(), strict=True), k)
        return Hits(hits, spread, size=len(self._owners))

    def compact(self) -> Vectors:
        """Return the same in one matrix, in order of row number."""
        order = np.argsort(self.seqs, kind="stable")[np.count_nonzero(self.seqs < 0) :]
        rows, seqs = np.concatenate(self.parts)[order], self.seqs[order]
        return Vectors(self.stamp, self.known, [rows], seqs, self.waiting, self.damaged)


class FlatEngine(Following[Vectors]):
    """The matrix of one dataset; safe to share between threads."""

    name = "flat"
    follows_vectors = True

    def __init__(self, setup: EngineSetup) -> None:
        file, made_by = setup.folder / FILE, [setup.fingerprint, setup.dim]
        super().__init__(setup.database, setup.dataset, file, made_by)
        self.dim = setup.dim

    def follow(self, connection: Connection, held: Vectors | None, stamp: Stamp) -> Vectors:
        """Mask the rows of passages that are gone, and read vectors that are new."""
        known = live_seqs(connection, self.dataset)
        if held is None:
            new = read_windows(connection, known.tolist(), self.dim)
            parts, seqs, waiting = [new.rows], new.seqs, new.waiting
        else:
            lacking = known[np.isin(known, held.waiting)].tolist()
            of_key = embeddings.c.embed_key == chunk_windows.c.embed_key
            ready = select(chunk_windows.c.seq).join(embeddings, of_key)
            ready = ready.where(among(chunk_windows.c.seq, lacking))
            missing = {*connection.scalars(ready)} if lacking else set()
            missing.update(known[~np.isin(known, held.known)].tolist())
            new = read_windows(connection, missing, self.dim)
            is_kept = np.isin(held.seqs, known) & ~np.isin(held.seqs, [*missing])
            seqs = np.concatenate([np.where(is_kept, held.seqs, -1), new.seqs])
            parts = [held.parts[0], np.concatenate([*held.parts[1:], new.rows])]
            waiting = [*set(lacking) - missing, *new.waiting]
        damaged = documents_of_vectors(connection, new.damaged) if new.damaged else ()
        vectors = Vectors(stamp, known, parts, seqs, waiting, damaged)
        ragged = np.count_nonzero(seqs < 0) + sum(map(len, parts[1:]))
        return vectors.compact() if ragged * _RAGGED > len(seqs) else vectors

    def pack(self, state: Vectors) -> dict[str, Array]:
        rows, damaged = np.concatenate(state.parts), np.array(sorted(state.damaged), str)
        of_passages = {"known": state.known, "waiting": state.waiting, "damaged": damaged}
        return of_passages | {"rows": rows, "seqs": state.seqs}

    def unpack(self, stamp: Stamp, arrays: Mapping[str, Array]) -> Vectors:
        rows, seqs, known, waiting = (arrays[key] for key in ("rows", "seqs", "known", "waiting"))
        return Vectors(stamp, known, [rows], seqs, waiting, arrays["damaged"].tolist())

    def refresh(self) -> None:
        self.save()

    def rebuild(self) -> int:
        self.close()
        self.file.unlink(missing_ok=True)
        return len(self.save().seqs)

    def verify(self) -> int:
        with self.database.read() as connection:
            held = self.at(connection).compact()
            stored = self.follow(connection, None, held.stamp)
        if len(held.seqs) != len(stored.seqs):
            return abs(len(held.seqs) - len(stored.seqs))
        is_same = np.isclose(held.parts[0], stored.parts[0], atol=1e-5).all(axis=1)
        return int((~(is_same & (held.seqs == stored.seqs))).sum()) + self.is_damaged()


class VectorSample:
    """The vectors of at most :data:`SAMPLE` passages of a dataset, to know the spread of scores.

    Engines that do not compare all vectors need it. Safe to share between threads.
    """

    def __init__(self, database: Database, dataset: str) -> None:
        self._database, self._dataset = database, dataset
        self._held: Vectors | None = None

    def spread(self, vector: Floats) -> tuple[int, Spread]:
        """Return the number of passages, and the spread of their cosines with a vector."""
        with self._database.read() as connection:
            stamp, held = read_stamp(connection, self._dataset) or NO_DATASET, self._held
            if held is None or held.stamp != stamp:
                drawn = draw_passages(connection, self._dataset, SAMPLE)
                known, read = live_seqs(connection, self._dataset), read_windows(connection, drawn)
                held = self._held = Vectors(stamp, known, [read.rows], read.seqs)
        hits = held.rank(vector, 1) if vector.any() else Hits()
        return (len(held), hits.spread) if hits else (0, FLAT)


def draw_passages(connection: Connection, dataset: DatasetNames, limit: int) -> Sequence[int]:
    """Return the row numbers of a random sample of passages of one or several datasets."""
    is_here = of_datasets(chunks.c.dataset, dataset)  # ids are hashes, so their order is random
    drawn = select(chunks.c.seq).where(is_here).order_by(chunks.c.chunk_id).limit(limit)
    return connection.scalars(drawn).all()
