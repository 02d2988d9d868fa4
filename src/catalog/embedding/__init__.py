"""Embedding models: ``get_embed_model()`` for LlamaIndex, ``get_encoder()`` below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.settings import EmbeddingSettings, RAGv2Settings, get_settings
from catalog.embedding.profiles import profile_of

if TYPE_CHECKING:
    from catalog.embedding.encoder import Encoder
    from catalog.embedding.resilient import ResilientEmbedding

__all__ = ["get_embed_model", "get_encoder", "query_prefix"]


def get_encoder(settings: EmbeddingSettings | None = None) -> Encoder:
    """What runs the configured model; cheap, the model loads at its first use."""
    chosen = settings or get_settings().embedding
    if chosen.provider == "huggingface":
        from catalog.embedding.huggingface import HuggingFaceEncoder

        return HuggingFaceEncoder(chosen)
    from catalog.embedding.fastembed import FastEmbedEncoder

    return FastEmbedEncoder(chosen)


def get_embed_model(
    settings: EmbeddingSettings | None = None, *, rag: RAGv2Settings | None = None
) -> ResilientEmbedding:
    """The configured model as a LlamaIndex ``BaseEmbedding``, prefixes of its profile set.

    ``rag`` may override the prefixes (``embed_prefix_query``, ``embed_prefix_doc``).
    """
    from catalog.embedding.resilient import ResilientEmbedding

    chosen = settings or get_settings().embedding
    profile = profile_of(chosen.model)
    document = rag.embed_prefix_doc if rag else None
    # A query is too short to gain from more threads, and idle ones spin beside the other leg.
    alone = chosen.model_copy(update={"threads": chosen.threads or 1})
    return ResilientEmbedding(
        get_encoder(chosen),
        query_encoder=get_encoder(alone) if chosen.provider == "fastembed" else None,
        embed_batch_size=chosen.batch_size,
        query_prefix=query_prefix(chosen, rag),
        document_prefix=profile.document_prefix if document is None else document,
    )


def query_prefix(settings: EmbeddingSettings, rag: RAGv2Settings | None = None) -> str:
    """What is put before a query: the setting, or else what the model's profile says."""
    if rag is not None and rag.embed_prefix_query is not None:
        return rag.embed_prefix_query
    return profile_of(settings.model).query_prefix
