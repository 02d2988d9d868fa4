"""The v2 pipeline: opt-in successor of ``catalog.search``, driven by ``IDX_RAG_V2__*``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from catalog.core.open_services import OpenServices

if TYPE_CHECKING:
    from catalog.core.results import SearchResults
    from catalog.search_v2.service import SearchServiceV2

__all__ = ["close", "search"]

_services: OpenServices[SearchServiceV2] = OpenServices()


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
    _services.close()


def _service() -> SearchServiceV2:
    from catalog.core.settings import get_settings
    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2

    settings = get_settings()
    return _services.get(settings.model_dump_json(), lambda: SearchServiceV2(Library(settings)))
