"""The embedded Qdrant engine: one shard in the dataset's folder."""

from __future__ import annotations

from pathlib import Path

from catalog.store.database import Database
from catalog.store.vectors.edge_index import EdgeIndex
from catalog.store.vectors.folder_engine import FolderEngine

QUANTIZE_FROM = 20_000  # points


class EdgeEngine(FolderEngine):
    """Qdrant in this process, over ``folder``; quantized from so many points on."""

    name = "qdrant-edge"

    def __init__(
        self,
        database: Database,
        dataset: str,
        folder: Path,
        dim: int,
        fingerprint: str,
        *,
        quantize_from: int = QUANTIZE_FROM,
    ) -> None:
        super().__init__(database, dataset, folder, dim, fingerprint)
        self._quantize_from = quantize_from

    def _create_index(self, folder: Path) -> EdgeIndex:
        return EdgeIndex.create(folder, self._dim, self._quantize_from)

    def _load_index(self, folder: Path) -> EdgeIndex:
        return EdgeIndex.load(folder, self._dim, self._quantize_from)
