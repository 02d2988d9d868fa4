"""The operations, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.core.browsing import CatalogPage
from catalog.interfaces.operations.base import Operation
from catalog.interfaces.operations.browsing import run_browse
from catalog.interfaces.operations.calls import (
    BrowseCall,
    GetCall,
    MultiGetCall,
    SearchCall,
    StatusCall,
)
from catalog.interfaces.operations.documents import run_get, run_multi_get
from catalog.interfaces.operations.searching import run_search
from catalog.interfaces.operations.shapes import (
    DocumentShape,
    DocumentsShape,
    SearchShape,
    StatusShape,
)
from catalog.interfaces.operations.status import run_status

_LISTED: tuple[Operation[Any, Any], ...] = (
    Operation("search", SearchCall, SearchShape, run_search),
    Operation("get", GetCall, DocumentShape, run_get),
    Operation("multi_get", MultiGetCall, DocumentsShape, run_multi_get),
    Operation("browse", BrowseCall, CatalogPage, run_browse),
    Operation("status", StatusCall, StatusShape, run_status),
)
OPERATIONS: Mapping[str, Operation[Any, Any]] = {one.name: one for one in _LISTED}
