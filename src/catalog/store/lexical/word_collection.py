"""The words of a dataset's passages on a Qdrant server: a collection of sparse vectors.

A point is a passage; its id is the row number. Its vector has one number for each distinct word:
the part of BM25 that depends on the passage only (https://en.wikipedia.org/wiki/Okapi_BM25),

    count / (count + k1 · (1 - b + b · length / average))

The server multiplies it by the rarity of the word among the points (Qdrant's modifier ``idf``).
``average`` is close to the average length.

The collection's note records the state of the dataset in the points. If the dataset has another
state, row numbers and keys of all points are compared with those of the passages, and the
differences are sent. See ``docs/decisions/0046``.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import models
from sqlalchemy import func, select

from catalog.core.errors import EngineError, EngineLockedError
from catalog.core.settings import QdrantSettings
from catalog.store.database import Database
from catalog.store.engine_types import Stamp, read_stamp
from catalog.store.lexical.analysis import TextAnalyzer
from catalog.store.lexical.languages import LANGUAGES
from catalog.store.lexical.postings import Int64
from catalog.store.lexical.snapshot import AnalysedRow, analyse_rows, read_rows
from catalog.store.schema import chunks
from catalog.store.vectors.qdrant_server import QdrantServer, was_answered
from catalog.store.vectors.server_index import (
    NOTE,
    read_note,
    read_pages,
    upsert_points,
    write_note,
)

K1, B = 1.2, 0.75
WORDS = "words"  # the name of the vector
_PAGE = 10_000  # points removed at a time
_TOLD = _KEY, _LENGTH, _LANGUAGE = "key", "length", "language"  # fields of a point's payload
_MOST = 2**62  # greater than any number in them
FORMAT = 1  # of the collection: its points and note
SAMPLE = 2_000  # passages from which the scores below the best are estimated
# In steps, so that equal passages have equal scores whatever their history, and few updates change
# the weights of all points.
STEP = 1.05  # ratio of consecutive average lengths for which points are written
_MEASURED = 10_000  # passages for the first estimate of the average
_TRIES = 20  # to update the points before the dataset changes again
_BATCH = 1_000  # passages analysed and sent at a time
_VERIFIED = 500  # passages whose points are compared at a time
_CLOSE = 1e-4  # tolerance for equal weights, which the server stores with 32 bits


class StoredRows(NamedTuple):
    """The passages' data in the points, as arrays of equal length in order of row numbers."""

    seqs: Int64
    keys: Int64
    lengths: Int64
    languages: Int64

    def of(self, mask: Any) -> StoredRows:
        """Return the rows that the mask selects."""
        return StoredRows(*(column[mask] for column in self))

    def count_languages(self) -> dict[str, int]:
        """Return the number of passages by language."""
        counts = np.bincount(self.languages, minlength=len(LANGUAGES)).tolist()
        return {name: count for name, count in zip(LANGUAGES, counts, strict=True) if count}


def rows_of(points: Iterable[tuple[int, int, int, int]]) -> StoredRows:
    """Return row number, key, length and language of points as arrays, in order."""
    table = np.array(sorted(points), dtype=np.int64).reshape(-1, 4)
    return StoredRows(*table.T)


