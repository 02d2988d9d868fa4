"""The legs of a search, by words and by meaning, each ranked in one state of the store."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    DamagedDocumentError,
    EngineBlockedError,
    EngineError,
    EngineLockedError,
)
from catalog.core.params import Mode
from catalog.core.query import SubQuery, SubQueryKind
from catalog.retrieval.expansion import (
    Expander,
    ExpansionLine,
    describe_dropped,
    explain_strong_signal,
)
from catalog.retrieval.fusion import Leg
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.stages import StageLog
from catalog.store import Database
from catalog.store.derived import Following
from catalog.store.embedding_cache import Side, require_fingerprint
from catalog.store.lexical.analysis import UNSPACED, WORD
from catalog.store.lexical.base import LexicalEngine
from catalog.store.lexical.fts import find_signs
from catalog.store.listing import allowed_documents, list_source_ids
from catalog.store.phrases import LEAST
from catalog.store.restriction import (
    FLAT,
    Hit,
    Hits,
    Restriction,
    Spread,
    allowed_seqs,
    best_first,
    join_spreads,
)
from catalog.store.vectors.base import nearest

if TYPE_CHECKING:
    from sqlalchemy import Connection

# A line must be as near to the query as its 100th passage, or the one at a quarter of all passages
# if that comes earlier, but not the first. Of 188 golden queries with their labelled answers as
# lines 176 pass, and 17 % of other queries' answers.
_FOUND, _SHARE, _LEAST = 100, 4, 2
_UNUSED = "only the query itself is searched"
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

    ``spread`` is that of the scores of all chunks of the dataset. ``fallback`` says why it was not
    found as the settings say, "" if it was. ``readings`` tell of corrected words. ``damaged`` are
    documents with a skipped vector.
    """

    query: SubQuery
    top_k: int
    engine: str = ""
    hits: Sequence[Hit] = ()
    spread: Spread = FLAT
    note: str = ""
    fallback: str = ""
    readings: tuple[str, ...] = ()
    damaged: tuple[DamagedDocumentError, ...] = ()
    error: CatalogError | None = None
    ms: float = 0.0

    @property
    def leg(self) -> Leg:
        """The leg that ran."""
        return "lexical" if self.query.kind == "lex" else "vector"


@dataclass(frozen=True)
class LegQuery(ABC):
    """One leg of one search: the best ``top_k`` passages under a restriction.

    With a ``sub_query`` it always searches for that, otherwise for the question it gets.
    """

    restriction: Restriction
    top_k: int
    sub_query: SubQuery | None
    kind: ClassVar[SubQueryKind] = "vec"

    def about(self, question: Question) -> SubQuery:
        """Return the sub-query to search for."""
        return self.sub_query or SubQuery(self.kind, question.text)

    def prepare(self, question: Question) -> Any:  # noqa: ARG002  (by words nothing is needed)
        """Return what :meth:`rank` needs of models and servers, which no transaction waits for."""
        return None

    @abstractmethod
    def rank(self, connection: Connection, sub_query: SubQuery, prepared: Any) -> LegRun:
        """Return the answer in the state that the connection sees."""


class Attempt(NamedTuple):
    """What a step returned, or else its error, and the milliseconds it took."""

    value: Any
    error: CatalogError | None
    ms: float


def attempt(step: Callable[[], Any], passing: type[Exception] | tuple[()] = ()) -> Attempt:
    """Call a step and record its error, unless it is of the ``passing`` kind."""
    started, value, error = time.perf_counter(), None, None
    try:
        value = step()
    except passing:
        raise
    except CatalogError as raised:
        error = raised
    except Exception as raised:  # noqa: BLE001 - recorded as the leg's failure
        error = EngineError(f"{type(raised).__name__}: {raised}")
        error.__cause__ = raised
    return Attempt(value, error, (time.perf_counter() - started) * 1000)


def prepare_leg(leg: LegQuery, question: Question) -> Attempt:
    """Prepare a leg outside of transactions; record an exception."""
    return attempt(partial(leg.prepare, question))


def rank_leg(
    connection: Connection, leg: LegQuery, question: Question, prepared: Attempt
) -> LegRun:
    """Return the leg's answer in the state that the connection sees; record an exception.

    Only a :class:`ConfigError` for settings that make the index impossible is raised.
    """
    sub_query, (run, error, ms) = leg.about(question), prepared
    if error is None:
        run, error, took = attempt(partial(leg.rank, connection, sub_query, run), ConfigError)
        ms += took
    return replace(run, ms=ms) if run else LegRun(sub_query, leg.top_k, error=error, ms=ms)


def run_leg(database: Database, leg: LegQuery, question: Question) -> LegRun:
    """Return the leg's answer in the present state of the store; record an exception."""
    prepared = prepare_leg(leg, question)
    with database.snapshot(), database.read() as connection:
        return rank_leg(connection, leg, question, prepared)


