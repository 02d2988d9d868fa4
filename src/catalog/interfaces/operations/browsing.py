"""Looking at what documents there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.browsing import CatalogPage
from catalog.interfaces.operations.calls import BrowseCall

if TYPE_CHECKING:
    from catalog.interfaces.operations.engine import LocalEngine


def run_browse(engine: LocalEngine, call: BrowseCall) -> CatalogPage:
    """The page of the catalog that was asked for."""
    return engine.catalog.query(
        dataset=engine.dataset(call.dataset),
        query=call.query,
        file_type=call.file_type,
        name=call.name,
        tags=call.tags,
        filters=call.filters,
        after=call.after,
        before=call.before,
        sort=call.sort,
        limit=call.limit,
        offset=call.offset,
    )
