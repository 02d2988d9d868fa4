"""How much a search may have lost or gained on average: bounds that a gate decides on.

Each works on many comparisons at once: ``differences`` has a row a comparison and a column a query,
candidate minus baseline, of a score from 0 to 1. Equal arguments and seeds give equal answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.05
"""How often each bound, and the test of a loss, may be wrong: in one of twenty cases."""

_CELLS = 1 << 20  # numbers drawn at a time: 8 MB
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class LossBounds:
    """Bounds of the mean difference, and p of a loss; an entry a comparison.

    ``low`` and ``high`` are the ends of the 90 % percentile bootstrap interval, so that the truth
    is beyond each in about 5 % of cases. ``safe_low`` and ``safe_high`` are the same with one more
    query that is lost, or gained, as a whole: for a claim that there is *no* more than some loss,
    which queries that nobody asked could refute. ``p`` is the chance of a sum as low when every
    query's two scores are dealt to the two sides by a coin.
    """

    low: Floats
    high: Floats
    safe_low: Floats
    safe_high: Floats
    p: Floats


def bound_losses(differences: Floats, *, resamples: int = 10_000, seed: int = 0) -> LossBounds:
    """Compute the bounds for each row; memory grows with rows and ``resamples``, not queries.

    The plain interval is Efron and Tibshirani's (1993, An Introduction to the Bootstrap, §13.3),
    the test one-sided randomisation (Smucker, Allan and Carterette 2007). One query more at the
    worst value is how the exact bound of a share is made (Clopper and Pearson 1934), and Gaffke's
    (2005) of a mean: where no query of n is lost the bound is about 3/n, the rule of three (Hanley
    and Lippman-Hand 1983), and not 0.
    """
    rows, n = differences.shape
    generator = np.random.default_rng(seed)
    means = np.empty((rows, resamples))
    worst, best = np.empty((rows, resamples)), np.empty((rows, resamples))
    for drawn in _batches(resamples, n):
        size = drawn.stop - drawn.start
        means[:, drawn] = differences @ _draw_counts(generator, size, n).T / n
        counts = _draw_counts(generator, size, n + 1)
        sums, extra = differences @ counts[:, :n].T, counts[:, n]
        worst[:, drawn], best[:, drawn] = (sums - extra) / (n + 1), (sums + extra) / (n + 1)
    low, high = np.quantile(means, [LEVEL, 1 - LEVEL], axis=1)
    return LossBounds(
        low=low,
        high=high,
        safe_low=np.quantile(worst, LEVEL, axis=1),
        safe_high=np.quantile(best, 1 - LEVEL, axis=1),
        p=_chance_of_loss(differences, resamples, generator),
    )


def _chance_of_loss(differences: Floats, drawn: int, generator: np.random.Generator) -> Floats:
    """Return (1 + sums as low) / (1 + drawn) over random signs, for each row."""
    limits = differences.sum(axis=1) + _ROUNDING * np.abs(differences).sum(axis=1)
    as_low = np.zeros(len(differences))
    for part in _batches(drawn, differences.shape[1]):
        shape = (part.stop - part.start, differences.shape[1])
        signs = 2.0 * generator.integers(0, 2, size=shape, dtype=np.int8) - 1.0
        as_low += (differences @ signs.T <= limits[:, None]).sum(axis=1)
    return np.asarray((1 + as_low) / (1 + drawn))


def _draw_counts(generator: np.random.Generator, rows: int, n: int) -> Floats:
    """Return how often each of n is drawn in n draws with replacement: (rows, n)."""
    drawn = generator.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def _batches(resamples: int, columns: int) -> Iterator[slice]:
    rows = max(1, _CELLS // (columns + 1))
    for start in range(0, resamples, rows):
        yield slice(start, min(start + rows, resamples))
