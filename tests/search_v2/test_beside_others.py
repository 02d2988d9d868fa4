"""Searches beside writers, other holders of an index, and forks; the statements of a warm one."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import event

import catalog
from catalog.core.errors import EngineBlockedError, EngineError, EngineLockedError
from catalog.library.indexing import Indexer
from catalog.retrieval import search as search_module
from catalog.search_v2.service import SearchServiceV2
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine
from fakes import open_library, write
from processes import Forked
from stores import open_store

FILES = {f"notes/n{n}.md": f"# Note {n}\n\nA walrus, dozing." for n in range(8)}
FILES["notes/a.md"] = "# Walrus\n\nwalrus walrus dives, version 0."


def search(service):
    return service.search("walrus dives", dataset="notes", top_k=5, explain=True)


def told(results):
    return [(one.path, one.text, one.score) for one in results]


@pytest.mark.parametrize("fusion", ["adaptive", "rrf"])
@pytest.mark.parametrize("place", ["before its passages are read", "between its legs"])
def test_a_search_answers_from_the_state_in_which_it_began(tmp_path, monkeypatch, fusion, place):
    with open_store(FILES, tmp_path, fusion_mode=fusion) as library:
        indexer, service = Indexer(library), SearchServiceV2(library)
        before, updates = told(search(service)), []

        def update():
            write(tmp_path / "notes", a_dot_md="# Walrus\n\nwalrus walrus dives, version 1.")
            indexer.update("notes")

        def write_first(real):
            def run(*asked, **more):
                answer = real(*asked, **more)
                if not updates:
                    updates.append(thread := threading.Thread(target=update))
                    thread.start()
                    thread.join()
                return answer

            return run

        owner, name = (
            (Bm25Engine, "search") if place == "between its legs" else (search_module, "fuse_lists")
        )
        monkeypatch.setattr(owner, name, write_first(getattr(owner, name)))
        assert told(search(service)) == before
        assert len(updates) == 1
        assert "version 1" in search(service)[0].text


@pytest.fixture
def library(tmp_path):
    files = {"notes/a.md": "A walrus sings.", "notes/b.md": "An otter swims."}
    with open_store(files, tmp_path, vector_engine="qdrant") as opened:
        yield opened


def failing_with(monkeypatch, error):
    def fails(*_given):
        raise error

    monkeypatch.setattr(QdrantEdgeEngine, "follow", fails)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (EngineLockedError("held"), "the index is open elsewhere"),
        (EngineBlockedError("the disk is full"), "the disk is full"),
    ],
)
def test_the_stored_vectors_are_searched_instead(library, monkeypatch, error, why):
    service = SearchServiceV2(library)
    plain = service.search("walrus", dataset="notes", mode="vector")
    failing_with(monkeypatch, error)
    answer = service.search("walrus", dataset="notes", mode="vector")
    assert [one.chunk_id for one in answer] == [one.chunk_id for one in plain]
    (stage,) = (one for one in answer.stages if one.name == "vector")
    note = f"flat: 2 hits; {why}, so vectors were compared one by one"
    assert (stage.status, note in stage.note) == ("ran", True)


def test_a_broken_index_is_a_failed_leg(library, monkeypatch):
    failing_with(monkeypatch, EngineError("it is broken"))
    answer = SearchServiceV2(library).search("walrus", dataset="notes")
    (stage,) = (one for one in answer.stages if one.name == "vector")
    assert (stage.status, stage.note) == ("failed", "EngineError: it is broken")


SOURCE = str(Path(catalog.__file__).parent)
MOST_FILES, MOST_FUNCTIONS = 40, 175  # without lambdas and comprehensions
TEXTS = {
    "a_dot_md": "# Animals\n\nA walrus sings at noon.\n\nIt likes cold water.\n",
    "b_dot_md": "An otter swims.",
}


def test_a_warm_search_reads_by_three_statements_and_crosses_few_files(tmp_path):
    write(tmp_path / "notes", **TEXTS)
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        service, statements, crossed = SearchServiceV2(library), [], set()

        def search():
            return service.search("when does a walrus sing", dataset="notes", explain=True)

        def note(_connection, _cursor, statement, *_more):
            statements.append(statement)

        def watch(frame, what, _argument):
            code = frame.f_code
            if what == "call" and code.co_filename.startswith(SOURCE):
                crossed.add((code.co_filename, code.co_qualname))

        search()
        event.listen(library.database.engine, "before_cursor_execute", note)
        sys.setprofile(watch)
        try:
            results = search()
        finally:
            sys.setprofile(None)
    assert results[0].path == "a.md"
    assert {part.leg for part in results[0].explain.contributions} == {"lexical", "vector"}
    assert len(statements) == 3, statements
    assert len({file for file, _ in crossed}) <= MOST_FILES
    functions = {name for name in crossed if not name[1].endswith(">")}
    assert 100 < len(functions) <= MOST_FUNCTIONS, len(functions)


ENGINES = ("qdrant", "sqlite-vec", "flat")
SCRIPT = """
import json, os, sys, threading
from pathlib import Path
from catalog.core.errors import CatalogError
from catalog.core.kept import OpenServices
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

home, engines = Path(sys.argv[1]), sys.argv[2:]
shared = OpenServices()

def make(engine):
    return lambda: SearchServiceV2(open_library(home, vector_engine=engine))

def search(find, mode):
    try:
        service = find()
        return [one.path for one in service.search("walrus", dataset="notes", mode=mode, top_k=1)]
    except CatalogError as error:
        return [type(error).__name__, str(error)]

def answers(find):
    modes = ("lexical", "vector", "hybrid")
    return [search(lambda: find(each), mode) for each in engines for mode in modes]

own = {each: shared.get(each, make(each)) for each in engines}
told = {"before": answers(own.get)}
reading, writing = os.pipe()
held = threading.Thread(target=shared._lock.acquire)  # as another thread of the parent may
held.start()
held.join()
if os.fork() == 0:
    told["own"] = answers(own.get)
    for each in own.values():
        each.close()
    told["shared"] = answers(lambda each: shared.get(each, make(each)))
    os.write(writing, json.dumps(told).encode())
    sys.exit(0)
told = json.loads(os.read(reading, 65536))
_, status = os.wait()
print(json.dumps({**told, "status": status, "after": answers(own.get)}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_refused_the_services_of_its_parent(tmp_path):
    open_store({"notes/a.md": "A walrus.", "notes/b.md": "An otter."}, tmp_path).close()
    process = Forked(
        ["-c", SCRIPT, str(tmp_path / "home"), *ENGINES],
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
    assert told["before"] == told["after"] == [["a.md"]] * 3 * len(ENGINES)
    for error, message in (*told["own"], *told["shared"]):
        assert error == "ForkedError"
        assert "after the fork" in message
    assert told["status"] == 0
