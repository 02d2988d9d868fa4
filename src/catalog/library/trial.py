"""Try another embedding model on the stored passages: embed with it, then adopt or drop it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.core.errors import EmbeddingMismatchError, InputError, StoreDamagedError
from catalog.core.settings import with_values
from catalog.core.text import strip_userinfo
from catalog.ingest.embedding import keep_vectors
from catalog.ingest.pipeline import Pipeline
from catalog.ingest.sync_report import Failure, Pace, Progress, Silent, in_groups
from catalog.library.indexes import Indexes
from catalog.library.indexing import Indexer, complete_dataset
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import MODEL_SETTINGS, Library, read_model_settings
from catalog.store import embedding_cache
from catalog.store import trial as stored_trial
from catalog.store.checksums import find_damaged_documents
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import (
    Adoption,
    StoredModel,
    Trial,
    describe_unused_fits,
    read_adoption,
    read_model,
    read_trial,
)
from catalog.store.locks import hold_lock
from catalog.store.manifest import read_dataset_settings
from catalog.store.schema import trial_windows
from catalog.store.trial import TrialCounts, Way, count_trial, require_trial
from catalog.store.vectors.exact import ExactEngine
from catalog.store.vectors.sample import VectorSample

if TYPE_CHECKING:
    from catalog.core.errors import DamagedDocumentError
    from catalog.store.vectors.base import VectorEngine

_LOCK = ".try-model.lock"  # next to the datasets' locks; no dataset's name begins with a dot
_NAMED = 3  # documents in one message
_TOGETHER = 64  # passages whose windows are cut at once


class TrialIndexes(Indexes):
    """Open the engines over the windows of the model on trial, which are compared exactly."""

    def vector(self, dataset: str, name: str | None = None) -> VectorEngine:
        """Return the exact engine, whatever the ``name``; raises as :meth:`require_model` does."""
        del name
        self.require_model()
        with self._lock:
            engine = ExactEngine(self._database, dataset, trial_windows)
            return self._vector.setdefault(("exact", dataset), engine)

    def require_model(self) -> None:
        """Raise :class:`~catalog.core.errors.InputError` once the model is no longer on trial."""
        with self._database.read() as connection:
            if require_trial(connection).model != self._model():
                raise InputError("another model is on trial now: compare again")

    def sample(self, dataset: str) -> VectorSample:
        """Return the sample of the model's vectors."""
        with self._lock:
            sample = VectorSample(self._database, dataset, trial_windows)
            return self._samples.setdefault(dataset, sample)


