"""Embedding the passages that are stored and wait for their vectors: the second pass of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.core.errors import EmbeddingError
from catalog.ingest.executors import Executor, InPlace
from catalog.ingest.pipeline import PipelineSteps
from catalog.ingest.sync_report import Failure, Pace, Progress, Silent, in_groups
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import (
    WaitingChunk,
    find_waiting_for,
    is_noted_waiting,
    list_waiting,
    settle_waiting,
)

if TYPE_CHECKING:
    from llama_index.core.ingestion import IngestionPipeline

    from catalog.core.documents import Chunk
    from catalog.core.errors import DamagedDocumentError
    from catalog.embedding.usage import EmbeddingUsage
    from catalog.store import Database

_OTHERS_SECONDS = 0.2  # between two looks at what another run is at
_MOST_SECONDS = 300.0  # until another run, which does none of it, is taken to be stuck
_TOGETHER = 128  # windows made ready at once, from which batches of like length are taken


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """How many texts the model embedded, what it failed on, and what else to say.

    ``failed_chunks`` are the ids of chunks; ``usage`` is what a server took.
    """

    embedded: int = 0
    failed: tuple[Failure, ...] = ()
    failed_chunks: tuple[str, ...] = ()
    usage: EmbeddingUsage | None = None
    notes: tuple[str, ...] = ()


def embed_waiting(
    database: Database,
    dataset: str,
    pipeline: IngestionPipeline,
    *,
    since: float = 0.0,
    progress: Progress | None = None,
    pause: Callable[[], bool] | None = None,
    executor: Executor | None = None,
) -> EmbeddingReport:
    """Embed what waits, each batch of the model a transaction; searches find it from then on.

    Asked after each batch, ``pause`` may say that the rest is left to the next run.
    Documents indexed ``since`` then (seconds from 1970) come first, the newest first. An
    ``executor`` embeds beside the writing. The caller holds the dataset's lock, unless the store's
    runs claim what they embed: they share it then, and each waits for what others are at. What the
    model fails on, or cannot do while it is down, is named in the report and tried again by the
    next run.
    """
    with database.read() as connection:
        is_noted = is_noted_waiting(connection, dataset)
    if not is_noted:  # and yet a vector may have been lost
        with database.write() as connection:
            if not settle_waiting(connection, dataset):
                return EmbeddingReport()
    with database.read() as connection:
        waiting = list_waiting(connection, dataset, since)
    steps = PipelineSteps.of(pipeline)
    run = _EmbeddingRun(database, dataset, steps, progress or Silent(), executor or InPlace())
    try:
        run.embed(waiting, pause or (lambda: False))
    finally:
        with database.write() as connection:
            settle_waiting(connection, dataset)
    return run.report()


class _EmbeddingRun:
    """One pass over what waits, which keeps book of how it went."""

    def __init__(
        self,
        database: Database,
        dataset: str,
        steps: PipelineSteps,
        progress: Progress,
        executor: Executor,
    ) -> None:
        self._database, self._dataset, self._executor = database, dataset, executor
        self._steps, self._progress = steps, progress
        self._reasons: dict[str, str] = {}  # by path, of the first passage that failed
        self._failed: Counter[str] = Counter()
        self._failed_keys: set[str] = set()
        self._failed_seqs: set[int] = set()
        self._elsewhere: tuple[AbstractSet[str], float] = frozenset(), 0.0  # and since when
        self._unlike = 0
        self._before, self._done = steps.embedding.computed, 0
        self._usage_before = steps.embedding.usage
        self._is_begun = False
        self._down = ""

    def embed(self, waiting: Sequence[WaitingChunk], pause: Callable[[], bool]) -> None:
        """Embed what waits, until all is done, the model is down, or there is to be a pause."""
        if not waiting:
            return
        pace = Pace(len(waiting))
        self._progress.start(0, "starting the model")
        left, together = waiting, _TOGETHER * self._executor.size
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
                f"{error}; {missing} passages are found by their words only, until the next run"
            )

    def _await_others(self, waiting: Sequence[WaitingChunk]) -> list[WaitingChunk]:
        """Return what was left to other runs, a little later: it is done then, or to be done.

        Where none of it was done for a long time it is left to the next run.
        """
        elsewhere = self._steps.embedding.take_elsewhere()
        if not elsewhere:
            return []
        known, since = self._elsewhere
        if elsewhere != known:
            self._elsewhere = elsewhere, time.monotonic()
        elif time.monotonic() - since > _MOST_SECONDS:
            self._down = (
                f"another run was at {len(elsewhere)} texts for {_MOST_SECONDS:.0f} s and did not "
                "go on; they are left to the next run"
            )
            return []
        self._progress.advance(0, "another run", f"waiting for {len(elsewhere)} texts")
        time.sleep(_OTHERS_SECONDS)
        return [chunk for chunk in waiting if not elsewhere.isdisjoint(chunk.keys)]

    def report(self) -> EmbeddingReport:
        """Return how it went."""
        failed = tuple(
            Failure(path, f"{count} passage{'s' * (count > 1)} not embedded: {self._reasons[path]}")
            for path, count in self._failed.items()
        )
        notes = [self._down] if self._down else []
        usage = self._steps.embedding.usage
        if usage is not None and self._usage_before is not None:
            usage -= self._usage_before
        if usage is not None and usage.requests:
            notes.append(
                "sizes in tokens are estimated, four letters a token: the model's tokenizer is on "
                "its server"
            )
        if self._unlike:
            notes.append(
                f"{self._unlike} passages are not stored as these settings would make them, and "
                "are not embedded: run 'catalog index update --reread'"
            )
        embedded = self._steps.embedding.computed - self._before
        with self._database.read() as connection:
            chunks = find_waiting_for(connection, self._dataset, self._failed_keys)
        return EmbeddingReport(embedded, failed, tuple(chunks), usage, tuple(notes))

    def _embed_group(
        self, group: Sequence[WaitingChunk], waiting: Sequence[WaitingChunk], pace: Pace
    ) -> Iterator[None]:
        """Embed some of the chunks that wait, batch by batch."""
        damaged: list[DamagedDocumentError] = []
        with self._database.read() as connection:
            seqs = [chunk.seq for chunk in group]
            stored = load_chunks(connection, self._dataset, seqs, damaged=damaged)
        texts = self._steps.texts_to_embed(stored.values())
        owners = {key: chunk for chunk in group if chunk.seq in stored for key in chunk.keys}
        wanted = {key: texts[key] for key in owners if key in texts}
        self._unlike += len({chunk.seq for key, chunk in owners.items() if key not in texts})
        left = Counter(chunk.seq for chunk in owners.values())
        for keys, reasons in self._steps.embedding.embed_in_turn(wanted, self._executor):
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
