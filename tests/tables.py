"""Tables of cases beside their tests: those of ``test_dates.py`` are in ``test_dates.toml``."""

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest


def table(names: str, inner: type = tuple) -> Callable[[Any], Any]:
    """Run a test once for each row that the file has under the test's name.

    Arrays within a row become ``inner``.
    """

    def run_each(test: Any) -> Any:
        rows = read_cases(test.__code__.co_filename)[test.__name__]
        is_one = "," not in names
        made = [row if is_one else [_as(inner, value) for value in row] for row in rows]
        return pytest.mark.parametrize(names, made)(test)

    return run_each


@cache
def read_cases(test_file: str) -> dict[str, Any]:
    """Return what the file beside a test file has, by name."""
    return tomllib.loads(Path(test_file).with_suffix(".toml").read_text(encoding="utf-8"))


def _as(inner: type, value: Any) -> Any:
    return inner(_as(inner, one) for one in value) if isinstance(value, list) else value
