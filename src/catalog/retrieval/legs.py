"""The legs of a search, by words and by meaning, each ranked in one state of the store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from catalog.retrieval.fusion import Leg
from catalog.retrieval.parts import SearchParts, StageLog
from catalog.store.chunks import require_dataset
from catalog.store.derived import Following
from catalog.store.embedding_cache import require_fingerprint
from catalog.store.engines import LexicalEngine, nearest
from catalog.store.lexical.analysis import UNSPACED, WORD
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
    read_stamps,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.retrieval.expansion import Expander

# A line must be as near to the query as its 100th passage, or the one at a quarter of all passages
# if that comes earlier, but not the first. Of 188 golden queries with their labelled answers as
# lines 176 pass, and 17 % of other queries' answers.
_FOUND, _SHARE, _LEAST = 100, 4, 2
_UNUSED = "only the query itself is searched"
_HAS_WORD = re.compile(r"\w").search
_Asked = tuple[Any, str, dict[str, Hits]]  # a vector, its origin, and what a server found with it
UNWRITTEN = "no passage contains these signs"
UNSEARCHABLE = "the query has no words, or only words that are too common to search for"


class Question(NamedTuple):
    """A query's text, with an optional vector or texts to search by meaning instead.

    The vector is ``embedding``, shape ``(dim,)``, or the mean of the vectors of ``texts``; an
    embedding that does not fit the store's model is ignored. ``loose`` are quoted phrases that do
    not bind.
    """

    text: str
    embedding: Sequence[float] | None = None
    texts: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


class LegRun(NamedTuple):
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

    @property
    def is_own(self) -> bool:
        """Whether it is the answer to the user's own query, not to other words for it."""
        return self.query.origin == "original"


class LegQuery(NamedTuple):
    """One leg of one search: the best ``top_k`` passages for a query under a restriction.

    Words of a lexical query are corrected if no passage in ``respell`` has them.
    """

    query: SubQuery
    restriction: Restriction
    top_k: int
    respell: Restriction | None = None


def plan_legs(
    within: Restriction,
    queries: Iterable[SubQuery],
    mode: Mode,
    *,
    k_lex: int,
    k_dense: int,
    respell: Restriction | None = None,
) -> list[LegQuery]:
    """Return the legs of the mode for each sub-query, all under one restriction.

    Phrases of a lexical sub-query also restrict its own leg.
    """
    legs = []
    for query in [one for one in queries if one.is_for(mode)]:
        bound, is_lexical = within, query.kind == "lex"
        if is_lexical and query.phrases:
            both = dict.fromkeys((*within.containing, *query.phrases))
            bound = replace(within, containing=tuple(both))
        legs.append(LegQuery(query, bound, k_lex if is_lexical else k_dense, respell))
    return legs


@contextmanager
def ranking(
    parts: SearchParts, legs: Sequence[LegQuery], question: Question
) -> Iterator[tuple[Connection, list[LegRun]]]:
    """Yield the answer of each leg, and the connection that sees the same state of the store.

    Models and servers are asked before. A leg's exception is its answer, but for a
    :class:`ConfigError` for settings that make the index impossible. Raises
    :class:`UnknownDatasetError`.
    """
    runs = list[LegRun]()
    prepared = [_attempt(partial(_embed, parts, leg, question)) for leg in legs]
    with parts.database.snapshot(), parts.database.read() as connection:
        dataset = legs[0].restriction.dataset
        if isinstance(dataset, str) and None in read_stamps(connection, dataset):
            require_dataset(connection, dataset)
        for leg, (asked, error, ms) in zip(legs, prepared, strict=True):
            run = None
            if error is None:
                step = partial(_rank_vectors, connection, parts, leg, asked)
                if leg.query.kind == "lex":
                    step = partial(rank_words, connection, parts.lexical(dataset), leg)
                run, error, took = _attempt(step, ConfigError)
                ms += took
            run = run or LegRun(leg.query, leg.top_k, error=error)
            runs.append(run._replace(ms=ms))
        yield connection, runs


