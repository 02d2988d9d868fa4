"""Eight processes on one store: searches go on, whole, while another process updates.

``IDX_TEST_SECONDS`` is how long, 2 without it; the full judgement is 30.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from catalog.interfaces.home_socket import server_of
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_qdrant_library
from interfaces.searching import ANSWERS
from processes import Forked

SCRIPT = Path(__file__).with_name("searching.py")
SECONDS = float(os.environ.get("IDX_TEST_SECONDS", "2"))
LONGEST = 120  # seconds more, where the machine is slow
SEARCHERS = 8


def revision(number: int) -> str:
    body = "alpha " + "filler " * 40
    return "\n\n".join(f"# Part {part}\n\n{body}version {number}" for part in range(3))


def start(*arguments) -> subprocess.Popen:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": ""}
    command = [str(SCRIPT), *map(str, arguments)]
    return Forked(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def until(condition, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            pytest.fail(process.communicate()[1])


def is_running(searchers):
    return all(searcher.poll() is None for searcher in searchers)


def all_answered(folder):
    """Return whether each searcher had its answers, however slow the machine is."""
    return len(list(folder.glob("answered-*"))) == SEARCHERS


@pytest.mark.slow
@pytest.mark.parametrize("served", [False, True], ids=["alone", "served"])
def test_every_answer_is_whole_while_another_process_updates(tmp_path, served):
    folder, home, stop = tmp_path / "notes", tmp_path / "home", tmp_path / "stop"
    folder.mkdir()
    (folder / "still.md").write_text("alpha version that never changes")
    (folder / "changing.md").write_text(revision(0))
    with open_qdrant_library(home) as library:
        Indexer(library).build(folder, "notes")
    server = start(home, stop, "serve") if served else None
    if server is not None:
        until(lambda: server_of(home) is not None, server)
    searchers = [start(home, stop) for _ in range(SEARCHERS)]
    number = 0
    try:
        for searcher in searchers:
            assert searcher.stdout.readline() == "ready\n", searcher.communicate()[1]
        with open_qdrant_library(home) as library:
            deadline = time.monotonic() + SECONDS
            while is_running(searchers) and (
                time.monotonic() < deadline or not all_answered(tmp_path)
            ):
                assert time.monotonic() < deadline + LONGEST, "a process has too few answers"
                number += 1
                (folder / "changing.md").write_text(revision(number))
                report = Indexer(library).update("notes")
                assert report.failed == ()
    finally:
        stop.touch()
        ended = [searcher.communicate(timeout=60) for searcher in searchers]
        if server is not None:
            server.send_signal(signal.SIGTERM)
            _, server_err = server.communicate(timeout=60)
    assert [searcher.returncode for searcher in searchers] == [0] * SEARCHERS, ended
    told = [out.split() for out, _ in ended]
    assert all(int(count) >= ANSWERS for count, _ in told), told
    assert {how for _, how in told} == {"served" if served else "alone"}
    if server is not None:
        assert "Traceback" not in server_err
    with open_qdrant_library(home) as library:
        service = SearchServiceV2(library)
        answer = service.search(
            "alpha version", dataset="notes", mode="vector", doc_ids=["changing.md"]
        )
        assert answer[0].text.endswith(f"version {number}")
