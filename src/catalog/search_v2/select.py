"""Selection stages, as LlamaIndex postprocessors that work on any retriever's nodes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import Field, SkipValidation, field_validator

from catalog.core.text import limit_marks
from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.search_v2.frame_text import frame_text
from catalog.search_v2.fusion import FusedHit
from catalog.search_v2.passages import Passage, PassagePostprocessor, chunk_of
from catalog.store.document_names import document_key
from catalog.store.lexical.analysis import WORD_CHARACTERS

AnyPassage = TypeVar("AnyPassage", Passage, NodeWithScore)


def document_of(node: Passage | NodeWithScore) -> str:
    """Return the document a passage was cut from; a node that names none stands for itself.

    The files of one recording are one document.
    """
    if (chunk := chunk_of(node)) is not None:
        return document_key(chunk)
    assert isinstance(node, NodeWithScore)
    named = node.node.metadata.get("source_doc_id") or node.node.ref_doc_id
    return str(named or node.node.node_id)


def text_of(node: Passage | NodeWithScore) -> str:
    """Return the passage's text alone, without its metadata."""
    if isinstance(node, Passage):
        return node.chunk.text
    return node.node.get_content(metadata_mode=MetadataMode.NONE)


def is_frame(node: Passage | NodeWithScore) -> bool:
    """Return whether it is a described frame of a video; other nodes say so in ``modality``."""
    if (chunk := chunk_of(node)) is not None:
        return chunk.modality == "video_frame"
    assert isinstance(node, NodeWithScore)
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
        return keep_distinct(nodes)


def keep_distinct(passages: Sequence[AnyPassage]) -> list[AnyPassage]:
    """Drop passages as :class:`DistinctText` does."""
    selected: list[AnyPassage] = []
    seen: set[str] = set()
    for passage in passages:
        text = " ".join(_text_shown(passage).split())
        if text not in seen:
            selected.append(passage)
        if text:
            seen.add(text)
    return selected


def _text_shown(node: Passage | NodeWithScore) -> str:
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
        return select_by_keyword(nodes, None if query_bundle is None else query_bundle.query_str)


def select_by_keyword(passages: Sequence[AnyPassage], query: str | None) -> list[AnyPassage]:
    """Keep the best passage of each document as :class:`KeywordChunkSelector` does."""
    documents: dict[str, list[AnyPassage]] = {}
    for passage in passages:
        documents.setdefault(document_of(passage), []).append(passage)
    if query is None:
        return [of_one[0] for of_one in documents.values()]
    terms = {word for word in _words(query) if len(word) > _LONGER_THAN}
    return [_best(of_one, terms) for of_one in documents.values()]


def _best(passages: Sequence[AnyPassage], terms: set[str]) -> AnyPassage:
    if len(passages) == 1:
        return passages[0]
    return min(passages, key=lambda node: (-_occurrences(node, terms), _vector_rank(node)))


def _occurrences(node: Passage | NodeWithScore, terms: set[str]) -> int:
    return sum(word in terms for word in _words(text_of(node)))


def _vector_rank(node: Passage | NodeWithScore) -> float:
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
        return keep_few_of_each(nodes, self.limit)


def keep_few_of_each(passages: Sequence[AnyPassage], limit: int) -> list[AnyPassage]:
    """Keep passages as :class:`MaxChunksPerDocument` does."""
    if limit == 0:
        return list(passages)
    seen: Counter[str] = Counter()
    selected: list[AnyPassage] = []
    for passage in passages:
        document = document_of(passage)
        seen[document] += 1
        if seen[document] <= limit:
            selected.append(passage)
    return selected


class SimilarityThreshold(PassagePostprocessor):
    """Drop nodes whose relevance is below ``minimum``, a number in 0..1; 0 keeps all.

    A passage that contains the words of a keyword query as written, or its quoted phrase, stays.
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
        return keep_relevant(nodes, self.minimum, keep_unjudged=self.keep_unjudged)


def keep_relevant(
    passages: Sequence[AnyPassage], minimum: float, *, keep_unjudged: bool = True
) -> list[AnyPassage]:
    """Drop passages as :class:`SimilarityThreshold` does."""
    if minimum == 0:
        return list(passages)
    judged = ((passage, _relevance(passage)) for passage in passages)
    return [
        passage
        for passage, relevance in judged
        if getattr(passage, "certainty", None) == "exact"
        or (keep_unjudged if relevance is None else relevance >= minimum)
    ]


def _relevance(node: Passage | NodeWithScore) -> float | None:
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
        return keep_within_budget(nodes, self.limit, self.counter or CharTokenCounter())


def keep_within_budget(
    passages: Sequence[AnyPassage], limit: int, counter: TokenCounter
) -> list[AnyPassage]:
    """Keep passages as :class:`TokenBudget` does."""
    if limit == 0:
        return list(passages)
    selected: list[AnyPassage] = []
    for passage in passages:
        size = len(counter.spans(text_of(passage)))
        if size <= limit:
            selected.append(passage)
            limit -= size
    return selected
