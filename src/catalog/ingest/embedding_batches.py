"""Embedding texts batch by batch: asked of an executor, kept by this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError, EmbeddingServerError
from catalog.embedding.encoder import embed_in_batches
from catalog.ingest.executors import Executor, InPlace, Lost
from catalog.ingest.sync_report import next_batch
from catalog.store import Database, embedding_cache

if TYPE_CHECKING:
    from catalog.embedding.encoder import EmbeddingResult, Encoder
    from catalog.embedding.model import EmbeddingModel
    from catalog.embedding.usage import EmbeddingUsage
    from catalog.store.embedding_cache import Vector

_OUTAGES = 3  # batches in a row on which a server fails before the rest is left to the next run
_FIRST_BATCH = 2  # texts: something is stored soon after the model is ready, however slow it is


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The vectors of a batch in order, ``None`` for a text that failed, and why by its place.

    ``outage`` says why a server answered nothing at all; ``usage`` is what one in another process
    took.
    """

    vectors: Sequence[Vector | None] = ()
    failures: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    outage: str = ""
    usage: EmbeddingUsage | None = None


@dataclass(frozen=True, slots=True)
class BatchEmbedding:
    """Embeds batches in another process, by the model of this one: all that it depends on."""

    encoder: Encoder
    fingerprint: str
    dim: int
    batch_size: int

    def __call__(self, texts: Sequence[str]) -> BatchOutcome:
        """Return the vectors; raise :class:`ConfigError` where another model lies."""
        if self.encoder.fingerprint != self.fingerprint:
            raise ConfigError(
                f"a worker has another {self.encoder.model} ({self.encoder.fingerprint}) than this "
                f"machine ({self.fingerprint}): install the same model on every machine"
            )
        before = getattr(self.encoder, "usage", None)
        embed = partial(
            embed_in_batches, self.encoder.encode, dim=self.dim, batch_size=self.batch_size
        )
        outcome = _embed(embed, texts)
        return replace(outcome, usage=before and self.encoder.usage - before)  # type: ignore[attr-defined]


def _embed(embed: Callable[[Sequence[str]], EmbeddingResult], texts: Sequence[str]) -> BatchOutcome:
    if not texts:
        return BatchOutcome()
    started = time.monotonic()
    try:
        result = embed(texts)
    except EmbeddingServerError as error:
        return BatchOutcome(outage=str(error))
    return BatchOutcome(result.vectors, result.failures, time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Keys that this run claimed until ``claim`` is left, and the texts of those to embed."""

    keys: Sequence[str]
    claim: ExitStack
    texts: dict[str, str] = field(default_factory=dict)


class EmbeddingBatches:
    """Embeds texts by key in batches, and keeps the vectors of each in a transaction.

    ``computed`` counts the texts that the model answered; ``elsewhere`` are the keys that another
    run was at when this one came to them; ``usage`` is what servers took in other processes.
    """

    def __init__(self, model: EmbeddingModel, database: Database) -> None:
        self._model, self._database = model, database
        self.computed = 0
        self.elsewhere: set[str] = set()
        self.usage: EmbeddingUsage | None = None
        self._size = _FIRST_BATCH  # texts of the next batch
        self._outages = 0  # batches in a row on which the server failed

    def embed(
        self, texts: Mapping[str, str], executor: Executor
    ) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
        """Yield of each batch its keys, and why some have no vector.

        Raises ``EmbeddingError`` when the model is down; a server is taken to be once it failed on
        three batches in a row.
        """
        work, started = self._work(executor), deque[_Batch]()
        try:
            asked = self._ask(texts, started)
            for outcome in executor.map(work, asked, room=executor.size):
                batch = started.popleft()
                with batch.claim:
                    reasons = self._settle(batch, outcome, partial(executor.map, work))
                yield batch.keys, reasons
                if self._outages == _OUTAGES:
                    self._outages = 0
                    raise EmbeddingServerError(next(iter(reasons.values())))
        finally:
            for batch in started:
                batch.claim.close()

    def keep(self, keys: Sequence[str], vectors: Sequence[Vector | None]) -> dict[str, Vector]:
        """Store the vectors there are, and return them by key."""
        pairs = zip(keys, vectors, strict=True)
        computed = {key: vector for key, vector in pairs if vector is not None}
        with self._database.write() as connection:
            embedding_cache.save(
                connection,
                computed,
                fingerprint=self._model.encoder.fingerprint,
                side="document",
                now=time.time(),
            )
        self.computed += len(computed)
        return computed

    def _work(self, executor: Executor) -> Callable[[Sequence[str]], BatchOutcome]:
        if isinstance(executor, InPlace):
            return partial(_embed, self._model.embed)
        encoder = self._model.encoder
        size = self._model.batch_size
        return BatchEmbedding(encoder, encoder.fingerprint, encoder.dim, size)

    def _ask(self, texts: Mapping[str, str], started: deque[_Batch]) -> Iterator[list[str]]:
        """Yield the texts to embed: batches of the first that is left, and others as long."""
        left = sorted(texts, key=lambda key: len(texts[key]))
        done: set[str] = set()
        for first in texts:
            if first in done:
                continue
            size = self._size = min(self._size, self._model.batch_size)
            start = max(0, min(left.index(first) - size // 2, len(left) - size))
            keys, left = left[start : start + size], left[:start] + left[start + size :]
            done.update(keys)
            if (batch := self._claim(keys)) is None:
                continue
            started.append(batch)
            with self._database.read() as connection:  # another run may have done some since
                vectors = embedding_cache.load(connection, batch.keys)
            batch.texts.update((key, texts[key]) for key in batch.keys if key not in vectors)
            yield list(batch.texts.values())

    def _claim(self, keys: Sequence[str]) -> _Batch | None:
        """Return a batch of the keys that no other run is at, ``None`` if there are none."""
        claim = ExitStack()
        mine = claim.enter_context(self._database.claim(keys))
        self.elsewhere.update(key for key in keys if key not in mine)
        if mine:
            return _Batch([key for key in keys if key in mine], claim)
        claim.close()
        return None

    def _settle(
        self,
        batch: _Batch,
        outcome: BatchOutcome | Lost,
        ask: Callable[[Iterable[list[str]]], Iterator[BatchOutcome | Lost]],
    ) -> dict[str, str]:
        """Keep what a batch came to; return why there is no vector for some of its keys."""
        keys = list(batch.texts)
        if isinstance(outcome, Lost):
            if len(keys) == 1:
                return {keys[0]: outcome.reason}
            alone = ask([text] for text in batch.texts.values())
            return {
                key: reason
                for key, result in zip(keys, alone, strict=True)
                for reason in self._settle(self._only(batch, key), result, ask).values()
            }
        if outcome.usage is not None:
            self.usage = outcome.usage + self.usage if self.usage else outcome.usage
        if outcome.outage:
            self._outages += 1
            return dict.fromkeys(keys, outcome.outage)
        self._outages = 0
        if keys:
            self.keep(keys, outcome.vectors)
        if len(keys) == len(batch.keys):  # none was there before
            self._size = next_batch(len(keys), outcome.seconds)
        return {keys[index]: reason for index, reason in outcome.failures.items()}

    @staticmethod
    def _only(batch: _Batch, key: str) -> _Batch:
        return _Batch([key], batch.claim, {key: batch.texts[key]})
