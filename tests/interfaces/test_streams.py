"""Commands whose standard output or error is closed or full."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.interfaces.plain_text import json_text
from catalog.store import Database

RUN = "from catalog.interfaces.cli import main; main()"
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")


@pytest.fixture
def catalog(tmp_path):
    """Runs a command on an empty store, redirected: exit code, standard output, standard error."""
    Database.at(tmp_path / "home").close()

    def run(redirection, *arguments, given=None, **more):
        script = f'exec "$@" {redirection}'
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", sys.executable, "-c", RUN, *arguments],
            env={**os.environ, "IDX_HOME": str(tmp_path / "home"), **more},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "config", "--version"])
def test_an_impossible_answer_is_one_sentence_and_exit_code_one(catalog, command):
    said = "catalog: cannot write to standard output: it is closed\n"
    assert catalog(">&-", command) == (1, "", said)


@pytest.mark.slow
@full
@pytest.mark.parametrize("command", ["status", "config", "--version"])
@pytest.mark.parametrize(
    ("unbuffered", "where"), [("", "standard output"), ("1", "standard output or a file")]
)
def test_a_full_standard_output_is_told_likewise(catalog, command, unbuffered, where):
    said = f"catalog: cannot write to {where}: No space left on device\n"
    assert catalog(">/dev/full", command, PYTHONUNBUFFERED=unbuffered) == (1, "", said)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=full)])
def test_a_standard_error_that_takes_nothing_fails_no_answer(catalog, redirection):
    code, out, _ = catalog(redirection, "browse", "--dataset", "none")
    assert (code, out) == (1, "")
    code, out, err = catalog(redirection, "status")
    assert (code, err) == (0, "")
    assert "vector_engine" in out


@pytest.mark.slow
def test_a_store_opened_without_standard_streams_is_not_printed_into(catalog, tmp_path):
    code, _, _ = catalog("<&- >&- 2>&-", "status")
    assert code == 1
    assert catalog("", "doctor")[1].startswith("ok    database: sound")


@pytest.mark.slow
@full
def test_an_agents_server_whose_output_is_full_ends_with_a_sentence(catalog):
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    code, _, err = catalog(">/dev/full", "mcp", given=ping)
    assert code == 1
    assert err.startswith("catalog: cannot write to standard output")
    assert err.endswith(": No space left on device\n")
    assert err.count("\n") == 1


def test_json_has_no_character_that_steers_a_terminal():
    told = json_text({"a": "x\x9b31m\x7f\u202eevil\u2028"})
    assert told == r'{"a": "x\u009b31m\u007f\u202eevil\u2028"}'
    assert json.loads(told) == {"a": "x\x9b31m\x7f\u202eevil\u2028"}
