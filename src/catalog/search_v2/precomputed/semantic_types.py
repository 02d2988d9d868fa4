"""Settings, metadata and results of a search of precomputed embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypedDict, cast

import numpy as np
import numpy.typing as npt

from catalog.core.errors import SemanticConfigError

if TYPE_CHECKING:
    from catalog.core.agents import Agent

EmbeddingVector: TypeAlias = npt.NDArray[np.floating[Any]] | Sequence[float]
"""The numbers of one embedding, shape ``(dim,)``; any length but 0."""

CACHE_DIR: Final = ".emb_cache"
_MODELS: Final = {  # by the number of dimensions; the design's own model first
    1536: "text-embedding-3-small",
    3072: "text-embedding-3-large",
    1024: "embed-english-v3.0",
    768: "nomic-embed-text-v1.5",
    384: "bge-small-en-v1.5",
}


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


class _LazyContent:
    """A text, or a function that reads it at its first use."""

    def __get__(self, chunk: object | None, _owner: type) -> str | None:
        if chunk is None:
            return None  # the field's default
        content = chunk.__dict__["_content"]
        if callable(content):
            content = chunk.__dict__["_content"] = content()
        return cast("str | None", content)

    def __set__(self, chunk: object, content: str | Callable[[], str | None] | None) -> None:
        chunk.__dict__["_content"] = content


@dataclass(frozen=True, eq=False)
class ChunkWithScore:
    """A chunk that was found: its id, its cosine with the query (-1 to 1), its embedding.

    ``content`` is its text, read at its first use, ``None`` if not available. A score below 0 means
    that the vectors point in opposite directions; the default threshold of 0 excludes such chunks.
    """

    chunk_id: str
    score: float
    embedding: npt.NDArray[np.float32]
    metadata: EmbeddingMetadata
    content: _LazyContent = _LazyContent()


@dataclass(frozen=True, slots=True)
class AgentContextConfig:
    """How one agent searches: how many chunks, the least score, and the tags.

    A chunk with any of ``filter_by_tags`` passes; without tags every chunk does. Raises
    :class:`SemanticConfigError` for invalid values.
    """

    agent_name: str
    top_k: int = 5
    similarity_threshold: float = 0.0
    filter_by_tags: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.agent_name, str) or not self.agent_name.strip():
            raise SemanticConfigError("agent_name is empty: name the agent")
        check_top_k(self.top_k)
        _check_threshold(self.similarity_threshold)
        tags = self.filter_by_tags
        if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
            raise SemanticConfigError(f"filter_by_tags is {tags!r}: give a list of texts")

    @classmethod
    def of(cls, agent_name: str, agent: Agent) -> AgentContextConfig:
        """Return how the agent (``core.agents.read_agent``) searches embeddings."""
        names = ("top_k", "similarity_threshold")
        own = {name: agent.retrieval[name] for name in names if name in agent.retrieval}
        return cls(agent_name, filter_by_tags=agent.filter_by_tags, **own)


@dataclass(frozen=True, slots=True)
class RetrieverConfig:
    """The folder of the embeddings, and the defaults of a search.

    ``embedding_model`` is guessed from the number of dimensions by default. ``batch_size`` queries
    are compared at once. ``content_root`` is the folder of the files that sidecars name as
    ``source_file``; without it only files of the cache are read. Raises
    :class:`SemanticConfigError` for invalid values.
    """

    embedding_model: str | None = None
    cache_dir: str | Path = CACHE_DIR
    top_k: int = 5
    similarity_threshold: float = 0.0
    batch_size: int = 32
    content_root: str | Path | None = None

    def __post_init__(self) -> None:
        if not str(self.cache_dir).strip():
            raise SemanticConfigError("cache_dir is empty: name the folder of the embeddings")
        check_top_k(self.top_k)
        _check_threshold(self.similarity_threshold)
        _check_count("batch_size", self.batch_size)


def infer_model(dim: int) -> str:
    """Return the model that vectors of this many dimensions most likely come from."""
    return _MODELS.get(dim, f"unknown model of {dim} dimensions")


def check_top_k(top_k: int) -> None:
    """Raise :class:`SemanticConfigError` unless it is a whole number from 1 on."""
    _check_count("top_k", top_k)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise SemanticConfigError(f"{name} is {value!r}: use a whole number from 1 on")


def _check_threshold(value: object) -> None:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and -1 <= cast("float", value) <= 1):
        raise SemanticConfigError(f"similarity_threshold is {value!r}: use a number from -1 to 1")
