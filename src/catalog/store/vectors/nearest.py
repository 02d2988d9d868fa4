"""From nearest points to live, allowed chunks.

An index may hold stale points, several points per chunk, and a filter read a moment ago.
So more points are fetched than asked for, every chunk is checked against the truth before it
counts, and the fetch grows until there are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, select

from catalog.core.errors import InputError
from catalog.core.ids import point_id
from catalog.store.database import Database
from catalog.store.filter_sql import among, matching_values
from catalog.store.hits import Hit, best_first
from catalog.store.restriction import Restriction
from catalog.store.schema import chunk_windows, chunks
from catalog.store.vectors.qdrant_filter import Dialect, FilterCompiler

C = TypeVar("C")

FEW = 2_000  # chunks that are better named one by one than searched for
_MOST_TIES = 4_096  # points fetched to order equal scores by row number
_SCORE_DIGITS = 6  # what float32 arithmetic in any order agrees on


class Found(NamedTuple):
    """A point's chunk and its raw score."""

    chunk_id: str
    score: float


def as_score(cosine: float) -> float:
    """A cosine as engines report it: in [-1, 1], six decimals, so that equal texts tie."""
    return round(min(1.0, max(-1.0, cosine)), _SCORE_DIGITS) + 0.0


def check_dataset(restriction: Restriction, dataset: str) -> None:
    """Raise :class:`InputError` when a restriction is on another dataset than the index."""
    if restriction.dataset != dataset:
        raise InputError(f"this index holds {dataset!r}, not {restriction.dataset!r}")


def point_condition(
    connection: Connection, dialect: Dialect[C], restriction: Restriction
) -> C | bool:
    """The condition every allowed point meets; ``True`` when all may, ``False`` when none.

    Phrases to contain or leave out are known to SQL alone: where few chunks remain, those are
    named; otherwise the condition leaves the phrases to the check of :func:`nearest_chunks`.
    """
    if restriction.without or restriction.containing:
        query = select(chunks.c.seq).where(restriction.clause()).limit(FEW + 1)
        seqs = list(connection.scalars(query))
        if len(seqs) <= FEW:
            points = _point_ids(connection, seqs)
            return dialect.has_id(points) if points else False

    compiler = FilterCompiler(
        dialect,
        restriction.dataset,
        lambda asked: matching_values(connection, restriction.dataset, asked),
    )
    return compiler.restriction(restriction.scope, restriction.filter)


def nearest_chunks(
    database: Database,
    restriction: Restriction,
    k: int,
    fetch: Callable[[int], Sequence[Found]],
) -> list[Hit]:
    """The ``k`` best live chunks that the restriction allows, each by its best window.

    ``fetch(limit)`` gives the nearest points, best first, fewer than ``limit`` only when there
    are no more.
    """
    limit = 2 * k + 8
    known: dict[str, int | None] = {}
    while True:
        points = fetch(limit)
        best: dict[str, float] = {}
        for chunk_id, score in points:
            best[chunk_id] = max(as_score(score), best.get(chunk_id, -1.0))
        new = [chunk_id for chunk_id in best if chunk_id not in known]
        known.update(_live_seqs(database, restriction, new))
        hits = best_first(
            (
                Hit(seq, score)
                for chunk_id, score in best.items()
                if (seq := known[chunk_id]) is not None
            ),
            k,
        )
        if len(points) < limit or _is_settled(hits, k, as_score(points[-1].score), limit):
            return hits
        limit *= 4


def _is_settled(hits: Sequence[Hit], k: int, last: float, limit: int) -> bool:
    """Whether no point beyond the last one fetched can be among the best ``k``."""
    return len(hits) == k and (last < hits[-1].score or limit >= _MOST_TIES)


def _live_seqs(
    database: Database, restriction: Restriction, chunk_ids: Sequence[str]
) -> dict[str, int | None]:
    """The row number of each chunk that is live and allowed; ``None`` for any other."""
    found: dict[str, int | None] = dict.fromkeys(chunk_ids)
    if not chunk_ids:
        return found
    # by row number, so that no planner walks the whole dataset instead
    named = select(chunks.c.seq).where(among(chunks.c.chunk_id, chunk_ids)).correlate(None)
    query = select(chunks.c.chunk_id, chunks.c.seq).where(chunks.c.seq.in_(named))
    with database.read() as connection:
        rows = connection.execute(query.where(restriction.clause()))
        found.update((chunk_id, seq) for chunk_id, seq in rows)
    return found


def _point_ids(connection: Connection, seqs: Sequence[int]) -> list[str]:
    joined = chunks.join(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
    query = select(chunks.c.chunk_id, chunk_windows.c.window).select_from(joined)
    rows = connection.execute(query.where(among(chunks.c.seq, seqs)))
    return [point_id(chunk_id, window) for chunk_id, window in rows]
