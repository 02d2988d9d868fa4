"""The builders of ``catalog.testing`` by the name that our suites use."""

from catalog.testing.stores import NOW, drop, make_database, put, seqs_of

__all__ = ["NOW", "drop", "make_database", "put", "seqs_of"]
