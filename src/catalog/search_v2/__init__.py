"""The v2 pipeline: opt-in successor of ``catalog.search``, driven by ``IDX_RAG_V2__*``."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.core.results import SearchResults
    from catalog.search_v2.service import SearchServiceV2

__all__ = ["close", "search"]

_services: dict[str, SearchServiceV2] = {}
_lock = Lock()


def search(
    query: str,
    *,
    dataset: str,
    top_k: int = 10,
    mode: str = "hybrid",
    doc_ids: Iterable[str] | None = None,
    filters: object = None,
    rerank: bool | None = None,
    expand: bool | None = None,
    explain: bool = False,
    strict: bool = False,
    compare_with_v1: bool = False,
) -> SearchResults:
    """The ``top_k`` best passages of a dataset for a query, best first.

    Uses the effective settings (``catalog config``) and keeps one service open for each set of
    them in this process; :func:`close` releases it. See ``SearchServiceV2.search`` for the rules.
    """
    return _service().search(
        query,
        dataset=dataset,
        top_k=top_k,
        mode=mode,
        doc_ids=doc_ids,
        filters=filters,
        rerank=rerank,
        expand=expand,
        explain=explain,
        strict=strict,
        compare_with_v1=compare_with_v1,
    )


def close() -> None:
    """Release every service that :func:`search` opened: connections, models, index locks."""
    with _lock:
        opened = list(_services.values())
        _services.clear()
    for service in opened:
        service.close()


def _service() -> SearchServiceV2:
    from catalog.core.settings import get_settings
    from catalog.search_v2.service import SearchServiceV2
    from catalog.search_v2.workspace import Workspace

    settings = get_settings()
    key = settings.model_dump_json()
    with _lock:
        if key not in _services:
            if not _services:
                atexit.register(close)
            _services[key] = SearchServiceV2(Workspace(settings))
        return _services[key]
