"""The research questions R-01 to R-03, each with a table and one plain recommendation.

R-01: how many passages to ask for. R-02: which threshold separates questions with and without an
answer. R-03: whether to embed queries in batches and to cache their vectors. A recommendation names
its evidence, because a few questions can show a problem but hardly the absence of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from catalog.evaluation.report_text import format_ms, format_score, format_share
from catalog.evaluation.significance import MIN_QUERIES, share_interval, wilson_interval
from catalog.evaluation.validation.measurement import (
    EmbeddingTimes,
    QueryMeasurement,
    ShownPassage,
    SuiteRun,
)
from catalog.evaluation.validation.run import DEPTHS
from catalog.evaluation.validation.suite import ScoreKind

THRESHOLDS: Mapping[ScoreKind, tuple[float, ...]] = {
    "relevance": (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "cosine": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8),
}
_ROUNDING = 1e-9
_CLEARLY_FASTER = 0.8  # of the time for single queries: a smaller saving is not worth batching


@dataclass(frozen=True, slots=True)
class ResearchAnswer:
    """A question, the table that answers it (``head`` has the column names), and what to do."""

    id: str
    question: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    recommendation: str
    support: str


def answer_research(run: SuiteRun) -> tuple[ResearchAnswer, ...]:
    """Answer R-01, R-02 and R-03 from the measurements."""
    return _top_k(run), _threshold(run), _caching(run.embedding)


def _top_k(run: SuiteRun) -> ResearchAnswer:
    asked = [one for one in run.answerable if one.by_depth]
    head = ("k", "recall@k", "precision@k", "passages", "right ones found", "search")
    question = "How many passages should be asked for (top-k)?"
    if not asked:
        advice = "None can be named: no question that has an answer was searched for."
        return ResearchAnswer("R-01", question, head, (), advice, "")
    lists = {depth: [(one, *(one.by_depth or {})[depth]) for one in asked] for depth in DEPTHS}
    rows = tuple(_depth_row(depth, answers) for depth, answers in lists.items())
    recalls = {
        depth: [one.recall(passages) for one, passages, _ in answers]
        for depth, answers in lists.items()
    }
    precisions = {
        depth: fmean(one.precision(passages) for one, passages, _ in answers)
        for depth, answers in lists.items()
    }
    best = max(map(fmean, recalls.values()))
    least = next(depth for depth in DEPTHS if fmean(recalls[depth]) >= best - _ROUNDING)
    limit = run.suite.limits.precision
    most = max((k for k in DEPTHS if k >= least and precisions[k] >= limit), default=least)
    reach = f"{least}" if most == least else f"{least} to {most}"
    advice = (
        f"Ask for {reach}: from {least} on recall is the best there is ({format_score(best)}), and "
        + (
            f"up to {most} at least {format_share(limit)} of the passages are right (the limit)."
            if precisions[least] >= limit
            else f"precision is under its limit ({format_share(limit)}): better ranking is needed."
        )
    )
    gained = sum(
        recall > first for recall, first in zip(recalls[least], recalls[DEPTHS[0]], strict=True)
    )
    support = f"{gained} of {len(asked)} questions need more than {DEPTHS[0]}. {_few(len(asked))}"
    return ResearchAnswer("R-01", question, head, rows, advice, support)


def _depth_row(
    depth: int, answers: Sequence[tuple[QueryMeasurement, tuple[ShownPassage, ...], float]]
) -> tuple[str, ...]:
    right = sum(passage.is_right for _, passages, _ in answers for passage in passages)
    return (
        str(depth),
        _mean_and_interval([one.recall(passages) for one, passages, _ in answers]),
        _mean_and_interval([one.precision(passages) for one, passages, _ in answers]),
        f"{fmean(len(passages) for _, passages, _ in answers):.1f}",
        f"{right} of {sum(one.available for one, _, _ in answers)}",
        format_ms(fmean(ms for _, _, ms in answers)),
    )


def _threshold(run: SuiteRun) -> ResearchAnswer:
    answerable = [one for one in run.answerable if one.unfiltered]
    others = [one for one in run.unanswerable if not one.failures]
    score = _known_score(run, (*answerable, *others))
    head = ("threshold", "recall", "precision", "answered left empty", "non-existent not empty")
    question = f"Which threshold of {score or run.suite.score} tells passages that answer?"
    if score is None:
        advice = f"None can be set: passages of this search have no {run.suite.score}."
        support = "Fit a calibration of your own with `catalog golden calibrate`."
        return ResearchAnswer("R-02", question, head, (), advice, support)
    rows = []
    for limit in THRESHOLDS[score]:
        kept = [_above(_first(run, one), limit, score) for one in answerable]
        shown = [passage for passages in kept for passage in passages]
        recall = [one.recall(passages) for one, passages in zip(answerable, kept, strict=True)]
        right = sum(passage.is_right for passage in shown)
        told = sum(bool(_above(_first(run, one), limit, score)) for one in others)
        rows.append(
            (
                f"{limit:.2f}",
                _mean_and_interval(recall),
                f"{right} of {len(shown)}",
                f"{sum(not passages for passages in kept)} of {len(kept)}",
                f"{told} of {len(others)}",
            )
        )
    advice, support = _separation(run, answerable, others, score)
    return ResearchAnswer("R-02", question, head, tuple(rows), advice, support)


def _known_score(run: SuiteRun, asked: Sequence[QueryMeasurement]) -> ScoreKind | None:
    """Return the suite's score if passages have it, else the cosine; ``None`` without either.

    A passage found only by its words has no cosine and counts as far.
    """
    passages = [passage for one in asked for passage in _first(run, one)]
    if run.suite.score == "relevance" and all(one.relevance is not None for one in passages):
        return "relevance"
    return "cosine" if any(one.cosine is not None for one in passages) else None


def _separation(
    run: SuiteRun,
    answerable: Sequence[QueryMeasurement],
    others: Sequence[QueryMeasurement],
    score: ScoreKind,
) -> tuple[str, str]:
    """Return the threshold between the two kinds of questions, ``None`` if they overlap."""
    if not answerable or not others:
        lacking = "non-existent" if answerable else "answerable"
        return f"None: the suite has no {lacking} question to tell one by.", ""
    best_right = [_best(_right(_first(run, one)), score) for one in answerable]
    best_other = [_best(_first(run, one), score) for one in others]
    low, high = max(best_other), min(best_right)
    held = sum(one < high for one in best_other)
    bounds = " to ".join(map(format_share, wilson_interval(held, len(others))))
    support = (
        f"The best right passage scores {high:.2f} at least over {len(answerable)} answerable "
        f"questions, the best passage {low:.2f} at most over {len(others)} non-existent. {held} of "
        f"{len(others)} non-existent questions score below every answerable one (95 % interval "
        f"{bounds}). {_few(len(others))}"
    )
    if low >= high:
        return (
            f"No threshold of {score} tells them apart here: leave similarity_threshold at 0 and "
            "let answers be checked (`catalog ask` abstains).",
            support,
        )
    middle = f"{(low + high) / 2:.2f}"
    if score == "cosine":
        return (
            f'Hold an answer as doubtful below a cosine of {middle} (`score = "cosine"` and '
            f"`threshold = {middle}` in the suite), the middle between the two kinds of questions.",
            support,
        )
    return (
        f"Hold an answer as doubtful below {middle} (low_confidence_below), the middle between the "
        "two kinds of questions; leave out passages (similarity_threshold) only where the table "
        "shows no loss of recall.",
        support,
    )


def _caching(times: EmbeddingTimes) -> ResearchAnswer:
    question = "Should queries be embedded in batches, and their vectors be kept?"
    head = ("a query's vector", "time for each", "beside alone")
    if times.alone is None or times.batched is None or times.cached is None:
        return ResearchAnswer(
            "R-03", question, head, (), "Neither matters: nothing is embedded in this mode.", ""
        )
    named = (
        ("embedded alone", times.alone),
        (f"embedded in a batch of {times.count}", times.batched),
        ("from the cache", times.cached),
    )
    rows = tuple(
        (name, format_ms(ms), f"{ms / times.alone:.2f}" if times.alone else "–")
        for name, ms in named
    )
    is_faster = times.batched < _CLEARLY_FASTER * times.alone
    batches = (
        "embed queries that are there at once in a batch (saves "
        f"{format_ms(times.alone - times.batched)} for each)"
        if is_faster
        else "do not gather queries into batches (it saves little or nothing here)"
    )
    advice = (
        f"Keep vectors of questions (query_cache_size above 0: a repeated question saves "
        f"{format_ms(max(0.0, times.alone - times.cached))}); {batches}."
    )
    support = (
        f"Medians over {times.count} different queries on this machine. How often users "
        "repeat a question is not measured here (see `catalog logs stats`)."
    )
    return ResearchAnswer("R-03", question, head, rows, advice, support)


def _first(run: SuiteRun, measured: QueryMeasurement) -> tuple[ShownPassage, ...]:
    return measured.unfiltered[: run.top_k]


def _above(
    passages: Sequence[ShownPassage], limit: float, score: ScoreKind
) -> tuple[ShownPassage, ...]:
    return tuple(one for one in passages if (one.strength(score) or 0.0) >= limit)


def _right(passages: Sequence[ShownPassage]) -> tuple[ShownPassage, ...]:
    return tuple(one for one in passages if one.is_right)


def _best(passages: Sequence[ShownPassage], score: ScoreKind) -> float:
    return max((one.strength(score) or 0.0 for one in passages), default=0.0)


def _mean_and_interval(values: Sequence[float]) -> str:
    if not values:
        return "–"
    interval = share_interval(values)
    return f"{fmean(values):.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _few(count: int) -> str:
    if count >= MIN_QUERIES:
        return ""
    return f"{count} {'is' if count == 1 else 'are'} few: a hint, to be tried on {MIN_QUERIES}."
