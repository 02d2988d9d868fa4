"""Rerank: score passages from the cache or by the model, and blend the scores.

The reranker may be a user's, so its exceptions become a :class:`RerankError` and its scores are
checked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple

from catalog.core.documents import Chunk, find_columns
from catalog.core.errors import CatalogError, RerankError
from catalog.core.ids import sha1_hex
from catalog.core.results import Reranked
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.retrieval.passages import Passage
from catalog.retrieval.rerank.base import check_scores
from catalog.retrieval.rerank.excerpts import EXCERPTS_VERSION
from catalog.retrieval.snippets import find_snippet
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.retrieval.caches import ModelCache
    from catalog.retrieval.rerank.base import Reranker


BlendName = Literal["position", "linear", "replace"]
# w(n) of ``position``: (last rank, weight), and the weight of all other ranks; see ``blend``.
_BANDS = ((3, 0.75), (10, 0.60))
_WEIGHT_BEYOND = 0.40


class RerankScore(NamedTuple):
    """A reranker's raw score of one passage, and its relevance from 0 to 1."""

    raw: float
    relevance: float


class BlendedScore(NamedTuple):
    """The two summands of a passage's score."""

    fused: float
    reranked: float

    @property
    def score(self) -> float:
        """Return their sum."""
        return self.fused + self.reranked


def blend(
    name: BlendName,
    fused: Sequence[float],
    reranked: Sequence[RerankScore],
    *,
    weight: float = 0.3,
) -> list[BlendedScore]:
    """Blend the scores of passages in the fused order.

    ``reranked`` are the scores of the first passages, at most as many as there are; ``weight``
    (0 to 1) is the reranker's share of ``linear``. With f the fused score, r the reranker's raw
    score, p the same as relevance (0 to 1), w the weight, and n the rank before, from 1:

    =========  ==================================  ===================
    blend      fused                               reranked
    =========  ==================================  ===================
    position   w(n) / n                            (1 - w(n)) · p
    linear     (1 - w) · minmax(f)                 w · minmax(r)
    replace    0                                   p
    =========  ==================================  ===================

    ``w(n)`` is .75 for the first three, .60 to the tenth, .40 after (the bands of the qmd search).
    Minimum and maximum are those of the scored passages; a list of equal scores maps to 1. A
    passage that was not scored has 0 for ``reranked``.
    """
    count, ranks = len(reranked), range(1, len(fused) + 1)
    if name == "linear":
        own = [(1 - weight) * part for part in _minmax(fused, count)]
        theirs = [weight * part for part in _minmax([score.raw for score in reranked], count)]
    elif name == "position":
        own = [_band_weight(rank) / rank for rank in ranks]
        theirs = [
            (1 - _band_weight(rank)) * score.relevance
            for rank, score in zip(ranks, reranked, strict=False)
        ]
    else:
        own = [0.0] * len(fused)
        theirs = [score.relevance for score in reranked]
    theirs += [0.0] * (len(fused) - count)
    return [BlendedScore(*parts) for parts in zip(own, theirs, strict=True)]


def sort_positions(scores: Sequence[BlendedScore], scored: int) -> list[int]:
    """Return positions best first: the first ``scored`` ones, then the rest; ties in order."""
    return sorted(range(len(scores)), key=lambda n: (n >= scored, -scores[n].score, n))


def _band_weight(rank: int) -> float:
    return next((weight for last, weight in _BANDS if rank <= last), _WEIGHT_BEYOND)


def _minmax(scores: Sequence[float], scored: int) -> list[float]:
    """Scale scores by the range of the first ``scored``; worse ones are below 0."""
    if scored == 0:
        return [0.0] * len(scores)
    low, high = min(scores[:scored]), max(scores[:scored])
    if high > low:
        return [(score - low) / (high - low) for score in scores]
    return [1.0 + min(0.0, score - low) for score in scores]


@dataclass(frozen=True, slots=True)
class RerankOptions:
    """How many passages are scored, and how their scores are blended.

    ``candidates`` passages are scored, or fewer if ``budget_ms`` (0: no limit) runs out; the rest
    follow in their order. ``top_n`` keeps this many (0: all). :func:`blend` has the formulas.
    """

    candidates: int = 3
    blend: BlendName = "linear"
    weight: float = 0.3
    budget_ms: int = 0
    top_n: int = 0


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """Passages in their new order, how many were scored by model and cache, and any early end."""

    passages: list[Passage]
    note: str
    error: CatalogError | None = None


def rerank_passages(
    passages: Sequence[Passage],
    query: str,
    reranker: Reranker,
    cache: ModelCache | None,
    options: RerankOptions,
    clock: Callable[[], float] = time.perf_counter,
) -> RerankOutcome:
    """Let a reranker read the first passages, and blend its scores with theirs.

    A passage is read after its title and headings, at its best run of words. Scores before a
    failure count and are cached. Raises :class:`RerankError` if no passage was scored.
    """
    deadline = clock() + options.budget_ms / 1000 if options.budget_ms else math.inf
    with as_rerank_errors(reranker):
        name, model = reranker.name, reranker.fingerprint
    texts = [RerankText.of(one.chunk, query, model) for one in passages[: options.candidates]]
    cached = {} if cache is None else cache.get([text.key for text in texts])
    scoring = RerankScoring(reranker, query, cached, deadline=deadline, clock=clock)
    scoring.score(texts)
    if cache is not None:
        cache.put(scoring.new, model=model)
    scores = scoring.scores
    raw = [scores[text.key] for text in takewhile(lambda text: text.key in scores, texts)]
    if scoring.error is not None and not raw:
        raise scoring.error
    reranked = _with_relevance(reranker, raw, scores.values())
    note = f"{name}, {options.blend}: {len(raw)} of {len(passages)} scored"
    if cached:
        note = f"{note}, {len(cached)} of them cached"
    if scoring.error is not None:
        note = f"{note}; stopped: {scoring.error}"
    elif len(raw) < len(texts):
        note = f"{note}; the budget of {options.budget_ms} ms allows no more"
    if scoring.cut:
        note = f"{note}; {scoring.cut} read in part"
    return RerankOutcome(_blend(passages, reranked, name, options), note, scoring.error)


