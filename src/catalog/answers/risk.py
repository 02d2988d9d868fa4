"""A bound on unsupported sentences: the threshold that a user's own labels show to be safe.

A sentence is shown if its score reaches the threshold. Of the sentences shown, at most ``most`` are
unsupported, in at least ``confidence`` of all calibrations. Thresholds are tried from the strictest
on; each must be safe by the binomial test, and the first that is not ends the search, so that the
chance of any mistake is that of one test (fixed sequence testing, Angelopoulos et al. 2021, Learn
then Test).

It needs labels drawn like the future questions, with the same model, index and settings: see
:func:`explain_void`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from catalog import __version__
from catalog.core.errors import InputError
from catalog.core.params import AskParams
from catalog.core.settings.loading import default_shaping, flatten
from catalog.core.text import strip_userinfo
from catalog.llm import LanguageModel
from catalog.store.manifest import read_dataset_settings

if TYPE_CHECKING:
    from pydantic import BaseModel

    from catalog.core.agents import Agent
    from catalog.retrieval.searcher import Searcher
    from catalog.store import Database


CONFIDENCE = 0.95
_STEPS = 20  # thresholds tried, evenly by the share of labels that they show
_SPARE = 1  # unsupported sentences that the strictest threshold tried has room for


@dataclass(frozen=True, slots=True)
class RiskBound:
    """A promise: at this ``threshold``, at most ``most`` of the sentences are unsupported.

    ``shown`` is the share of the labels that are still shown and ``unsupported`` the share of the
    shown ones labelled so; all are 0 to 1. ``made_for`` identifies the model, index and settings
    for which it is valid.
    """

    threshold: float
    most: float
    confidence: float
    labels: int
    shown: float
    unsupported: float
    made_for: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the promise in one sentence."""
        return (
            f"at most {self.most:.1%} of the sentences shown are unsupported, with "
            f"{self.confidence:.0%} confidence: from a score of {self.threshold:.3f} on, which "
            f"{self.shown:.0%} of {self.labels} labels reach "
            f"({self.unsupported:.1%} of these unsupported)"
        )


def bound_risk(
    scores: Sequence[float],
    supported: Sequence[bool],
    *,
    most: float,
    confidence: float = CONFIDENCE,
    made_for: Mapping[str, str] | None = None,
) -> RiskBound:
    """Return the lowest threshold whose bound is valid, from labelled sentences with scores.

    Raises :class:`InputError` if there are too few labels, with the number that is missing, or if
    no threshold keeps the bound.
    """
    if len(scores) != len(supported):
        raise InputError(f"there are {len(scores)} scores and {len(supported)} labels")
    needed = labels_needed(most, confidence)
    if len(scores) < needed:
        raise InputError(
            f"at most {most:.1%} unsupported needs at least {needed} labelled sentences, but "
            f"there are {len(scores)}: label {needed - len(scores)} more"
        )
    ordered = sorted(zip(scores, supported, strict=True), key=lambda pair: -pair[0])
    ends = [
        at
        for at in range(1, len(ordered) + 1)
        if at == len(ordered) or ordered[at][0] < ordered[at - 1][0]
    ]
    wrong = [0]
    for _, is_supported in ordered:
        wrong.append(wrong[-1] + (not is_supported))
    safe = _safe_with_confidence(ends, wrong, most, confidence)
    if not safe:
        raise InputError(
            f"with these labels no threshold keeps unsupported sentences to {most:.1%}: "
            f"{wrong[-1]} of {len(ordered)} are unsupported; label more, or allow more"
        )
    at = safe[-1]
    return RiskBound(
        threshold=ordered[at - 1][0],
        most=most,
        confidence=confidence,
        labels=len(ordered),
        shown=at / len(ordered),
        unsupported=wrong[at] / at,
        made_for=dict(made_for or {}),
    )


def labels_needed(most: float, confidence: float = CONFIDENCE, *, wrong: int = 0) -> int:
    """Return the least number of labels for a bound, given the number of unsupported ones.

    Raises :class:`InputError` for a share or confidence that is not between 0 and 1.
    """
    if not (0 < most < 1 and 0 < confidence < 1):
        raise InputError(
            "the share of unsupported sentences and the confidence must be between 0 and 1"
        )
    n = wrong + 1
    while _binomial_tail(n, wrong, most) > 1 - confidence:
        n += 1
    return n


def explain_void(bound: RiskBound, now: Mapping[str, str]) -> str:
    """Explain in one sentence why a bound is no longer valid; "" if it is.

    ``now`` has today's model, index and settings, in the form of ``made_for``.
    """
    changed = [
        name
        for name in sorted({*bound.made_for, *now})
        if bound.made_for.get(name) != now.get(name)
    ]
    if not changed:
        return ""
    return (
        f"the bound of {bound.most:.1%} unsupported sentences is void: these changed since "
        f"it was made: {', '.join(changed)}; label sentences and make a new one"
    )


