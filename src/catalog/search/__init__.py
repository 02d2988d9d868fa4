"""The v1 pipeline: LlamaIndex's stock hybrid search, kept unchanged as a baseline for v2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.kept import OpenServices

if TYPE_CHECKING:
    from catalog.core.settings import Settings
    from catalog.search.models import BaselineResults
    from catalog.search.service import SearchService

__all__ = ["close", "search"]

_services: OpenServices[SearchService] = OpenServices()


def search(
    query: str,
    *,
    dataset: str,
    top_k: int = 10,
    mode: str = "hybrid",
    rerank: bool = False,
    settings: Settings | None = None,
) -> BaselineResults:
    """Return the ``top_k`` best passages of a dataset for a query, best first.

    Uses ``settings``, or the effective ones (``catalog config``), but for ``IDX_RAG_V2__*``, and
    keeps one service open for each set of them in this process; :func:`close` releases it. See
    ``SearchService.search`` for the rules. Raises :class:`NoStoreError` where no store is,
    and :class:`InputError` in a process that is bound to a role.

    Examples:
        >>> from catalog.search import search
        >>> [result.path for result in search("bake bread", dataset="notes", top_k=1)]
        ['recipes/bread.txt']
    """
    return _service(settings).search(query, dataset=dataset, top_k=top_k, mode=mode, rerank=rerank)


def close() -> None:
    """Release every service that :func:`search` opened: connections, models, indexes.

    Examples:
        >>> from catalog import search as baseline
        >>> baseline.search("bake bread", dataset="notes", top_k=1)
        <BaselineResults 1 for 'bake bread' in 'notes'>
        >>> baseline.close()
    """
    _services.close()


def _service(settings: Settings | None) -> SearchService:
    from catalog.core.errors import InputError
    from catalog.core.settings import get_settings
    from catalog.search.service import SearchService
    from catalog.store.database import require_store

    chosen = settings or get_settings()
    if (role := chosen.answers.role) is not None:
        raise InputError(f"v1 does not heed the role {role!r}, to which this process is bound")

    def opened() -> SearchService:
        require_store(chosen)
        return SearchService(chosen)

    return _services.get(chosen.model_dump_json(exclude={"rag_v2"}), opened)
