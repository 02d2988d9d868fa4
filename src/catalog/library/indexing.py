"""Build, update, rebuild and describe datasets, for the index commands."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    SourceError,
    StoreDamagedError,
    StoreError,
    install_command,
)
from catalog.core.files import describe_os_error
from catalog.core.ids import check_dataset_name
from catalog.embedding.profiles import foreign_share, profile_of
from catalog.ingest.changes import FolderChanges, SyncPreview, preview_sync
from catalog.ingest.embedding import embed_waiting
from catalog.ingest.ray_map import open_map
from catalog.ingest.sync import sync
from catalog.ingest.sync_report import Progress, Silent, SyncReport
from catalog.library.document_cards import make_cards
from catalog.library.get import find_named
from catalog.library.health import DatasetStats, dataset_stats, stored_dataset
from catalog.library.indexes import Indexes
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import Library
from catalog.library.useless_legs import refresh_agreement
from catalog.store import embedding_cache
from catalog.store.backup import remove_stale_drafts
from catalog.store.chunks import (
    StoredDataset,
    find_root,
    has_dataset,
    list_datasets,
    require_dataset,
)
from catalog.store.database import RESTORE_LOCK, hold_lock
from catalog.store.embedding_cache import (
    StoredModel,
    adopt_model,
    count_waiting,
    read_stored_model,
    require_model,
)
from catalog.store.manifest import files_of_paths, forget
from catalog.store.phrases import command_full_text
from catalog.store.revisions import (
    count_rows,
    forget_removal,
    is_removed,
    rebuild_row_indexes,
    remove_documents,
    remove_stored,
)
from catalog.store.statistics import count_totals
from catalog.store.vectors import VECTOR_ENGINES

_log = logging.getLogger(__name__)
MANY_PASSAGES = 100_000  # from here on Qdrant is faster than ``flat``


@dataclass(frozen=True, slots=True)
class Removal:
    """The counts of a removed dataset or document, the dataset's folder, and notes on remains."""

    dataset: str
    root: str
    documents: int
    chunks: int
    notes: tuple[str, ...]


