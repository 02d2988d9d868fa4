"""Embed the stored passages that wait for their vectors: the second pass of a run.

read what waits ─> close the transaction ─> ask the model ─> open one to store its vectors
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError, EmbeddingError, EmbeddingServerError
from catalog.embedding.encoder import EmbeddingResult, EmbeddingUsage
from catalog.ingest.sync_report import Failure, Pace, Progress, Silent, in_groups, next_batch
from catalog.store import Database, embedding_cache
from catalog.store.chunks import load_chunks

if TYPE_CHECKING:
    from catalog.embedding.model import EmbeddingModel
    from catalog.ingest.pipeline import Pipeline
    from catalog.ingest.ray_map import Map
    from catalog.store.embedding_cache import Vector, WaitingChunk

_OUTAGES = 3  # batches in a row on which a server fails before the rest is left to the next run
_ESTIMATED = "token counts are estimates, four letters each: the tokenizer is on the server"
_UNLIKE = "passages do not fit these settings: run 'catalog index update --reread' to embed them"
_MADE_READY = 128  # windows made ready at once, from which batches of like length are taken


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """The number of embedded texts, what failed (``failed_chunks`` by id), a server's usage."""

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
    spread: Map = map,
) -> EmbeddingReport:
    """Embed waiting passages, each batch in one transaction; searches find them from then on.

    If ``pause`` returns true after a batch, the rest is left to the next run. Documents indexed
    after ``since`` (seconds from 1970) come first. ``spread`` asks the model, here or on other
    machines. The caller holds the dataset's lock. The next run tries again what failed.
    """
    with database.write() as connection:  # a vector may have been lost without a note
        if not (waiting := embedding_cache.list_waiting(connection, dataset, since)):
            embedding_cache.settle_waiting(connection, dataset, ())  # none waits
            return EmbeddingReport()
    run = _EmbeddingRun(database, dataset, pipeline, [one for one in waiting if one.keys])
    try:
        run.embed(progress or Silent(), pause or (lambda: False), spread)
    finally:
        with database.write() as connection:
            embedding_cache.settle_waiting(connection, dataset, [one.seq for one in waiting])
    return run.report()