def _with_relevance(
    reranker: Reranker, raw: Sequence[float], known: Iterable[float]
) -> list[RerankScore]:
    """Pair raw scores with their relevance; ``known`` are all raw scores, for the scale."""
    with as_rerank_errors(reranker):
        learn = getattr(reranker, "learn", None)
        if learn is not None:
            learn(known)
        relevance = [reranker.relevance(score) for score in raw]
        relevance = check_scores(relevance, len(raw), reranker.name)
    return [RerankScore(*pair) for pair in zip(raw, relevance, strict=True)]


def _blend(
    passages: Sequence[Passage],
    reranked: Sequence[RerankScore],
    model: str,
    options: RerankOptions,
) -> list[Passage]:
    fused = [passage.score for passage in passages]
    blended = blend(options.blend, fused, reranked, weight=options.weight)
    ordered: list[Passage] = []
    for place in sort_positions(blended, len(reranked)):
        score = blended[place]
        said = reranked[place] if place < len(reranked) else None
        record = Reranked(
            model=model,
            blend=options.blend,
            rank=place + 1,
            raw_score=said.raw if said else None,
            relevance=said.relevance if said else None,
            fused_part=score.fused,
            rerank_part=score.reranked,
        )
        ordered.append(passages[place]._replace(score=score.score, reranked=record))
    return ordered[: options.top_n] if options.top_n else ordered


@dataclass(frozen=True, slots=True)
class RerankText:
    """A passage to score; ``key`` is the cache key of its score."""

    head: str  # title and headings, read before the text
    text: str
    key: str
    text_hash: str

    @classmethod
    def of(cls, chunk: Chunk, query: str, model: str) -> RerankText:
        """Return the text of a passage after its title and headings."""
        names = filter(None, (chunk.title, *chunk.heading_path, *find_columns(chunk.context)))
        return cls.of_text(chunk.text, query, model, head=" > ".join(dict.fromkeys(names)))

    @classmethod
    def of_text(cls, text: str, query: str, model: str, *, head: str = "") -> RerankText:
        """Return the text with the cache key of its score for this query and model."""
        text_hash = sha1_hex(text)
        key = cache_key("rerank", query, head, text_hash, model, EXCERPTS_VERSION)
        return cls(head, text, key, text_hash)


class RerankScoring:
    """Score passages while there is time; hold scores by cache key, new ones, and cut passages.

    ``error`` is the failure that ended it; to run out of time is not a failure.
    """

    def __init__(
        self,
        reranker: Reranker,
        query: str,
        cached: Mapping[str, str],
        *,
        deadline: float,
        clock: Callable[[], float],
    ) -> None:
        self._reranker, self._query = reranker, query
        self._deadline, self._clock = deadline, clock
        self._within = None if math.isinf(deadline) else getattr(reranker, "scores_within", None)
        self.scores = {key: float(value) for key, value in cached.items()}
        self.new: dict[str, CacheEntry] = {}
        self.cut = 0
        self.error: CatalogError | None = None

    def score(self, texts: Sequence[RerankText]) -> None:
        """Score texts without a score, in order, equal texts once, while there is time."""
        missing = list({text.key: text for text in texts if text.key not in self.scores}.values())
        slowest = 0.0
        try:
            with as_rerank_errors(self._reranker):
                size = self._reranker.batch_size
                for first in range(0, len(missing), size):
                    started = self._clock()
                    if started + slowest > self._deadline:
                        return
                    self._score_batch(missing[first : first + size])
                    if first:  # the first batch may have loaded the model
                        slowest = max(slowest, self._clock() - started)
        except CatalogError as error:
            is_our_limit = self._within and self.new and self._clock() > self._deadline
            self.error = None if is_our_limit else error

    def _score_batch(self, batch: Sequence[RerankText]) -> None:
        fitted = [self._reranker.fit(self._query, text.text, head=text.head) for text in batch]
        passages = [passage for passage, _ in fitted]
        if self._within is None:
            scores = self._reranker.scores(self._query, passages)
        else:  # never 0 seconds, which would mean something else to many clients
            seconds = max(0.001, self._deadline - self._clock())
            scores = self._within(self._query, passages, seconds)
        scores = check_scores(scores, len(batch), self._reranker.name)
        for text, (_, was_cut), score in zip(batch, fitted, scores, strict=True):
            self.scores[text.key] = score
            self.new[text.key] = CacheEntry(repr(score), text.text_hash)
            self.cut += was_cut


@contextmanager
def as_rerank_errors(reranker: Reranker) -> Iterator[None]:
    """Turn an exception of the reranker that is not ours into a :class:`RerankError`."""
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:
        message = f"{type(reranker).__name__} failed: {type(error).__name__}: {error}"
        raise RerankError(message) from error


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

    The query's words find a sentence that repeats them. A reranker also finds one that answers in
    other words, and so the second at which the answer is said. A passage with a single sentence
    does not change. Nothing changes after :data:`MOST_SENTENCES` sentences or ``seconds``, or if
    the reranker does not choose sentences (see :class:`Reranker`). Return the passages and a note
    about the number of sentences read, "" for none. ``words`` are marked in the snippets. Raises
    :class:`RerankError` if the reranker fails.
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
    """Yield the sentences with a cue, or the cues of captions without full stops."""
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
