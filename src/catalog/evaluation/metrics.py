"""Scores of a run: the field's metrics by ir-measures, and some that these lack.

Grades above 0 are relevant. nDCG uses grades as gains and a log2 discount, like trec_eval (Järvelin
and Kekäläinen 2002). RR is the reciprocal rank of the first relevant document, R recall, P
precision, Success whether any relevant document was found, Judged the share of judged documents.
Metrics are over documents; a query that failed or found nothing scores 0. A passage shown once for
several documents (``also_in``) counts for those that are labelled relevant.

SR, span recall, is the share of a query's labelled spans that its first passages contain, AllSpans
whether they contain all. These are over passages, so that searches with other chunks can be
compared: SR@10 over ten passages, and SR@5000c over an equal amount of text, 5,000 characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from catalog.core.errors import InputError
from catalog.core.user_search import RankedHit
from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet
from catalog.evaluation.runs import Allowed, BackendRun

PRIMARY = "nDCG@10"
MEASURES = (
    PRIMARY,
    "RR@10",
    "R@5",
    "R@10",
    "R@100",
    "Success@1",
    "Success@3",
    "Success@5",
    "P@1",
    "P@5",
    "P@10",
    "Judged@10",
)
SPAN_METRICS = ("SR@5", "SR@10", "AllSpans@10", "SR@5000c")
"""Measured where labels have spans, for passages with a text or times."""
SHOWN_SPAN_METRICS = SPAN_METRICS[1:]
QUALITY = (*MEASURES[:-1], *SPAN_METRICS)  # more judged is not better
SHOWN_METRICS = (PRIMARY, "Success@1", "R@10", "R@100")
"""Metrics shown unless others are named: the order of the first ten, whether the first is right,
whether all are among ten, and among a hundred. The others repeat one of them nearly query by query
(docs/explanation/evaluation.md), and every metric more costs the rest power under Holm's
correction."""
_ALIASES = {"mrr": "rr", "recall": "r", "hit": "success", "precision": "p"}
SHOWN = 10  # passages of an answer that a person looks at


@dataclass(frozen=True)
class Timing:
    """Milliseconds: median and 95th percentile over all queries and repetitions."""

    p50: float
    p95: float


@dataclass(frozen=True)
class Unanswerable:
    """The queries without an answer, and for how many of them some passage was found.

    ``doubted`` counts those for which the backend was not certain; ``None`` if it has no certainty.
    """

    n: int
    answered: int
    doubted: int | None


@dataclass(frozen=True)
class RunScores:
    """Scores of one run; ``per_query`` is metric → query id → score, over answerable queries.

    :data:`SPAN_METRICS` have only the queries for which they can be told, and are absent without.
    ``characters`` is the mean length of the first 10 passages together, ``None`` if unknown.
    Rates are shares of all queries, 0 to 1; ``None`` if the run does not have them.
    ``exact_recall`` is recall@10 of documents over queries of kind exact. ``scope_violations``
    counts passages that a query's filters forbid, including those that were cut for this reason.
    """

    name: str
    per_query: Mapping[str, Mapping[str, float]]
    latency: Timing | None
    stages: Mapping[str, Timing]
    distinct_documents: float
    empty_rate: float
    failed: int
    low_confidence_rate: float | None
    stability: float | None
    scope_violations: int | None
    exact_recall: float | None
    unanswerable: Unanswerable
    characters: float | None = None

    @cached_property
    def means(self) -> dict[str, float]:
        """Return each metric's mean over the answerable queries."""
        return {name: fmean(values.values()) for name, values in self.per_query.items() if values}


def find_metric(name: str) -> str | None:
    """Return the metric of that name in any case, also ``mrr@10`` and the like, or ``None``."""
    base, _, depth = name.casefold().partition("@")
    wanted = f"{_ALIASES.get(base, base)}@{depth}"
    return next((metric for metric in QUALITY if metric.casefold() == wanted), None)


def require_metric(name: str) -> str:
    """Return the metric of that name; raise :class:`InputError` that lists the metrics."""
    metric = find_metric(name)
    if metric is None:
        raise InputError(f"no metric {name!r}; known: {', '.join(QUALITY)}")
    return metric


