"""A shift that labels teach: chosen, shrunk, and adopted only when it wins."""

import numpy as np
import pytest

from catalog.evaluation.calibration import ANSWER_SHIFTS as SHIFTS
from catalog.evaluation.calibration import fit_shift


def curves(queries, best, height, noise, seed=7):
    """Scores that fall off evenly to both sides of the best shift, with chance added."""
    fall = np.abs(np.array(SHIFTS) - best) * height
    return 0.6 - fall + np.random.default_rng(seed).normal(0, noise, (queries, len(SHIFTS)))


def test_a_shift_that_most_queries_gain_by_is_found_and_wins():
    fit = fit_shift(curves(60, best=-0.4, height=0.3, noise=0.02), SHIFTS)
    assert fit.shift == pytest.approx(-0.4, abs=0.1)
    assert fit.gain == pytest.approx(0.12, abs=0.04)
    assert fit.wins


def test_a_fit_that_is_better_by_chance_does_not_win():
    sets = [curves(50, best=0.0, height=0.0, noise=0.2, seed=seed) for seed in range(40)]
    assert sum(fit_shift(scores, SHIFTS).wins for scores in sets) <= 4


def test_few_queries_move_the_shift_less_than_many_with_the_same_scores():
    row = 0.6 - np.abs(np.array(SHIFTS) + 0.6) * 0.05
    few, many = (fit_shift(np.tile(row, (queries, 1)), SHIFTS).shift for queries in (10, 1000))
    assert many <= -0.5
    assert abs(few) < abs(many)


def test_the_prior_itself_never_wins():
    fit = fit_shift(np.ones((60, len(SHIFTS))), SHIFTS)
    assert (fit.shift, fit.gain, fit.wins) == (0.0, 0.0, False)
