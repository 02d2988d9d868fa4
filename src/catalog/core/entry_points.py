"""Find parts by name: engines, embedding providers and readers, ours and other packages'.

The groups are ``catalog.lexical``, ``catalog.vectors``, ``catalog.embeddings`` and
``catalog.readers``. Our own parts are known by name, since the metadata of all packages is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from catalog.core.errors import CatalogError, ConfigError, UnknownEngineError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["catalog.lexical", "catalog.vectors"]

OURS: dict[Group, dict[str, str]] = {
    "catalog.lexical": {
        "bm25": "catalog.store.lexical.bm25:open_engine",
        "fts": "catalog.store.lexical:open_full_text",
    },
    "catalog.vectors": {
        "flat": "catalog.store.vectors.flat:FlatEngine",
        "qdrant": "catalog.store.vectors:open_qdrant",
        "sqlite-vec": "catalog.store.vectors.sqlite_vec:SqliteVecEngine",
    },
}
"""Engines by group and name; ``pyproject.toml`` repeats them, and a test compares the two."""


@cache
def list_added(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, without importing them."""
    from importlib.metadata import entry_points

    return {one.name: one for one in sorted(entry_points(group=group), key=lambda it: it.name)}


def find(group: str, name: str) -> object | None:
    """Return the object that a package adds to a group; ``None`` without one.

    Raises :class:`ConfigError` if it cannot be imported.
    """
    point = list_added(group).get(name)
    return None if point is None else _load(point)


def find_engine(group: Group, name: str) -> EntryPoint:
    """Return the entry point of an engine; packages are read only if the name is not ours.

    Raises :class:`UnknownEngineError` that lists the names.
    """
    from importlib.metadata import EntryPoint

    own = OURS[group]
    if name in own:
        return EntryPoint(name, own[name], group)
    added = list_added(group)
    if name in added:
        return added[name]
    kind = {"catalog.lexical": "keyword", "catalog.vectors": "vector"}[group]
    raise UnknownEngineError(
        f"unknown {kind} engine {name!r}; engines: {', '.join(dict.fromkeys([*own, *added]))}; "
        f"packages can add engines by the entry point {group}"
    )


def load_engine(group: Group, name: str) -> Any:
    """Return the factory of an engine; raises :class:`ConfigError` if it cannot be imported."""
    return _load(find_engine(group, name))


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except CatalogError:
        raise
    except Exception as error:
        package = point.dist.name if point.dist else point.value
        raise ConfigError(
            f"{point.name!r} of {point.group} cannot be imported from {package}: {error}"
        ) from error