class TrialLibrary(Library):
    """Open the same store once more, to search it as it will be once the model is adopted.

    Make it when the vectors are there: they may come without a change that it would notice.
    """

    def __init__(self, library: Library, trial: Trial) -> None:
        super().__init__(with_values(library.settings, trial.settings), follows=False)
        self.indexes = TrialIndexes(self.settings, self.database, lambda: self.wanted_model)


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The texts embedded by this run, the counts in all, and documents the model failed on."""

    trial: Trial
    embedded: int
    counts: TrialCounts
    failed: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptionReport:
    """The model that is the store's now, the one it replaced, and notes.

    ``settings`` are those to set from now on, by dotted name; ``None``: unset.
    """

    model: StoredModel
    replaced: StoredModel
    settings: Mapping[str, Any]
    counts: TrialCounts
    seconds: float
    notes: tuple[str, ...] = ()


def try_model(
    library: Library,
    settings: Mapping[str, Any],
    datasets: Sequence[str] = (),
    *,
    sample: int | None = None,
    first: Collection[str] = (),
    progress: Progress | None = None,
) -> TrialReport:
    """Embed passages with another model: all of the named datasets or of the store, or a sample.

    ``settings`` make the model, by dotted name (:data:`MODEL_SETTINGS`). Without a provider it is
    the present one, with its address; everything else is the model's own default. A sample has
    about ``sample`` passages of each dataset, in whole documents: those with the paths in
    ``first``, then random ones. A run that was stopped is continued by the next one.

    Raises :class:`InputError` for the store's own model or while another model is on trial,
    :class:`ConfigError` kinds for a model that is not available, :class:`EmbeddingMismatchError`
    where the library's settings name another model than the store's, and :class:`EmbeddingError`
    when the model is down.
    """
    with _alone(library):
        trial = _begin(library, settings)
        names = datasets or library.datasets()
        with TrialLibrary(library, trial) as other:
            computed, failed = _embed(library, other, trial, names, progress, sample, first)
    with library.database.read() as connection:
        counts = count_trial(connection, names[0] if len(names) == 1 else None)
    return TrialReport(trial, computed, counts, failed)


def adopt_tried(library: Library, *, progress: Progress | None = None) -> AdoptionReport:
    """Make the model on trial the store's, in one transaction; ids and cuts of passages stay.

    Passages that lack its vectors are embedded before that, whether it was tried on a sample or
    not. Those that the model fails on are found by their words until the next update. Raises
    :class:`InputError` where no model is on trial.
    """
    progress, started = progress or Silent(), time.monotonic()
    with ExitStack() as held:
        held.enter_context(_alone(library))
        _require_live(library)
        with library.database.read() as connection:
            trial, before = read_trial(connection), read_adoption(connection)
        if trial is None:  # a run that was killed while adopting did not print the settings
            note = library.adoption_note
            raise InputError("; ".join(filter(None, ("no model is on trial", note))))
        other = held.enter_context(TrialLibrary(library, trial))
        # Most is embedded before the locks are taken: until then datasets may be updated.
        _embed(library, other, trial, library.datasets(), progress)
        for dataset in library.datasets():
            held.enter_context(Indexer(library).hold(dataset, progress))
        names = library.datasets()
        _require_sound(library, names)
        _, failed = _embed(library, other, trial, names, progress)
        ways = {name: _way_of(library, other, name)[0] for name in names}
        # Settings that name any of the models before follow this one.
        settings, named = dict(trial.settings), read_model_settings(library.settings)
        known = [*(before.replaced if before else ()), named]
        replaced = tuple(each for each in known if dict(each) != settings)
        old = library.wanted_model
        with library.database.write() as connection:
            counts = count_trial(connection)
            adoption = Adoption(settings, replaced, time.time())
            stored_trial.put_in_place(connection, trial, ways, adoption)
        with library.database.write() as connection:  # else the next update does it
            stored_trial.drop_unused(connection)
        notes = [f"{one.path}: {one.reason}" for one in failed]
        library.follow_adoption()
        if library.wanted_model == trial.model:  # else a program gave its own model
            for name in names:
                notes += complete_dataset(library, name, progress).notes
            notes += filter(None, [describe_unused_fits(library.database, trial.model.fingerprint)])
    seconds = time.monotonic() - started
    return AdoptionReport(trial.model, old, settings, counts, seconds, tuple(dict.fromkeys(notes)))


def drop_tried(library: Library) -> tuple[str, int]:
    """Forget the model on trial with its vectors; return its name, and how many these were.

    Raises :class:`InputError` where no model is on trial.
    """
    with _alone(library), library.database.write() as connection:
        name = require_trial(connection).model.model
        stored_trial.forget(connection)
        return name, stored_trial.drop_unused(connection)


def _alone(library: Library) -> AbstractContextManager[None]:
    """Hold the lock under which one process at a time tries, adopts or drops a model."""
    busy = "another process is trying or adopting a model on this store: wait, or end it"
    return hold_lock(library.settings.home / "locks" / _LOCK, seconds=0, busy=busy)


def _begin(library: Library, given: Mapping[str, Any]) -> Trial:
    """Note the model as on trial, once it has answered; the same one again is continued."""
    _require_live(library)
    if unknown := given.keys() - set(MODEL_SETTINGS):
        names = ", ".join(MODEL_SETTINGS)
        raise InputError(
            f"{min(unknown)!r} is not a setting of an embedding model; settings: {names}"
        )
    present = read_model_settings(library.settings)
    values = dict.fromkeys(MODEL_SETTINGS) | {"embedding.provider": present["embedding.provider"]}
    values |= given
    if values["embedding.provider"] == present["embedding.provider"]:
        values["embedding.url"] = values["embedding.url"] or present["embedding.url"]
    url = values["embedding.url"]
    if url and strip_userinfo(url) != url:
        raise InputError(
            "the address contains a password, which would be stored: set IDX_EMBEDDING__API_KEY "
            "instead"
        )
    with Library(with_values(library.settings, values), follows=False) as other:
        other.model.embed_query("probe")  # a model that does not answer is not noted
        trial = Trial(other.wanted_model, read_model_settings(other.settings))
        is_same = trial.model.fingerprint == library.wanted_model.fingerprint
        if is_same and other.model.document_prefix == library.model.document_prefix:
            raise InputError(
                f"{trial.model.model} is already the store's model ({trial.model.fingerprint}): "
                "try another"
            )
    with library.database.write() as connection:
        stored_trial.begin(connection, trial)
    return trial


def _require_live(library: Library) -> None:
    """Raise :class:`EmbeddingMismatchError` unless the settings name the store's model."""
    with library.database.read() as connection:
        bound = read_model(connection)
    if bound is not None and bound.fingerprint != library.wanted_model.fingerprint:
        raise EmbeddingMismatchError(
            f"the store's model is {bound.model} ({bound.fingerprint}), but the settings name "
            f"{library.wanted_model.model}: use settings that name {bound.model} to try and "
            "adopt, and name the new model afterwards"
        )


