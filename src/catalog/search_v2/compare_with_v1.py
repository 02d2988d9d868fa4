"""Ask the baseline the same question, and compare what each search found."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from threading import Lock
from weakref import WeakKeyDictionary

from catalog.core.errors import InputError
from catalog.core.params import SearchParams
from catalog.core.results import Comparison, Latency, RankChange, SearchResults
from catalog.core.settings import Settings
from catalog.core.user_search import Ranking, UserSearch
from catalog.library.names import role_scope, roles_in_force
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.request import SearchRequest, for_agent
from catalog.retrieval.search import find_passages, to_results
from catalog.retrieval.stages import StageLog
from catalog.store.chunks import find_root
from catalog.store.engine_types import Restriction, allowed_paths, allowed_seqs
from catalog.store.statistics import count_totals


class Baseline:
    """The search set as the baseline, loaded at the first question. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._search: UserSearch | None = None
        self._warm: set[str] = set()
        self._lock = Lock()

    def is_warm(self, dataset: str) -> bool:
        """Return whether the baseline was asked about the dataset before."""
        return dataset in self._warm

    def compare(
        self,
        query: str,
        paths: Sequence[str],
        stages: StageLog,
        *,
        dataset: str,
        top_k: int,
        mode: str,
        filters: object,
        doc_ids: list[str] | None,
        allowed: Collection[str] | None,
        v2_ms: float,
        root: str = "",
        hidden: int | None = None,
    ) -> Comparison:
        """Put the same question to the baseline, and compare with the ``paths`` that v2 found.

        Whatever it was told, what it found outside the ``allowed`` paths (``None``: all are) is
        left out and counted. Whole paths below ``root`` are the dataset's documents. Its failure is
        a failed stage, not a failed query. As a role, it is asked for as many more passages as are
        ``hidden`` from that role, and nothing is counted: how many are left out, or lack at the
        end, would tell of documents that the role does not see.
        """
        name, started = self._settings.rag_v2.baseline, time.perf_counter()
        narrowed = {"filters": filters, "doc_ids": doc_ids}
        try:
            asked = top_k + (hidden or 0)
            answer, v1_ms = self._ask(query, dataset=dataset, top_k=asked, mode=mode, **narrowed)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another's; recorded as its failure
            stages.failed("compare", (time.perf_counter() - started) * 1000, error)
            return Comparison(
                baseline=name,
                overlap=0.0,
                only_v1=(),
                only_v2=tuple(dict.fromkeys(paths)),
                rank_changes=(),
                latency_ms=Latency(v1=0.0, v2=round(v2_ms, 3)),
                error=f"{type(error).__name__}: {error}",
            )
        answer = answer.below(root)
        inside = answer if allowed is None else answer.within(allowed)
        cut = len(answer.hits) - len(inside.hits) if hidden is None else 0
        inside = replace(inside, hits=inside.hits[:top_k])
        notes = [
            self._unsupported([each for each, value in narrowed.items() if value is not None]),
            f"{cut} of its passages are outside the scope and left out" if cut else "",
        ]
        note = "; ".join(filter(None, notes))
        count = f"{name}: {len(inside.hits)} passages"
        stages.ran("compare", v1_ms, "; ".join(filter(None, (count, note))))
        v1 = [hit.path for hit in inside.hits]
        return compare_paths(name, v1, paths, v1_ms=v1_ms, v2_ms=v2_ms, note=note)

    def _ask(
        self, query: str, *, dataset: str, top_k: int, **offered: object
    ) -> tuple[Ranking, float]:
        """Return the baseline's answer and its milliseconds; raise its errors.

        The first question for a dataset is asked twice and only the second time counts, because the
        first one may build an index or load a model.
        """
        search = self._load()
        for _ in range(1 if self.is_warm(dataset) else 2):
            started = time.perf_counter()
            answer = search.search(
                query, dataset=dataset, top_k=top_k, settings=self._settings, **offered
            )
            ms = (time.perf_counter() - started) * 1000
        self._warm.add(dataset)
        return answer, ms

    def _unsupported(self, names: Sequence[str]) -> str:
        """Name the arguments that the baseline does not support, if any."""
        ignored = " and ".join(self._load().unsupported(names))
        return f"asked without {ignored}, which it does not accept" if ignored else ""

    def _load(self) -> UserSearch:
        with self._lock:
            if self._search is None:
                self._search = UserSearch(self._settings.rag_v2.baseline)
            return self._search


