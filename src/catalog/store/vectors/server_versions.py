"""The collections that a dataset's index was built in, and the alias that names the live one.

A build goes into a collection of its own, ``{alias}@{fingerprint}`` (``~2`` at the end while the
first is live), and the alias is moved in one request when it is full: searches go on in the old
one until then. See docs/decisions/0040.
"""

from __future__ import annotations

import re

from qdrant_client import models

from catalog.core.ids import sha1_hex
from catalog.store.vectors.qdrant_server import QdrantServer


class CollectionVersions:
    """The collections behind one alias; ``fingerprint`` is the model's that they are built for."""

    def __init__(self, server: QdrantServer, alias: str, fingerprint: str) -> None:
        self.alias = alias
        self._server = server
        model = re.sub(r"[^\w.-]", "-", fingerprint)
        first = f"{alias}@{model}"
        self.own = (first, f"{first}~2")

    def live(self) -> str | None:
        """Return the collection that searches go to; ``None`` before the first was built.

        A collection that has the alias's own name is somebody else's: its note says so.
        """
        client = self._server.client
        for entry in self._server.call(client.get_aliases).aliases:
            if entry.alias_name == self.alias:
                return entry.collection_name
        return self.alias if self._server.call(client.collection_exists, self.alias) else None

    def free(self, live: str | None) -> str:
        """Return the name under which the next one is built."""
        return next(name for name in self.own if name != live)

    def publish(self, name: str, live: str | None) -> None:
        """Let the alias name this collection, at once, and drop what is of no more use.

        Another model's collection that was live until now is kept, to go back to it; of the same
        model none is.
        """
        client = self._server.client
        gone = models.DeleteAlias(alias_name=self.alias)
        made = models.CreateAlias(alias_name=self.alias, collection_name=name)
        changes: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=made)]
        if live is not None:
            changes.insert(0, models.DeleteAliasOperation(delete_alias=gone))
        self._server.call(client.update_collection_aliases, changes)
        previous = None if live in self.own else live
        for other in self._others(name, previous):
            self._server.call(client.delete_collection, other)

    def _others(self, *kept: str | None) -> list[str]:
        """Return what else was built for this alias."""
        there = self._server.call(self._server.client.get_collections).collections
        names = (collection.name for collection in there)
        return [name for name in names if name.startswith(f"{self.alias}@") and name not in kept]


def collection_name(prefix: str, dataset: str) -> str:
    """Return a name Qdrant accepts; a dataset name that it would not take gets a hash."""
    name = f"{prefix}{dataset}"
    plain = re.sub(r"[^\w.-]", "-", name)[:200]
    return name if plain == name else f"{plain}-{sha1_hex(name)[:8]}"
