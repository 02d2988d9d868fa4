"""Every promise of requirements.toml is held by tests that exist."""

import ast
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROMISES = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_names_tests_that_exist(name):
    assert PROMISES[name]["promise"].endswith(".")
    for reference in PROMISES[name]["tests"]:
        file, _, function = reference.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in defined, reference
