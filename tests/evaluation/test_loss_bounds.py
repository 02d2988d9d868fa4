"""How often the bounds that gates decide on are wrong: by simulation, and by numbers by hand."""

import numpy as np
import pytest

from catalog.evaluation.gates import parse_gate
from catalog.evaluation.significance import bound_losses

TIMES = 400
# Of 400 comparisons 5 % are 20; four standard deviations √(400 · .05 · .95) = 4.4 more are 37.
FEWEST, MOST = 3, 37


def graded(generator, n, mean=0.0):
    """Two of five queries stay, the others move by up to a whole point, as nDCG does."""
    moved = generator.random((TIMES, n)) < 0.6
    return np.clip(moved * generator.normal(0, 0.3, (TIMES, n)), -1, 1) + mean


def counted(generator, n, mean=0.0):
    """One query of ten is lost or gained as a whole, as Success does."""
    lost, gained = 0.05 - mean / 2, 0.05 + mean / 2
    draw = generator.random((TIMES, n))
    return np.where(draw < lost, -1.0, 0.0) + np.where(draw > 1 - gained, 1.0, 0.0)


def rarely(generator, n, mean=0.0):
    """Nothing is ever gained, and hardly anything lost."""
    return np.where(generator.random((TIMES, n)) < -mean, -1.0, 0.0)


def failed(text, differences):
    bounds = bound_losses(differences, resamples=1_000)
    return int(parse_gate(text).fails(bounds).sum())


@pytest.mark.parametrize("make", [graded, counted])
@pytest.mark.parametrize("n", [30, 100, 200])
def test_worse_fires_in_one_of_twenty_cases_where_nothing_is(make, n):
    fired = failed("ndcg@10 worse", make(np.random.default_rng(n), n))
    assert fired <= MOST
    if (make, n) != (counted, 30):  # three differences or so can show nothing at all
        assert fired >= FEWEST


@pytest.mark.parametrize(
    ("make", "n", "margin"),
    [(graded, 100, 0.05), (graded, 30, 0.1), (counted, 200, 0.05), (rarely, 100, 0.02)],
)
def test_a_loss_at_the_margin_passes_for_as_good_in_one_of_twenty_at_most(make, n, margin):
    differences = make(np.random.default_rng(n), n, -margin)
    passed = TIMES - failed(f"ndcg@10 not as good within {margin}", differences)
    assert passed <= MOST
    assert TIMES - failed(f"ndcg@10 not equivalent within {margin}", differences) <= passed
    gained = failed(f"ndcg@10 not equivalent within {margin}", -differences)
    assert TIMES - gained <= MOST


def test_the_plain_interval_would_pass_what_hardly_any_query_shows():
    # .98^100 = .13: no query is lost in as many comparisons, and the interval is then 0 to 0
    bounds = bound_losses(rarely(np.random.default_rng(100), 100, -0.02), resamples=1_000)
    assert (bounds.low > -0.02).sum() > MOST
    assert (bounds.safe_low > -0.02).sum() <= MOST


def test_a_loss_at_the_margin_is_seldom_called_beyond_it():
    differences = graded(np.random.default_rng(7), 100, -0.05)
    assert failed("ndcg@10 worse by 0.05", differences) <= MOST


def test_what_is_there_to_be_seen_is_seen():
    generator = np.random.default_rng(3)
    assert failed("ndcg@10 worse", graded(generator, 200, -0.08)) > 0.95 * TIMES
    assert failed("ndcg@10 not as good within 0.1", graded(generator, 200)) < 0.05 * TIMES
    assert failed("ndcg@10 not equivalent within 0.1", graded(generator, 200)) < 0.05 * TIMES


def test_bounds_worked_by_hand():
    # 50 queries lose .1 and 50 gain .1: SE .1 / √100 = .01, and 1.645 of them on either side
    even = bound_losses(np.array([[-0.1, 0.1] * 50, [0.0] * 100]))
    assert (even.low[0], even.high[0]) == pytest.approx((-0.01645, 0.01645), abs=0.0016)
    # sums as low as 0 are a half, and ties: C(100, 50) / 2^100 = .08, half of it more
    assert even.p[0] == pytest.approx(0.54, abs=0.02)
    # one query more at -1: (−1 ± …) / 101, so about .01 lower
    assert even.safe_low[0] < -0.025
    # none differs: 0 and 0, but up to 3 of 101 for what nobody asked; any sum is as low as 0
    assert (even.low[1], even.high[1], even.p[1]) == (0, 0, 1)
    assert (even.safe_low[1], even.safe_high[1]) == pytest.approx((-3 / 101, 3 / 101))
    # five losses: one of 2^5 sums is as low
    five = bound_losses(np.array([[-1.0] * 5 + [0.0] * 95]))
    assert five.p[0] == pytest.approx(1 / 32, abs=0.007)


def test_equal_seeds_give_equal_bounds_however_many_rows_are_asked_at_once():
    rows = graded(np.random.default_rng(5), 40)[:3]
    together, alone = bound_losses(rows, resamples=500), bound_losses(rows[1:2], resamples=500)
    for name in ("low", "high", "safe_low", "safe_high", "p"):
        assert getattr(together, name)[1] == pytest.approx(getattr(alone, name)[0])
    other = bound_losses(rows, resamples=500, seed=1)
    assert list(other.low) != list(together.low)
