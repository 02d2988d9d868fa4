"""Cut words like SQLite's FTS5, and read its MATCH texts, for a database without FTS5.

The words are cut and stemmed by an FTS5 table in memory, so they are the same by construction.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import String, TypeDecorator
from sqlalchemy.engine import Dialect

TOKENIZER = "porter unicode61 remove_diacritics 2"  # the same as for the store's FTS5 tables
_LONGEST = 500  # characters; Postgres refuses a word of over 2,046 bytes
_local = threading.local()


def cut_words(rows: Sequence[Sequence[str]]) -> list[list[list[str]]]:
    """Return the words, in order, of each text of each row; all rows have equally many texts.

    A very long word is cut off after 500 characters.
    """
    words: list[list[list[str]]] = [[[] for _ in row] for row in rows]
    if not any(any(row) for row in rows):
        return words
    columns = len(rows[0])
    connection = _memory()
    table = f"texts{columns}"
    _ensure(connection, table, columns)
    marks = ", ".join("?" * columns)
    numbered = ((number, *row) for number, row in enumerate(rows))
    names = _names(columns)
    connection.executemany(
        f"INSERT INTO {table}(rowid, {names}) VALUES (?, {marks})",  # noqa: S608 - our own names
        numbered,
    )
    query = f'SELECT doc, col, term FROM {table}_words ORDER BY doc, col, "offset"'  # noqa: S608
    for number, column, word in connection.execute(query):
        words[number][int(column[1:])].append(word[:_LONGEST])
    connection.execute(f"INSERT INTO {table}({table}) VALUES ('delete-all')")  # noqa: S608
    return words


def cut_text(text: str) -> list[str]:
    """Return the words of one text, in order."""
    return cut_words([[text]])[0][0]


def _memory() -> sqlite3.Connection:
    connection: sqlite3.Connection | None = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = sqlite3.connect(":memory:", isolation_level=None)
    return connection


def _ensure(connection: sqlite3.Connection, table: str, columns: int) -> None:
    known = "SELECT 1 FROM sqlite_master WHERE name = ?"
    if connection.execute(known, (table,)).fetchone():
        return
    connection.execute(
        f"CREATE VIRTUAL TABLE {table} USING "
        f"fts5({_names(columns)}, content='', tokenize=\"{TOKENIZER}\")"
    )
    connection.execute(f"CREATE VIRTUAL TABLE {table}_words USING fts5vocab({table}, instance)")


def _names(columns: int) -> str:
    return ", ".join(f"t{number}" for number in range(columns))


CARD_COLUMNS = {"title": "A", "name": "B", "headings": "C", "summary": "D", "metadata": "C"}
"""The columns of a card's full text, each with the weight label of its words in a ``tsvector``."""
_PART = re.compile(r'(?:\{([^{}]*+)\}\s*+:\s*+)?"((?:[^"]|"")*)"')


class MatchText(TypeDecorator[str]):
    """One of our FTS5 MATCH texts as a ``tsquery``: phrases; at least one must match."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text as a ``tsquery``."""
        del dialect
        return None if value is None else to_query(value)


Match = String().with_variant(MatchText(), "postgresql")


def to_query(match: str) -> str:
    """Return a MATCH text as a ``tsquery``; without a word it is empty and matches nothing."""
    return " | ".join(to_queries(match))


def to_queries(match: str) -> Iterator[str]:
    """Yield each phrase of a MATCH text as a ``tsquery``."""
    for columns, words in phrases_of(match):
        label = "".join(sorted({CARD_COLUMNS[name] for name in columns.split()}))
        suffix = f":{label}" if label else ""
        yield f"({' <-> '.join(f'{quote_word(word)}{suffix}' for word in words)})"


def phrases_of(match: str) -> Iterable[tuple[str, list[str]]]:
    """Yield the words of each phrase of a MATCH text, with the columns it is restricted to."""
    for columns, phrase in _PART.findall(match):
        words = cut_text(phrase.replace('""', '"'))
        if words:
            yield columns, words


def quote_word(word: str) -> str:
    """Return a word quoted for a ``tsvector`` or ``tsquery``; it may contain any character."""
    doubled = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
