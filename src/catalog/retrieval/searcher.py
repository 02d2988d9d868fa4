"""The search of one opened store."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

from catalog.core.arguments import takes_self
from catalog.core.params import Mode, SearchParams
from catalog.core.results import SearchResults
from catalog.core.retrieval_events import searching
from catalog.library.library import Library
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.search import find_passages, search
from catalog.retrieval.stages import OnStage

_COMPARISON = "catalog.search_v2.compare_with_v1"


class Searcher:
    """Search one store. Thread-safe; keep it open, because models and indexes load once.

    ``parts`` replace those of the library's settings. ``on_stage`` is called with the report of
    each step of a search as soon as the step ends.
    """

    def __init__(
        self,
        library: Library,
        parts: SearchParts | None = None,
        *,
        on_stage: OnStage | None = None,
    ) -> None:
        self.library = library
        self.parts = parts or SearchParts(library)
        self.parts.on_stage = on_stage or self.parts.on_stage

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a service for other v2 settings on the same store, models and indexes.

        Close only one of them. Raises :class:`ConfigError` for a setting that needs a rebuild.
        """
        return type(self)(self.library, self.parts.with_settings(changes))

    @takes_self(SearchParams)
    def search(self, params: SearchParams) -> SearchResults:
        """Return the ``top_k`` best passages for a query, best first.

        Several datasets are searched as one; without ``dataset``, all are.

        The parameters are those of :class:`SearchParams`. A stage that fails is reported in
        ``stages`` and the rest answers, unless ``strict``. Raises :class:`InputError` kinds for a
        bad call, :class:`ConfigError` kinds for a stage that is on and has no model.
        """
        return self.run(params)

    def run(self, params: SearchParams) -> SearchResults:
        """Return the results of a search; see :meth:`search`."""
        with searching(str(self.library.settings.home)):
            if params.compare_with_v1:  # by its name, because it imports this module
                compared: SearchResults = import_module(_COMPARISON).search_beside(
                    self.parts, params
                )
                return compared
            return search(self.parts, params)

    def run_logged(self, params: SearchParams) -> SearchResults:
        """Return the results of a search, and log it if it came from an edge."""
        with self.library.log.watching(params) as note:
            results = self.run(params)
            note(results, agent=results.agent)
        return results

    def warm_up(self, dataset: str, mode: Mode | None = None) -> None:
        """Load the models and indexes that a search of the dataset needs."""
        with searching(str(self.library.settings.home)):
            find_passages(self.parts, SearchParams("warm up", dataset=dataset, top_k=1, mode=mode))

    def close(self) -> None:
        """Close the library."""
        self.parts.close()