class WordPoints:
    """The points of one collection; it raises the same errors as :class:`QdrantServer`."""

    def __init__(self, server: QdrantServer, collection: str, options: QdrantSettings) -> None:
        self._server, self.name, self._options = server, collection, options

    def create(self, note: dict[str, Any]) -> None:
        """Make an empty collection; replace an existing one of that name."""
        client, options = self._server.client, self._options
        self._server.call(client.delete_collection, self.name)
        index = models.SparseIndexParams(on_disk=True if options.on_disk else None)
        try:
            self._server.call(
                client.create_collection,
                self.name,
                vectors_config={},
                sparse_vectors_config={
                    WORDS: models.SparseVectorParams(index=index, modifier=models.Modifier.IDF)
                },
                shard_number=options.shard_number,
                replication_factor=options.replication_factor,
                write_consistency_factor=options.write_consistency_factor,
                metadata={NOTE: note},
            )
        except EngineError as error:
            if not was_answered(error, 409):  # made, though the answer was lost
                raise

    def delete(self) -> None:
        """Remove the collection."""
        self._server.call(self._server.client.delete_collection, self.name)

    def count(self) -> int:
        """Return the number of points."""
        return self._server.call(self._server.client.count, self.name, exact=True).count

    def read_rows(self) -> tuple[StoredRows, list[Any]]:
        """Return the passages' data in all points, and the ids of points without such data."""
        known: list[tuple[int, int, int, int]] = []
        strange: list[Any] = []
        pages = read_pages(self._server, self.name, with_payload=True)
        for record in chain.from_iterable(pages):
            told: list[Any] = [record.id, *((record.payload or {}).get(name) for name in _TOLD)]
            numbers = [one for one in told if type(one) is int and abs(one) < _MOST]
            if len(numbers) == len(told) and 0 <= numbers[-1] < len(LANGUAGES):
                known.append((numbers[0], numbers[1], numbers[2], numbers[3]))
            else:
                strange.append(record.id)
        return rows_of(known), strange

    def upsert(self, rows: Sequence[AnalysedRow], average: float) -> None:
        """Add passages, or replace those of the same row number."""
        points = (
            models.PointStruct(
                id=row.seq,
                vector={WORDS: models.SparseVector(**passage_vector(row.tokens, average))},
                payload={
                    _KEY: row.key,
                    _LENGTH: len(row.tokens),
                    _LANGUAGE: LANGUAGES.index(row.language or ""),
                },
            )
            for row in rows
        )
        upsert_points(self._server, self.name, points, self._options)

    def remove(self, ids: Sequence[Any]) -> None:
        """Remove points; ids that do not exist are ignored."""
        for start in range(0, len(ids), _PAGE):
            wanted = models.PointIdsList(points=list(ids[start : start + _PAGE]))
            self._server.call(self._server.client.delete, self.name, wanted, wait=True)

    def read_vectors(self, seqs: Sequence[int]) -> dict[int, dict[int, float]]:
        """Return the word vectors of passages that exist, by row number."""
        records = self._server.call(
            self._server.client.retrieve,
            self.name,
            list(seqs),
            with_payload=False,
            with_vectors=[WORDS],
        )
        found: dict[int, dict[int, float]] = {}
        for record in records:
            sparse = record.vector.get(WORDS) if isinstance(record.vector, dict) else None
            if isinstance(sparse, models.SparseVector):
                found[int(record.id)] = dict(zip(sparse.indices, sparse.values, strict=True))
        return found

    def search(
        self, tokens: Counter[str], asked: Sequence[tuple[int, Sequence[int] | None]]
    ) -> list[list[tuple[int, float]]]:
        """Return the best passages with their scores for several searches in one request.

        ``asked`` has a limit and row numbers (``None``: all) for each. Each list is best first,
        with scores above zero.
        """
        query = models.SparseVector(**_summed((token, float(n)) for token, n in tokens.items()))
        requests = [
            models.QueryRequest(
                query=query,
                using=WORDS,
                limit=limit,
                filter=None
                if seqs is None
                else models.Filter(must=[models.HasIdCondition(has_id=list(seqs))]),
                with_payload=False,
            )
            for limit, seqs in asked
        ]
        answers = self._server.ask(self._server.client.query_batch_points, self.name, requests)
        if len(answers) != len(requests):
            raise EngineError(
                f"Qdrant at {self._server.address} gave {len(answers)} answers to "
                f"{len(requests)} questions"
            )
        return [
            [
                (point.id, point.score)
                for point in answer.points
                if isinstance(point.id, int) and 0 < point.score < math.inf
            ]
            for answer in answers
        ]


def passage_vector(tokens: Sequence[str], average: float) -> dict[str, Any]:
    """Return a passage's words as indices and values of a sparse vector."""
    norm = K1 * (1 - B + B * len(tokens) / average)
    return _summed((token, count / (count + norm)) for token, count in Counter(tokens).items())


