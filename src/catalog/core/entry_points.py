"""Find engines, embedding providers and readers by name, ours and other packages'."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any, Literal

from catalog.core.errors import CatalogError, ConfigError

Group = Literal["catalog.lexical", "catalog.vectors"]

# Ours are known by name, since the metadata of all packages is slow to read.
OURS: dict[Group, dict[str, str]] = {
    "catalog.lexical": {
        "bm25": "catalog.store.lexical.bm25:open_engine",
        "fts": "catalog.store.lexical.fts:open_engine",
    },
    "catalog.vectors": {
        "flat": "catalog.store.vectors.flat:FlatEngine",
        "qdrant": "catalog.store.vectors:open_qdrant",
        "sqlite-vec": "catalog.store.vectors.sqlite_vec:SqliteVecEngine",
    },
}
"""Engines by group and name; ``pyproject.toml`` repeats them, and a test compares the two."""


@cache
def list_added(group: str) -> Mapping[str, metadata.EntryPoint]:
    """Return the entry points of a group by name, without importing them."""
    points = metadata.entry_points(group=group)
    return {one.name: one for one in sorted(points, key=lambda it: it.name)}


def find(group: str, name: str) -> Any:
    """Return the object that a package adds to a group; ``None`` without one."""
    point = list_added(group).get(name)
    return None if point is None else _load(point)


def find_engine(group: Group, name: str) -> metadata.EntryPoint:
    """Return the entry point of an engine; packages are read only if the name is not ours."""
    if name in OURS[group]:
        return metadata.EntryPoint(name, OURS[group][name], group)
    if name in list_added(group):
        return list_added(group)[name]
    kind = "keyword" if group == "catalog.lexical" else "vector"
    known = ", ".join(dict.fromkeys([*OURS[group], *list_added(group)]))
    raise ConfigError(
        f"unknown {kind} engine {name!r}; engines: {known}; "
        f"packages can add engines by the entry point {group}"
    )


def load_engine(group: Group, name: str) -> Any:
    """Return the factory of an engine; raises :class:`ConfigError` if it cannot be imported."""
    return _load(find_engine(group, name))


def _load(point: metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except CatalogError:
        raise
    except Exception as error:
        package = point.dist.name if point.dist else point.value
        raise ConfigError(
            f"{point.name!r} of {point.group} cannot be imported from {package}: {error}"
        ) from error
