"""The two legs of a hybrid search: by words and by meaning."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

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
from catalog.retrieval.fusion import NO_WORDS, FoundWords, Leg
from catalog.retrieval.query_words import find_words
from catalog.retrieval.search_parts import SearchParts
from catalog.store import Database
from catalog.store.embedding_cache import Side
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
from catalog.store.lexical.fts import FtsEngine, find_signs
from catalog.store.listing import allowed_documents, list_source_ids
from catalog.store.phrases import LEAST
from catalog.store.vectors.base import nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

_NEARER = 0.25  # of cosine; by bge-small, the best of twelve questions differ by .23 at most
_HAS_WORD = re.compile(r"\w").search
UNWRITTEN = "no passage contains these signs"
UNSEARCHABLE = "the query has no words, or only words that are too common to search for"


class Question(NamedTuple):
    """A query's text, with an optional vector or texts to search by meaning instead.

    The vector is ``embedding``, shape ``(dim,)``, or the mean of the vectors of ``texts``. An
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

    ``spread`` is that of the scores of all chunks of the dataset. ``words`` are the query's words
    that the keyword hits contain, if requested. ``fallback`` explains why another engine answered,
    "" if none did. ``damaged`` are documents with a skipped vector.
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


@dataclass(frozen=True, slots=True)
class LegQuery:
    """One leg of one search: the engine to ask for the best ``top_k`` under a restriction.

    With a ``sub_query`` it always searches for that, otherwise for the question it gets.
    """

    kind: SubQueryKind
    restriction: Restriction
    top_k: int
    sub_query: SubQuery | None
    ask: Callable[[LegQuery, Question], LegRun]

    def sub_query_for(self, question: Question) -> SubQuery:
        """Return the sub-query to search for."""
        return self.sub_query or SubQuery(self.kind, question.text)


