"""The protocol of the connections to a store, in a file or in Postgres."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine


class StorePool(Protocol):
    """Connect to a store, in one kind of database or another.

    ``file`` is the store's file, or how the names of files begin that belong beside it;
    ``shares_embedding`` says that several runs may embed at once, each what it has claimed.
    """

    engine: Engine
    file: Path
    shares_embedding: bool

    def begin_write(self, *, wait: bool) -> AbstractContextManager[Connection]:
        """Give a connection in a transaction that holds the write lock; commit on leaving."""
        ...

    def hold_preparation(self) -> AbstractContextManager[None]:
        """Hold the lock of whoever brings the schema up to date."""
        ...

    def hold_dataset(
        self, dataset: str, *, seconds: float, busy: str, on_wait: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Hold the lock of who indexes the dataset, against other homes of the same store."""
        ...

    def claim(self, keys: Collection[str]) -> AbstractContextManager[Collection[str]]:
        """Give those of the keys to embed that no other run has claimed, until it is left."""
        ...

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into ours."""
        ...

    def require_content(self) -> None:
        """Raise :class:`StoreDamagedError` where it can be seen that a store was emptied."""
        ...

    def follow(self, *, to_write: bool = False) -> None:
        """Drop connections that would not read what is there now."""
        ...

    def find_replacement(self) -> bool:
        """Tell whether another store is in the place of the one :meth:`note_identity` saw."""
        ...

    def note_identity(self) -> None:
        """Note which store the connections are to."""
        ...
