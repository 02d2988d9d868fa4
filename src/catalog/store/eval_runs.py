"""Evaluation runs in the store: their settings, every score and a summary."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from catalog.store.schema import chunk_windows, chunks, documents, embeddings, eval_runs

_JSON = ("identity", "scores", "summary", "lists", "answers")
_COMPRESSED = ("lists", "answers")


@dataclass(frozen=True, slots=True)
class EvalRun:
    """A search measured on a golden set.

    Runs with the same ``key`` must give the same lists: they share configuration, corpus, queries,
    depth and code. ``labels`` is a hash of the golden set. ``scores`` is metric → query id → score;
    ``lists`` is query id → paths; ``answers`` is query id → answer, if answers were measured.
    """

    id: str
    key: str
    created_at: float
    dataset: str
    golden: str
    labels: str
    backend: str
    queries: int
    top_k: int
    identity: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]]
    summary: Mapping[str, Any]
    lists: Mapping[str, Sequence[str]]
    answers: Mapping[str, Any] = field(default_factory=dict)


def add_run(connection: Connection, run: EvalRun) -> None:
    """Record a run."""
    values = {name: getattr(run, name) for name in run.__dataclass_fields__}
    for name in _JSON:
        text = json.dumps(values[name], ensure_ascii=False, sort_keys=True)
        is_packed = name in _COMPRESSED
        values[name] = zlib.compress(text.encode("utf-8", "surrogatepass")) if is_packed else text
    connection.execute(insert(eval_runs).values(**values))


def list_runs(connection: Connection, limit: int = 50) -> list[EvalRun]:
    """Return the newest runs, newest first."""
    order = (eval_runs.c.created_at.desc(), eval_runs.c.id)
    rows = connection.execute(select(eval_runs).order_by(*order).limit(limit))
    return [_run(row) for row in rows]


def find_runs(connection: Connection, prefix: str, limit: int = 2) -> list[EvalRun]:
    """Return runs whose id starts with the prefix."""
    query = select(eval_runs).where(eval_runs.c.id.startswith(prefix, autoescape=True))
    return [_run(row) for row in connection.execute(query.order_by(eval_runs.c.id).limit(limit))]


def find_latest_run(connection: Connection, key: str) -> EvalRun | None:
    """Return the newest run of exactly this configuration, corpus, queries and code."""
    query = select(eval_runs).where(eval_runs.c.key == key)
    row = connection.execute(query.order_by(eval_runs.c.created_at.desc()).limit(1)).first()
    return None if row is None else _run(row)


def read_corpus_state(connection: Connection, dataset: str) -> list[tuple[str, str, str, int]]:
    """Return path, content hash, pipeline and number of vectors of every document.

    An answer depends on all of them: a passage that could not be embedded at first gets its vector
    later, without a change of its document.
    """
    columns = (documents.c.path, documents.c.content_hash, documents.c.pipeline)
    vectors = func.count(embeddings.c.embed_key)
    query = (
        select(*columns, vectors)
        .outerjoin(chunks, chunks.c.document_id == documents.c.id)
        .outerjoin(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
        .outerjoin(embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key)
        .where(documents.c.dataset == dataset)
        .group_by(documents.c.id)
        .order_by(documents.c.path)
    )
    return [(path, content, cut, n) for path, content, cut, n in connection.execute(query)]


def _run(row: Row[Any]) -> EvalRun:
    values = dict(row._mapping)
    for name in _COMPRESSED:
        packed = values[name]
        values[name] = zlib.decompress(packed).decode("utf-8", "surrogatepass") if packed else "{}"
    return EvalRun(**values | {name: json.loads(values[name]) for name in _JSON})
