"""Try another embedding model in addition to the store's own: embed with it, adopt or drop it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from catalog.core.errors import (
    CatalogError,
    EmbeddingMismatchError,
    InputError,
    StoreDamagedError,
)
from catalog.core.settings import Settings, with_values
from catalog.core.text import strip_userinfo
from catalog.ingest.embedding import EmbeddingBatches
from catalog.ingest.executors import InPlace
from catalog.ingest.pipeline import Pipeline
from catalog.ingest.sync_report import Failure, Pace, Progress, Silent, in_groups
from catalog.library.indexes import Indexes
from catalog.library.indexing import Indexer
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import Library, read_model_settings
from catalog.library.useless_legs import refresh_agreement
from catalog.store import Database
from catalog.store.checksums import find_damaged_documents
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import (
    Adoption,
    StoredModel,
    describe_unused_fits,
    read_adoption,
    read_model,
)
from catalog.store.locks import hold_lock
from catalog.store.manifest import read_dataset_settings
from catalog.store.tried_models import (
    NewWay,
    TriedCounts,
    TriedModel,
    add_tried,
    adopt_tried,
    count_tried,
    draw_documents,
    drop_tried,
    drop_unused,
    keep_windows,
    list_tried,
    list_untried,
    require_tried,
)
from catalog.store.vectors.exact import ExactEngine
from catalog.store.vectors.sample import VectorSample

if TYPE_CHECKING:
    from catalog.core.errors import DamagedDocumentError
    from catalog.store.vectors.base import VectorEngine

_LOCK = ".try-model.lock"  # next to the datasets' locks; no dataset's name begins with a dot
_NAMED = 3  # documents in one message
_TOGETHER = 64  # passages whose windows are cut at once


class TriedIndexes(Indexes):
    """Open the engines over a tried model's windows, which are always compared exactly."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        model: Callable[[], StoredModel],
        tried: TriedModel,
    ) -> None:
        super().__init__(settings, database, model)
        self._tried = tried

    def vector(self, dataset: str, name: str | None = None) -> VectorEngine:
        """Return the exact engine, whatever the ``name``; raises as :meth:`require_model` does."""
        del name
        self.require_model()
        with self._lock:
            engine = ExactEngine(self._database, dataset, self._tried.windows)
            return self._vector.setdefault(("exact", dataset), engine)

    def require_model(self) -> None:
        """Raise :class:`~catalog.core.errors.InputError` once the model is tried no more."""
        with self._database.read() as connection:
            require_tried(connection, self._tried.name)

    def sample(self, dataset: str) -> VectorSample:
        """Return the sample of the tried model's vectors."""
        with self._lock:
            sample = VectorSample(self._database, dataset, self._tried.windows)
            return self._samples.setdefault(dataset, sample)


