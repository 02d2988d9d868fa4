"""A search whose two legs run while another thread changes the documents."""

import threading

import pytest

from catalog.library.indexing import Indexer
from catalog.retrieval import search as search_module
from catalog.search_v2.service import SearchServiceV2
from catalog.store.lexical.bm25 import Bm25Engine
from fakes import WordEncoder, open_library, write


@pytest.fixture
def folder(tmp_path):
    for number in range(8):
        write(tmp_path / "notes", **{f"n{number}_dot_md": f"# Note {number}\n\nA walrus, dozing."})
    write_version(tmp_path / "notes", 0)
    return tmp_path / "notes"


def write_version(folder, number):
    write(folder, a_dot_md=f"# Walrus\n\nwalrus walrus dives, version {number}.")


def search(service):
    return service.search("walrus dives", dataset="notes", top_k=5, explain=True)


def told(results):
    return [(one.path, one.text, one.score) for one in results]


@pytest.mark.parametrize("fusion", ["adaptive", "rrf", "relative_score"])
@pytest.mark.parametrize("place", ["before its passages are read", "between its legs"])
def test_a_search_answers_from_the_state_in_which_it_began(
    tmp_path, folder, monkeypatch, fusion, place
):
    with open_library(tmp_path / "home", WordEncoder(), fusion_mode=fusion) as library:
        indexer, service = Indexer(library), SearchServiceV2(library)
        indexer.build(folder, "notes")
        before, updates = told(search(service)), []

        def update():
            write_version(folder, 1)
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
