"""Stored runs: their records, the key that finds equal runs, and their comparison."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from catalog.core.errors import InputError
from catalog.core.settings.loading import flatten
from catalog.core.text import storable
from catalog.evaluation.answer_metrics import COMPARED
from catalog.evaluation.comparison import shared_columns
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import QUALITY, SHOWN_METRICS, RunScores
from catalog.evaluation.runs import BackendRun
from catalog.evaluation.significance import PairedTest, holm, paired_test
from catalog.store import Database
from catalog.store.eval_runs import EvalRun, add_run, find_latest_run, read_corpus_state
from catalog.store.manifest import read_dataset_settings


def run_key(
    database: Database,
    identity: Mapping[str, object],
    golden: GoldenSet,
    dataset: str,
    top_k: int,
) -> str:
    """Hash everything that a run's lists depend on; hexadecimal.

    That is the backend's identity (settings, model, code), every document's content and how it was
    cut, the queries with their labels, and the depth.
    """
    corpus = corpus_digest(database, dataset)
    return _digest([dict(identity), dataset, corpus, golden.digest, top_k])


def corpus_digest(database: Database, dataset: str) -> str:
    """Hash every document's content and how it was cut and embedded; hexadecimal."""
    with database.read() as connection:
        return _digest(read_corpus_state(connection, dataset))


def record_run(
    database: Database,
    run: BackendRun,
    scores: RunScores,
    golden: GoldenSet,
    *,
    now: float,
    answers: Mapping[str, Any] | None = None,
) -> EvalRun:
    """Store a run and return its record; ``now`` is the time in seconds.

    ``answers`` are by query id and ready for JSON, for a run that asked for answers. The dataset's
    own settings are stored with the run's identity.
    """
    with database.read() as connection:
        made = read_dataset_settings(connection, run.dataset)
    errors = {query: storable(reason) for query, reason in run.errors.items()}
    record = EvalRun(
        id=uuid4().hex[:12],  # short enough to type
        key=run_key(database, run.identity, golden, run.dataset, run.top_k),
        created_at=now,
        dataset=run.dataset,
        golden=golden.name,
        labels=golden.digest,
        backend=run.name,
        queries=len(golden),
        top_k=run.top_k,
        identity={**run.identity, "dataset_settings": dict(made.values) if made else {}},
        scores=scores.per_query,
        summary=summarize_scores(scores) | {"errors": errors},
        lists={query: list(run.documents(query)) for query in run.outcomes},
        answers=answers or {},
    )
    with database.write() as connection:
        add_run(connection, record)
    return record


def summarize_scores(scores: RunScores) -> dict[str, Any]:
    """Return means and everything else that is not per query, ready for JSON."""
    summary = asdict(scores)
    del summary["per_query"]
    return {"metrics": scores.means, **summary}


def find_recorded_run(
    database: Database,
    identity: Mapping[str, object],
    golden: GoldenSet,
    dataset: str,
    top_k: int,
) -> EvalRun | None:
    """Return the latest run with this key and without a failed query, else ``None``."""
    key = run_key(database, identity, golden, dataset, top_k)
    with database.read() as connection:
        run = find_latest_run(connection, key)
    return None if run is None or run.summary["failed"] else run


@dataclass(frozen=True)
class RunDifference:
    """Two records, the changes between them, and their effect.

    ``changed`` is dotted name → (before, after) of the identities. ``tests`` are paired, over the
    queries that have a score in both; ``adjusted`` has their p corrected for the number of metrics.
    """

    before: EvalRun
    after: EvalRun
    changed: Mapping[str, tuple[object, object]]
    tests: Mapping[str, PairedTest]
    adjusted: Mapping[str, float]


def diff_runs(before: EvalRun, after: EvalRun) -> RunDifference:
    """Compare two records; raises :class:`InputError` if their queries differ."""
    if before.labels != after.labels:
        raise InputError(
            f"{before.id} and {after.id} have different queries or labels ({before.golden}, "
            f"{after.golden}) and cannot be compared"
        )
    is_of_answers = bool(before.answers and after.answers)
    metrics = (*SHOWN_METRICS[:-1], *COMPARED) if is_of_answers else QUALITY
    columns = {metric: shared_columns(before.scores, after.scores, metric) for metric in metrics}
    tests = {metric: paired_test(*both) for metric, both in columns.items() if both[0]}
    changed = changed_settings(before.identity, after.identity)
    adjusted = holm({metric: test.p for metric, test in tests.items()}) if tests else {}
    return RunDifference(before, after, changed, tests, adjusted)


def changed_settings(
    before: Mapping[str, object], after: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """Return what differs between two identities: dotted name → (before, after)."""
    old, new = dict(flatten(before)), dict(flatten(after))
    return {
        name: (old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
