"""A library that searches by the vectors of a model that is tried, beside the store's own."""

from __future__ import annotations

from collections.abc import Callable

from catalog.core.settings import Settings, with_values
from catalog.library.indexes import Indexes
from catalog.library.library import Library
from catalog.store import Database
from catalog.store.embedding_cache import StoredModel
from catalog.store.tried_models import TriedModel, require_tried
from catalog.store.vectors.base import VectorEngine
from catalog.store.vectors.exact import ExactEngine
from catalog.store.vectors.sample import VectorSample


class TriedIndexes(Indexes):
    """Open the engines over a tried model's windows, which are always compared exactly."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        model: Callable[[], StoredModel],
        tried: TriedModel,
    ) -> None:
        super().__init__(settings, database, model)
        self._tried = tried

    def vector(self, dataset: str, name: str | None = None) -> VectorEngine:
        """Return the exact engine, whatever the ``name``; raises as :meth:`require_model` does."""
        del name
        self.require_model()
        with self._lock:
            windows = self._tried.windows
            engine = ExactEngine(self._database, dataset, windows)
            return self._vector.setdefault(("exact", dataset), engine)

    def require_model(self) -> None:
        """Raise :class:`~catalog.core.errors.InputError` once the model is tried no more."""
        with self._database.read() as connection:
            require_tried(connection, self._tried.name)

    def sample(self, dataset: str) -> VectorSample:
        """Return the sample of the tried model's vectors."""
        with self._lock:
            sample = VectorSample(self._database, dataset, self._tried.windows)
            return self._samples.setdefault(dataset, sample)


class TriedLibrary(Library):
    """Open the same store once more, to search it as it will be once the tried model is adopted.

    Make it when the vectors are there: they may come without a change that it would notice.
    """

    def __init__(self, library: Library, tried: TriedModel) -> None:
        super().__init__(with_values(library.settings, tried.settings), follows=False)
        self.indexes = TriedIndexes(self.settings, self.database, lambda: self.wanted_model, tried)
