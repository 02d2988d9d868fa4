"""Many processes on one store: they make it once, and readers never hear that it is locked.

``IDX_TEST_CHAOS_SECONDS`` is how long the writer writes, a few changes without it.
"""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from catalog.library.indexing import Indexer
from fakes import open_library, write
from processes import Forked

SECONDS = float(os.environ.get("IDX_TEST_CHAOS_SECONDS", "0"))
LONGEST = 120  # seconds for one process, however slow the machine is
OPENERS = 8
READERS = 8 if SECONDS else 3
CHANGES = 2

OPENER = """
import sys
from pathlib import Path
from catalog.store.database import Database

print("ready", flush=True)
sys.stdin.readline()
print(Database.at(Path(sys.argv[1])).meta("store_id"))
"""

READER = """
import sys
from pathlib import Path
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

library = open_library(Path(sys.argv[1]), vector_engine="flat")
service = SearchServiceV2(library)
print("ready", flush=True)
asked = 0
while not Path(sys.argv[2]).exists():
    texts = [hit.text for hit in service.search("alpha version", dataset="notes", mode="hybrid")]
    versions = {text.split()[-1] for text in texts if "moving" in text}
    assert len(versions) == 1, versions
    assert any("still" in text for text in texts)
    asked += 1
library.close()
print(asked)
"""


def start(program: str, *arguments: Path) -> subprocess.Popen[str]:
    return Forked(
        ["-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcomes(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each printed; the test fails with what one complained of."""
    printed = []
    for process in processes:
        out, complaint = process.communicate("go\n", timeout=LONGEST)
        assert process.returncode == 0, complaint
        printed.append(out.strip())
    return printed


def test_eight_processes_open_a_new_store_at_once_and_make_it_once(tmp_path):
    home = tmp_path / "home"
    openers = [start(OPENER, home) for _ in range(OPENERS)]
    try:
        for opener in openers:
            assert opener.stdout.readline() == "ready\n"
        for opener in openers:
            opener.stdin.write("go\n")
            opener.stdin.flush()
        assert len(set(outcomes(openers))) == 1
    finally:
        for opener in openers:
            opener.kill()
    with closing(sqlite3.connect(home / "catalog.db")) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert store.execute("SELECT count(*) FROM meta WHERE key = 'store_id'").fetchone() == (1,)
    assert {path.stat().st_mode & 0o077 for path in home.iterdir()} == {0}


@pytest.mark.slow
def test_readers_get_whole_answers_and_no_error_while_a_writer_works(tmp_path):
    home, folder, stop = tmp_path / "home", tmp_path / "notes", tmp_path / "stop"
    write(folder, still_dot_md="alpha still", moving_dot_md="alpha moving version 0")
    with open_library(home, vector_engine="flat") as library:
        Indexer(library).build(folder, "notes")
        readers = [start(READER, home, stop) for _ in range(READERS)]
        try:
            for reader in readers:
                assert reader.stdout.readline() == "ready\n", reader.communicate()[1]
            end, change = time.monotonic() + SECONDS, 0
            while change < CHANGES or time.monotonic() < end:
                change += 1
                write(folder, moving_dot_md=f"{'more ' * change}alpha moving version {change}")
                Indexer(library).build(folder, "notes")
                assert all(reader.poll() is None for reader in readers)
            stop.touch()
            assert all(int(asked) > 0 for asked in outcomes(readers))
        finally:
            stop.touch()
            for reader in readers:
                reader.kill()
                reader.wait()
