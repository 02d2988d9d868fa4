"""The full text of passages and cards, in SQLite or Postgres.

In SQLite, triggers write it to FTS5 tables. In Postgres, it is written together with the rows, to
tables of words that FTS5 cut (:mod:`catalog.store.postgres_words`), so both find the same.

Both are searched by FTS5 MATCH texts. Every word in one is in double quotes, inside which FTS5
knows no syntax (https://www.sqlite.org/fts5.html#full_text_query_syntax), so nothing that a user
types acts as an operator.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Float,
    Integer,
    and_,
    bindparam,
    cast,
    column,
    false,
    insert,
    literal,
    literal_column,
    or_,
    select,
    table,
    text,
    true,
)

from catalog.core.errors import StoreDamagedError
from catalog.store.fts_tokens import cut_text
from catalog.store.lexical.analysis import UNSPACED, WORD_CHARACTERS, raw_words
from catalog.store.schema import chunks
from catalog.store.sql_forms import (
    Number,
    PlainText,
    as_shown,
    casefolded,
    contains,
    holds_phrase,
    json_pairs,
    shown_text,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Subquery


MAX_TERMS = 64
_FIELDS = (chunks.c.title, chunks.c.headings, chunks.c.text)
_NUMBER = re.compile(r"(?:(?<!\S)[-+\u2212])?[0-9]+(?:[.,][0-9]+)*")
_SEPARATOR = "[.,'\u2019\u00a0\u2009\u202f ]"  # between thousands
_THOUSANDS = re.compile(  # 1500 and 1,500, not 1,500.5
    rf"(?<![0-9.,+\-\u2212])[1-9](?:[0-9]{{3,17}}|[0-9]{{0,2}}({_SEPARATOR})[0-9]{{3}}(?:\1[0-9]{{3}})*)"
    r"(?![.,]?[0-9])"
)
_ADDRESS = re.compile(r"[/@]|\w\.\w")  # a phrase with it is part of an address
_LIGATURES = {"ffi": "ﬃ", "ffl": "ﬄ", "ff": "ﬀ", "fi": "ﬁ", "fl": "ﬂ"}
_BEFORE_FLAG = (" ", "\n", "\t", "`", "'", '"', "(", "[", "-")
_WORD = re.compile(f"[{WORD_CHARACTERS}]+")
CARD_WEIGHTS = {"title": 4.0, "name": 3.0, "headings": 2.0, "summary": 1.0, "metadata": 2.0}
LEAST = 1e-9  # the least score of a match, so that rounding cannot make it 0
CARDS = table(
    "document_cards_fts",
    *(column(name, PlainText) for name in CARD_WEIGHTS),
    column("rowid", Integer),
)
_CARDS_MATCH = text("document_cards_fts MATCH :match")
_CARDS_RELEVANCE: ColumnElement[float] = literal_column(
    f"max({LEAST}, -bm25(document_cards_fts, {', '.join(map(str, CARD_WEIGHTS.values()))}))", Float
)
_TABLES = tuple(  # FTS5 takes commands in a column with the table's name
    table(name, column(name), column("rank")) for name in ("chunks_fts", "document_cards_fts")
)


def fts_words(text: str) -> list[str]:
    """Return the runs of letters, digits and marks, in order, that FTS5's unicode61 would index."""
    return _WORD.findall(unicodedata.normalize("NFC", text).replace("_", " "))


def quote(word: str) -> str:
    """Return an FTS5 string, which may contain any character: a literal word or phrase."""
    return '"' + word.replace('"', '""') + '"'


def match_any(terms: Iterable[str]) -> str:
    """Return a MATCH text for at least one of the terms (the first :data:`MAX_TERMS`)."""
    return " OR ".join(quote(term) for term in list(dict.fromkeys(terms))[:MAX_TERMS])


