"""The best sentence of a passage of a recording, chosen by the reranker.

The words of a query find a sentence that repeats them. A reranker puts passages first that answer
in words of their own, and in these only it can tell at which second the answer is said.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from catalog.core.documents import Chunk
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.retrieval.passages import Passage
from catalog.retrieval.rerank.scoring import RerankScoring, RerankText, as_rerank_errors
from catalog.retrieval.snippets import find_snippet

if TYPE_CHECKING:
    from catalog.retrieval.caches import ModelCache
    from catalog.retrieval.rerank.base import Reranker

MOST_SENTENCES = 120
"""Sentences that are scored for one answer: those of the first passages."""

Span = tuple[int, int]


def choose_sentences(
    passages: Sequence[Passage],
    query: str,
    words: str,
    reranker: Reranker,
    cache: ModelCache | None,
    *,
    snippet_chars: int = 300,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[Passage], str]:
    """Give reranked passages of recordings the snippet around the sentence that scores best.

    Passages with a single sentence do not change, nor do those after :data:`MOST_SENTENCES`
    sentences or ``seconds``, nor any where the reranker does not choose sentences (see
    :class:`Reranker`). Return the passages, and a note of how many sentences were read, blank for
    none. ``words`` are marked in the snippets. Raises :class:`RerankError` when the reranker
    fails.
    """
    chosen, total = list(passages), 0
    if not getattr(reranker, "chooses_sentences", False):
        return chosen, ""
    spans: dict[int, list[Span]] = {}
    texts: dict[tuple[int, Span], str] = {}
    for place, passage in enumerate(passages):
        if _was_not_read(passage):
            continue
        sentences = list(_sentences(passage.chunk, snippet_chars))
        if len(sentences) > 1 and total + len(sentences) <= MOST_SENTENCES:
            spans[place], total = sentences, total + len(sentences)
            text = passage.chunk.text
            texts |= {(place, span): text[slice(*span)] for span in sentences}
    if not spans:
        return chosen, ""
    scores = _score(texts, query, reranker, cache, clock() + seconds, clock)
    for place, sentences in spans.items():
        known = {span: scores[place, span] for span in sentences if (place, span) in scores}
        if len(known) == len(sentences):
            best = max(sentences, key=lambda span: known[span])
            snippet = find_snippet(passages[place].chunk, words, snippet_chars, best)
            chosen[place] = passages[place]._replace(snippet=snippet)
    count = "passage" if len(spans) == 1 else "passages"
    return chosen, f"{total} sentences of {len(spans)} {count}"


def _score(
    sentences: dict[tuple[int, Span], str],
    query: str,
    reranker: Reranker,
    cache: ModelCache | None,
    deadline: float,
    clock: Callable[[], float],
) -> dict[tuple[int, Span], float]:
    with as_rerank_errors(reranker):
        model = reranker.fingerprint
    texts = {at: RerankText.of_text(text, query, model) for at, text in sentences.items()}
    keys = [text.key for text in texts.values()]
    cached = {} if cache is None else cache.get(keys)
    scoring = RerankScoring(reranker, query, cached, deadline=deadline, clock=clock)
    scoring.score(list(texts.values()))
    if cache is not None:
        cache.put(scoring.new, model=model)
    if scoring.error is not None:
        raise scoring.error
    scores = scoring.scores
    return {at: scores[text.key] for at, text in texts.items() if text.key in scores}


def _was_not_read(passage: Passage) -> bool:
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
