"""Build, update, rebuild and remove datasets, for the index commands."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

from catalog.core.errors import CatalogError, ConfigError, SourceError, StoreError, install_command
from catalog.core.files import describe_os_error
from catalog.core.ids import check_dataset_name, source_doc_id
from catalog.embedding.profiles import foreign_share, profile_of
from catalog.ingest.changes import FolderChanges, SyncPreview, preview_sync
from catalog.ingest.embedding import embed_waiting
from catalog.ingest.ray_map import open_map
from catalog.ingest.sync import sync
from catalog.ingest.sync_report import Progress, Silent, SyncReport
from catalog.library.get import find_named
from catalog.library.health import DatasetStats, dataset_stats, stored_dataset
from catalog.library.indexes import Indexes
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import Library
from catalog.library.useless_legs import refresh_agreement
from catalog.store import chunks as stored_chunks
from catalog.store import embedding_cache, manifest, publish
from catalog.store.backup import remove_stale_drafts
from catalog.store.chunks import StoredDataset
from catalog.store.database import RESTORE_LOCK, hold_lock
from catalog.store.document_names import count_whole
from catalog.store.phrases import command_full_text
from catalog.store.statistics import count_totals

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


class RunOptions(TypedDict, total=False):
    """Whether most files may vanish, all are read, the library's settings apply; when to pause."""

    allow_deletions: bool
    reread: bool
    apply_settings: bool
    progress: Progress | None
    pause: Callable[[], bool] | None


