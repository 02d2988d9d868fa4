"""As many passages as fit into a model's context."""

from __future__ import annotations

from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, SkipValidation, field_validator

from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.search_v2.postprocessors.nodes import text_of


class TokenBudget(BaseNodePostprocessor):
    """Keeps nodes, in the order given, while their texts fit into ``limit`` tokens; 0 keeps all.

    A node that does not fit is left out and the next one is tried. ``counter`` is any
    :class:`TokenCounter`, such as a model's tokenizer; without one, four characters are a token.
    Only the texts are counted, not the metadata or prompt that a synthesizer puts around them.
    """

    limit: int = Field(0, ge=0)
    counter: SkipValidation[TokenCounter | None] = Field(None, exclude=True)

    @field_validator("counter", mode="plain")
    @classmethod
    def _counts(cls, counter: Any) -> Any:
        if counter is not None and not callable(getattr(counter, "spans", None)):
            raise ValueError("a token counter needs a method spans(text)")
        return counter

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex stores it under."""
        return "TokenBudget"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.limit == 0:
            return nodes
        counter = self.counter or CharTokenCounter()
        left = self.limit
        kept: list[NodeWithScore] = []
        for node in nodes:
            size = len(counter.spans(text_of(node)))
            if size <= left:
                kept.append(node)
                left -= size
        return kept
