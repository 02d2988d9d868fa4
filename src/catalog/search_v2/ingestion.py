"""Ingestion pipelines of LlamaIndex into a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.base.embeddings.base import BaseEmbedding

from catalog.core.errors import EmbeddingMismatchError, InputError
from catalog.core.ids import check_dataset_name
from catalog.embedding import EmbeddingModel, as_model
from catalog.ingest.pipeline import DatasetPipeline, PipelineBuilder
from catalog.retrieval.shared import shared_service

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2


class IngestionPipelineBuilderV2:
    """Build pipelines that put LlamaIndex ``Document`` objects into a dataset of a service's store.

    Every search of the store finds them at once.
    """

    def __init__(self, service: SearchServiceV2 | None = None) -> None:
        self._service = service

    def build_pipeline(
        self,
        dataset_id: str | int | None = None,
        dataset_name: str | None = None,
        embed_model: BaseEmbedding | None = None,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        *,
        splitter: NodeParser | None = None,
    ) -> DatasetPipeline:
        """Return the pipeline of one dataset, which is made at the first run.

        A dataset's id is its name, so either argument will do; a number says nothing and needs
        the name beside it. ``embed_model`` is the store's own unless given, and must be that: any
        LlamaIndex model that the service was opened with. Sizes are in the model's tokens,
        those of the settings unless given. A LlamaIndex ``splitter`` cuts texts in place of
        ours; recordings are still cut by time.

        Raises :class:`EmbeddingMismatchError` for another model than the store's and
        :class:`InputError` for a name that is none; nothing has been written then.
        """
        name = _dataset_name(dataset_id, dataset_name)
        library = (self._service or shared_service(make_store=True)).library
        model = library.model if embed_model is None else as_model(embed_model)
        _check_model(library, model)
        builder = PipelineBuilder(library.database, library.settings.rag_v2)
        return builder.build_pipeline(
            name, model, chunk_size=chunk_size, chunk_overlap=chunk_overlap, splitter=splitter
        )


def _dataset_name(dataset_id: str | int | None, dataset_name: str | None) -> str:
    name = dataset_id if dataset_name is None else dataset_name
    if not isinstance(name, str):
        raise InputError("say which dataset: build_pipeline('notes')")
    check_dataset_name(name)
    if isinstance(dataset_id, str) and dataset_id != name:
        raise InputError(f"dataset_id is {dataset_id!r} and dataset_name {name!r}: they are one")
    return name


def _check_model(library: Library, model: EmbeddingModel) -> None:
    """Raise unless the store is searched by this very model."""
    own, encoder = library.wanted_model, model.encoder
    if (encoder.fingerprint, encoder.dim) != (own.fingerprint, own.dim):
        raise EmbeddingMismatchError(
            f"this store is searched by {own.model} ({own.dim} numbers), and the pipeline would "
            f"embed with {encoder.model} ({encoder.dim} numbers): leave embed_model out, or open "
            "the store with it: SearchServiceV2(Library.open(model=…))"
        )
