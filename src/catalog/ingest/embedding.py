"""Embed the stored passages that wait for their vectors: the second pass of a run.

Batches are embedded by an executor, or by the model in this process; this process stores the
vectors.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError, EmbeddingError, EmbeddingServerError
from catalog.embedding.encoder import embed_in_batches
from catalog.ingest.executors import Executor, InPlace, Lost
from catalog.ingest.pipeline import Pipeline
from catalog.ingest.sync_report import Failure, Pace, Progress, Silent, in_groups, next_batch
from catalog.store import Database, embedding_cache
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import (
    WaitingChunk,
    find_waiting_for,
    is_noted_waiting,
    list_waiting,
    settle_waiting,
)

if TYPE_CHECKING:
    from catalog.core.documents import Chunk
    from catalog.core.errors import DamagedDocumentError
    from catalog.embedding.encoder import EmbeddingResult, EmbeddingUsage, Encoder
    from catalog.embedding.model import EmbeddingModel
    from catalog.store.embedding_cache import Vector

_OUTAGES = 3  # batches in a row on which a server fails before the rest is left to the next run
_FIRST_BATCH = 2  # texts: even with a slow model, something is stored soon
_OTHERS_SECONDS = 0.2  # between two looks at the texts that another run has claimed
_MOST_SECONDS = 300.0  # without progress, after which another run counts as stuck
_MADE_READY = 128  # windows made ready at once, from which batches of like length are taken


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """The number of texts the model embedded, those it failed on, and notes.

    ``failed_chunks`` are ids of chunks; ``usage`` has a server's requests, tokens and cost.
    """

    embedded: int = 0
    failed: tuple[Failure, ...] = ()
    failed_chunks: tuple[str, ...] = ()
    usage: EmbeddingUsage | None = None
    notes: tuple[str, ...] = ()


def embed_waiting(
    database: Database,
    dataset: str,
    pipeline: Pipeline,
    *,
    since: float = 0.0,
    progress: Progress | None = None,
    pause: Callable[[], bool] | None = None,
    executor: Executor | None = None,
) -> EmbeddingReport:
    """Embed waiting passages, each batch in one transaction; searches find them from then on.

    ``pause`` is called after each batch; if it returns true, the rest is left to the next run.
    Documents indexed after ``since`` (seconds from 1970) come first, the newest first. An
    ``executor`` embeds while this process writes. The caller holds the dataset's lock, unless runs
    on this store claim texts: then several runs share the work, and each waits for texts claimed by
    another. Texts that the model fails on, or all of them while it is down, are named in the report
    and tried again by the next run.
    """
    with database.read() as connection:
        is_noted = is_noted_waiting(connection, dataset)
    if not is_noted:  # a vector may have been lost all the same
        with database.write() as connection:
            if not settle_waiting(connection, dataset):
                return EmbeddingReport()
    with database.read() as connection:
        waiting = list_waiting(connection, dataset, since)
    run = _EmbeddingRun(database, dataset, pipeline, progress or Silent(), executor or InPlace())
    try:
        run.embed(waiting, pause or (lambda: False))
    finally:
        with database.write() as connection:
            settle_waiting(connection, dataset)
    return run.report()


class _EmbeddingRun:
    """One pass over the waiting passages, with a record of the results."""

    def __init__(
        self,
        database: Database,
        dataset: str,
        pipeline: Pipeline,
        progress: Progress,
        executor: Executor,
    ) -> None:
        self._database, self._dataset, self._executor = database, dataset, executor
        self._pipeline, self._progress = pipeline, progress
        self._batches = EmbeddingBatches(pipeline.model, database)
        self._reasons: dict[str, str] = {}  # by path, of the first passage that failed
        self._failed: Counter[str] = Counter()
        self._failed_keys: set[str] = set()
        self._failed_seqs: set[int] = set()
        self._elsewhere: tuple[AbstractSet[str], float] = frozenset(), 0.0  # and since when
        self._unlike = 0
        self._done = 0
        self._usage_before = self._batches.usage
        self._is_begun = False
        self._down = ""

    def embed(self, waiting: Sequence[WaitingChunk], pause: Callable[[], bool]) -> None:
        """Embed waiting passages until all are done, the model is down, or ``pause`` says so."""
        if not waiting:
            return
        pace = Pace(len(waiting))
        self._progress.start(0, "starting the model")
        left, together = waiting, _MADE_READY * self._executor.size
        try:
            while left:  # once, unless other runs were at some of it
                for group in in_groups(left, lambda one: len(one.keys), together):
                    for _ in self._embed_group(group, waiting, pace):
                        if pause():
                            return
                left = self._await_others(left)
                if left and pause():
                    return
        except EmbeddingError as error:
            missing = min(len(waiting), len(waiting) - self._done + len(self._failed_seqs))
            self._down = (
                f"{error}; {missing} passages are found only by their words until the next run"
            )

    def _await_others(self, waiting: Sequence[WaitingChunk]) -> list[WaitingChunk]:
        """Wait a little for texts claimed by other runs; return their passages to check again.

        If none of them was embedded for a long time, they are left to the next run.
        """
        elsewhere = self._batches.take_elsewhere()
        if not elsewhere:
            return []
        known, since = self._elsewhere
        if elsewhere != known:
            self._elsewhere = elsewhere, time.monotonic()
        elif time.monotonic() - since > _MOST_SECONDS:
            self._down = (
                f"another run has claimed {len(elsewhere)} texts for {_MOST_SECONDS:.0f} s "
                "without progress; the next run will embed them"
            )
            return []
        self._progress.advance(0, "another run", f"waiting for {len(elsewhere)} texts")
        time.sleep(_OTHERS_SECONDS)
        return [chunk for chunk in waiting if not elsewhere.isdisjoint(chunk.keys)]

    def report(self) -> EmbeddingReport:
        """Return the report of this pass."""
        failed = tuple(
            Failure(path, f"{count} passage{'s' * (count > 1)} not embedded: {self._reasons[path]}")
            for path, count in self._failed.items()
        )
        notes = [self._down] if self._down else []
        usage = self._batches.usage
        if usage is not None and self._usage_before is not None:
            usage -= self._usage_before
        if usage is not None and usage.requests:
            notes.append(
                "token counts are estimates (four letters per token), because the model's "
                "tokenizer is on its server"
            )
        if self._unlike:
            notes.append(
                f"{self._unlike} passages do not fit these settings and are not embedded: run "
                "'catalog index update --reread'"
            )
        with self._database.read() as connection:
            chunks = find_waiting_for(connection, self._dataset, self._failed_keys)
        return EmbeddingReport(self._batches.computed, failed, tuple(chunks), usage, tuple(notes))

    def _embed_group(
        self, group: Sequence[WaitingChunk], waiting: Sequence[WaitingChunk], pace: Pace
    ) -> Iterator[None]:
        """Embed some of the waiting chunks, batch by batch."""
        damaged: list[DamagedDocumentError] = []
        with self._database.read() as connection:
            seqs = [chunk.seq for chunk in group]
            stored = load_chunks(connection, self._dataset, seqs, damaged=damaged)
        texts, _ = self._pipeline.stored_texts(stored.values())
        owners = {key: chunk for chunk in group if chunk.seq in stored for key in chunk.keys}
        wanted = {key: texts[key] for key in owners if key in texts}
        self._unlike += len({chunk.seq for key, chunk in owners.items() if key not in texts})
        left = Counter(chunk.seq for chunk in owners.values())
        for keys, reasons in self._batches.embed(wanted, self._executor):
            self._failed_keys.update(reasons)
            self._note_failures({owners[key].seq: why for key, why in reasons.items()}, stored)
            left.subtract(owners[key].seq for key in keys)
            whole = len({owners[key].seq for key in keys if left[owners[key].seq] == 0})
            self._done += whole
            pace.advance(whole)
            work = sum(owners[key].tokens / len(owners[key].keys) for key in keys)
            path = stored[owners[keys[0]].seq].path
            counts = f"{self._done:,} of {len(waiting):,} passages{pace.rate_text()}"
            if not self._is_begun:  # the model has answered for the first time
                self._progress.start(sum(chunk.tokens for chunk in waiting), "embedding")
                self._is_begun = True
            self._progress.advance(work, path, counts)
            yield

    def _note_failures(self, reasons: dict[int, str], stored: dict[int, Chunk]) -> None:
        for seq, reason in reasons.items():
            self._failed[stored[seq].path] += seq not in self._failed_seqs
            self._failed_seqs.add(seq)
            self._reasons.setdefault(stored[seq].path, reason)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The vectors of a batch in order, ``None`` for a failed text, and reasons by position.

    ``outage`` says why a server did not answer at all; ``usage`` is set for a batch that was
    embedded in another process.
    """

    vectors: Sequence[Vector | None] = ()
    failures: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    outage: str = ""
    usage: EmbeddingUsage | None = None


