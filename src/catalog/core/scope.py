"""A search's scope: the documents that may answer, as a type with three kinds of value.

A truth test is an error on purpose: with ``if scope:`` an empty list would mean "everything".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn

from catalog.core.retrieval_events import holding

CALLER_ROLE: ContextVar[str | None] = ContextVar("catalog_role", default=None)
"""The role of whoever sent the current request."""


def asked_as(role: str | None) -> AbstractContextManager[object]:
    """Set the role of whoever sent the requests of the block."""
    return holding(CALLER_ROLE, role)


@dataclass(frozen=True, slots=True)
class Scope:
    """All documents, exactly these, or none; ``ids`` are source document ids, ``None`` for all."""

    ids: frozenset[str] | None

    @classmethod
    def of(cls, ids: Iterable[str] | None) -> Scope:
        """Return a scope of these source document ids: ``None`` is all documents, ``[]`` none."""
        return cls(None if ids is None else frozenset(ids))

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
        if self.ids is None or other.ids is None:
            return other if self.ids is None else self
        return Scope(self.ids & other.ids)

    def __bool__(self) -> NoReturn:
        raise TypeError("a Scope is neither true nor false: use is_all, is_nothing or allows()")


ALL = Scope.of(None)