def plan_legs(
    parts: SearchParts,
    within: Restriction,
    queries: Iterable[SubQuery],
    mode: Mode,
    *,
    k_lex: int,
    k_dense: int,
    respell: Restriction | None = None,
) -> list[LegQuery]:
    """Return the legs of the mode for each sub-query, all under one restriction.

    Phrases of a lexical sub-query also restrict its own leg. Its words are corrected if no passage
    in ``respell`` has them.
    """
    legs: list[LegQuery] = []
    for query in queries:
        if not query.is_for(mode):
            continue
        if query.kind == "lex":
            containing = tuple(dict.fromkeys((*within.containing, *query.phrases)))
            bound = replace(within, containing=containing) if query.phrases else within
            engine = parts.lexical(within.dataset)
            legs.append(LexicalLeg(bound, k_lex, query, parts.database, engine, respell))
        else:
            legs.append(VectorLeg(within, k_dense, query, parts))
    return legs


@dataclass(frozen=True)
class LexicalLeg(LegQuery):
    """The leg by words: BM25 or full text over one dataset, or over several as one."""

    database: Database
    engine: LexicalEngine
    respell: Restriction | None = None
    kind: ClassVar[SubQueryKind] = "lex"

    def rank(self, connection: Connection, sub_query: SubQuery, prepared: None) -> LegRun:  # noqa: ARG002
        """Return the answer in the state that the connection sees."""
        engine, top_k, within = self.engine, self.top_k, self.restriction
        readings = []
        if self.respell is not None:
            quoted = set(WORD.findall(" ".join(sub_query.phrases)))
            for typed, meant in engine.correct(sub_query.text, self.respell).items():
                if typed not in quoted:
                    # in lower case, so that GitHub for githubb does not count as a name
                    text = re.sub(rf"\b{typed}\b", meant.lower(), sub_query.text)
                    sub_query = replace(sub_query, text=text)
                    readings.append(
                        f"did you mean {meant!r}? {typed!r} is in no passage searched, so "
                        f"{meant!r} was searched as well"
                    )
        is_original, has_word = sub_query.origin == "original", _HAS_WORD(sub_query.text)
        hits = engine.search(sub_query.text, top_k, within)
        if not hits and is_original and any(map(UNSPACED.search, within.containing)):
            # not every engine cuts words in scripts without spaces
            seqs = allowed_seqs(connection, within)
            hits = Hits(Hit(seq, LEAST) for seq in (() if seqs is None else seqs[:top_k].tolist()))
        if not hits and is_original and not has_word:
            found = find_signs(self.database, sub_query.text, top_k, within)
            hits = Hits(Hit(seq, LEAST) for seq in found)
        missing = UNSEARCHABLE if has_word else UNWRITTEN
        note = missing if not hits and not engine.is_searchable(sub_query.text) else ""
        told = tuple(readings)
        return LegRun(sub_query, top_k, engine.name, hits, hits.spread, note, readings=told)


class _Asked(NamedTuple):
    """A vector of shape ``(dim,)``, where it comes from, and what a server found with it."""

    vector: Any
    note: str
    hits: dict[str, Hits]


