"""Requests to v1, checked, and its results."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from catalog.core.errors import InputError, QueryError
from catalog.core.params import MODES, Mode
from catalog.core.results import PassageResult, ResultList

MAX_TOP_K = 1000


class SearchCriteria(BaseModel):
    """One checked search; raises :class:`InputError` kinds for an invalid one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str
    dataset: str
    top_k: int = 10
    mode: Mode = "hybrid"
    rerank: bool = False

    @field_validator("query", mode="before")
    @classmethod
    def _check_query(cls, query: Any) -> Any:
        if not isinstance(query, str):
            raise InputError(f"query must be text, not {query!r}")
        if not any(char.isprintable() and not char.isspace() for char in query):
            raise QueryError("the query is empty")
        return query

    @field_validator("dataset", mode="before")
    @classmethod
    def _check_dataset(cls, dataset: Any) -> Any:
        if not isinstance(dataset, str):
            raise InputError(f"dataset must be a name, not {dataset!r}")
        return dataset

    @field_validator("top_k", mode="before")
    @classmethod
    def _check_top_k(cls, top_k: Any) -> Any:
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
            raise InputError(f"top_k must be a whole number from 1 to {MAX_TOP_K}, not {top_k!r}")
        return top_k

    @field_validator("mode", mode="before")
    @classmethod
    def _check_mode(cls, mode: Any) -> Any:
        if mode not in MODES:
            raise InputError(f"no mode {mode!r}; modes: {', '.join(MODES)}")
        return mode

    @field_validator("rerank", mode="before")
    @classmethod
    def _check_rerank(cls, rerank: Any) -> Any:
        if not isinstance(rerank, bool):
            raise InputError(f"rerank must be True or False, not {rerank!r}")
        return rerank


class BaselineResult(PassageResult):
    """One passage.

    ``chunk_id`` is ``{content_hash}:{seq}``. ``score`` is minus FTS5's ``bm25()`` for
    ``mode=lexical``, the cosine for ``vector``, the sum of ``1 / (60 + rank)`` with ranks from 0
    for ``hybrid``, and the language model's relevance after reranking.
    """


class BaselineResults(ResultList[BaselineResult]):
    """v1's answer, best first."""
