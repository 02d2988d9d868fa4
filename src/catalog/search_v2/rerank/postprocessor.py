"""The rerank stage: which passages are scored, from the cache or by the model, and blended.

The reranker may be anybody's: what it raises becomes a :class:`RerankError`, and what it answers
is checked.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import Field, PrivateAttr

from catalog.core.errors import CatalogError, RerankError
from catalog.core.ids import sha1_hex
from catalog.core.results import Reranked
from catalog.search_v2.passages import PassagePostprocessor, ScoredPassage
from catalog.search_v2.rerank.base import check_scores
from catalog.search_v2.rerank.blending import BlendName, RerankScore, blend, sort_positions
from catalog.search_v2.rerank.excerpts import EXCERPTS_VERSION
from catalog.search_v2.select import text_of
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.search_v2.caches import ModelCache
    from catalog.search_v2.rerank.base import Reranker

_log = logging.getLogger(__name__)
_dispatcher = get_dispatcher(__name__)


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """Passages in their new order, how many were scored and whence, and what stopped it early."""

    nodes: list[NodeWithScore]
    note: str
    error: CatalogError | None = None


class RerankPostprocessor(PassagePostprocessor):
    """Lets a reranker read the first passages and blends what it says with their scores.

    Takes nodes of any retriever, best first; the passage is read behind its title and headings,
    at its best run of words. ``candidates`` passages are scored, fewer when ``budget_ms`` (0: no
    limit) would be exceeded; those not scored follow in their order. ``top_n`` keeps that many
    (0: all). See ``rerank.blending`` for the formulas.
    """

    candidates: int = Field(3, ge=1)
    blend: BlendName = "linear"
    weight: float = Field(0.3, ge=0.0, le=1.0)
    budget_ms: int = Field(0, ge=0)
    top_n: int = Field(0, ge=0)
    _reranker: Reranker = PrivateAttr()
    _cache: ModelCache | None = PrivateAttr(default=None)
    _clock: Callable[[], float] = PrivateAttr()

    def __init__(
        self,
        reranker: Reranker | None = None,
        cache: ModelCache | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        **settings: object,
    ) -> None:
        """Take a reranker, else that of the service which this process shares, with its cache."""
        super().__init__(**settings)
        if reranker is None:
            from catalog.search_v2.shared import shared_service

            parts = shared_service(make_store=True).parts  # nodes may be of other stores
            reranker, cache = parts.reranker, cache or parts.rerank_cache
        self._reranker, self._cache, self._clock = reranker, cache, clock

    def rerank(self, nodes: Sequence[NodeWithScore], query: str) -> RerankOutcome:
        """Put the nodes in their new order; what was scored before a failure counts and is cached.

        Told to LlamaIndex's callbacks and instrumentation. Raises :class:`RerankError` and leaves
        the nodes as they are when nothing was scored.
        """
        own = self.callback_manager
        manager = own if own.handlers else LlamaSettings.callback_manager
        given, top_n = list(nodes), self.top_n or len(nodes)
        with as_rerank_errors(self._reranker):
            name = self._reranker.name
        _dispatcher.event(ReRankStartEvent(query=query, nodes=given, top_n=top_n, model_name=name))
        payload: dict[str, Any] = {
            EventPayload.NODES: given,
            EventPayload.MODEL_NAME: name,
            EventPayload.QUERY_STR: query,
            EventPayload.TOP_K: top_n,
        }
        with manager.event(CBEventType.RERANKING, payload) as event:
            outcome = self._rerank(nodes, query)
            event.on_end({EventPayload.NODES: outcome.nodes})
        _dispatcher.event(ReRankEndEvent(nodes=outcome.nodes))
        return outcome

    def _rerank(self, nodes: Sequence[NodeWithScore], query: str) -> RerankOutcome:
        deadline = self._clock() + self.budget_ms / 1000 if self.budget_ms else math.inf
        with as_rerank_errors(self._reranker):
            model = self._reranker.fingerprint
        texts = [RerankText.of(node, query, model) for node in nodes[: self.candidates]]
        cached = {} if self._cache is None else self._cache.get([text.key for text in texts])
        scoring = RerankScoring(self._reranker, query, cached, deadline=deadline, clock=self._clock)
        scoring.score(texts)
        if self._cache is not None:
            self._cache.put(scoring.new, model=model)
        scores = scoring.scores
        raw = [scores[text.key] for text in takewhile(lambda text: text.key in scores, texts)]
        if scoring.error is not None and not raw:
            raise scoring.error
        reranked = self._with_relevance(raw, scores.values())
        note = f"{self._reranker.name}, {self.blend}: {len(raw)} of {len(nodes)} scored"
        if cached:
            note = f"{note}, {len(cached)} of them cached"
        if scoring.error is not None:
            note = f"{note}; stopped: {scoring.error}"
        elif len(raw) < len(texts):
            note = f"{note}; {self.budget_ms} ms allow no more"
        if scoring.cut:
            note = f"{note}; {scoring.cut} read in part"
        return RerankOutcome(self._blend_nodes(nodes, reranked), note, scoring.error)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        try:
            outcome = self.rerank(nodes, query_bundle.query_str)
        except CatalogError as error:
            _log.warning("not reranked, the order stands: %s", error)
            return nodes
        if outcome.error is not None:
            _log.warning("reranked in part: %s", outcome.error)
        return outcome.nodes

    def _with_relevance(self, raw: Sequence[float], known: Iterable[float]) -> list[RerankScore]:
        """Pair raw scores with their relevance; ``known`` are all there are, for their scale."""
        reranker = self._reranker
        with as_rerank_errors(reranker):
            learn = getattr(reranker, "learn", None)
            if learn is not None:
                learn(known)
            relevance = [reranker.relevance(score) for score in raw]
            relevance = check_scores(relevance, len(raw), reranker.name)
        return [RerankScore(*pair) for pair in zip(raw, relevance, strict=True)]

    def _blend_nodes(
        self, nodes: Sequence[NodeWithScore], reranked: Sequence[RerankScore]
    ) -> list[NodeWithScore]:
        fused = [node.score or 0.0 for node in nodes]
        blended = blend(self.blend, fused, reranked, weight=self.weight)
        ordered: list[NodeWithScore] = []
        for place in sort_positions(blended, len(reranked)):
            node, score = nodes[place], blended[place]
            if not isinstance(node, ScoredPassage):
                ordered.append(NodeWithScore(node=node.node, score=score.score))
                continue
            said = reranked[place] if place < len(reranked) else None
            record = Reranked(
                model=self._reranker.name,
                blend=self.blend,
                rank=place + 1,
                raw_score=said.raw if said else None,
                relevance=said.relevance if said else None,
                fused_part=score.fused,
                rerank_part=score.reranked,
            )
            ordered.append(node.with_rerank(score.score, record))
        return ordered[: self.top_n] if self.top_n else ordered


@dataclass(frozen=True, slots=True)
class RerankText:
    """A passage to be scored; ``key`` is that of its score in the cache."""

    head: str  # title and headings, read before the text
    text: str
    key: str
    text_hash: str

    @classmethod
    def of(cls, node: NodeWithScore, query: str, model: str) -> RerankText:
        """Return the text of a node, behind its title and headings."""
        text, metadata = text_of(node), node.node.metadata
        headings = metadata.get("heading_path")
        if isinstance(headings, str):
            headings = [headings]
        elif not isinstance(headings, list | tuple):
            headings = []
        names = (str(name) for name in (metadata.get("title"), *headings) if name)
        return cls.of_text(text, query, model, head=" > ".join(dict.fromkeys(names)))

    @classmethod
    def of_text(cls, text: str, query: str, model: str, *, head: str = "") -> RerankText:
        """Return the text with the key of its score for the query by the model."""
        text_hash = sha1_hex(text)
        key = cache_key("rerank", query, head, text_hash, model, EXCERPTS_VERSION)
        return cls(head, text, key, text_hash)


class RerankScoring:
    """Raw scores by cache key, as far as time allows; what of them is new; what was read in part.

    ``error`` is what stopped it early; running out of time is none.
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
        """Score what is missing, best first and equal texts once, while time is left."""
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
    """Raise whatever the reranker raises that is no error of ours as :class:`RerankError`."""
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:
        message = f"{type(reranker).__name__} failed: {type(error).__name__}: {error}"
        raise RerankError(message) from error
