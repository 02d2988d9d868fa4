"""Search of embeddings that were computed earlier, without a call to any model.

``SemanticContextRetriever(cache_dir=".emb_cache").retrieve(query_embedding=vector, top_k=5)``
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypedDict, cast

import numpy as np
import numpy.typing as npt

from catalog.core import errors

SemanticRetrievalError = errors.SemanticRetrievalError
ConfigError = errors.SemanticConfigError  # the design's names
IndexError = errors.SemanticIndexError  # noqa: A001
QueryError = errors.SemanticQueryError

Floats = npt.NDArray[np.float32]
EmbeddingVector: TypeAlias = npt.NDArray[np.floating[Any]] | Sequence[float]
"""The numbers of one embedding, shape ``(dim,)``; any length but 0."""

CACHE_DIR: Final = ".emb_cache"
SIDECAR: Final = ".meta.json"
_NAME = re.compile(r"[0-9a-f]{64}")
_LONGEST: Final = 100_000  # characters of a chunk whose sidecar says no length
_MODELS: Final = {  # by the number of dimensions; the design's own model first
    1536: "text-embedding-3-small",
    3072: "text-embedding-3-large",
    1024: "embed-english-v3.0",
    768: "nomic-embed-text-v1.5",
    384: "bge-small-en-v1.5",
}

_log = logging.getLogger(__name__)


class EmbeddingMetadata(TypedDict, total=False):
    """Metadata of a chunk from its sidecar; other keys are kept."""

    source_file: str
    line_number: int
    tags: list[str]
    chunk_index: int
    chunk_length: int


class EmbeddingProvider(Protocol):
    """A source of queries' vectors; every LlamaIndex embedding model is one."""

    def get_query_embedding(self, query: str) -> list[float]:
        """Return the embedding of a query, by the model that embedded the chunks."""
        ...


@dataclass(frozen=True, eq=False)
class ChunkWithScore:
    """A chunk that was found: its id, its cosine with the query (-1 to 1), its embedding.

    ``source`` is its text, or a function that reads it. A score below 0 means that the vectors
    point in opposite directions; the default threshold of 0 excludes such chunks.
    """

    chunk_id: str
    score: float
    embedding: Floats
    metadata: EmbeddingMetadata
    source: str | Callable[[], str | None] | None = field(default=None, repr=False)

    @cached_property
    def content(self) -> str | None:
        """The chunk's text, read at its first use; ``None`` if not available."""
        return self.source() if callable(self.source) else self.source


@dataclass(frozen=True, slots=True)
class AgentContextConfig:
    """How one agent searches: how many chunks, the least score, and the tags.

    A chunk with any of ``filter_by_tags`` passes; without tags every chunk does. Raises
    :class:`ConfigError` for invalid values.
    """

    agent_name: str
    top_k: int = 5
    similarity_threshold: float = 0.0
    filter_by_tags: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.agent_name, str) or not self.agent_name.strip():
            raise ConfigError("agent_name is empty: name the agent")
        _check_count("top_k", self.top_k)
        _check_threshold(self.similarity_threshold)
        tags = self.filter_by_tags
        if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
            raise ConfigError(f"filter_by_tags is {tags!r}: give a list of texts")


@dataclass(frozen=True, slots=True)
class RetrieverConfig:
    """The folder of the embeddings, and the defaults of a search.

    ``embedding_model`` is guessed from the number of dimensions by default. ``batch_size`` queries
    are compared at once. ``content_root`` is the folder of the files that sidecars name as
    ``source_file``; without it only files of the cache are read. Raises :class:`ConfigError` for
    invalid values.
    """

    embedding_model: str | None = None
    cache_dir: str | Path = CACHE_DIR
    top_k: int = 5
    similarity_threshold: float = 0.0
    batch_size: int = 32
    content_root: str | Path | None = None

    def __post_init__(self) -> None:
        if not str(self.cache_dir).strip():
            raise ConfigError("cache_dir is empty: name the folder of the embeddings")
        _check_count("top_k", self.top_k)
        _check_threshold(self.similarity_threshold)
        _check_count("batch_size", self.batch_size)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigError(f"{name} is {value!r}: use a whole number from 1 on")


def _check_threshold(value: object) -> None:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and -1 <= cast("float", value) <= 1):
        raise ConfigError(f"similarity_threshold is {value!r}: use a number from -1 to 1")