def match_all(words: Sequence[str]) -> str:
    """Return a MATCH text for all of the words, which ranks them highest as one phrase.

    In Postgres any of the words matches.
    """
    each = " AND ".join(quote(word) for word in list(dict.fromkeys(words))[:MAX_TERMS])
    return f"{quote(' '.join(words[:MAX_TERMS]))} OR ({each})"


def phrase_clause(phrase: str) -> ColumnElement[bool]:
    """Require that a chunk contains these words as a phrase; nothing meets a phrase without a word.

    A phrase with characters of a script without spaces (or Hangul) must occur literally, in any
    case, also inside other words. A name with characters that FTS5 does not index, such as ``c++``
    or ``.net``, must occur literally as well. A number must be whole: 500 is not in 1,500. It may
    have other separators of thousands: 1500, 1.500. Ligatures, and invisible characters, the end
    of a line or the marks of a link within a word, do not matter. The address of a link is not
    text, unless the phrase looks like one.
    """
    words = fts_words(phrase)[:MAX_TERMS]
    if not words:
        return false()
    if UNSPACED.search(phrase):
        forms = dict.fromkeys(unicodedata.normalize(form, phrase) for form in ("NFC", "NFKC"))
        return or_(*(_contains(form) for form in forms))
    written = [way for one in spellings(phrase) for way in _with_ligatures(fts_words(one))]
    holds_words = or_(holds_phrase(chunks.c.seq, match_any(written)), _cut(words))
    signed_names = [raw for raw in raw_words(phrase) if raw[0] == "." or raw[-1] in "+#"]
    thousands = [number[0] for number in _THOUSANDS.finditer(phrase)]
    numbers = dict.fromkeys([*thousands, *_NUMBER.findall(_THOUSANDS.sub("_", phrase))])
    conditions = [_contains(name) for name in signed_names[:MAX_TERMS]]
    is_address = _ADDRESS.search(phrase) is not None
    fields = _FIELDS if is_address else [shown_text(field) for field in _FIELDS]
    conditions += [
        or_(*(field.regexp_match(_whole(number)) for field in fields))
        for number in list(numbers)[:MAX_TERMS]
    ]
    if not is_address:
        conditions.append(_is_shown(fts_words(_THOUSANDS.sub(" ", phrase))[:MAX_TERMS]))
    return and_(holds_words, *conditions)


def spellings(phrase: str) -> tuple[str, ...]:
    """Return the phrase, and the same with other separators of thousands in its whole numbers.

    >>> spellings('1500 euros')
    ('1500 euros', '1 500 euros', '1.500 euros', '1,500 euros')
    """
    grouped = (_THOUSANDS.sub(partial(_grouped, by=by), phrase) for by in ("", " ", ".", ","))
    return tuple(dict.fromkeys([phrase, *grouped]))


def flag_clause(word: str) -> ColumnElement[bool]:
    """Require that a chunk has the word as a flag, as in ``find -name`` or ``--name``."""
    flags = [f"{sign}-{word}" for sign in _BEFORE_FLAG]
    written = or_(*(contains(field, flag) for field in _FIELDS for flag in flags))
    return and_(phrase_clause(word), written)


def _contains(written: str) -> ColumnElement[bool]:
    folded = written.casefold()
    if folded == written.upper():  # no letter has a case
        return or_(*(contains(field, written) for field in _FIELDS))
    return or_(*(contains(casefolded(field), folded) for field in _FIELDS))


def _with_ligatures(words: Sequence[str]) -> Iterator[str]:
    """Yield a phrase, and the same with ligatures, which FTS5 takes for letters."""
    phrase = joined = " ".join(words[:MAX_TERMS])
    yield phrase
    for letters, ligature in _LIGATURES.items():
        joined = joined.replace(letters, ligature)
    yield joined