class TriedLibrary(Library):
    """Open the same store once more, to search it as it will be once the tried model is adopted.

    Make it when the vectors are there: they may come without a change that it would notice.
    """

    def __init__(self, library: Library, tried: TriedModel) -> None:
        super().__init__(with_values(library.settings, tried.settings), follows=False)
        self.indexes = TriedIndexes(self.settings, self.database, lambda: self.wanted_model, tried)


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The counts of a try, of this run and in all; ``failed`` are documents the model failed on."""

    tried: TriedModel
    embedded: int
    counts: TriedCounts
    failed: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptionReport:
    """The model that is the store's now, the one it replaced, and notes.

    ``settings`` are those to set from now on, by dotted name; ``None``: unset.
    """

    model: StoredModel
    replaced: StoredModel
    settings: Mapping[str, Any]
    counts: TriedCounts
    seconds: float
    notes: tuple[str, ...] = ()


class ModelTrials:
    """Try models on one store, while it is searched, updated and served as before."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def start(
        self,
        name: str,
        *,
        provider: str | None = None,
        url: str | None = None,
        dim: int | None = None,
        max_tokens: int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
    ) -> TriedModel:
        """Note a model as tried, once it has answered; one that is tried goes on.

        The ``provider`` is that of the settings unless given, and for the same one so is its
        ``url``; prefixes are those of the model's profile. Raises :class:`InputError` for the
        store's own model with the same settings, or for one that is tried with other settings,
        :class:`ConfigError` kinds for a model that is not available, and
        :class:`EmbeddingMismatchError` where the settings name another model than the store's.
        """
        library = self._library
        self._require_live()
        present = library.settings.embedding
        provider = provider or present.provider
        url = url or (present.url if provider == present.provider else None)
        if url and strip_userinfo(url) != url:
            raise InputError(
                "the address holds a password, and would be stored: give the key as "
                "IDX_EMBEDDING__API_KEY"
            )
        settings = {
            "embedding.provider": provider,
            "embedding.model": name,
            "embedding.url": url,
            "embedding.dim": dim,
            "embedding.max_tokens": max_tokens,
            "rag_v2.embed_prefix_query": query_prefix,
            "rag_v2.embed_prefix_doc": document_prefix,
        }
        with Library(with_values(library.settings, settings), follows=False) as other:
            other.model.embed_query("probe")
            model = other.wanted_model
            is_same = model.fingerprint == library.wanted_model.fingerprint
            if is_same and other.model.document_prefix == library.model.document_prefix:
                raise InputError(
                    f"{name} is the store's model already ({model.fingerprint}): try another"
                )
        with library.database.write() as connection:
            return add_tried(connection, model, settings)

    def embed(
        self,
        tried: TriedModel,
        datasets: Sequence[str] = (),
        *,
        sample: int | None = None,
        first: Collection[str] = (),
        progress: Progress | None = None,
    ) -> TrialReport:
        """Embed the passages that the model lacks, of the named datasets or all; or a ``sample``.

        A sample has about ``sample`` passages of each dataset, in whole documents: those with the
        paths in ``first``, then random ones. Passages embedded before are not embedded again, even
        if that run failed. Raises :class:`EmbeddingError` when the model is down.
        """
        library = self._library
        names = datasets or library.datasets()
        with self._alone(), TriedLibrary(library, tried) as other:
            computed, failed = self._embed(tried, other, names, progress or Silent(), sample, first)
        with library.database.read() as connection:
            counts = count_tried(connection, tried, names[0] if len(names) == 1 else None)
        return TrialReport(tried, computed, counts, failed)

    def adopt(self, name: str, *, progress: Progress | None = None) -> AdoptionReport:
        """Make a tried model the store's, in one transaction; ids and cuts of passages stay.

        Passages that lack its vectors are embedded before that, without the sample that it may have
        been tried on; those that the model fails on are found by their words until the next update.
        Raises :class:`InputError` for a model that is not tried.
        """
        library, progress, started = self._library, progress or Silent(), time.monotonic()
        with library.database.read() as connection:
            bound, before = read_model(connection), read_adoption(connection)
            is_tried = name in [each.name for each in list_tried(connection)]
            if bound is not None and bound.model == name and not is_tried:
                told = f"{name} is the store's model already, and not tried otherwise"
                # A run that was killed while adopting it did not print the settings.
                raise InputError("; ".join(filter(None, (told, library.adoption_note))))
            tried = require_tried(connection, name)
        self._require_live()
        self.embed(tried, progress=progress)  # most of it while datasets may still be updated
        with ExitStack() as locks:
            locks.enter_context(self._alone())
            for dataset in library.datasets():
                locks.enter_context(Indexer(library).hold(dataset, progress))
            names = library.datasets()
            self._require_sound(names)
            with TriedLibrary(library, tried) as other:
                _, failed = self._embed(tried, other, names, progress)
                ways = {name: _way_of(library, other, name)[0] for name in names}
            # Settings that name any of the models before follow it.
            settings, named = dict(tried.settings), read_model_settings(library.settings)
            known = [*(before.replaced if before else ()), named]
            others = tuple(each for each in known if dict(each) != settings)
            replaced = library.wanted_model
            with library.database.write() as connection:
                counts = count_tried(connection, tried)
                adopt_tried(connection, tried, ways, Adoption(settings, others, time.time()))
            with library.database.write() as connection:  # else the next update does it
                drop_unused(connection)
        notes = (*(f"{it.path}: {it.reason}" for it in failed), *self._refresh(tried, names))
        seconds = time.monotonic() - started
        return AdoptionReport(tried.model, replaced, settings, counts, seconds, notes)

    def drop(self, name: str) -> int:
        """Forget a tried model with its vectors; return how many these were.

        Raises :class:`InputError` for a model that is not tried.
        """
        with self._alone(), self._library.database.write() as connection:
            return drop_tried(connection, require_tried(connection, name))

    def _alone(self) -> AbstractContextManager[None]:
        """Hold the lock under which one process at a time tries, adopts or drops a model."""
        busy = "another process tries or adopts a model on this store: wait for it, or end it"
        lock = self._library.settings.home / "locks" / _LOCK
        return hold_lock(lock, seconds=0, busy=busy)

    def _require_live(self) -> None:
        """Raise :class:`EmbeddingMismatchError` unless the settings name the store's model."""
        library = self._library
        with library.database.read() as connection:
            bound = read_model(connection)
        if bound is not None and bound.fingerprint != library.wanted_model.fingerprint:
            raise EmbeddingMismatchError(
                f"the store's model is {bound.model} ({bound.fingerprint}), and the settings name "
                f"{library.wanted_model.model}: go back to those that name {bound.model}, try and "
                "adopt with them, and set the new model when it is adopted"
            )

    def _require_sound(self, names: Sequence[str]) -> None:
        """Raise for damaged documents: an adoption computes their checksums again."""
        with self._library.database.read() as connection:
            found = (it for name in names for it in find_damaged_documents(connection, name))
            damaged = [document for _, document in found]
        if damaged:
            raise StoreDamagedError(
                f"{len(damaged)} documents are not as they were stored "
                f"({', '.join(damaged[:_NAMED])}): mend them first, see 'catalog doctor'"
            )

    def _embed(
        self,
        tried: TriedModel,
        other: Library,
        names: Sequence[str],
        progress: Progress,
        sample: int | None = None,
        first: Collection[str] = (),
    ) -> tuple[int, tuple[Failure, ...]]:
        """Embed the passages that the model lacks, each batch in one transaction.

        The datasets' locks are not held: they may be updated meanwhile, and passages added then are
        left to the next run. Return how many windows were embedded, and the documents that the
        model failed on.
        """
        if other.wanted_model != tried.model:
            raise InputError(
                f"{tried.name} has other weights than when it was tried: forget those vectors with "
                f"'catalog index drop {tried.name}', and try it again"
            )
        database, seqs_of = self._library.database, {}
        with database.read() as connection:
            for name in sorted(names):
                untried = list_untried(connection, tried, name)
                if sample is not None:
                    drawn = set(draw_documents(connection, name, sample, first))
                    untried = [row for row in untried if row[1] in drawn]
                seqs_of[name] = [seq for seq, _ in untried]
        computed, done, total = 0, 0, sum(map(len, seqs_of.values()))
        failed: dict[str, list[str]] = {}  # reasons by path
        if total:
            progress.start(total, "embedding")
        pace = Pace(total)
        for name, seqs in seqs_of.items():
            pipeline = _way_of(self._library, other, name)[1]
            batches = EmbeddingBatches(pipeline.model, self._library.database)
            for group in in_groups(seqs, lambda _: 1, _TOGETHER):
                damaged: list[DamagedDocumentError] = []
                with database.read() as connection:
                    stored = load_chunks(connection, name, group, damaged=damaged)
                texts, keys = pipeline.stored_texts(stored.values())
                with database.write() as connection:
                    keep_windows(connection, tried, keys)
                paths = {key: stored[seq].path for seq, each in keys.items() for key in each}
                for _, reasons in batches.embed(texts, InPlace()):
                    for key, reason in reasons.items():
                        failed.setdefault(paths[key], []).append(reason)
                done += len(group)
                pace.advance(len(group))
                path = next((chunk.path for chunk in stored.values()), "")
                told = f"{done:,} of {total:,} passages{pace.rate_text()}"
                progress.advance(len(group), path, told)
            computed += batches.computed
        failures = (
            Failure(path, f"{len(reasons)} passages not embedded: {reasons[0]}")
            for path, reasons in failed.items()
        )
        return computed, tuple(failures)

    def _refresh(self, tried: TriedModel, names: Sequence[str]) -> Iterator[str]:
        """Update the indexes and the agreement; yield a note on each one that must wait."""
        library = self._library
        library.follow_adoption()
        if library.wanted_model != tried.model:  # a model was given to the library
            return
        for name in names:
            try:
                library.indexes.vector(name).refresh()
                refresh_agreement(library, name)
            except CatalogError as error:
                yield f"{name}: brought up to date later: {error}"
        if unused := describe_unused_fits(library.database, tried.model.fingerprint):
            yield unused


def _way_of(library: Library, other: Library, dataset: str) -> tuple[NewWay, Pipeline]:
    """Return how the dataset is made once the other library's model is the store's."""
    with library.database.read() as connection:
        is_noted = read_dataset_settings(connection, dataset) is not None
    # One without noted settings was filled by a user's pipeline: no run of ours indexes it again.
    made = IndexingSettings(library, dataset, apply_settings=not is_noted)
    way, pipeline = made.with_model(other)
    return (way if is_noted else replace(way, made_with=None)), pipeline
