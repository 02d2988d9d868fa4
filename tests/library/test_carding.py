"""Queries of a store whose cards are not made yet: none waits for all of them."""

import pytest
from sqlalchemy import delete

from catalog.library.browse import DocumentCatalog
from catalog.library.document_cards import make_cards
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.cards import count_without_card
from catalog.store.schema import document_cards
from fakes import open_library, write

MODULES = ("library.browse", "retrieval.route")
ON = {"router_enabled": True, "router_documents": 1}


@pytest.fixture
def library(tmp_path, monkeypatch):
    for module in MODULES:
        monkeypatch.setattr(f"catalog.{module}.CARDS_PER_QUERY", 3)
    files = {f"owl{number}_dot_md": f"Owls hunt at night, number {number}." for number in range(7)}
    write(tmp_path / "notes", **files)
    with open_library(tmp_path / "home", **ON) as made:
        Indexer(made).build(tmp_path / "notes", "notes")
        with made.database.write() as connection:
            connection.execute(delete(document_cards))
        yield made


def lacking(library) -> int:
    with library.database.read() as connection:
        return count_without_card(connection, "notes")


def test_each_listing_makes_some_and_says_what_is_found_by_name_alone(library):
    listing = DocumentCatalog(library)
    pages, left = [], []
    for _ in range(3):
        pages.append(listing.query(dataset="notes", query="hunt"))
        left.append(lacking(library))
    assert left == [4, 1, 0]
    assert [page.total for page in pages] == [3, 6, 7]
    (first,) = pages[0].notes
    assert first.startswith(
        "4 documents are found only by title and path for now: the next queries make the rest"
    )
    assert pages[1].notes[0].startswith("1 document is found")
    assert pages[2].notes == ()


def test_a_listing_that_makes_the_last_of_a_full_portion_has_nothing_to_say(library):
    assert make_cards(library.database, "notes", limit=4) == 4
    assert DocumentCatalog(library).query(dataset="notes", query="hunt").notes == ()
    assert lacking(library) == 0


def test_the_router_makes_as_many_and_says_so(library):
    answer = SearchServiceV2(library).search("hunt", dataset="notes", top_k=1)
    (route,) = (stage for stage in answer.stages if stage.name == "route")
    assert "chosen only by their passages: the next queries make the rest" in route.note
    assert lacking(library) == 4
