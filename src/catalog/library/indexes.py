"""The index engines of a home: opened at first use, kept open, closed together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from catalog.core.errors import CatalogError
from catalog.core.files import describe_os_error
from catalog.core.lru_cache import LRUCache
from catalog.core.settings import Settings
from catalog.store import Database
from catalog.store.database import EngineSetup
from catalog.store.embedding_cache import StoredModel, require_model
from catalog.store.engine_types import Hit, Hits, Spread
from catalog.store.filter_sql import DatasetNames
from catalog.store.lexical import LEXICAL_ENGINES, get_lexical_engine
from catalog.store.vectors import VECTOR_ENGINES, get_vector_engine
from catalog.store.vectors.base import POINTS_LOCK

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.store.lexical.base import LexicalEngine
    from catalog.store.vectors.base import VectorEngine
    from catalog.store.vectors.flat import VectorSample

_JOINED = 8  # engines over several datasets that are kept


class Indexes:
    """Open the index engines of every dataset, one for each engine name. Thread-safe.

    ``model`` returns the embedding model of the vectors; it is called for vectors only.
    """

    def __init__(
        self, settings: Settings, database: Database, model: Callable[[], StoredModel]
    ) -> None:
        self._settings, self._database, self._model = settings, database, model
        self._lexical: dict[tuple[str, str], LexicalEngine] = {}
        self._several: LRUCache[tuple[str, tuple[str, ...]], LexicalEngine] = LRUCache(_JOINED)
        self._vector: dict[tuple[str, str], VectorEngine] = {}
        self._samples: dict[str, VectorSample] = {}
        self._lock = Lock()

    def folder(self, dataset: str) -> Path:
        """Return the folder of the dataset's derived indexes, which may be deleted at any time."""
        return self._settings.home / "indexes" / dataset

    def lexical(self, dataset: DatasetNames, name: str | None = None) -> LexicalEngine:
        """Return the engine of that name, or the configured one; one for several datasets."""
        name = name or self._settings.rag_v2.lexical_engine
        if not isinstance(dataset, str):
            return self._joined(dataset, name)
        with self._lock:
            if (name, dataset) not in self._lexical:
                folder = self.folder(dataset) / name
                rag = self._settings.rag_v2
                engine = get_lexical_engine(name, self._database, dataset, folder, rag=rag)
                self._lexical[name, dataset] = engine
            return self._lexical[name, dataset]

    def _joined(self, datasets: tuple[str, ...], name: str) -> LexicalEngine:
        engine = self._several.get((name, datasets))
        if engine is None:
            first, *others = [self.lexical(dataset, name) for dataset in datasets]
            engine = first.join(others)
            self._several.put((name, datasets), engine)
        return engine

    def vector(self, dataset: str, name: str | None = None) -> VectorEngine:
        """Return the vector engine of that name, or the configured one.

        Raises :class:`~catalog.core.errors.EmbeddingMismatchError` if the store's vectors come from
        another model.
        """
        rag, model = self._settings.rag_v2, self._model()
        name = name or rag.vector_engine
        self.require_model()
        with self._lock:
            if (name, dataset) not in self._vector:
                folder = self.folder(dataset) / name
                setup = EngineSetup(
                    self._database, dataset, folder, rag, model.dim, model.fingerprint
                )
                self._vector[name, dataset] = get_vector_engine(name, setup)
            return self._vector[name, dataset]

    def remove(self, dataset: str) -> Iterator[str]:
        """Remove the indexes of a removed dataset; yield a note for each that stays.

        These are the folders of its indexes, and its collections on the servers of the engines that
        are set.
        """
        rag = self._settings.rag_v2
        in_folder = {"flat", "sqlite-vec"} | ({"qdrant"} if rag.qdrant_url is None else set())
        for get, is_on_server in (
            (self.lexical, rag.lexical_engine != "bm25"),
            (self.vector, rag.vector_engine not in in_folder),
        ):
            try:
                if is_on_server:
                    get(dataset).refresh()
            except CatalogError as error:
                yield f"the part on a server stays: {error}"
        self._forget(dataset)
        folder, stock = self.folder(dataset), self._settings.home / "v1"
        rag = self._settings.rag_v2
        words = {"bm25", rag.lexical_engine}.difference(LEXICAL_ENGINES[1:])
        names = {*VECTOR_ENGINES, rag.vector_engine, *words}
        locks = {folder / name: folder / name / POINTS_LOCK for name in names}
        locks |= {stock / dataset: stock / f".{dataset}.lock"}  # the v1 index has texts
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

    def _forget(self, dataset: str) -> None:
        """Close the engines of the dataset, and those over several datasets."""
        with self._lock:
            self._several.clear()
            self._samples.pop(dataset, None)
            lexical = [self._lexical.pop(key) for key in [*self._lexical] if key[1] == dataset]
            vector = [self._vector.pop(key) for key in [*self._vector] if key[1] == dataset]
        for words in lexical:
            words.close()
        for points in vector:
            points.close()

    def require_model(self) -> None:
        """Raise :class:`~catalog.core.errors.EmbeddingMismatchError` like :meth:`vector`.

        Another process may change the model of a store at any time. So a search calls this before
        it reads vectors, and again afterwards.
        """
        require_model(self._database, self._model())

    def flat(self, dataset: str) -> VectorEngine:
        """Return the engine that no other process can block; raises like :meth:`vector`."""
        return self.vector(dataset, "flat")

    def spread(
        self, dataset: str, vector: npt.NDArray[np.float32], hits: list[Hit]
    ) -> tuple[int, Spread]:
        """Return the number of passages, and the spread of their cosines with a vector.

        It comes with the ``hits`` of an engine that compared all vectors, else from a sample.
        """
        if isinstance(hits, Hits) and hits.size:
            return hits.size, hits.spread
        return self.sample(dataset).spread(vector)

    def sample(self, dataset: str) -> VectorSample:
        """Return the sample of the dataset's vectors, whichever engine searches them.

        Call :meth:`require_model` after using it.
        """
        from catalog.store.vectors.flat import VectorSample

        with self._lock:
            return self._samples.setdefault(dataset, VectorSample(self._database, dataset))

    def close(self) -> None:
        """Release files and locks; safe to call twice."""
        with self._lock:
            engines: list[LexicalEngine | VectorEngine] = [
                *self._lexical.values(),
                *self._vector.values(),
            ]
            self._lexical.clear()
            self._several.clear()
            self._vector.clear()
            self._samples.clear()
        for engine in engines:
            engine.close()
