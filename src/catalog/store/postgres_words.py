"""Full text in Postgres with the words, phrases and scores of SQLite's FTS5.

A row's words are a ``tsvector``, whose weight labels are the columns. Postgres stores at most 255
positions of a word in a row, and no positions after the 16,383rd word; phrases beyond these limits
are not found.

This module also creates the parts of a store that only Postgres needs, in addition to the tables of
:mod:`catalog.store.schema`: functions that SQLite has built in, a ``rowid`` for tables without a
key (to keep the order of insertion), and the tables of words that replace SQLite's full-text
indexes. Rows of these tables are deleted together with the rows from which they are derived.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    ForeignKey,
    Index,
    MetaData,
    String,
    Table,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, TSQUERY, TSVECTOR
from sqlalchemy.types import TEXT

from catalog.store.fts_tokens import CARD_COLUMNS, Match, cut_words, phrases_of, quote_word
from catalog.store.schema import chunks, document_cards
from catalog.store.sql_forms import Number, PlainText, json_pairs

metadata = MetaData()

chunk_words = Table(
    "chunk_words",
    metadata,
    Column("rowid", Number, ForeignKey(chunks.c.seq, ondelete="CASCADE"), primary_key=True),
    Column("words", TSVECTOR, nullable=False),
    Column("length", Number, nullable=False),  # words in all columns
    Index("chunk_words_words", "words", postgresql_using="gin"),
)

card_words = Table(
    "document_cards_fts",
    metadata,
    Column(
        "rowid",
        Number,
        ForeignKey(document_cards.c.document_id, ondelete="CASCADE"),
        primary_key=True,
    ),
    *(Column(name, PlainText) for name in ("title", "name", "headings", "summary", "metadata")),
    Column("words", TSVECTOR, nullable=False),
    Column("length", Number, nullable=False),
    Index("document_cards_fts_words", "words", postgresql_using="gin"),
)

_UNORDERED = ("document_fields", "chunk_sections")  # tables without a key

_ITEMS = """
CREATE OR REPLACE FUNCTION catalog_json_items(list text)
RETURNS TABLE(key bigint, value text) LANGUAGE sql IMMUTABLE AS $$
    SELECT place - 1, item
    FROM jsonb_array_elements_text(list::jsonb) WITH ORDINALITY AS items(item, place)
$$"""
_PAIRS = """
CREATE OR REPLACE FUNCTION catalog_json_pairs(object text)
RETURNS TABLE(key text, value text) LANGUAGE sql IMMUTABLE AS $$
    SELECT pairs.key, pairs.value FROM jsonb_each_text(object::jsonb) AS pairs
$$"""
_FOLD = """
CREATE OR REPLACE FUNCTION catalog_casefold(word text)
RETURNS text LANGUAGE sql IMMUTABLE COST 10000 AS $$
    SELECT CASE
        WHEN octet_length(word) = length(word) THEN lower(word COLLATE "C")
        WHEN word !~ '[{several}]' THEN translate(word, '{cased}', '{folded}')
        ELSE {replaced}
    END
$$"""
CHUNK_COLUMNS = {"title": "A", "headings": "B", "text": "C"}
_K1, _B = 1.2, 0.75  # of FTS5's bm25()
_LEAST_IDF = 1e-6
_LAST_PLACE = 16_383  # the highest position in a tsvector; the words after it share it
_MOST_CHARS = 900_000  # of a row's words as text; Postgres takes 1 MB
_BATCH = 500  # rows cut at once


def create_functions(connection: Connection) -> None:
    """Create the functions, or replace those of an earlier attempt."""
    for statement in (_ITEMS, _PAIRS, _casefold_function()):
        connection.exec_driver_sql(statement.replace("%", "%%"))


def create_derived(connection: Connection) -> None:
    """Create the order of rows, and the words of passages and cards."""
    for table in _UNORDERED:
        order = f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS rowid bigint GENERATED ALWAYS AS "
        connection.exec_driver_sql(f"{order} IDENTITY")
    metadata.create_all(connection)


def _casefold_function() -> str:
    """Return the function that folds like Python, which no collation of Postgres does."""
    folded = {
        one: whole
        for one in map(chr, range(sys.maxunicode + 1))
        if (whole := one.casefold()) != one and not 0xD800 <= ord(one) <= 0xDFFF
    }
    single = {one: whole for one, whole in folded.items() if len(whole) == 1}
    several = {one: whole for one, whole in folded.items() if len(whole) > 1}
    cased, small = "".join(single), "".join(single.values())
    replaced = f"translate(word, '{cased}', '{small}')"
    for one, whole in several.items():
        replaced = f"replace({replaced}, '{one}', '{whole}')"
    return _FOLD.format(several="".join(several), cased=cased, folded=small, replaced=replaced)


def index_chunks(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the words of new passages."""
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        cut = _cut(batch, CHUNK_COLUMNS)
        words = [{"rowid": row["seq"], **one} for row, one in zip(batch, cut, strict=True)]
        connection.execute(insert(chunk_words), words)


