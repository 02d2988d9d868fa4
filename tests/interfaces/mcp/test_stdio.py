"""The process an agent starts: what it prints, and how it ends."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interfaces.mcp.running import environment, serving, talk
from processes import Forked

PROMPTLY = 5
STARTED_AND_ENDED = 30  # starting loads the SDK, which a busy machine takes long for
OPENING = [
    {
        "method": "initialize",
        "id": 1,
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "by hand", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
]


def echo(number, word):
    params = {"name": "get", "arguments": {"reference": word}}
    return {"method": "tools/call", "id": number, "params": params}


def start(tmp_path, kind):
    return Forked(
        serving(kind, "stdio"),
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def process(tmp_path):
    with start(tmp_path, "stub") as started:
        yield started
        started.kill()


def send(process, *messages):
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def answer(process):
    """The next line of output, which must be a message of the protocol."""
    message = json.loads(process.stdout.readline())
    assert message["jsonrpc"] == "2.0"
    return message


def held(process):
    """Open the session and begin a call that does not end."""
    send(process, *OPENING)
    assert answer(process)["result"]["serverInfo"]["name"] == "catalog"
    send(process, echo(2, "hold"))
    assert process.stderr.readline() == "began\n"


def test_output_carries_the_protocol_alone_whatever_prints(process):
    send(process, *OPENING, echo(2, "noise"))
    assert [answer(process)["id"], answer(process)["id"]] == [1, 2]
    process.stdin.write("this is not a JSON\n")
    send(process, echo(3, "after"))
    assert answer(process)["result"]["structuredContent"]["text"] == "echo: after"
    out, err = process.communicate(timeout=PROMPTLY)
    assert (process.returncode, out) == (0, "")
    for kind in ("of print", "left in the buffer", "of a C library", "of a child"):
        assert f"NOISE {kind}\n" in err
    assert err.endswith("closed\n")


BAD_LINES = (
    b"this is not JSON",
    b"\xff\xfe\x00 is not UTF-8",
    b"[]",
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "get", '
    b'"arguments": {"reference": "half of a pair: \\ud83d"}}}',
    b'{"jsonrpc": "2.0", "id": 2, "method": "' + b"x" * 10_000_000,
)


def test_a_line_that_is_no_message_does_not_keep_the_next_one_from_its_answer(process):
    send(process, *OPENING)
    assert answer(process)["id"] == 1
    for number, line in enumerate(BAD_LINES, start=3):
        process.stdin.buffer.write(line + b"\n")
        send(process, echo(number, "after"))
        while (told := answer(process))["id"] != number:
            assert told["id"] in (None, 2)  # the bad line's own
        assert told["result"]["structuredContent"]["text"] == "echo: after"


def test_the_end_of_input_ends_the_process_while_a_call_runs(process):
    held(process)
    out, err = process.communicate(timeout=PROMPTLY)
    assert (process.returncode, err) == (0, "")
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())


def test_an_input_that_is_empty_ends_the_process(process):
    out, err = process.communicate(timeout=STARTED_AND_ENDED)
    assert (process.returncode, out, err) == (0, "", "closed\n")


@pytest.mark.slow
def test_the_process_ends_when_its_parent_is_gone_though_its_input_stays_open(tmp_path):
    launch = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    command = [sys.executable, "-c", launch, sys.executable, *serving("stub", "stdio")]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment(tmp_path), text=True, **pipes) as parent:
        send(parent, *OPENING)
        assert answer(parent)["id"] == 1
        parent.kill()
        assert select.select([parent.stdout], [], [], STARTED_AND_ENDED)[0]
        assert parent.stdout.read() == ""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_quietly_while_a_call_runs(process, sent):
    held(process)
    process.send_signal(sent)
    assert process.wait(timeout=PROMPTLY) == 0
    assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_an_error_at_the_start_is_reported_and_ends_the_server_despite_open_input(tmp_path):
    with start(tmp_path, "fail") as process:
        assert process.wait(timeout=STARTED_AND_ENDED) == 1
        assert process.stderr.read() == "catalog: this store is not yours\n"
        assert process.stdout.read() == ""


def test_a_client_that_is_gone_ends_the_process_quietly(process):
    held(process)
    process.stdout.close()
    process.stdin.close()
    assert process.wait(timeout=PROMPTLY) == 0
    assert process.stderr.read() == ""


def configured(home):
    """What docs/start/agents.md tells to write into an agent's configuration, for this store."""
    told = (Path(__file__).parents[3] / "docs" / "start" / "agents.md").read_text()
    block = next(part for part in told.split("```json")[1:] if "IDX_HOME" in part)
    entry = json.loads(block.partition("\n")[2].partition("```")[0])["mcpServers"]["catalog"]
    assert entry["command"] == "catalog"
    assert "IDX_HOME" in entry["env"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return entry | {"env": {**entry["env"], "IDX_HOME": str(home), "PATH": path}}


@pytest.mark.slow
@pytest.mark.model
def test_an_agent_starts_it_as_its_configuration_says(tmp_path, notes):
    from mcp import StdioServerParameters

    entry, home = configured(tmp_path / "home"), tmp_path / "home"
    command = Path(sys.executable).with_name("catalog")
    subprocess.run(
        [command, "--home", home, "index", "build", notes, "--dataset", "notes"], check=True
    )
    with talk(StdioServerParameters(**entry), mode="legacy") as session:
        answer = session.call("search_chunks", query="How often are the API keys changed?")
        first = answer.structured_content["results"][0]
        assert (first["path"], answer.is_error) == ("keys.md", False)
        (content,) = session.do("read_resource", "catalog://notes/guides/backup.md").contents
        assert content.text.startswith("# Backups")
