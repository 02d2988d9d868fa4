"""Errors of this package as JSON between two of its processes. Light to import."""

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


def encode_error(error: CatalogError) -> dict[str, Any]:
    """Return ``{"error": {"kind", "message", "details"}}``; details are the error's attributes."""
    kind, message = type(error).__name__, str(error)
    return {"error": {"kind": kind, "message": message, "details": dict(vars(error))}}


def is_catalog_error(answer: Mapping[str, Any]) -> bool:
    """Return whether the answer holds an error of a known kind."""
    content = answer.get("error")
    return isinstance(content, dict) and content.get("kind") in _KINDS


def decode_error(answer: Mapping[str, Any]) -> CatalogError:
    """Return the error that an answer holds; one of unknown kind as a :class:`CatalogError`."""
    content = answer.get("error")
    if not isinstance(content, dict):
        return CatalogError("the server failed and did not say how")
    kind = _KINDS.get(str(content.get("kind")))
    if kind is None:
        return CatalogError(f"the server says: {content.get('message')}")
    error = kind.__new__(kind)
    error.args = (str(content.get("message")),)
    for name, value in (content.get("details") or {}).items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error
