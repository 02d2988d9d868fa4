"""Ask backends the same queries in turn; record answers and times."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from catalog.core.errors import InputError
from catalog.core.places import enclosing
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.backends import RecordedBackend, SearchBackend
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.ingest.sync_report import Progress, Silent
from catalog.library.names import forms_of

DEFAULT_TOP_K = 100
TIMED_TOP_K = 10
Clock = Callable[[], float]
Allowed = Callable[[GoldenQuery], frozenset[str] | None]
_Rename = Callable[..., Ranking]


@dataclass(frozen=True)
class QueryOutcome:
    """One backend's answer to one query, its time, and its error.

    ``answer`` is the deep one, for metrics. ``ms`` and ``stages_ms`` come from the timed
    repetitions, which ask for :data:`TIMED_TOP_K` passages as a person would. ``stable`` says
    whether these ranked alike, ``None`` after fewer than two. ``forbidden`` counts the passages
    among the first :data:`TIMED_TOP_K` that were removed because the query's filters forbid them.
    """

    answer: Ranking | None
    ms: tuple[float, ...] = ()
    stages_ms: tuple[Mapping[str, float], ...] = ()
    error: str = ""
    stable: bool | None = None
    forbidden: int = 0


@dataclass(frozen=True)
class BackendRun:
    """Answers of one backend by query id, with its name and settings.

    ``notes`` explain how its scores may mislead.
    """

    name: str
    identity: Mapping[str, object]
    dataset: str
    top_k: int
    outcomes: Mapping[str, QueryOutcome]
    notes: tuple[str, ...] = ()

    @property
    def errors(self) -> dict[str, str]:
        """Return the reasons of failures by query id."""
        return {query: outcome.error for query, outcome in self.outcomes.items() if outcome.error}

    def documents(self, query: str) -> tuple[str, ...]:
        """Return the documents that it ranked for the query, best first; ``[]`` after a failure."""
        answer = self.outcomes[query].answer
        return () if answer is None else answer.documents

    def ranks(self, query: str) -> dict[str, int]:
        """Return the rank of each of these documents, from 1."""
        return {path: rank for rank, path in enumerate(self.documents(query), start=1)}


def run_backends(
    backends: Sequence[SearchBackend],
    golden: GoldenSet,
    *,
    dataset: str,
    top_k: int = DEFAULT_TOP_K,
    repeats: int = 2,
    time_all: bool = False,
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
    allowed: Allowed | None = None,
    documents: Collection[str] = (),
    folders: Sequence[str] = (),
) -> list[BackendRun]:
    """Ask every backend every query, one query at a time.

    All queries are asked ``top_k`` deep first, for the metrics, then ``repeats`` times for the
    clock; ``time_all`` times the deep ones, too. The backend that is asked first alternates. An
    exception becomes that query's error and never ends the run. ``allowed`` returns the documents
    that a filtered query may show; other documents are removed. Hits get the names that the dataset
    has for its ``documents``, also those with one of ``folders`` before them. Raises
    :class:`InputError` for numbers out of range, for no queries, and for a recorded run of other
    queries.
    """
    if top_k < 1 or repeats < 0:
        raise InputError(f"top_k must be at least 1 and repeats 0, not {top_k} and {repeats}")
    if not len(golden):
        raise InputError(f"{golden.name} has no query")
    progress = progress or Silent()
    for backend in backends:
        if isinstance(backend, RecordedBackend):
            backend.require(golden, dataset, top_k)
    identities = [backend.identity for backend in backends]
    for backend in backends:
        backend.prepare(dataset, progress)
        _attempt(backend, golden.queries[0], dataset, top_k, clock)  # loads the rest
    paths = {query.id: allowed(query) for query in golden if allowed and query.filters is not None}
    rename, wholes = _own_names(documents, folders), [dict[str, None]() for _ in backends]
    depths = [top_k, *[min(TIMED_TOP_K, top_k)] * repeats]
    attempts: list[dict[str, list[QueryOutcome]]] = [{} for _ in backends]
    live = [n for n, backend in enumerate(backends) if not isinstance(backend, RecordedBackend)]
    progress.start(len(golden) * len(depths))
    for turn, depth in enumerate(depths):
        order = live if turn else range(len(backends))  # recorded lists cannot be timed
        for number, query in enumerate(golden):
            for index in order if number % 2 == 0 else reversed(order):
                attempt = _attempt(backends[index], query, dataset, depth, clock)
                own = partial(rename, wholes[index])
                attempt = _as_labelled(attempt, query, own, paths.get(query.id))
                attempts[index].setdefault(query.id, []).append(attempt)
            progress.advance(1, "asking")
    runs = []
    for backend, identity, by_query, whole in zip(
        backends, identities, attempts, wholes, strict=True
    ):
        notes = backend.notes(golden) if isinstance(backend, RecordedBackend) else ()
        files = (f"{backend.name} names {one!r}, which counts for its parts" for one in whole)
        outcomes = {
            query: _to_outcome(tries[0], *tries[not time_all :])
            for query, tries in by_query.items()
        }
        notes = (*notes, *islice(files, 3))
        runs.append(BackendRun(backend.name, identity, dataset, top_k, outcomes, notes))
    return runs


def _attempt(
    backend: SearchBackend, query: GoldenQuery, dataset: str, top_k: int, clock: Clock
) -> QueryOutcome:
    started = clock()
    answer, error = None, ""
    try:
        answer = backend.search(query, dataset=dataset, top_k=top_k)
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - this query's failure, recorded
        error = f"{type(failure).__name__}: {failure}"
    return QueryOutcome(answer, ms=((clock() - started) * 1000,), error=error)


def _own_names(documents: Collection[str], folders: Sequence[str]) -> _Rename:
    """Return a function that gives hits the dataset's names, and notes files that are for parts."""
    names = frozenset(documents)
    inside: dict[str, list[str]] = {}
    for path in documents:
        for outer in enclosing(path):  # "box.mbox", "box.mbox › 3"
            inside.setdefault(outer, []).append(path)

    def named(whole: dict[str, None], hit: RankedHit) -> RankedHit:
        for name in forms_of(hit.path, folders):
            if name in names:
                return replace(hit, path=name)
            if name in inside:
                whole[name] = None
                first, *rest = (replace(hit, path=part, also_in=()) for part in inside[name])
                return replace(first, also_in=tuple(rest))
        return hit

    return lambda whole, it: replace(it, hits=tuple(map(partial(named, whole), it.hits)))