def _cut(words: Sequence[str]) -> ColumnElement[bool]:
    """Require the phrase with one of its words cut in two by what is no part of it.

    FTS5 has two words there, and between them the words of a link's address: [inde](x)mnity.
    """
    phrase = " ".join(words)
    cuts = [
        (phrase[:at], phrase[at:])
        for at in range(1, min(len(phrase), MAX_TERMS))
        if " " not in phrase[at - 1 : at + 1]
    ]
    if not cuts:
        return false()
    shown = shown_text(chunks.c.text)
    apart = " OR ".join(f"({quote(one)} AND {quote(other)})" for one, other in cuts)
    return and_(
        or_(
            holds_phrase(chunks.c.seq, match_any(" ".join(cut) for cut in cuts)),
            and_(holds_phrase(chunks.c.seq, apart), contains(chunks.c.text, "](")),
        ),
        *(contains(shown, as_shown(word)) for word in words),
    )


def _is_shown(words: Sequence[str]) -> ColumnElement[bool]:
    """Require that the words stand outside the addresses of links, which FTS5 searches as well.

    A word may have another ending: what it has in common with its stem must occur.
    """
    has_address = or_(contains(chunks.c.text, "]("), contains(chunks.c.text, "://"))
    stems = {word: "".join(cut_text(word)[:1]) for word in map(as_shown, words)}
    begins = [
        next((word[:at] for at in range(len(word), 0, -1) if stem.startswith(word[:at])), word)
        for word, stem in stems.items()
    ]
    fields = [shown_text(field) for field in _FIELDS]
    return or_(
        ~has_address,
        and_(true(), *(or_(*(contains(field, one) for field in fields)) for one in begins)),
    )


def _grouped(number: re.Match[str], by: str) -> str:
    """Return a whole number with another separator of thousands."""
    digits = re.sub(_SEPARATOR, "", number[0])
    first = len(digits) % 3 or 3
    return by.join([digits[:first], *(digits[at : at + 3] for at in range(first, len(digits), 3))])


def _whole(number: str) -> str:
    """Return a pattern for a number that is no part of a larger one; for Python and Postgres."""
    thousands = _THOUSANDS.fullmatch(number)
    digits = _grouped(thousands, f"{_SEPARATOR}?") if thousands else re.escape(number)
    before = _SEPARATOR.replace(" ", "") if re.fullmatch("[0-9]{3}", number) else "[.,]"
    return rf"(?<![0-9])(?<![0-9]{before}){digits}(?![0-9])(?![.,][0-9])"


def is_postgres(connection: Connection) -> bool:
    """Return whether the store is in Postgres."""
    return connection.dialect.name == "postgresql"


def index_chunks(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add new passages to the full text; in SQLite triggers do it."""
    if is_postgres(connection):
        from catalog.store import postgres_words

        postgres_words.index_chunks(connection, rows)


def index_cards(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add new cards to the full text; a row has the columns of :data:`CARDS`."""
    if is_postgres(connection):
        from catalog.store import postgres_words

        postgres_words.index_cards(connection, rows)
    else:
        connection.execute(insert(CARDS), list(rows))


def match_cards(connection: Connection, match: str) -> Subquery:
    """Return the ids of the cards that match, with BM25 over the weighted columns as ``score``.

    In SQLite, ``LIMIT -1`` makes the match run once, whatever is joined to it. A score is only
    computed if the query selects it.
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
    """Compare the full-text indexes with their rows; takes the write lock.

    Raises the driver's error or :class:`StoreDamagedError` if they differ.
    """
    if is_postgres(connection):
        from catalog.store import postgres_words

        if different := postgres_words.count_differences(connection):
            raise StoreDamagedError(
                f"the indexed words of {different} passages are not those of their text"
            )
        return
    for index in _TABLES:
        columns = {index.name: "integrity-check", "rank": 1}
        connection.execute(insert(index).values(columns))


def rebuild_full_text(connection: Connection) -> None:
    """Rebuild the full-text indexes from their rows."""
    if is_postgres(connection):
        from catalog.store import postgres_words

        postgres_words.rebuild(connection)
        return
    for index in _TABLES:
        connection.execute(insert(index).values({index.name: "rebuild"}))
