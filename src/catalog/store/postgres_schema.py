"""The parts of a store that only Postgres needs, in addition to :mod:`catalog.store.schema`.

They are functions that SQLite has built in, a ``rowid`` for tables without a key (to keep the order
of insertion), and the words of passages and cards. The words are generated columns, cut by a text
search configuration of the store: English endings, as FTS5's, and no stop words.

Postgres stores at most 255 positions of a word in a row, and no positions after the 16,383rd word;
phrases beyond these limits are not found.
"""

from __future__ import annotations

import sys

from sqlalchemy import Connection

CONFIGURATION = "catalog_words"
_UNORDERED = ("document_fields", "chunk_sections")  # tables without a key
_MOST_CHARS = 200_000  # of a text, for its words: a tsvector takes a megabyte
_MARKS = r"[!-/:-@\[-`{{-¿×÷\u2000-\u206f\u3000-\u3003\u3008-\u301f\uff01-\uff0f]"
ACCENTS = r"[\u0300-\u036f]"
_WORDS = (
    f"setweight(to_tsvector('{CONFIGURATION}'::regconfig, regexp_replace(normalize(regexp_replace("
    f"left({{0}}, {_MOST_CHARS}), '{_MARKS}', ' ', 'g'), NFD), '{ACCENTS}', '', 'g')), '{{1}}')"
)
_WEIGHED = {
    "chunks": "title:A headings:B text:C",
    "document_cards_fts": "title:A name:B headings:C metadata:C summary:D",
}
_SETUP = """
CREATE TABLE document_cards_fts (
    rowid bigint PRIMARY KEY REFERENCES document_cards(document_id) ON DELETE CASCADE,
    title text, name text, headings text, summary text, metadata text
);

CREATE TEXT SEARCH DICTIONARY catalog_words (TEMPLATE = snowball, Language = english);

CREATE TEXT SEARCH CONFIGURATION catalog_words (COPY = pg_catalog.english);

ALTER TEXT SEARCH CONFIGURATION catalog_words
ALTER MAPPING REPLACE pg_catalog.english_stem WITH catalog_words
"""
_FOLD = """
CREATE FUNCTION catalog_casefold(word text)
RETURNS text LANGUAGE sql IMMUTABLE COST 10000 AS $$
    SELECT CASE
        WHEN octet_length(word) = length(word) THEN lower(word COLLATE "C")
        WHEN word !~ '[{several}]' THEN translate(word, '{cased}', '{folded}')
        ELSE {replaced}
    END
$$"""


def create_own(connection: Connection) -> None:
    """Create these parts."""
    for statement in (*_SETUP.split(";\n\n"), _casefold_function()):
        connection.exec_driver_sql(statement.replace("%", "%%"))
    for table in _UNORDERED:
        added = "ADD COLUMN rowid bigint GENERATED ALWAYS AS IDENTITY"
        connection.exec_driver_sql(f"ALTER TABLE {table} {added}")
    for table, weights in _WEIGHED.items():
        pairs = (one.split(":") for one in weights.split())
        parts = (_WORDS.format(f"coalesce({name}, '')", weight) for name, weight in pairs)
        words = f"words tsvector GENERATED ALWAYS AS ({' || '.join(parts)}) STORED"
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {words}")
        connection.exec_driver_sql(f"CREATE INDEX {table}_words ON {table} USING gin (words)")


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
