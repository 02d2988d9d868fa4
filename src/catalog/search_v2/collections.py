"""Search a Qdrant collection that other software filled, without a store and without writing.

``CollectionSearch`` answers with results and stages, ``CollectionRetriever`` with LlamaIndex nodes.
See docs/how-to/qdrant-collection.md.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from catalog.core.errors import ConfigError, EmbeddingMismatchError, InputError, QueryError
from catalog.core.filters import parse_filters
from catalog.core.results import CollectionResult, CollectionResults
from catalog.core.settings import CollectionSettings, Settings, get_settings
from catalog.core.settings.loading import with_section
from catalog.core.text import compose, storable
from catalog.embedding import EmbeddingModel, as_model, get_model
from catalog.retrieval.parts import StageLog
from catalog.retrieval.request import one_of
from catalog.search_v2.fused_retrievers import StoreRetriever
from catalog.store.vectors.foreign_collection import (
    CollectionShape,
    ForeignCollection,
    ForeignPoint,
    payload_condition,
)
from catalog.store.vectors.qdrant import QdrantServer, open_client

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from llama_index.core.callbacks import CallbackManager
    from qdrant_client import QdrantClient


_log = logging.getLogger(__name__)


def read_points(
    points: Iterable[ForeignPoint], names: CollectionSettings
) -> tuple[list[CollectionResult], list[str]]:
    """Return a result for each point, in order, and how many lacked which field.

    A point whose field is missing or not a text is still a result, without the field. A list of
    headings is joined, a number becomes its digits.
    """
    problems: Counter[str] = Counter()

    def text_of(point: ForeignPoint, name: str) -> str:
        value = find_field(point.payload, name)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = " > ".join(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value:
            return storable(value)
        problems[
            f"without {name}" if value in (None, "") else f"with a {name} that is no text"
        ] += 1
        return ""

    results = []
    for rank, point in enumerate(points, start=1):
        said = {name: text_of(point, str(getattr(names, name))) for name in FIELDS}
        source, number = said["source_url"], said["chunk_index"]
        if number and not number.isdecimal():
            problems[f"with a {names.chunk_index} that is no number"] += 1
        named = ", ".join(dict.fromkeys(filter(None, (said["page_title"], said["section"]))))
        at = source or f"point {point.id}"
        result = CollectionResult(
            rank=rank,
            score=point.score,
            path=source or point.id,
            source_doc_id=source or point.id,
            chunk_id=point.id,
            title=said["page_title"],
            text=said["text"],
            source_url=source or None,
            section=said["section"],
            chunk_index=int(number) if number.isdecimal() else None,
            citation=f"{named} ({at})" if named else at,
            is_low=point.score < names.low_score_below,
        )
        results.append(result)
    told = (f"{count} passage{'s'[: count > 1]} {problem}" for problem, count in problems.items())
    return results, [*told]


def find_field(payload: dict[str, Any], name: str) -> Any:
    """Return the value of a dotted name, else ``None``.

    Some software stores JSON as text (LlamaIndex: ``_node_content.text``); that is parsed.
    """
    if name in payload:
        return payload[name]
    value: Any = payload
    for part in name.split("."):
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        value = value.get(part) if isinstance(value, dict) else None
    return value


FIELDS = ("source_url", "page_title", "section", "chunk_index", "text")
MOST = 1_000  # passages of an answer
SAMPLED = 5  # points that are embedded again to see whose model it is
SAME_MODEL = 0.7  # of a mean cosine: docs/decisions/0039 has the measurements


class CollectionSearch(AbstractContextManager["CollectionSearch"]):
    """Search one collection by meaning, with the embedding model of the settings.

    ``name`` is by default ``IDX_COLLECTION__NAME``. A given ``client`` or model replaces that of
    the settings, and its owner closes it. Nothing is opened before the first search, and nothing is
    ever written. Thread-safe.

    Examples:
        >>> from catalog.search_v2 import CollectionSearch
        >>> with CollectionSearch(name="rag_content_chunks") as book:  # at IDX_COLLECTION__URL
        ...     results = book.search("How do I simulate physics?", top_k=1)
        >>> results[0].citation
        'Digital Twin, Physics in Gazebo (https://book.example/gazebo)'
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        name: str | None = None,
        client: QdrantClient | None = None,
        embed_model: EmbeddingModel | BaseEmbedding | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings or get_settings()
        chosen = self._settings.collection
        self.fields: CollectionSettings = chosen
        if not (name or chosen.name):
            raise ConfigError("no collection is named: set IDX_COLLECTION__NAME, or name one")
        self.name = name or chosen.name or ""
        self._owns_client = client is None
        server = QdrantServer(
            client or _open_client(self._settings), seconds=chosen.timeout_seconds, sleep=sleep
        )
        self._collection = ForeignCollection(server, self.name, chosen.vector)
        self._given_model = embed_model

    @property
    def address(self) -> str:
        """Return the address of the server, without credentials."""
        return self._collection.server.address

    @cached_property
    def model(self) -> EmbeddingModel:
        """Return the model that embeds queries."""
        settings = self._settings
        return as_model(self._given_model or get_model(settings.embedding, rag=settings.rag_v2))

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        filters: object = None,
        threshold: float | None = None,
        embedding: Sequence[float] | npt.NDArray[np.float32] | None = None,
    ) -> CollectionResults:
        """Return the nearest passages, best first; ``embedding`` replaces the query's own.

        ``filters`` are like a search's, on ``source_url`` (as a whole), ``page_title`` and
        ``section`` (by their words), and on every field with an index in the collection. A
        ``threshold`` leaves out lower scores. Raises :class:`EngineError` if the server cannot be
        reached, :class:`EmbeddingMismatchError` for a model of another dimension,
        :class:`ConfigError` if no passage has the field of the text, and :class:`InputError` for an
        invalid query, filter or number.
        """
        started = time.perf_counter()
        rag, stages = self._settings.rag_v2, StageLog()
        text = compose(storable(" ".join(query.split())))[: rag.max_query_chars]
        if not text:
            raise QueryError("the query is empty")
        count = rag.top_k if top_k is None else top_k
        if not isinstance(count, int) or not 1 <= count <= MOST:
            raise InputError(f"top_k must be a number from 1 to {MOST}, not {count!r}")
        tree = parse_filters(filters)
        with stages.run("collection") as notes:
            shape = self._collection.shape
            notes.append(f"{shape.dim} dimensions, {shape.distance}")
        keys = {name: name for name in shape.indexes}
        keys |= {name: str(getattr(self.fields, name)) for name in FIELDS[:-1]}
        condition = None if tree is None else payload_condition(tree, keys)
        with stages.run("embedding") as notes:
            vector = self._vector(text, embedding, shape)
            notes += ["the query's own embedding"] if embedding is not None else []
        threshold = self.fields.threshold if threshold is None else threshold
        with stages.run("vector") as notes:
            notes += [] if tree is None else ["filtered"]
            points = self._collection.nearest(vector, count, condition, threshold)
        with stages.run("payload") as notes:
            results, problems = read_points(points, self.fields)
            notes += problems
        if results and not any(result.text for result in results):
            self._check_text_field([*points, *self._collection.sample(SAMPLED)])
        return CollectionResults(
            tuple(results),
            query=text,
            dataset=self.name,
            stages=tuple(stages.reports),
            elapsed_ms=(time.perf_counter() - started) * 1000,
        )

    def check(self) -> dict[str, Any]:
        """Describe the collection as data, and whether the settings fit it.

        ``fields`` counts the sampled points that have each field. ``agreement`` is the mean cosine
        of their vectors with those that the configured model gives their texts, ``None`` without
        texts. It is near 1 if that model filled the collection.
        """
        shape = self._collection.shape
        points = self._collection.sample(SAMPLED)
        names = {name: str(getattr(self.fields, name)) for name in FIELDS}
        filled = {
            name: sum(find_field(point.payload, key) not in (None, "") for point in points)
            for name, key in names.items()
        }
        texts = [(find_field(point.payload, names["text"]), point.vector) for point in points]
        pairs = [(text, vector) for text, vector in texts if isinstance(text, str) and vector]
        dim = self.model.encoder.dim
        agreement = self._agreement(pairs) if dim == shape.dim and pairs else None
        return {
            "collection": self.name,
            "address": self.address,
            "points": self._collection.count(),
            "vector": shape.vector,
            "dim": shape.dim,
            "distance": shape.distance,
            "indexes": dict(shape.indexes),
            "payload": names,
            "sampled": len(points),
            "fields": filled,
            "model": self.model.encoder.model,
            "model_dim": dim,
            "agreement": agreement,
            "fits": dim == shape.dim and (agreement is None or agreement >= SAME_MODEL),
        }

    def close(self) -> None:
        """Close the client unless its caller owns it."""
        if self._owns_client:
            self._collection.server.client.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _vector(
        self,
        text: str,
        embedding: Sequence[float] | npt.NDArray[np.float32] | None,
        shape: CollectionShape,
    ) -> npt.NDArray[np.float32]:
        import numpy as np

        if embedding is None:
            vector, whose = self.model.embed_query(text), self.model.encoder.model
        else:
            vector, whose = np.asarray(embedding, np.float32), "the query's own embedding"
        if len(vector) != shape.dim:
            raise EmbeddingMismatchError(
                f"the vectors of {self.name!r} have {shape.dim} numbers, those of {whose} "
                f"{len(vector)}: set the model that filled the collection (IDX_EMBEDDING__*)"
            )
        return vector

    def _check_text_field(self, points: Sequence[ForeignPoint]) -> None:
        """Raise :class:`ConfigError`, naming the fields there are, if no point has the text."""
        name = self.fields.text
        if not any(find_field(point.payload, name) for point in points):
            fields = chain.from_iterable(point.payload.items() for point in points)
            there = dict.fromkeys(field for field, value in fields if isinstance(value, str))
            raise ConfigError(
                f"no passage of {self.name!r} has a field {name!r} with its text; fields with "
                f"text: {', '.join(there) or 'none'}; set IDX_COLLECTION__TEXT, or "
                "fields={'text': …}"
            )

    def _agreement(self, pairs: list[tuple[str, list[float]]]) -> float:
        import numpy as np

        result = self.model.embed([self.model.document_prefix + text for text, _ in pairs])
        cosines = [
            float(np.dot(own, np.asarray(stored)) / (np.linalg.norm(own) * np.linalg.norm(stored)))
            for own, (_, stored) in zip(result.vectors, pairs, strict=True)
            if own is not None and np.any(stored)
        ]
        return round(float(np.mean(cosines)), 4) if cosines else 0.0


