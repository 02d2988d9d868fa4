"""Passages that say the same: shown once, with all their places, and never at another's expense."""

import pytest

from catalog.core.settings import AnswerSettings, RAGv2Settings
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library, write

NOTE = "# Bike\n\nThe chain of the blue bike jumps. Tighten the cable a quarter turn.\n"
COPIES = {f"copy{n}.md" for n in range(8)}


@pytest.fixture
def service(tmp_path):
    folder = tmp_path / "notes"
    write(folder, **{name.replace(".", "_dot_"): NOTE for name in COPIES})
    for n in range(4):
        (folder / f"other{n}.md").write_text(f"# Ride {n}\n\nThe bike went {n + 3} miles.\n")
    (folder / "secret.md").write_text(f"---\nconfidentiality: secret\n---\n{NOTE}")
    with open_library(tmp_path / "home", distinct_text=True) as library:
        Indexer(library).build(folder, "notes")
        roles = AnswerSettings(roles=["guest: public, unlabelled"])
        library.settings = library.settings.model_copy(update={"answers": roles})
        yield SearchServiceV2(library)


def places(result):
    return {result.path, *(other.path for other in result.also_in)}


def test_copies_are_one_result_by_default():
    assert RAGv2Settings().distinct_text


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid"])
def test_eight_copies_are_one_result_that_names_them_all_and_others_follow(service, mode):
    found = service.search("blue bike chain", top_k=5, mode=mode)
    assert len(found) == 5
    (first,) = [one for one in found if one.also_in]
    assert places(first) == {*COPIES, "secret.md"}
    assert {one.path for one in found if one is not first} == {f"other{n}.md" for n in range(4)}


def test_another_place_has_what_get_takes_and_a_citation(service):
    first = service.search("blue bike chain", top_k=1)[0]
    other = next(one for one in first.also_in if one.path != "secret.md")
    assert other.source_doc_id == f"notes:{other.path}"
    assert (other.locator.line_start, other.locator.line_end) == (1, 3)
    assert other.citation == "[source: Bike, lines 1-3]"
    told = first.model_dump(mode="json", exclude_unset=True)["also_in"]
    assert {one["path"] for one in told} == places(first) - {first.path}


def test_a_result_without_copies_lists_no_copies(service):
    for one in service.search("miles", top_k=3, mode="lexical").to_dict()["results"]:
        assert "also_in" not in one


@pytest.mark.parametrize("switch", ["setting", "parameter"])
def test_copies_can_be_results_of_their_own(service, switch):
    asked = {"top_k": 5, "mode": "lexical"}
    if switch == "setting":
        found = service.with_settings({"distinct_text": False}).search("blue chain", **asked)
    else:
        found = service.search("blue chain", all_copies=True, **asked)
    assert len({one.path for one in found} & {*COPIES, "secret.md"}) == 5
    assert not any(one.also_in for one in found)


@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        ({"role": "guest"}, COPIES),
        ({"doc_ids": ["copy1.md", "copy2.md"]}, {"copy1.md", "copy2.md"}),
        ({"name": "copy3"}, {"copy3.md"}),
        ({"filters": {"path": "copy4.md"}}, {"copy4.md"}),
    ],
)
def test_a_document_outside_scope_is_not_named_as_a_copy(service, narrowed, expected):
    found = service.search("blue bike chain", top_k=5, **narrowed)
    assert set().union(*map(places, found)) & {*COPIES, "secret.md"} == expected
    assert ("secret" in str(found.to_dict())) is ("secret.md" in expected)


def test_nodes_name_the_documents_with_the_same_text(service):
    node = service.retrieve("blue bike chain", top_k=1)[0].node
    ids = {node.metadata["source_doc_id"], *node.metadata["also_in"]}
    assert ids == {f"notes:{name}" for name in (*COPIES, "secret.md")}


def test_two_versions_that_differ_in_a_number_are_two_results(service, tmp_path):
    terms = "# Terms\n\nThe fee is {} euros. It falls due on the first day of each quarter.\n"
    write(tmp_path / "terms", a_dot_md=terms.format(500), b_dot_md=terms.format(600))
    Indexer(service.library).build(tmp_path / "terms", "terms")
    found = service.search("fee due each quarter", dataset="terms")
    assert {one.path for one in found} == {"a.md", "b.md"}


def test_a_copy_in_another_dataset_is_named_with_it(service, tmp_path):
    write(tmp_path / "more", bike_dot_md=NOTE)
    Indexer(service.library).build(tmp_path / "more", "more")
    first = service.search("blue bike chain", dataset=["notes", "more"], top_k=1)[0]
    named = {(first.dataset, first.path), *((one.dataset, one.path) for one in first.also_in)}
    assert named >= {("more", "bike.md"), ("notes", "copy0.md")}