class EmbeddingIndex:
    """Chunk ids with their embeddings and metadata, in order of the ids.

    ``matrix`` has shape ``(chunks, dim)``, as stored, not scaled. Immutable, and safe to share
    between threads.
    """

    def __init__(
        self,
        ids: Sequence[str],
        matrix: Floats,
        metadata: Mapping[str, EmbeddingMetadata] | None = None,
    ) -> None:
        self.ids = tuple(ids)
        self.matrix = matrix
        self.metadata = dict(metadata or {})
        self._norms: Floats = np.linalg.norm(matrix, axis=1)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """The number of dimensions; 0 in an empty index."""
        return int(self.matrix.shape[1]) if self.ids else 0

    def similarities(self, query_embeddings: Floats) -> Floats:
        """Return the cosines of all chunks with queries, shape ``(queries, chunks)``, -1 to 1.

        ``query_embeddings`` has shape ``(queries, dim)``. Vectors of zeros have the cosine 0.
        """
        products = np.dot(query_embeddings, self.matrix.T)
        lengths = np.linalg.norm(query_embeddings, axis=1)[:, None] * self._norms
        cosines: Floats = np.zeros_like(products)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        return np.clip(cosines, -1.0, 1.0, out=cosines)

    def check(self, query_embedding: EmbeddingVector) -> Floats:
        """Return a query's vector, shape ``(dim,)``, after checking that it can be searched.

        Raises :class:`QueryError` for another shape, NaN, infinity or a non-number.
        """
        vector = _as_vector(query_embedding)
        if vector.shape != (self.dim,):
            raise QueryError(
                f"the query vector has shape {vector.shape}, the index holds vectors of "
                f"{self.dim} dimensions: embed the query with the model that embedded the chunks"
            )
        return vector