@dataclass(frozen=True)
class VectorLeg(LegQuery):
    """The leg by meaning: nearest neighbours. Cosines are comparable between datasets.

    A sub-query of kind ``hyde``, a hypothetical answer, is embedded like a passage.
    """

    parts: SearchParts

    def prepare(self, question: Question) -> list[_Asked]:
        """Return the vector of the text, if it has words, then the one that the query brings."""
        import numpy as np

        parts, sub_query, vectors = self.parts, self.about(question), list[tuple[Any, str]]()
        is_own, embed = sub_query.origin == "original", parts.query_vectors.embed
        if is_own and question.embedding is not None:
            given = np.asarray(question.embedding, dtype=np.float32)
            is_right = len(given) == parts.library.wanted_model.dim and np.isfinite(given).all()
            if is_right and given.any():
                vectors.append((given, "the query's own embedding"))
            else:
                parts.tell_foreign_embedding()
        try:
            if is_own and question.texts:
                # as HyDE gives: passages that might answer, and often the query itself
                texts, text = question.texts, question.text
                each = [embed(one, "query" if one == text else "document")[0] for one in texts]
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
        if parts.asks_server:
            for vector, _, hits in asked:
                for name in self.restriction.datasets:
                    within, engine = self.restriction.of(name), parts.vector(name)
                    hits[name] = nearest(engine, parts.database, vector, self.top_k, within)
        return asked

    def rank(
        self, connection: Connection, sub_query: SubQuery, prepared: Sequence[_Asked]
    ) -> LegRun:
        """Return the answer in the state that the connection sees."""
        if not prepared:
            return LegRun(sub_query, self.top_k, "not asked", note="no word to embed")
        own, *given = [self._nearest(connection, sub_query, one) for one in prepared]
        for run in given:
            if not is_foreign([hit.score for hit in run.hits], [hit.score for hit in own.hits]):
                return run
            self.parts.tell_foreign_embedding()
        return own

    def _nearest(self, connection: Connection, sub_query: SubQuery, asked: _Asked) -> LegRun:
        """Return the passages nearest to one vector; ``flat`` replaces an index that is blocked."""
        indexes, top_k, found, damaged = self.parts.library.indexes, self.top_k, [], set[str]()
        names, fallbacks, is_elsewhere = list[str](), list[str](), False
        for name in self.restriction.datasets:
            engine, hits = self.parts.vector(name), asked.hits.get(name)
            vectors = engine.at(connection)
            allowed = allowed_seqs(connection, self.restriction.of(name))
            if hits is None:
                try:
                    hits = vectors.rank(asked.vector, top_k, allowed)
                except EngineBlockedError as error:
                    engine = indexes.vector(name, "flat")
                    vectors = engine.at(connection)
                    hits = vectors.rank(asked.vector, top_k, allowed)
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
            sample = indexes.sample(name)
            of_all = (hits.size, hits.spread) if hits.size else sample.spread(asked.vector)
            found.append((hits, of_all))
        if is_elsewhere:  # an index outside of the store may have followed another model
            with self.parts.database.read(latest=True) as latest:
                require_fingerprint(latest, self.parts.library.wanted_model.fingerprint)
        if damaged:  # the caller may know of those that the restriction allows
            allowed_of = allowed_documents(replace(self.restriction, containing=()))
            damaged &= list_source_ids(connection, allowed_of)
        fallback = "; ".join(dict.fromkeys(filter(None, fallbacks)))
        return LegRun(
            sub_query,
            top_k,
            engine=", ".join(dict.fromkeys(names)),
            hits=best_first((hit for hits, _ in found for hit in hits), top_k),
            spread=join_spreads(of_all for _, of_all in found),
            note="; ".join(filter(None, (fallback, asked.note))),
            fallback=fallback,
            damaged=tuple(DamagedDocumentError(one, "a vector") for one in sorted(damaged)),
        )


def is_foreign(given: Iterable[float], own: Iterable[float]) -> bool:
    """Return whether the vector that a query brings is another model's, by the scores it finds.

    ``own`` are the cosines that the query's text finds. Those of a vector of another model are
    about 0, because the two spaces have nothing in common. LlamaIndex's ``VectorIndexRetriever``
    writes its vector into the query, where the next retriever finds it.
    """
    return max(given, default=0.0) < max(own, default=0.0) - _NEARER


def choose_sub_queries(
    parts: SearchParts,
    expander: Expander,
    query: str,
    runs: Sequence[LegRun],
    size: int,
    stages: StageLog,
) -> list[SubQuery]:
    """Return the sub-queries to add to those answered, of ``size`` passages with a vector.

    No model is asked if the lexical leg is certain already. Lines for the vector leg must be as
    near to the query as passages that it found.
    """
    rag, near = parts.rag, list[ExpansionLine]()
    first = {run.leg: run for run in reversed(runs)}
    scores = [hit.score for hit in first["lexical"].hits] if "lexical" in first else []
    gaps = {"score": rag.strong_signal_score, "gap": rag.strong_signal_gap}
    if reason := explain_strong_signal(scores, **gaps):
        stages.skipped("expand", reason)
        return []
    with stages.run("expand", survives=CatalogError) as notes:
        lines, dropped, source = expander.expand(query)
        least = -1.0
        if (run := first.get("vector")) and run.hits:
            passages = size if len(run.hits) >= run.top_k else len(run.hits)
            place = min(_FOUND, max(_LEAST, passages // _SHARE), len(run.hits))
            least = run.hits[place - 1].score
        for line in lines:
            if line.kind == "lex" or _nearness(parts, query, line) >= least:
                near.append(line)
            else:
                dropped.append((line, "off the subject"))
        told = ", ".join(f"{line.kind}: {line.text}" for line in near) or "no usable line"
        notes += [source, told, *describe_dropped(dropped)]
        if not near:
            notes.append(_UNUSED)
            stages.fell_back("expand", "; ".join(notes), reason=_UNUSED)
    return [SubQuery(line.kind, line.text, origin="expansion") for line in near]


def _nearness(parts: SearchParts, query: str, line: ExpansionLine) -> float:
    """Return the cosine of line and query."""
    import numpy as np

    try:
        a, _ = parts.query_vectors.embed(query)
        b, _ = parts.query_vectors.embed(line.text, "document" if line.kind == "hyde" else "query")
    except CatalogError:
        return 1.0  # its leg will fail the same way, and say so
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
