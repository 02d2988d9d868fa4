"""What the engine ``fts`` asks a store in Postgres: its text search, ranked by ``ts_rank_cd``.

See https://www.postgresql.org/docs/current/textsearch-controls.html#TEXTSEARCH-RANKING. Words are
cut as for phrases. Title and headings weigh more than text, and words close to each other more than
words apart; rare words weigh as much as others.
"""

from __future__ import annotations

import math
import re
from typing import Any

from sqlalchemy import Connection, Float, case, cast, column, func, literal, literal_column, select

from catalog.store.engine_types import Hit, Hits, Restriction, Spread
from catalog.store.phrases import LEAST
from catalog.store.schema import chunks
from catalog.store.sql_forms import PlainText, holds_phrase, web_query

_WEIGHTS: Any = literal_column("CAST('{0.25,0.25,0.5,1}' AS real[])")  # of D, C, B and A
_COMPOUND = re.compile(r'"[^" ]+ [^"]+"')
_BY_LENGTH = 1  # divide by 1 + the logarithm of the passage's length


def search_words(connection: Connection, match: str, k: int, restriction: Restriction) -> Hits:
    """Return the best allowed passages of the datasets for a MATCH text."""
    words: Any = column("words")
    rank: Any = func.ts_rank_cd(_WEIGHTS, words, web_query(literal(match, PlainText)), _BY_LENGTH)
    compounds = web_query(literal(" OR ".join(_COMPOUND.findall(match)), PlainText))
    rank *= case((words.op("@@")(compounds), 2.0), else_=1.0)  # else each of its words counts alike
    here = chunks.c.dataset.in_(restriction.datasets)
    found = (
        select(chunks.c.seq, func.greatest(LEAST, cast(rank, Float)).label("score"))
        .where(here, holds_phrase(chunks.c.seq, match))
        .cte("found")
    )
    best = select(found).order_by(found.c.score.desc(), found.c.seq).limit(k)
    if not restriction.is_whole_dataset:
        allowed = select(chunks.c.seq).where(restriction.clause())
        best = best.where(found.c.seq.in_(allowed))
    hits = [Hit(seq, score) for seq, score in connection.execute(best)]
    size = select(func.count()).select_from(chunks).where(here).scalar_subquery()
    sums = select(func.sum(found.c.score), func.sum(found.c.score * found.c.score), size)
    total, squares, passages = connection.execute(sums).one()
    mean, square = (float(value or 0) / max(1, passages) for value in (total, squares))
    return Hits(hits, Spread(mean, math.sqrt(max(0.0, square - mean * mean))))
