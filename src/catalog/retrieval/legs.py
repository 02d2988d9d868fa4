"""The two legs of a search, by words and by meaning, each ranked in one state of the store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    DamagedDocumentError,
    EngineBlockedError,
    EngineError,
    EngineLockedError,
    QueryError,
)
from catalog.core.params import Mode
from catalog.core.query import ParsedQuery, SubQuery, SubQueryKind
from catalog.retrieval.fusion import Leg
from catalog.retrieval.parts import SearchParts
from catalog.store import Database
from catalog.store.derived import Following
from catalog.store.embedding_cache import Side, require_fingerprint
from catalog.store.engine_types import (
    FLAT,
    Hit,
    Hits,
    Restriction,
    Spread,
    allowed_seqs,
    best_first,
    join_spreads,
)
from catalog.store.lexical.analysis import UNSPACED
from catalog.store.lexical.base import LexicalEngine
from catalog.store.lexical.fts import find_signs
from catalog.store.listing import allowed_documents, list_source_ids
from catalog.store.phrases import LEAST
from catalog.store.vectors.base import nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from sqlalchemy import Connection

    Vector = npt.NDArray[np.float32]

_NEARER = 0.25  # of cosine; by bge-small, the best of twelve questions differ by .23 at most
_HAS_WORD = re.compile(r"\w").search
UNWRITTEN = "no passage contains these signs"
UNSEARCHABLE = "the query has no words, or only words that are too common to search for"


class Question(NamedTuple):
    """A query's text, with an optional vector or texts to search by meaning instead.

    The vector is ``embedding``, shape ``(dim,)``, or the mean of the vectors of ``texts``; an
    embedding of another model is ignored: see :func:`is_foreign`. ``loose`` are quoted phrases that
    do not bind.
    """

    text: str
    embedding: Sequence[float] | None = None
    texts: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LegRun:
    """The answer of one leg to one sub-query: hits, best first, or an error.

    ``spread`` is that of the scores of all chunks of the dataset. ``fallback`` explains why newer
    passages are missing, "" if none is. ``damaged`` are documents with a skipped vector.
    """

    query: SubQuery
    top_k: int
    engine: str = ""
    hits: Sequence[Hit] = ()
    spread: Spread = FLAT
    note: str = ""
    fallback: str = ""
    damaged: tuple[DamagedDocumentError, ...] = ()
    error: CatalogError | None = None
    ms: float = 0.0

    @property
    def leg(self) -> Leg:
        """The leg that ran."""
        return "lexical" if self.query.kind == "lex" else "vector"


@dataclass(frozen=True, slots=True)
class LegQuery:
    """One leg of one search: what to ask for the best ``top_k`` under a restriction.

    With a ``sub_query`` it always searches for that, otherwise for the question it gets.
    ``prepare`` does, outside of transactions, what may ask a model or a server; ``rank`` gets what
    it returned, and a connection. ``engine`` is that of a leg by words.
    """

    kind: SubQueryKind
    restriction: Restriction
    top_k: int
    sub_query: SubQuery | None
    rank: Callable[[Connection, LegQuery, SubQuery, Any], LegRun]
    prepare: Callable[[LegQuery, Question], Any] | None = None
    engine: LexicalEngine | None = None

    def sub_query_for(self, question: Question) -> SubQuery:
        """Return the sub-query to search for."""
        return self.sub_query or SubQuery(self.kind, question.text)


class Prepared(NamedTuple):
    """What a leg's ``prepare`` returned, or its error, and the milliseconds it took."""

    value: Any = None
    error: CatalogError | None = None
    ms: float = 0.0


def lexical_leg(
    database: Database,
    engine: LexicalEngine,
    restriction: Restriction,
    top_k: int,
    sub_query: SubQuery | None = None,
) -> LegQuery:
    """Return the leg by words: BM25 or full text over one dataset, or over several as one."""
    rank = partial(_rank_words, database)
    return LegQuery("lex", restriction, top_k, sub_query, rank, engine=engine)


def vector_leg(
    parts: SearchParts, restriction: Restriction, top_k: int, sub_query: SubQuery | None = None
) -> LegQuery:
    """Return the leg by meaning: nearest neighbours. Cosines are comparable between datasets.

    A sub-query of kind ``hyde``, a hypothetical answer, is embedded like a passage.
    """
    rank, prepare = partial(_rank_meaning, parts), partial(_prepare, parts)
    return LegQuery("vec", restriction, top_k, sub_query, rank, prepare)