_baselines: WeakKeyDictionary[SearchParts, Baseline] = WeakKeyDictionary()


def search_beside(parts: SearchParts, params: SearchParams) -> SearchResults:
    """Return the results of a search, with the differences from the baseline's answer."""
    baseline = _baselines.setdefault(parts, Baseline(parts.settings))
    params = for_agent(params, parts.settings)
    if params.doc_ids is not None and not isinstance(params.doc_ids, str):
        params = replace(params, doc_ids=list(params.doc_ids))  # it is read twice
    dataset = _only_dataset(parts, params)
    if not baseline.is_warm(dataset):  # it is timed warm, so v2 is, too
        find_passages(parts, SearchParams("warm up", dataset=dataset, mode=params.mode))
    started = time.perf_counter()
    found = find_passages(parts, params)
    results = to_results(parts, params, found, started)
    request, filters, doc_ids = found.request, params.filters, params.doc_ids
    if params.file_type is not None or params.name is not None:
        filters = request.restriction.filter
    if (params.docs, params.after, params.before) != (None, None, None):
        doc_ids = sorted(request.restriction.scope.ids or ())
    with parts.database.read() as connection:
        root = find_root(connection, dataset)
    comparison = baseline.compare(
        params.query,
        [path for result in results for path in result.paths],
        found.stages,
        dataset=dataset,
        root=root,
        top_k=request.top_k,
        mode=request.mode,
        filters=filters,
        doc_ids=None if doc_ids is None else list(doc_ids),
        allowed=_allowed(parts, request),
        hidden=_count_hidden(parts, params),
        v2_ms=results.elapsed_ms,
    )
    return replace(results, comparison=comparison, stages=tuple(found.stages.reports))


def _only_dataset(parts: SearchParts, params: SearchParams) -> str:
    """Return the searched dataset; the baseline cannot search several."""
    dataset, _ = parts.library.seen_datasets(params.role, params.dataset)
    if isinstance(dataset, str):
        return dataset
    raise InputError(f"v1 searches one dataset: choose one of {', '.join(dataset)} to compare on")


def _count_hidden(parts: SearchParts, params: SearchParams) -> int | None:
    """Count the passages that the role may not see; ``None`` without a role."""
    if not roles_in_force(parts.settings, params.role):
        return None
    name = _only_dataset(parts, params)
    seen = role_scope(parts.database, parts.settings, params.role, [name])
    with parts.database.read() as connection:
        total = count_totals(connection, name, none_waits=True).chunks
        allowed = allowed_seqs(connection, Restriction(name, seen))
        return 0 if allowed is None else total - len(allowed)


def _allowed(parts: SearchParts, request: SearchRequest) -> frozenset[str] | None:
    """Return the paths of the documents that may answer, ``None`` for all."""
    if request.restriction.is_whole_dataset:
        return None
    with parts.database.read() as connection:
        return allowed_paths(connection, request.restriction)


def compare_paths(
    name: str,
    v1: Sequence[str],
    v2: Sequence[str],
    *,
    v1_ms: float,
    v2_ms: float,
    note: str = "",
) -> Comparison:
    """Compare two ranked lists of paths; a path counts at its first place."""
    first, second = list(dict.fromkeys(v1)), list(dict.fromkeys(v2))
    ranks = {path: rank for rank, path in enumerate(first, start=1)}
    both = [path for path in second if path in ranks]
    either = len(first) + len(second) - len(both)
    return Comparison(
        baseline=name,
        overlap=len(both) / either if either else 1.0,
        only_v1=tuple(path for path in first if path not in both),
        only_v2=tuple(path for path in second if path not in ranks),
        rank_changes=tuple(
            RankChange(path=path, v1=ranks[path], v2=rank)
            for rank, path in enumerate(second, start=1)
            if path in ranks and ranks[path] != rank
        ),
        latency_ms=Latency(v1=round(v1_ms, 3), v2=round(v2_ms, 3)),
        note=note,
    )
