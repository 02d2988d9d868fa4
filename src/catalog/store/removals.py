"""Removing a dataset from the truth, with a note of it until nothing derived is left."""

from __future__ import annotations

import json
import secrets

from sqlalchemy import Connection, delete, func, insert, select

from catalog.store import embedding_cache, llm_cache
from catalog.store.database import INDEX_TOKENS, read_meta, set_meta
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, datasets, documents, meta, outbox

_NOTE = "removed:"  # with a dataset's name: what was derived of it may still be there
_OF_DATASET = ("agreement:", "answer_bound:", "waiting:", _NOTE, INDEX_TOKENS)
_LEARNT = "balance:"  # with a hash: the entry itself says of which dataset it is


def remove_dataset(connection: Connection, dataset: str, now: float) -> tuple[int, int]:
    """Remove a dataset with all that hangs on it, and what only it needed of the caches.

    Return the numbers of its documents and chunks. No index of it is of the truth any more, and a
    note says that it is to be removed, until :func:`forget_removal`. Answers that a stopped
    evaluation keeps go, whichever dataset they are from. What was asked, and what was measured on
    it, stays.
    """
    counts = [
        connection.scalar(select(func.count()).where(table.c.dataset == dataset)) or 0
        for table in (documents, chunks)
    ]
    connection.execute(delete(datasets).where(datasets.c.name == dataset))
    connection.execute(delete(outbox).where(outbox.c.dataset == dataset))
    learnt = select(meta.c.key, meta.c.value).where(meta.c.key.startswith(_LEARNT))
    of_it = [key for key, value in connection.execute(learnt) if _owner(value) == dataset]
    of_it += [f"{kind}{dataset}" for kind in _OF_DATASET]
    connection.execute(delete(meta).where(among(meta.c.key, of_it)))
    set_meta(connection, f"{INDEX_TOKENS}{dataset}", secrets.token_hex(16))
    connection.execute(insert(meta).values(key=f"{_NOTE}{dataset}", value="yes"))
    embedding_cache.purge_unused(connection)
    llm_cache.purge(connection, before=0.0)
    llm_cache.drop_expired(connection, "answer", before=now)
    return counts[0], counts[1]


def is_removed(connection: Connection, dataset: str) -> bool:
    """Tell whether what was derived of a removed dataset may still be there."""
    return read_meta(connection, f"{_NOTE}{dataset}") is not None


def list_removed(connection: Connection) -> list[str]:
    """Return the names of removed datasets of which something derived may still be there."""
    keys = connection.scalars(select(meta.c.key).where(meta.c.key.startswith(_NOTE)))
    return sorted(key.removeprefix(_NOTE) for key in keys)


def forget_removal(connection: Connection, dataset: str) -> None:
    """Drop the note: nothing is left, or the name is given again and its indexes are made anew."""
    connection.execute(delete(meta).where(meta.c.key == f"{_NOTE}{dataset}"))


def _owner(learnt: str) -> object:
    try:
        return json.loads(learnt).get("of")
    except (ValueError, AttributeError):
        return None
