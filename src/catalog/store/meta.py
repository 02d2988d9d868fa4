"""The store's own settings: small texts by key."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from catalog.store.schema import meta


def read_meta(connection: Connection, key: str) -> str | None:
    """The value of a key, if it has one."""
    value: str | None = connection.scalar(select(meta.c.value).where(meta.c.key == key))
    return value


def set_meta(connection: Connection, key: str, value: str, *, replace: bool = True) -> None:
    """Set a key; one that has a value keeps it unless ``replace``."""
    present = read_meta(connection, key) is not None
    if present and replace:
        connection.execute(update(meta).where(meta.c.key == key).values(value=value))
    elif not present:
        connection.execute(insert(meta).values(key=key, value=value))
