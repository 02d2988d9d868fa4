"""The store in SQL, and the lexical and vector indexes derived from it."""

from catalog.store.database import Database

__all__ = ["Database"]
