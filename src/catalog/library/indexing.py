"""Building, updating and describing datasets: what the index commands call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalog.core.errors import CatalogError, SourceError
from catalog.ingest.pipeline import PipelineBuilder
from catalog.ingest.sync import check_dataset_name, sync
from catalog.ingest.sync_report import Progress, SyncReport
from catalog.library.document_cards import make_cards
from catalog.library.health import DatasetStats, dataset_stats, stored_dataset
from catalog.library.library import Library
from catalog.store.chunks import list_datasets
from catalog.store.embedding_cache import adopt_model, require_model


class Indexer:
    """Keep the datasets of one store in line with their folders."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def build(
        self,
        root: Path,
        dataset: str,
        *,
        include: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        allow_deletions: bool = False,
        reread: bool = False,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Index a folder or file as a dataset; only what is new or changed costs anything.

        ``reread`` does every document anew. Raises what :func:`catalog.ingest.sync.sync` does,
        and ``EmbeddingMismatchError`` for a store of another model.
        """
        check_dataset_name(dataset)
        library, ingest = self._library, self._library.settings.rag_v2.ingest
        require_model(library.database, library.wanted_model)
        builder = PipelineBuilder(library.database, library.settings.rag_v2)
        pipeline = builder.build_pipeline(dataset, library.model)
        lock = library.settings.home / "locks" / f"{dataset}.lock"
        report = sync(
            library.database,
            root,
            dataset,
            pipeline,
            lock=lock,
            settings=ingest,
            include=include,
            exclude=exclude,
            allow_deletions=allow_deletions,
            reread=reread,
            progress=progress,
        )
        return replace(report, notes=report.notes + self._refresh(dataset, anew=reread))

    def update(
        self,
        dataset: str,
        *,
        allow_deletions: bool = False,
        reread: bool = False,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Sync a dataset with the folder it was built from, under the same globs."""
        stored = stored_dataset(self._library, dataset)
        if stored.root == "":
            raise SourceError(
                f"{dataset!r} was filled by a pipeline: it has no folder to update from"
            )
        return self.build(
            Path(stored.root),
            dataset,
            include=stored.include,
            exclude=stored.exclude,
            allow_deletions=allow_deletions,
            reread=reread,
            progress=progress,
        )

    def rebuild(self, *, progress: Progress | None = None) -> dict[str, SyncReport]:
        """Re-read and re-embed every dataset, adopting the configured model."""
        with self._library.database.read() as connection:
            stored = list_datasets(connection)
        missing = [
            dataset.root or dataset.name
            for dataset in stored
            if not dataset.root or not Path(dataset.root).exists()
        ]
        if missing:
            raise SourceError(f"cannot rebuild: no folder to read {', '.join(missing)} from")
        adopt_model(self._library.database, self._library.wanted_model)
        return {
            dataset.name: self.build(
                Path(dataset.root),
                dataset.name,
                include=dataset.include,
                exclude=dataset.exclude,
                reread=True,
                progress=progress,
            )
            for dataset in stored
        }

    def stats(self, dataset: str) -> DatasetStats:
        """Count straight from the truth."""
        return dataset_stats(self._library, dataset)

    def _refresh(self, dataset: str, *, anew: bool) -> tuple[str, ...]:
        """Bring the derived indexes up to date, that of vectors ``anew`` if so told.

        What cannot be done now is done at a search.
        """
        notes = []
        vector = self._library.indexes.vector(dataset)
        for name, refresh in (
            ("vector", vector.rebuild if anew else vector.refresh),
            ("lexical", self._library.indexes.lexical(dataset).refresh),
        ):
            try:
                refresh()
            except CatalogError as error:
                notes.append(f"the {name} index is brought up to date later: {error}")
        try:
            make_cards(self._library.database, dataset)
        except CatalogError as error:
            notes.append(f"the catalog is brought up to date later: {error}")
        return tuple(notes)