class UnembeddedError(Exception):
    """A query has no vector, because a key, credit or the model is missing.

    The lexical leg may still answer.
    """

    def __init__(self, reason: ConfigError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def lexical_leg(
    database: Database,
    engine: LexicalEngine,
    restriction: Restriction,
    top_k: int,
    sub_query: SubQuery | None = None,
) -> LegQuery:
    """Return the leg by words: BM25 or full text over one dataset, or over several as one."""
    ask = partial(_search_words, database, engine)
    return LegQuery("lex", restriction, top_k, sub_query, ask)


def vector_leg(
    parts: SearchParts, restriction: Restriction, top_k: int, sub_query: SubQuery | None = None
) -> LegQuery:
    """Return the leg by meaning: nearest neighbours. Cosines are comparable between datasets.

    If another process holds the index, or space or permission is missing, the stored vectors are
    compared instead: the answer is the same, it takes longer, and a note says so. A
    sub-query of kind ``hyde``, a hypothetical answer, is embedded like a passage.
    """
    return LegQuery("vec", restriction, top_k, sub_query, partial(_search_meaning, parts))


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


def run_leg(leg: LegQuery, question: Question) -> LegRun:
    """Return the leg's answer; an exception is recorded and not raised.

    Only a :class:`ConfigError` for settings that make the index impossible is raised.
    """
    started = time.perf_counter()
    try:
        run = leg.ask(leg, question)
    except ConfigError:
        raise
    except UnembeddedError as error:
        run = LegRun(leg.sub_query_for(question), leg.top_k, error=error.reason)
    except CatalogError as error:
        run = LegRun(leg.sub_query_for(question), leg.top_k, error=error)
    except Exception as error:  # noqa: BLE001 - recorded as the leg's failure
        failure = EngineError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        run = LegRun(leg.sub_query_for(question), leg.top_k, error=failure)
    return replace(run, ms=(time.perf_counter() - started) * 1000)


def _search_words(
    database: Database, engine: LexicalEngine, leg: LegQuery, question: Question
) -> LegRun:
    """Search by words; also find which words of the user's own query the hits contain."""
    sub_query, top_k, within = leg.sub_query_for(question), leg.top_k, leg.restriction
    is_original = sub_query.origin == "original"
    hits = engine.search(sub_query.text, top_k, within)
    if len(hits) == 0 and is_original and any(map(UNSPACED.search, within.containing)):
        hits = _holding(database, leg, hits.fallback)
    if len(hits) == 0 and is_original and not _HAS_WORD(sub_query.text):
        found = find_signs(database, sub_query.text, top_k, within)
        hits = Hits((Hit(seq, LEAST) for seq in found), fallback=hits.fallback)
    is_blank = len(hits) == 0 and not engine.is_searchable(sub_query.text)
    missing = UNSEARCHABLE if _HAS_WORD(sub_query.text) else UNWRITTEN
    note = missing if is_blank else hits.fallback
    name = FtsEngine.name if hits.fallback else engine.name
    run = LegRun(sub_query, top_k, name, hits, hits.spread, note, hits.fallback)
    if not is_original or len(hits) == 0:
        return run
    return replace(run, words=find_words(database, engine, within, sub_query.text, hits))


def _holding(database: Database, leg: LegQuery, fallback: str) -> Hits:
    """Return passages that contain the quoted phrases, in stored order.

    This is needed because not every engine cuts words in scripts without spaces.
    """
    with database.read() as connection:
        seqs = allowed_seqs(connection, leg.restriction)
    first = () if seqs is None else seqs[: leg.top_k].tolist()
    return Hits((Hit(seq, LEAST) for seq in first), fallback=fallback)


class _Nearest(NamedTuple):
    engine: str
    hits: Hits
    fallback: str
    damaged: frozenset[str]
    size: int
    spread: Spread


def _search_meaning(parts: SearchParts, leg: LegQuery, question: Question) -> LegRun:
    sub_query = leg.sub_query_for(question)
    asked = _vectors(parts, leg, question)
    if not asked:
        return LegRun(sub_query, leg.top_k, "not asked", note="no word to embed")
    datasets = leg.restriction.datasets
    answers = []
    for vector, note in asked:
        runs = [_nearest(parts, leg, vector, name) for name in datasets]
        hits = best_first((hit for run in runs for hit in run.hits), leg.top_k)
        answers.append((hits, runs, note))
    scores = [[hit.score for hit in answer[0]] for answer in answers]
    if len(answers) > 1 and is_foreign(scores[1], scores[0]):
        parts.tell_foreign_embedding()
        del answers[1]
    hits, runs, note = answers[-1]
    fallback = _each_once(run.fallback for run in runs)
    note = "; ".join(filter(None, (fallback, note)))
    damaged = _damaged(parts, leg, frozenset(name for run in runs for name in run.damaged))
    engine = ", ".join(dict.fromkeys(run.engine for run in runs))
    spread = join_spreads((run.size, run.spread) for run in runs)
    parts.library.indexes.require_model()  # otherwise these may be scores of two models
    return LegRun(sub_query, leg.top_k, engine, hits, spread, note, fallback, damaged)


def _nearest(parts: SearchParts, leg: LegQuery, vector: Vector, dataset: str) -> _Nearest:
    """Return the answer of one dataset's index, or of ``flat`` if that is blocked."""
    within, fallback = leg.restriction.of(dataset), ""
    engine = parts.vector(dataset)
    try:
        hits = nearest(engine, parts.database, vector, leg.top_k, within)
    except EngineBlockedError as error:
        engine = parts.library.indexes.flat(dataset)
        hits = nearest(engine, parts.database, vector, leg.top_k, within)
        is_held = isinstance(error, EngineLockedError)
        reason = "the index is open elsewhere" if is_held else str(error)
        fallback = f"{reason}, so vectors were compared one by one"
    with parts.database.read() as connection:
        damaged = engine.at(connection).damaged
    of_all = parts.library.indexes.spread(dataset, vector, hits)
    return _Nearest(engine.name, hits, fallback or hits.fallback, damaged, *of_all)


def is_foreign(given: Iterable[float], own: Iterable[float]) -> bool:
    """Return whether the vector that a query brings is another model's, by the scores it finds.

    ``own`` are the cosines that the query's text finds. Those of a vector of another model are
    about 0, because the two spaces have nothing in common. LlamaIndex's ``VectorIndexRetriever``
    writes its vector into the query, where the next retriever finds it.
    """
    return max(given, default=0.0) < max(own, default=0.0) - _NEARER


def _vectors(parts: SearchParts, leg: LegQuery, question: Question) -> list[tuple[Vector, str]]:
    """Return the vectors to search by, shape ``(dim,)``, each with a note about its source.

    That of the query's text is first, if it has words; then the embedding that the query brings.
    """
    given = None if leg.sub_query is not None else _given_vector(parts, question)
    vectors: list[tuple[Vector, str]] = []
    if question.texts or _HAS_WORD(leg.sub_query_for(question).text):
        try:
            vectors.append(_embed(parts, leg, question))
        except ConfigError as error:
            if given is None:
                raise UnembeddedError(error) from error
    return vectors if given is None else [*vectors, (given, "the query's own embedding")]


def _given_vector(parts: SearchParts, question: Question) -> Vector | None:
    """Return the query's own embedding; ``None`` without one of the model's length."""
    import numpy as np

    if question.embedding is None:
        return None
    vector = np.asarray(question.embedding, dtype=np.float32)
    if len(vector) == parts.library.wanted_model.dim and np.isfinite(vector).all() and vector.any():
        return vector
    parts.tell_foreign_embedding()
    return None


def _embed(parts: SearchParts, leg: LegQuery, question: Question) -> tuple[Vector, str]:
    """Return the vector of the leg's text, and a note about its source."""
    import numpy as np

    embed = parts.query_vectors.embed
    texts = question.texts if leg.sub_query is None else ()
    if texts:  # as HyDE gives: passages that might answer, and often the query itself
        sides: list[Side] = ["query" if t == question.text else "document" for t in texts]
        vectors = [embed(text, side)[0] for text, side in zip(texts, sides, strict=True)]
        mean = np.mean([vector / np.linalg.norm(vector) for vector in vectors], axis=0)
        return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32), f"{len(texts)} texts"
    sub_query = leg.sub_query_for(question)
    vector, is_cached = embed(sub_query.text, "document" if sub_query.kind == "hyde" else "query")
    return vector, "query embedding cached" if is_cached else ""


def _damaged(
    parts: SearchParts, leg: LegQuery, documents: frozenset[str]
) -> tuple[DamagedDocumentError, ...]:
    """Return an error for each damaged document that the restriction allows the caller to see."""
    if not documents:
        return ()
    allowed = allowed_documents(replace(leg.restriction, containing=()))
    with parts.database.read() as connection:
        visible = documents & list_source_ids(connection, allowed)
    return tuple(DamagedDocumentError(document, "a vector") for document in sorted(visible))


def _each_once(notes: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, notes)))
