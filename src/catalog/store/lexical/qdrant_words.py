"""The keyword engine on a Qdrant server, so that one server can serve both legs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError, EngineError, EngineLockedError, EngineUnreachableError
from catalog.core.settings import QdrantSettings
from catalog.store.database import Database
from catalog.store.engine_setup import EngineSetup
from catalog.store.engine_types import (
    Hits,
    Restriction,
    Spread,
    allowed_seqs,
    best_first,
    read_stamp,
)
from catalog.store.full_text import LEAST
from catalog.store.lexical.analysis import TextAnalyzer
from catalog.store.lexical.base import JoinedEngines, LexicalEngine
from catalog.store.lexical.fts import FtsEngine
from catalog.store.lexical.postings import Int64
from catalog.store.lexical.word_collection import WordCollection, WordPoints, WordsState
from catalog.store.vectors.point_search import MOST_TIES
from catalog.store.vectors.qdrant_server import (
    APPLY_WAIT_SECONDS,
    BUILD_WAIT_SECONDS,
    CollectionTurns,
    QdrantServer,
    collection_name,
    open_client,
    was_answered,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

WORDS_ENDING = "~words"  # of a collection's name; names of datasets have no tilde
MOST_NAMED = 5_000  # allowed passages sent by id; for more, hits are filtered after the search
_SPARE = 24  # additional hits, for ties and for passages that are gone
_INSTEAD = ", searched the store's full text instead"
_DIGITS = 6  # of a float32 score that do not depend on the order of additions


class QdrantWordsEngine:
    """Keyword search over one dataset by sparse vectors behind ``client``.

    Its collection is ``{collection_prefix}{dataset}~words``. Words and weights are those of
    ``bm25``, except that the average length changes in steps. Each search first adds missing
    passages to the collection and removes superfluous ones; processes take turns, as for vectors.
    While the server is away or another process is writing, the store's own full text answers. A
    collection that is not ours, or that belongs to another store, raises :class:`EngineError`. The
    caller closes the client unless ``owns_client``.
    """

    name = "qdrant"

    def __init__(
        self,
        database: Database,
        dataset: str,
        client: QdrantClient,
        collection_prefix: str,
        *,
        options: QdrantSettings | None = None,
        analyzer: TextAnalyzer | None = None,
        owns_client: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database, self.dataset = database, dataset
        self.analyzer = analyzer or TextAnalyzer()
        self.collection = collection_name(collection_prefix, dataset) + WORDS_ENDING
        options = options or QdrantSettings()
        self._server = QdrantServer(
            client, seconds=options.timeout_seconds, sleep=sleep, clock=clock
        )
        points = WordPoints(self._server, self.collection, options)
        self._words = WordCollection(database, dataset, self._server, points, self.analyzer)
        self._turns = CollectionTurns(database, self.collection)
        self._owns_client = owns_client
        self._state: WordsState | None = None

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to another dataset finds nothing."""
        if k <= 0 or restriction.dataset != self.dataset or restriction.scope.is_nothing:
            return Hits()
        try:
            return self._search(text, k, restriction)
        except (EngineUnreachableError, EngineLockedError) as error:
            return search_store(self.database, text, k, restriction, str(error))

    def _search(self, text: str, k: int, restriction: Restriction) -> Hits:
        state = self._current()
        terms = self.analyzer.query_terms(text, state.languages)
        if len(terms) == 0:  # the full-text index has stop words
            return FtsEngine(self.database, self.dataset).search(text, k, restriction)
        if state.size == 0:
            return Hits()
        tokens = Counter(token for term in terms for token in term if " " not in token)
        try:
            return self._rank(state, tokens, k, self._allowed(restriction))
        except EngineError as error:
            if not was_answered(error, 404):
                raise
            self._state = None  # removed during the search: another process rebuilds it
            raise EngineUnreachableError(str(error)) from error

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word that is not a stop word."""
        return len(self.analyzer.query_terms(text, self.languages())) > 0

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the counts from the store's own full text: the server does not count words."""
        return FtsEngine(self.database, self.dataset).document_counts(words)

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return ``{}``: the server has no list of words."""
        del text, restriction
        return {}

    def languages(self) -> dict[str, int]:
        """Return the number of passages by language at the last search."""
        return {} if self._state is None else self._state.languages

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for this dataset and those of the other engines."""
        return JoinedQdrantWords([self, *others], self.database)

    def refresh(self) -> None:
        """Add new passages; compare all of them if the server has another number of points."""
        with self._turns.take(BUILD_WAIT_SECONDS):
            self._state = self._words.adopt(is_counted=True) or self._words.bring_up()

    def verify(self) -> int:
        """Return the number of passages with wrong points; drop a collection that has any."""
        with self._turns.take(BUILD_WAIT_SECONDS):
            self._state = None
            return self._words.verify()

    def close(self) -> None:
        """Forget the collection, and close the client if the engine owns it."""
        self._state = None
        if self._owns_client:
            self._server.client.close()

    def _allowed(self, restriction: Restriction) -> Int64 | None:
        with self.database.read(latest=True) as connection:
            return allowed_seqs(connection, restriction)

    def _rank(self, state: WordsState, tokens: Counter[str], k: int, allowed: Int64 | None) -> Hits:
        """Return the best passages that are allowed, and the spread of all scores."""
        if allowed is not None and len(allowed) == 0:
            k = 0
        named = None if allowed is None or len(allowed) > MOST_NAMED else allowed.tolist()
        # the restriction may be of a later state, with more passages than the points
        all_there = max(state.size, len(named or ()))
        limit = max(1, min(all_there, k + _SPARE))
        while True:
            asked = [(limit, None), (len(state.sample), state.sample)]
            if named:
                asked.append((min(limit, len(named)), named))
            best, sampled, *within = (
                [(seq, _rounded(score)) for seq, score in answer]
                for answer in self._words.points.search(tokens, asked)
            )
            found, most, there = best, limit, all_there
            if named:
                found, most, there = within[0], asked[-1][0], len(named)
            is_all = len(found) < most or most == there
            if allowed is not None:  # also hits that were asked for by id
                found = [(seq, score) for seq, score in found if _holds(allowed, seq)]
            hits = best_first(found, k)
            is_told = len(hits) == k and (
                k == 0 or found[-1][1] < hits[-1].score or limit >= MOST_TIES
            )
            if is_all or is_told:
                return Hits(hits, _spread(best, sampled, state, is_all=len(best) < limit))
            limit = min(all_there, limit * 4)

    def _current(self) -> WordsState:
        """Return the state of the points after they are brought up to date."""
        state = self._state
        with self.database.read(latest=True) as connection:
            stamp = read_stamp(connection, self.dataset)
        if state is not None and state.stamp == stamp:
            return state
        with self._turns.enter(APPLY_WAIT_SECONDS), self._server.hurry():
            state = self._words.adopt(is_counted=False)
            if state is None:
                with self._turns.take(APPLY_WAIT_SECONDS):
                    state = self._words.adopt(is_counted=False) or self._words.bring_up()
            self._state = state
        return state


