"""Parts that installed packages add by entry point: engines, embedding providers, readers.

The groups are ``catalog.lexical``, ``catalog.vectors``, ``catalog.embeddings`` and
``catalog.readers``. Our own parts are listed in ``pyproject.toml``, too, but each family knows them
by name: a command that needs no other package's part must not read the metadata of all packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def find(group: str, name: str) -> object | None:
    """Return what an installed package adds to a group under a name; ``None`` if none does.

    Raises :class:`ConfigError` for one that cannot be imported.
    """
    point = list_added(group).get(name)
    if point is None:
        return None
    try:
        return point.load()  # type: ignore[no-any-return]
    except Exception as error:
        package = point.dist.name if point.dist else point.value
        raise ConfigError(
            f"{name!r} of {group} cannot be imported from {package}: {error}"
        ) from error


@cache
def list_added(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, without importing what they name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}
