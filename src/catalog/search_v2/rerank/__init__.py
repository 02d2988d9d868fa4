"""Models that read query and passage together and say how well one answers the other.

base.py           what every reranker offers, and the check of its answers
windows.py        which part of a long passage is read
cross_encoder.py  ONNX models through fastembed (the default)
sentence.py       torch models through sentence-transformers
llm.py            any LlamaIndex language model
http.py           a rerank server
scoring.py        asking one of them for what the cache lacks
blending.py       joining its scores with the fused order
stage.py          the step of a search that does all this
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError
from catalog.search_v2.rerank.base import Reranker

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

    from catalog.core.settings import RAGv2Settings

__all__ = ["Reranker", "get_reranker"]

_HTTP_SECONDS = 30.0  # where no budget is set


def get_reranker(
    rag: RAGv2Settings,
    *,
    llm: LLM | None = None,
    llm_seconds: float = 30.0,
    threads: int | None = None,
    offline: bool = False,
) -> Reranker:
    """The reranker that ``rag.rerank_provider`` names; cheap, a model loads at its first use.

    ``llm_seconds`` bounds each request to ``llm``, and the budget does too. ``threads`` is for
    fastembed alone; ``offline`` keeps both local providers from the model hub.
    Raises :class:`ConfigError` when the provider lacks its language model or address.
    """
    if rag.rerank_provider == "llm":
        return _llm(rag, llm, llm_seconds)
    if rag.rerank_provider == "http":
        return _http(rag)
    size = rag.rerank_max_tokens
    if rag.rerank_provider == "sentence_transformers":
        from catalog.search_v2.rerank.sentence_reranker import SentenceTransformersReranker

        return SentenceTransformersReranker(rag.rerank_model, max_tokens=size, offline=offline)
    from catalog.search_v2.rerank.cross_encoder import FastEmbedReranker

    return FastEmbedReranker(rag.rerank_model, max_tokens=size, threads=threads, offline=offline)


def _llm(rag: RAGv2Settings, llm: LLM | None, seconds: float) -> Reranker:
    if llm is None:
        raise ConfigError(
            "the llm reranker needs a language model: set IDX_LLM__PROVIDER, "
            "or another IDX_RAG_V2__RERANK_PROVIDER"
        )
    from catalog.search_v2.rerank.llm_reranker import LLMReranker

    seconds = min(seconds, rag.rerank_budget_ms / 1000) if rag.rerank_budget_ms else seconds
    return LLMReranker(llm, max_tokens=rag.rerank_max_tokens, timeout_seconds=seconds)


def _http(rag: RAGv2Settings) -> Reranker:
    if not rag.rerank_url:
        raise ConfigError("the http reranker needs an address: set IDX_RAG_V2__RERANK_URL")
    from catalog.search_v2.rerank.http_reranker import HttpReranker

    return HttpReranker(
        rag.rerank_url,
        model=rag.rerank_model,
        api_key=rag.rerank_api_key,
        timeout_seconds=rag.rerank_budget_ms / 1000 or _HTTP_SECONDS,
        max_tokens=rag.rerank_max_tokens,
    )
