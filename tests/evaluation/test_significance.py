"""Significance against published examples, scipy, and numbers worked by hand."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.evaluation.significance import (
    MIN_QUERIES,
    Interval,
    McNemar,
    WinTieLoss,
    bootstrap_interval,
    holm,
    mcnemar_exact,
    mean_interval,
    paired_randomisation,
    paired_test,
    power_of,
    win_tie_loss,
)
from catalog.evaluation.summary import power_lines
from tables import table

# Darwin's maize: height of the crossed plant minus its self-fertilised partner, in eighths of
# an inch, as Fisher prints them (The Design of Experiments, 1935, chapter III)
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]

# sixty-fourths add, subtract and shift without rounding
score = st.integers(0, 64).map(lambda i: i / 64)
pairs = st.lists(st.tuples(score, score), min_size=1, max_size=25).map(
    lambda rows: tuple(list(column) for column in zip(*rows, strict=True))
)


def p_of(differences, **options):
    return paired_randomisation([0.0] * len(differences), differences, **options)


def outcomes(*, gained, lost, both=0, neither=0):
    """Columns of baseline and candidate successes with these counts."""
    cells = [(0, 1)] * gained + [(1, 0)] * lost + [(1, 1)] * both + [(0, 0)] * neither
    return [bool(b) for b, _ in cells], [bool(c) for _, c in cells]


def noisy_pair(n, *, gain=0.0, seed=7):
    rng = np.random.default_rng(seed)
    before = rng.random(n)
    return before, before + rng.normal(gain, 0.2, n)


# paired randomisation


def test_fishers_count_on_darwins_maize_is_863_patterns_in_each_direction():
    # §21: of the 2^15 = 32768 patterns, 835 sum to more than 314 and 28 to exactly 314;
    # both directions: 2 (835 + 28) / 32768 = 1726 / 32768 = .0527
    assert p_of(DARWIN, resamples=2**15) == 1726 / 32768


def test_sums_that_differ_by_rounding_only_are_ties():
    # ±4 ±2 ±2 = 8, 4, 4, 0, 0, -4, -4, -8; observed -4: six reach it. In tenths the same fours
    # come out as .4 and as .4000…01
    assert p_of([-4, -2, 2]) == p_of([-0.4, -0.2, 0.2]) == 6 / 8
    # .4 + .2 + .3 is above .2 + .3 + .4
    assert p_of([-0.4, -0.2, -0.3]) == 2 / 8


def test_differences_that_are_rounding_only_are_no_differences():
    # .1 + .2 is 5.6e-17 above .3: ten such "gains" would otherwise be p = 2 / 1024
    assert paired_randomisation([0.3] * 10, [0.1 + 0.2] * 10) == 1.0


def test_queries_without_a_difference_change_nothing():
    # m = 3 differences need 2^3 = 8 patterns, however many queries tie
    assert p_of([1, 2, 3] + [0] * 40, resamples=8) == 2 / 8


def test_a_p_drawn_at_random_counts_the_observed_pattern_too():
    # sixty equal gains: no other pattern that can be hoped to be drawn is as extreme
    assert p_of([1.0] * 60) == 1 / 10_001
    assert p_of([1.0] * 60, resamples=99) == 1 / 100


def test_a_drawn_p_lies_near_the_counted_one():
    # standard error √(.0527 · .9473 / 10000) = .0022; the bound is four of them
    drawn = [p_of(DARWIN, seed=seed) for seed in range(10)]
    assert drawn == [pytest.approx(1726 / 32768, abs=0.009)] * 10
    assert np.mean(drawn) == pytest.approx(1726 / 32768, abs=0.003)
    assert len(set(drawn)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5, 9, 12])
@pytest.mark.parametrize("gain", [0.0, 0.1, -0.3])
def test_counted_p_values_are_scipys(n, gain):
    from scipy import stats

    before, after = noisy_pair(n, gain=gain, seed=n)
    expected = stats.permutation_test(
        (before, after),
        lambda b, c, axis: (c - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert paired_randomisation(before, after) == pytest.approx(expected.pvalue, abs=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_a_search_is_not_better_than_itself(scores):
    assert paired_randomisation(scores, scores) == 1.0
    assert mcnemar_exact([s > 0 for s in scores], [s > 0 for s in scores]) == McNemar(0, 0, 1.0)
    assert win_tie_loss(scores, scores) == WinTieLoss(0, len(scores), 0)
    assert bootstrap_interval([0.0] * len(scores), resamples=50) == Interval(0.0, 0.0)


@given(pairs, st.integers(0, 9))
def test_swapping_the_two_searches_keeps_p_and_mirrors_the_rest(columns, seed):
    before, after = columns
    there = paired_test(before, after, resamples=100, seed=seed)
    back = paired_test(after, before, resamples=100, seed=seed)
    assert there.p == back.p
    assert there.difference == -back.difference
    won, lost = there.wins_ties_losses, back.wins_ties_losses
    assert (won.wins, won.ties, won.losses) == (lost.losses, lost.ties, lost.wins)
    assert there.interval.low == pytest.approx(-back.interval.high)
    assert there.interval.high == pytest.approx(-back.interval.low)


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_queries_does_not_matter(columns, random):
    rows = list(zip(*columns, strict=True))
    random.shuffle(rows)
    before, after = zip(*rows, strict=True)
    assert paired_randomisation(before, after, resamples=100) == paired_randomisation(
        *columns, resamples=100
    )


# bootstrap interval


def test_two_queries_have_three_possible_means():
    # draws from {0, 1}: mean 0 with chance 1/4, .5 with 1/2, 1 with 1/4. The middle 95 % reaches
    # both ends
    assert bootstrap_interval([0.0, 1.0]) == Interval(0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 15, 120])
def test_the_interval_is_scipys_percentile_interval(n):
    from scipy import stats

    gains = np.random.default_rng(n).exponential(0.1, n) - 0.05
    expected = stats.bootstrap(
        (gains,), np.mean, method="percentile", n_resamples=100_000, rng=np.random.default_rng(1)
    ).confidence_interval
    interval = bootstrap_interval(gains, resamples=100_000)
    # the 97.5 % quantile of 100,000 normal means is off by .0085 of their deviation; two differ
    # by .012, more where the tail is long
    slack = 0.1 * gains.std() / math.sqrt(n)
    assert interval.low == pytest.approx(expected.low, abs=slack)
    assert interval.high == pytest.approx(expected.high, abs=slack)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40))
def test_the_interval_holds_the_mean_and_stays_within_the_differences(gains):
    interval = bootstrap_interval(gains, resamples=500)
    assert min(gains) - 1e-12 <= interval.low <= np.mean(gains) + 1e-12
    assert np.mean(gains) - 1e-12 <= interval.high <= max(gains) + 1e-12


def test_equal_seeds_give_equal_answers():
    before, after = noisy_pair(40, gain=0.03)
    first = paired_test(before, after, seed=3)
    assert first == paired_test(before, after, seed=3)
    other = paired_test(before, after, seed=4)
    assert (first.p, first.interval) != (other.p, other.interval)
    assert other.p == pytest.approx(first.p, abs=0.03)


@pytest.mark.slow
def test_ten_thousand_queries_fit_in_little_memory():
    # all draws at once would be 1000 × 10000 numbers of 8 bytes: 80 MB
    before, after = noisy_pair(10_000)
    tracemalloc.start()
    try:
        paired_test(before, after, resamples=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6


# McNemar


def test_eight_disagreements_seven_to_one_are_not_enough():
    # 2 (C(8,0) + C(8,1)) / 2^8 = 2 (1 + 8) / 256 = 18 / 256
    before, after = outcomes(gained=7, lost=1, both=5, neither=9)
    assert mcnemar_exact(before, after) == McNemar(gained=7, lost=1, p=18 / 256)


def test_the_textbooks_approval_ratings_changed():
    # Agresti 1990, Categorical Data Analysis, p. 350: 1600 people asked twice, 794 approve both
    # times, 150 only the first, 86 only the second, 570 never: χ² = 64² / 236 = 17.36, p = 3.1e-5;
    # the exact test on 86 of 236 gives 3.716e-5
    before, after = outcomes(gained=86, lost=150, both=794, neither=570)
    result = mcnemar_exact(before, after)
    assert (result.gained, result.lost) == (86, 150)
    assert result.p == pytest.approx(3.716e-5, rel=1e-3)


@pytest.mark.slow
@table("gained, lost")
def test_mcnemars_p_is_scipys_binomial_test(gained, lost):
    from scipy import stats

    expected = stats.binomtest(gained, gained + lost, 0.5).pvalue
    assert mcnemar_exact(*outcomes(gained=gained, lost=lost)).p == pytest.approx(expected, rel=1e-9)
    assert mcnemar_exact(*outcomes(gained=lost, lost=gained)).p == pytest.approx(expected, rel=1e-9)


def test_a_p_below_every_float_is_still_not_zero():
    # 2 / 2^3000
    assert mcnemar_exact(*outcomes(gained=3000, lost=0)).p == math.ulp(0.0)


# Holm


def test_holms_procedure_on_four_hypotheses():
    # upwards: .005 × 4 = .02; .01 × 3 = .03; .03 × 2 = .06; .04 × 1 = .04, but not below .06.
    # At .05 exactly the two smallest are rejected, as Holm's steps do: .005 ≤ .05/4 and
    # .01 ≤ .05/3, then .03 > .05/2 stops
    adjusted = holm({"h1": 0.01, "h2": 0.04, "h3": 0.03, "h4": 0.005})
    assert adjusted == pytest.approx({"h1": 0.03, "h2": 0.06, "h3": 0.06, "h4": 0.02})
    assert list(adjusted) == ["h1", "h2", "h3", "h4"]


named = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(
    lambda drawn: {f"h{at}": p for at, p in enumerate(drawn)}
)


@given(named, st.sampled_from([0.01, 0.05, 0.1]))
def test_adjusted_p_values_reject_what_holms_steps_reject(p_values, alpha):
    rejected = set()
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p * (len(p_values) - rank) > alpha:
            break
        rejected.add(name)
    assert {name for name, p in holm(p_values).items() if p <= alpha} == rejected


# wins, ties and losses


def test_wins_are_the_candidates():
    assert win_tie_loss([0.1, 0.5, 0.5, 0.9], [0.4, 0.5, 0.6, 0.2]) == WinTieLoss(2, 1, 1)
    assert win_tie_loss([0.3], [0.1 + 0.2]) == WinTieLoss(0, 1, 0)


# the whole judgement


def test_a_judgement_holds_every_number():
    # differences 1, 2, 3, 0: mean 1.5, and ±1 ±2 ±3 reaches 6 in 2 of 8 patterns
    verdict = paired_test([0, 1, 2, 3], [1, 3, 5, 3])
    assert verdict.n == 4
    assert (verdict.baseline_mean, verdict.candidate_mean, verdict.difference) == (1.5, 3.0, 1.5)
    assert verdict.p == 2 / 8
    assert verdict.interval == Interval(0.0, bootstrap_interval([1, 2, 3, 0]).high)  # p > .05
    assert verdict.wins_ties_losses == WinTieLoss(3, 1, 0)


def test_an_interval_includes_0_wherever_the_test_does_not_exclude_it():
    widened = 0
    for seed in range(150):
        random = np.random.default_rng(seed)
        gains = np.where(random.random(30) < 0.4, random.normal(0.1, 0.3, 30), 0.0)
        judged = paired_test(np.full(30, 0.5), 0.5 + gains, resamples=1000)
        plain = bootstrap_interval(gains, resamples=1000)
        if judged.p >= 0.05:
            assert judged.interval.low <= 0 <= judged.interval.high
            widened += judged.interval != plain
    assert widened > 0


def test_a_judgement_on_fewer_than_25_queries_says_so():
    assert MIN_QUERIES == 25
    assert not paired_test([0.0] * 24, [1.0] * 24).enough
    assert paired_test([0.0] * 25, [1.0] * 25).enough


@settings(max_examples=30)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
def test_any_finite_scores_can_be_judged(scores):
    verdict = paired_test(scores, scores[::-1], resamples=50)
    assert all(map(math.isfinite, (verdict.difference, verdict.p, verdict.interval.low)))
    assert verdict.interval.low <= verdict.interval.high


def test_the_interval_of_a_share_is_wilsons_and_has_a_width_at_its_ends():
    # n / (n + z²) with z = 1.95996 and n = 60: 60 / 63.8415
    all_right = mean_interval([1.0] * 60)
    assert (all_right.low, all_right.high) == (pytest.approx(0.93983, abs=1e-5), 1.0)
    none_right = mean_interval([0.0] * 60)
    assert (none_right.low, none_right.high) == (0.0, pytest.approx(0.06017, abs=1e-5))
    # 8 of 10: (.8 + .19207 ± 1.95996 √(.016 + .0096036)) / 1.38415, Wilson 1927
    some = mean_interval([1.0] * 8 + [0.0] * 2)
    assert (some.low, some.high) == (
        pytest.approx(0.49016, abs=1e-5),
        pytest.approx(0.94331, abs=1e-5),
    )


def test_a_difference_takes_as_many_questions_as_the_formula_says():
    # half +.2, half -.2, of 100: variance .04 · 100 / 99 = .0404; (1.95996 + .84162)² = 7.8489
    # .0404 · 7.8489 / .05² = 126.8; / .01² = 3171.3; √(7.8489 · .0404 / 100) = .05631
    power = power_of([0.2, -0.2] * 50)
    assert power.detectable == pytest.approx(0.05631, abs=1e-5)
    assert {one: found[0] for one, found in power.needed.items()} == {
        0.01: 3172,
        0.02: 793,
        0.05: 127,
    }
    # alike on every question: nothing to find; and never fewer than decide anything
    alike = power_of([0.0] * 40)
    assert (alike.deviation, alike.needed[0.05]) == (0, (25, 25, 25))
    assert len([*power_lines(alike)]) == 1  # no number of questions is of use
    assert len([*power_lines(power)]) == 2 + len(power.needed)
    low, high = power_of([0.5, 0.0, 0.0, -0.1] * 25).needed[0.02][1:]
    assert low < power_of([0.5, 0.0, 0.0, -0.1] * 25).needed[0.02][0] < high


@pytest.mark.slow
def test_a_difference_is_shown_in_four_of_five_draws_of_as_many_questions():
    # as real differences are: two thirds of the questions are equal, some move far
    seen = [0.0] * 66 + [0.37, -0.37, 0.5, -0.13, 0.13, -0.5, 0.63, 0.11, -0.11, -0.2] * 3
    needed, rng = power_of(seen, [0.05]).needed[0.05][0], np.random.default_rng(51)
    moved = np.array(seen) - np.mean(seen) + 0.05
    draws = (moved[rng.integers(0, len(seen), size=needed)] for _ in range(400))
    shown = sum(paired_test([0.0] * needed, one, resamples=1000).p < 0.05 for one in draws)
    assert 0.76 <= shown / 400 <= 0.9  # differences with long tails are shown more often