def _attempt(
    step: Callable[[], Any], *passing: type[Exception]
) -> tuple[Any, CatalogError | None, float]:
    """Return what a step returns, or else its error unless it is ``passing``, and milliseconds."""
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
    return value, error, (time.perf_counter() - started) * 1000


def rank_words(connection: Connection, engine: LexicalEngine, leg: LegQuery) -> LegRun:
    """Return the answer by BM25 or full text over one dataset, or over several as one."""
    query, within, top_k, respell = leg
    readings = []
    if respell is not None:
        quoted = set(WORD.findall(" ".join(query.phrases)))
        for typed, meant in engine.correct(query.text, respell).items():
            if typed not in quoted:
                # in lower case, so that GitHub for githubb does not count as a name
                text = re.sub(rf"\b{typed}\b", meant.lower(), query.text)
                query = replace(query, text=text)
                readings.append(
                    f"did you mean {meant!r}? {typed!r} is in no passage searched, so "
                    f"{meant!r} was searched as well"
                )
    hits, has_word, note = engine.search(query.text, top_k, within), _HAS_WORD(query.text), ""
    if not hits and query.origin == "original":
        found = list[int]()
        if any(map(UNSPACED.search, within.containing)):
            # not every engine cuts words in scripts without spaces
            seqs = allowed_seqs(connection, within)
            found = [] if seqs is None else seqs[:top_k].tolist()
        if not found and not has_word:
            found = find_signs(connection, query.text, top_k, within)
        hits = Hits(Hit(seq, LEAST) for seq in found)
    if not hits and not engine.is_searchable(query.text):
        note = UNSEARCHABLE if has_word else UNWRITTEN
    told = tuple(readings)
    return LegRun(query, top_k, engine.name, hits, hits.spread, note, readings=told)


def _embed(parts: SearchParts, leg: LegQuery, question: Question) -> _Asked | None:
    """Return what a search by meaning needs of models and servers; no transaction waits for them.

    This is the vector that the query brings, or that of its text, if it has words. A hypothetical
    answer, of kind ``hyde``, is embedded like a passage.
    """
    import numpy as np

    query, within, top_k, _ = leg
    if query.kind == "lex":
        return None
    embed = parts.query_vectors.embed
    if query.origin != "original":
        question = Question(query.text)
    given = question.embedding
    note = "" if given is None else "the query's own embedding does not fit the model"
    vector: Any = np.asarray(() if given is None else given, dtype=np.float32)
    if vector.any() and np.isfinite(vector).all() and len(vector) == parts.library.wanted_model.dim:
        note = "the query's own embedding"
    elif question.texts:
        # as HyDE gives: passages that might answer, and often the query itself
        texts, text = question.texts, question.text
        each = [embed(one, "query" if one == text else "document")[0] for one in texts]
        mean = np.mean([one / np.linalg.norm(one) for one in each], axis=0)
        vector = np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)
        note = note or f"{len(texts)} texts"
    elif _HAS_WORD(query.text):
        side: Any = "document" if query.kind == "hyde" else "query"
        vector, is_cached = embed(query.text, side)
        note = note or ("query embedding cached" if is_cached else "")
    else:
        return None
    found = {}
    for name in within.datasets if parts.asks_server else ():
        engine, here = parts.vector(name), within.of(name)
        found[name] = nearest(engine, parts.database, vector, top_k, here)
    return vector, note, found


