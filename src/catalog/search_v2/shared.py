"""The service that :func:`catalog.search_v2.search` and the LlamaIndex parts of a process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.open_services import OpenServices

if TYPE_CHECKING:
    from catalog.search_v2.service import SearchServiceV2

_services: OpenServices[SearchServiceV2] = OpenServices()


def shared_service() -> SearchServiceV2:
    """Return the service of the effective settings (``catalog config``), opened at first need."""
    from catalog.core.settings import get_settings
    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2

    settings = get_settings()
    return _services.get(settings.model_dump_json(), lambda: SearchServiceV2(Library(settings)))


def close() -> None:
    """Release every shared service: connections, models, index locks; the next use opens anew."""
    _services.close()