def _as_labelled(
    attempt: QueryOutcome, query: GoldenQuery, rename: _Rename, paths: Collection[str] | None
) -> QueryOutcome:
    """Return the attempt with the dataset's names and only with allowed documents.

    Labelled documents stand for passages with the same text.
    """
    if attempt.answer is None:
        return attempt
    answer, forbidden = rename(attempt.answer), 0
    if paths is not None:
        forbidden = sum(hit.path not in paths for hit in answer.hits[:TIMED_TOP_K])
        answer = answer.within(paths)
    return replace(attempt, answer=answer.as_judged(query.grades), forbidden=forbidden)


def _to_outcome(deep: QueryOutcome, *timed: QueryOutcome) -> QueryOutcome:
    error = next((attempt.error for attempt in (deep, *timed) if attempt.error), "")
    answers = [attempt.answer for attempt in timed if attempt.answer is not None]
    lists = {tuple(hit.path for hit in answer.hits) for answer in answers}
    return QueryOutcome(
        answer=None if error else deep.answer,
        ms=tuple(ms for attempt in timed if not attempt.error for ms in attempt.ms),
        stages_ms=tuple(answer.stages_ms for answer in answers),
        error=error,
        stable=len(lists) == 1 if len(timed) > 1 and not error else None,
        forbidden=deep.forbidden,
    )
