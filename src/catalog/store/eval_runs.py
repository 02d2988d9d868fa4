"""Evaluation runs in the truth: what was measured, of what exactly, and every score."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from catalog.store.schema import documents, eval_runs


@dataclass(frozen=True, slots=True)
class EvalRun:
    """One search measured on one golden set.

    ``key`` is equal for runs that must give equal lists: same configuration, corpus, queries,
    depth and code. ``scores`` is metric → query id → score; ``lists`` query id → paths.
    """

    id: str
    key: str
    created_at: float
    dataset: str
    golden: str
    backend: str
    queries: int
    top_k: int
    identity: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]]
    summary: Mapping[str, Any]
    lists: Mapping[str, Sequence[str]]


def new_run_id() -> str:
    """An id nobody else has, short enough to type."""
    return uuid.uuid4().hex[:12]


def add_run(connection: Connection, run: EvalRun) -> None:
    """Record a run."""
    texts = {
        name: json.dumps(getattr(run, name), ensure_ascii=False, sort_keys=True)
        for name in ("identity", "scores", "summary", "lists")
    }
    values = {name: getattr(run, name) for name in run.__dataclass_fields__} | texts
    values["lists"] = zlib.compress(texts["lists"].encode("utf-8", "surrogatepass"))
    connection.execute(insert(eval_runs).values(**values))


def list_runs(connection: Connection, limit: int = 50) -> list[EvalRun]:
    """The newest runs, newest first."""
    order = (eval_runs.c.created_at.desc(), eval_runs.c.id)
    rows = connection.execute(select(eval_runs).order_by(*order).limit(limit))
    return [_run(row) for row in rows]


def find_runs(connection: Connection, prefix: str, limit: int = 2) -> list[EvalRun]:
    """Runs whose id starts so."""
    query = select(eval_runs).where(eval_runs.c.id.startswith(prefix, autoescape=True))
    return [_run(row) for row in connection.execute(query.order_by(eval_runs.c.id).limit(limit))]


def latest_run(connection: Connection, key: str) -> EvalRun | None:
    """The newest run of exactly this configuration, corpus, queries and code."""
    query = select(eval_runs).where(eval_runs.c.key == key)
    row = connection.execute(query.order_by(eval_runs.c.created_at.desc()).limit(1)).first()
    return None if row is None else _run(row)


def corpus_state(connection: Connection, dataset: str) -> list[tuple[str, str, str]]:
    """Path, content hash and pipeline of every document: what an answer depends on."""
    columns = (documents.c.path, documents.c.content_hash, documents.c.pipeline)
    query = select(*columns).where(documents.c.dataset == dataset).order_by(documents.c.path)
    return [(row.path, row.content_hash, row.pipeline) for row in connection.execute(query)]


def _run(row: Row[Any]) -> EvalRun:
    values = dict(row._mapping)
    values["lists"] = zlib.decompress(values["lists"]).decode("utf-8", "surrogatepass")
    for name in ("identity", "scores", "summary", "lists"):
        values[name] = json.loads(values[name])
    return EvalRun(**values)
