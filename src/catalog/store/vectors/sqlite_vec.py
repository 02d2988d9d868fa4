"""The sqlite-vec engine: one SQLite file in the dataset's folder."""

from __future__ import annotations

from pathlib import Path

from catalog.store.engine_setup import EngineSetup
from catalog.store.vectors.folder_engine import FolderEngine
from catalog.store.vectors.sqlite_vec_index import SqliteVecIndex


class SqliteVecEngine(FolderEngine):
    """sqlite-vec in this process, over ``folder``: exact, with no quantization and no graph."""

    name = "sqlite-vec"

    def _create_index(self, folder: Path) -> SqliteVecIndex:
        return SqliteVecIndex.create(folder, self._dim)

    def _load_index(self, folder: Path) -> SqliteVecIndex:
        return SqliteVecIndex.load(folder, self._dim)


def open_engine(setup: EngineSetup) -> SqliteVecEngine:
    """Return the engine ``sqlite-vec``."""
    of_dataset = (setup.database, setup.dataset, setup.folder)
    return SqliteVecEngine(*of_dataset, setup.dim, setup.fingerprint)
