"""What people install: its name, its extras, its version, and a clash of its import name."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import catalog
from catalog.core.errors import MissingExtraError
from catalog.models.packaged import PACKAGED, WORDLLAMA

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def run(*arguments, cwd, path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def shop(tmp_path):
    """A folder of a Django project that has an app called ``catalog``."""
    app = tmp_path / "shop" / "catalog"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    (app / "models.py").write_text("from django.db import models\n")
    return app.parent


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, f"pip install '{PROJECT['name']}[postgres]'"),
        ('{"url": "file:///checkout"}', "pip install -c constraints.txt '.[postgres]'"),
    ],
)
def test_a_message_about_an_extra_says_how_this_package_gets_it(direct_url, command, monkeypatch):
    came = SimpleNamespace(read_text=lambda name: direct_url)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: came)
    assert command in str(MissingExtraError("a store in Postgres", "postgres"))
    assert WORDLLAMA.install == command.replace("postgres", "fast")


@pytest.mark.parametrize("kind", ["src", "configs", "docs", "deploy", "README.md"])
def test_no_text_installs_an_extra_of_another_distribution(kind):
    top = ROOT / kind
    files = [top] if top.is_file() else [one for one in top.rglob("*") if one.is_file()]
    texts = {one: one.read_text(encoding="utf-8", errors="replace") for one in files}
    wrong = re.compile(r"['(`\"]catalog\[")
    assert [str(one) for one, text in texts.items() if wrong.search(text)] == []


def test_every_extra_that_the_code_names_exists():
    code = "\n".join(one.read_text(encoding="utf-8") for one in SOURCES)
    named = set(re.findall(r'MissingExtraError\("[^"]+", "([^"]+)"\)', code))
    named |= set(re.findall(rf"{PROJECT['name']}\[([\w-]+)\]", code))
    named |= {one.extra for one in PACKAGED}
    assert {"offline", "postgres"} <= named
    assert named <= EXTRAS.keys()


def test_extras_of_extras_are_of_this_distribution():
    named = [Requirement(one) for group in EXTRAS.values() for one in group]
    own = [one for one in named if one.name == PROJECT["name"]]
    assert own
    assert {extra for one in own for extra in one.extras} <= EXTRAS.keys()
    assert "catalog" not in {one.name for one in named}


def test_the_version_is_in_one_place_of_the_code():
    assert "version" in PROJECT["dynamic"]
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    text = (ROOT / hatch["version"]["path"]).read_text()
    assert f'__version__ = "{catalog.__version__}"' in text
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", catalog.__version__)


def test_the_changelog_has_this_version():
    assert f"## {catalog.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_command_works_in_a_folder_with_a_catalog_of_its_own(shop, tmp_path):
    script = tmp_path / "bin" / "catalog"
    script.parent.mkdir()
    script.write_text("from catalog_search import main\nmain()\n")
    done = run(script, "--version", cwd=shop, path=[ROOT / "src"])
    assert (done.returncode, done.stdout) == (0, f"catalog {catalog.__version__}\n"), done.stderr


def test_a_folder_that_hides_the_package_is_named_with_what_to_do(shop):
    for path in ([ROOT / "src"], [shop, ROOT / "src"]):  # by the working directory, by the path
        done = run("-m", "catalog_search", "--version", cwd=shop, path=path)
        assert done.returncode == 1
        assert str(shop / "catalog") in done.stderr
        assert "PYTHONPATH" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_folder_without_an_init_file_hides_nothing(tmp_path):
    (tmp_path / "catalog").mkdir()
    done = run("-m", "catalog_search", "--version", cwd=tmp_path, path=[ROOT / "src"])
    assert (done.returncode, done.stderr) == (0, "")


def test_both_commands_start_what_explains_a_clash():
    assert set(PROJECT["scripts"].values()) == {"catalog_search:main"}
    assert set(PROJECT["scripts"]) == {"catalog", PROJECT["name"]}