class Indexer:
    """Keep the datasets of one store in line with their folders."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def build(
        self,
        root: Path | None,
        dataset: str,
        *,
        include: tuple[str, ...] | None = None,
        exclude: tuple[str, ...] | None = None,
        **options: Unpack[RunOptions],
    ) -> SyncReport:
        """Index a folder or file as a dataset; only new or changed documents are read and embedded.

        Without a ``root``, that of the dataset and its patterns are used. Without ``include`` or
        ``exclude`` the dataset keeps the patterns that it has; a note lists them. ``reread``
        indexes every document again. An existing dataset is cut by its own settings, or with
        ``apply_settings`` by the library's. If ``pause`` returns true, the next run embeds the
        rest. Raises the errors of :func:`catalog.ingest.sync.sync`, ``EmbeddingMismatchError`` for
        a store of another model, ``StoreBusyError`` if another run on the dataset does not end.
        """
        check_dataset_name(dataset)
        library, database = self._library, self._library.database
        progress, ingest = options.get("progress") or Silent(), library.settings.rag_v2.ingest
        library.indexes.lexical(dataset)  # one that the store cannot have is refused
        is_known = root is None or dataset in library.datasets()
        notes: tuple[str, ...] = ()
        with open_map(ingest) as spread, self.hold(dataset, progress):
            started, clock = time.time(), time.monotonic()
            stored = self._stored(dataset, is_known=is_known)
            embedding_cache.require_model(database, library.wanted_model)
            applied = options.get("apply_settings", False)
            made = IndexingSettings(library, dataset, apply_settings=applied)
            pipeline = made.build()
            wanted = replace(
                stored,
                root=str(root or stored.root),
                include=stored.include if include is None else include,
                exclude=stored.exclude if exclude is None else exclude,
            )
            kept = [f"--include {one!r}" for one in stored.include if root and include is None]
            kept += [f"--exclude {one!r}" for one in stored.exclude if root and exclude is None]
            if kept:
                notes += (f"keeps {' '.join(kept)} of the last build; '' drops such patterns",)
            changes = self._compare(wanted, pipeline.fingerprint, options, stored.root)
            is_noted = stored == replace(wanted, root=str(changes.top))
            patterns = None if is_noted else (wanted.include, wanted.exclude)
            report = sync(
                database,
                changes,
                pipeline,
                settings=ingest,
                made_with=made.to_note,
                patterns=patterns,
                progress=progress,
            )
            progress.start(0, "indexing words", then="embedding")
            later: dict[str, str] = {}  # a note for each reason
            derive_words(library, dataset, later)
            report = replace(report, words_seconds=time.monotonic() - clock)
            embedding = embed_waiting(
                database,
                dataset,
                pipeline,
                since=started,
                progress=progress,
                pause=options.get("pause"),
                spread=spread,
            )
            is_changed = embedding.embedded or report.added or report.updated or report.removed
            with database.snapshot():  # all is written: the rest reads one state once
                if is_reread := options.get("reread", False):
                    index = library.indexes.vector
                    _attempt("vector index", lambda: index(dataset).rebuild(), later)
                if is_reread or is_changed:
                    derive_vectors(library, dataset, later)
                notes += (*report.notes, *made.notes(), *embedding.notes, *later.values())
                notes += self._language_notes(dataset) if embedding.embedded else ()
                with database.read() as connection:
                    totals, incomplete = count_totals(connection, dataset, by_note=True), 0
                    if totals.vectors < totals.windows:
                        incomplete, _ = embedding_cache.count_waiting(connection, dataset)
        if totals.chunks >= MANY_PASSAGES and library.settings.rag_v2.vector_engine == "flat":
            faster = "IDX_RAG_V2__VECTOR_ENGINE=qdrant searches them faster"
            notes += (f"{totals.chunks:,} passages: {faster}",)
        return replace(
            report,
            documents=totals.documents,
            chunks=totals.chunks,
            embedded=embedding.embedded,
            reused=max(0, totals.vectors - embedding.embedded),
            embedded_chunks=totals.embedded,
            failed=report.failed + embedding.failed,
            failed_chunks=embedding.failed_chunks,
            usage=embedding.usage,
            incomplete=incomplete,
            seconds=time.monotonic() - clock,
            notes=notes,
        )

    def update(self, dataset: str, **options: Unpack[RunOptions]) -> SyncReport:
        """Bring a dataset in line with its folder; see :meth:`build`."""
        return self.build(None, dataset, **options)

    def preview(self, dataset: str, **options: Unpack[RunOptions]) -> SyncPreview:
        """Return what :meth:`update` would do; it may hash files, and writes nothing."""
        library = self._library
        stored = stored_dataset(library, dataset)
        if embedding_cache.read_stored_model(library.database):  # else it would be noted now
            embedding_cache.require_model(library.database, library.wanted_model)
        applied = options.get("apply_settings", False)
        made = IndexingSettings(library, dataset, apply_settings=applied)
        changes = self._compare(stored, made.fingerprint, options, stored.root)
        most = library.settings.rag_v2.ingest.max_missing_fraction
        preview = preview_sync(library.database, changes, most)
        notes = preview.notes + made.notes()
        with library.database.read() as connection:
            documents, passages = embedding_cache.count_waiting(connection, dataset)
        if passages:
            waiting = f"{passages} passages of {documents} documents wait to be embedded"
            notes += (f"{waiting}, and would be",)
        differences = made.differences.items()
        return replace(
            preview,
            settings={name: {"call": one, "dataset": other} for name, (one, other) in differences},
            recut_documents=made.count_recut()[0] if differences else 0,
            notes=notes,
        )

    def _compare(
        self, source: StoredDataset, pipeline: str, options: RunOptions, former: str
    ) -> FolderChanges:
        if not source.root:
            raise SourceError(
                f"{source.name!r} has no folder to update from: give one with 'catalog index build "
                f"FOLDER --dataset {source.name}'"
            )
        return FolderChanges.of_folder(
            self._library.database,
            Path(source.root),
            source.name,
            former=former,
            settings=self._library.settings.rag_v2.ingest,
            include=source.include,
            exclude=source.exclude,
            pipeline=pipeline,
            allow_deletions=options.get("allow_deletions", False),
            reread=options.get("reread", False),
        )

    def rebuild(
        self, *, keep_settings: bool = False, progress: Progress | None = None
    ) -> dict[str, SyncReport]:
        """Read and embed every dataset again with the model set, cut by the settings or its own."""
        library = self._library
        with library.database.read() as connection:
            stored = stored_chunks.list_datasets(connection)
        if gone := [one for one in stored if not (one.root and Path(one.root).exists())]:
            names = ", ".join(one.root or one.name for one in gone)
            raise SourceError(f"cannot rebuild: there is no folder to read {names} from")
        for one in stored if keep_settings else ():
            IndexingSettings(library, one.name)  # raises, if at all, before a vector is dropped
        embedding_cache.adopt_model(library.database, library.wanted_model)
        run = partial(self.update, reread=True, apply_settings=not keep_settings, progress=progress)
        return {one.name: run(one.name) for one in stored if one.name in library.datasets()}

    def remove(self, dataset: str, *, progress: Progress | None = None) -> Removal:
        """Remove a dataset with everything stored and derived from it; its files stay.

        Searches see the whole dataset or nothing of it. If something derived cannot be removed,
        ``notes`` say so, and another call continues.
        """
        database, progress = self._library.database, progress or Silent()
        with self.hold(dataset, progress):
            self.require_removable(dataset)
            progress.start(0, f"removing {dataset}")
            remove_stale_drafts(database.file.parent)
            with database.write() as connection:
                root = stored_chunks.find_root(connection, dataset)
                had = count_totals(connection, dataset, by_note=True)
                publish.remove_stored(connection, dataset, time.time())
            notes = tuple(self._library.indexes.remove(dataset))
            if not notes:
                with database.write() as connection:
                    publish.forget_removal(connection, dataset)
        return Removal(dataset, root, had.documents, had.chunks, notes)

    def remove_document(
        self, dataset: str, name: str, *, progress: Progress | None = None
    ) -> Removal:
        """Remove a document with all its parts; ``name`` is its path, its file's, or ``#docid``.

        A note says if the next update would index it again.
        """
        library = self._library
        library.require_dataset(dataset)
        with self.hold(dataset, progress or Silent()), library.database.write() as connection:
            paths = find_named(connection, dataset, name)
            root = stored_chunks.find_root(connection, dataset)
            whole = count_whole(connection, [dataset], [source_doc_id(dataset, it) for it in paths])
            before = count_totals(connection, dataset, by_note=True).chunks
            files = manifest.files_of_paths(connection, dataset, paths)
            publish.remove_documents(connection, dataset, paths, time.time())
            manifest.forget(connection, dataset, files)
            embedding_cache.purge_unused(connection)
            after = count_totals(connection, dataset, by_note=True).chunks
        listed = f"{root} has it: exclude the file, or the next update indexes it again"
        notes = (listed,) if any((Path(root) / file).exists() for file in files if root) else ()
        return Removal(dataset, root, whole, before - after, notes)

    def require_removable(self, dataset: str) -> None:
        """Raise :class:`UnknownDatasetError` if the name has neither a dataset nor remains."""
        check_dataset_name(dataset)
        with self._library.database.read(latest=True) as connection:
            if dataset not in publish.list_removed(connection):
                stored_chunks.require_dataset(connection, dataset)

    def stats(self, dataset: str) -> DatasetStats:
        """Count the content of a dataset."""
        return dataset_stats(self._library, dataset)

    @contextmanager
    def hold(self, dataset: str, progress: Progress) -> Iterator[None]:
        """Hold the lock for a run on the dataset; tell ``progress`` if it must wait."""
        settings = self._library.settings
        folder, seconds = settings.home / "locks", settings.rag_v2.ingest.lock_seconds
        held = f"another process is indexing {dataset!r}"
        busy, hold = f"{held}; try again later", self._library.database.hold_dataset
        tell = partial(progress.start, 0, f"{held}: waiting for it up to {seconds:g} s")
        with (
            hold_lock(folder / f"{dataset}.lock", seconds=seconds, busy=busy, on_wait=tell),
            hold(dataset, seconds=seconds, busy=busy, on_wait=tell),
        ):
            # A restore that began before this lock existed does not respect it.
            busy = "a copy is being restored; try again later"
            with hold_lock(folder / RESTORE_LOCK, seconds=seconds, busy=busy):
                pass
            yield

    def _stored(self, dataset: str, *, is_known: bool) -> StoredDataset:
        """Return what is known of a dataset, blank for a new one; remove what an old one left.

        One that was ``known`` may have been removed while the run waited: that is an error.
        """
        with self._library.database.read() as connection:
            stored = {one.name: one for one in stored_chunks.list_datasets(connection)}
            is_left = dataset not in stored and dataset in publish.list_removed(connection)
        if is_known and dataset not in stored:
            raise stored_chunks.unknown_dataset(dataset, list(stored))
        for note in self._library.indexes.remove(dataset) if is_left else ():
            _log.warning("of the removed %s: %s", dataset, note)
        return stored.get(dataset, StoredDataset(dataset, "", (), (), 0, 0.0, 0.0))

    def _language_notes(self, dataset: str) -> tuple[str, ...]:
        """Name a model for the languages of the passages, if the model in use lacks them."""
        model = self._library.wanted_model.model
        languages = self._library.indexes.lexical(dataset).languages()
        share = foreign_share(languages, profile_of(model).languages)
        told = f"{share:.0%} of the passages are in languages that {model} does not know, so only "
        told += "their words are searched: --preset multilingual has a model that knows a hundred "
        return (f"{told}({install_command('multilingual')})",) if share else ()


def derive_words(library: Library, dataset: str, later: dict[str, str]) -> None:
    """Bring the keyword index up to date; ``later`` gets a note if that cannot be now."""
    _attempt("lexical index", library.indexes.lexical(dataset).refresh, later)


def derive_vectors(library: Library, dataset: str, later: dict[str, str]) -> None:
    """Bring the vector index and what is measured on it up to date, like :func:`derive_words`."""
    _attempt("vector index", lambda: library.indexes.vector(dataset).refresh(), later)
    measure = partial(refresh_agreement, library, dataset)
    _attempt("agreement of vectors and words", measure, later)


def _attempt(name: str, derive: Callable[[], object], later: dict[str, str]) -> None:
    """Bring derived files up to date, or note that the next search does it."""
    try:
        derive()
    except ConfigError:  # a setting that can never work
        raise
    except CatalogError as error:
        later.setdefault(str(error), f"the {name} will be brought up to date later: {error}")


def rebuild_indexes(library: Library, progress: Progress | None = None) -> dict[str, int]:
    """Rebuild all indexes from the store, without the files of the model.

    Return the number of points in each dataset's vector index.
    """
    progress, indexer, database = progress or Silent(), Indexer(library), library.database
    with database.write() as connection:
        command_full_text(connection, "rebuild")
    stored = embedding_cache.read_stored_model(database)
    library.indexes.close()  # what this process holds of them
    done: dict[str, int] = {}
    indexes = Indexes(library.settings, database, lambda: stored or library.wanted_model)
    with closing(indexes):
        for name in library.datasets():
            progress.start(0, f"rebuilding the indexes of {name}")
            with indexer.hold(name, progress):
                if name not in library.datasets():  # removed while this waited
                    continue
                engine = indexes.lexical(name)
                engine.verify()  # what is in the database is forgotten where it is wrong
                folder = indexes.folder(name) / engine.name
                try:
                    if folder.exists():
                        shutil.rmtree(folder)
                except OSError as error:
                    told = describe_os_error(folder, error)
                    raise StoreError(f"cannot remove {told}") from error
                engine.refresh()
                done[name] = 0 if stored is None else indexes.vector(name).rebuild()
    return done
