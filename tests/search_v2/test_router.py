"""Routing: which documents are chosen before passages, and what that must never change."""

import pytest
from sqlalchemy import delete

from catalog.core.errors import StageFailedError
from catalog.core.filters import parse_filters
from catalog.core.params import MODES
from catalog.core.scope import Scope
from catalog.library.indexing import Indexer
from catalog.retrieval.search import shortlist
from catalog.search_v2 import CatalogRetriever
from catalog.search_v2.service import SearchServiceV2
from catalog.store.restriction import Restriction
from catalog.store.schema import document_cards
from fakes import write
from stores import open_store, service_of
from tables import table

ENGINES = [("bm25", "qdrant"), ("fts", "flat")]
ON = {"router_enabled": True, "router_documents": 2}


def trees():
    """Six documents; all but one tell of keys, each with a word of its own."""
    made = {"trees/bread.md": "# Bread\n\nMix flour and water, then bake it.\n"}
    for number, name in enumerate(["alder", "birch", "cedar", "damson", "elm"]):
        text = "".join(
            f"## Part {part}\n\nThe {name} keys of part {part} are kept in a box, row {number}.\n\n"
            for part in range(6)
        )
        level = "closed" if name == "birch" else "open"
        made[f"trees/{name}.md"] = f"---\nlevel: {level}\n---\n# About {name}\n\n{text}"
    return made


TREES = trees()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "trees"


@pytest.fixture
def library(tmp_path):
    with open_store(TREES, tmp_path, **ON) as opened:
        yield opened


@pytest.fixture
def own_service(library):
    """For a test that changes its store."""
    return SearchServiceV2(library)


@pytest.fixture
def service():
    """A service on a store that no test changes."""
    return service_of(TREES, **ON)


def off(library):
    return SearchServiceV2(library).with_settings({"router_enabled": False})


def told(answer):
    """The answer without its times."""
    told = answer.to_dict()
    del told["elapsed_ms"]
    for stage in told["stages"]:
        del stage["ms"]
    return told


def route(answer):
    return next(one for one in answer.stages if one.name == "route")


def paths(passages):
    return {one.path for one in passages}


def test_the_router_is_off_unless_asked_for_and_then_reports_nothing():
    answer = service_of(TREES).search("alder keys", dataset="trees")
    assert "route" not in {stage.name for stage in answer.stages}


@pytest.mark.parametrize("mode", MODES)
def test_off_nothing_changes_and_a_skipped_router_changes_nothing_else(own_service, library, mode):
    off(library).search("cedar keys", dataset="trees", mode=mode)  # embeds the query
    plain = told(off(library).search("cedar keys", dataset="trees", mode=mode))
    with library.database.write() as connection:
        connection.execute(delete(document_cards))
    assert told(off(library).search("cedar keys", dataset="trees", mode=mode)) == plain
    wide = own_service.with_settings({"router_documents": 6})
    skipped = told(wide.search("cedar keys", dataset="trees", mode=mode))
    (stage,) = [one for one in skipped["stages"] if one["name"] == "route"]
    assert (stage["status"], stage["note"]) == ("skipped", "at most 6 documents may answer anyway")
    skipped["stages"].remove(stage)
    assert skipped == plain


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("lexical", "vector"), ENGINES)
def test_only_the_chosen_documents_answer(mode, lexical, vector):
    service = service_of(TREES, **ON, lexical_engine=lexical, vector_engine=vector)
    asked = {"dataset": "trees", "mode": mode, "top_k": 4}
    answer = service.search("cedar damson keys", **asked)
    assert paths(answer) <= {"cedar.md", "damson.md"}
    assert (len(answer), route(answer).status) == (4, "ran")
    assert route(answer).note == "2 documents chosen"
    nodes = service.retrieve("cedar damson keys", **asked)
    assert {node.node.chunk.path for node in nodes} <= {"cedar.md", "damson.md"}
    more = CatalogRetriever(service=service, whole=False, **asked).retrieve("cedar damson keys")
    assert {node.node.chunk.path for node in more} <= {"cedar.md", "damson.md"}


