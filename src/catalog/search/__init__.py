"""The v1 pipeline: LlamaIndex's stock hybrid search, kept as it is so that v2 has a baseline."""

from __future__ import annotations

import atexit
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.core.settings import Settings
    from catalog.search.models import SearchResults
    from catalog.search.service import SearchService

__all__ = ["close", "search"]

_services: dict[str, SearchService] = {}
_lock = Lock()


def search(
    query: str,
    *,
    dataset: str,
    top_k: int = 10,
    mode: str = "hybrid",
    rerank: bool = False,
    settings: Settings | None = None,
) -> SearchResults:
    """The ``top_k`` best passages of a dataset for a query, best first.

    Uses ``settings``, or the effective ones (``catalog config``), but for ``IDX_RAG_V2__*``, and
    keeps one service open for each set of them in this process; :func:`close` releases it. See
    ``SearchService.search`` for the rules.
    """
    service = _service(settings)
    return service.search(query, dataset=dataset, top_k=top_k, mode=mode, rerank=rerank)


def close() -> None:
    """Release every service that :func:`search` opened: connections, models, indexes."""
    with _lock:
        opened = list(_services.values())
        _services.clear()
    for service in opened:
        service.close()


def _service(settings: Settings | None) -> SearchService:
    from catalog.core.settings import get_settings
    from catalog.search.service import SearchService

    settings = settings or get_settings()
    key = settings.model_dump_json(exclude={"rag_v2"})
    with _lock:
        if key not in _services:
            if not _services:
                atexit.register(close)
            _services[key] = SearchService(settings)
        return _services[key]
