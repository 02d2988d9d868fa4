"""The full text of passages and cards: FTS5's tables in SQLite, generated columns in Postgres.

Both are asked by MATCH texts in which every word is in double quotes, inside which neither FTS5
(https://www.sqlite.org/fts5.html#full_text_query_syntax) nor Postgres's ``websearch_to_tsquery``
knows a syntax. So nothing that a user types acts as an operator.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Subquery, func, or_

from catalog.store.lexical.analysis import UNSPACED, WORD_CHARACTERS, raw_words
from catalog.store.schema import chunks
from catalog.store.sql_forms import PlainText, casefolded, contains, holds_phrase, web_query

MAX_TERMS = 64
_FIELDS = (chunks.c.title, chunks.c.headings, chunks.c.text)
_NUMBER = re.compile(r"(?:(?<!\S)[-+\u2212])?[0-9]+(?:[.,][0-9]+)*")
_NO_DIGIT = "(?<![0-9])(?<![0-9][.,])"
_WORD = re.compile(f"[{WORD_CHARACTERS}]+")
CARD_WEIGHTS = {"title": 4.0, "name": 3.0, "headings": 2.0, "summary": 1.0, "metadata": 2.0}
_LABELS: Any = sa.literal_column("CAST('{0.25,0.5,0.75,1}' AS real[])")  # summary … title
LEAST = 1e-9  # the least score of a match, so that rounding cannot make it 0
_COLUMNS = [sa.column(name, PlainText) for name in CARD_WEIGHTS]
CARDS = sa.table("document_cards_fts", *_COLUMNS, sa.column("rowid", sa.Integer))


def fts_words(text: str) -> list[str]:
    """Return the runs of letters, digits and marks, in order, that FTS5's unicode61 would index."""
    return _WORD.findall(unicodedata.normalize("NFC", text).replace("_", " "))


def quote(word: str) -> str:
    """Return a string of a MATCH text, which may contain any character: a word or phrase."""
    return '"' + word.replace('"', '""') + '"'


def match_any(terms: Iterable[str]) -> str:
    """Return a MATCH text for at least one of the terms (the first :data:`MAX_TERMS`)."""
    return " OR ".join(quote(term) for term in list(dict.fromkeys(terms))[:MAX_TERMS])


def match_all(words: Sequence[str]) -> str:
    """Return a MATCH text for all of the words, which ranks them highest as one phrase."""
    each = " ".join(quote(word) for word in list(dict.fromkeys(words))[:MAX_TERMS])
    return f"{quote(' '.join(words[:MAX_TERMS]))} OR {each}"


def phrase_clause(phrase: str) -> ColumnElement[bool]:
    """Require that a chunk contains these words as a phrase; nothing meets a phrase without a word.

    A phrase with characters of a script without spaces (or Hangul) must occur literally, in any
    case, also inside other words. A name with characters that are not indexed, such as ``c++`` or
    ``.net``, must occur literally as well. A number must be whole: 500 is not in 1,500.
    """
    words = fts_words(phrase)[:MAX_TERMS]
    if not words:
        return sa.false()
    if UNSPACED.search(phrase):
        forms = dict.fromkeys(unicodedata.normalize(form, phrase) for form in ("NFC", "NFKC"))
        return or_(*map(_contains, forms))
    names = [raw for raw in raw_words(phrase) if raw[0] == "." or raw[-1] in "+#"]
    numbers = dict.fromkeys(_NUMBER.findall(phrase))
    # for Python and Postgres: no part of a larger number
    whole = [rf"{_NO_DIGIT}{re.escape(number)}(?![0-9])(?![.,][0-9])" for number in numbers]
    return sa.and_(
        holds_phrase(chunks.c.seq, quote(" ".join(words))),
        *map(_contains, names[:MAX_TERMS]),
        *(or_(*(one.regexp_match(pattern) for one in _FIELDS)) for pattern in whole[:MAX_TERMS]),
    )


def flag_clause(word: str) -> ColumnElement[bool]:
    """Require that a chunk has the word as a flag, as in ``find -name`` or ``--name``."""
    flags = [f"{sign}-{word}" for sign in " \n\t`'\"([-"]
    written = or_(*(contains(field, flag) for field in _FIELDS for flag in flags))
    return sa.and_(phrase_clause(word), written)


def _contains(written: str) -> ColumnElement[bool]:
    folded = written.casefold()
    if folded == written.upper():  # no letter has a case
        return or_(*(contains(field, written) for field in _FIELDS))
    return or_(*(contains(casefolded(field), folded) for field in _FIELDS))


def is_postgres(connection: Connection) -> bool:
    """Return whether the store is in Postgres."""
    return connection.dialect.name == "postgresql"


def match_cards(connection: Connection, match: str, *, is_name: bool = False) -> Subquery:
    """Return the ids of the cards that match, with their relevance as ``score``.

    With ``is_name`` title or name must match. The score is BM25 over the weighted columns, in
    Postgres ``ts_rank_cd``; it is only computed if the query selects it.
    """
    cards: Any = sa.select(CARDS.c.rowid.label("id"))
    if is_postgres(connection):
        words: Any = sa.column("words")
        query = web_query(sa.literal(match, PlainText))
        score = func.greatest(LEAST, func.ts_rank_cd(_LABELS, words, query, 1)).label("score")
        named = func.ts_filter(words, sa.literal_column("CAST('{a,b}' AS \"char\"[])"))
        is_match = (named if is_name else words).op("@@")(query)
        return cards.add_columns(score).where(is_match).subquery()  # type: ignore[no-any-return]
    weights = ", ".join(map(str, CARD_WEIGHTS.values()))
    bm25: Any = sa.literal_column(f"max({LEAST}, -bm25(document_cards_fts, {weights}))", sa.Float)
    asked = f"{{title name}} : ({match})" if is_name else match
    found = cards.add_columns(bm25.label("score")).where(
        sa.text("document_cards_fts MATCH :match").bindparams(match=asked)
    )
    return found.limit(-1).subquery()  # type: ignore[no-any-return]  # else it runs once for a row


def command_full_text(connection: Connection, command: str) -> None:
    """Give FTS5's tables a command; in Postgres the full text is in columns of the rows.

    ``rebuild`` makes them from their rows. ``integrity-check`` compares both, takes the write lock,
    and raises the driver's error if they differ.
    """
    for name in () if is_postgres(connection) else ("chunks_fts", CARDS.name):
        # FTS5 takes commands in a column with the table's name
        command_it = f"INSERT INTO {name} ({name}, rank) VALUES (:command, 1)"  # noqa: S608
        connection.execute(sa.text(command_it), {"command": command})
