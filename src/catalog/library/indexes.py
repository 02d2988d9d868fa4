"""The index engines of a home: opened when first used, kept open, closed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.core.lru_cache import LRUCache
from catalog.core.settings import Settings
from catalog.store import Database
from catalog.store.embedding_cache import StoredModel, require_model
from catalog.store.filter_sql import DatasetNames
from catalog.store.lexical import get_lexical_engine, join_lexical_engines
from catalog.store.vectors import VECTOR_ENGINES, get_vector_engine
from catalog.store.vectors.folder_engine import FolderEngine, remove_unused

if TYPE_CHECKING:
    from catalog.store.lexical.base import LexicalEngine
    from catalog.store.tried_models import TriedModel
    from catalog.store.vectors.base import VectorEngine
    from catalog.store.vectors.sample import VectorSample

_JOINED = 8  # engines over several datasets that are kept


class Indexes:
    """Open the index engines of every dataset, one engine for each name. Thread-safe.

    ``model`` tells which embedding model the vectors must be of; it is asked for vectors only.
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
        """Return where the dataset's derived indexes live; it may be deleted at any time."""
        return self._settings.home / "indexes" / dataset

    def lexical(self, dataset: DatasetNames, name: str | None = None) -> LexicalEngine:
        """Return the lexical engine of that name, or the configured one; one over several."""
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
            engines = [self.lexical(dataset, name) for dataset in datasets]
            engine = join_lexical_engines(engines, self._database, datasets)
            self._several.put((name, datasets), engine)
        return engine

    def vector(self, dataset: str, name: str | None = None) -> VectorEngine:
        """Return the vector engine of that name, or the configured one.

        Raises :class:`~catalog.core.errors.EmbeddingMismatchError` when the store's vectors are
        of another model.
        """
        rag, model = self._settings.rag_v2, self._model()
        name = name or rag.vector_engine
        self.require_model()
        with self._lock:
            if (name, dataset) not in self._vector:
                self._vector[name, dataset] = get_vector_engine(
                    name,
                    self._database,
                    dataset,
                    self._vector_folder(dataset, name),
                    dim=model.dim,
                    fingerprint=model.fingerprint,
                    url=rag.qdrant_url,
                    api_key=rag.qdrant_api_key,
                    options=rag.qdrant,
                )
            return self._vector[name, dataset]

    def prepare(self, dataset: str, tried: TriedModel) -> str | None:
        """Fill an index with a tried model's vectors, beside the one that is searched.

        Return the token that it needs once they are the live ones; ``None`` for an engine that
        is filled then: ``exact`` has nothing to fill, and a server is not told beforehand.
        """
        rag, model = self._settings.rag_v2, tried.model
        if rag.vector_engine == "exact" or rag.qdrant_url is not None:
            return None
        if model.fingerprint == self._model().fingerprint:  # its folder is in use
            return None
        engine = get_vector_engine(
            rag.vector_engine,
            self._database,
            dataset,
            self.folder(dataset) / f"{rag.vector_engine}-{model.fingerprint}",
            dim=model.dim,
            fingerprint=model.fingerprint,
        )
        return engine.prepare(tried.windows) if isinstance(engine, FolderEngine) else None

    def drop_others(self, dataset: str) -> None:
        """Remove the folders of vector indexes of other models that no process has open."""
        used = self._vector_folder(dataset, self._settings.rag_v2.vector_engine)
        for engine in VECTOR_ENGINES:
            for folder in self.folder(dataset).glob(f"{engine}*"):
                is_of_engine = folder.name == engine or folder.name.startswith(f"{engine}-")
                if is_of_engine and folder != used:
                    remove_unused(folder)

    def remove(self, dataset: str) -> Iterator[str]:
        """Remove what was derived from a dataset that is no more; yield what stays, and why.

        A folder that another process has open stays, and what an index on a server holds that the
        settings do not name. A server's own is emptied.
        """
        for get in (self.lexical, self.vector):
            try:
                engine = get(dataset)
                if not isinstance(engine, FolderEngine):
                    engine.refresh()
            except CatalogError as error:
                yield f"an index keeps what it had: {error}"
        with self._lock:
            self._several.clear()
            self._samples.pop(dataset, None)
            engines = [
                kept.pop(key)
                for kept in (self._lexical, self._vector)
                for key in list(kept)
                if key[1] == dataset
            ]
        for opened in engines:
            opened.close()
        folder = self.folder(dataset)
        for index in folder.iterdir() if folder.is_dir() else ():
            if not remove_unused(index):
                yield f"{index} stays: another process has it open; remove again once it has ended"
        with suppress(OSError):
            folder.rmdir()

    def _vector_folder(self, dataset: str, name: str) -> Path:
        """Return the folder of an engine: the one filled for this model beforehand, if any."""
        folder = self.folder(dataset) / name
        prepared = folder.with_name(f"{name}-{self._model().fingerprint}")
        return prepared if prepared.is_dir() else folder

    def forget_vectors(self) -> None:
        """Close the vector engines: those of another model are opened at the next search."""
        with self._lock:
            engines = list(self._vector.values())
            self._vector.clear()
            self._samples.clear()
        for engine in engines:
            engine.close()

    def require_model(self) -> None:
        """Raise :class:`~catalog.core.errors.EmbeddingMismatchError` as :meth:`vector` does.

        Another process may change the model of a store at any time, so that a search asks before
        it reads vectors, and again when it has.
        """
        require_model(self._database, self._model())

    def exact(self, dataset: str) -> VectorEngine:
        """Return the engine that needs no index of its own; raises as :meth:`vector` does."""
        return self.vector(dataset, "exact")

    def sample(self, dataset: str) -> VectorSample:
        """Return the sample of the dataset's vectors, whichever engine searches them.

        Whoever asks it asks :meth:`require_model` after that.
        """
        from catalog.store.vectors.sample import VectorSample

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
