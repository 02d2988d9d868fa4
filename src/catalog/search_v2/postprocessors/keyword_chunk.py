"""The one passage of each document that says most of the query's words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.search_v2.fusion import FusedHit
from catalog.search_v2.postprocessors.nodes import document_of, text_of
from catalog.store.lexical.words import WORD_CHARACTERS

_WORD = re.compile(rf"[{WORD_CHARACTERS}]+")
_LONGER_THAN = 2  # characters: shorter words are mostly articles and prepositions


class KeywordChunkSelector(BaseNodePostprocessor):
    """Keeps the best passage of each document, where the document's first passage stood.

    The best one holds the most occurrences of the query's terms: its words of more than two
    characters, case-folded, found as whole words; every occurrence counts. Passages that tie,
    at zero too, are told apart by the original query's vector leg, the better rank first, then
    by the order given. Nodes of other retrievers know no leg. Without a query, or with one that
    has no such word, only the tie rule decides; without a query it is the first passage.

    The rule is qmd's selection of a document's best chunk by keyword.
    """

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex stores it under."""
        return "KeywordChunkSelector"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        documents: dict[str, list[NodeWithScore]] = {}
        for node in nodes:
            documents.setdefault(document_of(node), []).append(node)
        if query_bundle is None:
            return [passages[0] for passages in documents.values()]
        terms = {word for word in _words(query_bundle.query_str) if len(word) > _LONGER_THAN}
        return [_best(passages, terms) for passages in documents.values()]


def _best(passages: Sequence[NodeWithScore], terms: set[str]) -> NodeWithScore:
    if len(passages) == 1:
        return passages[0]
    return min(passages, key=lambda node: (-_occurrences(node, terms), _vector_rank(node)))


def _occurrences(node: NodeWithScore, terms: set[str]) -> int:
    return sum(word in terms for word in _words(text_of(node)))


def _vector_rank(node: NodeWithScore) -> float:
    fused = getattr(node, "fused", None)
    if not isinstance(fused, FusedHit):
        return math.inf
    return min((share.rank for share in fused.own("vector")), default=math.inf)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
