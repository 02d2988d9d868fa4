"""The index engines of a home: opened at first use, kept open, closed together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from catalog.core.entry_points import OURS, load_engine
from catalog.core.errors import CatalogError
from catalog.core.files import describe_os_error
from catalog.core.kept import LRUCache
from catalog.core.settings import Settings
from catalog.store import Database
from catalog.store.database import POINTS_LOCK, EngineSetup
from catalog.store.embedding_cache import StoredModel, require_model
from catalog.store.filter_sql import DatasetNames

if TYPE_CHECKING:
    from catalog.store.engines import LexicalEngine, VectorEngine
    from catalog.store.vectors.flat import VectorSample

_JOINED = 8  # engines over several datasets that are kept


class Indexes:
    """Open the index engines of every dataset, one for each engine name. Thread-safe."""

    def __init__(
        self, settings: Settings, database: Database, model: Callable[[], StoredModel]
    ) -> None:
        self._settings, self._database, self._model = settings, database, model
        self._lexical: dict[tuple[str, str], LexicalEngine] = {}
        self._several: LRUCache[tuple[str, tuple[str, ...]], LexicalEngine] = LRUCache(_JOINED)
        self._vector: dict[tuple[str, str], VectorEngine] = {}
        self._samples: dict[str, VectorSample] = {}
        self._lock = RLock()

    def folder(self, dataset: str) -> Path:
        """Return the folder of the dataset's derived indexes, which may be deleted at any time."""
        return self._settings.home / "indexes" / dataset

    def lexical(self, dataset: DatasetNames, name: str | None = None) -> LexicalEngine:
        """Return the engine of that name, or the configured one; one for several datasets."""
        rag = self._settings.rag_v2
        name = name or rag.lexical_engine
        with self._lock:
            if not isinstance(dataset, str):
                engine = self._several.get((name, dataset))
                if engine is None:
                    first, *others = [self.lexical(one, name) for one in dataset]
                    engine = first.join(others)
                    self._several.put((name, dataset), engine)
                return engine
            if (name, dataset) not in self._lexical:
                folder = self.folder(dataset) / name
                setup = EngineSetup(self._database, dataset, folder, rag)
                self._lexical[name, dataset] = load_engine("catalog.lexical", name)(setup)
            return self._lexical[name, dataset]

    def vector(self, dataset: str, name: str | None = None) -> VectorEngine:
        """Return the engine of that name, or the configured one; another model is an error."""
        rag, model = self._settings.rag_v2, self._model()
        name = name or rag.vector_engine
        require_model(self._database, model)
        with self._lock:
            if (name, dataset) not in self._vector:
                folder = self.folder(dataset) / name
                setup = EngineSetup(
                    self._database, dataset, folder, rag, model.dim, model.fingerprint
                )
                self._vector[name, dataset] = load_engine("catalog.vectors", name)(setup)
            return self._vector[name, dataset]

    def remove(self, dataset: str) -> Iterator[str]:
        """Remove the indexes of a removed dataset, here and on servers; yield what stays."""
        rag, v1 = self._settings.rag_v2, self._settings.home / "v1"
        in_folder = {"flat", "sqlite-vec"} | ({"qdrant"} if rag.qdrant_url is None else set())
        try:  # engines without a folder drop what their server has of no dataset
            if rag.lexical_engine != "bm25":
                self.lexical(dataset).refresh()
            if rag.vector_engine not in in_folder:
                self.vector(dataset).refresh()
        except CatalogError as error:
            yield f"the part on a server stays: {error}"
        self.close(dataset)
        folder = self.folder(dataset)
        names = {*OURS["catalog.vectors"], rag.vector_engine, "bm25", rag.lexical_engine}
        locks = {folder / name: folder / name / POINTS_LOCK for name in names}
        locks[v1 / dataset] = v1 / f".{dataset}.lock"  # the v1 index has texts
        from filelock import FileLock, Timeout

        for index in (folder, *locks):
            if index.is_symlink():
                yield f"{index} was a link to {index.resolve()}: its target stays"
                index.unlink()
        for index, lock in locks.items():
            try:
                if index.is_dir():
                    with FileLock(lock, timeout=0, mode=0o600, thread_local=False):
                        shutil.rmtree(index)
            except Timeout:
                where = f"{index} is open, here or in another process"
                yield f"{where}: it stays until this is run again"
            except OSError as error:
                yield f"an index stays: cannot remove {describe_os_error(index, error)}"
        with suppress(OSError):  # somebody else's file may be in it
            folder.rmdir()

    def sample(self, dataset: str) -> VectorSample:
        """Return the sample of the dataset's vectors, whichever engine searches them."""
        from catalog.store.vectors.flat import VectorSample

        with self._lock:
            return self._samples.setdefault(dataset, VectorSample(self._database, dataset))

    def close(self, dataset: str | None = None) -> None:
        """Release files and locks of a dataset, or of all; safe to call twice."""
        with self._lock:
            self._several.clear()
            self._samples.clear()
            engines: list[LexicalEngine | VectorEngine] = []
            kept: tuple[dict[tuple[str, str], Any], ...] = self._lexical, self._vector
            for opened in kept:
                names = [key for key in opened if dataset in (None, key[1])]
                engines += [opened.pop(key) for key in names]
        for engine in engines:
            engine.close()
