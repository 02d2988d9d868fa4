"""Search of a folder of embeddings by a query's vector, with no call to any model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from catalog.search_v2.precomputed.embedding_index import (
    EmbeddingIndex,
    Floats,
    Progress,
    as_vector,
    load_index,
)
from catalog.search_v2.precomputed.semantic_types import (
    CACHE_DIR,
    AgentContextConfig,
    ChunkWithScore,
    EmbeddingMetadata,
    EmbeddingVector,
    RetrieverConfig,
    check_top_k,
    infer_model,
)

_LONGEST = 100_000  # characters of a chunk whose sidecar says no length


class SemanticContextRetriever:
    """Find the chunks of a folder of embeddings whose vectors are nearest to a query's.

    All chunks are compared, then filtered; equal scores are in order of the chunks' ids. The folder
    is read at once, or mapped from its snapshot; :meth:`reload` reads it again. Safe to share
    between threads. Raises :class:`SemanticConfigError` for invalid settings and
    :class:`SemanticIndexError` for a folder with vectors of different dimensions.
    """

    def __init__(
        self,
        cache_dir: str | Path = CACHE_DIR,
        *,
        config: RetrieverConfig | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.config = config or RetrieverConfig(cache_dir=cache_dir)
        self.index: EmbeddingIndex = load_index(Path(self.config.cache_dir), progress=progress)

    @property
    def embedding_model(self) -> str:
        """The model of the embeddings: as set, or else guessed from their dimensions."""
        return self.config.embedding_model or infer_model(self.index.dim)

    def reload(self, progress: Progress | None = None) -> None:
        """Read every file of the folder again."""
        self.index = load_index(Path(self.config.cache_dir), progress=progress, fresh=True)

    def retrieve(
        self,
        query_embedding: EmbeddingVector,
        top_k: int | None = None,
        config: AgentContextConfig | None = None,
    ) -> list[ChunkWithScore]:
        """Return the ``top_k`` nearest chunks, best first; fewer if fewer pass the config.

        ``query_embedding`` has shape ``(dim,)`` and any length. This ``top_k`` takes precedence
        over the agent's, and that over the retriever's. An empty index gives ``[]``. Raises
        :class:`SemanticConfigError` for a ``top_k`` below 1 and :class:`SemanticQueryError` for a
        vector of another dimension, or with NaN or infinity.
        """
        return self.retrieve_batch([query_embedding], top_k, config)[0]

    def retrieve_batch(
        self,
        query_embeddings: Sequence[EmbeddingVector],
        top_k: int | None = None,
        config: AgentContextConfig | None = None,
    ) -> list[list[ChunkWithScore]]:
        """Return the results of :meth:`retrieve` for each query, in order.

        ``batch_size`` queries are compared at once, which takes 4 bytes for each chunk and query.
        """
        index = self.index
        count = self._top_k(top_k, config)
        if len(index) == 0:
            return [[] for _ in map(as_vector, query_embeddings)]
        vectors = [index.check(vector) for vector in query_embeddings]
        size, found = self.config.batch_size, list[list[ChunkWithScore]]()
        for start in range(0, len(vectors), size):
            for scores in index.similarities(np.stack(vectors[start : start + size])):
                found.append(self._best(index, scores, count, config))
        return found

    def _top_k(self, top_k: int | None, config: AgentContextConfig | None) -> int:
        if top_k is not None:
            check_top_k(top_k)
            return top_k
        return self.config.top_k if config is None else config.top_k

    def _best(
        self, index: EmbeddingIndex, scores: Floats, k: int, config: AgentContextConfig | None
    ) -> list[ChunkWithScore]:
        settings = self.config if config is None else config
        is_near = scores >= settings.similarity_threshold
        if config is not None and len(config.filter_by_tags) > 0:
            is_near &= _tagged(index, frozenset(config.filter_by_tags))
        rows = np.flatnonzero(is_near)
        order = rows[np.lexsort((rows, -scores[rows]))][:k]
        return [self._chunk(index, int(row), float(scores[row])) for row in order]

    def _chunk(self, index: EmbeddingIndex, row: int, score: float) -> ChunkWithScore:
        chunk_id = index.ids[row]
        metadata = index.metadata.get(chunk_id, EmbeddingMetadata())
        content: Any = partial(read_content, metadata, self.config.content_root)
        return ChunkWithScore(chunk_id, score, index.matrix[row], metadata, content)


def _tagged(index: EmbeddingIndex, wanted: frozenset[str]) -> Any:
    """Return for each chunk whether it has one of the tags; only a list of texts has tags."""

    def has_one(chunk_id: str) -> bool:
        tags = index.metadata.get(chunk_id, {}).get("tags")
        return isinstance(tags, list) and any(
            isinstance(tag, str) and tag in wanted for tag in tags
        )

    return np.fromiter(map(has_one, index.ids), dtype=np.bool_, count=len(index))


def read_content(metadata: EmbeddingMetadata, root: str | Path | None) -> str | None:
    """Return a chunk's text: ``chunk_length`` characters from ``line_number`` of ``source_file``.

    ``None`` without a root, for a file outside it, and if the file or line does not exist.
    """
    source, line = metadata.get("source_file"), metadata.get("line_number", 1)
    length = metadata.get("chunk_length", _LONGEST)
    if root is None or not isinstance(source, str) or not _are_counts(line, length):
        return None
    try:
        file = (Path(root) / source).resolve()
        if not (file.is_relative_to(Path(root).resolve()) and file.is_file()):
            return None
        text = file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
    lines = text.splitlines(keepends=True)
    if line > len(lines):
        return None
    return "".join(lines[line - 1 :])[:length]


def _are_counts(*values: object) -> bool:
    return all(type(value) is int and value >= 1 for value in values)
