"""The ingestion pipeline, assembled from LlamaIndex steps that a user can take out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.ingestion.pipeline import run_transformations
from llama_index.core.schema import BaseNode, TransformComponent
from pydantic import PrivateAttr

from catalog.core.documents import Chunk
from catalog.core.errors import InputError
from catalog.core.ids import sha1_hex
from catalog.core.settings import RAGv2Settings
from catalog.embedding.model import EmbeddingModel
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.nodes import ChunkNode, Source, SourceDocument
from catalog.ingest.transforms import (
    CachedEmbedding,
    ChunkPersistenceTransform,
    ChunkSplitter,
    EmbeddingPrefixTransform,
    PersistenceTransform,
)
from catalog.store import Database
from catalog.store.embedding_cache import StoredModel, require_model

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

_log = logging.getLogger(__name__)


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
        """Take apart a pipeline with one :class:`CachedEmbedding`, one persistence after it."""
        steps = tuple(pipeline.transformations)
        at, embedding = next(
            (at, step) for at, step in enumerate(steps) if isinstance(step, CachedEmbedding)
        )
        after = steps[at + 1 :]
        staging = next(step for step in after if isinstance(step, ChunkPersistenceTransform))
        return cls(steps[:at], embedding, after, staging.pipeline)

    @property
    def chunker(self) -> DocumentChunker | None:
        """What cuts a document whatever it is, ``None`` where that is not one chunker."""
        splitters = [step for step in self.before if isinstance(step, ChunkSplitter)]
        return splitters[0].chunker if len(splitters) == 1 else None

    def cut(self, sources: Iterable[Source]) -> dict[str, list[BaseNode]]:
        """Return the chunks of documents by their ids; none of one that holds no text."""
        chunks: dict[str, list[BaseNode]] = {}
        documents = [SourceDocument.of(source) for source in sources]
        for node in run_transformations(documents, self.before):
            chunks.setdefault(node.ref_doc_id or "", []).append(node)
        return chunks

    def publish(self, nodes: Sequence[BaseNode]) -> None:
        """Store the chunks, with their documents; those of texts not known yet wait for vectors."""
        self.embedding.assign_keys(nodes)
        run_transformations(nodes, self.after)

    def texts_to_embed(self, chunks: Iterable[Chunk]) -> dict[str, str]:
        """Return the texts of stored chunks as the model shall see them, by key."""
        return self.windows_to_embed(chunks)[0]

    def windows_to_embed(
        self, chunks: Iterable[Chunk]
    ) -> tuple[dict[str, str], dict[int, tuple[str, ...]]]:
        """Return the same, and of each chunk the keys of its windows in order, by row number."""
        stored = list(chunks)
        nodes: Sequence[BaseNode] = [ChunkNode.of_stored(chunk) for chunk in stored]
        for step in self.before:
            if not isinstance(step, ChunkSplitter):
                nodes = step(nodes)
        texts = self.embedding.assign_keys(nodes)
        keys = [node.embed_keys for node in nodes if isinstance(node, ChunkNode)]
        return texts, dict(zip((chunk.seq for chunk in stored), keys, strict=True))

    def notes(self) -> tuple[str, ...]:
        """Say of how many documents the sizes were not counted in the model's tokens."""
        splitters = [step for step in self.before if isinstance(step, ChunkSplitter)]
        reasons = {k: v for splitter in splitters for k, v in splitter.fallbacks.items()}
        if not reasons:
            return ()
        first = next(iter(reasons.values()))
        return (f"{len(reasons)} documents measured as 4 characters a token: {first}",)


TEXTS_VERSION = 11  # +1 when the same file gives other chunks, metadata, or other text to embed


