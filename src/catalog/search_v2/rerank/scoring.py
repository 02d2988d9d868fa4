"""Asking a reranker for the scores that are missing, batch by batch, until it fails or time is up.

The reranker may be anybody's: what it raises becomes a :class:`RerankError`, and what it answers
is checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeWithScore

from catalog.core.errors import CatalogError, RerankError
from catalog.core.ids import sha1_hex
from catalog.search_v2.postprocessors.nodes import text_of
from catalog.search_v2.rerank.base import checked
from catalog.search_v2.rerank.blending import RerankScore
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.search_v2.rerank.base import Reranker


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage to be scored; ``key`` is that of its score in the cache."""

    head: str  # title and headings, read before the text
    text: str
    key: str
    text_hash: str


@dataclass(slots=True)
class Scoring:
    """Raw scores by key so far, what of them is new, and how many passages were read in part.

    ``error`` is what stopped it early; running out of budget is none.
    """

    scores: dict[str, float]
    new: dict[str, CacheEntry] = field(default_factory=dict)
    cut: int = 0
    error: CatalogError | None = None


class Budget:
    """Milliseconds from its making on, 0 for no limit."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._started = time.perf_counter()

    def allows(self, needed_ms: float) -> bool:
        """Whether that much more time is left."""
        return not self._limit_ms or needed_ms + _ms(self._started) <= self._limit_ms

    @property
    def seconds_left(self) -> float | None:
        """``None`` without a limit; never 0, which would mean something else to many clients."""
        if not self._limit_ms:
            return None
        return max(0.001, (self._limit_ms - _ms(self._started)) / 1000)


def candidate(query: str, node: NodeWithScore, model: str) -> Candidate:
    """The node's passage behind its title and headings; ``model`` is the fingerprint."""
    text, head = text_of(node), _head(node)
    text_hash = sha1_hex(text)
    return Candidate(head, text, cache_key("rerank", query, head, text_hash, model), text_hash)


def score_missing(
    reranker: Reranker, query: str, chosen: Sequence[Candidate], scoring: Scoring, budget: Budget
) -> None:
    """Score what ``scoring`` lacks, best first and equal texts once, while time is left.

    A failure is put into ``scoring``, beside what was scored before it.
    """
    missing = list({one.key: one for one in chosen if one.key not in scoring.scores}.values())
    timed = budget.seconds_left is not None and hasattr(reranker, "scores_within")
    slowest_ms = 0.0
    try:
        with guarded(reranker):
            size = reranker.batch_size
            for start in range(0, len(missing), size):
                if not budget.allows(slowest_ms):
                    return
                batch_started = time.perf_counter()
                _score(reranker, query, missing[start : start + size], scoring, budget)
                if start:  # the first batch may have loaded the model
                    slowest_ms = max(slowest_ms, _ms(batch_started))
    except CatalogError as error:
        stopped_by_us = timed and scoring.new and not budget.allows(0.0)
        scoring.error = None if stopped_by_us else error


def judgements(
    reranker: Reranker, raws: Sequence[float], seen: Iterable[float]
) -> list[RerankScore]:
    """The raw scores with their relevance; ``seen`` are all that are known, for their scale."""
    with guarded(reranker):
        learn = getattr(reranker, "learn", None)
        if learn is not None:
            learn(seen)
        said = checked([reranker.relevance(raw) for raw in raws], len(raws), reranker.name)
    return [RerankScore(*pair) for pair in zip(raws, said, strict=True)]


@contextmanager
def guarded(reranker: Reranker) -> Iterator[None]:
    """Makes a :class:`RerankError` of whatever the reranker raises that is no error of ours."""
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:
        failed = f"{type(reranker).__name__} failed: {type(error).__name__}: {error}"
        raise RerankError(failed) from error


def _score(
    reranker: Reranker, query: str, batch: Sequence[Candidate], scoring: Scoring, budget: Budget
) -> None:
    fitted = [reranker.fitted(query, one.text, head=one.head) for one in batch]
    texts = [text for text, _ in fitted]
    seconds, within = budget.seconds_left, getattr(reranker, "scores_within", None)
    if seconds is None or within is None:
        answer = reranker.scores(query, texts)
    else:
        answer = within(query, texts, seconds)
    numbers = checked(answer, len(batch), reranker.name)
    for one, (_, was_cut), raw in zip(batch, fitted, numbers, strict=True):
        scoring.scores[one.key] = raw
        scoring.new[one.key] = CacheEntry(repr(raw), one.text_hash)
        scoring.cut += was_cut


def _head(node: NodeWithScore) -> str:
    """Title and headings, outermost first, none twice."""
    about = node.node.metadata
    headings = about.get("heading_path")
    if isinstance(headings, str):
        headings = [headings]
    elif not isinstance(headings, list | tuple):
        headings = []
    names = dict.fromkeys(str(one) for one in (about.get("title"), *headings) if one)
    return " > ".join(names)


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000
