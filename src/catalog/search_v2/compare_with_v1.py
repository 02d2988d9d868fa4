"""Ask the baseline the same question, and compare what each search found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from catalog.core.errors import InputError
from catalog.core.params import SearchParams
from catalog.core.results import Comparison, Latency, RankChange, SearchResults
from catalog.core.user_search import UserSearch
from catalog.library.names import role_scope, roles_in_force
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.request import for_agent
from catalog.retrieval.search import Found, find_passages, to_results
from catalog.store.chunks import find_root
from catalog.store.restriction import Restriction, allowed_paths, allowed_seqs
from catalog.store.statistics import count_totals

_baselines: WeakKeyDictionary[SearchParts, tuple[UserSearch, set[str]]] = WeakKeyDictionary()


def search_beside(parts: SearchParts, params: SearchParams) -> SearchResults:
    """Return the results of a search, with the differences from the baseline's answer."""
    params = for_agent(params, parts.settings)
    if params.doc_ids is not None and not isinstance(params.doc_ids, str):
        params = replace(params, doc_ids=list(params.doc_ids))  # it is read twice
    dataset, _ = parts.library.seen_datasets(params.role, params.dataset)
    if not isinstance(dataset, str):
        several = ", ".join(dataset)
        raise InputError(f"v1 searches one dataset: choose one of {several} to compare on")
    if dataset not in _baselines.get(parts, (None, ()))[1]:  # it is timed warm, so v2 is, too
        find_passages(parts, SearchParams("warm up", dataset=dataset, mode=params.mode))
    started = time.perf_counter()
    found = find_passages(parts, params)
    results = to_results(parts, params, found, started)
    comparison = _compare(parts, params, dataset, found, results)
    return replace(results, comparison=comparison, stages=tuple(found.stages.reports))


def _compare(
    parts: SearchParts, params: SearchParams, dataset: str, found: Found, results: SearchResults
) -> Comparison:
    """Put the same question to the baseline, and compare.

    What it found outside of the scope is left out and counted. Its failure is a failed stage, not a
    failed query. As a role, it is asked for as many more passages as are hidden from that role, and
    nothing is counted: how many are left out would tell of documents that the role does not see.
    The first question for a dataset is asked twice and only the second time counts, because the
    first one may build an index or load a model.
    """
    request, within = found.request, found.request.restriction
    filters, doc_ids = params.filters, params.doc_ids
    if params.file_type is not None or params.name is not None:
        filters = within.filter
    if (params.docs, params.after, params.before) != (None, None, None):
        doc_ids = sorted(within.scope.ids or ())
    narrowed = {"filters": filters, "doc_ids": None if doc_ids is None else list(doc_ids)}
    has_role, hidden = bool(roles_in_force(parts.settings, params.role)), 0
    with parts.database.read() as connection:
        root = find_root(connection, dataset)
        allowed = None if within.is_whole_dataset else allowed_paths(connection, within)
        if has_role:
            seen = role_scope(parts.database, parts.settings, params.role, [dataset])
            rows = allowed_seqs(connection, Restriction(dataset, seen))
            total = count_totals(connection, dataset, by_note=True).chunks
            hidden = 0 if rows is None else total - len(rows)
    name, started = parts.rag.baseline, time.perf_counter()
    paths, v2_ms = [path for result in results for path in result.paths], results.elapsed_ms
    try:
        if parts not in _baselines:
            _baselines[parts] = UserSearch(name), set()
        baseline, warm = _baselines[parts]
        for _ in range(1 if dataset in warm else 2):
            started = time.perf_counter()
            answer = baseline.search(
                params.query,
                dataset=dataset,
                top_k=request.top_k + hidden,
                mode=request.mode,
                settings=parts.settings,
                **narrowed,
            )
        v1_ms = (time.perf_counter() - started) * 1000
        warm.add(dataset)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - another's; recorded as its failure
        found.stages.failed("compare", (time.perf_counter() - started) * 1000, error)
        told = f"{type(error).__name__}: {error}"
        return compare_paths(name, [], paths, v1_ms=0.0, v2_ms=v2_ms, error=told)
    answer = answer.below(root)
    inside = answer if allowed is None else answer.within(allowed)
    ignored = baseline.unsupported([each for each, one in narrowed.items() if one is not None])
    notes = [f"asked without {' and '.join(ignored)}, which it does not accept"] if ignored else []
    cut = 0 if has_role else len(answer.hits) - len(inside.hits)
    notes += [f"{cut} of its passages are outside the scope and left out"] if cut else []
    v1 = [hit.path for hit in inside.hits[: request.top_k]]
    found.stages.ran("compare", v1_ms, "; ".join([f"{name}: {len(v1)} passages", *notes]))
    return compare_paths(name, v1, paths, v1_ms=v1_ms, v2_ms=v2_ms, note="; ".join(notes))


def compare_paths(
    name: str, v1: Sequence[str], v2: Sequence[str], *, v1_ms: float, v2_ms: float, **told: str
) -> Comparison:
    """Compare two ranked lists of paths; a path counts at its first place.

    ``told`` is the comparison's ``note`` or ``error``.
    """
    first, second = list(dict.fromkeys(v1)), list(dict.fromkeys(v2))
    ranks = {path: rank for rank, path in enumerate(first, start=1)}
    both = [path for path in second if path in ranks]
    either = len(first) + len(second) - len(both)
    return Comparison(
        baseline=name,
        overlap=0.0 if "error" in told else len(both) / either if either else 1.0,
        only_v1=tuple(path for path in first if path not in both),
        only_v2=tuple(path for path in second if path not in ranks),
        rank_changes=tuple(
            RankChange(path=path, v1=ranks[path], v2=rank)
            for rank, path in enumerate(second, start=1)
            if path in ranks and ranks[path] != rank
        ),
        latency_ms=Latency(v1=round(v1_ms, 3), v2=round(v2_ms, 3)),
        **told,
    )