def search_store(
    database: Database, text: str, k: int, restriction: Restriction, reason: str
) -> Hits:
    """Search the store's own full text, because the server cannot be used for this ``reason``."""
    hits = FtsEngine(database, restriction.dataset).search(text, k, restriction)
    why = reason.removesuffix(_INSTEAD)
    return Hits(hits, hits.spread, f"{why}{_INSTEAD}")


def _rounded(score: float) -> float:
    return max(LEAST, float(f"{score:.{_DIGITS}g}"))


def _holds(ascending: Int64, seq: int) -> bool:
    at = int(ascending.searchsorted(seq))
    return at < len(ascending) and int(ascending[at]) == seq


def _spread(
    best: Sequence[tuple[int, float]],
    sampled: Sequence[tuple[int, float]],
    state: WordsState,
    *,
    is_all: bool,
) -> Spread:
    """Return mean and deviation of the scores of all passages, 0 for those without the words.

    The scores of ``best`` are known. With ``is_all``, no other passage has one of the words.
    Otherwise the remaining scores are estimated from the passages of the sample that are not in
    ``best``.
    """
    total = math.fsum(score for _, score in best)
    squares = math.fsum(score * score for _, score in best)
    if not is_all:
        known = {seq for seq, _ in best}
        others = [score for seq, score in sampled if seq not in known]
        size = sum(seq not in known for seq in state.sample)
        each = (state.size - len(best)) / max(1, size)
        total += each * math.fsum(others)
        squares += each * math.fsum(score * score for score in others)
    mean = total / state.size
    return Spread(mean, math.sqrt(max(0.0, squares / state.size - mean * mean)))


class JoinedQdrantWords(JoinedEngines):
    """Keyword search over the datasets of ``engines``.

    If the server of one is away, the store's full text answers for all of them. Words are counted
    in the store, over all datasets together.
    """

    def __init__(self, engines: Sequence[LexicalEngine], database: Database) -> None:
        super().__init__(engines)
        self._database = database

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to other datasets finds nothing."""
        hits = super().search(text, k, restriction)
        if hits.fallback:
            return search_store(self._database, text, k, restriction, hits.fallback)
        return hits

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the counts of the store's own full text over all datasets."""
        return FtsEngine(self._database, self.dataset).document_counts(words)


def open_engine(setup: EngineSetup) -> QdrantWordsEngine:
    """Return the engine ``qdrant``; raise :class:`ConfigError` if no server is set."""
    url, key, options = setup.rag.qdrant_url, setup.rag.qdrant_api_key, setup.rag.qdrant
    if url is None:
        raise ConfigError(
            "the keyword engine 'qdrant' needs a Qdrant server: set IDX_RAG_V2__QDRANT_URL, or "
            "choose another engine"
        )
    client = open_client(url, key, options.timeout_seconds)
    of_dataset = (setup.database, setup.dataset, client, options.collection_prefix)
    return QdrantWordsEngine(*of_dataset, options=options, owns_client=True)
