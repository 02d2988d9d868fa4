"""What a store in Postgres has beside the tables of :mod:`catalog.store.schema`.

Functions that SQLite has of its own, the order in which rows came (``rowid``) where no key tells
it, and the tables of words that stand for SQLite's full-text indexes: each row's words as
:mod:`catalog.store.fts_tokens` cuts them, with their places. Those are derived; they hang on their
rows and go with them.
"""

from __future__ import annotations

import sys

from sqlalchemy import Column, Connection, ForeignKey, Index, MetaData, Table
from sqlalchemy.dialects.postgresql import TSVECTOR

from catalog.store.column_types import Number, PlainText
from catalog.store.schema import chunks, document_cards

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


def create_functions(connection: Connection) -> None:
    """Make the functions; those of an earlier attempt are replaced."""
    for statement in (_ITEMS, _PAIRS, _casefold_function()):
        connection.exec_driver_sql(statement.replace("%", "%%"))


def create_derived(connection: Connection) -> None:
    """Make the words of passages, and the order of rows."""
    for table in _UNORDERED:
        order = f"ALTER TABLE {table} ADD COLUMN rowid bigint GENERATED ALWAYS AS IDENTITY"
        connection.exec_driver_sql(order)
    chunk_words.create(connection)


def create_cards_index(connection: Connection) -> None:
    """Make the full text of cards."""
    card_words.create(connection)


def _casefold_function() -> str:
    """Return the function that folds as Python does: no collation of Postgres' folds so."""
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
