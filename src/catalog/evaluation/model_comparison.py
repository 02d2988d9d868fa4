"""Comparing a model that is tried with the store's own, on what both have embedded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from catalog.core.errors import InputError
from catalog.core.params import Mode
from catalog.evaluation.backends import V2Backend
from catalog.evaluation.comparison import PipelineComparison, compare_runs
from catalog.evaluation.golden import GoldenSet, find_allowed_documents
from catalog.evaluation.runs import run_backends
from catalog.evaluation.summary import comparison_dict, comparison_lines
from catalog.ingest.sync_report import Progress
from catalog.library.library import Library
from catalog.library.model_trials import TriedLibrary
from catalog.retrieval.searcher import Searcher
from catalog.store.statistics import count_totals
from catalog.store.tried_models import TriedModel, count_tried, list_tried_documents

_ALIKE = {"vector_engine": "exact", "query_cache_size": 0, "cache_ttl_seconds": 0}
"""Settings of both: one engine, so that it makes no difference, and no caches."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The size of a comparison: passages and documents, and those of the whole dataset."""

    dataset: str
    passages: int
    all_passages: int
    documents: int
    is_sample: bool

    def describe(self) -> str:
        """Return the caveat that belongs to the numbers."""
        if not self.is_sample:
            return f"Both searched all {self.passages} passages of {self.dataset}."
        return (
            f"Both searched a sample of {self.dataset}: the {self.passages} passages, in "
            f"{self.documents} documents, that both have embedded, of {self.all_passages}. "
            "These numbers are of the sample: in the whole there is more to mistake for an answer."
        )


def compare_tried(
    library: Library,
    tried: TriedModel,
    queries: GoldenSet,
    dataset: str,
    modes: Sequence[Mode],
    *,
    top_k: int,
    repeats: int,
    progress: Progress,
) -> tuple[Compared, dict[Mode, PipelineComparison]]:
    """Ask both models the same of the documents that the tried one has embedded, mode by mode.

    Raises :class:`InputError` if it has none, and as :func:`compare_runs` does.
    """
    with library.database.read() as connection:
        documents = list_tried_documents(connection, tried, dataset)
        counts = count_tried(connection, tried, dataset)
        totals = count_totals(connection, dataset)
    if not documents:
        raise InputError(f"{tried.name} has embedded no document of {dataset!r} yet")
    is_sample = counts.missing > 0
    compared = Compared(
        dataset, counts.embedded, totals.chunks, len(documents), is_sample=is_sample
    )
    within = documents if is_sample else None
    allowed = partial(find_allowed_documents, library.database, dataset)
    names = _names(library.wanted_model.model, tried.name)
    with TriedLibrary(library, tried) as other:
        services = [Searcher(each).with_settings(_ALIKE) for each in (library, other)]
        comparisons = {}
        for mode in modes:
            backends = [
                V2Backend(name, service, mode, within)
                for name, service in zip(names, services, strict=True)
            ]
            live, new = run_backends(
                backends,
                queries,
                dataset=dataset,
                top_k=top_k,
                repeats=repeats,
                progress=progress,
                allowed=allowed,
            )
            comparisons[mode] = compare_runs(live, new, queries, allowed)
    return compared, comparisons


def tried_dict(
    compared: Compared, comparisons: Mapping[Mode, PipelineComparison]
) -> dict[str, Any]:
    """Return all numbers, ready for JSON."""
    told = {mode: comparison_dict(comparison) for mode, comparison in comparisons.items()}
    return {"compared": asdict(compared), "note": compared.describe(), "modes": told}


def tried_lines(
    compared: Compared, comparisons: Mapping[Mode, PipelineComparison]
) -> Iterator[str]:
    """Yield the size of the comparison, then each mode's report."""
    yield compared.describe()
    yield (
        "Both compare all vectors one by one, so times tell the models apart, not an index. What "
        "labels taught about the store's model (relevance, balance) the tried one does without."
    )
    for mode, comparison in comparisons.items():
        yield ""
        yield f"mode {mode}:"
        yield from comparison_lines(comparison)


def _names(live: str, tried: str) -> tuple[str, str]:
    return (live, tried) if live != tried else (f"{live} as it is", f"{tried} as tried")