@dataclass(frozen=True, slots=True)
class BatchEmbedding:
    """Embed batches in another process; this has everything that the model needs there."""

    encoder: Encoder
    fingerprint: str
    dim: int
    batch_size: int

    def __call__(self, texts: Sequence[str]) -> BatchOutcome:
        """Return the vectors; raise :class:`ConfigError` if another model is installed there."""
        if self.encoder.fingerprint != self.fingerprint:
            raise ConfigError(
                f"a worker has another {self.encoder.model} ({self.encoder.fingerprint}) than "
                f"this machine ({self.fingerprint}): install the same model on every machine"
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
    """Keys that this run has claimed until ``claim`` ends, and the texts to embed."""

    keys: Sequence[str]
    claim: ExitStack
    texts: dict[str, str] = field(default_factory=dict)


class EmbeddingBatches:
    """Embed texts by key in batches, and store the vectors of each batch in a transaction.

    ``computed`` counts the texts that the model embedded.
    """

    def __init__(self, model: EmbeddingModel, database: Database) -> None:
        self._model, self._database = model, database
        self.computed = 0
        self._elsewhere: set[str] = set()  # keys that another run was at
        self._usage_elsewhere: EmbeddingUsage | None = None  # of servers asked by other processes
        self._size = _FIRST_BATCH  # texts of the next batch
        self._outages = 0  # batches in a row on which the server failed

    def embed(
        self, texts: Mapping[str, str], executor: Executor
    ) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
        """Embed texts by key, in batches of similar length around the first remaining text.

        The first batch is small; each next one is larger, up to the model's size, as long as a
        batch takes no more than a few seconds. Yield for each batch its keys, and the reasons by
        key for missing vectors. Texts claimed by another run are in no batch;
        :meth:`take_elsewhere` returns them. Raises ``EmbeddingError`` if the model is down; a
        server counts as down after three failed batches in a row.
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

    @property
    def usage(self) -> EmbeddingUsage | None:
        """The requests, tokens and cost of a server so far, ``None`` for a local model."""
        here, elsewhere = self._model.usage, self._usage_elsewhere
        return here + elsewhere if here and elsewhere else here or elsewhere

    def take_elsewhere(self) -> set[str]:
        """Return the keys left to other runs since the last call."""
        left, self._elsewhere = self._elsewhere, set()
        return left

    def _work(self, executor: Executor) -> Callable[[Sequence[str]], BatchOutcome]:
        if isinstance(executor, InPlace):
            return partial(_embed, self._model.embed)
        encoder = self._model.encoder
        size = self._model.batch_size
        return BatchEmbedding(encoder, encoder.fingerprint, encoder.dim, size)

    def _ask(self, texts: Mapping[str, str], started: deque[_Batch]) -> Iterator[list[str]]:
        """Yield the batches to embed: the first remaining text, with texts of similar length."""
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
        """Claim keys that no other run has claimed, as a batch; ``None`` if there are none."""
        claim = ExitStack()
        mine = claim.enter_context(self._database.claim(keys))
        self._elsewhere.update(key for key in keys if key not in mine)
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
        """Store the vectors of a batch; return the reasons by key for missing vectors."""
        keys = list(batch.texts)
        if isinstance(outcome, Lost):
            if len(keys) == 1:
                return {keys[0]: outcome.reason}
            alone = ask([text] for text in batch.texts.values())
            return {
                key: reason
                for key, result in zip(keys, alone, strict=True)
                for reason in self._settle(
                    _Batch([key], batch.claim, {key: batch.texts[key]}), result, ask
                ).values()
            }
        if outcome.usage is not None:
            before = self._usage_elsewhere
            self._usage_elsewhere = outcome.usage + before if before else outcome.usage
        if outcome.outage:
            self._outages += 1
            return dict.fromkeys(keys, outcome.outage)
        self._outages = 0
        if keys:
            kept = keep_vectors(self._database, self._model, keys, outcome.vectors)
            self.computed += len(kept)
        if len(keys) == len(batch.keys):  # none was there before
            self._size = next_batch(len(keys), outcome.seconds)
        return {keys[index]: reason for index, reason in outcome.failures.items()}


def keep_vectors(
    database: Database,
    model: EmbeddingModel,
    keys: Sequence[str],
    vectors: Sequence[Vector | None],
) -> dict[str, Vector]:
    """Store the vectors that are not ``None``, and return them by key."""
    pairs = zip(keys, vectors, strict=True)
    computed = {key: vector for key, vector in pairs if vector is not None}
    with database.write() as connection:
        embedding_cache.save(
            connection,
            computed,
            fingerprint=model.encoder.fingerprint,
            side="document",
            now=time.time(),
        )
    return computed
