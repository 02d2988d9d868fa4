"""The engine ``fts`` for a store in Postgres: Postgres's own text search.

A text search configuration of the server cuts and stems words and drops stop words. Passages are
ranked by BM25 (:mod:`catalog.store.lexical.postgres_bm25`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
    tablesample,
    union_all,
)
from sqlalchemy.dialects.postgresql import REAL

from catalog.core.errors import ConfigError, EngineLockedError
from catalog.core.lru_cache import LRUCache
from catalog.core.settings.text_search import TsvectorSettings
from catalog.store.database import Database
from catalog.store.engine_types import Hit, Hits, Restriction, Spread
from catalog.store.filter_sql import DatasetNames
from catalog.store.fts_tokens import quote_word
from catalog.store.full_text import LEAST
from catalog.store.lexical.analysis import other_spellings
from catalog.store.lexical.base import LexicalEngine, join_names
from catalog.store.lexical.fts import FtsEngine
from catalog.store.lexical.postgres_bm25 import bm25_values, matches, score, select_best
from catalog.store.lexical.tsvector_table import TsvectorTables, WordCounts

MOST_CANDIDATES = 5_000  # passages that are ranked; if more match, only those with rare words
SAMPLE = 2_000  # passages from which the scores of unranked passages are estimated
BUILD_WAIT_SECONDS = 600.0
APPLY_WAIT_SECONDS = 5.0
_TRIES = 20  # to search before the dataset changes again
_WEIGHTS = (0.25, 0.5, 0.75, 1.0)  # of D, C, B and A


class TsvectorEngine:
    """Keyword search over one dataset, or over several as one, by Postgres's text search.

    The words are in additional tables (:class:`TsvectorTables`), which each search first brings up
    to date. The rarest words of a query that together occur in at most ``most_candidates`` passages
    are searched; passages found in that way are scored with all the words. Raises
    :class:`ConfigError` if the store is not in Postgres.
    """

    name = "fts"

    def __init__(
        self,
        database: Database,
        dataset: DatasetNames,
        settings: TsvectorSettings | None = None,
        *,
        most_candidates: int = MOST_CANDIDATES,
    ) -> None:
        if database.engine.dialect.name != "postgresql":
            raise ConfigError(
                "the keyword engine 'fts' with Postgres's text search needs a store in Postgres: "
                "set IDX_DATABASE_URL"
            )
        self.database = database
        self.dataset = dataset
        self.settings = settings or TsvectorSettings()
        self._most = most_candidates
        names = (dataset,) if isinstance(dataset, str) else dataset
        self._tables = [TsvectorTables(database, name, self.settings) for name in names]
        self._searchable: LRUCache[str, bool] = LRUCache(1000)

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to another dataset finds nothing."""
        if k <= 0 or restriction.dataset != self.dataset or restriction.scope.is_nothing:
            return Hits()
        others = (one for one in other_spellings(text) if min(map(len, one.split())) > 1)
        written = " ".join([text, *others])
        with self._read_counts() as (connection, counts):
            if self.is_searchable(text):
                return self._rank(connection, written, k, restriction, counts)
        # the full-text index has stop words
        return FtsEngine(self.database, self.dataset).search(text, k, restriction)

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word the number of passages with it."""
        with self._read_counts() as (connection, counts):
            tables = [one for one, size in zip(self._tables, counts, strict=True) if size.passages]
            holding = [
                sum(table.count_word(connection, word) for table in tables) for word in words
            ]
        return sum(size.passages for size in counts), holding

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word that is not a stop word."""
        known = self._searchable.get(text)
        if known is None:
            with self.database.read() as connection:
                known = self._tables[0].has_words(connection, text)
            self._searchable.put(text, known)
        return known

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return ``{}``: the engine has no list of its words as written."""
        del text, restriction
        return {}

    def languages(self) -> dict[str, int]:
        """Return ``{}``: all passages are treated as one language."""
        return {}

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for this dataset and the other engines', with joint statistics."""
        return TsvectorEngine(self.database, join_names([self, *others]), self.settings)

    def refresh(self) -> None:
        """Add new passages."""
        self._bring_up(BUILD_WAIT_SECONDS)

    def verify(self) -> int:
        """Return the number of passages with wrong words; clear a table that has any."""
        self.refresh()
        wrong = 0
        for table in self._tables:
            with self.database.read(latest=True) as connection:
                different = table.count_differences(connection)
            if different:
                table.clear()
            wrong += different
        return wrong

    def close(self) -> None:
        """Do nothing: the owner of the database closes it."""

    @contextmanager
    def _read_counts(self) -> Iterator[tuple[Connection, list[WordCounts]]]:
        """Bring the tables up to date; give a connection and the counts of each table."""
        for _ in range(_TRIES):
            with self.database.read(latest=True) as connection:
                counts = [table.read_counts(connection) for table in self._tables]
                current = [one for one in counts if one is not None]
                if len(current) == len(counts):
                    yield connection, current
                    return
            self._bring_up(APPLY_WAIT_SECONDS)
        raise EngineLockedError("the dataset changes faster than its words can be indexed")

    def _bring_up(self, seconds: float) -> None:
        for table in self._tables:
            table.bring_up(seconds)

    def _rank(
        self,
        connection: Connection,
        text: str,
        k: int,
        restriction: Restriction,
        counts: Sequence[WordCounts],
    ) -> Hits:
        total = WordCounts(*map(sum, zip(*counts, strict=True)))
        passages: dict[str, int] = {}
        tables = [one for one, size in zip(self._tables, counts, strict=True) if size.passages]
        for table in tables:
            for word, number in table.read_terms(connection, text).items():
                passages[word] = passages.get(word, 0) + number
        if not passages:
            return Hits()
        rare, other = split_terms(passages, self._most)
        given = bm25_values({quote_word(word): passages[word] for word in (*rare, *other)}, *total)
        given |= {"match": _any_of(rare), "k": k}
        best = select_best([one.words for one in tables], restriction, _WEIGHTS)
        rows = connection.execute(best, given).all()
        hits = [Hit(seq, max(score, LEAST)) for seq, score, *_ in rows if seq is not None]
        mean, square = (sum_ / total.passages for sum_ in rows[0][2:])
        if other:
            given = given | {"other": _any_of(other), "share": _share(total.passages)}
            size, *sums = connection.execute(_sample(tables), given).one()
            mean, square = (
                one + rest / max(1, size) for one, rest in zip((mean, square), sums, strict=True)
            )
        return Hits(hits, Spread(mean, math.sqrt(max(0.0, square - mean * mean))))


