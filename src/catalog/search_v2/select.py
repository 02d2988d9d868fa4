"""Selection stages, as LlamaIndex postprocessors that work on any retriever's nodes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import Field, SkipValidation, field_validator

from catalog.core.documents import Chunk
from catalog.core.text import limit_marks
from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.search_v2.frame_text import frame_text
from catalog.search_v2.fusion import FusedHit
from catalog.search_v2.passages import Passage, PassagePostprocessor, ScoredPassage, chunk_of
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
    """Keep the first of the passages that say the same, and name the rest as its ``copies``.

    Two passages say the same if their words are equal, in order. White space, the signs around
    words, bullets, emphasis and the marks of headings do not count. Case does, and so does every
    number, name and word: two versions of a contract are both kept. A node without a text, such as
    an image, equals no other. Of a video's frame the heading with its time does not count: a slide
    that stays is one text, at whichever second. The nodes of other retrievers name no copies.
    """

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        return keep_distinct(nodes)


def keep_distinct(passages: Sequence[AnyPassage]) -> list[AnyPassage]:
    """Keep passages as :class:`DistinctText` does."""
    texts = [_text_shown(passage) for passage in passages]
    compared = _compared_forms(texts)
    selected: list[AnyPassage] = []
    first_with: dict[str, int] = {}
    copies: dict[int, list[AnyPassage]] = {}
    for passage, text in zip(passages, texts, strict=True):
        words = compared[text]
        first = first_with.setdefault(words, len(selected)) if words.strip() else len(selected)
        if first == len(selected):
            selected.append(passage)
        else:
            copies.setdefault(first, []).append(passage)
    for first, others in copies.items():
        selected[first] = _with_copies(selected[first], others)
    return selected


def _with_copies(passage: AnyPassage, others: Sequence[AnyPassage]) -> AnyPassage:
    chunks: list[Chunk] = [chunk for other in others for chunk in _chunks_of(other)]
    if isinstance(passage, Passage):
        return passage._replace(copies=(*passage.copies, *chunks))
    return passage.with_copies(chunks) if isinstance(passage, ScoredPassage) else passage


def _chunks_of(passage: Passage | NodeWithScore) -> tuple[Chunk, ...]:
    """Return the chunk of a passage and those of its copies; none for another retriever's node."""
    if isinstance(passage, ScoredPassage):
        passage = passage.passage
    return passage.chunks if isinstance(passage, Passage) else ()


def _text_shown(node: Passage | NodeWithScore) -> str:
    text = text_of(node)
    return frame_text(text) if is_frame(node) else text


_OPENING_WORDS = 8  # enough to tell most passages apart
_LETTERS_OR_DIGITS = re.compile(r"[^\W_]+")
_BULLET = re.compile(r"^[ \t]*[-+*•][ \t]+(?=[^\W\d_])", re.MULTILINE)  # "- 5" may be a number
_EMPHASIS = re.compile(r"(?<![\w*`])(\*{1,3}|`{1,2})(?=\S)([^*`\n]+)\1(?![\w*`])")
_SAME_SIGNS = str.maketrans("‘’“”‐‑–—−", "''\"\"-----")
_BEFORE_WORD, _AFTER_WORD, _AFTER_NUMBER = "\"'([{", "\"')]}.,;:", ".,;:"
_RULE = "|:-=~^*_#+"  # the signs that rules, underlines and tables are made of


def _compared_forms(texts: Iterable[str]) -> dict[str, str]:
    """Return each text in the form that says the same as another's if it is equal.

    To strip the signs takes 1 µs a word, so only texts with the same letters and digits are
    stripped, and those are looked for among texts that begin alike.
    """
    forms = {text: text for text in texts}
    for alike in _group_by(forms, _opening):
        for similar in _group_by(alike, _letters_and_digits):
            forms |= {text: _words_said(text) for text in similar}
    return forms


def _group_by(texts: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    """Return the groups of two and more texts that have one key."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(key(text), []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def _opening(text: str) -> str:
    found = islice(_LETTERS_OR_DIGITS.finditer(text), _OPENING_WORDS)
    return " ".join([match[0] for match in found])


def _letters_and_digits(text: str) -> str:
    return " ".join(_LETTERS_OR_DIGITS.findall(text))


def _words_said(text: str) -> str:
    """Return what counts when texts are compared; see :class:`DistinctText`."""
    plain = _EMPHASIS.sub(r"\2", _BULLET.sub("", text.translate(_SAME_SIGNS)))
    return " ".join(filter(None, map(_without_signs, plain.split())))


def _without_signs(word: str) -> str:
    """Return a word without the signs around it; signs that stand alone stay, such as ``<``."""
    if word.isalpha():
        return word
    if not any(map(str.isalnum, word)):
        is_markup = word in ("#", "##", "|") or (len(word) > 2 and not word.strip(_RULE))
        return "" if is_markup else word
    if any(map(str.isnumeric, word)):  # (5), 5" and -5 are not 5
        return word.rstrip(_AFTER_NUMBER)
    return word.lstrip(_BEFORE_WORD).rstrip(_AFTER_WORD)


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