def _safe_with_confidence(
    ends: Sequence[int], wrong: Sequence[int], most: float, confidence: float
) -> list[int]:
    """Return how many sentences may be shown, from the strictest threshold to the first unsafe."""
    total = ends[-1]
    start = min(labels_needed(most, confidence, wrong=_SPARE), total)
    levels = [start + (total - start) * step / _STEPS for step in range(_STEPS + 1)]
    tried = dict.fromkeys(next(end for end in ends if end >= level) for level in levels)
    safe = []
    for at in tried:
        if _binomial_tail(at, wrong[at], most) > 1 - confidence:
            break
        safe.append(at)
    return safe


def _binomial_tail(n: int, k: int, chance: float) -> float:
    """Return the probability of at most ``k`` successes in ``n`` trials of this ``chance``."""
    log_chance, log_other = math.log(chance), math.log1p(-chance)
    return min(
        1.0,
        math.fsum(
            math.exp(
                math.lgamma(n + 1)
                - math.lgamma(i + 1)
                - math.lgamma(n - i + 1)
                + i * log_chance
                + (n - i) * log_other
            )
            for i in range(k + 1)
        ),
    )


_NO_MATTER = {
    *("qdrant_url", "qdrant_api_key", "rerank_api_key", "api_key", "provider", "model", "url"),
    *("query_cache_size", "cache_ttl_seconds", "timeout_seconds", "threads", "roles", "tool"),
    *("balanced", "premium", "prices", "agents", "citations"),
}
"""Settings that change no answer, or are named by the model."""
_OF_ONE_QUESTION = {
    *("question", "dataset", "agent", "agent_hint", "role", "model", "docs", "file_type", "name"),
    *("filters", "after", "before", "strict"),
}


def answer_conditions(
    service: Searcher, params: AskParams, dataset: str, llm: LanguageModel | None, agent: Agent
) -> dict[str, Any]:
    """Return all settings on which answers depend, as nested names and values.

    These are the model, the agent (whose choices ``params`` have), how the dataset is cut and
    embedded, the settings of searches and answers, the parameters of the call, and the version of
    this program.
    """
    settings = service.parts.settings
    rag = settings.rag_v2
    asked = {
        field.name: getattr(params, field.name)
        for field in fields(AskParams)
        if field.name not in _OF_ONE_QUESTION
    }
    usual = {
        "mode": "hybrid",
        "rerank": rag.rerank_enabled,
        "expand": rag.expansion_enabled,
        "top_k": rag.top_k,
        "similarity_threshold": rag.similarity_threshold,
    }
    for name, value in usual.items():
        asked[name] = value if asked[name] is None else asked[name]
    with service.parts.database.read() as connection:
        made = read_dataset_settings(connection, dataset)
    shaping = default_shaping()
    return {
        "model": model_text(llm),
        "embedding": service.library.wanted_model.fingerprint,
        "version": __version__,
        "agent": agent.model_dump(mode="json"),
        "asked": asked,
        "rag_v2": {n: v for n, v in _values(rag).items() if n not in shaping},
        "answers": _values(settings.answers),
        "llm": _values(settings.llm),
        "dataset_settings": dict(made.values) if made else {},
    }


def model_text(llm: LanguageModel | None) -> str:
    """Return class, weights and server of a model in one text, ``none`` without a model."""
    return "none" if llm is None else llm.identity


def flat_conditions(conditions: Mapping[str, Any]) -> dict[str, str]:
    """Return conditions by dotted name, each value as text: the ``made_for`` of a bound."""
    plain = json.loads(json.dumps(conditions))
    return {name: str(value) for name, value in flatten(plain)}


def find_bound(database: Database, dataset: str) -> RiskBound | None:
    """Return the bound saved for the dataset, else ``None``."""
    return database.note(_key(dataset), "the bound on unsupported sentences", RiskBound)


def save_bound(database: Database, dataset: str, bound: RiskBound | None) -> None:
    """Save a bound for the dataset; ``None`` removes it."""
    values = None if bound is None else asdict(bound) | {"made_for": dict(bound.made_for)}
    database.set_meta(_key(dataset), json.dumps(values))


def bound_in_force(
    service: Searcher,
    params: AskParams,
    datasets: tuple[str, ...],
    llm: LanguageModel | None,
    agent: Agent,
) -> tuple[RiskBound | None, str]:
    """Return the valid bound for an answer, if any, and a note on it.

    For several datasets there is none, because each bound was made with questions to one.
    """
    bounds = {name: find_bound(service.parts.database, name) for name in datasets}
    bound = next((one for one in bounds.values() if one is not None), None)
    if bound is None:
        return None, ""
    if len(datasets) > 1:
        return None, f"the bound of {bound.most:.1%} was made for a single dataset: it is void here"
    now = flat_conditions(answer_conditions(service, params, datasets[0], llm, agent))
    if void := explain_void(bound, now):
        return None, void
    return bound, bound.describe()


def _values(settings: BaseModel) -> dict[str, Any]:
    values = settings.model_dump(mode="json", exclude=_NO_MATTER)
    return {n: strip_userinfo(v) if isinstance(v, str) else v for n, v in values.items()}


def _key(dataset: str) -> str:
    return f"answer_bound:{dataset}"
