"""The rerank stage: which passages are scored, from the cache or by the model, and blended."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import Field, PrivateAttr

from catalog.core.errors import CatalogError
from catalog.core.ids import sha1_hex
from catalog.core.results import Reranked
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.rerank.blending import BlendName, Judged, blend, order
from catalog.store.llm_cache import Entry, cache_key

if TYPE_CHECKING:
    from catalog.search_v2.model_cache import ModelCache
    from catalog.search_v2.rerank.base import Reranker

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reranking:
    """Passages in their new order, and how many were scored, and whence."""

    nodes: list[NodeWithScore]
    note: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    head: str  # title and headings, read before the text
    text: str
    key: str
    text_hash: str


@dataclass(slots=True)
class _Scoring:
    """Raw scores by key so far, what of them is new, and how many passages were read in part."""

    scores: dict[str, float]
    new: dict[str, Entry]
    cut: int = 0


class RerankPostprocessor(BaseNodePostprocessor):
    """Lets a reranker read the first passages and blends what it says with their scores.

    Takes nodes of any retriever, best first; the passage is read behind its title and headings,
    at its best run of words. ``candidates`` passages are scored, fewer when ``budget_ms`` (0: no
    limit) would be exceeded; those not scored follow in their order. ``top_n`` keeps that many
    (0: all). See ``rerank.blending`` for the formulas.
    """

    candidates: int = Field(40, ge=1)
    blend: BlendName = "linear"
    weight: float = Field(0.3, ge=0.0, le=1.0)
    rrf_k: int = Field(60, ge=1)
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

    def rerank(self, nodes: Sequence[NodeWithScore], query: str) -> Reranking:
        """The nodes in their new order; raises :class:`RerankError` and leaves them as they are."""
        started = time.perf_counter()
        chosen = [self._candidate(query, node) for node in nodes[: self.candidates]]
        known = {} if self._cache is None else self._cache.get([one.key for one in chosen])
        scoring = _Scoring({key: float(value) for key, value in known.items()}, {})
        self._score_missing(query, chosen, scoring, started)
        if self._cache is not None:
            self._cache.put(scoring.new, model=self._reranker.fingerprint)
        judged = []
        for one in chosen:
            if one.key not in scoring.scores:
                break
            raw = scoring.scores[one.key]
            judged.append(Judged(raw, self._reranker.relevance(raw)))
        kept = self._blended(nodes, judged)
        note = f"{self._reranker.name}, {self.blend}: {len(judged)} of {len(nodes)} scored"
        if known:
            note = f"{note}, {len(known)} of them cached"
        if len(judged) < len(chosen):
            note = f"{note}; {self.budget_ms} ms allow no more"
        if scoring.cut:
            note = f"{note}; {scoring.cut} read in part"
        return Reranking(kept, note)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        try:
            return self.rerank(nodes, query_bundle.query_str).nodes
        except CatalogError as error:
            _log.warning("not reranked, the order stands: %s", error)
            return nodes

    def _candidate(self, query: str, node: NodeWithScore) -> _Candidate:
        text, head = node.node.get_content(metadata_mode=MetadataMode.NONE), _head(node)
        text_hash = sha1_hex(text)
        key = cache_key("rerank", query, head, text_hash, self._reranker.fingerprint)
        return _Candidate(head, text, key, text_hash)

    def _score_missing(
        self, query: str, chosen: Sequence[_Candidate], scoring: _Scoring, started: float
    ) -> None:
        """Score what the cache lacks, best first and equal texts once, while time is left."""
        scores = scoring.scores
        missing = list({one.key: one for one in chosen if one.key not in scores}.values())
        size = self._reranker.batch_size
        slowest_ms = 0.0
        for start in range(0, len(missing), size):
            batch_started = time.perf_counter()
            if self.budget_ms and slowest_ms + _ms(started) > self.budget_ms:
                return
            batch = missing[start : start + size]
            fitted = [self._reranker.fitted(query, one.text, head=one.head) for one in batch]
            raw_scores = self._reranker.scores(query, [text for text, _ in fitted])
            for one, (_, was_cut), raw in zip(batch, fitted, raw_scores, strict=True):
                scores[one.key] = raw
                scoring.new[one.key] = Entry(repr(raw), one.text_hash)
                scoring.cut += was_cut
            if start:  # the first batch may have loaded the model
                slowest_ms = max(slowest_ms, _ms(batch_started))

    def _blended(
        self, nodes: Sequence[NodeWithScore], judged: Sequence[Judged]
    ) -> list[NodeWithScore]:
        fused = [node.score or 0.0 for node in nodes]
        parts = blend(self.blend, fused, judged, weight=self.weight, k=self.rrf_k)
        done: list[NodeWithScore] = []
        for place in order(parts, len(judged)):
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
                done.append(node.reranked_as(part.score, record))
            else:
                done.append(NodeWithScore(node=node.node, score=part.score))
        return done[: self.top_n] if self.top_n else done


def _head(node: NodeWithScore) -> str:
    """Title and headings, outermost first, none twice."""
    about = node.node.metadata
    headings = about.get("heading_path") or ()
    names = dict.fromkeys(str(one) for one in (about.get("title"), *headings) if one)
    return " > ".join(names)


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000
