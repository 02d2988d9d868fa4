"""The words that SQLite's FTS5 makes of texts, for a database that has no FTS5.

A table in memory cuts and stems them, so that they are the same words by construction.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence

TOKENIZER = "porter unicode61 remove_diacritics 2"  # as of the full-text tables in SQLite
_LONGEST = 500  # characters; Postgres refuses a word of over 2,046 bytes
_local = threading.local()


def cut_words(rows: Sequence[Sequence[str]]) -> list[list[list[str]]]:
    """Return the words, in order, of each text of each row; all rows have as many texts.

    A very long word is cut short.
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
