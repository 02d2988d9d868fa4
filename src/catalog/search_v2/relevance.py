"""Relevance: what a passage's scores say about it answering, the same from query to query.

    relevance = σ(constant + cosine · C + lexical · ln(1 + Z) + rank / n + rerank · R)
    σ(x) = 1 / (1 + exp(-x))

C is the cosine of the vector leg (of its last hit, for a passage it did not find); Z how many
deviations the passage's keyword score is above the mean of all chunks, at least 0 (0 for a passage
that leg did not find); n its place in the order of the search, from 1; R the reranker's raw score.
None of these depends on how the legs are fused, and Z not on the lexical engine's formula. The
coefficients are a logistic regression over passages of labelled queries (Platt 1999); they hold
for the models named by their :class:`Signals` only. ``docs/scoring.md`` says how well.
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
from catalog.core.param_types import Mode
from catalog.core.query import SubQueryKind
from catalog.search_v2.passages import Passage, PassagePostprocessor, ScoredPassage
from catalog.store.lexical.languages import detect_language

if TYPE_CHECKING:
    from catalog.store import Database

_LIMIT = 40.0  # exp of more says nothing new
_TELLING, _READ = 3, 1000  # passages that tell the language, and characters read of each
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
    embedding: str
    lexical_engine: str
    reranker: str

    @property
    def key(self) -> str:
        """Return the name under which a store keeps the calibration of these signals."""
        return f"calibration:{sha256_hex(json.dumps(asdict(self), sort_keys=True))[:16]}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The coefficients of the module's formula; ``about`` says what they were fitted on.

    With a ``language`` they are for passages in that language alone.
    """

    constant: float
    cosine: float
    lexical: float
    rank: float
    rerank: float
    about: str = ""
    language: str = ""

    def relevance(self, features: Features) -> float:
        """Estimate the probability, above 0 and below 1, that such a passage answers."""
        logit = (
            self.constant
            + self.cosine * features.cosine
            + self.lexical * features.lexical
            + self.rank * features.rank
            + self.rerank * features.rerank
        )
        return 1 / (1 + math.exp(-max(-_LIMIT, min(_LIMIT, logit))))


@dataclass(frozen=True, slots=True)
class Features:
    """The variables of the formula for one passage."""

    cosine: float
    lexical: float
    rank: float
    rerank: float


class CalibrationFinder(Protocol):
    """Find what turns the scores of a kind of search into relevance, if anything was fitted."""

    def __call__(self, mode: Mode, *, reranked: bool) -> Calibration | None: ...


class RelevanceEstimator(PassagePostprocessor):
    """Gives every passage of a v2 search its relevance, if what was asked is calibrated.

    That depends on which legs answered, whether a reranker did, and the language of the first
    passages, so it is looked up for each search. Order and other nodes stay as they are.
    """

    _find: CalibrationFinder = PrivateAttr()

    def __init__(self, find: CalibrationFinder | None = None) -> None:
        """Take what finds calibrations, else that of the service that this process shares."""
        super().__init__()
        if find is None:
            from catalog.search_v2.shared import shared_service

            find = shared_service().parts.calibration
        self._find = find

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        passages = [node for node in nodes if isinstance(node, ScoredPassage)]
        estimates = iter(estimate_relevance(passages, self._find))
        return [
            node.with_relevance(next(estimates)) if isinstance(node, ScoredPassage) else node
            for node in nodes
        ]


def estimate_relevance(
    passages: Sequence[Passage | ScoredPassage], find: CalibrationFinder
) -> list[float | None]:
    """Return the relevance of each passage of one search, as it was where nothing is calibrated."""
    calibrations = {
        kinds: _find_for(kinds, passages, find)
        for kinds in {passage.kinds_answered for passage in passages}
    }
    estimates = []
    for passage, features in zip(passages, extract_features(passages), strict=True):
        calibration = calibrations[passage.kinds_answered]
        known = passage.relevance if calibration is None else calibration.relevance(features)
        estimates.append(known)
    return estimates


def is_calibrated(passages: Sequence[Passage], find: CalibrationFinder) -> bool:
    """Tell whether there is a calibration for passages of one search."""
    kinds = max((passage.kinds_answered for passage in passages), key=len, default=frozenset())
    return _find_for(kinds, passages, find) is not None


def _find_for(
    kinds: frozenset[SubQueryKind],
    passages: Sequence[Passage | ScoredPassage],
    find: CalibrationFinder,
) -> Calibration | None:
    """Return the calibration for passages that these sub-queries found, in their language."""
    mode = _MODES.get(kinds)
    is_reranked = any(passage.reranked is not None for passage in passages)
    found = None if mode is None else find(mode, reranked=is_reranked)
    if found is None or not found.language:
        return found
    return found if _language_of(passages) in (None, found.language) else None


def _language_of(passages: Sequence[Passage | ScoredPassage]) -> str | None:
    """Return the language of the first passages; ``None`` where they do not tell."""
    text = " ".join([passage.chunk.text[:_READ] for passage in passages[:_TELLING]])
    return detect_language(text, text.split())


def extract_features(passages: Sequence[Passage | ScoredPassage]) -> list[Features]:
    """Return the formula's variables for each passage of one search, given in its order.

    A passage the reranker was not given counts like the worst one that it was; one that the
    vector leg did not find, like that leg's last hit.
    """
    records = [passage.reranked for passage in passages]
    raw_scores = [None if record is None else record.raw_score for record in records]
    worst_score = min((score for score in raw_scores if score is not None), default=0.0)
    vectors = [passage.fused.originals("vector") for passage in passages]
    last_cosine = min((share.source.hits[-1][1] for own in vectors for share in own), default=0.0)
    features = []
    for place, passage in enumerate(passages):
        vector, raw_score = vectors[place], raw_scores[place]
        lexical = passage.fused.originals("lexical")
        standings = [share.source.spread.standardize(share.raw_score) for share in lexical]
        features.append(
            Features(
                cosine=max((share.raw_score for share in vector), default=last_cosine),
                lexical=math.log1p(max(0.0, *standings)) if standings else 0.0,
                rank=1 / (place + 1),
                rerank=worst_score if raw_score is None else raw_score,
            )
        )
    return features


def find_calibration(database: Database, signals: Signals) -> Calibration | None:
    """Return the calibration that the store keeps for these signals, else the packaged one."""
    stored = (json.loads(database.meta(signals.key) or "null") or {}).get("fit")
    return packaged_calibration(signals) if stored is None else Calibration(**stored)


def packaged_calibration(signals: Signals) -> Calibration | None:
    """Return the calibration that the package has for these signals, if it has one."""
    return _packaged().get(signals.key)


def save_calibration(database: Database, signals: Signals, calibration: Calibration | None) -> None:
    """Save a calibration, ``None``: that the package's holds again.

    The store's searches use it from their next opening on.
    """
    entry = {
        "fit": None if calibration is None else asdict(calibration),
        "of": f"{signals.mode} {signals.lexical_engine} {signals.reranker}",
        "about": "" if calibration is None else calibration.about,
        "embedding": signals.embedding,
    }
    database.set_meta(signals.key, json.dumps(entry))


@cache
def _packaged() -> dict[str, Calibration]:
    text = files("catalog.search_v2").joinpath(_PACKAGED).read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)
    return {
        Signals(**entry["signals"]).key: Calibration(**entry["calibration"]) for entry in entries
    }