class _EmbeddingRun:
    def __init__(
        self, database: Database, dataset: str, pipeline: Pipeline, waiting: Sequence[WaitingChunk]
    ) -> None:
        self._database, self._dataset, self._pipeline = database, dataset, pipeline
        self._model, self._waiting = pipeline.model, waiting
        self._size = 2  # texts of the next batch: even with a slow model, something is stored soon
        self._asked: deque[tuple[list[str], list[str]]] = deque()  # keys, those without a vector
        self._owners: dict[str, tuple[WaitingChunk, str]] = {}  # chunk and path of a text, by key
        self._failed: dict[str, dict[int, str]] = {}  # reason by chunk, by path
        self._failed_keys: list[str] = []
        self._computed, self._done, self._unlike = 0, 0.0, 0  # texts, passages, passages
        self._usage = self._model.usage and self._model.usage - self._model.usage
        self._notes: list[str] = []

    def embed(self, progress: Progress, pause: Callable[[], bool], spread: Map) -> None:
        pace, outages, count = Pace(0), 0, len(self._waiting)
        work = partial(ask, self._model, self._model.encoder.fingerprint)
        progress.start(0, "starting the model")
        try:
            for number, answer in enumerate(spread(work, self._batches())):
                if number == 0:  # the model has answered for the first time
                    progress.start(sum(chunk.tokens for chunk in self._waiting), "embedding")
                done, (tokens, path) = self._done, self._settle(answer)
                pace.advance(self._done - done)
                counts = f"{self._done:,.0f} of {count:,} passages{pace.rate_text()}"
                progress.advance(tokens, path, counts)
                outages = outages + 1 if isinstance(answer[0], EmbeddingServerError) else 0
                if isinstance(answer[0], EmbeddingServerError) and outages == _OUTAGES:
                    raise answer[0]
                if pause():
                    return
        except EmbeddingError as error:
            missing = min(count - round(self._done) + sum(map(len, self._failed.values())), count)
            found = "passages are found only by their words until the next run"
            self._notes.append(f"{error}; {missing} {found}")

    def _batches(self) -> Iterator[list[str]]:
        """Yield batches of texts of similar length, around the first one that remains."""
        is_first = True
        for group in in_groups(self._waiting, lambda one: len(one.keys), _MADE_READY):
            texts = self._read(group)
            left = sorted(texts, key=lambda key: len(texts[key]))
            for first in texts:
                if first not in left:
                    continue
                size = self._size = min(self._size, self._model.batch_size)
                start = max(0, min(left.index(first) - size // 2, len(left) - size))
                keys, left = left[start : start + size], left[:start] + left[start + size :]
                with self._database.read() as connection:  # another run may have done some since
                    known = {} if is_first else embedding_cache.load(connection, keys)
                is_first, missing = False, [key for key in keys if key not in known]
                self._asked.append((keys, missing))
                yield [texts[key] for key in missing]

    def _read(self, group: Sequence[WaitingChunk]) -> dict[str, str]:
        """Return the texts to embed for some of the waiting chunks, by key."""
        seqs = [chunk.seq for chunk in group]
        with self._database.read() as connection:
            stored = load_chunks(connection, self._dataset, seqs, damaged=[])
        present = [chunk for chunk in group if chunk.seq in stored]
        texts = self._pipeline.stored_texts(stored[chunk.seq] for chunk in present)
        for chunk in present:
            known = texts.keys() & chunk.keys
            self._unlike += len(known) < len(chunk.keys)
            self._owners |= dict.fromkeys(known, (chunk, stored[chunk.seq].path))
        return {key: text for key, text in texts.items() if key in self._owners}

    def _settle(self, answer: Answer) -> tuple[float, str]:
        """Store the vectors of a batch; return its size in tokens, and a path for it."""
        (keys, missing), (result, seconds, usage) = self._asked.popleft(), answer
        self._usage = self._usage + usage if self._usage and usage else self._usage or usage
        if isinstance(result, EmbeddingServerError):
            reasons = dict.fromkeys(missing, str(result))
        else:
            reasons = {missing[index]: reason for index, reason in result.failures.items()}
            if missing:
                kept = keep_vectors(self._database, self._model, missing, result.vectors)
                self._computed += len(kept)
            if len(missing) == len(keys):  # none had a vector before
                self._size = next_batch(len(keys), seconds)
        tokens, path = 0.0, ""
        for key in keys:
            chunk, path = self._owners.pop(key)
            tokens += chunk.tokens / len(chunk.keys)
            self._done += 1 / len(chunk.keys)
            if key in reasons:
                self._failed.setdefault(path, {}).setdefault(chunk.seq, reasons[key])
        self._failed_keys += reasons
        return tokens, path

    def report(self) -> EmbeddingReport:
        failed = list[Failure]()
        for path, reasons in self._failed.items():
            count, first = len(reasons), next(iter(reasons.values()))
            reason = f"{count} passage{'s' * (count > 1)} not embedded: {first}"
            failed.append(Failure(path, reason, "indexed"))
        self._notes += [_ESTIMATED] if self._usage and self._usage.requests else []
        self._notes += [f"{self._unlike} {_UNLIKE}"] if self._unlike else []
        chunks: list[str] = []
        if self._failed_keys:
            with self._database.read() as connection:
                find, keys = embedding_cache.find_waiting_for, self._failed_keys
                chunks = find(connection, self._dataset, keys)
        notes = tuple(self._notes)
        return EmbeddingReport(self._computed, tuple(failed), tuple(chunks), self._usage, notes)


Answer = tuple[EmbeddingResult | EmbeddingServerError, float, EmbeddingUsage | None]


def ask(model: EmbeddingModel, fingerprint: str, texts: Sequence[str]) -> Answer:
    """Embed texts, here or in a worker; return the result or outage, its seconds and usage."""
    if model.encoder.fingerprint != fingerprint:
        raise ConfigError(
            f"a worker has another {model.encoder.model} ({model.encoder.fingerprint}) than this "
            f"machine ({fingerprint}): install the same model on every machine"
        )
    started, before = time.monotonic(), model.usage
    result: EmbeddingResult | EmbeddingServerError = EmbeddingResult((), {})
    try:
        result = model.embed(texts) if texts else result
    except EmbeddingServerError as error:
        result = error
    used = model.usage - before if model.usage and before else None
    return result, time.monotonic() - started, used


def keep_vectors(
    database: Database, model: EmbeddingModel, keys: Sequence[str], vectors: Sequence[Vector | None]
) -> dict[str, Vector]:
    """Store the vectors that are not ``None``, and return them by key."""
    computed = {key: it for key, it in zip(keys, vectors, strict=True) if it is not None}
    stamp, now = model.encoder.fingerprint, time.time()
    with database.write() as connection:
        embedding_cache.save(connection, computed, fingerprint=stamp, now=now)
    return computed
