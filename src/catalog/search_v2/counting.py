"""What a dataset holds, counted; light, so that telling it loads no LlamaIndex."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.search_v2.workspace import Library
from catalog.store import manifest
from catalog.store.passages import StoredDataset, all_datasets
from catalog.store.statistics import (
    ChunkSizes,
    FileCounts,
    chunk_sizes,
    database_bytes,
    file_counts,
    modalities,
)


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """What a dataset holds. ``vectors`` under ``windows`` means: some text is not embedded yet.

    ``sizes`` are held against ``chunk_min_size`` and ``chunk_size``. ``database_bytes`` is the
    whole store's, all datasets and caches included; ``updated_at`` is seconds since 1970.
    """

    dataset: str
    root: str
    files: FileCounts
    documents: int
    chunks: int
    modalities: dict[str, int]
    sizes: ChunkSizes
    windows: int
    vectors: int
    pending_points: int
    database_bytes: int
    updated_at: float


def dataset_stats(workspace: Library, dataset: str) -> DatasetStats:
    """Counts straight from the truth; raises :class:`UnknownDatasetError`."""
    stored, rag = stored_dataset(workspace, dataset), workspace.settings.rag_v2
    with workspace.database.read() as connection:
        totals = manifest.totals(connection, dataset)
        return DatasetStats(
            dataset=dataset,
            root=stored.root,
            files=file_counts(connection, dataset),
            documents=totals.documents,
            chunks=totals.chunks,
            modalities=modalities(connection, dataset),
            sizes=chunk_sizes(connection, dataset, rag.chunk_min_size, rag.chunk_size),
            windows=totals.windows,
            vectors=totals.vectors,
            pending_points=manifest.pending_points(connection, dataset),
            database_bytes=database_bytes(connection),
            updated_at=stored.updated_at,
        )


def stored_dataset(workspace: Library, name: str) -> StoredDataset:
    """The dataset's row; raises :class:`UnknownDatasetError`."""
    workspace.require_dataset(name)
    with workspace.database.read() as connection:
        return next(one for one in all_datasets(connection) if one.name == name)