class Indexer:
    """Keep the datasets of one store in line with their folders."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def build(
        self,
        root: Path,
        dataset: str,
        *,
        include: tuple[str, ...] | None = None,
        exclude: tuple[str, ...] | None = None,
        allow_deletions: bool = False,
        reread: bool = False,
        apply_settings: bool = False,
        progress: Progress | None = None,
        pause: Callable[[], bool] | None = None,
    ) -> SyncReport:
        """Index a folder or file as a dataset; only new or changed documents are read and embedded.

        Without ``include`` or ``exclude`` the dataset keeps the patterns that it has; notes list
        them. ``reread`` indexes every document again. An existing dataset is cut by its own
        settings, or with ``apply_settings`` by the library's; a note counts the documents that
        those would cut differently. If ``pause`` returns true, embedding of the rest is left to the
        next run.
        Raises the errors of :func:`catalog.ingest.sync.sync` and :class:`IndexingSettings`,
        ``EmbeddingMismatchError`` for a store of another model, ``StoreBusyError`` if another run
        on the dataset does not end, ``StoreError`` for a lock that cannot be opened.
        """
        check_dataset_name(dataset)
        library, ingest = self._library, self._library.settings.rag_v2.ingest
        with library.database.read() as connection:
            is_known = has_dataset(connection, dataset)
        require_model(library.database, library.wanted_model)
        library.indexes.lexical(dataset)  # one that the store cannot have is refused
        progress = progress or Silent()
        with open_map(ingest) as spread, self.hold(dataset, progress):
            if is_known:  # it may have been removed while this waited
                library.require_dataset(dataset)
            else:
                self._finish_removal(dataset)
            require_model(library.database, library.wanted_model)
            started, clock = time.time(), time.monotonic()
            made = IndexingSettings(library, dataset, apply_settings=apply_settings)
            pipeline = made.build()
            include, exclude, notes = self._patterns(dataset, include, exclude)
            changes = FolderChanges.of_folder(
                library.database,
                root,
                dataset,
                settings=ingest,
                include=include,
                exclude=exclude,
                pipeline=pipeline.fingerprint,
                allow_deletions=allow_deletions,
                reread=reread,
            )
            report = sync(
                library.database,
                changes,
                pipeline,
                settings=ingest,
                made_with=made.settings,
                patterns=(include, exclude),
                progress=progress,
            )
            notes = (*notes, *report.notes, *made.notes())
            progress.start(0, "indexing words", then="embedding")
            later: dict[str, str] = {}  # a note for each reason
            derive_words(library, dataset, later)
            report = replace(report, words_seconds=time.monotonic() - clock)
            embedding = embed_waiting(
                library.database,
                dataset,
                pipeline,
                since=started,
                progress=progress,
                pause=pause,
                spread=spread,
            )
            if reread:
                _attempt("vector index", lambda: library.indexes.vector(dataset).rebuild(), later)
            derive_vectors(library, dataset, later)
        notes += (*embedding.notes, *later.values())
        notes += self._language_notes(dataset) if embedding.embedded else ()
        notes += self._size_notes(dataset)
        with library.database.read() as connection:
            incomplete, _ = count_waiting(connection, dataset)
            if embedding.embedded or incomplete:  # else there are those that the sync counted
                totals = count_totals(connection, dataset, none_waits=incomplete == 0)
                reused = max(0, totals.vectors - embedding.embedded)
                report = replace(report, reused=reused, embedded_chunks=totals.embedded)
        return replace(
            report,
            embedded=embedding.embedded,
            failed=report.failed + embedding.failed,
            failed_chunks=embedding.failed_chunks,
            usage=embedding.usage,
            incomplete=incomplete,
            seconds=time.monotonic() - clock,
            notes=notes,
        )

    def update(
        self,
        dataset: str,
        *,
        allow_deletions: bool = False,
        reread: bool = False,
        apply_settings: bool = False,
        progress: Progress | None = None,
        pause: Callable[[], bool] | None = None,
    ) -> SyncReport:
        """Sync a dataset with its folder, using the same globs; see ``build``."""
        stored = self._with_folder(dataset)
        return self.build(
            Path(stored.root),
            dataset,
            include=stored.include,
            exclude=stored.exclude,
            allow_deletions=allow_deletions,
            reread=reread,
            apply_settings=apply_settings,
            progress=progress,
            pause=pause,
        )

    def preview(
        self,
        dataset: str,
        *,
        allow_deletions: bool = False,
        reread: bool = False,
        apply_settings: bool = False,
    ) -> SyncPreview:
        """Return what ``update`` would do; it may hash files, and writes nothing."""
        stored, library = self._with_folder(dataset), self._library
        if read_stored_model(library.database) is not None:  # else it would be noted now
            require_model(library.database, library.wanted_model)
        made = IndexingSettings(library, dataset, apply_settings=apply_settings)
        ingest = library.settings.rag_v2.ingest
        changes = FolderChanges.of_folder(
            library.database,
            Path(stored.root),
            dataset,
            settings=ingest,
            include=stored.include,
            exclude=stored.exclude,
            pipeline=made.fingerprint,
            allow_deletions=allow_deletions,
            reread=reread,
        )
        preview = preview_sync(library.database, changes, ingest.max_missing_fraction)
        notes = preview.notes + made.notes()
        with library.database.read() as connection:
            documents, passages = count_waiting(connection, dataset)
        if passages:
            notes += (
                f"{passages} passages of {documents} documents wait to be embedded, and would be",
            )
        return replace(
            preview,
            settings={
                name: {"call": ours, "dataset": theirs}
                for name, (ours, theirs) in made.differences.items()
            },
            recut_documents=made.count_recut()[0] if made.differences else 0,
            notes=notes,
        )

    def rebuild(
        self, *, keep_settings: bool = False, progress: Progress | None = None
    ) -> dict[str, SyncReport]:
        """Read and embed every dataset again, adopting the configured model.

        Datasets are cut by the library's settings, with ``keep_settings`` by their own.
        """
        with self._library.database.read() as connection:
            stored = list_datasets(connection)
        gone = [one for one in stored if not (one.root and Path(one.root).exists())]
        if gone:
            names = ", ".join(one.root or one.name for one in gone)
            raise SourceError(f"cannot rebuild: there is no folder to read {names} from")
        if keep_settings:
            for dataset in stored:  # raises, if at all, before a vector is dropped
                IndexingSettings(self._library, dataset.name)
        adopt_model(self._library.database, self._library.wanted_model)
        reports = {}
        for dataset in stored:
            if dataset.name in self._library.datasets():  # it may have been removed meanwhile
                reports[dataset.name] = self.build(
                    Path(dataset.root),
                    dataset.name,
                    include=dataset.include,
                    exclude=dataset.exclude,
                    reread=True,
                    apply_settings=not keep_settings,
                    progress=progress,
                )
        return reports

    def remove(self, dataset: str, *, progress: Progress | None = None) -> Removal:
        """Remove a dataset with everything stored and derived from it; its files stay.

        Searches see the whole dataset or nothing of it. If something derived cannot be removed,
        ``notes`` say so, and another call continues. Raises the errors of :meth:`require_removable`
        and :meth:`hold`.
        """
        library, progress = self._library, progress or Silent()
        self.require_removable(dataset)
        with self.hold(dataset, progress):
            self.require_removable(dataset)  # another may have removed it meanwhile
            progress.start(0, f"removing {dataset}")
            remove_stale_drafts(library.database.file.parent)
            with library.database.read() as connection:
                root = find_root(connection, dataset)
                documents, chunks = count_rows(connection, dataset)
            with library.database.write() as connection:
                remove_stored(connection, dataset, time.time())
            notes = tuple(library.indexes.remove(dataset))
            if not notes:
                with library.database.write() as connection:
                    forget_removal(connection, dataset)
        return Removal(dataset, root, documents, chunks, notes)

    def remove_document(
        self, dataset: str, name: str, *, progress: Progress | None = None
    ) -> Removal:
        """Remove a document with all its parts; ``name`` is its path, its file's, or ``#docid``.

        The next build or update of a folder indexes it again unless its file is gone or excluded; a
        note says so. Raises :class:`InputError` for an unknown name and the errors of :meth:`hold`.
        """
        library = self._library
        library.require_dataset(dataset)
        with self.hold(dataset, progress or Silent()), library.database.write() as connection:
            paths = find_named(connection, dataset, name)
            root, before = find_root(connection, dataset), count_rows(connection, dataset)
            files = files_of_paths(connection, dataset, paths)
            remove_documents(connection, dataset, paths, time.time())
            forget(connection, dataset, files)
            embedding_cache.purge_unused(connection)
            after = count_rows(connection, dataset)
        listed = f"{root} has it: exclude the file, or the next update indexes it again"
        notes = (listed,) if any((Path(root) / file).exists() for file in files if root) else ()
        return Removal(dataset, root, before[0] - after[0], before[1] - after[1], notes)

    def _finish_removal(self, dataset: str) -> None:
        with self._library.database.read() as connection:
            is_left = is_removed(connection, dataset)
        for note in self._library.indexes.remove(dataset) if is_left else ():
            _log.warning("of the removed %s: %s", dataset, note)

    def require_removable(self, dataset: str) -> None:
        """Raise :class:`UnknownDatasetError` if the name has neither a dataset nor remains."""
        check_dataset_name(dataset)
        with self._library.database.read(latest=True) as connection:
            if not is_removed(connection, dataset):
                require_dataset(connection, dataset)

    def stats(self, dataset: str) -> DatasetStats:
        """Count the content of a dataset."""
        return dataset_stats(self._library, dataset)

    @contextmanager
    def hold(self, dataset: str, progress: Progress) -> Iterator[None]:
        """Hold the lock for a run on the dataset; tell ``progress`` if it must wait."""
        settings = self._library.settings
        folder = settings.home / "locks"
        seconds = settings.rag_v2.ingest.lock_seconds
        held = f"another process is indexing {dataset!r}"
        busy = f"another process is indexing {dataset!r}; try again later"

        def tell() -> None:
            progress.start(0, f"{held}: waiting for it up to {seconds:g} s")

        hold = self._library.database.hold_dataset
        with (
            hold_lock(folder / f"{dataset}.lock", seconds=seconds, busy=busy, on_wait=tell),
            hold(dataset, seconds=seconds, busy=busy, on_wait=tell),
        ):
            # A restore that began before this lock existed does not respect it.
            busy = "a copy is being restored; try again later"
            with hold_lock(folder / RESTORE_LOCK, seconds=seconds, busy=busy):
                pass
            yield

    def _patterns(
        self, dataset: str, include: tuple[str, ...] | None, exclude: tuple[str, ...] | None
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the patterns given, else those of the dataset, and notes on what it keeps."""
        with self._library.database.read() as connection:
            is_known = has_dataset(connection, dataset)
        if not is_known or (include is not None and exclude is not None):
            return include or (), exclude or (), ()
        try:
            stored = stored_dataset(self._library, dataset)
        except StoreDamagedError:
            note = f"the patterns of {dataset!r} are damaged, and were dropped"
            return include or (), exclude or (), (note,)
        kept = {
            option: patterns
            for option, given, patterns in (
                ("include", include, stored.include),
                ("exclude", exclude, stored.exclude),
            )
            if given is None and patterns
        }
        notes = (
            f"keeps {' '.join(f'--{option} {pattern!r}' for pattern in patterns)} of the last "
            f"build; to drop it: --{option} ''"
            for option, patterns in kept.items()
        )
        return include or kept.get("include", ()), exclude or kept.get("exclude", ()), (*notes,)

    def _with_folder(self, dataset: str) -> StoredDataset:
        stored = stored_dataset(self._library, dataset)
        if stored.root == "":
            raise SourceError(
                f"{dataset!r} has no folder to update from: give one with 'catalog index build "
                f"FOLDER --dataset {dataset}'"
            )
        return stored

    def _language_notes(self, dataset: str) -> tuple[str, ...]:
        """Name a model for the languages of the passages, if the model in use lacks them."""
        model = self._library.wanted_model.model
        languages = self._library.indexes.lexical(dataset).languages()
        share = foreign_share(languages, profile_of(model).languages)
        if not share:
            return ()
        return (
            f"{share:.0%} of the passages are in languages that {model} does not know, so only "
            "their words are searched: --preset multilingual has a model that knows a hundred "
            f"({install_command('multilingual')})",
        )

    def _size_notes(self, dataset: str) -> tuple[str, ...]:
        """Name Qdrant for datasets that ``flat`` searches more slowly."""
        with self._library.database.read() as connection:
            _, passages = count_rows(connection, dataset)
        if passages < MANY_PASSAGES or self._library.settings.rag_v2.vector_engine != "flat":
            return ()
        return (f"{passages:,} passages: IDX_RAG_V2__VECTOR_ENGINE=qdrant searches them faster",)


