"""One collection of a Qdrant server: points in, nearest points out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import httpx
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from catalog.core.errors import EngineError
from catalog.core.filters import Op
from catalog.store.vectors.llama_store import MinimalQdrantVectorStore, as_node
from catalog.store.vectors.nearest import Found
from catalog.store.vectors.payload import CHUNK
from catalog.store.vectors.points import IndexPoint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T")
ServerCondition: TypeAlias = models.FieldCondition | models.HasIdCondition | models.Filter

ATTEMPTS = 4
_OWNER = "catalog"  # the key of the collection's metadata under which ours stands
_FAILURES = (ApiException, ResourceExhaustedResponse, httpx.HTTPError, OSError)


class ServerDialect:
    """Conditions as the client's models."""

    def has_any(self, key: str, values: Sequence[str]) -> ServerCondition:
        """A keyword match."""
        return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))

    def within(self, key: str, op: Op, bound: float) -> ServerCondition:
        """A range with one bound, or with both for EQ."""
        names = {Op.EQ: ("gte", "lte"), Op.GT: ("gt",), Op.GTE: ("gte",), Op.LT: ("lt",)}
        sides = dict.fromkeys(names.get(op, ("lte",)), bound)
        return models.FieldCondition(key=key, range=models.Range(**sides))

    def has_id(self, point_ids: Sequence[str]) -> ServerCondition:
        """Exactly these points."""
        return models.HasIdCondition(has_id=list(point_ids))

    def every(self, parts: Sequence[ServerCondition]) -> ServerCondition:
        """All of them."""
        return models.Filter(must=list(parts))

    def some(self, parts: Sequence[ServerCondition]) -> ServerCondition:
        """At least one of them."""
        return models.Filter(should=list(parts))

    def none(self, parts: Sequence[ServerCondition]) -> ServerCondition:
        """None of them."""
        return models.Filter(must_not=list(parts))


class QdrantServer:
    """A client whose calls are tried again while the server is away.

    Connection errors, 429 and 5xx are tried :data:`ATTEMPTS` times with growing pauses; what
    fails then raises :class:`EngineError` naming ``address``.
    """

    def __init__(self, client: QdrantClient, address: str, sleep: Callable[[float], None]) -> None:
        self.client = client
        self.address = address
        self._sleep = sleep

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The function's answer, sooner or later."""
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry=retry_if_exception(_is_transient),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(function, *args, **kwargs)
        except _FAILURES as error:
            raise EngineError(f"Qdrant at {self.address} failed: {_reason(error)}") from error

    def owner(self, collection: str) -> dict[str, Any] | None:
        """What we noted on the collection; ``None`` when it does not exist.

        Raises :class:`EngineError` for a collection that carries no note of ours.
        """
        if not self.call(self.client.collection_exists, collection):
            return None
        config = self.call(self.client.get_collection, collection).config
        note = (config.metadata or {}).get(_OWNER)
        if not isinstance(note, dict):
            raise EngineError(
                f"the collection {collection!r} at {self.address} was not made by catalog: "
                "choose another collection prefix"
            )
        return note

    def note(self, collection: str, note: dict[str, Any]) -> None:
        """Replace what we noted on the collection."""
        self.call(self.client.update_collection, collection, metadata={_OWNER: note})


class ServerIndex:
    """One collection, reached through LlamaIndex's store."""

    def __init__(self, server: QdrantServer, collection: str) -> None:
        self._server = server
        self._store = server.call(MinimalQdrantVectorStore, collection, server.client)

    @classmethod
    def create(
        cls, server: QdrantServer, collection: str, dim: int, note: dict[str, Any]
    ) -> ServerIndex:
        """A new empty collection, in place of one of that name, with its payload indexes."""
        server.call(server.client.delete_collection, collection)
        server.call(
            server.client.create_collection,
            collection,
            vectors_config=models.VectorParams(size=dim, distance=models.Distance.COSINE),
            metadata={_OWNER: note},
        )
        return cls(server, collection)

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id."""
        self._server.call(self._store.add, [as_node(point) for point in points])

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that are not there are fine, and so is none at all."""
        if len(point_ids) > 0:  # the store takes an empty list for everything
            self._server.call(self._store.delete_nodes, list(point_ids))

    def flush(self) -> None:
        """Nothing to do: every write waits for the server to keep it."""

    def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, condition: ServerCondition | None
    ) -> list[Found]:
        """The nearest points that meet the condition, best first, at most ``limit``."""
        query = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=limit)
        raw = None if condition is None else models.Filter(must=[condition])
        answer = self._server.call(self._store.query, query, qdrant_filters=raw)
        nodes, scores = answer.nodes or [], answer.similarities or []
        return [
            Found(node.metadata[CHUNK], score) for node, score in zip(nodes, scores, strict=True)
        ]


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, UnexpectedResponse):
        return error.status_code is None or error.status_code == 429 or error.status_code >= 500
    return isinstance(error, _FAILURES)


def _reason(error: BaseException) -> str:
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {error.reason_phrase}"
    return str(error) or type(error).__name__
