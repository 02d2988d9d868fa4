"""Trying another embedding model beside the store's own: embedding, adopting, dropping."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

from catalog.core.errors import (
    CatalogError,
    EmbeddingMismatchError,
    EngineError,
    InputError,
    StoreDamagedError,
)
from catalog.core.settings import with_values
from catalog.core.text import strip_userinfo
from catalog.ingest.sync_report import Failure, Progress, Silent
from catalog.library.agreement import refresh_agreement
from catalog.library.indexing import Indexer
from catalog.library.library import Library, read_model_settings
from catalog.library.trial_run import TrialRun, embed_all, way_of
from catalog.library.tried_library import TriedLibrary
from catalog.store.checksums import find_damaged_documents, seal_dataset
from catalog.store.embedding_cache import (
    Adoption,
    StoredModel,
    describe_unused_fits,
    read_adoption,
    read_model,
)
from catalog.store.locks import hold_lock
from catalog.store.model_adoption import NewWay, adopt_tried, drop_tried, drop_unused
from catalog.store.tried_models import (
    TriedCounts,
    TriedModel,
    add_tried,
    count_tried,
    describe_missing,
    drop_damaged_of,
    find_tried,
    note_whole,
    require_tried,
)

_LOCK = ".try-model.lock"  # beside those of datasets, none of whose names begins with a dot
_NAMED = 3  # documents in one message


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What a try has embedded, now and in all; ``failed`` are documents the model failed on."""

    tried: TriedModel
    embedded: int
    counts: TriedCounts
    failed: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptionReport:
    """The model that is the store's now, the one it replaced, and what else to say.

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

    def __init__(self, library: Library, *, clock: Callable[[], float] = time.time) -> None:
        self._library, self._clock = library, clock

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
        store's own model embedded as it is, or for one that is tried with other settings,
        :class:`ConfigError` kinds for a model that cannot be had, and
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
            return add_tried(connection, model, settings, self._clock())

    def embed(
        self,
        tried: TriedModel,
        datasets: Sequence[str] = (),
        *,
        sample: int | None = None,
        first: Collection[str] = (),
        progress: Progress | None = None,
    ) -> TrialReport:
        """Embed what the model lacks of datasets, all if none is named, or of a ``sample`` of each.

        A sample has so many passages, of whole documents: those with the paths in ``first``, and
        others by chance. What
        was embedded before is not embedded again, however that run ended. Raises
        :class:`EmbeddingError` when the model is down.
        """
        library, progress = self._library, progress or Silent()
        names = datasets or library.datasets()
        with self._alone(), TriedLibrary(library, tried) as other:
            runs = self._run(tried, other, names, sample, first, progress)
        is_whole = sample is None and set(names) == set(library.datasets())
        with library.database.write() as connection:
            if is_whole:
                note_whole(connection, tried, self._clock())
            counts = count_tried(connection, tried, names[0] if len(names) == 1 else None)
        failed = tuple(failure for run in runs for failure in run.failures())
        return TrialReport(tried, sum(run.computed for run in runs), counts, failed)

    def adopt(
        self, name: str, *, incomplete: bool = False, progress: Progress | None = None
    ) -> AdoptionReport:
        """Make a tried model the store's, in one transaction; ids and cuts of passages stay.

        Passages that came or changed since it was tried whole are embedded before that. Raises
        :class:`InputError` for a model that is not tried, and for one that lacks passages, unless
        ``incomplete``: these are then found by their words until the next update.
        """
        library, progress, started = self._library, progress or Silent(), time.monotonic()
        with library.database.read() as connection:
            bound = read_model(connection)
            if bound is not None and bound.model == name and find_tried(connection, name) is None:
                raise InputError(_describe_present(name, read_adoption(connection)))
            tried = require_tried(connection, name)
        self._require_live()
        replaced = library.wanted_model
        with ExitStack() as locks:
            locks.enter_context(self._alone())
            for dataset in library.datasets():
                locks.enter_context(Indexer(library).hold(dataset, progress))
            names = library.datasets()
            self._require_sound(names)
            with TriedLibrary(library, tried) as other:
                self._complete(tried, other, names, progress, incomplete=incomplete)
                ways = {name: way_of(library, other, name)[0] for name in names}
            ways, notes = self._prepare(tried, ways, progress)
            with library.database.write() as connection:
                counts = count_tried(connection, tried)
                adoption = self._adoption(tried, read_adoption(connection))
                adopt_tried(connection, tried, ways, adoption, incomplete=incomplete)
            self._tidy(names)
        seconds, notes = time.monotonic() - started, notes + self._refresh(tried, names)
        return AdoptionReport(tried.model, replaced, tried.settings, counts, seconds, notes)

    def drop(self, name: str) -> int:
        """Forget a tried model with its vectors; return how many these were.

        Raises :class:`InputError` for a model that is not tried.
        """
        library = self._library
        with self._alone(), library.database.write() as connection:
            tried = require_tried(connection, name)
            dropped = drop_tried(connection, tried)
        for dataset in library.datasets():
            library.indexes.drop_others(dataset)
        return dropped

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

    def _run(
        self,
        tried: TriedModel,
        other: Library,
        names: Sequence[str],
        sample: int | None,
        first: Collection[str],
        progress: Progress,
        *,
        only_cut: bool = False,
    ) -> list[TrialRun]:
        """Embed what the model lacks of these datasets; the runs tell how that went."""
        if other.wanted_model != tried.model:
            raise InputError(
                f"{tried.name} has other weights than when it was tried: forget those vectors with "
                f"'catalog index drop {tried.name}', and try it again"
            )
        with self._library.database.write() as connection:
            drop_damaged_of(connection, tried)
        runs = [TrialRun(self._library, other, tried, name) for name in sorted(names)]
        for run in runs:
            run.choose(sample, first)
        embed_all(runs, progress, only_cut=only_cut)
        return runs

    def _require_sound(self, names: Sequence[str]) -> None:
        """Raise for documents that are damaged: their checksums are made anew with the model."""
        with self._library.database.read() as connection:
            for name in names:
                damaged = [document for _, document in find_damaged_documents(connection, name)]
                if damaged:
                    raise StoreDamagedError(
                        f"{len(damaged)} documents are not as they were stored "
                        f"({', '.join(damaged[:_NAMED])}): mend them first, see 'catalog doctor'"
                    )

    def _complete(
        self,
        tried: TriedModel,
        other: Library,
        names: Sequence[str],
        progress: Progress,
        *,
        incomplete: bool,
    ) -> None:
        """Embed what came or changed since the model was tried whole, or only cut it."""
        with self._library.database.read() as connection:
            counts = count_tried(connection, tried)
        if counts.missing == 0:
            return
        if tried.whole_at is None and not incomplete:
            raise InputError(describe_missing(tried, counts))
        self._run(tried, other, names, None, (), progress, only_cut=tried.whole_at is None)

    def _prepare(
        self, tried: TriedModel, ways: Mapping[str, NewWay], progress: Progress
    ) -> tuple[dict[str, NewWay], tuple[str, ...]]:
        """Fill the vector indexes that can be filled beforehand; say which could not."""
        prepared, notes = dict(ways), []
        for name, way in ways.items():
            progress.start(0, f"making the vector index of {name}")
            try:
                token = self._library.indexes.prepare(name, tried)
                prepared[name] = replace(way, token=token)
            except EngineError as error:
                notes.append(f"the vector index of {name} is made at the next search: {error}")
        return prepared, tuple(notes)

    def _adoption(self, tried: TriedModel, before: Adoption | None) -> Adoption:
        """Return the note of the adoption; settings that name any of the replaced follow it."""
        named = read_model_settings(self._library.settings)
        replaced = [*(before.replaced if before else ()), named]
        others = tuple(each for each in replaced if dict(each) != dict(tried.settings))
        return Adoption(dict(tried.settings), others, self._clock())

    def _tidy(self, names: Sequence[str]) -> None:
        """Drop what is used no more, and seal what the adoption changed.

        Where this is cut short, the next update does it.
        """
        database = self._library.database
        with database.write() as connection:
            drop_unused(connection)
        for name in names:
            with database.write() as connection:
                seal_dataset(connection, name)

    def _refresh(self, tried: TriedModel, names: Sequence[str]) -> tuple[str, ...]:
        """Bring up to date what is derived from the vectors; say what is done later."""
        library, notes = self._library, []
        library.follow_adoption()
        if library.wanted_model != tried.model:  # a model was given to the library
            return ()
        for name in names:
            library.indexes.drop_others(name)
            try:
                library.indexes.vector(name).refresh()
                refresh_agreement(library, name)
            except CatalogError as error:
                notes.append(f"{name}: brought up to date later: {error}")
        unused = describe_unused_fits(library.database, tried.model.fingerprint)
        return (*notes, unused) if unused else tuple(notes)


def _describe_present(name: str, adoption: Adoption | None) -> str:
    """Say that a model is the store's already, and what to set if it was adopted.

    Who was killed while adopting it was not told.
    """
    told = f"{name} is the store's model already, and not tried otherwise"
    if adoption is None:
        return told
    lines = (
        f"{setting} = {json.dumps(value, ensure_ascii=False)}"
        for setting, value in adoption.settings.items()
        if value is not None
    )
    return f"{told}; it was adopted, and these settings make it: {', '.join(lines)}"
