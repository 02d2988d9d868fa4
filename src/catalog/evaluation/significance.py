"""Paired tests of two searches over the same queries: is one better, or lucky?

Most functions compare two columns of per-query scores, ``baseline`` and ``candidate``; position i
of both is the same query. Differences are candidate minus baseline, so a positive one is a gain.
Columns have at least one value and hold finite numbers. Equal arguments and seeds give equal
results. Memory grows with ``resamples``, not with ``resamples`` times the number of queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Scores = Sequence[float] | Floats

MIN_QUERIES = 25
"""Fewer queries than this decide nothing: "at least 25 and 50 is better" (Buckley and Voorhees
2000, "Evaluating evaluation measure stability", SIGIR)."""

LEVEL = 0.05
"""How often each bound of a loss, and its test, may be wrong: in one of twenty cases."""

TIE = 1e-9  # differences up to this are ties
_Z95 = 1.959963984540054
_ROUNDING = 1e-12  # rounding error of floating point, relative to the numbers compared
_CELLS = 1 << 20  # numbers drawn at a time: 8 MB


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of plausible values in the scores' own unit: ``low`` ≤ ``high``, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class McNemar:
    """Queries that only the candidate answers, that only the baseline answers, two-sided p."""

    gained: int
    lost: int
    p: float


@dataclass(frozen=True, slots=True)
class WinTieLoss:
    """Queries for which the candidate is better, equal and worse; they add up to all queries."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The result of candidate against baseline on one metric.

    ``difference`` is the mean gain and ``interval`` its plausible range. ``p`` is the probability
    that chance alone gives a difference this large in either direction. ``enough`` is False below
    :data:`MIN_QUERIES`: the numbers are computed, but should not decide anything.
    """

    n: int
    baseline_mean: float
    candidate_mean: float
    difference: float
    interval: Interval
    p: float
    wins_ties_losses: WinTieLoss
    enough: bool


@dataclass(frozen=True, slots=True)
class LossBounds:
    """Bounds of the mean difference, and p of a loss; one entry for each comparison.

    ``low`` and ``high`` are the ends of the 90 % percentile bootstrap interval, so the truth is
    beyond each in about 5 % of cases. ``safe_low`` and ``safe_high`` are the same with one
    additional query that is completely lost, or gained. They are for the claim that a loss is *not*
    larger than some amount, which queries that nobody asked could refute. ``p`` is the probability
    of a sum this low if a coin assigned each query's two scores to the two sides.
    """

    low: Floats
    high: Floats
    safe_low: Floats
    safe_high: Floats
    p: Floats


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """The state of :func:`sequential_test` after some choices.

    ``share`` is that of the candidate among the ``wins`` and ``losses``, .5 without any, and
    ``interval`` contains the true one. ``e_value`` is the evidence that it is not one half.
    ``decided_after`` is the number of choices, ties included, after which the interval first left
    out one half; ``None``: not yet.
    """

    wins: int
    ties: int
    losses: int
    share: float
    interval: Interval
    e_value: float
    decided_after: int | None


DIFFERENCES = (0.01, 0.02, 0.05)
_POWER = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.80)


@dataclass(frozen=True, slots=True)
class Power:
    """What ``n`` questions can show, with a chance of 80 %, if there is a difference.

    ``deviation`` is that of the paired differences, ``detectable`` the smallest difference, and
    ``needed`` the number of questions for each of some differences, with the ends of its 95 %
    interval, because the deviation is an estimate.
    """

    n: int
    deviation: float
    detectable: float
    needed: Mapping[float, tuple[int, int, int]]


def power_of(differences: Scores, wanted: Sequence[float] = DIFFERENCES) -> Power:
    """Compute how many questions show each mean difference ``wanted``, from the variance seen.

        n = ((z(.975) + z(.80)) · deviation / difference)², at least 25

    The test is two-sided at 5 %. ``differences`` are those of two searches by question, at least
    one; equal searches have the deviation 0. The formula is for the t test, which the randomisation
    test equals for the numbers here.

    Source: Webber, Moffat and Zobel 2008, "Statistical power in retrieval experimentation", CIKM.

    Examples:
        >>> power_of([0.1, -0.1] * 50).needed[0.02][0]
        199
    """
    values = np.asarray(differences, np.float64)
    squares = np.square(values - values.mean()) * values.size / max(1, values.size - 1)
    ends, variance = bootstrap_interval(squares), float(squares.mean())

    def needed(of: float, difference: float) -> int:
        return max(MIN_QUERIES, math.ceil(of * (_POWER / difference) ** 2))

    return Power(
        n=values.size,
        deviation=math.sqrt(variance),
        detectable=_POWER * math.sqrt(variance / max(values.size, MIN_QUERIES)),
        needed={
            one: (needed(variance, one), needed(ends.low, one), needed(ends.high, one))
            for one in wanted
        },
    )


def sequential_test(choices: Sequence[int]) -> SequentialTest:
    """Test choices between two searches in their order, and allow a look after every one.

    A choice is 1 (candidate), -1 (baseline) or 0 (a tie, which is no evidence). If both are chosen
    equally often, the chance that any of all looks decides is at most 5 %; the chance that the
    interval ever leaves out the true share is the same. With a true share of .7, half of all
    tests decide within about 45 choices that are not ties, 9 in 10 within 100.

    After w wins and l losses, the evidence against a share q is the ratio of the likelihood under a
    Beta(2, 2) mixture of shares to that under q:

        e(q) = B(2 + w, 2 + l) / B(2, 2) / (q^w (1 - q)^l)

    It is a martingale with mean 1 if q is true, so that it exceeds 20 at any time with a
    probability of at most 5 % (Ville 1939). The interval holds each q whose e(q) never did.

    Source: Robbins 1970, "Statistical methods related to the law of the iterated logarithm", Annals
    of Mathematical Statistics 41; Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic
    statistics and safe anytime-valid inference", Statistical Science 38.
    """
    wins = losses = 0
    low, high, decided = 0.0, 1.0, None
    for number, choice in enumerate(choices, start=1):
        wins, losses = wins + (choice > 0), losses + (choice < 0)
        if choice == 0:
            continue
        first, last = _plausible_shares(wins, losses)
        low, high = max(low, min(first, high)), min(high, max(last, low))
        if decided is None and not low <= 0.5 <= high:
            decided = number
    chosen = wins + losses
    return SequentialTest(
        wins=wins,
        ties=len(choices) - chosen,
        losses=losses,
        share=wins / chosen if chosen else 0.5,
        interval=Interval(low, high),
        e_value=math.exp(_log_evidence(wins, losses, 0.5)),
        decided_after=decided,
    )


_ENOUGH = math.log(20)  # log evidence that decides at the 5 % level
_MOST_NEEDED = 1000


def choices_needed(test: SequentialTest) -> int | None:
    """Return how many more choices decide if people go on choosing as so far.

    ``None`` if it is decided, or would take over 1,000.
    """
    chosen = test.wins + test.losses
    if test.decided_after is not None or chosen == 0:
        return None
    for total in range(chosen + 1, chosen + _MOST_NEEDED):
        wins = test.share * total
        if _log_evidence(wins, total - wins, 0.5) >= _ENOUGH:
            return math.ceil((total - chosen) * (chosen + test.ties) / chosen)
    return None


_PRIOR = 2.0  # both numbers of the mixture's Beta; decides soonest at shares about .7


def _log_evidence(wins: float, losses: float, share: float) -> float:
    """Return log e(share); shares of 0 and 1 are excluded by one choice against them."""
    likelihood = 0.0
    for count, chance in ((wins, share), (losses, 1.0 - share)):
        if count:
            likelihood += count * math.log(chance) if chance > 0 else -math.inf
    return _log_beta(_PRIOR + wins, _PRIOR + losses) - _log_beta(_PRIOR, _PRIOR) - likelihood


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _plausible_shares(wins: int, losses: int) -> tuple[float, float]:
    """Return the least and greatest share without enough evidence against it.

    The evidence rises from the observed share to both sides, so each end is found by halving.
    """
    middle = wins / (wins + losses)
    ends = []
    for outside in (0.0, 1.0):
        inside = middle
        if _log_evidence(wins, losses, outside) > _ENOUGH:
            for _ in range(50):
                half = (inside + outside) / 2
                is_plausible = _log_evidence(wins, losses, half) <= _ENOUGH
                inside, outside = (half, outside) if is_plausible else (inside, half)
        else:
            inside = outside
        ends.append(inside)
    return ends[0], ends[1]


def paired_test(
    baseline: Scores, candidate: Scores, *, resamples: int = 10_000, seed: int = 0
) -> PairedTest:
    """Compute the means, their difference with interval and p, and the count of wins.

    With several metrics or candidates, pass the p-values through :func:`holm` before believing any
    of them. The interval is that of the bootstrap. It is widened to include 0 if the test does not
    exclude 0, so that both say the same; a wider interval is wrong less often.
    """
    before, after = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    interval = bootstrap_interval(after - before, resamples=resamples, seed=seed)
    p = paired_randomisation(before, after, resamples=resamples, seed=seed)
    if p >= LEVEL:
        interval = Interval(min(interval.low, 0.0), max(interval.high, 0.0))
    return PairedTest(
        n=before.size,
        baseline_mean=float(before.mean()),
        candidate_mean=float(after.mean()),
        difference=float((after - before).mean()),
        interval=interval,
        p=p,
        wins_ties_losses=win_tie_loss(before, after),
        enough=before.size >= MIN_QUERIES,
    )


def paired_randomisation(
    baseline: Scores, candidate: Scores, *, resamples: int = 10_000, seed: int = 0
) -> float:
    """Compute two-sided p, in (0, 1], of the mean paired difference under random sign flips.

    If the two searches are equally good, each query's two scores could as well be swapped:

        p = share of the 2^m sign patterns with |Σ ±dᵢ| ≥ |Σ dᵢ|,  m = number of dᵢ ≠ 0

    All patterns are counted when 2^m ≤ ``resamples``; else that many are drawn and
    p = (1 + as extreme) / (1 + drawn), which is never 0 (Davison and Hinkley 1997,
    Bootstrap Methods and their Application, chapter 4). Differences within 1e-12 of the larger
    score are 0, sums within 1e-12 of Σ |dᵢ| are ties, and ties count as extreme; identical columns
    give 1. Neither the order of the queries nor which column comes first matters.

    Source: Fisher 1935, The Design of Experiments, §21; for retrieval, Smucker, Allan and
    Carterette 2007, "A comparison of statistical significance tests for information retrieval
    evaluation" (CIKM).
    """
    before, after = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    differences = after - before
    rounding = _ROUNDING * np.maximum(np.abs(before), np.abs(after))
    differences = differences[np.abs(differences) > rounding]
    sizes = np.sort(np.abs(differences))
    extreme = abs(float(differences.sum())) - _ROUNDING * float(sizes.sum())
    if 1 << sizes.size <= resamples:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float(np.mean(np.abs(sums) >= extreme))
    flipped = _flipped_sums(sizes[None, :], resamples, np.random.default_rng(seed))
    count = sum(int((np.abs(sums) >= extreme).sum()) for sums in flipped)
    return (1 + count) / (1 + resamples)


def bootstrap_interval(values: Scores, *, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Compute the 95 % percentile bootstrap interval of the mean, by draws with replacement.

    It stays within the smallest and the largest value; one value gives itself twice.

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, §13.3.
    """
    row = np.asarray(values, np.float64)[None, :]
    means = _resampled_means(row, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(low), float(high))


