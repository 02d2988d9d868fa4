"""What the benchmarks work out of what they measured, by hand."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.usefixtures("benchmarks")
def test_the_knee_is_where_more_clients_no_longer_bring_a_tenth_more_answers():
    from step import knee

    assert knee([1, 4, 16, 64], [10, 30, 32, 60]) == 4  # 32 is less than 33
    assert knee([1, 4, 16], [10, 11, 40]) == 16  # 11 is a tenth more


@pytest.mark.usefixtures("benchmarks")
def test_the_exponent_is_that_of_the_power_law_and_a_row_with_a_zero_has_none():
    from step import exponents

    sizes = [100, 400, 1600]
    found = exponents(sizes, {"root": [3, 6, 12], "linear": [1, 4, 16], "none": [0, 1, 2]})
    assert found == pytest.approx({"root": 0.5, "linear": 1.0})
