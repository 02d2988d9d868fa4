"""Files truncated or copied over under a reader: a typed error or an answer, never a dead process.

``IDX_TEST_CHAOS_SECONDS`` is how long, one round without it; ``IDX_TEST_SEED`` replays.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from processes import Forked

SECONDS = float(os.environ.get("IDX_TEST_CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("IDX_TEST_SEED", str(random.SystemRandom().randrange(10**6))))
LONGEST = 120  # seconds for one answer, however slow the machine is

SEARCHER = """
import sys
from pathlib import Path
from catalog.core.errors import CatalogError
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

library = open_library(Path(sys.argv[1]), vector_engine="flat")
service = SearchServiceV2(library)
for number, line in enumerate(sys.stdin):
    for mode in ("lexical", "vector"):
        try:
            found = len(service.search(f"alpha word{number}", dataset="notes", mode=mode))
        except CatalogError as error:
            found = type(error).__name__
    print("answered", found, flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(60):
        words = " ".join(f"word{number * 50 + one}" for one in range(50))
        (folder / f"{number}.md").write_text(f"# Alpha {number}\n\nalpha {words}\n")
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(folder, "notes")
        SearchServiceV2(library).search("alpha", dataset="notes")
    return tmp_path / "home"


def harm(file: Path, chance: random.Random, *, first: bool) -> str:
    """Do to a file what a careless copy does, in place; return what was done."""
    size = file.stat().st_size
    if first or chance.random() < 0.5:
        left = 0 if first else chance.choice((0, size // 2, max(0, size - 1)))
        os.truncate(file, left)
        return f"{file.name} cut to {left} of {size} bytes"
    with file.open("r+b") as over:
        over.write(chance.randbytes(min(size, 20_000)))
    return f"{file.name} overwritten"


def test_a_searching_process_outlives_files_that_shrink_under_it(home, tmp_path):
    end, seed = time.monotonic() + SECONDS, SEED
    keep = tmp_path / "whole"
    shutil.copytree(home, keep)
    while True:
        chance = random.Random(seed)
        store, segments = home / "catalog.db", sorted((home / "indexes").rglob("*.npy"))
        searcher = Forked(
            ["-c", SEARCHER, str(home)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        done = []
        try:
            assert ask(searcher) == "answered 10\n", searcher.communicate()
            for group in chance.sample((segments, [store]), 2):
                done += [harm(file, chance, first=not done) for file in group]
                answer = ask(searcher)
                told = f"seed {seed}: {done}, {searcher.poll()}"
                assert answer.startswith("answered"), f"{told} {searcher.communicate()[1]}"
            searcher.communicate(timeout=LONGEST)
            assert searcher.returncode == 0, f"seed {seed}: {done}"
        finally:
            searcher.kill()
            searcher.wait()
        if time.monotonic() >= end:
            return
        seed += 1
        shutil.rmtree(home)
        shutil.copytree(keep, home)


def ask(searcher: subprocess.Popen[str]) -> str:
    try:
        searcher.stdin.write("go\n")
        searcher.stdin.flush()
    except BrokenPipeError:
        return ""
    return searcher.stdout.readline()
