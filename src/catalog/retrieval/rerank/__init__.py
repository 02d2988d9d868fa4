"""Models that read query and passage together and score how well the passage answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError
from catalog.retrieval.rerank.scoring import Reranker

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.llm import LanguageModel

__all__ = ["Reranker", "get_reranker"]

_HTTP_SECONDS = 30.0  # without a budget
_MAX_TOKENS = 256  # of query and passage together


def get_reranker(
    rag: RAGv2Settings,
    *,
    llm: LanguageModel | None = None,
    llm_seconds: float = 30.0,
    threads: int | None = None,
    offline: bool = False,
) -> Reranker:
    """Make the reranker set as ``rag.rerank_provider``; its model loads at the first use.

    ``llm_seconds`` and the time budget both limit each request to ``llm``. Raises
    :class:`ConfigError` if the provider's language model or address is missing.
    """
    name, size, budget_seconds = rag.rerank_model, _MAX_TOKENS, rag.rerank_budget_ms / 1000
    if rag.rerank_provider == "llm":
        if llm is None:
            needed = "set IDX_LLM__PROVIDER, or another IDX_RAG_V2__RERANK_PROVIDER"
            raise ConfigError(f"the llm reranker needs a language model: {needed}")
        from catalog.retrieval.rerank.llm import LLMReranker

        seconds = min(llm_seconds, budget_seconds or llm_seconds)
        return LLMReranker(llm, max_tokens=size, timeout_seconds=seconds)
    if rag.rerank_provider == "http":
        if not rag.rerank_url:
            raise ConfigError("the http reranker needs an address: set IDX_RAG_V2__RERANK_URL")
        from catalog.retrieval.rerank.http import HttpReranker

        seconds, key = budget_seconds or _HTTP_SECONDS, rag.rerank_api_key
        return HttpReranker(
            rag.rerank_url, model=name, api_key=key, timeout_seconds=seconds, max_tokens=size
        )
    from catalog.retrieval.rerank import cross_encoder

    if rag.rerank_provider == "sentence_transformers":
        return cross_encoder.SentenceTransformersReranker(name, max_tokens=size, offline=offline)
    return cross_encoder.FastEmbedReranker(name, max_tokens=size, threads=threads, offline=offline)