def share_interval(values: Scores) -> Interval:
    """Compute a 95 % interval for the mean of scores from 0 to 1, valid for few queries, too.

    Each end is that of :func:`bootstrap_interval` with one additional query at the worst value. So
    equal scores have an interval, too, of about 3/n (Gaffke 2005; for a share, Clopper and Pearson
    1934).
    """
    low = bootstrap_interval(np.append(values, 0.0)).low
    return Interval(low, bootstrap_interval(np.append(values, 1.0)).high)


def bound_losses(differences: Floats, *, resamples: int = 10_000, seed: int = 0) -> LossBounds:
    """Compute the bounds for each row; memory grows with rows and ``resamples``, not queries.

    ``differences`` has a row for each comparison and a column for each query: candidate minus
    baseline, of a score from 0 to 1.

    The plain interval is from Efron and Tibshirani (1993, An Introduction to the Bootstrap, §13.3),
    the test is one-sided randomisation (Smucker, Allan and Carterette 2007). One additional query
    at the worst value gives the exact bound of a share (Clopper and Pearson 1934) and Gaffke's
    bound of a mean (2005): if none of n queries is lost, the bound is not 0 but about 3/n, the rule
    of three (Hanley and Lippman-Hand 1983).
    """

    def ends(*additional: float) -> Floats:
        extra = np.tile(additional, (len(differences), 1))
        rows = np.hstack([differences, extra])
        means = _resampled_means(rows, resamples, np.random.default_rng(seed))
        return np.quantile(means, [LEVEL, 1 - LEVEL], axis=1)

    (low, high), (safe_low, _), (_, safe_high) = ends(), ends(-1.0), ends(1.0)
    sizes = np.abs(differences)
    limits = differences.sum(axis=1) + _ROUNDING * sizes.sum(axis=1)
    flipped = _flipped_sums(sizes, resamples, np.random.default_rng(seed))
    as_low = np.sum([(sums <= limits[:, None]).sum(axis=1) for sums in flipped], axis=0)
    return LossBounds(low, high, safe_low, safe_high, (1 + as_low) / (1 + resamples))