def derive_words(library: Library, dataset: str, later: dict[str, str]) -> None:
    """Bring keyword index and cards up to date; ``later`` gets a note on what cannot be now."""
    _attempt("lexical index", library.indexes.lexical(dataset).refresh, later)
    _attempt("catalog", partial(make_cards, library.database, dataset), later)


def derive_vectors(library: Library, dataset: str, later: dict[str, str]) -> None:
    """Bring the vector index and what is measured on it up to date, like :func:`derive_words`."""
    _attempt("vector index", lambda: library.indexes.vector(dataset).refresh(), later)
    measure = partial(refresh_agreement, library, dataset)
    _attempt("agreement of vectors and words", measure, later)


def _attempt(name: str, derive: Callable[[], object], later: dict[str, str]) -> None:
    """Bring derived files up to date; if that is impossible now, note it: the next search does it.

    An error for a setting that can never work is raised: the store is complete, and the next run
    continues.
    """
    try:
        derive()
    except ConfigError:
        raise
    except CatalogError as error:
        later.setdefault(str(error), f"the {name} will be brought up to date later: {error}")


def rebuild_indexes(
    library: Library,
    datasets: Sequence[str] = (),
    *,
    vectors: bool = True,
    lexical: bool = True,
    progress: Progress | None = None,
) -> dict[str, dict[str, int]]:
    """Rebuild the indexes of these datasets, by default of all.

    With ``lexical`` also the indexes of the database's own rows. Return for each dataset the points
    of its ``vectors`` index, and 1 for ``lexical``. The model is the store's; its files are not
    needed. Raises :class:`UnknownDatasetError`, :class:`StoreBusyError` while a dataset is being
    updated, and :class:`EngineError` kinds.
    """
    for name in datasets:
        library.require_dataset(name)
    progress, indexer = progress or Silent(), Indexer(library)
    if lexical:
        with library.database.write() as connection:
            rebuild_row_indexes(connection)
    stored = read_stored_model(library.database)
    library.indexes.close()  # what this process holds of them
    indexes = Indexes(library.settings, library.database, lambda: stored or _no_model())
    done: dict[str, dict[str, int]] = {}
    try:
        for name in datasets or library.datasets():
            progress.start(0, f"rebuilding the indexes of {name}")
            with indexer.hold(name, progress):
                made = done.setdefault(name, {})
                if lexical:
                    _rebuild_lexical(library, indexes, name)
                    made["lexical"] = 1
                if vectors and stored is not None:
                    made["vectors"] = indexes.vector(name).rebuild()
    finally:
        indexes.close()
    return done


def _rebuild_lexical(library: Library, indexes: Indexes, dataset: str) -> None:
    with library.database.write() as connection:
        command_full_text(connection, "rebuild")
    engine = indexes.lexical(dataset)
    engine.verify()  # what is on a server, or in the database, is forgotten where it is wrong
    folder = indexes.folder(dataset) / engine.name
    try:
        of_vectors = {*VECTOR_ENGINES, library.settings.rag_v2.vector_engine}
        if engine.name not in of_vectors:  # else the folder is of vectors
            shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(f"cannot remove {describe_os_error(folder, error)}") from error
    engine.refresh()


def _no_model() -> StoredModel:
    raise StoreError("this store has no embeddings yet")
