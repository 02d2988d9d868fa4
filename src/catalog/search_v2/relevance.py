"""Relevance: what a passage's scores say about it answering, the same from query to query.

    relevance = σ(constant + fused · F + cosine · C + lexical · ln(1 + L) + rerank · R)
    σ(x) = 1 / (1 + exp(-x))

F is what the original query's lists gave the fused score, divided by ``original_weight``; C the
cosine of the vector leg (of its last hit, for a passage it did not find); L the BM25 score (0
likewise); R the reranker's raw score. The coefficients are a logistic regression over passages
of labelled queries (Platt 1999); they hold for the models and formulas named by their
:class:`Signals` only. ``docs/scoring.md`` says how well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from catalog.core.ids import sha256_hex
from catalog.core.params import Mode
from catalog.core.query import SubQueryKind
from catalog.search_v2.passages import ScoredPassage

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.store import Database

_LIMIT = 40.0  # exp of more says nothing new
_PACKAGED = "calibrations.json"
_MODES: dict[
    frozenset[SubQueryKind], Mode
] = {  # a hypothetical passage's cosines are of another kind
    frozenset({"lex", "vec"}): "hybrid",
    frozenset({"lex"}): "lexical",
    frozenset({"vec"}): "vector",
}


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything that gives the scores their scale; equal signals can share a calibration."""

    mode: str
    fusion: str
    embedding: str
    lexical_engine: str
    lexical_weight: float
    vector_weight: float
    reranker: str

    @property
    def key(self) -> str:
        """Where a store keeps the calibration of these signals."""
        return f"calibration:{sha256_hex(json.dumps(asdict(self), sort_keys=True))[:16]}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The coefficients of the module's formula; ``about`` says what they were fitted on."""

    constant: float
    fused: float
    cosine: float
    lexical: float
    rerank: float
    about: str = ""

    def relevance(self, seen: Features) -> float:
        """The estimated probability, above 0 and below 1, that such a passage answers."""
        logit = (
            self.constant
            + self.fused * seen.fused
            + self.cosine * seen.cosine
            + self.lexical * seen.lexical
            + self.rerank * seen.rerank
        )
        return 1 / (1 + math.exp(-max(-_LIMIT, min(_LIMIT, logit))))


@dataclass(frozen=True, slots=True)
class Features:
    """What the formula sees of one passage."""

    fused: float
    cosine: float
    lexical: float
    rerank: float


class CalibrationFinder(Protocol):
    """Find what turns the scores of a kind of search into relevance, if anything was fitted."""

    def __call__(self, mode: Mode, *, reranked: bool) -> Calibration | None: ...


class RelevanceEstimator(BaseNodePostprocessor):
    """Gives every passage of a v2 search its relevance, if what was asked is calibrated.

    That depends on which legs answered and whether a reranker did, so it is looked up for each
    search. Order and other nodes stay as they are.
    """

    _find: CalibrationFinder = PrivateAttr()
    _original_weight: float = PrivateAttr()

    def __init__(self, find: CalibrationFinder, original_weight: float) -> None:
        super().__init__()
        self._find, self._original_weight = find, original_weight

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex serialises."""
        return "RelevanceEstimator"

    def calibration(self, passages: Sequence[ScoredPassage]) -> Calibration | None:
        """The calibration for passages of one search; ``None`` without one, or without passages."""
        mode = _MODES.get(passages[0].kinds_answered) if passages else None
        reranked = any(one.reranked is not None for one in passages)
        return None if mode is None else self._find(mode, reranked=reranked)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        passages = [node for node in nodes if isinstance(node, ScoredPassage)]
        calibration = self.calibration(passages)
        if calibration is None:
            return nodes
        weight = self._original_weight
        seen = dict(zip(map(id, passages), extract_features(passages, weight), strict=True))
        return [
            node.with_relevance(calibration.relevance(seen[id(node)]))
            if isinstance(node, ScoredPassage)
            else node
            for node in nodes
        ]


def extract_features(passages: Sequence[ScoredPassage], original_weight: float) -> list[Features]:
    """What the formula sees of each passage of one search.

    A passage the reranker was not given counts like the worst one that it was.
    """
    said = [
        one.reranked.raw_score
        for one in passages
        if one.reranked is not None and one.reranked.raw_score is not None
    ]
    worst = min(said, default=0.0)
    last = min(
        (share.source.hits[-1][1] for one in passages for share in one.fused.originals("vector")),
        default=0.0,
    )
    return [_features(one, original_weight or 1.0, last, worst) for one in passages]


def find_calibration(database: Database, signals: Signals) -> Calibration | None:
    """The calibration that the store keeps for these signals, else the packaged one, if any."""
    kept = database.meta(signals.key)
    if kept is not None:
        return Calibration(**json.loads(kept))
    return _packaged().get(signals.key)


def save_calibration(database: Database, signals: Signals, calibration: Calibration) -> None:
    """Let the store's searches use it from their next opening on."""
    database.set_meta(signals.key, json.dumps(asdict(calibration)))


def describe_fusion(rag: RAGv2Settings) -> str:
    """Return the fusion, with what gives its scores their scale."""
    return f"rrf {rag.rrf_k}" if rag.fusion_mode == "rrf" else rag.fusion_mode


def _features(
    one: ScoredPassage, original_weight: float, last_cosine: float, worst: float
) -> Features:
    lexical, vector = (
        one.fused.originals("lexical"),
        one.fused.originals("vector"),
    )
    own = sum(share.contribution for share in (*lexical, *vector))
    raw = None if one.reranked is None else one.reranked.raw_score
    return Features(
        fused=own / original_weight,
        cosine=max((share.raw_score for share in vector), default=last_cosine),
        lexical=math.log1p(max((share.raw_score for share in lexical), default=0.0)),
        rerank=worst if raw is None else raw,
    )


@cache
def _packaged() -> dict[str, Calibration]:
    text = files("catalog.search_v2").joinpath(_PACKAGED).read_text(encoding="utf-8")
    listed: list[dict[str, Any]] = json.loads(text)
    return {Signals(**one["signals"]).key: Calibration(**one["calibration"]) for one in listed}