class DatasetPipeline(IngestionPipeline):
    """An ``IngestionPipeline`` whose runs end in a dataset, in this process.

    Each run replaces the documents of the paths it is given and leaves the others. What could
    not be embedded is stored all the same, found by its words, and logged.
    """

    _prepare: Callable[[], None] = PrivateAttr()

    def __init__(
        self, transformations: list[TransformComponent], prepare: Callable[[], None]
    ) -> None:
        """Take the steps, and what is to be checked before each run."""
        super().__init__(transformations=transformations, disable_cache=True)
        self._prepare = prepare

    def run(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Store the documents and return their chunks; see ``IngestionPipeline.run``.

        Raises :class:`InputError` for ``num_workers``, :class:`EmbeddingMismatchError` if the
        store took another model on meanwhile.
        """
        self._begin(num_workers)
        nodes = super().run(*arguments, **more)
        self._report()
        return nodes

    async def arun(
        self, *arguments: Any, num_workers: int | None = None, **more: Any
    ) -> Sequence[BaseNode]:
        """Do the same as :meth:`run`."""
        self._begin(num_workers)
        nodes = await super().arun(*arguments, **more)
        self._report()
        return nodes

    def _begin(self, num_workers: int | None) -> None:
        if num_workers is not None and num_workers > 1:
            raise InputError(
                f"num_workers is {num_workers}: leave it out. One process writes the store, and "
                "the embedding model uses every core already"
            )
        self._prepare()

    def _report(self) -> None:
        for step in self.transformations:
            if isinstance(step, CachedEmbedding) and step.failures:
                count, reason = len(step.failures), next(iter(step.failures.values()))
                _log.warning("%d passages have no vector, only words: %s", count, reason)
                step.failures.clear()


class PipelineBuilder:
    """Build the pipelines of one store: split, prefix, embed, persist.

    LlamaIndex's own docstore strategies and cache are off: they lose documents when an
    embedding fails. :func:`catalog.ingest.sync` decides what is run instead.
    """

    def __init__(self, database: Database, settings: RAGv2Settings) -> None:
        self._database = database
        self._settings = settings

    def build_pipeline(
        self,
        dataset_name: str,
        embed_model: EmbeddingModel,
        *,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        splitter: NodeParser | None = None,
    ) -> DatasetPipeline:
        """Build the pipeline of one dataset.

        Sizes are in the model's tokens; ``None`` means that of the settings. A ``splitter`` cuts
        texts in place of the chunker.
        """
        settings = self._settings
        chunker = DocumentChunker(
            embed_model.encoder.counter,
            chunk_size=settings.chunk_size if chunk_size is None else chunk_size,
            chunk_overlap=settings.chunk_overlap if chunk_overlap is None else chunk_overlap,
            min_size=settings.chunk_min_size,
            window_seconds=settings.transcript_window_seconds,
        )
        fingerprint = pipeline_fingerprint(settings, embed_model)
        if splitter is not None:
            fingerprint = sha1_hex(f"{fingerprint}|{splitter.to_json()}")[:16]
        staging = ChunkPersistenceTransform(pipeline=fingerprint)
        encoder = embed_model.encoder
        return DatasetPipeline(
            [
                ChunkSplitter(chunker, dataset=dataset_name, splitter=splitter),
                EmbeddingPrefixTransform(
                    embed_model,
                    context=settings.embed_context,
                    form=settings.embed_context_form,
                    part_seconds=settings.transcript_part_seconds,
                ),
                CachedEmbedding(embed_model, self._database),
                staging,
                PersistenceTransform(self._database, staging, dataset=dataset_name),
            ],
            lambda: require_model(
                self._database, StoredModel(encoder.model, encoder.fingerprint, encoder.dim)
            ),
        )


def pipeline_fingerprint(settings: RAGv2Settings, embed_model: EmbeddingModel) -> str:
    """Name how documents are read, cut and embedded; another name means: do it again."""
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
        # the default is left out: documents were made before there was a choice
        *([settings.embed_context_form] if settings.embed_context_form != "place" else ()),
    )
    return sha1_hex("|".join(str(part) for part in parts))[:16]