def plan_legs(
    parts: SearchParts,
    within: Restriction,
    queries: Iterable[SubQuery],
    mode: Mode,
    *,
    k_lex: int,
    k_dense: int,
    is_own: bool = False,
) -> list[LegQuery]:
    """Return the legs of the mode for each sub-query, all under one restriction.

    Phrases of a lexical sub-query also restrict its own leg. ``is_own`` marks sub-queries that are
    the question itself: their legs use the question they get, except for corrected words.
    """
    legs: list[LegQuery] = []
    queries = list(queries)
    asked = {query.text for query in queries if query.kind == "vec"}
    for query in queries:
        if not query.is_for(mode):
            continue
        is_corrected = query.kind == "lex" and query.text not in asked
        fixed = None if is_own and not is_corrected else query
        if query.kind == "lex":
            containing = tuple(dict.fromkeys((*within.containing, *query.phrases)))
            bound = replace(within, containing=containing)
            engine = parts.lexical(within.dataset)
            legs.append(lexical_leg(parts.database, engine, bound, k_lex, fixed))
        else:
            legs.append(vector_leg(parts, within, k_dense, fixed))
    return legs


def plan_own_legs(
    make_legs: Callable[..., list[LegQuery]], query: ParsedQuery, mode: Mode
) -> list[LegQuery]:
    """Return the legs of a parsed query itself; raise :class:`QueryError` if it has none.

    ``make_legs`` is :func:`plan_legs` with all arguments but the sub-queries.
    """
    legs = make_legs(query.parts, is_own=not query.is_typed)
    if not legs:
        raise QueryError(f"the typed query has no part for mode {mode}")
    return legs


def question_about(question: Question, query: ParsedQuery, mode: Mode) -> Question:
    """Return the question with the parsed query's text and the given vector or texts."""
    text = query.about(mode)
    texts = tuple(text if one == question.text else one for one in question.texts)
    return Question(text, question.embedding, texts, query.loose)


def prepare_leg(leg: LegQuery, question: Question) -> Prepared:
    """Prepare a leg outside of transactions; record an exception."""
    if leg.prepare is None:
        return Prepared()
    started = time.perf_counter()
    try:
        return Prepared(leg.prepare(leg, question), None, (time.perf_counter() - started) * 1000)
    except CatalogError as error:
        return Prepared(None, error, (time.perf_counter() - started) * 1000)
    except Exception as error:  # noqa: BLE001 - recorded as the leg's failure
        return Prepared(None, _as_engine_error(error), (time.perf_counter() - started) * 1000)


def run_leg(database: Database, leg: LegQuery, question: Question) -> LegRun:
    """Return the leg's answer in the present state of the store; record an exception."""
    prepared = prepare_leg(leg, question)
    with database.snapshot(), database.read() as connection:
        return rank_leg(connection, leg, question, prepared)


def rank_leg(
    connection: Connection, leg: LegQuery, question: Question, prepared: Prepared
) -> LegRun:
    """Return the leg's answer in the state that the connection sees; record an exception.

    Only a :class:`ConfigError` for settings that make the index impossible is raised.
    """
    started, sub_query = time.perf_counter(), leg.sub_query_for(question)
    if prepared.error is not None:
        return LegRun(sub_query, leg.top_k, error=prepared.error, ms=prepared.ms)
    try:
        run = leg.rank(connection, leg, sub_query, prepared.value)
    except ConfigError:
        raise
    except CatalogError as error:
        run = LegRun(sub_query, leg.top_k, error=error)
    except Exception as error:  # noqa: BLE001 - recorded as the leg's failure
        run = LegRun(sub_query, leg.top_k, error=_as_engine_error(error))
    return replace(run, ms=prepared.ms + (time.perf_counter() - started) * 1000)


def _as_engine_error(error: Exception) -> EngineError:
    failure = EngineError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _rank_words(
    database: Database, connection: Connection, leg: LegQuery, sub_query: SubQuery, _: None
) -> LegRun:
    top_k, within, engine = leg.top_k, leg.restriction, leg.engine
    assert engine is not None
    is_original, has_word = sub_query.origin == "original", _HAS_WORD(sub_query.text)
    hits = engine.search(sub_query.text, top_k, within)
    if not hits and is_original and any(map(UNSPACED.search, within.containing)):
        # not every engine cuts words in scripts without spaces
        seqs = allowed_seqs(connection, within)
        hits = Hits(Hit(seq, LEAST) for seq in (() if seqs is None else seqs[:top_k].tolist()))
    if not hits and is_original and not has_word:
        hits = Hits(Hit(seq, LEAST) for seq in find_signs(database, sub_query.text, top_k, within))
    missing = UNSEARCHABLE if has_word else UNWRITTEN
    note = missing if not hits and not engine.is_searchable(sub_query.text) else ""
    return LegRun(sub_query, top_k, engine.name, hits, hits.spread, note)


class _Asked(NamedTuple):
    """A vector to search by, where it comes from, and the hits of an engine on a server."""

    vector: Vector
    note: str
    hits: dict[str, Hits]


