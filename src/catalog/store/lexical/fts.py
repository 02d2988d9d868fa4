"""Keyword search in the store's own full text, with nothing to refresh: the engine ``fts``.

Scores are BM25 by SQLite's FTS5, and ``ts_rank_cd`` by Postgres, which knows no rarity of words
(https://www.postgresql.org/docs/current/textsearch-controls.html#TEXTSEARCH-RANKING).
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection, Select, func, select

from catalog.store.database import Database, EngineSetup
from catalog.store.engines import LexicalEngine, best_hits
from catalog.store.filter_sql import DatasetNames, of_datasets
from catalog.store.lexical.analysis import fold, other_spellings, raw_words
from catalog.store.lexical.languages import stop_words
from catalog.store.phrases import LEAST, fts_words, is_postgres, match_all, match_any, quote
from catalog.store.restriction import Hits, Restriction, allowed_seqs
from catalog.store.schema import chunks
from catalog.store.sql_forms import PlainText, contains, holds_phrase, web_query

MOST_COUNTED = 10_000  # passages with a word
MOST_READ = 100_000  # passages searched for a sign that is not a word
_SCORE = f"max({LEAST}, -bm25(chunks_fts, 4, 2, 1))"  # title, headings, text
_WEIGHTS: Any = sa.literal_column("CAST('{0.25,0.25,0.5,1}' AS real[])")  # …, text, headings, title
_BY_LENGTH = 1  # divide by 1 + the logarithm of the passage's length
_COMPOUND = re.compile(r'"[^" ]+ [^"]+"')
_INDEX = sa.table("chunks_fts", sa.column("rowid", sa.Integer))


class FtsEngine(LexicalEngine):
    """Keyword search over one dataset, or over several as one, in their database.

    Title and headings weigh more than text. A long query is cut to its first 64 distinct words.
    English stop words are dropped unless the query has no other words. Then it finds passages with
    all of them, or with the phrase if too many have all, or with any of them. Rarity of words is
    counted over all datasets.
    """

    name = "fts"

    def __init__(self, database: Database, dataset: DatasetNames) -> None:
        self.database, self.dataset = database, dataset

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to another dataset finds nothing."""
        telling, words = _terms(text)
        if k <= 0 or restriction.dataset != self.dataset or not words:
            return Hits()
        phrases = match_all(words), match_any([" ".join(words)]), match_any(words)
        hits = Hits()
        with self.database.read() as connection:
            for match in [match_any(telling)] if telling else phrases:
                if not hits and (telling or self._count(connection, match) < MOST_COUNTED):
                    hits = self._rank(connection, match, k, restriction)
        return hits

    def _rank(self, connection: Connection, match: str, k: int, restriction: Restriction) -> Hits:
        here = of_datasets(chunks.c.dataset, self.dataset)
        found = connection.execute(_matching(connection, match).where(here)).all()
        scores = np.array([score for _, score in found], dtype=np.float64)
        seqs = np.array([seq for seq, _ in found], dtype=np.int64)
        allowed = allowed_seqs(connection, restriction)
        return best_hits(seqs, scores, k, allowed, self._count(connection))

    def is_searchable(self, text: str) -> bool:
        return any(_terms(text))

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        terms = [[] if fold(word) in stop_words("english") else fts_words(word) for word in words]
        with self.database.read() as connection:
            counts = [self._count(connection, quote(" ".join(of))) if of else 0 for of in terms]
            return self._count(connection), counts

    def _count(self, connection: Connection, match: str = "") -> int:
        """Count all passages, or those that match, up to :data:`MOST_COUNTED`."""
        counted = select(chunks.c.seq).where(of_datasets(chunks.c.dataset, self.dataset))
        if match:
            counted = counted.where(holds_phrase(chunks.c.seq, match)).limit(MOST_COUNTED)
        return connection.scalar(select(func.count()).select_from(counted.subquery())) or 0

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        names = (name for one in (self, *others) for name in Restriction(one.dataset).datasets)
        return FtsEngine(self.database, tuple(names))


def open_engine(setup: EngineSetup) -> FtsEngine:
    """Return the engine ``fts``."""
    return FtsEngine(setup.database, setup.dataset)


def _terms(text: str) -> tuple[list[str], list[str]]:
    """Return the terms to search for, and all words for a query of stop words only.

    A compound such as ``foo.bar`` is also searched as a phrase, and joined or split.
    """
    terms: list[str] = []
    for raw in raw_words(text):
        parts = fts_words(raw)
        terms.extend([" ".join(parts), *parts] if len(parts) > 1 else parts)
    telling = [term for term in terms if fold(term) not in stop_words("english")]
    if telling:
        telling += filter(None, (" ".join(fts_words(one)) for one in other_spellings(text)))
    return telling, terms


def _matching(connection: Connection, match: str) -> Select[Any]:
    """Select row number and score of every passage that matches."""
    if is_postgres(connection):
        words: Any = sa.column("words")
        rank: Any = func.ts_rank_cd(
            _WEIGHTS, words, web_query(sa.literal(match, PlainText)), _BY_LENGTH
        )
        # else each word of a compound counts as much as any other word
        compounds = web_query(sa.literal(" OR ".join(_COMPOUND.findall(match)), PlainText))
        rank *= sa.case((words.op("@@")(compounds), 2.0), else_=1.0)
        score = func.greatest(LEAST, sa.cast(rank, sa.Float))
        return select(chunks.c.seq, score).where(holds_phrase(chunks.c.seq, match))
    index: Any = select(_INDEX.c.rowid, sa.literal_column(_SCORE, sa.Float).label("score"))
    is_match = sa.text("chunks_fts MATCH :match").bindparams(match=match)
    found = index.where(is_match).limit(-1).subquery()  # else it matches once for every chunk
    return select(chunks.c.seq, found.c.score).join(found, found.c.rowid == chunks.c.seq)


def find_signs(connection: Connection, text: str, k: int, restriction: Restriction) -> list[int]:
    """Return the first ``k`` passages that contain all signs of a query without words.

    Signs are searched literally, in at most :data:`MOST_READ` passages. A single ASCII sign is too
    common to be searched.
    """
    signs = [sign for sign in text.split() if len(sign) > 1 or not sign.isascii()]
    if not signs or restriction.scope.is_nothing:
        return []
    read = select(chunks).where(restriction.clause()).limit(MOST_READ).subquery()
    fields = (read.c.text, read.c.title, read.c.headings)
    holding = select(read.c.seq).order_by(read.c.seq).limit(k)
    for sign in signs:
        holding = holding.where(sa.or_(*(contains(field, sign) for field in fields)))
    return list(connection.scalars(holding))