def _as_vector(query_embedding: Any) -> Floats:
    try:
        vector = np.asarray(query_embedding, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise QueryError(f"the query vector is not a list of numbers: {error}") from error
    if not np.isfinite(vector).all():
        raise QueryError("the query vector holds NaN, infinity or a number beyond float32")
    return vector


def load_index(cache_dir: Path) -> EmbeddingIndex:
    """Return the embeddings of a folder; for a missing folder an empty index, with a warning.

    The folder contains::

        <64 hex digits>             a JSON array of numbers
        <64 hex digits>.meta.json   metadata of the chunk: a JSON object; may be missing

    A file that is not a JSON array of finite numbers is skipped, with a warning that names it; so
    is a folder with files of other names only. Raises :class:`IndexError` for vectors of different
    dimensions, and for a folder that cannot be listed.
    """
    if not cache_dir.is_dir():
        _log.warning("no embeddings: there is no folder %s", cache_dir)
        return EmbeddingIndex((), np.empty((0, 0), dtype=np.float32))
    try:
        there = {file.name for file in cache_dir.iterdir() if file.is_file()}
    except OSError as error:
        raise IndexError(f"cannot read the folder {cache_dir}: {error}") from error
    names = sorted(name for name in there if _NAME.fullmatch(name))
    if there and not names:
        told = "no embeddings: none of the %d files in %s has 64 hexadecimal digits as its name"
        _log.warning(f"{told}; one is %s", len(there), cache_dir, min(there))
    read = {name: _read_vector(cache_dir / name) for name in names}
    rows = {name: vector for name, vector in read.items() if vector is not None}
    counts = Counter(map(len, rows.values())).most_common()
    if len(counts) > 1:
        told = ", ".join(f"{count} of {dim}" for dim, count in counts)
        other = next(name for name, row in rows.items() if len(row) != counts[0][0])
        raise IndexError(
            f"the folder holds vectors of different dimensions ({told}), which no query can be "
            f"compared with: remove those of another model, such as {other}"
        )
    matrix = np.stack([*rows.values()]) if rows else np.empty((0, 0), dtype=np.float32)
    described = (name for name in rows if name + SIDECAR in there)
    metadata = {name: _read_sidecar(cache_dir / (name + SIDECAR)) for name in described}
    return EmbeddingIndex([*rows], matrix, metadata)


def _read_vector(file: Path) -> Floats | None:
    """Return the numbers in a file; ``None`` with a warning if they are not a vector."""
    try:
        return _finite_vector(json.loads(file.read_bytes()))
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        _log.warning("left out: %s: %s", file.name, error)
        return None


def _finite_vector(numbers: object) -> Floats:
    if not isinstance(numbers, list) or not numbers or {*map(type, numbers)} - {int, float}:
        raise ValueError("it is not an array of numbers")
    with np.errstate(over="ignore"):
        vector = np.array(numbers, np.float64).astype(np.float32)
        if not np.isfinite(np.linalg.norm(vector)):
            raise ValueError("it holds NaN, infinity or a number too large")
    return vector


def _read_sidecar(file: Path) -> EmbeddingMetadata:
    try:
        return cast("EmbeddingMetadata", dict(**json.loads(file.read_bytes())))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        _log.warning("no metadata: %s is not a JSON object: %s", file.name, error)
        return {}


class SemanticContextRetriever:
    """Find the chunks of a folder of embeddings whose vectors are nearest to a query's.

    All chunks are compared, then filtered; equal scores are in order of the chunks' ids. The folder
    is read at once; :meth:`reload` reads it again. Safe to share between threads. Raises
    :class:`ConfigError` for invalid settings and :class:`IndexError` for a folder with vectors of
    different dimensions.
    """

    def __init__(
        self,
        cache_dir: str | Path = CACHE_DIR,
        *,
        config: RetrieverConfig | None = None,
        provider: EmbeddingProvider | None = None,
    ) -> None:
        self.config = config or RetrieverConfig(cache_dir=cache_dir)
        self.provider = provider
        self.reload()

    @property
    def embedding_model(self) -> str:
        """The model of the embeddings: as set, or else guessed from their dimensions."""
        dim = self.index.dim
        guessed = _MODELS.get(dim, f"unknown model of {dim} dimensions")
        return self.config.embedding_model or guessed

    def reload(self) -> None:
        """Read every file of the folder again."""
        self.index: EmbeddingIndex = load_index(Path(self.config.cache_dir))

    def embed(self, query: str, provider: EmbeddingProvider | None = None) -> EmbeddingVector:
        """Return the provider's embedding of a query; raise :class:`QueryError` without one."""
        if (provider := provider or self.provider) is None:
            raise QueryError("no embedding of the query: give a query_embedding, or a provider")
        return provider.get_query_embedding(query)

    def retrieve(
        self,
        query_embedding: EmbeddingVector | None = None,
        top_k: int | None = None,
        config: AgentContextConfig | None = None,
        *,
        query: str | None = None,
    ) -> list[ChunkWithScore]:
        """Return the ``top_k`` nearest chunks, best first; fewer if fewer pass the config.

        ``query_embedding`` has shape ``(dim,)`` and any length; a ``query`` is embedded by the
        ``provider`` instead. This ``top_k`` takes precedence over the agent's, and that over the
        retriever's. An empty index gives ``[]``. Raises :class:`ConfigError` for a ``top_k`` below
        1 and :class:`QueryError` for a vector of another dimension, with NaN or infinity, and for a
        query without a provider.
        """
        if query_embedding is None and query is not None:
            query_embedding = self.embed(query)
        return self.retrieve_batch([cast("EmbeddingVector", query_embedding)], top_k, config)[0]

    def retrieve_batch(
        self,
        query_embeddings: Sequence[EmbeddingVector],
        top_k: int | None = None,
        config: AgentContextConfig | None = None,
    ) -> list[list[ChunkWithScore]]:
        """Return the results of :meth:`retrieve` for each query, in order.

        ``batch_size`` queries are compared at once, which takes 4 bytes for each chunk and query.
        """
        index, settings = self.index, config or self.config
        count = settings.top_k if top_k is None else top_k
        _check_count("top_k", count)
        if len(index) == 0:
            return [[] for _ in map(_as_vector, query_embeddings)]
        vectors = [index.check(vector) for vector in query_embeddings]
        wanted = frozenset(config.filter_by_tags if config else ())
        passes = np.array([not wanted or _has_tag(index, name, wanted) for name in index.ids])
        found, size = list[list[ChunkWithScore]](), self.config.batch_size
        for start in range(0, len(vectors), size):
            for scores in index.similarities(np.stack(vectors[start : start + size])):
                rows = np.flatnonzero(passes & (scores >= settings.similarity_threshold))
                best = rows[np.lexsort((rows, -scores[rows]))][:count]
                found.append([self._chunk(index, int(row), float(scores[row])) for row in best])
        return found

    def _chunk(self, index: EmbeddingIndex, row: int, score: float) -> ChunkWithScore:
        chunk_id = index.ids[row]
        metadata = index.metadata.get(chunk_id, EmbeddingMetadata())
        content = partial(read_content, metadata, self.config.content_root)
        return ChunkWithScore(chunk_id, score, index.matrix[row], metadata, content)


def _has_tag(index: EmbeddingIndex, chunk_id: str, wanted: frozenset[str]) -> bool:
    """Return whether a chunk has one of the tags; only a list of texts has tags."""
    tags = index.metadata.get(chunk_id, {}).get("tags")
    return isinstance(tags, list) and any(isinstance(tag, str) and tag in wanted for tag in tags)


def read_content(metadata: EmbeddingMetadata, root: str | Path | None) -> str | None:
    """Return a chunk's text: ``chunk_length`` characters from ``line_number`` of ``source_file``.

    ``None`` without a root, for a file outside it, and if the file or line does not exist.
    """
    source, line = metadata.get("source_file"), metadata.get("line_number", 1)
    length = metadata.get("chunk_length", _LONGEST)
    are_counts = all(type(value) is int and value >= 1 for value in (line, length))
    if root is None or not isinstance(source, str) or not are_counts:
        return None
    try:
        file = (Path(root) / source).resolve()
        if not (file.is_relative_to(Path(root).resolve()) and file.is_file()):
            return None
        text = file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
    lines = text.splitlines(keepends=True)
    return "".join(lines[line - 1 :])[:length] if line <= len(lines) else None
