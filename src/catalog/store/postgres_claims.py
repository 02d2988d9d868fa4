"""Which texts each of several runs on a Postgres store is embedding now.

A run locks the rows of its batch in a table beside the truth and passes over those that others
have locked (``FOR UPDATE SKIP LOCKED``). The locks are its transaction's: they end with the run,
however it ends. What a run finds claimed it looks at again later; what it has claimed it looks up
before it embeds it, since another may have been done with it a moment ago.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import Connection, Engine, text

_MAKE = text("CREATE UNLOGGED TABLE IF NOT EXISTS embedding_claims (embed_key text PRIMARY KEY)")
_NOTE = text(
    "INSERT INTO embedding_claims SELECT unnest(CAST(:keys AS text[])) ON CONFLICT DO NOTHING"
)
_LOCK = text(
    "SELECT embed_key FROM embedding_claims WHERE embed_key = ANY(:keys) FOR UPDATE SKIP LOCKED"
)
_DROP = text("DELETE FROM embedding_claims WHERE embed_key = ANY(:keys)")
# A model may take longer for a batch than the server lets a transaction rest.
_REST = text("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")


class Claims:
    """The claims of one process; ``hold_preparation`` is held while their table is made."""

    def __init__(
        self, engine: Engine, hold_preparation: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._engine, self._hold_preparation = engine, hold_preparation
        self._making = threading.Lock()
        self._has_table = False

    @contextmanager
    def take(self, keys: Collection[str]) -> Iterator[Collection[str]]:
        """Give those of the keys that no other run has, for as long as this is not left."""
        self._require_table()
        with self._begin() as connection:
            connection.execute(_NOTE, {"keys": sorted(keys)})  # in one order: nobody waits in turn
        with self._begin() as connection:
            connection.execute(_REST)
            mine = set(connection.scalars(_LOCK, {"keys": sorted(keys)}))
            yield mine
            connection.execute(_DROP, {"keys": sorted(mine)})

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            committed = connection.execution_options(isolation_level="READ COMMITTED")
            with committed.begin():
                yield committed

    def _require_table(self) -> None:
        with self._making:
            if not self._has_table:
                with self._hold_preparation(), self._begin() as connection:
                    connection.execute(_MAKE)
                self._has_table = True