@pytest.mark.parametrize("mode", MODES)
def test_too_few_passages_and_everything_is_searched_after_all(service, mode):
    answer = service.search("cedar keys", dataset="trees", mode=mode, top_k=10)
    plain = off(service.library).search("cedar keys", dataset="trees", mode=mode, top_k=10)
    assert route(answer).note == (
        "2 documents chosen; they gave 6 passages, so all documents were searched"
    )
    assert told(answer)["results"] == told(plain)["results"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("top_k", [2, 10])
@table("narrowing, allowed")
def test_nothing_outside_the_scope_or_filter_is_let_in(service, narrowing, allowed, mode, top_k):
    asked, allowed = {"dataset": "trees", "mode": mode, "top_k": top_k, **narrowing}, set(allowed)
    assert paths(service.search("birch keys", **asked)) <= allowed
    assert {one.node.chunk.path for one in service.retrieve("birch keys", **asked)} <= allowed
    candidates = CatalogRetriever(service=service, whole=False, **asked).retrieve("birch keys")
    assert {one.node.chunk.path for one in candidates} <= allowed


def test_documents_of_another_dataset_are_never_chosen(own_service, library, tmp_path):
    other = tmp_path / "other"
    write(other, canary_dot_md="# Cedar cedar\n\nCedar cedar cedar keys.\n")
    Indexer(library).build(other, "secret")
    chosen, _ = shortlist(own_service.parts, "cedar keys", Restriction("trees"), 3)
    assert chosen[0] == "trees:cedar.md"
    assert all(one.startswith("trees:") for one in chosen)


@pytest.mark.parametrize(
    "restriction",
    [
        Restriction("trees", scope=Scope.of(["trees:alder.md", "trees:elm.md"])),
        Restriction("trees", filter=parse_filters(["path!=cedar.md", "level=open"])),
        Restriction("trees", filter=parse_filters({"section": "Part 0", "title": "About elm"})),
        Restriction("trees", without=("cedar",)),
        Restriction("trees", scope=Scope.of(())),
    ],
)
def test_a_shortlist_stays_within_the_restriction(service, restriction):
    chosen, _ = shortlist(service.parts, "cedar keys", restriction, 1)
    assert "trees:cedar.md" not in chosen


def test_a_document_is_chosen_by_what_it_is_about_and_by_what_one_passage_says(
    own_service, library, folder
):
    write(folder, elm_dot_md="# About elm\n\n" + "Elm keys are old. " * 300 + "\n\nAnd a walrus.\n")
    write(folder, walrus_dot_md="# Walruses\n\nThey live in the sea.\n")
    Indexer(library).build(folder, "trees")
    chosen, _ = shortlist(own_service.parts, "the walrus", Restriction("trees"), 5)
    assert set(chosen) == {"trees:walrus.md", "trees:elm.md"}


def test_a_document_that_goes_or_changes_is_chosen_no_more(own_service, library, folder):
    write(folder, cedar_dot_md="# Nothing\n\nThere is nothing here now.\n")
    (folder / "damson.md").unlink()
    Indexer(library).update("trees")
    assert shortlist(own_service.parts, "damson", Restriction("trees"), 3)[0] == []
    assert "trees:cedar.md" not in shortlist(own_service.parts, "box", Restriction("trees"), 3)[0]
    again, _ = shortlist(own_service.parts, "nothing", Restriction("trees"), 3)
    assert again == ["trees:cedar.md"]


def test_a_phrase_and_an_exclusion_hold_in_the_chosen_documents(service):
    answer = service.search('keys "elm keys"', dataset="trees", mode="lexical", top_k=2)
    assert (paths(answer), route(answer).status) == ({"elm.md"}, "skipped")
    assert "at most" in route(answer).note  # documents that hold it
    for mode in ("vector", "hybrid"):
        answer = service.search('keys "elm keys"', dataset="trees", mode=mode, top_k=2)
        assert paths(answer) == {"elm.md"}
    answer = service.search("keys -elm -alder", dataset="trees", top_k=2)
    assert route(answer).status == "ran"
    assert paths(answer) <= {"birch.md", "cedar.md", "damson.md"}


def test_one_chosen_document_still_gives_no_more_passages_than_any(service):
    one = service.with_settings({"router_documents": 1, "max_chunks_per_doc": 2})
    answer = one.search("cedar", dataset="trees", top_k=2)
    assert (len(answer), paths(answer)) == (2, {"cedar.md"})
    answer = one.search("cedar", dataset="trees", top_k=3)
    assert "they gave 2 passages" in route(answer).note


def test_a_typed_query_and_one_that_nothing_holds_are_not_routed(service):
    answer = service.search("lex: cedar", dataset="trees", mode="lexical")
    assert (route(answer).status, route(answer).note) == ("skipped", "the query is typed")
    answer = service.search("zeppelin", dataset="trees")
    assert route(answer).note == "no document has a word of the query"
    none = shortlist(service.parts, "?!", Restriction("trees"), 2)
    assert none == ([], "the query has no words")


@pytest.mark.parametrize("name", ["search_cards", "read_documents_of_chunks", "count_documents"])
def test_a_failing_router_is_a_failed_stage_and_everything_is_searched(service, monkeypatch, name):
    def fails(*_args, **_named):
        raise OSError("the disk is gone")

    plain = told(off(service.library).search("cedar keys", dataset="trees"))
    monkeypatch.setattr(f"catalog.retrieval.search.{name}", fails)
    answer = service.search("cedar keys", dataset="trees")
    assert (route(answer).status, route(answer).note) == ("failed", "OSError: the disk is gone")
    assert told(answer)["results"] == plain["results"]
    assert len(service.retrieve("cedar keys", dataset="trees")) == len(answer)
    with pytest.raises(StageFailedError, match="route"):
        service.search("cedar keys", dataset="trees", strict=True)


@pytest.mark.parametrize(
    "query", ['keys "', "NEAR(keys", "keys*", "title:keys", "\0keys", "keys " * 3000, "k" * 10_000]
)
def test_any_text_may_be_routed(service, query):
    shortlist(service.parts, query, Restriction("trees"), 2)
    answer = service.search(query, dataset="trees")
    assert "failed" not in {stage.status for stage in answer.stages}
