"""Which documents a role may see: those of its levels of confidentiality."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from catalog.core.errors import InputError
from catalog.core.scope import Scope
from catalog.store.document_names import read_levels

if TYPE_CHECKING:
    from catalog.core.settings import Settings
    from catalog.store import Database

UNLABELLED = "unlabelled"
"""The level, in a role's list, of documents that state none."""


def role_scope(
    database: Database, settings: Settings, role: str | None, datasets: Iterable[str]
) -> Scope:
    """Return the documents of the datasets that a role may see; all without a role.

    A document is seen by who may see all its levels, whatever their case. Raises
    :class:`InputError` for a role that the settings do not name.
    """
    if role is None:
        return Scope.all()
    roles = settings.answers.levels()
    if role not in roles:
        known = f"roles: {', '.join(roles)}" if roles else "set some as IDX_ANSWERS__ROLES"
        raise InputError(f"there is no role {role!r}; {known}")
    seen = roles[role]
    with database.read() as connection:
        levels = read_levels(connection, datasets)
    return Scope.of(name for name, stated in levels.items() if (stated or {UNLABELLED}) <= seen)
