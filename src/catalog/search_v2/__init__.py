"""The v2 pipeline: opt-in successor of ``catalog.search``, driven by ``IDX_RAG_V2__*``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.open_services import OpenServices
from catalog.core.param_fields import takes
from catalog.core.params import SearchParams

if TYPE_CHECKING:
    from catalog.core.results import SearchResults
    from catalog.search_v2.service import SearchServiceV2

__all__ = ["close", "search"]

_services: OpenServices[SearchServiceV2] = OpenServices()


@takes(SearchParams)
def search(params: SearchParams) -> SearchResults:
    """Return the ``top_k`` best passages of a dataset for a query, best first.

    Uses the effective settings (``catalog config``) and keeps one service open for each set of
    them in this process; :func:`close` releases it. See ``SearchServiceV2.search`` for the rules.
    """
    return _open_service().run(params)


def close() -> None:
    """Release every service that :func:`search` opened: connections, models, index locks."""
    _services.close()


def _open_service() -> SearchServiceV2:
    from catalog.core.settings import get_settings
    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2

    settings = get_settings()
    return _services.get(settings.model_dump_json(), lambda: SearchServiceV2(Library(settings)))
