"""v1's reranking: LlamaIndex's stock ``LLMRerank``."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.llms import LLM
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.schema import NodeWithScore


class BaselineReranker:
    """Order chunks by the relevance a language model gives them.

    As in the stock class, a chunk the model's answer leaves out is dropped.
    """

    def __init__(self, llm: LLM, top_n: int) -> None:
        self._rerank = LLMRerank(llm=llm, top_n=top_n)

    def rerank(self, nodes: Sequence[NodeWithScore], query: str) -> list[NodeWithScore]:
        """Return the ``top_n`` best, scored by the model."""
        return self._rerank.postprocess_nodes(list(nodes), query_str=query)
