"""The README says what is true: its commands exist and its code runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from catalog.embedding import model_files as packaged
from catalog.interfaces.cli.commands import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split(" #")[0].strip() for line in README.splitlines() if line.startswith("catalog ")
]

BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXAMPLE = ROOT / "examples" / "llamaindex.py"


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_exists_with_its_options(line):
    words = shlex.split(line)[1:]
    command = get_command(app)
    while words and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands"), "the line stops before a command"
    with command.make_context("catalog", words, resilient_parsing=False) as context:
        assert context.params


def test_the_python_lines_of_the_readme_run(notes, monkeypatch, tmp_path, capsys):
    if packaged.locate(packaged.FASTEMBED["BAAI/bge-small-en-v1.5"]) is None:
        pytest.skip("bge-small is not installed: pip install '.[offline]'")
    from catalog import search_v2
    from catalog.interfaces import agents as tools
    from catalog.library.indexing import Indexer
    from catalog.library.library import Library

    with Library.open() as library:
        Indexer(library).build(notes, "notes")
    search, agents, _ = BLOCKS
    try:
        exec(compile(search, "README.md", "exec"), {})
        out = capsys.readouterr().out
        exec(compile(agents, "README.md", "exec"), {})
        told = capsys.readouterr().out
    finally:
        search_v2.close()
        tools.close()
    assert out.startswith("keys.md 4 ")
    assert "('vector', 'ran'" in out
    assert "\n[1] keys.md — " in told


def test_the_llama_index_lines_of_the_readme_are_the_example_and_it_runs():
    if packaged.locate(packaged.FASTEMBED["BAAI/bge-small-en-v1.5"]) is None:
        pytest.skip("bge-small is not installed: pip install '.[offline]'")
    assert EXAMPLE.read_text(encoding="utf-8").partition("\n\n")[2] == BLOCKS[2]
    run = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, check=True, timeout=300
    )
    retrieved, fused, answer, text, chat, *told = run.stdout.splitlines()
    assert retrieved.endswith(" keys.md:1")
    assert fused == "['recipes/bread.txt', 'keys.md']"
    assert answer == "[1] recipes/bread.txt [source: bread, line 1]"
    assert text.startswith("Mix flour")
    assert chat == "recipes/bread.txt"
    assert told == [answer, text]


def test_every_file_the_readme_links_to_exists():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
