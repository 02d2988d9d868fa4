"""The service shared by :func:`catalog.search_v2.search` and a process's LlamaIndex parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.kept import OpenServices

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher

_services: OpenServices[Searcher] = OpenServices()


def shared_service(*, make_store: bool = False) -> Searcher:
    """Return the service of the effective settings (``catalog config``), opened at first use.

    Raises :class:`NoStoreError` if there is no store, unless ``make_store``.
    """
    from catalog.core.settings import get_settings
    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher
    from catalog.store.database import require_store

    settings = get_settings()

    def opened() -> Searcher:
        if not make_store:
            require_store(settings)
        return Searcher(Library(settings))

    return _services.get(settings.model_dump_json(), opened)


def close() -> None:
    """Close all shared services with connections, models and locks; the next use reopens them.

    Examples:
        >>> from catalog import search_v2
        >>> search_v2.search("when do backups run", dataset="notes")[0].path
        'guides/backup.md'
        >>> search_v2.close()
    """
    _services.close()
