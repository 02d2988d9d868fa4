"""One run that embeds the passages of a dataset with a model that is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError
from catalog.ingest.embedding import EmbeddingBatches
from catalog.ingest.executors import InPlace
from catalog.ingest.pipeline import Pipeline
from catalog.ingest.sync_report import Failure, Pace, Progress, in_groups
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import Library
from catalog.store.chunks import list_datasets, load_chunks
from catalog.store.model_adoption import NewWay
from catalog.store.tried_models import (
    TriedModel,
    draw_documents,
    keep_windows,
    list_untried,
)

if TYPE_CHECKING:
    from catalog.core.documents import Chunk
    from catalog.core.errors import DamagedDocumentError

_TOGETHER = 64  # passages whose windows are cut at once


def way_of(library: Library, other: Library, dataset: str) -> tuple[NewWay, Pipeline]:
    """Return how the dataset is made once the other library's model is the store's.

    Raises :class:`ConfigError` for documents of which nobody can tell how they were made.
    """
    try:
        return IndexingSettings(library, dataset).with_model(other)
    except ConfigError:
        with library.database.read() as connection:
            roots = {stored.name: stored.root for stored in list_datasets(connection)}
        if roots.get(dataset):
            raise
        # A pipeline of the user's own filled it, and no run of ours will do it anew.
        made = IndexingSettings(library, dataset, apply_settings=True)
        way, pipeline = made.with_model(other)
        return replace(way, made_with=None), pipeline


class TrialRun:
    """Embed what a tried model lacks of one dataset, a batch of the model a transaction.

    The dataset's lock is not held: it may be updated meanwhile, and what comes then is left to the
    next run. ``computed`` counts the windows that the model embedded.
    """

    def __init__(self, library: Library, other: Library, tried: TriedModel, dataset: str) -> None:
        self._database, self._tried, self._dataset = library.database, tried, dataset
        self._pipeline = way_of(library, other, dataset)[1]
        self._batches = EmbeddingBatches(self._pipeline.model, library.database)
        self._reasons: dict[str, str] = {}  # by path, of the first passage that failed
        self._failed: Counter[str] = Counter()
        self.seqs: Sequence[int] = ()

    @property
    def computed(self) -> int:
        """Return the number of windows that the model embedded."""
        return self._batches.computed

    def choose(self, sample: int | None, first: Collection[str]) -> None:
        """Choose the passages to embed: all that lack a vector, or those of a sample."""
        with self._database.read() as connection:
            untried = list_untried(connection, self._tried, self._dataset)
            if sample is not None:
                drawn = draw_documents(connection, self._dataset, sample, first)
                untried = [row for row in untried if row[1] in drawn]
        self.seqs = [seq for seq, _ in untried]

    def embed(self, *, only_cut: bool = False) -> Iterator[tuple[int, str]]:
        """Embed them; yield of each group how many passages it had, and a path in it.

        With ``only_cut`` it is only noted which windows they have.
        """
        for seqs in in_groups(self.seqs, lambda _: 1, _TOGETHER):
            damaged: list[DamagedDocumentError] = []
            with self._database.read() as connection:
                stored = load_chunks(connection, self._dataset, seqs, damaged=damaged)
            texts, keys = self._pipeline.stored_texts(stored.values())
            with self._database.write() as connection:
                keep_windows(connection, self._tried, keys)
            owners = {key: stored[seq] for seq, of_chunk in keys.items() for key in of_chunk}
            if not only_cut:
                for _, reasons in self._batches.embed(texts, InPlace()):
                    self._note(owners, reasons)
            path = next((chunk.path for chunk in stored.values()), "")
            yield len(seqs), path

    def failures(self) -> Iterator[Failure]:
        """Yield the documents that the model failed on, and why."""
        for path, count in self._failed.items():
            passages = f"{count} passage{'s' * (count > 1)}"
            yield Failure(path, f"{passages} not embedded: {self._reasons[path]}")

    def _note(self, owners: dict[str, Chunk], reasons: dict[str, str]) -> None:
        for key, reason in reasons.items():
            path = owners[key].path
            self._failed[path] += 1
            self._reasons.setdefault(path, reason)


def embed_all(runs: Sequence[TrialRun], progress: Progress, *, only_cut: bool = False) -> None:
    """Let the runs embed, one after the other, and tell the progress."""
    total = sum(len(run.seqs) for run in runs)
    if total == 0:
        return
    progress.start(total, "embedding")
    done, pace = 0, Pace(total)
    for run in runs:
        for count, path in run.embed(only_cut=only_cut):
            done += count
            pace.advance(count)
            progress.advance(count, path, f"{done:,} of {total:,} passages{pace.rate_text()}")
