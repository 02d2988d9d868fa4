"""The best sentence of a passage of a recording, chosen by the reranker.

The words of a query find a sentence that repeats them. A reranker puts passages first that answer
in words of their own, and in these only it can tell at which second the answer is said.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, PrivateAttr

from catalog.core.documents import Chunk
from catalog.core.errors import CatalogError
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.search_v2.passages import PassagePostprocessor, ScoredPassage
from catalog.search_v2.rerank.postprocessor import RerankScoring, RerankText, as_rerank_errors
from catalog.search_v2.snippets import find_snippet

if TYPE_CHECKING:
    from catalog.search_v2.caches import ModelCache
    from catalog.search_v2.rerank.base import Reranker

_log = logging.getLogger(__name__)
MOST_SENTENCES = 120
"""Sentences that are scored for one answer: those of the first passages."""

Span = tuple[int, int]


class RerankSentences(PassagePostprocessor):
    """Gives reranked passages of recordings the snippet around the sentence that scores best.

    A passage with a single sentence, or one after :data:`MOST_SENTENCES` are read, stays as it is,
    and so do all where the reranker does not choose sentences (see :class:`Reranker`).
    """

    snippet_chars: int = Field(300, ge=40)
    _reranker: Reranker = PrivateAttr()
    _cache: ModelCache | None = PrivateAttr(default=None)
    _clock: Callable[[], float] = PrivateAttr()

    def __init__(
        self,
        reranker: Reranker,
        cache: ModelCache | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        **settings: object,
    ) -> None:
        super().__init__(**settings)
        self._reranker, self._cache, self._clock = reranker, cache, clock

    def choose(
        self, nodes: Sequence[NodeWithScore], query: str, words: str, seconds: float = math.inf
    ) -> tuple[list[NodeWithScore], str]:
        """Return the nodes, and a note of what was read, blank if nothing was.

        ``words`` are marked in the snippets. What is not scored within ``seconds`` stays as it is.
        Raises :class:`RerankError` when the reranker fails.
        """
        chosen, total = list(nodes), 0
        if not getattr(self._reranker, "chooses_sentences", False):
            return chosen, ""
        spans: dict[int, list[Span]] = {}
        texts: dict[tuple[int, Span], str] = {}
        for place, node in enumerate(nodes):
            if not isinstance(node, ScoredPassage) or _was_not_read(node):
                continue
            sentences = list(_sentences(node.chunk, self.snippet_chars))
            if len(sentences) > 1 and total + len(sentences) <= MOST_SENTENCES:
                spans[place], total = sentences, total + len(sentences)
                text = node.chunk.text
                texts |= {(place, span): text[slice(*span)] for span in sentences}
        if not spans:
            return chosen, ""
        scores = self._score(texts, query, self._clock() + seconds)
        for place, sentences in spans.items():
            known = {span: scores[place, span] for span in sentences if (place, span) in scores}
            node = nodes[place]
            if isinstance(node, ScoredPassage) and len(known) == len(sentences):
                best = max(sentences, key=lambda span: known[span])
                snippet = find_snippet(node.chunk, words, self.snippet_chars, best)
                chosen[place] = node.with_snippet(snippet)
        passages = "passage" if len(spans) == 1 else "passages"
        return chosen, f"{total} sentences of {len(spans)} {passages}"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            return nodes
        try:
            return self.choose(nodes, query_bundle.query_str, query_bundle.query_str)[0]
        except CatalogError as error:
            _log.warning("best sentences are those with most words: %s", error)
            return nodes

    def _score(
        self, sentences: dict[tuple[int, Span], str], query: str, deadline: float
    ) -> dict[tuple[int, Span], float]:
        with as_rerank_errors(self._reranker):
            model = self._reranker.fingerprint
        texts = {at: RerankText.of_text(text, query, model) for at, text in sentences.items()}
        keys = [text.key for text in texts.values()]
        cached = {} if self._cache is None else self._cache.get(keys)
        scoring = RerankScoring(self._reranker, query, cached, deadline=deadline, clock=self._clock)
        scoring.score(list(texts.values()))
        if self._cache is not None:
            self._cache.put(scoring.new, model=model)
        if scoring.error is not None:
            raise scoring.error
        scores = scoring.scores
        return {at: scores[text.key] for at, text in texts.items() if text.key in scores}


def _was_not_read(passage: ScoredPassage) -> bool:
    return passage.reranked is None or passage.reranked.raw_score is None


def _sentences(chunk: Chunk, max_chars: int) -> Iterator[Span]:
    """Yield the sentences with a cue; of captions without full stops the cues."""
    if chunk.modality == "video_frame" or not chunk.cues:
        return
    for start, end in sentence_spans(chunk.text):
        within = [cue for cue in chunk.cues if cue.start < end and cue.end > start]
        if not within:
            continue
        if end - start <= max_chars:
            yield start, end
            continue
        for cue in within:
            yield max(start, cue.start), min(end, cue.end)