def _prepare(parts: SearchParts, leg: LegQuery, question: Question) -> list[_Asked]:
    """Return the vector of the leg's text, if it has words, then the one that the query brings."""
    import numpy as np

    embed, given = parts.query_vectors.embed, question.embedding
    sub_query, vectors = leg.sub_query_for(question), list[tuple[Any, str]]()
    if leg.sub_query is not None:
        given = None
    if given is not None:
        brought = np.asarray(given, dtype=np.float32)
        is_ours = len(brought) == parts.library.wanted_model.dim and np.isfinite(brought).all()
        if is_ours and brought.any():
            vectors.append((brought, "the query's own embedding"))
        else:
            parts.tell_foreign_embedding()
    try:
        if leg.sub_query is None and question.texts:
            # as HyDE gives: passages that might answer, and often the query itself
            texts, own = question.texts, question.text
            each = [embed(text, "query" if text == own else "document")[0] for text in texts]
            mean = np.mean([one / np.linalg.norm(one) for one in each], axis=0)
            mean = np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)
            vectors.insert(0, (mean, f"{len(texts)} texts"))
        elif _HAS_WORD(sub_query.text):
            side: Side = "document" if sub_query.kind == "hyde" else "query"
            vector, is_cached = embed(sub_query.text, side)
            vectors.insert(0, (vector, "query embedding cached" if is_cached else ""))
    except ConfigError:
        if not vectors:
            raise
    asked = [_Asked(*one, {}) for one in vectors]
    if parts.asks_server:  # a server must not be asked in a transaction
        for vector, _, hits in asked:
            for name in leg.restriction.datasets:
                within, engine = leg.restriction.of(name), parts.vector(name)
                hits[name] = nearest(engine, parts.database, vector, leg.top_k, within)
    return asked


def _rank_meaning(
    parts: SearchParts,
    connection: Connection,
    leg: LegQuery,
    sub_query: SubQuery,
    asked: Sequence[_Asked],
) -> LegRun:
    if not asked:
        return LegRun(sub_query, leg.top_k, "not asked", note="no word to embed")
    run, *brought = [_rank_nearest(parts, connection, leg, sub_query, one) for one in asked]
    for one in brought:
        if not is_foreign([hit.score for hit in one.hits], [hit.score for hit in run.hits]):
            return one
        parts.tell_foreign_embedding()
    return run


def is_foreign(given: Iterable[float], own: Iterable[float]) -> bool:
    """Return whether the vector that a query brings is another model's, by the scores it finds.

    ``own`` are the cosines that the query's text finds. Those of a vector of another model are
    about 0, because the two spaces have nothing in common. LlamaIndex's ``VectorIndexRetriever``
    writes its vector into the query, where the next retriever finds it.
    """
    return max(given, default=0.0) < max(own, default=0.0) - _NEARER


def _rank_nearest(
    parts: SearchParts, connection: Connection, leg: LegQuery, sub_query: SubQuery, asked: _Asked
) -> LegRun:
    """Return the passages nearest to one vector; ``flat`` replaces an index that is blocked."""
    found, names, damaged = [], [], set[str]()
    fallbacks, is_elsewhere = list[str](), False
    for name in leg.restriction.datasets:
        engine, hits = parts.vector(name), asked.hits.get(name)
        vectors = engine.at(connection)
        allowed = allowed_seqs(connection, leg.restriction.of(name))
        if hits is None:
            try:
                hits = vectors.rank(asked.vector, leg.top_k, allowed)
            except EngineBlockedError as error:
                engine = parts.library.indexes.vector(name, "flat")
                vectors = engine.at(connection)
                hits = vectors.rank(asked.vector, leg.top_k, allowed)
                is_held = isinstance(error, EngineLockedError)
                reason = "the index is open elsewhere" if is_held else str(error)
                fallbacks.append(f"{reason}, so vectors were compared one by one")
            is_elsewhere |= not isinstance(engine, Following)
        elif allowed is not None:  # what was allowed when the server was asked may not be now
            here = set(allowed.tolist())
            still = (hit for hit in hits if hit.seq in here)
            hits = Hits(still, hits.spread, hits.fallback, hits.size)
        names.append(engine.name)
        fallbacks.append(hits.fallback)
        damaged |= vectors.damaged
        sample = parts.library.indexes.sample(name)
        of_all = (hits.size, hits.spread) if hits.size else sample.spread(asked.vector)
        found.append((hits, of_all))
    if is_elsewhere:  # an index outside of the store may have followed another model
        with parts.database.read(latest=True) as latest:
            require_fingerprint(latest, parts.library.wanted_model.fingerprint)
    hits = Hits(best_first((hit for hits, _ in found for hit in hits), leg.top_k))
    spread = join_spreads(of_all for _, of_all in found)
    lost = tuple(DamagedDocumentError(one, "a vector") for one in _seen(connection, leg, damaged))
    engine_names = ", ".join(dict.fromkeys(names))
    fallback = "; ".join(dict.fromkeys(filter(None, fallbacks)))
    note = "; ".join(filter(None, (fallback, asked.note)))
    return LegRun(sub_query, leg.top_k, engine_names, hits, spread, note, fallback, lost)


def _seen(connection: Connection, leg: LegQuery, documents: set[str]) -> list[str]:
    """Return the documents that the restriction allows the caller to see."""
    if not documents:
        return []
    allowed = allowed_documents(replace(leg.restriction, containing=()))
    return sorted(documents & list_source_ids(connection, allowed))
