"""The service that :func:`catalog.search_v2.search` and the LlamaIndex parts of a process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.open_services import OpenServices

if TYPE_CHECKING:
    from catalog.retrieval.searcher import Searcher

_services: OpenServices[Searcher] = OpenServices()


def shared_service(*, make_store: bool = False) -> Searcher:
    """Return the service of the effective settings (``catalog config``), opened at first need.

    Raises :class:`NoStoreError` where no store is, unless it is to ``make_store``.
    """
    from catalog.core.settings import get_settings
    from catalog.library.library import Library
    from catalog.retrieval.searcher import Searcher
    from catalog.store.database import require_store

    settings = get_settings()

    def opened() -> Searcher:
        if not make_store:
            require_store(settings)
        return Searcher(Library(settings))

    return _services.get(settings.model_dump_json(), opened)


def close() -> None:
    """Release every shared service: connections, models, index locks; the next use opens anew."""
    _services.close()