def _summed(weights: Iterable[tuple[str, float]]) -> dict[str, Any]:
    """Return indices and values; an index is the CRC-32 of a token, and collisions are added up."""
    sums: dict[int, float] = {}
    for token, weight in weights:
        index = zlib.crc32(token.encode("utf-8", "surrogatepass"))
        sums[index] = sums.get(index, 0.0) + weight
    return {"indices": list(sums), "values": list(sums.values())}


@dataclass(frozen=True, slots=True)
class WordsState:
    """The state of the dataset in the points, their number, their languages and a sample."""

    stamp: Stamp | None
    size: int
    languages: dict[str, int]
    sample: tuple[int, ...]


class WordCollection:
    """The words of one dataset's passages in the collection ``points.name``.

    Callers of :meth:`bring_up` and :meth:`verify` must ensure that nobody else writes. A collection
    that is not ours, or that belongs to another store, raises :class:`EngineError`.
    """

    def __init__(
        self,
        database: Database,
        dataset: str,
        server: QdrantServer,
        points: WordPoints,
        analyzer: TextAnalyzer,
    ) -> None:
        self._database, self._dataset, self._analyzer = database, dataset, analyzer
        self._server, self.points, self.name = server, points, points.name

    def adopt(self, *, is_counted: bool) -> WordsState | None:
        """Return the state of the collection, ``None`` if it is not up to date.

        With ``is_counted``, it must also have the right number of points; for a removed dataset it
        must not exist.
        """
        note = self._read_own_note()
        with self._database.read(latest=True) as connection:
            stamp = read_stamp(connection, self._dataset)
            if stamp is None:
                return None if is_counted else WordsState(None, 0, {}, ())
            if note is None or note.get("state") != list(stamp) or not self._is_alike(note):
                return None
            counted = select(func.count()).where(chunks.c.dataset == self._dataset)
            size = connection.scalars(counted).one()
            if is_counted and self.points.count() != size:
                return None
            drawn = select(chunks.c.seq).where(chunks.c.dataset == self._dataset)
            # chunk ids are hashes, so their order is random
            sample = connection.scalars(drawn.order_by(chunks.c.chunk_id).limit(SAMPLE))
            languages = {name: n for name, n in note["languages"].items() if name in LANGUAGES}
            return WordsState(stamp, size, languages, tuple(sample))

    def bring_up(self) -> WordsState:
        """Add missing passages to the points and remove those that are gone."""
        for _ in range(_TRIES):
            if (state := self._apply()) is not None:
                return state
        raise EngineLockedError("the dataset changes faster than its words can be indexed")

    def verify(self) -> int:
        """Bring the points up to date; return the number of passages whose points are wrong.

        A collection with wrong points is removed.
        """
        self.bring_up()
        note = self._read_own_note() or {}
        wrong = sum(self._count_wrong(rows, note["average"]) for rows in self._analysed())
        if wrong:
            self.points.delete()
        return wrong

    def _apply(self) -> WordsState | None:
        note = self._read_own_note()
        with self._database.read(latest=True) as connection:
            stamp = read_stamp(connection, self._dataset)
            if stamp is None:
                if note is not None:  # the dataset was removed
                    self.points.delete()
                return WordsState(None, 0, {}, ())
            seqs, keys = read_rows(connection, self._dataset)
        there, strange = rows_of(()), list[Any]()
        if note is None or not self._is_alike(note):
            note = self._note() | {"average": self._measure(seqs), "languages": {}}
            self.points.create(note)
        else:
            there, strange = self.points.read_rows()
            write_note(self._server, self.name, note | {"state": None})
            self.points.remove(strange)
        kept = there.of(_are_among(there, seqs, keys))
        missing = seqs[~np.isin(seqs, kept.seqs)]
        added = self._send(missing, note["average"])
        self.points.remove(there.seqs[~np.isin(there.seqs, seqs)].tolist())
        every = StoredRows(*map(np.concatenate, zip(kept, added, strict=True)))
        average = _step_near(every.lengths)
        if average != note["average"]:
            unknown = {"average": None, "state": None}  # if interrupted here, start again
            write_note(self._server, self.name, note | unknown)
            note |= {"average": average}
            self._send(every.seqs, average)
        found = {"languages": every.count_languages(), "state": list(stamp)}
        write_note(self._server, self.name, note | found)
        return self.adopt(is_counted=False)

    def _measure(self, seqs: Int64) -> float:
        """Return the average length of the passages, from a sample if they are many."""
        step = max(1, len(seqs) // _MEASURED)
        with self._database.read(latest=True) as connection:
            rows = analyse_rows(connection, self._dataset, seqs[::step], self._analyzer)
            return _step_near([len(row.tokens) for row in rows])

    def _send(self, seqs: Int64, average: float) -> StoredRows:
        """Write the points of these passages; return their data."""
        sent: list[tuple[int, int, int, int]] = []
        for rows in self._analysed(seqs):
            self.points.upsert(rows, average)
            sent += [
                (row.seq, row.key, len(row.tokens), LANGUAGES.index(row.language or ""))
                for row in rows
            ]
        return rows_of(sent)

    def _analysed(self, seqs: Int64 | None = None) -> Iterator[list[AnalysedRow]]:
        """Yield passages with their words in batches; by default all passages of the dataset."""
        with self._database.read(latest=True) as connection:
            if seqs is None:
                seqs, _ = read_rows(connection, self._dataset)
            rows = analyse_rows(connection, self._dataset, np.sort(seqs), self._analyzer)
            while some := list(islice(rows, _BATCH)):
                yield some

    def _count_wrong(self, rows: Sequence[AnalysedRow], average: float) -> int:
        wrong = 0
        for start in range(0, len(rows), _VERIFIED):
            some = rows[start : start + _VERIFIED]
            stored = self.points.read_vectors([row.seq for row in some])
            for row in some:
                made = passage_vector(row.tokens, average)
                wanted = dict(zip(made["indices"], made["values"], strict=True))
                wrong += not _is_close(stored.get(row.seq, {}), wanted)
        return wrong

    def _read_own_note(self) -> dict[str, Any] | None:
        note = read_note(self._server, self.name)
        if note is not None and note.get("store") != self._database.meta("store_id"):
            raise EngineError(
                f"the collection {self.name!r} at {self._server.address} belongs to "
                "another catalog store: choose another collection prefix"
            )
        return note

    def _is_alike(self, note: dict[str, Any]) -> bool:
        """Return whether the collection is for this dataset, these words and this format."""
        return (
            all(note.get(key) == value for key, value in self._note().items())
            and isinstance(note.get("average"), int | float)
            and note["average"] >= 1
            and isinstance(note.get("languages"), dict)
        )

    def _note(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "store": self._database.meta("store_id"),
            "dataset": self._dataset,
            "words": self._analyzer.fingerprint,
            "k1": K1,
            "b": B,
        }


def _step_near(lengths: Sequence[int] | Int64) -> float:
    """Return the average length, at least 1, rounded to a power of :data:`STEP`.

    So the same passages get the same weights, whatever changed before, and few changes require that
    all points are written again.
    """
    average = max(1.0, sum(lengths) / max(1, len(lengths)))
    return float(STEP ** round(math.log(average, STEP)))


def _are_among(rows: StoredRows, seqs: Int64, keys: Int64) -> Any:
    """Return for each row whether the store has it with the same content."""
    if len(seqs) == 0:
        return np.zeros(len(rows.seqs), dtype=np.bool_)
    at = np.minimum(np.searchsorted(seqs, rows.seqs), len(seqs) - 1)
    return (seqs[at] == rows.seqs) & (keys[at] == rows.keys)


def _is_close(one: dict[int, float], other: dict[int, float]) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(one[index], other[index], rel_tol=_CLOSE, abs_tol=_CLOSE) for index in one
    )
