"""BM25 in Postgres's SQL, over rows with their words as a ``tsvector`` and the number of words.

``ts_rank`` ignores how rare a word is and how long passages are on average. It is therefore called
for one word at a time, to get the term frequency for BM25
(https://en.wikipedia.org/wiki/Okapi_BM25).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    Select,
    Text,
    bindparam,
    cast,
    func,
    literal,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, REAL, TSQUERY

from catalog.store.engine_types import Hit, Hits, Restriction, Spread
from catalog.store.fts_tokens import to_queries
from catalog.store.full_text import LEAST
from catalog.store.postgres_words import chunk_words
from catalog.store.schema import chunks

K1, B = 1.2, 0.75
_ONCE = 4 * math.pi**2 / 6  # ts_rank of a single word with weight .25 is 1 / _ONCE
_OF_TRUTH = (0.0, 0.25, 0.5, 1.0)  # weights of D (unused), text, headings and title


def search_truth(connection: Connection, match: str, k: int, restriction: Restriction) -> Hits:
    """Return the best passages by the words that are stored with them, as FTS5 cuts words.

    ``match`` is one of our FTS5 MATCH texts. Rarity of a phrase is counted over all datasets.
    """
    words = cast(bindparam("words", type_=ARRAY(Text())), ARRAY(TSQUERY))
    each = func.unnest(words).table_valued("word").render_derived()
    holds = chunk_words.c.words.bool_op("@@")(each.c.word)
    number = select(func.count()).select_from(chunk_words).where(holds).scalar_subquery()
    counted = connection.execute(
        select(cast(each.c.word, Text()), number), {"words": list(to_queries(match))}
    )
    passages = {phrase: count for phrase, count in counted if count > 0}
    if not passages:
        return Hits()
    words_of_all = cast(func.sum(chunk_words.c.length), BigInteger())
    size = select(func.count(), words_of_all).select_from(chunk_words)
    given = bm25_values(passages, *connection.execute(size).one())
    here = chunks.c.dataset.in_(restriction.datasets)
    columns = (chunk_words.c.rowid.label("seq"), chunk_words.c.words, chunk_words.c.length)
    rows_here = select(*columns).join(chunks, chunks.c.seq == chunk_words.c.rowid).where(here)
    best = select_best([rows_here.subquery("rows")], restriction, _OF_TRUTH)
    rows = connection.execute(best, given | {"match": " | ".join(passages), "k": k}).all()
    total = connection.scalars(select(func.count()).select_from(chunks).where(here)).one()
    mean, square = (sum_ / max(1, total) for sum_ in rows[0][2:])
    hits = [Hit(seq, max(score, LEAST)) for seq, score, *_ in rows if seq is not None]
    return Hits(hits, Spread(mean, math.sqrt(max(0.0, square - mean * mean))))


def bm25_values(passages: Mapping[str, int], size: int, words: int) -> dict[str, Any]:
    """Return the values to bind for :func:`score`.

    ``passages`` are words or phrases as a ``tsquery``, each with the number of rows that contain
    it; ``size`` is the number of rows, ``words`` the number of words in all of them.
    """
    rarity = [math.log1p((size - number + 0.5) / (number + 0.5)) for number in passages.values()]
    return {"words": list(passages), "rarity": rarity, "average": max(1.0, words / size)}


def score(table: Any, weights: Sequence[float]) -> ColumnElement[float]:
    """Return the BM25 score of a row as an expression; see :func:`bm25_values` for its values."""
    words = cast(bindparam("words", type_=ARRAY(Text())), ARRAY(TSQUERY))
    rarity = cast(bindparam("rarity", type_=ARRAY(Float())), ARRAY(Float()))
    each = func.unnest(words, rarity).table_valued("word", "rarity").render_derived()
    by_label = cast(literal(list(weights), ARRAY(Float())), ARRAY(REAL))
    often = func.ts_rank(by_label, table.c.words, each.c.word, 0, type_=Float()) * _ONCE
    norm = K1 * (1 - B + B * table.c.length / cast(bindparam("average"), Float()))
    sum_ = func.sum(each.c.rarity * (K1 + 1) * often / (often + norm))
    holds = table.c.words.bool_op("@@")(each.c.word)  # also for phrases
    return select(sum_).select_from(each).where(holds).scalar_subquery()


def matches(table: Any, name: str) -> ColumnElement[bool]:
    """Return the condition that a row matches the ``tsquery`` bound to ``name``."""
    return table.c.words.bool_op("@@")(cast(bindparam(name, type_=Text()), TSQUERY))  # type: ignore[no-any-return]


def select_best(
    tables: Sequence[Any], restriction: Restriction, weights: Sequence[float]
) -> Select[Any]:
    """Select the best allowed passages, each with the sums of all scores and of their squares."""
    matching = [
        select(one.c.seq, score(one, weights).label("score")).where(matches(one, "match"))
        for one in tables
    ]
    scored = union_all(*matching).cte("scored")
    best = select(scored.c.seq, scored.c.score)
    if not restriction.is_whole_dataset:
        best = best.join(chunks, chunks.c.seq == scored.c.seq).where(restriction.clause())
    limit = cast(bindparam("k"), BigInteger())
    top = best.order_by(scored.c.score.desc(), scored.c.seq).limit(limit).subquery()
    total = func.coalesce(func.sum(scored.c.score), 0.0).label("total")
    squares = func.coalesce(func.sum(scored.c.score * scored.c.score), 0.0).label("squares")
    sums = select(total, squares).select_from(scored).subquery()
    return (
        select(top.c.seq, top.c.score, sums.c.total, sums.c.squares)
        .select_from(sums.outerjoin(top, true()))
        .order_by(top.c.score.desc(), top.c.seq)
    )