def _resampled_means(rows: Floats, resamples: int, generator: np.random.Generator) -> Floats:
    """Return means of each row's n values under n draws with replacement: (m, n) → (m, resamples).

    All rows share the draws.
    """
    n = rows.shape[1]
    means = []
    for size in _batches(resamples, n):
        drawn = generator.integers(0, n, size=(size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        means.append(rows @ counts.T / n)
    return np.hstack(means)


def _flipped_sums(
    sizes: Floats, resamples: int, generator: np.random.Generator
) -> Iterator[Floats]:
    """Yield batches of sums under random signs of each row's n sizes: (m, n) → (m, batch)."""
    n = sizes.shape[1]
    for size in _batches(resamples, n):
        flipped = generator.integers(0, 2, size=(size, n), dtype=np.int8)
        yield sizes.sum(axis=1)[:, None] - 2.0 * (sizes @ flipped.T)


def _batches(resamples: int, columns: int) -> Iterator[int]:
    rows = max(1, _CELLS // max(1, columns))
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


def wilson_interval(right: int, total: int, z: float = _Z95) -> tuple[float, float]:
    """Compute the score interval of a share (Wilson 1927), within 0 to 1; 95 % by default.

    ``total`` is at least 1 and ``right`` from 0 to ``total``.
    """
    share, square = right / total, z * z
    middle = (share + square / (2 * total)) / (1 + square / total)
    spread = math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    half = z * spread / (1 + square / total)
    low = max(0.0, middle - half) if right else 0.0  # exact, not up to rounding
    return low, min(1.0, middle + half) if right < total else 1.0


def mean_interval(values: Scores, *, resamples: int = 10_000) -> Interval:
    """Compute the 95 % interval of the mean of scores.

    If each score is 0 or 1, the mean is a share and the interval is Wilson's, which has a width
    even if all are right. Otherwise it is that of :func:`bootstrap_interval`.
    """
    column = np.asarray(values, np.float64)
    if np.isin(column, (0.0, 1.0)).all():
        return Interval(*wilson_interval(int(column.sum()), column.size))
    return bootstrap_interval(column, resamples=resamples)


def mcnemar_exact(baseline_success: Sequence[bool], candidate_success: Sequence[bool]) -> McNemar:
    """Compute the exact two-sided McNemar test of two columns of success.

    Only the queries on which the two disagree count, g gained and l lost, and by chance each
    falls on either side like a coin:

        p = min(1, 2 Σ_{i ≤ min(g, l)} C(g + l, i) / 2^(g + l))

    summed in integers, so exact for any number of queries (a p too small for a float is the
    smallest float above 0). No disagreement gives 1.

    Source: McNemar 1947, Psychometrika 12; the binomial form, Agresti 2013, Categorical Data
    Analysis, §11.1.
    """
    pairs = list(zip(baseline_success, candidate_success, strict=True))
    gained, lost = pairs.count((False, True)), pairs.count((True, False))
    patterns = tail = 1
    for i in range(min(gained, lost)):
        patterns = patterns * (gained + lost - i) // (i + 1)
        tail += patterns
    p = (2 * tail) / (1 << (gained + lost))
    return McNemar(gained, lost, max(math.ulp(0.0), min(1.0, p)))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p-values by Holm's method, names in the given order: ≥ the raw ones, at most 1.

    Sorted upwards, p₁ ≤ … ≤ p_m, the i-th becomes max_{j ≤ i} min(1, (m - j + 1) pⱼ): rejecting
    those ≤ α keeps the chance of any false rejection ≤ α, however the tests depend on each other.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian
    Journal of Statistics 6.
    """
    adjusted: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def win_tie_loss(baseline: Scores, candidate: Scores) -> WinTieLoss:
    """Count the queries that got better, stayed, and got worse; within :data:`TIE` is a tie."""
    gains = np.asarray(candidate, np.float64) - np.asarray(baseline, np.float64)
    wins, losses = int((gains > TIE).sum()), int((gains < -TIE).sum())
    return WinTieLoss(wins, gains.size - wins - losses, losses)