def score_run(run: BackendRun, golden: GoldenSet, allowed: Allowed | None = None) -> RunScores:
    """Score one run; ``allowed`` gives the documents that a filtered query may show."""
    answers = {query.id: run.outcomes[query.id].answer for query in golden}
    doubts = [answer.low_confidence for answer in answers.values() if answer is not None]
    stable = [outcome.stable for outcome in run.outcomes.values() if outcome.stable is not None]
    answered = [answer for answer in answers.values() if answer is not None and answer.hits]
    distinct = [len({hit.path for hit in answer.hits[:SHOWN]}) for answer in answered]
    per_query = _per_query(run, golden.answerable) | _span_scores(run, golden.answerable)
    lengths = [sum(len(hit.text) for hit in answer.hits[:SHOWN]) for answer in answered]
    exact = [query.id for query in golden.answerable if query.kind == "exact"]
    return RunScores(
        name=run.name,
        per_query=per_query,
        latency=timing(ms for outcome in run.outcomes.values() for ms in outcome.ms),
        stages=_stage_timings(run),
        distinct_documents=_mean(distinct) or 0.0,
        empty_rate=1 - len(answered) / len(golden),
        failed=len(run.errors),
        low_confidence_rate=_mean([doubt for doubt in doubts if doubt is not None]),
        stability=_mean(stable),
        scope_violations=None if allowed is None else _violations(run, golden, allowed),
        exact_recall=_mean([per_query["R@10"][query] for query in exact]),
        unanswerable=_unanswerable(run, golden.unanswerable),
        characters=_mean(lengths) if any(lengths) else None,
    )


def timing(milliseconds: Iterable[float]) -> Timing | None:
    """Return median and 95th percentile (linear interpolation); ``None`` if nothing was timed."""
    values = list(milliseconds)
    if not values:
        return None
    p50, p95 = np.percentile(values, (50, 95))
    return Timing(float(p50), float(p95))


def _per_query(run: BackendRun, queries: Sequence[GoldenQuery]) -> dict[str, dict[str, float]]:
    import ir_measures

    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    # Numbers for names: the metrics are computed in C, which crashes on some characters.
    of_query = {query.id: str(number) for number, query in enumerate(queries)}
    of_document: dict[str, str] = {}
    qrels = [
        ir_measures.Qrel(of_query[query.id], _number(of_document, label.path), label.grade)
        for query in queries
        for label in query.expected
    ]
    hits = [
        ir_measures.ScoredDoc(of_query[query.id], _number(of_document, path), float(-rank))
        for query in queries
        for rank, path in enumerate(run.documents(query.id))
    ]
    scores: dict[str, dict[str, float]] = {
        name: {query.id: 0.0 for query in queries} for name in MEASURES
    }
    if queries and hits:
        for value in ir_measures.iter_calc(measures, qrels, hits):
            query = queries[int(value.query_id)].id
            scores[str(value.measure)][query] = float(value.value)
    return scores


def has_spans(query: GoldenQuery) -> bool:
    """Return whether a label of the query names the words or the place of an answer."""
    return any(label.span is not None for label in query.expected if label.grade > 0)


def _span_scores(run: BackendRun, queries: Sequence[GoldenQuery]) -> dict[str, dict[str, float]]:
    """Return the span metrics by query; without those that the passages do not tell."""
    answers = {query.id: run.outcomes[query.id].answer for query in queries if has_spans(query)}
    lists = {query: answer.hits if answer else () for query, answer in answers.items()}
    scores: dict[str, dict[str, float]] = {}
    if not any(hit.text or hit.times for hits in lists.values() for hit in hits):
        return scores
    for query in filter(has_spans, queries):
        labels = [one for one in query.expected if one.grade > 0 and one.span is not None]
        for name in SPAN_METRICS:
            hits = _first_hits(lists[query.id], name.partition("@")[2])
            found = [_shows_span(label, hits) for label in labels]
            if None not in found:
                share = fmean(map(bool, found))
                score = share if name.startswith("SR") else float(share == 1)
                scores.setdefault(name, {})[query.id] = score
    return scores


