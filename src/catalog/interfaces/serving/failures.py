"""Our errors on their way between processes: told by name, rebuilt as what they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.core import errors
from catalog.core.errors import CatalogError

_KINDS: dict[str, type[CatalogError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CatalogError)
}


def error_to_wire(error: CatalogError) -> dict[str, Any]:
    """``{"error": {"kind", "message", "details"}}``; details are the attributes it carries."""
    return {
        "error": {
            "kind": type(error).__name__,
            "message": str(error),
            "details": dict(vars(error)),
        }
    }


def is_catalog_error(answer: Mapping[str, Any]) -> bool:
    """Whether it tells an error of ours."""
    found = answer.get("error")
    return isinstance(found, dict) and found.get("kind") in _KINDS


def error_from_wire(answer: Mapping[str, Any]) -> CatalogError:
    """The error that was told; a :class:`CatalogError` with its words for one of unknown kind."""
    found = answer.get("error")
    if not isinstance(found, dict):
        return CatalogError("the server failed and did not say how")
    kind = _KINDS.get(str(found.get("kind")))
    if kind is None:
        return CatalogError(f"the server says: {found.get('message')}")
    error = kind.__new__(kind)
    error.args = (str(found.get("message")),)
    for name, value in (found.get("details") or {}).items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error
