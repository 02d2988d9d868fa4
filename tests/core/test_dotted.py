"""What an import by dotted path may run: the module asked for, and nothing that lies about."""

import os
import subprocess
import sys

import pytest

DECOYS = ("tiktoken", "numpy", "json", "pydantic")


def run(folder, code):
    """Run code in a child process whose working directory holds decoys that say they were run."""
    for name in DECOYS:
        (folder / f"{name}.py").write_text(f"print('RAN {name}')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("spec", ["catalog.search:search", "theirs:find", "pack.theirs:find"])
def test_a_file_named_like_an_installed_package_is_not_run(tmp_path, spec):
    theirs = "import numpy\nimport tiktoken\ndef find(query):\n    return [query]\n"
    (tmp_path / "theirs.py").write_text(theirs)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "theirs.py").write_text(theirs)
    code = (
        "import sys; before = list(sys.path), list(sys.meta_path)\n"
        "from catalog.core.user_search import UserSearch\n"
        f"UserSearch({spec!r})\n"
        "assert (sys.path, sys.meta_path) == before\n"
        "import tiktoken, numpy; print(numpy.zeros(1)[0])"
    )
    assert run(tmp_path, code) == ["0.0"]


def test_the_module_asked_for_wins_over_an_installed_one_and_finds_its_neighbours(tmp_path):
    (tmp_path / "test.py").write_text("import neighbour\ndef find(query): ...\n")
    (tmp_path / "neighbour.py").write_text("print('neighbour')\n")
    code = (
        "from catalog.core.user_search import load_object\n"
        "print(load_object('test:find', '').__name__)\n"
        "import importlib.util; print(importlib.util.find_spec('theirs'))"
    )
    assert run(tmp_path, code) == ["neighbour", "find", "None"]


@pytest.mark.parametrize("spec", ["broken:find", "absent:find"])
def test_an_import_that_fails_leaves_the_path_as_it_was(tmp_path, monkeypatch, spec):
    from catalog.core.user_search import load_object

    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("raise RuntimeError\n")
    before = list(sys.path), list(sys.meta_path)
    with pytest.raises((RuntimeError, ModuleNotFoundError)):
        load_object(spec, "")
    assert (sys.path, sys.meta_path) == before
