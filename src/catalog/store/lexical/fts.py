"""Keyword search in the store's own full text, with nothing to refresh: SQLite's engine ``fts``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    Float,
    Integer,
    Select,
    column,
    func,
    literal_column,
    or_,
    select,
    table,
    text,
)

from catalog.store.database import Database
from catalog.store.engine_types import Hit, Hits, Restriction, Spread
from catalog.store.filter_sql import DatasetNames
from catalog.store.lexical.analysis import fold, other_spellings, raw_words
from catalog.store.lexical.base import LexicalEngine, join_names
from catalog.store.lexical.languages import stop_words
from catalog.store.phrases import LEAST, fts_words, is_postgres, match_all, match_any, quote
from catalog.store.schema import chunks, datasets
from catalog.store.sql_forms import contains, holds_phrase

TITLE_WEIGHT = 4.0
HEADINGS_WEIGHT = 2.0
TEXT_WEIGHT = 1.0
MOST_COUNTED = 10_000  # passages with a word
MOST_READ = 100_000  # passages searched for a sign that is not a word
_MAX_ROWS = 2**31
_INDEX = table("chunks_fts", column("rowid", Integer))


class FtsEngine:
    """Keyword search over one dataset, or over several as one, in their database.

    Title and headings weigh more than text. Words are those of FTS5's tokenizer ``porter
    unicode61``; a long query is cut to its first 64 distinct words. Stop words of ``language`` are
    dropped unless the query has no other words. Then it finds passages with all of them, or with
    the phrase if too many have all, or with any of them. Rarity of words is counted over all
    datasets.
    """

    name = "fts"

    def __init__(
        self, database: Database, dataset: DatasetNames, *, language: str = "english"
    ) -> None:
        self.database = database
        self.dataset = dataset
        self._stop_words = stop_words(language)

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to another dataset finds nothing."""
        if k <= 0 or restriction.dataset != self.dataset or restriction.scope.is_nothing:
            return Hits()
        hits = Hits()
        telling, words = self._terms(text)
        with self.database.read() as connection:
            if telling:
                return self._search(connection, match_any(telling), k, restriction)
            for match in (match_all(words), match_any([" ".join(words)]), match_any(words)):
                if words and not hits and self._count(connection, match) < MOST_COUNTED:
                    hits = self._search(connection, match, k, restriction)
        return hits

    def _search(self, connection: Connection, match: str, k: int, restriction: Restriction) -> Hits:
        if is_postgres(connection):
            from catalog.store.lexical.postgres_fts import search_words

            return search_words(connection, match, min(k, _MAX_ROWS), restriction)
        alone = _is_alone(connection, self.dataset)
        rows = connection.execute(_query(match, min(k, _MAX_ROWS), restriction, alone=alone))
        hits = [Hit(seq, max(score, LEAST)) for seq, score in rows]
        return Hits(hits, _spread(connection, match, self.dataset, alone=alone))

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has any word to search for, stop words included."""
        return any(self._terms(text))

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word the number of passages with it.

        A word is counted up to :data:`MOST_COUNTED`.
        """
        here = chunks.c.dataset.in_(Restriction(self.dataset).datasets)
        with self.database.read() as connection:
            size = connection.scalar(select(func.count()).select_from(chunks).where(here)) or 0
            counts = []
            for word in words:
                terms = [] if fold(word) in self._stop_words else fts_words(word)
                match = quote(" ".join(terms))
                counts.append(self._count(connection, match) if terms else 0)
        return size, counts

    def _count(self, connection: Connection, match: str) -> int:
        """Count the passages that match, up to :data:`MOST_COUNTED`."""
        here = chunks.c.dataset.in_(Restriction(self.dataset).datasets)
        matching = select(chunks.c.seq).where(here, holds_phrase(chunks.c.seq, match))
        limited = matching.limit(MOST_COUNTED).subquery()
        return connection.scalar(select(func.count()).select_from(limited)) or 0

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return ``{}``: the engine has no list of its words."""
        del text, restriction
        return {}

    def languages(self) -> dict[str, int]:
        """Return ``{}``: all passages are treated as one language."""
        return {}

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for this dataset and those of the other engines."""
        return FtsEngine(self.database, join_names([self, *others]))

    def refresh(self) -> None:
        """Do nothing: triggers update the index in the transaction that changes the chunks."""

    def verify(self) -> int:
        """Return 0: there are no files."""
        return 0

    def close(self) -> None:
        """Do nothing: the owner of the database closes it."""

    def _terms(self, text: str) -> tuple[list[str], list[str]]:
        """Return the terms to search for, and all words for a query of stop words only.

        A compound such as ``foo.bar`` is also searched as a phrase, and joined or split.
        """
        terms: list[str] = []
        for raw in raw_words(text):
            parts = fts_words(raw)
            terms.extend([" ".join(parts), *parts] if len(parts) > 1 else parts)
        telling = [term for term in terms if fold(term) not in self._stop_words]
        if telling:
            spellings = (" ".join(fts_words(spelling)) for spelling in other_spellings(text))
            telling.extend(filter(None, spellings))
        return telling, terms


def find_signs(database: Database, text: str, k: int, restriction: Restriction) -> list[int]:
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
        holding = holding.where(or_(*(contains(field, sign) for field in fields)))
    with database.read() as connection:
        return list(connection.scalars(holding))


def _query(match: str, k: int, restriction: Restriction, *, alone: bool) -> Select[int, float]:
    """Select the best rows; ``alone`` says that only these datasets' chunks can match."""
    relevance = literal_column(
        f"-bm25(chunks_fts, {TITLE_WEIGHT}, {HEADINGS_WEIGHT}, {TEXT_WEIGHT})", Float
    ).label("score")
    query = (
        select(_INDEX.c.rowid, relevance)
        .where(text("chunks_fts MATCH :match").bindparams(match=match))
        .order_by(relevance.desc(), _INDEX.c.rowid)
        .limit(k)
    )
    if alone and restriction.is_whole_dataset:
        return query.select_from(_INDEX)
    # A join: with "rowid IN (…)" SQLite would match the text once for every allowed chunk.
    joined = _INDEX.join(chunks, chunks.c.seq == _INDEX.c.rowid)
    return query.select_from(joined).where(restriction.clause())


def _spread(connection: Connection, match: str, dataset: DatasetNames, *, alone: bool) -> Spread:
    """Return mean and deviation of the scores of all chunks, 0 for those that do not match."""
    matching = _query(match, _MAX_ROWS, Restriction(dataset), alone=alone).subquery()
    score, in_datasets = matching.c.score, chunks.c.dataset.in_(Restriction(dataset).datasets)
    size = select(func.count()).select_from(chunks).where(in_datasets).scalar_subquery()
    total, squares = func.total(score), func.total(score * score)
    row = connection.execute(select(total, squares, size)).one()
    mean, square = (value / max(1, row[2]) for value in row[:2])
    return Spread(mean, math.sqrt(max(0.0, square - mean * mean)))


def _is_alone(connection: Connection, dataset: DatasetNames) -> bool:
    names = {dataset} if isinstance(dataset, str) else set(dataset)
    return set(connection.scalars(select(datasets.c.name).limit(len(names) + 1))) == names
