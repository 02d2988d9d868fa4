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

from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from catalog.core.ids import sha256_hex
from catalog.core.params import Mode
from catalog.core.query import SubQueryKind
from catalog.search_v2.adaptive import SCALE_VERSION
from catalog.search_v2.passages import Passage, PassagePostprocessor, ScoredPassage

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.store import Database

_LIMIT = 40.0  # exp of more says nothing new
_PACKAGED = "calibrations.json"
# A hypothetical passage's cosines are of another kind, so that ``hyde`` has no mode.
_MODES: dict[frozenset[SubQueryKind], Mode] = {
    frozenset({"lex", "vec"}): "hybrid",
    frozenset({"lex"}): "lexical",
    frozenset({"vec"}): "vector",
}


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything that gives scores their scale; equal signals can share a calibration."""

    mode: str
    fusion: str
    embedding: str
    lexical_engine: str
    lexical_weight: float
    vector_weight: float
    reranker: str

    @property
    def key(self) -> str:
        """Return the name under which a store keeps the calibration of these signals."""
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

    def relevance(self, features: Features) -> float:
        """Estimate the probability, above 0 and below 1, that such a passage answers."""
        logit = (
            self.constant
            + self.fused * features.fused
            + self.cosine * features.cosine
            + self.lexical * features.lexical
            + self.rerank * features.rerank
        )
        return 1 / (1 + math.exp(-max(-_LIMIT, min(_LIMIT, logit))))


@dataclass(frozen=True, slots=True)
class Features:
    """The variables of the formula for one passage."""

    fused: float
    cosine: float
    lexical: float
    rerank: float


class CalibrationFinder(Protocol):
    """Find what turns the scores of a kind of search into relevance, if anything was fitted."""

    def __call__(self, mode: Mode, *, reranked: bool) -> Calibration | None: ...


class RelevanceEstimator(PassagePostprocessor):
    """Gives every passage of a v2 search its relevance, if what was asked is calibrated.

    That depends on which legs answered and whether a reranker did, so it is looked up for each
    search. Order and other nodes stay as they are.
    """

    _find: CalibrationFinder = PrivateAttr()
    _original_weight: float = PrivateAttr()

    def __init__(self, find: CalibrationFinder | None = None, original_weight: float = 2.0) -> None:
        """Take what finds calibrations, else all from the service that this process shares."""
        super().__init__()
        if find is None:
            from catalog.search_v2.shared import shared_service

            parts = shared_service().parts
            find, original_weight = parts.calibration, parts.rag.original_weight
        self._find, self._original_weight = find, original_weight

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        passages = [node for node in nodes if isinstance(node, ScoredPassage)]
        estimates = iter(estimate_relevance(passages, self._find, self._original_weight))
        return [
            node.with_relevance(next(estimates)) if isinstance(node, ScoredPassage) else node
            for node in nodes
        ]


def estimate_relevance(
    passages: Sequence[Passage] | Sequence[ScoredPassage],
    find: CalibrationFinder,
    original_weight: float,
) -> list[float | None]:
    """Return the relevance of each passage of one search, as it was where nothing is calibrated."""
    is_reranked = any(passage.reranked is not None for passage in passages)
    kinds = {passage.kinds_answered for passage in passages}
    calibrations = {one: _find_for(one, find, is_reranked=is_reranked) for one in kinds}
    estimates = []
    for passage, features in zip(
        passages, extract_features(passages, original_weight), strict=True
    ):
        calibration = calibrations[passage.kinds_answered]
        known = passage.relevance if calibration is None else calibration.relevance(features)
        estimates.append(known)
    return estimates


def is_calibrated(passages: Sequence[Passage], find: CalibrationFinder) -> bool:
    """Tell whether there is a calibration for passages of one search."""
    kinds = max((passage.kinds_answered for passage in passages), key=len, default=frozenset())
    is_reranked = any(passage.reranked is not None for passage in passages)
    return _find_for(kinds, find, is_reranked=is_reranked) is not None


def _find_for(
    kinds: frozenset[SubQueryKind], find: CalibrationFinder, *, is_reranked: bool
) -> Calibration | None:
    mode = _MODES.get(kinds)
    return None if mode is None else find(mode, reranked=is_reranked)


def extract_features(
    passages: Sequence[Passage] | Sequence[ScoredPassage], original_weight: float
) -> list[Features]:
    """Return the formula's variables for each passage of one search.

    A passage the reranker was not given counts like the worst one that it was; one that the
    vector leg did not find, like that leg's last hit; one that it could not find, since it has no
    vector yet, as in a search by words.
    """
    records = [passage.reranked for passage in passages]
    raw_scores = [None if record is None else record.raw_score for record in records]
    worst_score = min((score for score in raw_scores if score is not None), default=0.0)
    vectors = [passage.fused.originals("vector") for passage in passages]
    last_cosine = min((share.source.hits[-1][1] for own in vectors for share in own), default=0.0)
    features = []
    for passage, vector, raw_score in zip(passages, vectors, raw_scores, strict=True):
        lexical = passage.fused.originals("lexical")
        own = sum(share.contribution for share in (*lexical, *vector))
        if passage.kinds_answered == {"lex"} and len(lexical) == 1:
            own = lexical[0].raw_score  # as one list alone is scored
        best_lexical = max((share.raw_score for share in lexical), default=0.0)
        features.append(
            Features(
                fused=own / (original_weight or 1.0),
                cosine=max((share.raw_score for share in vector), default=last_cosine),
                lexical=math.log1p(best_lexical),
                rerank=worst_score if raw_score is None else raw_score,
            )
        )
    return features


def find_calibration(database: Database, signals: Signals) -> Calibration | None:
    """Return the calibration that the store keeps for these signals, else the packaged one."""
    stored = database.meta(signals.key)
    if stored is not None:
        return Calibration(**json.loads(stored))
    return _packaged().get(signals.key)


def save_calibration(database: Database, signals: Signals, calibration: Calibration) -> None:
    """Save a calibration; the store's searches use it from their next opening on."""
    database.set_meta(signals.key, json.dumps(asdict(calibration)))


def describe_fusion(rag: RAGv2Settings) -> str:
    """Return the fusion, with what gives its scores their scale."""
    scales = {"rrf": f"rrf {rag.rrf_k}", "adaptive": f"adaptive {SCALE_VERSION}"}
    return scales.get(rag.fusion_mode, rag.fusion_mode)


@cache
def _packaged() -> dict[str, Calibration]:
    text = files("catalog.search_v2").joinpath(_PACKAGED).read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)
    return {
        Signals(**entry["signals"]).key: Calibration(**entry["calibration"]) for entry in entries
    }