class CollectionRetriever(StoreRetriever):
    """A collection that other software filled, as a LlamaIndex retriever.

    ``fields`` names the payload's fields, as ``{"text": "page_content", "source_url":
    "metadata.url"}``, and its ``vector`` if it has a name. Parameters that are not given come from
    the settings (``IDX_COLLECTION__*``). Each node's metadata has those of ``source_url``,
    ``page_title``, ``section`` and ``chunk_index`` that exist, ``citation``, and ``low_score`` if
    the score is low. ``top_k`` may have LlamaIndex's name, ``similarity_top_k``.

    Examples:
        >>> from catalog.search_v2 import CollectionRetriever
        >>> retriever = CollectionRetriever("http://localhost:6333", "rag_content_chunks", top_k=1)
        >>> [node.metadata["section"] for node in retriever.retrieve("How do I simulate physics?")]
        ['Physics in Gazebo']
        >>> retriever.close()
    """

    def __init__(
        self,
        url: str | None = None,
        collection: str | None = None,
        *,
        fields: dict[str, Any] | None = None,
        api_key: str | None = None,
        top_k: int | None = None,
        similarity_top_k: int | None = None,
        threshold: float | None = None,
        filters: object = None,
        client: QdrantClient | None = None,
        embed_model: EmbeddingModel | BaseEmbedding | None = None,
        settings: Settings | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        given = {"url": url, "api_key": api_key, "name": collection, "threshold": threshold}
        changes = {name: value for name, value in given.items() if value is not None}
        changed = with_section(settings or get_settings(), "collection", changes | (fields or {}))
        self._search = CollectionSearch(changed, client=client, embed_model=embed_model)
        self.similarity_top_k = one_of(top_k=top_k, similarity_top_k=similarity_top_k)
        self._filters = parse_filters(filters)
        super().__init__(callback_manager)

    def close(self) -> None:
        """Close the client unless its caller owns it."""
        self._search.close()

    def _find(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        given = query_bundle.embedding
        is_fit = given is not None and len(given) == self._search._collection.shape.dim
        results = self._search.search(
            query_bundle.query_str,
            top_k=self.similarity_top_k,
            filters=self._filters,
            embedding=given if is_fit else None,
        )
        if blank := sum(not result.text for result in results):
            field = self._search.fields.text
            _log.warning("%d of %d passages have no text in %r", blank, len(results), field)
        nodes = []
        for result in results:
            told = {
                "source_url": result.source_url,
                "page_title": result.title or None,
                "section": result.section or None,
                "chunk_index": result.chunk_index,
                "citation": result.citation,
                "low_score": result.is_low or None,
            }
            metadata = {name: value for name, value in told.items() if value is not None}
            node = TextNode(id_=result.chunk_id, text=result.text, metadata=metadata)
            nodes.append(NodeWithScore(node=node, score=result.score))
        return nodes


def _open_client(settings: Settings) -> QdrantClient:
    chosen, rag = settings.collection, settings.rag_v2
    if (url := chosen.url or rag.qdrant_url) is None:
        raise ConfigError("no Qdrant server is set: IDX_COLLECTION__URL=http://host:6333")
    # do not send the key of one server to another
    key = chosen.api_key or (rag.qdrant_api_key if chosen.url in (None, rag.qdrant_url) else None)
    return open_client(url, key, chosen.timeout_seconds)
