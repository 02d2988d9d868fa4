"""Models that read query and passage together and score how well the passage answers."""

from catalog.retrieval.rerank.scoring import Reranker, get_reranker

__all__ = ["Reranker", "get_reranker"]
