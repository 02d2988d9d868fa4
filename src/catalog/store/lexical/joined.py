"""BM25 over several datasets as though they were one, from the index that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from catalog.store.engine_types import Hits, Restriction
from catalog.store.lexical.analysis import raw_words
from catalog.store.lexical.base import JoinedEngines
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.lexical.fts import FtsEngine
from catalog.store.lexical.postings import Mask
from catalog.store.lexical.snapshot import LexicalSnapshot
from catalog.store.lexical.spelling import correct_words


class JoinedBm25Engine(JoinedEngines[Bm25Engine]):
    """Keyword search over the datasets of ``engines``, which are of one store and set alike.

    How rare a word is and how long a chunk is on average are counted over all of them, so that
    they rank as one dataset with the same chunks would. Nothing is stored; the engines stay their
    owner's to close. Safe to share between threads.
    """

    name = "bm25"

    def __init__(self, engines: Sequence[Bm25Engine]) -> None:
        super().__init__(engines)
        self._joined: tuple[tuple[LexicalSnapshot, ...], LexicalSnapshot] | None = None

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; one to other datasets finds nothing."""
        first = self._engines[0]
        if k <= 0 or restriction.dataset != self._datasets:
            return Hits()
        snapshot, masks = self._read_state(restriction)
        terms = first.analyzer.query_terms(text, snapshot.languages)
        if len(terms) == 0:  # the full-text index has stop words
            return FtsEngine(first.database, self._datasets).search(text, k, restriction)
        return snapshot.rank(terms, k, masks)

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word how many of them contain it."""
        snapshot, _ = self._read_state(Restriction(self._datasets))
        return snapshot.count_rows(words, self._engines[0].analyzer)

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return the words that may be misspelt, each with the word that it may mean."""
        first = self._engines[0]
        snapshot, masks = self._read_state(restriction)
        with first.database.read() as connection:
            return correct_words(connection, raw_words(text), snapshot, masks, first.analyzer)

    def is_searchable(self, text: str) -> bool:
        """Tell whether the text has a word to look for."""
        analyzer = self._engines[0].analyzer
        return len(analyzer.query_terms(text, self.languages())) > 0

    def close(self) -> None:
        """Release memory; the engines stay open."""
        self._joined = None

    def _read_state(self, restriction: Restriction) -> tuple[LexicalSnapshot, list[Mask]]:
        with self._engines[0].database.read() as connection:
            states = [
                engine.read_state(connection, restriction.of(engine.dataset))
                for engine in self._engines
            ]
        there = [state for state in states if state is not None]
        snapshot = self._join(tuple(snapshot for snapshot, _ in there))
        return snapshot, list(chain.from_iterable(masks for _, masks in there))

    def _join(self, snapshots: tuple[LexicalSnapshot, ...]) -> LexicalSnapshot:
        """Return the snapshots as one; the last one made is kept while none of them changes."""
        joined = self._joined
        if joined is None or joined[0] != snapshots:
            parts = tuple(part for snapshot in snapshots for part in snapshot.parts)
            first = self._engines[0]
            joined = snapshots, LexicalSnapshot(None, parts, first.k1, first.b)
            self._joined = joined
        return joined[1]
