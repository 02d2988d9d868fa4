"""A run that asked for answers, as lines for a terminal and as a JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from catalog.evaluation.answer_metrics import ANSWER_METRICS, AnswerRecord
from catalog.evaluation.metrics import SHOWN_METRICS
from catalog.evaluation.significance import mean_interval
from catalog.evaluation.summary import run_dict
from catalog.store.eval_runs import EvalRun

_SHOWN = (*SHOWN_METRICS[:-1], *ANSWER_METRICS)
_FAILURES_SHOWN = 3


def read_answers(run: EvalRun) -> dict[str, AnswerRecord]:
    """Return what a run answered, by query id; nothing of a run of searches."""
    return {query: AnswerRecord.model_validate(value) for query, value in run.answers.items()}


def answer_run_lines(run: EvalRun) -> Iterator[str]:
    """Yield each metric with its interval, then how many were answered and what that took."""
    yield f"{run.golden} on {run.dataset}: {run.queries} questions, {run.backend}; run {run.id}"
    yield f"{'metric':14}{'n':>6}{'mean':>9}{'95 % interval':>20}"
    for name, row in measured(run).items():
        interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
        yield f"{name:14}{row['n']:6}{row['mean']:9.3f}{interval:>20}"
    yield ""
    yield account(run)
    errors: Mapping[str, str] = run.summary["errors"]
    for query, reason in list(errors.items())[:_FAILURES_SHOWN]:
        yield f"! failed: {query}: {reason}"
    if len(errors) > _FAILURES_SHOWN:
        yield f"! and {len(errors) - _FAILURES_SHOWN} more"


def answer_run_dict(run: EvalRun) -> dict[str, Any]:
    """Return the run with the interval of each metric and the answers by query id."""
    answers = {query: {**value} for query, value in run.answers.items()}
    for value in answers.values():
        del value["nuggets"]  # they tell runs apart, not questions
    return run_dict(run) | {"measured": measured(run), "answers": answers}


def measured(run: EvalRun) -> dict[str, dict[str, float]]:
    """Return ``n``, ``mean`` and the ends of the 95 % interval of each metric shown."""
    rows = {}
    for name in _SHOWN:
        values = list(run.scores.get(name, {}).values())
        if values:
            mean = sum(values) / len(values)
            rows[name] = {"n": len(values), "mean": mean, **asdict(mean_interval(values))}
    return rows


def account(run: EvalRun) -> str:
    """Return how many questions were answered, in how many sentences, and what that took."""
    answers = read_answers(run).values()
    given = [one for one in answers if one.reason is None]
    sentences = [sentence for one in given for sentence in one.sentences]
    parts = [f"{len(given)} of {run.queries} questions answered"]
    unsupported = sum(not one.supported for one in sentences)
    parts.append(f"{len(sentences)} sentences, {unsupported} of them unsupported")
    if tokens := sum(one.tokens or 0 for one in answers):
        parts.append(f"{tokens:,} tokens")
    if latency := run.summary["latency"]:
        parts.append(f"p50 {latency['p50']:.0f} ms, p95 {latency['p95']:.0f} ms")
    return "; ".join(parts)
