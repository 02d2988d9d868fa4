"""The filters of pages (``source_url``, ``page_title``, ``section``) on what front matter says."""

import pytest

from catalog.core.params import MODES
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library, write
from tables import read_cases, table

PAGES = dict(read_cases(__file__)["pages"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The service over these pages, and the report of their indexing."""
    folder = tmp_path_factory.mktemp("pages")
    write(folder / "pages", **PAGES)
    with open_library(folder / "home") as library:
        report = Indexer(library).build(folder / "pages", "pages")
        yield SearchServiceV2(library), report


@pytest.mark.parametrize("mode", MODES)
@table("filters, expected", list)
def test_a_page_is_found_by_its_address_its_title_and_its_sections(pages, mode, filters, expected):
    service, _ = pages
    found = service.search("otters", dataset="pages", mode=mode, filters=filters)
    assert {result.path for result in found} == set(expected)


def test_metadata_that_cannot_be_read_is_a_warning_and_its_page_is_found_all_the_same(pages):
    service, report = pages
    assert {result.path for result in service.search("otters", dataset="pages", top_k=20)} == {
        name.replace("_dot_", ".") for name in PAGES
    }
    (warning,) = report.failed
    assert (warning.path, warning.outcome) == ("broken.md", "indexed")
    assert "the front matter is no YAML in line 2: quote the value" in warning.reason
