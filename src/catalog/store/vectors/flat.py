"""Nearest neighbours by one matrix product: the default vector engine.

Every window of a dataset is a row of one matrix, so a search is exact. The matrix follows the store
and is kept in one file without a lock (:mod:`catalog.store.derived`), so every process finds the
same. Qdrant is faster from about 100,000 passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from catalog.core.errors import EmbeddingMismatchError
from catalog.store.checksums import documents_of_vectors, is_whole_vector
from catalog.store.database import Database, EngineSetup
from catalog.store.derived import NO_DATASET, Array, Following, Seqs, live_seqs
from catalog.store.engine_types import (
    FLAT,
    Hits,
    Spread,
    Stamp,
    best_first,
    read_stamp,
)
from catalog.store.filter_sql import DatasetNames, among, of_datasets
from catalog.store.schema import chunk_windows, chunks, embeddings
from catalog.store.vectors.base import query_vector

Floats = npt.NDArray[np.float32]
FILE = "vectors.index"
SAMPLE = 2_000  # passages: in 19 of 20 samples the deviation is within 3 % of the dataset's
_BATCH = 2_000  # passages whose vectors are read at a time
_BLOCK = 16  # rows; a multiple of 4, because BLAS takes 4 at a time: the last digits stay equal
_ROUNDING = 1e-6  # scores have six decimals
_MIXED = "the store has vectors of different dimensions: rebuild it with one embedding model"


def multiply(rows: Floats, vector: Floats) -> Floats:
    """Return ``rows @ vector``, in blocks so small that BLAS starts no threads for them.

    Its threads wait busily for the next product: on two busy cores, 5,000 rows cost 8 ms of CPU
    with them and .1 without. NumPy itself loops over the blocks.
    """
    end = len(rows) - len(rows) % _BLOCK
    blocks = rows[:end].reshape(-1, _BLOCK, rows.shape[1])
    return np.concatenate([(blocks @ vector).ravel(), rows[end:] @ vector])


class Windows(NamedTuple):
    """Windows read from the store: rows of length 1 (or 0), and the passage of each, ascending.

    ``waiting`` are passages that lack a vector, or have a damaged one: ``damaged`` are its keys.
    """

    rows: Floats
    seqs: Seqs
    waiting: list[int]
    damaged: set[str]


class Vectors:
    """The vectors of a dataset in one state, immutable.

    ``rows`` are windows, ``seqs`` the passage of each, ascending. ``known`` are all passages,
    ``waiting`` those without some vector, and ``damaged`` documents with a damaged one.
    """

    def __init__(
        self, stamp: Stamp, windows: Windows, known: Seqs, damaged: Iterable[str] = ()
    ) -> None:
        self.stamp, self.known, self.damaged = stamp, known, frozenset(damaged)
        self.rows, self.seqs, self.waiting, _ = windows
        self._first = np.flatnonzero(np.diff(self.seqs, prepend=-1))  # of each passage's windows
        self._owners = self.seqs[self._first]

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self.known)

    def rank(self, query: Floats, k: int, allowed: Seqs | None = None) -> Hits:
        """Rank as ``RankedVectors`` says; the spread is that of all."""
        if len(self.seqs) == 0 or k <= 0:
            return Hits()
        query = query_vector(query, self.rows.shape[1])
        scores, seqs = np.maximum.reduceat(multiply(self.rows, query), self._first), self._owners
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


def read_windows(connection: Connection, seqs: Iterable[int], dim: int = 0) -> Windows:
    """Read the vectors of these passages; ``dim`` is their length, 0 for that of the first.

    Raises :class:`EmbeddingMismatchError` for a vector of another length.
    """
    wanted, stored = sorted(seqs), embeddings.c
    joined = chunk_windows.outerjoin(embeddings, stored.embed_key == chunk_windows.c.embed_key)
    columns = select(chunk_windows.c.seq, chunk_windows.c.embed_key, stored.vector, stored.checksum)
    columns = columns.select_from(joined).order_by(chunk_windows.c.seq, chunk_windows.c.window)
    rows: list[Floats] = []
    owners, waiting, damaged = list[int](), dict[int, None](), set[str]()
    for start in range(0, len(wanted), _BATCH):
        batch, blobs = wanted[start : start + _BATCH], []
        for seq, key, blob, crc in connection.execute(
            columns.where(among(chunk_windows.c.seq, batch))
        ):
            if blob is None or not is_whole_vector(key, blob, crc):
                waiting[seq] = None
                damaged.update([] if blob is None else [key])
                continue
            dim = dim or len(blob) // 4
            if len(blob) != 4 * dim:
                raise EmbeddingMismatchError(_MIXED)
            owners.append(seq)
            blobs.append(blob)
        read = np.frombuffer(b"".join(blobs), "<f4").reshape(len(blobs), dim).astype(np.float32)
        lengths = np.linalg.norm(read, axis=1, keepdims=True)
        rows.append(np.divide(read, lengths, out=read, where=lengths > 0))
    joined_rows = np.concatenate([np.empty((0, dim), np.float32), *filter(len, rows)])
    return Windows(joined_rows, np.array(owners, np.int64), list(waiting), damaged)


class FlatEngine(Following[Vectors]):
    """The matrix of one dataset; safe to share between threads."""

    name = "flat"
    follows_vectors = True

    def __init__(self, setup: EngineSetup) -> None:
        file, made_by = setup.folder / FILE, [setup.fingerprint, setup.dim]
        super().__init__(setup.database, setup.dataset, file, made_by)
        self.dim = setup.dim

    def follow(self, connection: Connection, held: Vectors | None, stamp: Stamp) -> Vectors:
        """Drop the rows of passages that are gone, and read vectors that are new."""
        known = live_seqs(connection, self.dataset)
        if held is None:
            new = read_windows(connection, known.tolist(), self.dim)
            return self._vectors(connection, stamp, new, known)
        waiting = np.intersect1d(held.waiting, known)
        is_ready = among(chunk_windows.c.seq, waiting.tolist())
        of_key = embeddings.c.embed_key == chunk_windows.c.embed_key
        ready = select(chunk_windows.c.seq).join(embeddings, of_key).where(is_ready).distinct()
        missing = {*connection.scalars(ready), *np.setdiff1d(known, held.known).tolist()}
        new = read_windows(connection, missing, self.dim)
        kept = np.isin(held.seqs, known) & ~np.isin(held.seqs, [*missing])
        seqs, rows = np.concatenate([held.seqs[kept], new.seqs]), held.rows
        if not kept.all():
            rows = rows[kept]
        if len(new.rows):
            rows = np.concatenate([rows, new.rows])
        if (np.diff(seqs) < 0).any():  # vectors of earlier passages came later
            order = np.argsort(seqs, kind="stable")
            seqs, rows = seqs[order], rows[order]
        still = [*set(waiting.tolist()) - missing, *new.waiting]
        return self._vectors(connection, stamp, Windows(rows, seqs, still, new.damaged), known)

    def _vectors(
        self, connection: Connection, stamp: Stamp, windows: Windows, known: Seqs
    ) -> Vectors:
        keys = windows.damaged
        return Vectors(
            stamp, windows, known, documents_of_vectors(connection, keys) if keys else ()
        )

    def pack(self, state: Vectors) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the matrix, and what is known of its passages."""
        waiting = np.array(state.waiting, np.int64)
        arrays: dict[str, Array] = {"rows": state.rows, "seqs": state.seqs}
        arrays |= {"known": state.known, "waiting": waiting}
        return {"damaged": sorted(state.damaged)}, arrays

    def unpack(self, stamp: Stamp, about: dict[str, Any], arrays: dict[str, Array]) -> Vectors:
        """Return the vectors that were saved."""
        windows = Windows(arrays["rows"], arrays["seqs"], arrays["waiting"].tolist(), set())
        return Vectors(stamp, windows, arrays["known"], about["damaged"])

    def refresh(self) -> None:
        """Save what changed."""
        self.save()

    def rebuild(self) -> int:
        """Read everything again; return the number of windows."""
        self.close()
        self.file.unlink(missing_ok=True)
        return len(self.save().seqs)

    def verify(self) -> int:
        """Return the number of windows that differ from the store."""
        with self.database.read() as connection:
            held = self.at(connection)
            stored = self.follow(connection, None, held.stamp)
        if len(held.seqs) != len(stored.seqs):
            return abs(len(held.seqs) - len(stored.seqs))
        is_same = np.isclose(held.rows, stored.rows, atol=1e-5).all(axis=1)
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
                seqs = draw_passages(connection, self._dataset, SAMPLE)
                known = live_seqs(connection, self._dataset)
                held = self._held = Vectors(stamp, read_windows(connection, seqs), known)
        if len(held.seqs) == 0 or not vector.any():
            return 0, FLAT
        return len(held), held.rank(vector, 1).spread


def draw_passages(connection: Connection, dataset: DatasetNames, limit: int) -> Sequence[int]:
    """Return the row numbers of a random sample of passages of one or several datasets."""
    is_here = of_datasets(chunks.c.dataset, dataset)  # ids are hashes, so their order is random
    drawn = select(chunks.c.seq).where(is_here).order_by(chunks.c.chunk_id).limit(limit)
    return connection.scalars(drawn).all()
