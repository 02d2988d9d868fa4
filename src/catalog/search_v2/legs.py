"""The two legs of a hybrid search, as LlamaIndex retrievers anyone can take out and use."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    DamagedDocumentError,
    EngineBlockedError,
    EngineError,
    EngineLockedError,
    QueryError,
)
from catalog.core.query import SubQuery, SubQueryKind
from catalog.search_v2.fusion import NO_WORDS, FoundWords, Leg
from catalog.search_v2.passages import PassageNode
from catalog.search_v2.query_words import find_words
from catalog.search_v2.search_parts import SearchParts
from catalog.store import Database
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import Side
from catalog.store.engine_types import (
    FLAT,
    Hit,
    Hits,
    Restriction,
    Spread,
    allowed_seqs,
    best_first,
)
from catalog.store.full_text import LEAST
from catalog.store.lexical.analysis import UNSPACED
from catalog.store.lexical.base import LexicalEngine
from catalog.store.lexical.fts import FtsEngine, find_signs
from catalog.store.listing import allowed_documents, list_source_ids

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

_log = logging.getLogger(__name__)

_HAS_WORD = re.compile(r"\w").search
UNWRITTEN = "no passage contains these signs"
UNSEARCHABLE = "the query has no words, or only such as are too common to look for"


@dataclass(frozen=True, slots=True)
class LegRun:
    """How one leg answered one sub-query: its hits, best first, or the error that it ended with.

    ``spread`` is of the scores of all chunks of the dataset. ``words`` says which of the query's
    words the keyword hits contain, where that was asked.
    ``fallback`` says why another engine than the one set answered, "" if it did not; ``damaged``
    which documents it left out a vector of.
    """

    query: SubQuery
    top_k: int
    engine: str = ""
    hits: Sequence[Hit] = ()
    spread: Spread = FLAT
    note: str = ""
    fallback: str = ""
    damaged: tuple[DamagedDocumentError, ...] = ()
    words: FoundWords = NO_WORDS
    error: CatalogError | None = None
    ms: float = 0.0

    @property
    def leg(self) -> Leg:
        """The leg that ran."""
        return "lexical" if self.query.kind == "lex" else "vector"


class _UnembeddedError(Exception):
    """A query has no vector for want of a key, credit or model: words may answer meanwhile."""

    def __init__(self, reason: ConfigError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class LegRetriever(BaseRetriever):
    """Retrieve the hits of one leg, within a restriction.

    With a ``sub_query`` it always looks for that; without, for the query it is given. By meaning
    that is the embedding the query brings, else its ``custom_embedding_strs``, else its text.
    """

    kind: SubQueryKind

    def __init__(
        self,
        database: Database,
        restriction: Restriction,
        top_k: int,
        sub_query: SubQuery | None = None,
    ) -> None:
        self._database = database
        self.restriction, self.top_k, self.sub_query = restriction, top_k, sub_query
        super().__init__()

    def run(self, query: QueryBundle) -> LegRun:
        """Return how the leg answers; an exception is recorded, not raised.

        Raise :class:`ConfigError` for an index that the settings make impossible.
        """
        started = time.perf_counter()
        try:
            run = self._search(query)
        except ConfigError:
            raise
        except _UnembeddedError as error:
            run = LegRun(self._sub_query(query), self.top_k, error=error.reason)
        except CatalogError as error:
            run = LegRun(self._sub_query(query), self.top_k, error=error)
        except Exception as error:  # noqa: BLE001 - recorded as the leg's failure
            failure = EngineError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            run = LegRun(self._sub_query(query), self.top_k, error=failure)
        return replace(run, ms=(time.perf_counter() - started) * 1000)

    def _search(self, query: QueryBundle) -> LegRun:
        # not abstract: LlamaIndex would time each call anew, which the leg's stage tells already
        raise NotImplementedError

    def _sub_query(self, query: QueryBundle) -> SubQuery:
        return self.sub_query or SubQuery(self.kind, query.query_str)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            hits = self._search(query_bundle).hits
        except _UnembeddedError as unembedded:
            raise unembedded.reason from unembedded
        seqs, damaged = [hit.seq for hit in hits], list[DamagedDocumentError]()
        with self._database.read() as connection:
            chunks = load_chunks(connection, self.restriction.dataset, seqs, damaged=damaged)
        for error in damaged:
            _log.warning("left out: %s", error)
        return [
            NodeWithScore(node=PassageNode.of(chunks[hit.seq]), score=hit.score)
            for hit in hits
            if hit.seq in chunks
        ]


class LexicalRetriever(LegRetriever):
    """BM25 or full-text search over one dataset, or over several as one.

    Its run also says which words of the user's own query the hits contain.
    """

    kind = "lex"

    def __init__(
        self,
        database: Database,
        engine: LexicalEngine,
        restriction: Restriction,
        top_k: int,
        sub_query: SubQuery | None = None,
    ) -> None:
        super().__init__(database, restriction, top_k, sub_query)
        self._engine = engine

    def _search(self, query: QueryBundle) -> LegRun:
        sub_query = self._sub_query(query)
        hits = self._engine.search(sub_query.text, self.top_k, self.restriction)
        if len(hits) == 0 and sub_query.origin == "original" and self._is_unspaced():
            hits = self._holding(hits.fallback)
        if len(hits) == 0 and sub_query.origin == "original" and not _HAS_WORD(sub_query.text):
            found = find_signs(self._database, sub_query.text, self.top_k, self.restriction)
            hits = Hits((Hit(seq, LEAST) for seq in found), fallback=hits.fallback)
        is_blank = len(hits) == 0 and not self._engine.is_searchable(sub_query.text)
        missing = UNSEARCHABLE if _HAS_WORD(sub_query.text) else UNWRITTEN
        note = missing if is_blank else hits.fallback
        name = FtsEngine.name if hits.fallback else self._engine.name
        run = LegRun(sub_query, self.top_k, name, hits, hits.spread, note, hits.fallback)
        if sub_query.origin != "original" or len(hits) == 0:
            return run
        words = find_words(self._database, self._engine, self.restriction, sub_query.text, hits)
        return replace(run, words=words)

    def _is_unspaced(self) -> bool:
        """Tell whether a phrase is required whose script has no spaces between its words."""
        return any(map(UNSPACED.search, self.restriction.containing))

    def _holding(self, fallback: str) -> Hits:
        """Return passages that hold the quoted phrases, unranked, as stored.

        Not every engine cuts the words of a script without spaces between them.
        """
        with self._database.read() as connection:
            seqs = allowed_seqs(connection, self.restriction)
        first = () if seqs is None else seqs[: self.top_k].tolist()
        return Hits((Hit(seq, LEAST) for seq in first), fallback=fallback)


class _Nearest(NamedTuple):
    engine: str
    hits: list[Hit]
    fallback: str
    defect: str
    damaged: frozenset[str]


class VectorRetriever(LegRetriever):
    """Nearest neighbours over one dataset, or over several: a cosine is the same in each.

    When another process holds the index, or it cannot be used for want of room or rights,
    ``exact`` searches the stored vectors instead: the same answer, slower, and the note says so.
    Where the store adopted a model that was tried, the search goes on with that.
    A sub-query of the kind ``hyde``, a hypothetical answer, is embedded as a passage.
    """

    kind = "vec"

    def __init__(
        self,
        parts: SearchParts,
        restriction: Restriction,
        top_k: int,
        sub_query: SubQuery | None = None,
    ) -> None:
        super().__init__(parts.database, restriction, top_k, sub_query)
        self._parts = parts

    def _search(self, query: QueryBundle) -> LegRun:
        """Search by the store's model, once more if another process had it replaced meanwhile."""
        library = self._parts.library
        while True:
            model = library.model
            try:
                run = self._search_once(query)
            except Exception:  # vectors of two lengths fail wherever they meet
                if not library.follow_adoption() and library.model is model:
                    raise
            else:
                if library.model is model:
                    return run

    def _search_once(self, query: QueryBundle) -> LegRun:
        sub_query = self._sub_query(query)
        if not (_HAS_WORD(sub_query.text) or query.embedding or query.custom_embedding_strs):
            return LegRun(sub_query, self.top_k, "not asked", note="no word to embed")
        try:
            vector, note = self._embed(sub_query, query)
        except ConfigError as error:
            raise _UnembeddedError(error) from error
        runs = [self._nearest(vector, name) for name in self.restriction.datasets]
        hits = best_first((hit for run in runs for hit in run.hits), self.top_k)
        fallback = _each_once(run.fallback for run in runs)
        note = "; ".join(filter(None, (_each_once(run.defect for run in runs), fallback, note)))
        damaged = self._damaged(frozenset(name for run in runs for name in run.damaged))
        engine = ", ".join(dict.fromkeys(run.engine for run in runs))
        from catalog.store.vectors.sample import spread_over

        indexes = self._parts.library.indexes
        samples = map(indexes.sample, self.restriction.datasets)
        with self._database.snapshot():
            spread = spread_over(samples, vector)
            indexes.require_model()  # else they may be scores of two models
        return LegRun(sub_query, self.top_k, engine, hits, spread, note, fallback, damaged)

    def _nearest(self, vector: Vector, dataset: str) -> _Nearest:
        """Return what the index of one of the datasets answers, exactly where it is blocked."""
        within, fallback = self.restriction.of(dataset), ""
        engine = self._parts.vector(dataset)
        try:
            hits = engine.search(vector, self.top_k, within)
        except EngineBlockedError as error:
            engine = self._parts.library.indexes.exact(dataset)
            hits = engine.search(vector, self.top_k, within)
            is_held = isinstance(error, EngineLockedError)
            reason = "the index is held by another process" if is_held else str(error)
            fallback = f"{reason}, searched exactly instead"
        defect = "the index was damaged and was made anew" if engine.pop_defect() else ""
        return _Nearest(engine.name, hits, fallback, defect, engine.damaged)

    def _embed(self, sub_query: SubQuery, query: QueryBundle) -> tuple[Vector, str]:
        """Return the vector to search by, shape ``(dim,)``, and a note of where it comes from."""
        import numpy as np

        embed = self._parts.query_vectors.embed
        if self.sub_query is None and query.embedding is not None:
            check_embedding(query, self._parts)
            return np.asarray(query.embedding, dtype=np.float32), "the query's own embedding"
        texts = query.custom_embedding_strs if self.sub_query is None else None
        if texts:  # as HyDE gives: passages that might answer, and often the query itself
            sides: list[Side] = ["query" if t == query.query_str else "document" for t in texts]
            vectors = [embed(text, side)[0] for text, side in zip(texts, sides, strict=True)]
            mean = np.mean([vector / np.linalg.norm(vector) for vector in vectors], axis=0)
            return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32), f"{len(texts)} texts"
        vector, is_cached = embed(
            sub_query.text, "document" if sub_query.kind == "hyde" else "query"
        )
        return vector, "query embedding cached" if is_cached else ""

    def _damaged(self, documents: frozenset[str]) -> tuple[DamagedDocumentError, ...]:
        """Return an error for each of the documents that the restriction lets be seen."""
        if not documents:
            return ()
        allowed = allowed_documents(replace(self.restriction, containing=()))
        with self._database.read() as connection:
            visible = documents & list_source_ids(connection, allowed)
        return tuple(DamagedDocumentError(document, "a vector") for document in sorted(visible))


def _each_once(notes: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, notes)))


def check_embedding(query: QueryBundle, parts: SearchParts) -> None:
    """Raise :class:`QueryError` for an embedding that is not of the store's model's length."""
    if query.embedding is None:
        return
    wanted = parts.library.wanted_model
    if len(query.embedding) != wanted.dim:
        raise QueryError(
            f"the query's embedding has {len(query.embedding)} numbers, those of {wanted.model} "
            f"have {wanted.dim}: embed it with that model, or leave it out"
        )
