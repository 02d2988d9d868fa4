"""Ask labelled questions with ``ask``, and record the answers as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from catalog.answers.answering import answer_question, choose_llm
from catalog.core.agents import read_agent, with_agent
from catalog.core.errors import BackendError, CatalogError, StoreBusyError
from catalog.core.params import AskParams
from catalog.core.settings.loading import default_shaping, flatten
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.answer_metrics import (
    ANSWER_METRICS,
    AnswerRecord,
    assign_nuggets,
    score_answers,
)
from catalog.evaluation.backends import code_digest, public_settings
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.metrics import SHOWN_METRICS, score_run
from catalog.evaluation.report_text import aligned, render_template
from catalog.evaluation.run_records import corpus_digest, record_run, run_key
from catalog.evaluation.runs import BackendRun, QueryOutcome
from catalog.evaluation.significance import mean_interval
from catalog.evaluation.summary import run_dict
from catalog.ingest.sync_report import Progress
from catalog.llm import LanguageModel
from catalog.store import llm_cache
from catalog.store.eval_runs import EvalRun
from catalog.store.llm_cache import CacheEntry, ModelCache, cache_key
from catalog.store.manifest import read_dataset_settings

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher

_NO_MATTER = {
    *("qdrant_url", "qdrant_api_key", "rerank_api_key", "api_key", "provider", "model", "url"),
    *("query_cache_size", "cache_ttl_seconds", "timeout_seconds", "threads", "roles", "tool"),
    *("balanced", "premium", "prices", "agents", "citations"),
}
"""Settings that change no answer, or are named by the model."""
_OF_ONE_QUESTION = {
    *("question", "dataset", "agent", "agent_hint", "role", "model", "docs", "file_type", "name"),
    *("filters", "after", "before", "strict"),
}


@dataclass(frozen=True)
class AnswerJob:
    """A run to make: ask a service each query of a golden set with ``params``.

    ``llm`` writes the answers; with ``None`` they are extracted. ``judge`` assigns nuggets; with
    ``None`` the support check does.
    """

    service: Searcher
    golden: GoldenSet
    dataset: str
    params: AskParams
    llm: LanguageModel | None
    judge: LanguageModel | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return everything that the answers depend on, except documents and questions."""
        agent = read_agent(self.service.parts.settings, self.params.agent)
        params = with_agent(self.params, agent)
        settings = self.service.parts.settings
        with self.service.parts.database.read() as connection:
            made = read_dataset_settings(connection, self.dataset)
        rag = public_settings(settings.rag_v2, _NO_MATTER)
        asked = {field.name for field in fields(AskParams)} - _OF_ONE_QUESTION
        return {
            "pipeline": "answers",
            "model": "none" if self.llm is None else self.llm.identity,
            "embedding": self.service.library.wanted_model.fingerprint,
            "agent": agent.model_dump(mode="json"),
            "asked": {name: getattr(params, name) for name in sorted(asked)},
            "rag_v2": {name: rag[name] for name in rag if name not in default_shaping()},
            "answers": public_settings(settings.answers, _NO_MATTER),
            "llm": public_settings(settings.llm, _NO_MATTER),
            "dataset_settings": dict(made.values) if made else {},
            "judge": "none" if self.judge is None else self.judge.identity,
            "code": code_digest(),
        }

    @property
    def name(self) -> str:
        """The run's name: who writes."""
        return "ask" if self.llm is None else f"ask by {self.llm.name}"

    @property
    def depth(self) -> int:
        """Number of passages for each question."""
        return self.params.top_k or self.service.parts.rag.top_k


def make_job(
    service: Searcher,
    golden: GoldenSet,
    dataset: str,
    params: AskParams,
    judge: str | None = None,
) -> AnswerJob:
    """Return the job with the models that ``params`` and ``judge`` name.

    Raises :class:`~catalog.core.errors.ConfigError` kinds for an unavailable model.
    """
    agent = read_agent(service.parts.settings, params.agent)
    llm = choose_llm(service.library, params.model, agent.profile)
    model = None if judge is None else choose_llm(service.library, judge, "premium")
    return AnswerJob(service, golden, dataset, params, llm, model)


def run_answers(job: AnswerJob, *, progress: Progress, now: Callable[[], float]) -> EvalRun:
    """Ask every question; record run, scores and answers; return the record.

    Each answer is kept in the store until the run is recorded, so that an interrupted run can be
    continued by asking for it again. A question whose model fails counts as failed. If all fail, no
    run is recorded and :class:`BackendError` is raised. If the dataset changes meanwhile,
    :class:`StoreBusyError` is raised.
    """
    database, golden = job.service.parts.database, job.golden
    corpus = corpus_digest(database, job.dataset)
    identity = job.identity
    run = run_key(database, identity, golden, job.dataset, job.depth)
    keys = {query.id: cache_key("answer", run, query.id) for query in golden}
    lifetime = job.service.parts.rag.cache_ttl_seconds
    cache = ModelCache(database, kind="answer", lifetime=lifetime)
    kept = cache.get(list(keys.values()))
    answers: dict[str, AnswerRecord] = {}
    errors: dict[str, str] = {}
    progress.start(len(golden))
    for query in golden:
        if (value := kept.get(keys[query.id])) is not None:
            answers[query.id] = AnswerRecord.model_validate_json(value)
        else:
            try:
                answers[query.id] = record = _answer(job, query)
            except CatalogError as error:
                errors[query.id] = f"{type(error).__name__}: {error}"
            else:
                cache.put({keys[query.id]: CacheEntry(record.model_dump_json())}, model=job.name)
        progress.advance(1, "asking", f"{len(errors)} failed" if errors else "")
    if not answers:
        raise BackendError(f"{job.name} failed on every question: {next(iter(errors.values()))}")
    if corpus_digest(database, job.dataset) != corpus:
        raise StoreBusyError(f"{job.dataset!r} changed during the measurement: measure again")
    recorded = _record(job, identity, answers, errors, now())
    with database.write() as connection:
        llm_cache.drop(connection, keys.values())
    return recorded


