"""Selection stages, as LlamaIndex postprocessors that work on any retriever's nodes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import Field, SkipValidation, field_validator

from catalog.core.text import limit_marks
from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.search_v2.frame_text import frame_text
from catalog.search_v2.fusion import FusedHit
from catalog.search_v2.passages import PassageNode, PassagePostprocessor
from catalog.store.document_names import document_key
from catalog.store.lexical.analysis import WORD_CHARACTERS


def document_of(node: NodeWithScore) -> str:
    """Return the document a node was cut from; a node that names none stands for itself.

    The files of one recording are one document.
    """
    if isinstance(node.node, PassageNode):
        return document_key(node.node.chunk)
    named = node.node.metadata.get("source_doc_id") or node.node.ref_doc_id
    return str(named or node.node.node_id)


def text_of(node: NodeWithScore) -> str:
    """Return the node's text alone, without its metadata."""
    return node.node.get_content(metadata_mode=MetadataMode.NONE)


def is_frame(node: NodeWithScore) -> bool:
    """Return whether it is a described frame of a video; other nodes say so in ``modality``."""
    if isinstance(node.node, PassageNode):
        return node.node.chunk.modality == "video_frame"
    return bool(node.node.metadata.get("modality") == "video_frame")


class DistinctText(PassagePostprocessor):
    """Drop a node whose text equals an earlier node's, whitespace apart; case matters.

    A node without a text, such as an image, equals no other. Of a video's frame the heading with
    its time does not count: a slide that stays is one text, at whichever second.
    """

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        selected: list[NodeWithScore] = []
        seen: set[str] = set()
        for node in nodes:
            text = " ".join(_text_shown(node).split())
            if text not in seen:
                selected.append(node)
            if text:
                seen.add(text)
        return selected


def _text_shown(node: NodeWithScore) -> str:
    text = text_of(node)
    return frame_text(text) if is_frame(node) else text


class KeepFirst(PassagePostprocessor):
    """Keep the first ``limit`` passages."""

    limit: int = Field(10, ge=1)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        return nodes[: self.limit]


_WORD = re.compile(rf"[{WORD_CHARACTERS}]+")
_LONGER_THAN = 2  # characters: shorter words are mostly articles and prepositions


class KeywordChunkSelector(PassagePostprocessor):
    """Keep the best passage of each document, where the document's first passage stood.

    The best one holds the most occurrences of the query's terms: its words of more than two
    characters, case-folded, found as whole words; every occurrence counts. Passages that tie,
    at zero too, are told apart by the original query's vector leg, the better rank first, then
    by the order given. Nodes of other retrievers know no leg. Without a query, or with one that
    has no such word, only the tie rule decides; without a query it is the first passage.

    The rule is qmd's selection of a document's best chunk by keyword.
    """

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
    return min((part.rank for part in fused.originals("vector")), default=math.inf)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", limit_marks(text)).casefold())


class MaxChunksPerDocument(PassagePostprocessor):
    """Keep at most ``limit`` passages of one document, in the order given; 0 keeps all.

    1 is best-chunk mode. Fetch more than you need before it: it only takes away.
    """

    limit: int = Field(3, ge=0)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.limit == 0:
            return nodes
        seen: Counter[str] = Counter()
        selected: list[NodeWithScore] = []
        for node in nodes:
            document = document_of(node)
            seen[document] += 1
            if seen[document] <= self.limit:
                selected.append(node)
        return selected


class SimilarityThreshold(PassagePostprocessor):
    """Drop nodes whose relevance is below ``minimum``, a number in 0..1; 0 keeps all.

    The relevance is what a node says in ``relevance``; of nodes that have no such attribute it is
    the score, if that lies in 0..1. A passage of v2 that was not calibrated, or a node scored by
    BM25, cannot be judged: it stays unless ``keep_unjudged`` is off. Scores of other people's
    fusions lie in 0..1 too without being a relevance: do not put this behind one.
    """

    minimum: float = Field(0.0, ge=0.0, le=1.0)
    keep_unjudged: bool = True

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.minimum == 0:
            return nodes
        return [node for node in nodes if self._keeps(node)]

    def _keeps(self, node: NodeWithScore) -> bool:
        relevance = _relevance(node)
        return self.keep_unjudged if relevance is None else relevance >= self.minimum


def _relevance(node: NodeWithScore) -> float | None:
    if hasattr(node, "relevance"):
        relevance: float | None = node.relevance
        return relevance
    return node.score if node.score is not None and 0.0 <= node.score <= 1.0 else None


class TokenBudget(PassagePostprocessor):
    """Keep nodes, in the order given, while their texts fit into ``limit`` tokens; 0 keeps all.

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

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.limit == 0:
            return nodes
        counter = self.counter or CharTokenCounter()
        left = self.limit
        selected: list[NodeWithScore] = []
        for node in nodes:
            size = len(counter.spans(text_of(node)))
            if size <= left:
                selected.append(node)
                left -= size
        return selected
