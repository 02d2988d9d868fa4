"""A passage over page breaks: cited with all its pages, found by each, opened where it answers."""

from __future__ import annotations

import pytest

from catalog.core.params import MODES
from catalog.core.user_search import to_ranking
from catalog.library.indexing import Indexer
from catalog.retrieval.citations import format_shown_place
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

TEA = "Tea is best when the water rests a while before it meets the leaves."
KEYS = "Every ninety days the keys of the kettle are rotated by hand, never sooner."


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Over ``tea.pdf``, whose one passage begins on page 2 and ends on page 4; page 3 is blank."""
    from reportlab.pdfgen.canvas import Canvas

    folder = tmp_path_factory.mktemp("documents")
    book = Canvas(str(folder / "tea.pdf"))
    for text in ("", TEA, "", KEYS):
        book.drawString(72, 700, text)
        book.showPage()
    book.save()
    (folder / "keys.md").write_text("The keys of the kettle hang by the door.\n")
    with open_library(tmp_path_factory.mktemp("home"), snippet_chars=80) as library:
        report = Indexer(library).build(folder, "notes")
        assert report.failed == ()
        yield SearchServiceV2(library)


def found(service, query, **asked):
    return service.search(query, dataset="notes", **asked)


def the_book(service, query, **asked):
    (hit,) = [one for one in found(service, query, **asked) if one.path == "tea.pdf"]
    return hit


def test_a_passage_over_a_blank_page_is_cited_with_all_its_pages(service):
    hit = the_book(service, "keys rotated")
    assert TEA.split()[0] in hit.text
    assert KEYS.split()[-1] in hit.text
    assert (hit.locator.page, hit.locator.page_end) == (2, 4)
    assert hit.citation == "[source: tea, page 4 (pages 2-4)]"
    told = found(service, "keys rotated", filters=["path=tea.pdf"]).to_dict()["results"][0]
    assert (told["locator"]["page"], told["locator"]["page_end"]) == (2, 4)
    assert to_ranking([told], "notes", 1).hits[0].location == "pages 2–4"


def test_the_link_opens_the_page_on_which_the_best_sentence_begins(service):
    assert the_book(service, "keys rotated").link == "tea.pdf#page=4"
    assert the_book(service, "water leaves").link == "tea.pdf#page=2"


def test_a_snippet_has_the_pages_of_its_own_text(service):
    hit = the_book(service, "keys rotated")
    assert hit.snippet == KEYS
    assert (hit.snippet_locator.page, hit.snippet_locator.page_end) == (4, 4)
    assert format_shown_place(hit.model_copy(update={"snippet_lines": None})) == "tea.pdf page 4"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("asked", "paths"),
    [
        ("page=1", set()),
        ("page=2", {"tea.pdf"}),
        ("page=3", {"tea.pdf"}),
        ("page=4", {"tea.pdf"}),
        ("page=5", set()),
        ("page>=4", {"tea.pdf"}),
        ("page>4", set()),
        ("page=1|4", {"tea.pdf"}),
        ("page!=4", {"keys.md"}),
        ("page!=5", {"keys.md", "tea.pdf"}),
    ],
)
def test_each_of_its_pages_finds_it_in_every_mode(service, mode, asked, paths):
    hits = found(service, "the keys of the kettle", mode=mode, filters=[asked])
    assert {hit.path for hit in hits} == paths
