"""The v2 ingestion pipeline, assembled from parts that a LlamaIndex user can take out."""

from __future__ import annotations

from llama_index.core.ingestion import IngestionPipeline

from catalog.core.ids import sha1_hex
from catalog.core.settings import RAGv2Settings
from catalog.embedding.resilient import ResilientEmbedding
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.transforms import (
    CachedEmbedding,
    ChunkPersistenceTransform,
    ChunkSplitter,
    PersistenceTransform,
)
from catalog.search_v2.transforms import EmbeddingPrefixTransform
from catalog.store import Database

TEXTS_VERSION = 3  # +1 when the same file gives other chunks, or other text to embed


class IngestionPipelineBuilderV2:
    """Builds the pipeline of one store: split, prefix, embed, persist.

    LlamaIndex's own docstore strategies and cache are off: they lose documents when an
    embedding fails. :func:`catalog.ingest.sync` decides what is run instead.
    """

    def __init__(self, database: Database, settings: RAGv2Settings) -> None:
        self._database = database
        self._settings = settings

    def build_pipeline(
        self,
        dataset_name: str,
        embed_model: ResilientEmbedding,
        *,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
    ) -> IngestionPipeline:
        """The pipeline for one dataset; sizes are the settings' unless given, in model tokens."""
        settings = self._settings
        chunker = DocumentChunker(
            embed_model.encoder.counter,
            chunk_size=settings.chunk_size if chunk_size is None else chunk_size,
            chunk_overlap=settings.chunk_overlap if chunk_overlap is None else chunk_overlap,
            min_size=settings.chunk_min_size,
            window_seconds=settings.transcript_window_seconds,
        )
        staged = ChunkPersistenceTransform(pipeline=pipeline_fingerprint(settings, embed_model))
        return IngestionPipeline(
            transformations=[
                ChunkSplitter(chunker, dataset=dataset_name),
                EmbeddingPrefixTransform(
                    embed_model,
                    context=settings.embed_context,
                    part_seconds=settings.transcript_part_seconds,
                ),
                CachedEmbedding(embed_model, self._database),
                staged,
                PersistenceTransform(self._database, staged, dataset=dataset_name),
            ],
            disable_cache=True,
        )


def pipeline_fingerprint(settings: RAGv2Settings, embed_model: ResilientEmbedding) -> str:
    """Names how documents are read, cut and embedded; another value means: do it again."""
    parts = (
        TEXTS_VERSION,
        settings.chunk_size,
        settings.chunk_overlap,
        settings.chunk_min_size,
        settings.transcript_window_seconds,
        settings.transcript_part_seconds,
        settings.embed_context,
        embed_model.document_prefix,
        embed_model.encoder.fingerprint,
        embed_model.encoder.counter.name,
    )
    return sha1_hex("|".join(str(part) for part in parts))[:16]