def _require_sound(library: Library, names: Sequence[str]) -> None:
    """Raise for damaged documents: an adoption computes their checksums again."""
    with library.database.read() as connection:
        found = (it for name in names for it in find_damaged_documents(connection, name))
        damaged = [document for _, document in found]
    if damaged:
        raise StoreDamagedError(
            f"{len(damaged)} documents are damaged ({', '.join(damaged[:_NAMED])}): mend them "
            "first, see 'catalog doctor'"
        )


def _embed(
    library: Library,
    other: Library,
    trial: Trial,
    names: Sequence[str],
    progress: Progress | None,
    sample: int | None = None,
    first: Collection[str] = (),
) -> tuple[int, tuple[Failure, ...]]:
    """Embed the passages that the model lacks, each batch in one transaction.

    Datasets may be updated meanwhile: passages added then are left to the next run. Return how many
    windows were embedded, and the documents that the model failed on.
    """
    if other.wanted_model != trial.model:
        raise InputError(
            f"the weights of {trial.model.model} changed since it was tried: run 'catalog index "
            "drop', and try it again"
        )
    database, seqs_of, progress = library.database, {}, progress or Silent()
    with database.read() as connection:
        for name in sorted(names):
            missing = stored_trial.list_missing(connection, name)
            if sample is not None:
                drawn = set(stored_trial.draw_documents(connection, name, sample, first))
                missing = [row for row in missing if row[1] in drawn]
            seqs_of[name] = [seq for seq, _ in missing]
    computed, done, total = 0, 0, sum(map(len, seqs_of.values()))
    failed: dict[str, list[str]] = {}  # reasons by path
    if total:
        progress.start(total, "embedding")
    pace = Pace(total)
    for name, seqs in seqs_of.items():
        pipeline = _way_of(library, other, name)[1]
        for group in in_groups(seqs, lambda _: 1, _TOGETHER):
            damaged: list[DamagedDocumentError] = []  # not embedded, and in the way of an adoption
            with database.read() as connection:
                stored = load_chunks(connection, name, group, damaged=damaged)
            texts, keys = pipeline.stored_texts(stored.values())
            with database.write() as connection:
                stored_trial.keep_windows(connection, keys)
            paths = {key: stored[seq].path for seq, each in keys.items() for key in each}
            with database.read() as connection:
                known = embedding_cache.load(connection, list(texts))
            wanted = [key for key in texts if key not in known]
            result = pipeline.model.embed([texts[key] for key in wanted])
            computed += len(keep_vectors(database, pipeline.model, wanted, result.vectors))
            for index, reason in result.failures.items():
                failed.setdefault(paths[wanted[index]], []).append(reason)
            done += len(group)
            pace.advance(len(group))
            path = next((chunk.path for chunk in stored.values()), "")
            progress.advance(len(group), path, f"{done:,} of {total:,} passages{pace.rate_text()}")
    return computed, tuple(
        Failure(path, f"{len(reasons)} passages not embedded: {reasons[0]}")
        for path, reasons in failed.items()
    )


def _way_of(library: Library, other: Library, dataset: str) -> tuple[Way, Pipeline]:
    """Return how the dataset is made once the other library's model is the store's."""
    with library.database.read() as connection:
        is_noted = read_dataset_settings(connection, dataset) is not None
    # One without noted settings was filled by a user's pipeline: no run of ours indexes it again.
    made = IndexingSettings(library, dataset, apply_settings=not is_noted)
    (before, after, made_with), pipeline = made.with_model(other)
    return (before, after, made_with if is_noted else None), pipeline
