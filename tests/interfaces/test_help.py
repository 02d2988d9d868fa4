"""The help of every command: groups, examples, narrow terminals, completion and hints."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from catalog.interfaces.cli.commands import COMMANDS, GROUPS, app
from tables import table

WRITTEN = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generated.py"))
PAGES = dict(WRITTEN["list_commands"]())
LEAVES = {path: command for path, command in PAGES.items() if not hasattr(command, "commands")}
WIDTHS = (60, 100)


def page(path, width):
    command = PAGES[path]
    with command.make_context(path, [], resilient_parsing=True, terminal_width=width) as context:
        return command.get_help(context)


def run(*arguments, shell="", **variables):
    """Run the program, from a shell if one is given: completion is for the shell it is run in."""
    code = "import sys; sys.argv[0] = 'catalog'; from catalog.interfaces.cli import main; main()"
    given = [sys.executable, "-c", code, *arguments]
    if shell:
        given = [shell, "-c", f"{shlex.join(given)}; exit $?"]
    environment = {**os.environ, **variables}
    return subprocess.run(given, capture_output=True, text=True, env=environment, timeout=60)


def test_the_start_page_has_every_command_in_a_group_and_says_how_to_start():
    text = page("catalog", 60)
    places = [text.index(f"\n{title}:\n") for title in ("Start", *GROUPS, "Options")]
    assert places == sorted(places)
    for name in COMMANDS:
        assert len(re.findall(rf"^  {name}\b", text, re.MULTILINE)) == 1
    start = text[places[0] : places[1]].split("\n\n")[0].splitlines()[2:]
    assert [line.split()[1] for line in start] == ["index", "search", "ask"]


def test_catalog_alone_shows_the_start_page(catalog):
    assert "Start:" in "".join(catalog()[1:])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", PAGES)
def test_no_word_is_broken_and_no_summary_is_cut(path, width):
    text = page(path, width)
    assert max(map(len, text.splitlines())) <= width
    words = set(text.replace("\\\n", " ").split())
    command = PAGES[path]
    told = [command.help, *(getattr(one, "help", "") for one in command.params)]
    told += [inner.short_help for inner in getattr(command, "commands", {}).values()]
    assert set(" ".join(told).split()) <= words
    assert not any(line.rstrip().endswith("...") for line in text.splitlines()[1:])


@pytest.mark.parametrize("path", [*LEAVES, "catalog eval"])
def test_a_command_has_two_examples_that_it_understands(path):
    examples = PAGES[path].examples
    assert len(examples) == 2
    for line in examples:
        *given, last = path.split()
        words = shlex.split(line)
        assert words[: len(given) + 1] == [*given, last]
        with PAGES[path].make_context(path, words[len(given) + 1 :]):
            pass  # raises for an unknown option, or a missing or excess argument


def test_a_query_that_begins_with_dashes_is_told_how_to_be_given(catalog):
    for query in ("--cleanup-commits", "-draft budget"):
        code, _, err = catalog("search", query)
        assert (code, f'-- "{query}"' in err) == (2, True)
    assert '-- "' not in catalog("search", "--josn", "x")[2]


def test_a_misspelt_dataset_is_told_the_one_that_may_be_meant(catalog, notes):
    assert catalog("index", "build", notes, "--dataset", "notes")[0] == 0
    code, _, err = catalog("search", "keys", "--dataset", "ntoes")
    assert code == 1
    assert "did you mean 'notes'?" in err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@table("typed, expected")
def test_bash_completes_commands_and_options(typed, expected, tmp_path):
    starter = tmp_path / "catalog"
    starter.write_text(f"#!{sys.executable}\nfrom catalog.interfaces.cli import main\nmain()\n")
    starter.chmod(0o755)
    words = ["catalog", *typed.split()]
    script = (
        'eval "$(_CATALOG_COMPLETE=source_bash catalog)"; '
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_catalog_completion catalog; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    ended = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60
    )
    assert expected in ended.stdout.split(), ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_completion_can_be_installed(tmp_path):
    ended = run("--install-completion", shell="bash", HOME=str(tmp_path))
    found = [file for file in tmp_path.rglob("*") if "catalog" in file.name]
    assert found, ended.stdout + ended.stderr


def test_every_group_names_commands_that_there_are():
    assert set(COMMANDS) == set(get_command(app).commands)
