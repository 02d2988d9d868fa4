"""Embedding models: ``get_model()`` for the configured one, ``as_model()`` for a caller's own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from catalog.core.entry_points import find
from catalog.core.settings import EmbeddingSettings, RAGv2Settings, get_settings
from catalog.embedding.model import EmbeddingModel, as_model
from catalog.embedding.profiles import profile_of

if TYPE_CHECKING:
    from catalog.embedding.encoder import Encoder

__all__ = [
    "EmbeddingModel",
    "as_model",
    "document_prefix",
    "get_encoder",
    "get_model",
    "query_prefix",
]

SERVERS = ("openai", "cohere")  # providers that are asked over HTTP
PROVIDERS = {
    "fastembed": "catalog.embedding.fastembed:FastEmbedEncoder",
    "huggingface": "catalog.embedding.huggingface:HuggingFaceEncoder",
    "static": "catalog.embedding.static:StaticEncoder",
    **dict.fromkeys(SERVERS, "catalog.embedding.served_model:ServedEncoder"),
}


def get_encoder(settings: EmbeddingSettings | None = None) -> Encoder:
    """Return an encoder for the configured model; cheap, the model loads at its first use."""
    settings = settings or get_settings().embedding
    if settings.provider in PROVIDERS:
        module, _, name = PROVIDERS[settings.provider].partition(":")
        provider = getattr(import_module(module), name)
    else:
        provider = find("catalog.embeddings", settings.provider)
    return cast(Callable[[EmbeddingSettings], "Encoder"], provider)(settings)


def get_model(
    settings: EmbeddingSettings | None = None, *, rag: RAGv2Settings | None = None
) -> EmbeddingModel:
    """Return the configured model with the prefixes of its profile, or of ``rag``."""
    settings = settings or get_settings().embedding
    encoder, for_queries = get_encoder(settings), cast("Encoder | None", None)
    if settings.provider in SERVERS:
        from catalog.embedding.served_model import ServedEncoder

        for_queries = ServedEncoder(settings, side="query")
    elif settings.provider == "fastembed" and not getattr(encoder, "is_run_alone", False):
        # A query is too short to use more threads, and idle ones slow down the other leg.
        for_queries = get_encoder(settings.model_copy(update={"threads": settings.threads or 1}))
    return EmbeddingModel(
        encoder,
        query_encoder=for_queries,
        has_sides=settings.provider == "cohere",
        batch_size=settings.batch_size,
        query_prefix=query_prefix(settings, rag),
        document_prefix=document_prefix(settings, rag),
    )


def document_prefix(settings: EmbeddingSettings, rag: RAGv2Settings | None = None) -> str:
    """Return the prefix of passages: the setting, or the one in the model's profile."""
    if rag is not None and rag.embed_prefix_doc is not None:
        return rag.embed_prefix_doc
    return profile_of(settings.model).document_prefix


def query_prefix(settings: EmbeddingSettings, rag: RAGv2Settings | None = None) -> str:
    """Return the prefix of queries: the setting, or the one in the model's profile."""
    if rag is not None and rag.embed_prefix_query is not None:
        return rag.embed_prefix_query
    return profile_of(settings.model).query_prefix
