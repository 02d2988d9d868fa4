"""A process that searched and then forks: the child is refused at once, and ends."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from catalog.library.indexing import Indexer
from fakes import open_library, write
from processes import Forked

MODES = ("lexical", "vector", "hybrid")
SCRIPT = """
import json, os, sys, threading
from pathlib import Path
from catalog.core.errors import CatalogError
from catalog.core.open_services import OpenServices
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

home, engine = Path(sys.argv[1]), sys.argv[2]
shared = OpenServices()

def make():
    return SearchServiceV2(open_library(home, vector_engine=engine))

def search(find, mode):
    try:
        service = find()
        return [one.path for one in service.search("walrus", dataset="notes", mode=mode, top_k=1)]
    except CatalogError as error:
        return [type(error).__name__, str(error)]

def answers(find):
    return {mode: search(find, mode) for mode in ("lexical", "vector", "hybrid")}

own = shared.get("key", make)
told = {"before": answers(lambda: own)}
reading, writing = os.pipe()
held = threading.Thread(target=shared._lock.acquire)  # as another thread of the parent may
held.start()
held.join()
if os.fork() == 0:
    told["own"] = answers(lambda: own)
    own.close()
    told["shared"] = answers(lambda: shared.get("key", make))
    os.write(writing, json.dumps(told).encode())
    sys.exit(0)
told = json.loads(os.read(reading, 65536))
_, status = os.wait()
print(json.dumps({**told, "status": status, "after": answers(lambda: own)}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("engine", ["qdrant", "sqlite-vec", "flat"])
def test_a_forked_child_is_refused_the_services_of_its_parent(tmp_path, engine):
    write(tmp_path / "notes", a_dot_md="A walrus.", b_dot_md="An otter.")
    with open_library(tmp_path / "home", vector_engine=engine) as library:
        Indexer(library).build(tmp_path / "notes", "notes")
    process = Forked(
        ["-c", SCRIPT, str(tmp_path / "home"), engine],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, errors = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0, errors
    told = json.loads(out)
    answered = {mode: ["a.md"] for mode in MODES}
    assert told["before"] == told["after"] == answered
    for error, message in (*told["own"].values(), *told["shared"].values()):
        assert error == "ForkedError"
        assert "after the fork" in message
    assert told["status"] == 0
