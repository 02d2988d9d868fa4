"""The words of a dataset's passages on a Qdrant server: a collection of sparse vectors.

A point is a passage, by its row number. Its vector has a number for each different word, the part
of BM25 that the passage alone decides (https://en.wikipedia.org/wiki/Okapi_BM25):

    count / (count + k1 · (1 - b + b · length / average))

The server multiplies that by how rare the word is (Qdrant's modifier ``idf``), over the points
that are there. ``average`` is near the average length; see ``docs/decisions/0046``.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import models

from catalog.core.errors import EngineError
from catalog.core.settings import QdrantSettings
from catalog.store.lexical.languages import LANGUAGES
from catalog.store.lexical.postings import Int64
from catalog.store.lexical.snapshot import AnalysedRow
from catalog.store.vectors.qdrant_server import QdrantServer, was_answered
from catalog.store.vectors.server_index import NOTE, read_pages, upsert_points

K1, B = 1.2, 0.75
WORDS = "words"  # the name of the vector
_PAGE = 10_000  # points removed at a time
_TOLD = _KEY, _LENGTH, _LANGUAGE = "key", "length", "language"  # of each passage, in its payload
_MOST = 2**62  # beyond any number of these


class StoredRows(NamedTuple):
    """What points tell of their passages: arrays of one length, in the order of row numbers."""

    seqs: Int64
    keys: Int64
    lengths: Int64
    languages: Int64

    def of(self, mask: Any) -> StoredRows:
        """Return some of them."""
        return StoredRows(*(column[mask] for column in self))

    def count_languages(self) -> dict[str, int]:
        """Return how many passages are in each language."""
        counts = np.bincount(self.languages, minlength=len(LANGUAGES)).tolist()
        return {name: count for name, count in zip(LANGUAGES, counts, strict=True) if count}


def rows_of(points: Iterable[tuple[int, int, int, int]]) -> StoredRows:
    """Return row number, key, length and language of points as arrays, ordered."""
    table = np.array(sorted(points), dtype=np.int64).reshape(-1, 4)
    return StoredRows(*table.T)


class WordPoints:
    """The points of one collection. Raises :class:`EngineError` kinds as :class:`QdrantServer`."""

    def __init__(self, server: QdrantServer, collection: str, options: QdrantSettings) -> None:
        self._server, self.name, self._options = server, collection, options

    def create(self, note: dict[str, Any]) -> None:
        """Make an empty collection, in place of one of that name."""
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
        """Return what all points tell of their passages, and the ids of those that do not."""
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
        """Remove points; those that are not there are fine."""
        for start in range(0, len(ids), _PAGE):
            wanted = models.PointIdsList(points=list(ids[start : start + _PAGE]))
            self._server.call(self._server.client.delete, self.name, wanted, wait=True)

    def read_vectors(self, seqs: Sequence[int]) -> dict[int, dict[int, float]]:
        """Return the numbers of each passage's words, of those that are there."""
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
        """Return, for each of a limit and row numbers (``None``: all), the best passages' scores.

        One request; best first, each above zero.
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
    """Return a passage's words as a sparse vector: indices and values."""
    norm = K1 * (1 - B + B * len(tokens) / average)
    return _summed((token, count / (count + norm)) for token, count in Counter(tokens).items())


def _summed(weights: Iterable[tuple[str, float]]) -> dict[str, Any]:
    """Return weights by 32 bits of their token; two tokens that share these are added up."""
    sums: dict[int, float] = {}
    for token, weight in weights:
        index = zlib.crc32(token.encode("utf-8", "surrogatepass"))
        sums[index] = sums.get(index, 0.0) + weight
    return {"indices": list(sums), "values": list(sums.values())}