def _answer(job: AnswerJob, query: GoldenQuery) -> AnswerRecord:
    """Ask one question; raise if a model or stage fails, because a fallback would hide that."""
    params = replace(
        job.params, question=query.query, dataset=job.dataset, filters=query.filters, strict=True
    )
    if job.llm is None:
        params = replace(params, model="none")
    if params.judge is None and job.service.parts.settings.answers.judge is None:
        params = replace(params, judge=False)  # whether it is asked depends on its speed
    answer = answer_question(job.service, params, llm=job.llm)
    if answer.abstained is not None:
        return AnswerRecord.of(answer)
    seconds = job.service.parts.settings.llm.timeout_seconds
    return AnswerRecord.of(answer, assign_nuggets(query, answer.text, job.judge, seconds))


def _record(
    job: AnswerJob,
    identity: dict[str, Any],
    answers: dict[str, AnswerRecord],
    errors: dict[str, str],
    now: float,
) -> EvalRun:
    outcomes = {
        query.id: QueryOutcome(None, error=errors[query.id])
        if query.id in errors
        else QueryOutcome(_ranking(answers[query.id], query), ms=(answers[query.id].elapsed_ms,))
        for query in job.golden
    }
    run = BackendRun(job.name, identity, job.dataset, job.depth, outcomes)
    scores = score_run(run, job.golden)
    of_answers = {name: by for name, by in score_answers(job.golden, answers).items() if by}
    scores = replace(scores, per_query={**scores.per_query, **of_answers})
    records = {query: record.model_dump(mode="json") for query, record in answers.items()}
    return record_run(job.service.parts.database, run, scores, job.golden, now=now, answers=records)


def _ranking(answer: AnswerRecord, query: GoldenQuery) -> Ranking:
    hits = (
        RankedHit(one.path, one.score, also_in=tuple(RankedHit(path) for path in one.paths[1:]))
        for one in answer.passages
    )
    ranking = Ranking(tuple(hits), low_confidence=answer.low_confidence)
    return ranking.as_judged(query.grades)


_SHOWN = (*SHOWN_METRICS[:-1], *ANSWER_METRICS)
_FAILURES_SHOWN = 3


def read_answers(run: EvalRun) -> dict[str, AnswerRecord]:
    """Return the answers of a run by query id; ``{}`` for a run of searches."""
    return {query: AnswerRecord.model_validate(value) for query, value in run.answers.items()}


def answer_run_lines(run: EvalRun) -> Iterator[str]:
    """Yield each metric with its interval, then the number of answers, their time and cost."""
    yield f"{run.golden} on {run.dataset}: {run.queries} questions, {run.backend}; run {run.id}"
    rows = [("metric", "n", "mean", "95 % interval")]
    for name, row in measured(run).items():
        ends = f"[{row['low']:.3f}, {row['high']:.3f}]"
        rows.append((name, str(row["n"]), f"{row['mean']:.3f}", ends))
    yield from aligned(rows)
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
        del value["nuggets"]  # nugget scores compare runs, not single questions
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
    """Return the number of answered questions and sentences, and their time and cost."""
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


def render_answers(run: EvalRun, golden: GoldenSet) -> str:
    """Return the report as HTML; equal runs give equal pages."""
    answers, errors = read_answers(run), run.summary["errors"]
    asked = [(query, answers.get(query.id), errors.get(query.id)) for query in golden]
    questions = [(*one, [*_problems(*one[:2])]) for one in asked]
    page = {
        "headline": f"Answers to {run.golden} from {run.dataset}, {run.backend}",
        "run": run.id,
        "created": datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "account": account(run),
        "metrics": measured(run),
        "questions": sorted(questions, key=lambda one: not one[-1]),
        "settings": dict(flatten(run.identity)),
    }
    return render_template("answers.html.j2", page)


def _problems(query: GoldenQuery, answer: AnswerRecord | None) -> Iterator[str]:
    if answer is None:
        yield "it failed"
    elif answer.reason is not None:
        if query.has_answer:
            yield "not answered"
    else:
        if not query.has_answer:
            yield "answered, but it has no answer"
        elif query.relevant and not any(one.is_of(query.relevant) for one in answer.cited):
            yield "no labelled document is cited"
        if any(not one.supported for one in answer.sentences):
            yield "a sentence is unsupported"
