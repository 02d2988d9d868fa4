"""Commands print the same bytes and end with the same code, with a server and without."""

import re
import sys

import pytest

from catalog.core.files import settings_key
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.cli import main, verbs
from fakes import open_library
from stores import store_of
from tables import read_cases, table

_TIMES = re.compile(
    r'(?:in [\d.]+ m?s|\d+\.\d+ ms| {2,}\d+\.\d(?= ms)|"(?:elapsed_)?ms": [\d.e-]+)'
)
_CACHED = re.compile(r"; query embedding cached|\"(?:entries|hits)\": \d+|'(?:entries|hits)': \d+")
_VECTOR_ENGINE = re.compile(r"exact(?:, while another process holds the index)?|qdrant-edge[^:;)]*")

FILES = dict(read_cases(__file__)["files"])


@pytest.fixture
def store(monkeypatch):
    home = store_of(FILES)
    monkeypatch.setenv("IDX_HOME", str(home))
    return home


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["catalog", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return command


def no_library(*_):
    raise AssertionError("the command answered by itself")


def told(answer):
    code, *texts = answer
    for pattern in (_TIMES, _CACHED, _VECTOR_ENGINE):
        texts = [pattern.sub("…", text) for text in texts]
    return code, *texts


@table("command")
def test_a_command_prints_the_same_with_a_server_and_without(
    store, served, run, monkeypatch, command
):
    opened = lambda *_: open_library(store)  # noqa: E731
    monkeypatch.setattr(verbs.options, "open_library", opened)
    run(*command)  # makes the cards and keeps the query's vector
    alone = run(*command)
    monkeypatch.setattr(verbs.options, "open_library", no_library)
    with (
        LocalEngine(open_library(store)) as engine,
        served(engine, store, key=settings_key(store, None)),
    ):
        assert told(run(*command)) == told(alone)


def test_matches_are_bold_on_the_commands_own_terminal(store, served, run, monkeypatch):
    monkeypatch.setattr(verbs, "has_styles", lambda _: True)
    monkeypatch.setattr(verbs.options, "open_library", no_library)
    with (
        LocalEngine(open_library(store)) as engine,
        served(engine, store, key=settings_key(store, None)),
    ):
        assert "\x1b[1mkeys\x1b[22m" in run("search", "keys")[1]


def test_a_server_with_other_settings_is_not_asked_and_the_command_says_so(
    store, served, run, monkeypatch
):
    asked = []
    opened = lambda *_: asked.append(1) or open_library(store)  # noqa: E731
    monkeypatch.setattr(verbs.options, "open_library", opened)
    with (
        LocalEngine(open_library(store)) as engine,
        served(engine, store, key=settings_key(store, "vault")),
    ):
        code, out, err = run("search", "keys")
    assert (code, asked) == (0, [1])
    assert "keys.md" in out
    assert err.startswith(f"catalog: the server of {store} has other settings")


def test_the_way_to_a_server_loads_no_settings(store, served):
    import subprocess

    script = (
        "import sys\n"
        "sys.argv = ['catalog', 'search', 'keys']\n"
        "from catalog.interfaces.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print([m for m in ('pydantic', 'sqlalchemy', 'llama_index', 'numpy', "
        "'fastapi', 'mcp', 'filelock', 'asyncio', 'ssl', 'email') if m in sys.modules], "
        "file=sys.stderr)\n"
    )
    with (
        LocalEngine(open_library(store)) as engine,
        served(engine, store, key=settings_key(store, None)),
    ):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "keys.md" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"
