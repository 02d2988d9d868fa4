"""The bound on unsupported sentences that a dataset keeps, and what it holds for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from catalog import __version__
from catalog.answers.risk import RiskBound, explain_void
from catalog.core.params import AskParams
from catalog.core.settings import default_shaping, flatten
from catalog.core.text import strip_userinfo
from catalog.llm import llm_identity
from catalog.store.manifest import read_dataset_settings

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from pydantic import BaseModel

    from catalog.core.agents import Agent
    from catalog.retrieval.searcher import Searcher
    from catalog.store import Database

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
    service: Searcher, params: AskParams, dataset: str, llm: LLM | None, agent: Agent
) -> dict[str, Any]:
    """Return what answers depend on besides question and documents: nested names and values.

    The model, the agent, whose choices ``params`` have, how the dataset is cut and embedded, the
    settings of searches and answers, what the call asks for, and the version of this program.
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


def model_text(llm: LLM | None) -> str:
    """Return class, weights and server of a model in one text, ``none`` if there is none."""
    return "none" if llm is None else " ".join(filter(None, llm_identity(llm)))


def flat_conditions(conditions: Mapping[str, Any]) -> dict[str, str]:
    """Return conditions by dotted name, each value as text: the ``made_for`` of a bound."""
    plain = json.loads(json.dumps(conditions))
    return {name: str(value) for name, value in flatten(plain)}


def find_bound(database: Database, dataset: str) -> RiskBound | None:
    """Return the bound that the dataset keeps, ``None`` if there is none."""
    stored = json.loads(database.meta(_key(dataset)) or "null")
    return None if stored is None else RiskBound(**stored)


def save_bound(database: Database, dataset: str, bound: RiskBound | None) -> None:
    """Keep a bound with the dataset, ``None``: keep none."""
    values = None if bound is None else asdict(bound) | {"made_for": dict(bound.made_for)}
    database.set_meta(_key(dataset), json.dumps(values))


def bound_in_force(
    service: Searcher,
    params: AskParams,
    datasets: tuple[str, ...],
    llm: LLM | None,
    agent: Agent,
) -> tuple[RiskBound | None, str]:
    """Return the bound that holds for an answer, if any, and what is to be said of it.

    Of several datasets none holds: each bound was made with questions to one.
    """
    bounds = {name: find_bound(service.parts.database, name) for name in datasets}
    bound = next((one for one in bounds.values() if one is not None), None)
    if bound is None:
        return None, ""
    if len(datasets) > 1:
        return None, f"the bound of {bound.most:.1%} is one of a single dataset: it does not hold"
    now = flat_conditions(answer_conditions(service, params, datasets[0], llm, agent))
    if void := explain_void(bound, now):
        return None, void
    return bound, bound.describe()


def _values(settings: BaseModel) -> dict[str, Any]:
    values = settings.model_dump(mode="json", exclude=_NO_MATTER)
    return {n: strip_userinfo(v) if isinstance(v, str) else v for n, v in values.items()}


def _key(dataset: str) -> str:
    return f"answer_bound:{dataset}"
