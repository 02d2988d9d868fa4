"""What is chosen by name in the settings: ours from a table, others by entry point.

The table spares a look at the metadata of all installed packages, and holds where that of this
package is older than its code. ``pyproject.toml`` repeats it; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from catalog.core.errors import CatalogError, ConfigError, UnknownEngineError

Group = Literal["catalog.lexical", "catalog.vectors"]

OURS: dict[Group, dict[str, str]] = {
    "catalog.lexical": {
        "bm25": "catalog.store.lexical.bm25:open_engine",
        "fts": "catalog.store.lexical:open_full_text",
        "qdrant": "catalog.store.lexical.qdrant_words:open_engine",
    },
    "catalog.vectors": {
        "qdrant": "catalog.store.vectors:open_qdrant",
        "sqlite-vec": "catalog.store.vectors.sqlite_vec:open_engine",
        "pgvector": "catalog.store.vectors.pgvector:open_engine",
        "exact": "catalog.store.vectors.exact:open_engine",
    },
}


@cache
def find_entry_point(group: Group, name: str) -> EntryPoint:
    """Return the entry point of that name; only for a name that is not ours packages are read.

    Raises :class:`UnknownEngineError`, which lists the names there are.
    """
    own = OURS[group]
    if name in own:
        return EntryPoint(name, own[name], group)
    others = {one.name: one for one in entry_points(group=group) if one.name not in own}
    if name not in others:
        raise UnknownEngineError(_unknown(group, name, [*own, *sorted(others)]))
    return others[name]


def load_entry_point(group: Group, name: str) -> Any:
    """Return what the entry point names; raises :class:`ConfigError` where it cannot be loaded."""
    found = find_entry_point(group, name)
    try:
        return found.load()
    except CatalogError:
        raise
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{group} {name!r} ({found.value}) cannot be loaded: {error}") from error


def _unknown(group: Group, name: str, known: Iterable[str]) -> str:
    kind = {"catalog.lexical": "keyword", "catalog.vectors": "vector"}[group]
    return (
        f"unknown {kind} engine {name!r}; engines: {', '.join(known)}; "
        f"a package may add others by the entry point {group}"
    )