def index_cards(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the texts of cards with their words."""
    cut = _cut(rows, CARD_COLUMNS)
    connection.execute(
        insert(card_words), [{**row, **one} for row, one in zip(rows, cut, strict=True)]
    )


def _cut(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> list[dict[str, Any]]:
    words = cut_words([[row[name] or "" for name in columns] for row in rows])
    labels = list(columns.values())
    return [{"words": _vector(one, labels), "length": sum(map(len, one))} for one in words]


def _vector(columns: Sequence[Sequence[str]], labels: Sequence[str]) -> str:
    """Return the words of a row's columns as a ``tsvector``; no phrase spans two columns."""
    parts: list[str] = []
    place = size = 0
    for words, label in zip(columns, labels, strict=True):
        for word in words:
            place += 1
            part = f"{quote_word(word)}:{min(place, _LAST_PLACE)}{label}"
            size += len(part.encode()) + 1
            if size > _MOST_CHARS:
                return " ".join(parts)
            parts.append(part)
        place += 1
    return " ".join(parts)


def score_cards(
    connection: Connection, match: str, weights: Mapping[str, float]
) -> dict[int, float]:
    """Return the BM25 scores of the cards that match, like FTS5's ``bm25()``; higher is better.

    ``weights`` is by column name. Rarity of a phrase is counted over all cards.
    """
    labels = {label: weights[name] for name, label in CARD_COLUMNS.items()}
    phrases = [words for _, words in phrases_of(match)]
    if not phrases:
        return {}
    words = func.coalesce(func.sum(card_words.c.length), 0)
    size = select(func.count(), words).select_from(card_words)
    rows, total = connection.execute(size).one()
    lengths: dict[int, int] = {}
    places: dict[int, dict[str, list[tuple[int, str]]]] = {}
    for row, length, word, positions, its_labels in connection.execute(
        _select_places(), {"match": match, "wanted": sorted({w for p in phrases for w in p})}
    ):
        lengths[row] = length
        places.setdefault(row, {})[word] = list(zip(positions, its_labels, strict=True))
    scores = dict.fromkeys(lengths, 0.0)
    average = total / max(rows, 1)
    for phrase in phrases:
        counts = {row: _count(of_row, phrase, labels) for row, of_row in places.items()}
        hits = {row: count for row, count in counts.items() if count > 0}
        rarity = math.log((rows - len(hits) + 0.5) / (len(hits) + 0.5))
        rarity = rarity if rarity > 0 else _LEAST_IDF
        for row, count in hits.items():
            norm = _K1 * (1 - _B + _B * lengths[row] / average)
            scores[row] += rarity * ((count * (_K1 + 1.0)) / (count + norm))
    return {row: score for row, score in scores.items() if score > 0}


def _count(
    places: Mapping[str, Sequence[tuple[int, str]]],
    phrase: Sequence[str],
    weights: Mapping[str, float],
) -> float:
    """Return how often a row contains the phrase, each time weighted by its column."""
    first, *rest = phrase
    later = [{at for at, _ in places.get(word, ())} for word in rest]
    return sum(
        weights[label]
        for at, label in places.get(first, ())
        if all(at + step in found for step, found in enumerate(later, start=1))
    )


def _select_places() -> Any:
    table = card_words
    each = func.unnest(table.c.words).table_valued("lexeme", "positions", "weights")
    each = each.render_derived()
    matches = table.c.words.op("@@")(cast(bindparam("match", type_=Match), TSQUERY))
    is_wanted = each.c.lexeme == func.any(cast(bindparam("wanted"), ARRAY(TEXT)))
    return (
        select(table.c.rowid, table.c.length, each.c.lexeme, each.c.positions, each.c.weights)
        .select_from(table.join(each, is_wanted))
        .where(matches)
    )


def count_differences(connection: Connection) -> int:
    """Count the passages whose words are missing or do not match their text."""
    query = select(chunks.c.seq, *(chunks.c[name] for name in CHUNK_COLUMNS))
    query = query.order_by(chunks.c.seq).limit(_BATCH)
    wrong = after = 0
    while rows := connection.execute(query.where(chunks.c.seq > after)).mappings().all():
        after = rows[-1]["seq"]
        cut = _cut([dict(row) for row in rows], CHUNK_COLUMNS)
        words = {row["seq"]: one["words"] for row, one in zip(rows, cut, strict=True)}
        wrong += connection.scalar(_DIFFERENT, {"words": json.dumps(words)}) or 0
    return wrong


_WORDS_OF = json_pairs(bindparam("words", type_=String()))
_DIFFERENT = (
    select(func.count())
    .select_from(
        _WORDS_OF.outerjoin(chunk_words, chunk_words.c.rowid == cast(_WORDS_OF.c.key, Number))
    )
    .where(chunk_words.c.words.is_distinct_from(cast(_WORDS_OF.c.value, TSVECTOR)))
)


def rebuild(connection: Connection) -> None:
    """Rebuild the words of all passages and cards."""
    connection.execute(delete(chunk_words))
    after = 0
    query = select(chunks.c.seq, *(chunks.c[name] for name in CHUNK_COLUMNS))
    query = query.order_by(chunks.c.seq).limit(_BATCH)
    while rows := connection.execute(query.where(chunks.c.seq > after)).mappings().all():
        index_chunks(connection, [dict(row) for row in rows])
        after = rows[-1]["seq"]
    texts = [card_words.c[name] for name in ("rowid", *CARD_COLUMNS)]
    cards = [dict(row) for row in connection.execute(select(*texts)).mappings()]
    connection.execute(delete(card_words))
    if cards:
        index_cards(connection, cards)
