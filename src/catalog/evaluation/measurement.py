"""Measure searches of a dataset on labelled questions: ask them, compare them, record the runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.core.errors import StoreBusyError
from catalog.core.params import SearchParams
from catalog.evaluation.backends import Backends, Tell, V2Backend, write_run
from catalog.evaluation.comparison import (
    PipelineComparison,
    SystemsComparison,
    compare_runs,
    compare_systems,
    require_known_names,
)
from catalog.evaluation.golden import (
    GoldenQuery,
    GoldenSet,
    find_allowed_documents,
    find_label_warnings,
    with_own_names,
    with_words,
)
from catalog.evaluation.losses import GoldenLosses
from catalog.evaluation.metrics import SHOWN, SHOWN_METRICS, RunScores
from catalog.evaluation.run_records import corpus_digest, find_recorded_run, record_run
from catalog.evaluation.runs import DEFAULT_TOP_K, Allowed, BackendRun, run_backends
from catalog.evaluation.significance import TIE
from catalog.evaluation.why import explain_golden
from catalog.ingest.sync_report import Silent
from catalog.library.names import Names

if TYPE_CHECKING:
    from catalog.ingest.sync_report import Progress
    from catalog.library.library import Library
    from catalog.store.eval_runs import EvalRun

_EXPLAINED, _LABELS = 10, 3  # queries that lost most, and documents of each


@dataclass
class Measurement:
    """Labelled questions for searches of a dataset, asked ``top_k`` deep, then ``repeats`` times.

    Searches are named as in :mod:`catalog.evaluation.backends`. ``folder`` is for TREC files.
    ``tell`` gets a sentence before long work that happens once, such as the index of v1.
    """

    library: Library
    dataset: str
    queries: GoldenSet
    top_k: int = DEFAULT_TOP_K
    repeats: int = 0
    folder: Path | None = None
    progress: Progress | None = None
    tell: Tell = logging.getLogger(__name__).info

    def __post_init__(self) -> None:
        self.queries = with_own_names(self.queries, self.library.database, self.dataset)

    @cached_property
    def names(self) -> dict[str, Any]:
        """The names of the dataset's documents, and what may stand before one."""
        with self.library.database.read() as connection:
            names = Names(connection, self.dataset)
            return {"documents": [*names.paths], "folders": names.folders}

    @property
    def allowed(self) -> Allowed:
        """A function that returns the documents that a query's filters allow."""
        return partial(find_allowed_documents, self.library.database, self.dataset)

    @cached_property
    def with_words(self) -> GoldenSet:
        """The queries with the words of spans that name lines or characters."""
        return with_words(self.queries, self.library.database, self.dataset)

    def compare(
        self, baseline: Any, candidate: Any, *more: str, explains: bool = True
    ) -> PipelineComparison:
        """Ask both backends, test the differences, also in ``more`` metrics; record both runs.

        If it ``explains``, the result names the steps of the candidate that lost documents.
        """
        (before, after), how = self._asked_for_comparison([baseline, candidate], more)
        compared = compare_runs(before, after, self.with_words, self.allowed, **how)
        self.record(before, compared.baseline_scores)
        self.record(after, compared.candidate_scores)
        return replace(compared, lost=self._explain(compared, candidate)) if explains else compared

    def _explain(self, compared: PipelineComparison, spec: Any) -> GoldenLosses | None:
        """Explain the labelled documents that the baseline showed first, in the first ten."""

        def first_labels(query: GoldenQuery) -> GoldenQuery:
            ranks = compared.baseline.ranks(query.id)
            labels = [one.model_copy(update={"span": None}) for one in query.expected if one.grade]
            labels.sort(key=lambda one: ranks.get(one.path, len(ranks) + 1))
            return query.model_copy(update={"expected": (*labels[:_LABELS],)})

        run = compared.candidate
        lost = [one.query for one in compared.deltas if one.delta < -TIE]
        lost = [query for query in lost if query.id not in run.errors][:_EXPLAINED]
        if not lost or run.identity.get("pipeline") != "v2":
            return None
        with Backends(self.library, self.dataset) as backends:
            backend = backends.load(spec)
            assert isinstance(backend, V2Backend)
            params = SearchParams("", dataset=self.dataset, mode=backend.mode, top_k=SHOWN)
            some = GoldenSet(self.queries.name, tuple(map(first_labels, lost)))
            progress = self.progress or Silent()
            return explain_golden(backend.service.parts, params, some, progress, tries=False)

    def compare_all(self, specs: Sequence[Any], *more: str) -> SystemsComparison:
        """Do the same with three or more backends, the baseline first."""
        runs, how = self._asked_for_comparison(specs, more)
        compared = compare_systems(runs, self.with_words, self.allowed, **how)
        for run in runs:
            self.record(run, compared.scores[run.name])
        return compared

    def _asked_for_comparison(
        self, specs: Sequence[Any], more: Sequence[str]
    ) -> tuple[list[BackendRun], dict[str, Any]]:
        """Return the runs of these backends, and which metrics and warnings go with them."""
        runs = self.ask(specs)
        for run in runs:
            require_known_names(run, self.queries, self.names["documents"])
        warnings = find_label_warnings(self.queries, self.library.database, self.dataset)
        return runs, {"metrics": (*SHOWN_METRICS, *more), "warnings": warnings}

    def ask(self, specs: Sequence[Any], other: Library | None = None) -> list[BackendRun]:
        """Put every query to the backends of these specs; return their runs, in order.

        With an ``other`` library the last spec is searched there. Raises
        :class:`StoreBusyError` if the dataset changes meanwhile.
        """
        database, dataset = self.library.database, self.dataset
        self.library.require_dataset(dataset)
        corpus = corpus_digest(database, dataset)
        second = Backends(other or self.library, dataset, tell=self.tell)
        with Backends(self.library, dataset, tell=self.tell) as backends, second:
            *most, last = specs
            runs = run_backends(
                [*map(backends.load, most), (second if other else backends).load(last)],
                self.queries,
                dataset=dataset,
                top_k=self.top_k,
                repeats=self.repeats,
                progress=self.progress,
                allowed=self.allowed,
                **self.names,
            )
        if corpus_digest(database, dataset) != corpus:
            raise StoreBusyError(
                f"{dataset!r} changed during the measurement: measure again after updates"
            )
        return runs

    def earlier(self, specs: Sequence[str]) -> dict[str, EvalRun]:
        """Return the recorded runs of specs under which nothing has changed since."""
        records, of = {}, (self.queries, self.dataset, self.top_k)
        with Backends(self.library, self.dataset) as backends:
            for spec in specs:
                identity = backends.load(spec).identity
                if "pipeline" not in identity:  # another's search may change unseen
                    continue
                if (record := find_recorded_run(self.library.database, identity, *of)) is not None:
                    self.tell(f"{spec}: reusing run {record.id}")
                    records[spec] = record
        return records

    def record(self, run: BackendRun, scores: RunScores) -> EvalRun:
        """Record a run in the store, and write its TREC file if there is a folder for it."""
        record = record_run(self.library.database, run, scores, self.queries, now=time.time())
        if self.folder is not None:
            write_run(self.folder, record.backend, record.lists)
        return record