def _first_hits(hits: Sequence[RankedHit], depth: str) -> Sequence[RankedHit]:
    """Return the first ``10`` hits, or those with the first ``5000c`` characters."""
    if not depth.endswith("c"):
        return hits[: int(depth)]
    left, first = int(depth[:-1]), []
    for hit in hits:
        if left <= 0:
            break
        also = tuple(replace(one, text=one.text[:left]) for one in hit.also_in)
        first.append(replace(hit, text=hit.text[:left], also_in=also))
        left -= len(hit.text)
    return first


def count_span_hits(hits: Sequence[RankedHit]) -> int:
    """Return how many of the hits, from the first, the span metrics read."""
    return max(len(_first_hits(hits, name.partition("@")[2])) for name in SPAN_METRICS)


def _shows_span(label: Expected, hits: Iterable[RankedHit]) -> bool | None:
    """Return whether these passages contain a label's words, or overlap its times.

    ``None``: passages of its document have nothing to compare.
    """
    span, own = label.span, [one for hit in hits for one in (hit, *hit.also_in)]
    own = [hit for hit in own if hit.path == label.path]
    assert span is not None
    is_timed, wanted = span.time_start is not None, (span.time_start, span.time_end)
    if span.text and contains_words(span.text, [hit.text for hit in own]):
        return True
    if is_timed and any(overlap(hit.times, wanted) for hit in own):
        return True
    told = [(span.text and hit.text) or (is_timed and hit.times) for hit in own]
    return False if all(told) else None


def contains_words(quote: str, texts: Iterable[str]) -> bool:
    """Return whether texts contain a quote, in one or by parts; white space does not count.

    A text that ends with the beginning of the quote, begins with its end, or is a part of it
    contains that part.
    """
    wanted, parts = "".join(quote.split()), []
    for given in ("".join(text.split()) for text in texts):
        if wanted in given:
            return True
        if (at := wanted.find(given)) >= 0:
            parts.append((at, at + len(given)))
            continue
        sizes = range(min(len(wanted), len(given)), 0, -1)
        first = next((n for n in sizes if given.endswith(wanted[:n])), 0)
        last = next((n for n in sizes if given.startswith(wanted[-n:])), 0)
        parts += [(0, first), (len(wanted) - last, len(wanted))]
    reached = 0
    for start, end in sorted(parts):
        if start <= reached:
            reached = max(reached, end)
    return reached == len(wanted)


def _number(numbers: dict[str, str], name: str) -> str:
    return numbers.setdefault(name, str(len(numbers)))


def _stage_timings(run: BackendRun) -> dict[str, Timing]:
    by_stage: dict[str, list[float]] = {}
    for outcome in run.outcomes.values():
        for stages in outcome.stages_ms:
            for stage, ms in stages.items():
                by_stage.setdefault(stage, []).append(ms)
    timings = {stage: timing(values) for stage, values in by_stage.items()}
    return {stage: times for stage, times in timings.items() if times is not None}


def _violations(run: BackendRun, golden: GoldenSet, allowed: Allowed) -> int:
    count = 0
    for query in golden:
        paths = allowed(query) if query.filters is not None else None
        answer = run.outcomes[query.id].answer
        if paths is not None and answer is not None:
            count += run.outcomes[query.id].forbidden
            count += sum(hit.path not in paths for hit in answer.hits[:SHOWN])
    return count


def overlap(
    range_: tuple[float | None, float | None] | None, other: tuple[float | None, float | None]
) -> bool:
    """Return whether two ranges, both ends included, overlap; a range without an end does not."""
    if range_ is None or None in range_ or None in other:
        return False
    return range_[0] <= other[1] and other[0] <= range_[1]  # type: ignore[operator]


def _unanswerable(run: BackendRun, queries: Sequence[GoldenQuery]) -> Unanswerable:
    answers = [run.outcomes[query.id].answer for query in queries]
    answered = [answer for answer in answers if answer is not None and answer.hits]
    doubts = [answer.low_confidence for answer in answered]
    has_doubts = any(doubt is not None for doubt in doubts)
    return Unanswerable(len(queries), len(answered), sum(map(bool, doubts)) if has_doubts else None)


def _mean(values: Sequence[Any]) -> float | None:
    return fmean(map(float, values)) if values else None
