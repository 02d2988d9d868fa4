"""Writing SQLite FTS5 MATCH texts in which no character of the user's acts as an operator.

Every word is put between double quotes, inside which FTS5 knows no syntax
(https://www.sqlite.org/fts5.html#full_text_query_syntax).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import and_, false, or_

from catalog.store.lexical.analysis import UNSPACED, WORD_CHARACTERS, raw_words
from catalog.store.schema import chunks
from catalog.store.sql_forms import casefolded, contains, holds_phrase

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

MAX_TERMS = 64
_BEFORE_FLAG = (" ", "\n", "\t", "`", "'", '"', "(", "[", "-")
_WORD = re.compile(f"[{WORD_CHARACTERS}]+")


def fts_words(text: str) -> list[str]:
    """Return runs of letters, digits and marks, in order: what FTS5's unicode61 would index."""
    return _WORD.findall(unicodedata.normalize("NFC", text).replace("_", " "))


def quote(word: str) -> str:
    """Return one FTS5 string: a literal token or phrase, whatever it holds."""
    return '"' + word.replace('"', '""') + '"'


def match_any(terms: Iterable[str]) -> str:
    """Return a MATCH text that asks for at least one of the terms (at most :data:`MAX_TERMS`)."""
    return " OR ".join(quote(term) for term in list(dict.fromkeys(terms))[:MAX_TERMS])


def match_all(words: Sequence[str]) -> str:
    """Return a MATCH text that asks for all of the words, and ranks them best as one phrase.

    In Postgres it asks for any of them.
    """
    each = " AND ".join(quote(word) for word in list(dict.fromkeys(words))[:MAX_TERMS])
    return f"{quote(' '.join(words[:MAX_TERMS]))} OR ({each})"


def phrase_clause(phrase: str) -> ColumnElement[bool]:
    """Require that a chunk holds these words one after another; without a word: false.

    With characters of a script without spaces between words (and Hangul), it must stand there as
    it is written, upper and lower case alike, inside other words, too. A name whose signs FTS5
    does not index, such as ``c++`` or ``.net``, must also stand there as it is written.
    """
    words = fts_words(phrase)[:MAX_TERMS]
    if not words:
        return false()
    if UNSPACED.search(phrase):
        forms = dict.fromkeys(unicodedata.normalize(form, phrase) for form in ("NFC", "NFKC"))
        return or_(*(_contains(form) for form in forms))
    holds_words = holds_phrase(chunks.c.seq, quote(" ".join(words)))
    signed_names = [raw for raw in raw_words(phrase) if raw[0] == "." or raw[-1] in "+#"]
    return and_(holds_words, *(_contains(name) for name in signed_names[:MAX_TERMS]))


def flag_clause(word: str) -> ColumnElement[bool]:
    """Require that a chunk writes the word as a flag, with a minus: ``find -name``, ``--name``."""
    fields = (chunks.c.title, chunks.c.headings, chunks.c.text)
    written = or_(*(contains(field, f"{sign}-{word}") for field in fields for sign in _BEFORE_FLAG))
    return and_(phrase_clause(word), written)


def _contains(written: str) -> ColumnElement[bool]:
    fields = (chunks.c.title, chunks.c.headings, chunks.c.text)
    folded = written.casefold()
    if folded == written.upper():  # no letter has a case
        return or_(*(contains(field, written) for field in fields))
    return or_(*(contains(casefolded(field), folded) for field in fields))
