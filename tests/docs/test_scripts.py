"""The example and the benchmarks find what they import; they are run by hand."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    ROOT / "examples" / "demo.py",
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *sorted((ROOT / "benchmarks" / "vault").glob("*.py")),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_finds_what_it_imports(script, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    before = set(sys.modules)
    try:
        names = runpy.run_path(str(script), run_name="only looked at")
    finally:
        for name in set(sys.modules) - before:
            module_file = getattr(sys.modules[name], "__file__", None) or ""
            if str(ROOT / "benchmarks") in module_file:
                del sys.modules[name]
    assert names["__doc__"]
