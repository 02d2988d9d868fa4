"""Check that a cost grows with the size of the input, and not with its square.

A limit in seconds fails on a busy machine. Here the input and an eighth of it are measured in one
run: a machine that is slow is slow for both.
"""

import time
from collections.abc import Callable
from typing import Any

FREE = 0.3
"""CPU seconds that pass without a comparison: the square of a large input costs many more."""
PART, MOST = 8, 20
"""Eight times the input may cost 20 times as much: linear is 8, quadratic is 64."""
TRIES = 3


def assert_linear(
    run: Callable[[Any], object], size: int, given: Callable[[int], Any] = int
) -> None:
    """Fail when ``run(given(size))`` takes over 20 times the CPU of ``run(given(size // 8))``.

    It fails if that is so three times. What ``given`` takes is not measured.
    """
    for _ in range(TRIES):
        whole = _cpu(run, given(size))
        if whole < FREE:
            return
        part = _cpu(run, given(size // PART))
        if whole < MOST * part:
            return
    raise AssertionError(f"size {size} takes {whole:.2f} s of CPU, an eighth of it {part:.2f} s")


def _cpu(run: Callable[[Any], object], made: Any) -> float:
    begun = time.process_time()
    run(made)
    return time.process_time() - begun
