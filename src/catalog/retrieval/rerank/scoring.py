"""Rerank: score passages from the cache or by a model, and blend the scores with theirs.

The reranker may be a user's, so its exceptions become a :class:`RerankError` and its scores are
checked.
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from catalog.core.documents import Chunk, find_columns
from catalog.core.errors import CatalogError, RerankError
from catalog.core.ids import sha1_hex
from catalog.core.results import Reranked
from catalog.core.tokens import TokenCounter
from catalog.retrieval.query_words import language_of_words, query_words
from catalog.retrieval.snippets import Passage
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.store.llm_cache import ModelCache

BlendName = Literal["position", "linear", "replace"]
EXCERPTS_VERSION = "3"  # raise it with every change that lets a model read another part of a text
SPECIAL_TOKENS = 4  # that models add to a pair: 3 in BERT, 4 in RoBERTa
_BANDS = ((3, 0.75), (10, 0.60), (math.inf, 0.40))  # last rank and weight; see ``blend``
_SENTENCE_END = re.compile(r"""(?:\n|[.!?…]['"”’)\]]{0,8}\s|[。！？])\s{0,8}$""")
_LOOK_BACK = 8  # characters before a token to look for the end of a sentence


class Reranker(Protocol):
    """A model that reads query and passage together. It is cheap to make and loads at first use.

    Several threads may use one reranker at once. A failure is a
    :class:`~catalog.core.errors.RerankError`.
    """

    name: str  # for explanations, such as ``ms-marco-MiniLM-L-12-v2``

    @property
    def fingerprint(self) -> str:
        """Identify the exact weights, or model and prompt: equal fingerprints score equally."""

    @property
    def batch_size(self) -> int:
        """Return the largest number of passages for one call of :meth:`scores`."""

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the text to read together with the query, and whether the passage was cut.

        It is ``head`` (title and headings) on its own line, then a run: see :func:`fit_pair`.
        """

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return one finite raw score for each result of :meth:`fit`, in order; more is better."""

    def relevance(self, score: float) -> float:
        """Map a raw score to 0..1; the order stays the same."""


@dataclass(frozen=True, slots=True)
class RerankOptions:
    """How many passages are scored, and how their scores are blended: see :func:`blend`.

    Fewer are scored if ``budget_ms`` (0: no limit) runs out. ``top_n`` keeps this many (0: all).
    """

    candidates: int = 3
    blend: BlendName = "linear"
    weight: float = 0.3
    budget_ms: int = 0
    top_n: int = 0


class RerankOutcome(NamedTuple):
    """Passages in their new order, how many were scored by model and cache, and any early end."""

    passages: list[Passage]
    note: str
    error: CatalogError | None = None


class RerankScore(NamedTuple):
    """A reranker's raw score of one passage, and its relevance from 0 to 1."""

    raw: float
    relevance: float


BlendedScore = tuple[float, float]
"""The two summands of a passage's score: fused, and reranked."""


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
        name, model, size = reranker.name, reranker.fingerprint, reranker.batch_size
    texts: dict[str, tuple[str, str]] = {}  # head and text by cache key
    keys = []
    for passage in passages[: options.candidates]:
        head, text = head_of(passage.chunk), passage.chunk.text
        keys.append(cache_key("rerank", query, head, sha1_hex(text), model, EXCERPTS_VERSION))
        texts[keys[-1]] = head, text
    cached = {} if cache is None else cache.get(keys)
    scores = {key: float(value) for key, value in cached.items()}
    missing = [key for key in texts if key not in scores]
    cut, slowest, error = 0, 0.0, None
    try:
        for first in range(0, len(missing), size):
            started = clock()
            if started + slowest > deadline:
                break
            batch = missing[first : first + size]
            with as_rerank_errors(reranker):
                fitted = [reranker.fit(query, texts[key][1], head=texts[key][0]) for key in batch]
                said = reranker.scores(query, [text for text, _ in fitted])
                scores |= zip(batch, check_scores(said, len(batch), name), strict=True)
            cut += sum(was_cut for _, was_cut in fitted)
            if first:  # the first batch may have loaded the model
                slowest = max(slowest, clock() - started)
    except CatalogError as failure:
        error = failure
    if cache is not None:
        new = {key: (scores[key], texts[key][1]) for key in missing if key in scores}
        entries = {key: CacheEntry(repr(one), sha1_hex(text)) for key, (one, text) in new.items()}
        cache.put(entries, model=model)
    raw = [scores[key] for key in takewhile(scores.__contains__, keys)]
    if error is not None and not raw:
        raise error
    end = f"; the budget of {options.budget_ms} ms allows no more" if len(raw) < len(keys) else ""
    end = end if error is None else f"; stopped: {error}"
    note = f"{name}, {options.blend}: {len(raw)} of {len(passages)} scored"
    note += f", {len(cached)} of them cached" if cached else ""
    note += end + (f"; {cut} read in part" if cut else "")
    with as_rerank_errors(reranker):
        # A server's numbers are known to be logits once one is outside 0..1: ask for those first.
        ends = (min(raw), max(raw)) if raw else ()
        relevance = [reranker.relevance(score) for score in (*ends, *raw)][len(ends) :]
        judged = list(map(RerankScore, raw, check_scores(relevance, len(raw), name)))
    return RerankOutcome(_blend_passages(passages, judged, name, options), note, error)


def head_of(chunk: Chunk) -> str:
    """Return what is read before a passage: its title, headings and columns."""
    names = filter(None, (chunk.title, *chunk.heading_path, *find_columns(chunk.context)))
    return " > ".join(dict.fromkeys(names))


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


def check_scores(scores: Sequence[float], count: int, name: str) -> list[float]:
    """Return the scores as floats; raise :class:`RerankError` unless ``count`` and all finite."""
    if len(scores) != count:
        raise RerankError(f"{name} returned {len(scores)} scores for {count} passages")
    try:
        numbers = [float(score) for score in scores]
    except (TypeError, ValueError, OverflowError):
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise RerankError(f"{name} returned a score that is not a number, or not finite")
    return numbers


def sigmoid(logit: float) -> float:
    """Compute ``1 / (1 + exp(-logit))``, for logits of any size."""
    return (1 + math.tanh(logit / 2)) / 2


def blend(
    name: BlendName, fused: Sequence[float], reranked: Sequence[RerankScore], *, weight: float = 0.3
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
    own, theirs = [0.0] * len(fused), [score.relevance for score in reranked]
    if name == "linear":
        own = [(1 - weight) * part for part in _minmax(fused, len(reranked))]
        theirs = [weight * part for part in _minmax([one.raw for one in reranked], len(reranked))]
    elif name == "position":
        ranks = range(1, len(fused) + 1)
        shares = [next(share for last, share in _BANDS if rank <= last) for rank in ranks]
        own = [share / rank for rank, share in zip(ranks, shares, strict=True)]
        theirs = [(1 - share) * said for share, said in zip(shares, theirs, strict=False)]
    theirs += [0.0] * (len(fused) - len(reranked))
    return list(zip(own, theirs, strict=True))


def sort_positions(scores: Sequence[BlendedScore], scored: int) -> list[int]:
    """Return positions best first: the first ``scored`` ones, then the rest; ties in order."""
    return sorted(range(len(scores)), key=lambda n: (n >= scored, -sum(scores[n]), n))


def _minmax(scores: Sequence[float], scored: int) -> list[float]:
    """Scale scores by the range of the first ``scored``; worse ones are below 0."""
    low, high = min(scores[:scored], default=0.0), max(scores[:scored], default=0.0)
    if high == low:
        return [1.0 + min(0.0, score - low) if scored else 0.0 for score in scores]
    return [(score - low) / (high - low) for score in scores]


def _blend_passages(
    passages: Sequence[Passage], reranked: Sequence[RerankScore], model: str, options: RerankOptions
) -> list[Passage]:
    fused = [passage.score for passage in passages]
    blended = blend(options.blend, fused, reranked, weight=options.weight)
    ordered: list[Passage] = []
    for place in sort_positions(blended, len(reranked))[: options.top_n or None]:
        raw, relevance = reranked[place] if place < len(reranked) else (None, None)
        own, theirs = blended[place]
        told = {"model": model, "blend": options.blend, "rank": place + 1}
        told |= {"raw_score": raw, "relevance": relevance, "fused_part": own, "rerank_part": theirs}
        record = Reranked.model_validate(told)
        ordered.append(passages[place]._replace(score=sum(blended[place]), reranked=record))
    return ordered


def fit_pair(
    query: str, passage: str, counter: TokenCounter, max_tokens: int, head: str = ""
) -> tuple[str, bool]:
    """Return ``head`` and the best run of ``passage`` that fit with the query, and if it is cut."""
    query_tokens = len(counter.spans(cut_query(query, counter, max_tokens)))
    room = max(1, max_tokens - SPECIAL_TOKENS - query_tokens)
    if head:
        head = _first_tokens(head, counter, min(room // 2, max_tokens // 4)) + "\n"
        room = max(1, room - len(counter.spans(head)))
    text, was_cut = passage, False
    while True:  # a word that is cut may need more tokens than before
        run, is_shorter = best_window(text, query, room, counter.spans(text))
        if not is_shorter or len(run) == len(text):
            return head + text, was_cut
        text, was_cut = run, True


def cut_query(query: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return the query's first tokens, at most half of ``max_tokens``."""
    return _first_tokens(query, counter, max_tokens // 2)


def _first_tokens(text: str, counter: TokenCounter, count: int) -> str:
    spans = counter.spans(text)
    count = max(1, count)
    return text if len(spans) <= count else text[: int(spans[count - 1, 1])]


def best_window(
    text: str, query: str, max_tokens: int, spans: npt.NDArray[np.int64]
) -> tuple[str, bool]:
    """Return the run of ``max_tokens`` tokens with most distinct query words, and if it is cut.

    The head of a long passage would miss every answer at its end. ``spans`` has the shape
    ``(n, 2)``: character offsets of the text's tokens, ascending. The earliest of equally good runs
    has the words in its middle, and begins a sentence, a line or a word where one begins near.
    """
    latest = len(spans) - max_tokens
    if latest <= 0:
        return text, False
    starts, ends = spans[:, 0].tolist(), spans[:, 1].tolist()
    first, last = _best_starts(text, query, max_tokens, starts, ends)
    middle = min(max((first + last) // 2, 0), latest)
    reach = max_tokens // 4 + 1
    # A run that reaches the end of the text is shortened at its beginning instead of its end.
    lowest = latest if middle == latest else max(first, middle - reach, 0)

    def offset(index: int) -> int:
        """Return where the token begins, after white space; the first begins with the text."""
        return ends[index] - len(text[starts[index] : ends[index]].lstrip()) if index else 0

    def rank(index: int) -> tuple[int, int]:
        at = offset(index)
        if at == 0 or _SENTENCE_END.search(text[max(0, at - _LOOK_BACK) : at]):
            return 2, -abs(index - middle)
        return not _is_inside_word(text, at), -abs(index - middle)

    start = max(range(lowest, min(last, middle + reach) + 1), key=rank)
    within = ends[start : start + max_tokens]
    cut_at = next((at for at in reversed(within) if not _is_inside_word(text, at)), within[-1])
    return text[offset(start) : cut_at], True


def _best_starts(
    text: str, query: str, size: int, starts: Sequence[int], ends: Sequence[int]
) -> tuple[int, int]:
    """Return the first and last token, maybe beyond the text, at which a best run may start."""
    words = query_words(query, language_of_words(text))
    held = [
        (bisect_right(ends, match.start), bisect_left(starts, match.end) - 1, match.tokens)
        for match in words.matches(text)
    ]
    best, most = (0, 0), (0, 0)
    for number, (first, _, _) in enumerate(held):
        tokens = 0
        for _, last, added in held[number:]:
            if last >= first + size:
                break
            if added & ~tokens and (rank := words.rank_of(tokens := tokens | added)) > most:
                best, most = (last - size + 1, first), rank
    return best


def _is_inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()
