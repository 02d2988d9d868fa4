"""The rerank stage: which passages are scored, from the cache or by the model, and blended.

The reranker may be anybody's: what it raises becomes a :class:`RerankError`, and what it answers
is checked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, PrivateAttr

from catalog.core.errors import CatalogError, RerankError
from catalog.core.ids import sha1_hex
from catalog.core.results import Reranked
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.rerank.base import check_scores
from catalog.search_v2.rerank.blending import BlendName, RerankScore, blend, sort_positions
from catalog.search_v2.select import text_of
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.search_v2.caches import ModelCache
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
        said = check_scores([reranker.relevance(raw) for raw in raws], len(raws), reranker.name)
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
    numbers = check_scores(answer, len(batch), reranker.name)
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


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """Passages in their new order, how many were scored and whence, and what stopped it early."""

    nodes: list[NodeWithScore]
    note: str
    error: CatalogError | None = None


class RerankPostprocessor(BaseNodePostprocessor):
    """Lets a reranker read the first passages and blends what it says with their scores.

    Takes nodes of any retriever, best first; the passage is read behind its title and headings,
    at its best run of words. ``candidates`` passages are scored, fewer when ``budget_ms`` (0: no
    limit) would be exceeded; those not scored follow in their order. ``top_n`` keeps that many
    (0: all). See ``rerank.blending`` for the formulas.
    """

    candidates: int = Field(20, ge=1)
    blend: BlendName = "linear"
    weight: float = Field(0.3, ge=0.0, le=1.0)
    budget_ms: int = Field(0, ge=0)
    top_n: int = Field(0, ge=0)
    _reranker: Reranker = PrivateAttr()
    _cache: ModelCache | None = PrivateAttr(default=None)

    def __init__(
        self, reranker: Reranker, cache: ModelCache | None = None, **settings: object
    ) -> None:
        super().__init__(**settings)
        self._reranker, self._cache = reranker, cache

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex serialises."""
        return "RerankPostprocessor"

    def rerank(self, nodes: Sequence[NodeWithScore], query: str) -> RerankOutcome:
        """The nodes in their new order; what was scored before a failure is kept and counts.

        Raises :class:`RerankError` and leaves the nodes as they are when nothing was scored.
        """
        budget = Budget(self.budget_ms)
        with guarded(self._reranker):
            model = self._reranker.fingerprint
        chosen = [candidate(query, node, model) for node in nodes[: self.candidates]]
        known = {} if self._cache is None else self._cache.get([one.key for one in chosen])
        scoring = Scoring({key: float(value) for key, value in known.items()})
        score_missing(self._reranker, query, chosen, scoring, budget)
        if self._cache is not None:
            self._cache.put(scoring.new, model=model)
        raws: list[float] = []
        for one in chosen:
            if one.key not in scoring.scores:
                break
            raws.append(scoring.scores[one.key])
        if scoring.error is not None and not raws:
            raise scoring.error
        judged = judgements(self._reranker, raws, scoring.scores.values())
        note = f"{self._reranker.name}, {self.blend}: {len(judged)} of {len(nodes)} scored"
        if known:
            note = f"{note}, {len(known)} of them cached"
        if scoring.error is not None:
            note = f"{note}; stopped: {scoring.error}"
        elif len(judged) < len(chosen):
            note = f"{note}; {self.budget_ms} ms allow no more"
        if scoring.cut:
            note = f"{note}; {scoring.cut} read in part"
        return RerankOutcome(self._blended(nodes, judged), note, scoring.error)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        try:
            done = self.rerank(nodes, query_bundle.query_str)
        except CatalogError as error:
            _log.warning("not reranked, the order stands: %s", error)
            return nodes
        if done.error is not None:
            _log.warning("reranked in part: %s", done.error)
        return done.nodes

    def _blended(
        self, nodes: Sequence[NodeWithScore], judged: Sequence[RerankScore]
    ) -> list[NodeWithScore]:
        fused = [node.score or 0.0 for node in nodes]
        parts = blend(self.blend, fused, judged, weight=self.weight)
        done: list[NodeWithScore] = []
        for place in sort_positions(parts, len(judged)):
            node, part = nodes[place], parts[place]
            said = judged[place] if place < len(judged) else None
            if isinstance(node, ScoredPassage):
                record = Reranked(
                    model=self._reranker.name,
                    blend=self.blend,
                    rank=place + 1,
                    raw_score=said.raw if said else None,
                    relevance=said.relevance if said else None,
                    fused_part=part.fused,
                    rerank_part=part.reranked,
                )
                done.append(node.with_rerank(part.score, record))
            else:
                done.append(NodeWithScore(node=node.node, score=part.score))
        return done[: self.top_n] if self.top_n else done
