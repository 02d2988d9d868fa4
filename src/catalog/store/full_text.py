"""The full text of passages and of cards, in whichever database the truth is.

SQLite keeps it by triggers in tables of FTS5; in Postgres it is written with its rows, into tables
of words that FTS5 cut (:mod:`catalog.store.postgres_words`), so that both find the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Float,
    Integer,
    bindparam,
    cast,
    column,
    insert,
    literal,
    literal_column,
    select,
    table,
    text,
)

from catalog.core.errors import StoreDamagedError
from catalog.store.column_types import Number, PlainText
from catalog.store.sql_forms import json_pairs

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Subquery

CARD_WEIGHTS = {"title": 4.0, "name": 3.0, "headings": 2.0, "summary": 1.0, "metadata": 2.0}
LEAST = 1e-9  # a match is never worth nothing, whatever the rounding
CARDS = table(
    "document_cards_fts",
    *(column(name, PlainText) for name in CARD_WEIGHTS),
    column("rowid", Integer),
)
_CARDS_MATCH = text("document_cards_fts MATCH :match")
_CARDS_RELEVANCE: ColumnElement[float] = literal_column(
    f"max({LEAST}, -bm25(document_cards_fts, {', '.join(map(str, CARD_WEIGHTS.values()))}))", Float
)
_TABLES = tuple(  # SQLite's commands are written to a column that is called as the table
    table(name, column(name), column("rank")) for name in ("chunks_fts", "document_cards_fts")
)


def is_postgres(connection: Connection) -> bool:
    """Tell whether the truth is in Postgres."""
    return connection.dialect.name == "postgresql"


def index_chunks(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Have new passages be found by their words."""
    if is_postgres(connection):
        from catalog.store import postgres_words

        postgres_words.index_chunks(connection, rows)


def index_cards(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Have new cards be found by their words; a row has the columns of :data:`CARDS`."""
    if is_postgres(connection):
        from catalog.store import postgres_words

        postgres_words.index_cards(connection, rows)
    else:
        connection.execute(insert(CARDS), list(rows))


def match_cards(connection: Connection, match: str) -> Subquery:
    """Return the ids of the cards that match, with BM25 over the weighted columns as ``score``.

    In SQLite the limit makes it match once, whatever is joined to it; a score is only worked out
    if it is asked for.
    """
    if is_postgres(connection):
        from catalog.store import postgres_words

        scores = postgres_words.score_cards(connection, match, CARD_WEIGHTS)
        least = {id_: max(LEAST, score) for id_, score in scores.items()}
        pairs = json_pairs(literal(json.dumps(least)))
        columns = (
            cast(pairs.c.key, Number).label("id"),
            cast(pairs.c.value, Float).label("score"),
        )
        return select(*columns).subquery()
    return (
        select(CARDS.c.rowid.label("id"), _CARDS_RELEVANCE.label("score"))
        .where(_CARDS_MATCH.bindparams(bindparam("match", match)))
        .limit(-1)
        .subquery()
    )


def check_full_text(connection: Connection) -> None:
    """Hold the full-text indexes against their rows; it takes the write lock.

    Raises the driver's error, or :class:`StoreDamagedError`, where they differ.
    """
    if is_postgres(connection):
        from catalog.store import postgres_words

        if different := postgres_words.count_differences(connection):
            raise StoreDamagedError(f"the words of {different} passages are not those of the text")
        return
    for index in _TABLES:
        columns = {index.name: "integrity-check", "rank": 1}
        connection.execute(insert(index).values(columns))


def rebuild_full_text(connection: Connection) -> None:
    """Make the full-text indexes anew from their rows."""
    if is_postgres(connection):
        from catalog.store import postgres_words

        postgres_words.rebuild(connection)
        return
    for index in _TABLES:
        connection.execute(insert(index).values({index.name: "rebuild"}))
