"""A search whose two legs run while another thread changes the documents."""

import threading

import pytest

from catalog.library.indexing import Indexer
from catalog.retrieval import legs
from catalog.retrieval.hybrid import ATTEMPTS
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_qdrant_library, write


@pytest.fixture
def folder(tmp_path):
    for number in range(8):
        write(tmp_path / "notes", **{f"n{number}_dot_md": f"# Note {number}\n\nA walrus, dozing."})
    write_version(tmp_path / "notes", 0)
    return tmp_path / "notes"


class Writer:
    """Call ``update`` after the vector leg of a search and before its lexical leg.

    That is at the first attempt only, or ``always``. Where a search holds one state of the store,
    the lexical leg comes first.
    """

    def __init__(self, monkeypatch, update, *, always=False):
        self.updates = 0
        searched = threading.Event()
        search_lexical, search_vector = legs._search_words, legs._search_meaning

        def search_vectors(*asked):
            try:
                return search_vector(*asked)
            finally:
                searched.set()

        def search_words(*asked):
            if self.updates < ATTEMPTS:
                searched.wait()
                searched.clear()
            if self.updates == 0 or always:
                self.updates += 1
                thread = threading.Thread(target=update, args=(self.updates,))
                thread.start()
                thread.join()
            return search_lexical(*asked)

        monkeypatch.setattr(legs, "_search_words", search_words)
        monkeypatch.setattr(legs, "_search_meaning", search_vectors)


def write_version(folder, number):
    write(folder, a_dot_md=f"# Walrus\n\nwalrus walrus dives, version {number}.")


def search(service):
    return service.search("walrus dives", dataset="notes", top_k=5, explain=True)


@pytest.mark.parametrize("fusion", ["adaptive", "rrf", "relative_score"])
def test_a_document_whose_vector_comes_between_the_legs_keeps_its_rank_and_score(
    tmp_path, folder, monkeypatch, fusion
):
    encoder = WordEncoder()
    with open_qdrant_library(tmp_path / "home", encoder, fusion_mode=fusion) as library:
        indexer, service = Indexer(library), SearchServiceV2(library)
        indexer.build(folder, "notes")
        encoder.down = True
        write_version(folder, 1)
        assert indexer.update("notes").incomplete == 1

        def embed(_):
            encoder.down = False
            indexer.update("notes")

        monkeypatch.setattr(encoder, "down", False)  # the query is embedded before
        service.search("walrus dives", dataset="notes")
        Writer(monkeypatch, embed)
        beside = search(service)
        assert indexer.stats("notes").vectors == 9
        monkeypatch.undo()
        assert [(one.path, one.score) for one in beside] == [
            (one.path, one.score) for one in search(service)
        ]
        assert beside[0].path == "a.md"
        assert {part.leg for part in beside[0].explain.contributions} == {"lexical", "vector"}


def test_a_document_that_is_updated_all_the_time_keeps_its_rank(tmp_path, folder, monkeypatch):
    with open_qdrant_library(tmp_path / "home") as library:
        indexer, service = Indexer(library), SearchServiceV2(library)
        indexer.build(folder, "notes")
        before = search(service)

        def update(number):
            write_version(folder, number)
            indexer.update("notes")

        writer = Writer(monkeypatch, update, always=True)
        after = search(service)
        assert (before[0].path, after[0].path) == ("a.md", "a.md")
        assert after[0].score == pytest.approx(before[0].score, rel=0.5)
        assert writer.updates == ATTEMPTS + 1
