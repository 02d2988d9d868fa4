"""A search's scope: the documents that may answer, as a type with three kinds of value.

A truth test on a scope is an error on purpose: with ``if scope:`` an empty access list would mean
"everything".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn

_CALLER: ContextVar[str | None] = ContextVar("catalog_role", default=None)


def caller_role() -> str | None:
    """Return the role of whoever sent the current request; ``None`` for no role."""
    return _CALLER.get()


@contextmanager
def asked_as(role: str | None) -> Iterator[None]:
    """Set the role of whoever sent the requests of the block."""
    token = _CALLER.set(role)
    try:
        yield
    finally:
        _CALLER.reset(token)


@dataclass(frozen=True, slots=True)
class Scope:
    """All documents, exactly these, or none.

    Build it with :meth:`all`, :meth:`of` or :meth:`nothing`. ``ids`` holds source document
    ids and is ``None`` only for :meth:`all`.
    """

    ids: frozenset[str] | None

    @classmethod
    def all(cls) -> Scope:
        """Return a scope without restriction."""
        return cls(None)

    @classmethod
    def of(cls, ids: Iterable[str]) -> Scope:
        """Return a scope of exactly these source document ids; without ids it is nothing."""
        return cls(frozenset(ids))

    @classmethod
    def nothing(cls) -> Scope:
        """Return a scope in which no document may answer."""
        return cls.of(())

    @classmethod
    def from_doc_ids(cls, doc_ids: Iterable[str] | None) -> Scope:
        """Return the scope of ``doc_ids``: ``None`` selects all documents, ``[]`` no document."""
        return cls.all() if doc_ids is None else cls.of(doc_ids)

    @property
    def is_all(self) -> bool:
        """Return whether nothing is restricted."""
        return self.ids is None

    @property
    def is_nothing(self) -> bool:
        """Return whether no document may answer."""
        return self.ids is not None and len(self.ids) == 0

    def allows(self, source_doc_id: str) -> bool:
        """Return whether that document may answer."""
        return self.ids is None or source_doc_id in self.ids

    def datasets(self) -> frozenset[str]:
        """Return the datasets of the documents; of all documents none are known."""
        return frozenset(one.partition(":")[0] for one in self.ids or ())

    def __and__(self, other: Scope) -> Scope:
        if self.ids is None:
            return other
        return self if other.ids is None else Scope(self.ids & other.ids)

    def __bool__(self) -> NoReturn:
        raise TypeError("a Scope is neither true nor false: use is_all, is_nothing or allows()")


ALL = Scope.all()
