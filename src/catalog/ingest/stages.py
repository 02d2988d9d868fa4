"""An ingestion pipeline taken apart, so that documents are cut singly and embedded in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.ingestion.pipeline import run_transformations
from llama_index.core.schema import BaseNode, TransformComponent

from catalog.ingest.nodes import Source, SourceDocument
from catalog.ingest.transforms import CachedEmbedding, ChunkPersistenceTransform, ChunkSplitter


@dataclass(frozen=True, slots=True)
class PipelineSteps:
    """The steps before the embedding, the embedding, and the steps after it.

    ``fingerprint`` names how documents are cut and embedded.
    """

    before: tuple[TransformComponent, ...]
    embedding: CachedEmbedding
    after: tuple[TransformComponent, ...]
    fingerprint: str

    @classmethod
    def of(cls, pipeline: IngestionPipeline) -> PipelineSteps:
        """Take apart a pipeline that has one :class:`CachedEmbedding` and, after it, one
        :class:`ChunkPersistenceTransform`.
        """
        steps = tuple(pipeline.transformations)
        at, embedding = next(
            (at, step) for at, step in enumerate(steps) if isinstance(step, CachedEmbedding)
        )
        after = steps[at + 1 :]
        staged = next(step for step in after if isinstance(step, ChunkPersistenceTransform))
        return cls(steps[:at], embedding, after, staged.pipeline)

    def cut(self, source: Source) -> list[BaseNode]:
        """The chunks of a document; none if it holds no text."""
        return list(run_transformations([SourceDocument.of(source)], self.before))

    def embed(self, nodes: Sequence[BaseNode]) -> None:
        """Give the chunks their vectors; raises ``EmbeddingError`` when the model is down."""
        if nodes:
            self.embedding(nodes)

    def publish(self, nodes: Sequence[BaseNode]) -> None:
        """Store the chunks, with their documents."""
        run_transformations(nodes, self.after)

    def notes(self) -> tuple[str, ...]:
        """What the user should know of how documents were cut."""
        splitters = [step for step in self.before if isinstance(step, ChunkSplitter)]
        fallbacks = {k: v for splitter in splitters for k, v in splitter.fallbacks.items()}
        if not fallbacks:
            return ()
        first = next(iter(fallbacks.values()))
        return (f"{len(fallbacks)} documents measured as 4 characters a token: {first}",)
