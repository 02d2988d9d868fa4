"""From nearest points to live, allowed chunks.

An index may hold stale points, several points per chunk, and a filter read a moment ago.
So more points are fetched than asked for, every chunk is checked against the truth before it
counts, and the fetch grows until there are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select

from catalog.core.errors import InputError
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Restriction, best_first, known_seqs
from catalog.store.filter_sql import among_bound, as_bound
from catalog.store.schema import chunks
from catalog.store.vectors.point_filters import PointCondition, point_condition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_TIES = 4_096  # points fetched to order equal scores by row number
_MOST_SPARE = 24  # points fetched first, beyond those wanted, for second windows and stale points
_NAMED = select(chunks.c.chunk_id, chunks.c.seq).where(
    # the index by chunk id tells that, and the rows are not read: an id is of one dataset
    among_bound(chunks.c.chunk_id, "ids")
)
_ALLOWED = select(chunks.c.chunk_id, chunks.c.seq).where(
    # by row number, so that no planner walks the whole dataset instead
    chunks.c.seq.in_(
        select(chunks.c.seq).where(among_bound(chunks.c.chunk_id, "ids")).correlate(None)
    )
)
_SCORE_DIGITS = 6  # what float32 arithmetic in any order agrees on


class PointHit(NamedTuple):
    """A point's chunk and its raw score."""

    chunk_id: str
    score: float


def round_score(cosine: float) -> float:
    """Return a cosine as engines report it: in [-1, 1], six decimals, so that equal texts tie."""
    return round(min(1.0, max(-1.0, cosine)), _SCORE_DIGITS) + 0.0


def check_dataset(restriction: Restriction, dataset: str) -> None:
    """Raise :class:`InputError` when a restriction is on another dataset than the index."""
    if restriction.dataset != dataset:
        raise InputError(f"this index holds {dataset!r}, not {restriction.dataset!r}")


def nearest_chunks(
    database: Database,
    restriction: Restriction,
    k: int,
    fetch: Callable[[int, PointCondition | None], Sequence[PointHit]],
) -> list[Hit]:
    """Return the ``k`` best live chunks that the restriction allows, each by its best window.

    ``fetch(limit, condition)`` gives the nearest points that meet the condition, best first, and
    fewer than ``limit`` only when there are no more.
    """
    condition: PointCondition | bool = True
    if not restriction.is_whole_dataset:
        with database.read() as connection:
            condition = point_condition(connection, restriction)
    if condition is False:
        return []
    limit = k + min(k, _MOST_SPARE) + 8  # each point more is a vector read from disk
    seqs: dict[str, int | None] = {}
    while True:
        points = fetch(limit, None if isinstance(condition, bool) else condition)
        best: dict[str, float] = {}
        for chunk_id, score in points:
            if chunk_id not in best:  # the first window is the best
                best[chunk_id] = round_score(score)
        for names in (_first_of(best, k), list(best)):
            seqs |= _live_seqs(database, restriction, [name for name in names if name not in seqs])
            live = ((seq, best[name]) for name in names if (seq := seqs[name]) is not None)
            hits = best_first(live, k)
            if len(hits) == k:
                break
        if len(points) < limit or _is_complete(hits, k, round_score(points[-1].score), limit):
            return hits
        limit *= 4


def _first_of(best: dict[str, float], k: int) -> list[str]:
    """Return the ``k`` best chunks and all that tie with the last of them; they are best first."""
    names = list(best)
    if len(names) <= k:
        return names
    last = best[names[k - 1]]
    return [name for name, score in best.items() if score >= last]


def _is_complete(hits: Sequence[Hit], k: int, last: float, limit: int) -> bool:
    """Tell whether no point beyond the last one fetched can be among the best ``k``."""
    return len(hits) == k and (last < hits[-1].score or limit >= MOST_TIES)


def _live_seqs(
    database: Database, restriction: Restriction, chunk_ids: Sequence[str]
) -> dict[str, int | None]:
    """Return the row number of each chunk that is live and allowed; ``None`` for any other."""
    seqs: dict[str, int | None] = dict.fromkeys(chunk_ids)
    if not chunk_ids:
        return seqs
    named, allowed = _NAMED, None
    with database.read() as connection:
        if not restriction.is_whole_dataset:
            allowed = known_seqs(connection, restriction)
            if allowed is None:
                named = _ALLOWED.where(restriction.clause())
        rows = connection.execute(named, {"ids": as_bound(chunk_ids)}).all()
    live: dict[str, int] = dict(rows)
    seqs |= live if allowed is None else _among(allowed, live)
    return seqs


def _among(ascending: npt.NDArray[np.int64], seqs: dict[str, int]) -> dict[str, int]:
    """Return those of the row numbers, by name, that are among the others."""
    import numpy as np

    if len(ascending) == 0:
        return {}
    wanted = np.fromiter(seqs.values(), dtype=np.int64, count=len(seqs))
    holds = ascending.take(ascending.searchsorted(wanted), mode="clip") == wanted
    return dict(compress(seqs.items(), holds.tolist()))
