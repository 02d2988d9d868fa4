"""Rerank: score passages from the cache or by a model, and blend the scores with theirs.

The reranker may be a user's, so its exceptions become a :class:`RerankError` and its scores are
checked.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from catalog.core.documents import Chunk, find_columns
from catalog.core.errors import CatalogError, RerankError
from catalog.core.ids import sha1_hex
from catalog.core.results import Reranked
from catalog.core.tokens import TokenCounter
from catalog.retrieval.passages import Passage
from catalog.retrieval.query_words import language_of_words, query_words
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.retrieval.caches import ModelCache

    Spans = npt.NDArray[np.int64]

BlendName = Literal["position", "linear", "replace"]
EXCERPTS_VERSION = "2"  # raise it with every change that lets a model read another part of a text
SPECIAL_TOKENS = 4  # that models add to a pair: 3 in BERT, 4 in RoBERTa
# w(n) of ``position``: (last rank, weight), and the weight of all other ranks; see ``blend``.
_BANDS = ((3, 0.75), (10, 0.60))
_WEIGHT_BEYOND = 0.40
_SENTENCE_END = re.compile(r"""(?:\n|[.!?…]['"”’)\]]{0,8}\s|[。！？])\s{0,8}$""")
_LOOK_BACK = 8  # characters before a token to look for the end of a sentence


class Reranker(Protocol):
    """A model that reads query and passage together. It is cheap to make and loads at first use.

    Several threads may use one reranker at once.
    """

    @property
    def name(self) -> str:
        """Return the model's name for explanations, such as ``ms-marco-MiniLM-L-12-v2``."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identify the exact weights, or model and prompt: equal fingerprints score equally.

        Raises :class:`~catalog.core.errors.ModelUnavailableError`.
        """
        ...

    @property
    def batch_size(self) -> int:
        """Return the largest number of passages for one call of :meth:`scores`."""
        ...

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the text to read together with the query, and whether the passage was cut.

        The text is ``head`` (such as title and headings) on its own line, then the run of the
        passage that fits: see :func:`fit_pair`.
        """
        ...

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return one finite raw score for each passage, in order; higher is better.

        Raw scores of one :attr:`fingerprint` are comparable across calls. ``passages`` are results
        of :meth:`fit`. Raises :class:`~catalog.core.errors.RerankError` for a failure or an
        unusable answer, and :class:`~catalog.core.errors.ConfigError` if the model is not available
        at all.
        """
        ...

    def relevance(self, score: float) -> float:
        """Map a raw score to 0..1; the order stays the same."""
        ...


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


class RerankOutcome(NamedTuple):
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
    texts: dict[str, tuple[str, str]] = {}  # head and text by cache key
    keys = []
    for passage in passages[: options.candidates]:
        head, text = head_of(passage.chunk), passage.chunk.text
        keys.append(cache_key("rerank", query, head, sha1_hex(text), model, EXCERPTS_VERSION))
        texts[keys[-1]] = head, text
    cached = {} if cache is None else cache.get(keys)
    scores = {key: float(value) for key, value in cached.items()}
    missing = {key: text for key, text in texts.items() if key not in scores}
    new: dict[str, CacheEntry] = {}
    cut, error = 0, None
    try:
        for key, score, was_cut in _score(reranker, query, missing, deadline, clock):
            scores[key] = score
            new[key] = CacheEntry(repr(score), sha1_hex(texts[key][1]))
            cut += was_cut
    except CatalogError as failure:
        error = failure
    if cache is not None:
        cache.put(new, model=model)
    raw = [scores[key] for key in takewhile(scores.__contains__, keys)]
    if error is not None and not raw:
        raise error
    note = f"{name}, {options.blend}: {len(raw)} of {len(passages)} scored"
    note += f", {len(cached)} of them cached" if cached else ""
    if error is not None:
        note += f"; stopped: {error}"
    elif len(raw) < len(keys):
        note += f"; the budget of {options.budget_ms} ms allows no more"
    note += f"; {cut} read in part" if cut else ""
    reranked = _with_relevance(reranker, raw)
    return RerankOutcome(_blend_passages(passages, reranked, name, options), note, error)


def head_of(chunk: Chunk) -> str:
    """Return what is read before a passage: its title, headings and columns."""
    names = filter(None, (chunk.title, *chunk.heading_path, *find_columns(chunk.context)))
    return " > ".join(dict.fromkeys(names))


def _score(
    reranker: Reranker,
    query: str,
    texts: Mapping[str, tuple[str, str]],
    deadline: float,
    clock: Callable[[], float],
) -> Iterator[tuple[str, float, bool]]:
    """Yield key, raw score and whether the text was cut, while there is time."""
    keys, slowest = list(texts), 0.0
    with as_rerank_errors(reranker):
        size = reranker.batch_size
        for first in range(0, len(keys), size):
            started = clock()
            if started + slowest > deadline:
                return
            batch = keys[first : first + size]
            fitted = [reranker.fit(query, texts[key][1], head=texts[key][0]) for key in batch]
            scores = reranker.scores(query, [text for text, _ in fitted])
            scores = check_scores(scores, len(batch), reranker.name)
            for key, score, (_, was_cut) in zip(batch, scores, fitted, strict=True):
                yield key, score, was_cut
            if first:  # the first batch may have loaded the model
                slowest = max(slowest, clock() - started)


def _with_relevance(reranker: Reranker, raw: Sequence[float]) -> list[RerankScore]:
    if not raw:
        return []
    with as_rerank_errors(reranker):
        # A server's numbers are known to be logits once one is outside 0..1: ask for those first.
        relevance = [reranker.relevance(score) for score in (min(raw), max(raw), *raw)][2:]
        relevance = check_scores(relevance, len(raw), reranker.name)
    return [RerankScore(*pair) for pair in zip(raw, relevance, strict=True)]


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
    except (TypeError, ValueError, OverflowError) as error:
        raise RerankError(f"{name} returned a score that is not a number") from error
    if not all(map(math.isfinite, numbers)):
        raise RerankError(f"{name} returned a score that is not finite")
    return numbers


def sigmoid(logit: float) -> float:
    """Compute ``1 / (1 + exp(-logit))``, for logits of any size."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1 + power)


class RerankScore(NamedTuple):
    """A reranker's raw score of one passage, and its relevance from 0 to 1."""

    raw: float
    relevance: float


class BlendedScore(NamedTuple):
    """The two summands of a passage's score."""

    fused: float
    reranked: float


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
    count = len(reranked)
    if name == "linear":
        own = [(1 - weight) * part for part in _minmax(fused, count)]
        theirs = [weight * part for part in _minmax([score.raw for score in reranked], count)]
    elif name == "position":
        weights = [_band_weight(rank) for rank in range(1, len(fused) + 1)]
        own = [share / rank for rank, share in enumerate(weights, start=1)]
        theirs = [
            (1 - share) * score.relevance for share, score in zip(weights, reranked, strict=False)
        ]
    else:
        own = [0.0] * len(fused)
        theirs = [score.relevance for score in reranked]
    theirs += [0.0] * (len(fused) - count)
    return [BlendedScore(*parts) for parts in zip(own, theirs, strict=True)]


def sort_positions(scores: Sequence[BlendedScore], scored: int) -> list[int]:
    """Return positions best first: the first ``scored`` ones, then the rest; ties in order."""
    return sorted(range(len(scores)), key=lambda n: (n >= scored, -sum(scores[n]), n))


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


def _blend_passages(
    passages: Sequence[Passage],
    reranked: Sequence[RerankScore],
    model: str,
    options: RerankOptions,
) -> list[Passage]:
    fused = [passage.score for passage in passages]
    blended = blend(options.blend, fused, reranked, weight=options.weight)
    ordered: list[Passage] = []
    for place in sort_positions(blended, len(reranked)):
        said = reranked[place] if place < len(reranked) else None
        record = Reranked(
            model=model,
            blend=options.blend,
            rank=place + 1,
            raw_score=said.raw if said else None,
            relevance=said.relevance if said else None,
            fused_part=blended[place].fused,
            rerank_part=blended[place].reranked,
        )
        ordered.append(passages[place]._replace(score=sum(blended[place]), reranked=record))
    return ordered[: options.top_n] if options.top_n else ordered


def fit_pair(
    query: str, passage: str, counter: TokenCounter, max_tokens: int, head: str = ""
) -> tuple[str, bool]:
    """Return ``head`` and the best run of ``passage`` that fit with the query, and if it is cut.

    The query counts as :func:`cut_query` cuts it. The head gets at most a quarter of
    ``max_tokens``; the rest of it is dropped.
    """
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


def best_window(text: str, query: str, max_tokens: int, spans: Spans) -> tuple[str, bool]:
    """Return the run of ``max_tokens`` tokens with most distinct query words, and if it is cut.

    The head of a long passage would miss every answer at its end. ``spans`` has the shape
    ``(n, 2)``: character offsets of the text's tokens, ascending. Query words are those of the
    keyword index: stemmed, without stop words. Among runs with equally many words the earliest
    stretch of neighbouring runs wins. In it the run is chosen that begins a sentence, a line or a
    word near the stretch's middle, so that text on both sides of the words is read. Without any
    query word the result is the head. Takes time linear in the text.
    """
    latest = len(spans) - max_tokens
    if latest <= 0:
        return text, False
    first, last = _best_starts(text, query, max_tokens, spans)
    middle = min(max((first + last) // 2, 0), latest)
    reach = max_tokens // 4 + 1
    # A run that reaches the end of the text is shortened at its beginning instead of its end.
    lowest = latest if middle == latest else max(first, middle - reach, 0)

    def rank(index: int) -> tuple[int, int]:
        return _rank_boundary(text, _token_start(text, spans, index)), -abs(index - middle)

    start = max(range(lowest, min(last, middle + reach) + 1), key=rank)
    end = min(start + max_tokens, len(spans))
    ends = (int(spans[index - 1, 1]) for index in range(end, start, -1))
    cut_at = next((at for at in ends if not _is_inside_word(text, at)), int(spans[end - 1, 1]))
    return text[_token_start(text, spans, start) : cut_at], True


def _best_starts(text: str, query: str, size: int, spans: Spans) -> tuple[int, int]:
    """Return the first and last start of the earliest stretch of runs with most query words.

    Runs that extend beyond the text count, too. So the middle of the stretch has the words in the
    middle of the run, even near the ends of the text.
    """
    import numpy as np

    wanted = query_words(query, language_of_words(text))
    matches = wanted.matches(text)
    firsts = np.searchsorted(spans[:, 1], [match.start for match in matches], side="right")
    lasts = np.searchsorted(spans[:, 0], [match.end for match in matches], side="left") - 1
    held = np.zeros((len(wanted.words), len(spans) + size - 1), dtype=bool)  # by start + size - 1
    for first, last, match in zip(firsts.tolist(), lasts.tolist(), matches, strict=True):
        for number, word in enumerate(wanted.words):
            if first <= last and any(way & match.tokens for way in word):
                held[number, last : first + size] = True
    counts = held.sum(axis=0)
    if not counts.any():
        return 0, 0
    begin = int(counts.argmax())
    others = np.flatnonzero(counts[begin:] < counts[begin])
    end = begin + int(others[0]) - 1 if len(others) else len(counts) - 1
    return begin - size + 1, end - size + 1


def _rank_boundary(text: str, offset: int) -> int:
    """Return 2 at the beginning of a sentence or line, 1 at that of a word, else 0."""
    before = text[max(0, offset - _LOOK_BACK) : offset]
    if offset == 0 or _SENTENCE_END.search(before):
        return 2
    return 0 if _is_inside_word(text, offset) else 1


def _is_inside_word(text: str, offset: int) -> bool:
    return 0 < offset < len(text) and text[offset - 1].isalnum() and text[offset].isalnum()


def _token_start(text: str, spans: Spans, index: int) -> int:
    """Return the offset of the token's first character that is not white space; 0 for the first."""
    if index == 0:
        return 0
    start, end = int(spans[index, 0]), int(spans[index, 1])
    return end - len(text[start:end].lstrip())