def split_terms(passages: Mapping[str, int], most: int) -> tuple[list[str], list[str]]:
    """Split words into the rarest ones and the rest.

    The rarest words have at most ``most`` passages in sum; there is at least one.
    """
    ordered = sorted(passages, key=lambda word: (passages[word], word))
    held, rare = 0, 0
    for word in ordered:
        held += passages[word]
        if rare and held > most:
            break
        rare += 1
    return ordered[:rare], ordered[rare:]


def _any_of(words: Sequence[str]) -> str:
    return " | ".join(map(quote_word, words))


def _share(passages: int) -> float:
    """Return the percentage of a table to draw for a sample of about :data:`SAMPLE` passages."""
    return min(100.0, 100.0 * SAMPLE / passages)


def _sample(tables: Sequence[TsvectorTables]) -> Select[Any]:
    """Select the size of a sample, and the sums of scores and squares of its unranked passages."""
    parts = []
    for one in tables:
        share = cast(bindparam("share"), REAL)
        drawn = tablesample(one.words, func.system(share), name="drawn", seed=literal_column("0"))
        is_left = ~matches(drawn, "match") & matches(drawn, "other")
        parts.append(select(case((is_left, score(drawn, _WEIGHTS)), else_=0.0).label("score")))
    scores = union_all(*parts).subquery()
    total = func.coalesce(func.sum(scores.c.score), 0.0)
    squares = func.coalesce(func.sum(scores.c.score * scores.c.score), 0.0)
    return select(func.count(), total, squares).select_from(scores)