def _rank_vectors(
    connection: Connection, parts: SearchParts, leg: LegQuery, asked: _Asked | None
) -> LegRun:
    """Return the nearest neighbours; cosines are comparable between datasets.

    ``flat`` replaces an index that is blocked.
    """
    query, within, top_k, _ = leg
    if asked is None:
        return LegRun(query, top_k, "not asked", note="no word to embed")
    library, (vector, origin, of_server) = parts.library, asked
    found, names, spreads = list[Hit](), list[str](), list[tuple[int, Spread]]()
    fallbacks, damaged, is_elsewhere = list[str](), set[str](), False
    for name in within.datasets:
        engine, hits = parts.vector(name), of_server.get(name)
        vectors = engine.at(connection)
        allowed = allowed_seqs(connection, within.of(name))
        if hits is None:
            try:
                hits = vectors.rank(vector, top_k, allowed)
            except EngineBlockedError as error:
                engine = library.indexes.vector(name, "flat")
                vectors = engine.at(connection)
                hits = vectors.rank(vector, top_k, allowed)
                is_held = isinstance(error, EngineLockedError)
                reason = "the index is open elsewhere" if is_held else str(error)
                fallbacks.append(f"{reason}, so vectors were compared one by one")
            is_elsewhere |= not isinstance(engine, Following)
        elif allowed is not None:  # what was allowed when the server was asked may not be now
            here = set(allowed.tolist())
            still = (hit for hit in hits if hit.seq in here)
            hits = Hits(still, hits.spread, hits.fallback, hits.size)
        found += hits
        names.append(engine.name)
        fallbacks.append(hits.fallback)
        damaged |= vectors.damaged
        sized = (hits.size, hits.spread)
        spreads.append(sized if hits.size else library.indexes.sample(name).spread(vector))
    if is_elsewhere:  # an index outside of the store may have followed another model
        with parts.database.read(latest=True) as latest:
            require_fingerprint(latest, library.wanted_model.fingerprint)
    if damaged:  # the caller may know of those that the restriction allows
        allowed_of = allowed_documents(replace(within, containing=()))
        damaged &= list_source_ids(connection, allowed_of)
    fallback = "; ".join(dict.fromkeys(filter(None, fallbacks)))
    return LegRun(
        query,
        top_k,
        engine=", ".join(dict.fromkeys(names)),
        hits=found if len(names) == 1 else best_first(found, top_k),
        spread=spreads[0][1] if len(names) == 1 else join_spreads(spreads),
        note="; ".join(filter(None, (fallback, origin))),
        fallback=fallback,
        damaged=tuple(DamagedDocumentError(one, "a vector") for one in sorted(damaged)),
    )


def expand(
    parts: SearchParts,
    legs: Sequence[LegQuery],
    question: Question,
    stages: StageLog,
    expander: Expander | None = None,
) -> list[SubQuery]:
    """Return what a language model adds to a question, near enough to what its own legs find.

    No model is asked if the lexical leg is certain already. Lines for the vector leg must be as
    near to the query as passages that it found. Raises :class:`ConfigError` if the library has no
    language model.
    """
    from catalog.retrieval.expansion import describe_dropped, explain_strong_signal
    from catalog.store.statistics import count_vectors

    rag, expander, embed = parts.rag, expander or parts.expander, parts.query_vectors.embed
    with ranking(parts, legs, question) as (connection, runs):
        size = count_vectors(connection, legs[0].restriction.dataset)
    first = {run.leg: run for run in reversed(runs)}
    scores = [hit.score for hit in first["lexical"].hits] if "lexical" in first else []
    gaps = {"score": rag.strong_signal_score, "gap": rag.strong_signal_gap}
    if reason := explain_strong_signal(scores, **gaps):
        stages.skipped("expand", reason)
        return []
    least = -1.0
    if (run := first.get("vector")) and run.hits:
        passages = size if len(run.hits) >= run.top_k else len(run.hits)
        place = min(_FOUND, max(_LEAST, passages // _SHARE), len(run.hits))
        least = run.hits[place - 1].score

    def is_near(text: str, kind: SubQueryKind) -> bool:
        import numpy as np

        try:
            a = embed(question.text)[0]
            b = embed(text, "document" if kind == "hyde" else "query")[0]
        except CatalogError:
            return True  # its leg will fail the same way, and say so
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) >= least

    near = list[SubQuery]()
    with stages.run("expand", survives=CatalogError) as notes:
        lines, dropped, source = expander.expand(question.text)
        for line in lines:
            if line.kind == "lex" or is_near(line.text, line.kind):
                near.append(SubQuery(line.kind, line.text, origin="expansion"))
            else:
                dropped.append((line, "off the subject"))
        told = ", ".join(f"{one.kind}: {one.text}" for one in near) or "no usable line"
        notes += [source, told, *describe_dropped(dropped)]
        if not near:
            notes.append(_UNUSED)
            stages.fell_back("expand", "; ".join(notes), reason=_UNUSED)
    return near
