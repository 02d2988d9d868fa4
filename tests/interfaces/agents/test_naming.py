"""Naming documents, tags and words that look like something else."""

import pytest

from catalog.interfaces.agents import AGENT_TOOLS
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library

FILES = {
    "a, b.md": "---\ntags: ['x, y']\n---\nThe walrus does not sing.\n",
    "a.md": "---\ntags: [x]\n---\nA walrus of the sea.\n",
    "b.md": "---\ntags: [y, x]\n---\nTOKEN_ONE and the walrus.\n",
    "guides/deep.md": "Nothing but an otter.\n",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("naming")
    for dataset, names in {"notes": tuple(FILES), "vault": ("a.md",)}.items():
        for name in names:
            path = folder / dataset / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(FILES[name])
    with LocalEngine(open_library(folder / "home")) as opened:
        for dataset in ("notes", "vault"):
            Indexer(opened.library).build(folder / dataset, dataset)
        yield opened


def call(engine, tool, **arguments):
    return AGENT_TOOLS[tool].call(engine, {"dataset": "notes", **arguments})


def found(answer):
    listed = answer.data["results"] if "results" in answer.data else answer.data["documents"]
    return sorted(one["path"] for one in listed)


@pytest.mark.parametrize(
    ("docs", "paths"),
    [
        ("a, b.md", ["a, b.md"]),
        ("notes:a, b.md", ["a, b.md"]),
        ("a.md, b.md", ["a.md", "b.md"]),
        (["a, b.md", "b.md"], ["a, b.md", "b.md"]),
    ],
)
def test_a_name_may_hold_a_comma(engine, docs, paths):
    assert found(call(engine, "search", query="walrus", docs=docs)) == paths
    assert found(call(engine, "multi_get", patterns=docs)) == paths


def test_a_tag_may_hold_a_comma(engine):
    assert found(call(engine, "query_catalog", tags="x, y")) == ["a, b.md"]
    assert found(call(engine, "query_catalog", tags="y, x")) == ["b.md"]


@pytest.mark.parametrize("pattern", ["!", "\\", "C:\\docs\\"])
def test_a_pattern_that_can_name_nothing_is_an_error(engine, pattern):
    for tool, argument in (("multi_get", "patterns"), ("search", "docs")):
        answer = call(engine, tool, query="walrus", **{argument: pattern})
        if tool == "multi_get":
            answer = call(engine, tool, patterns=pattern)
        assert answer.is_error, answer.text


def test_a_docid_is_one_of_the_dataset_that_is_named(engine):
    (docid,) = {one["docid"] for one in call(engine, "query_catalog", name="a.md").data["documents"]
                if one["path"] == "a.md"}  # fmt: skip
    assert call(engine, "get", reference=f"#{docid}").data["document"]["reference"] == "notes:a.md"
    there = call(engine, "get", reference=f"#{docid}", dataset="vault")
    assert there.data["document"]["reference"] == "vault:a.md"
    (other,) = (one["docid"] for one in call(engine, "query_catalog", name="b.md", tags=["y"])
                .data["documents"])  # fmt: skip
    nowhere = call(engine, "get", reference=f"#{other}", dataset="vault")
    assert nowhere.is_error
    assert f"no document '#{other}'" in nowhere.text


def test_near_names_are_of_the_datasets_looked_in_and_nothing_unlike_is_named(engine):
    elsewhere = call(engine, "get", reference="guides/deep.md", dataset="vault")
    assert elsewhere.is_error
    assert "did you mean" not in elsewhere.text
    assert "did you mean notes:guides/deep.md" in call(engine, "get", reference="dep.md").text
    assert "did you mean" not in call(engine, "get", reference="quarterly-report.pdf").text


def test_a_line_end_ends_the_last_line(engine):
    document = call(engine, "get", reference="guides/deep.md").data["document"]
    assert (document["line_end"], document["lines_total"]) == (1, 1)
    assert document["text"] == "Nothing but an otter.\n"
    beyond = call(engine, "get", reference="guides/deep.md:2")
    assert "has lines 1-1, not 2-2" in beyond.text


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ('"does not"', ["a, b.md"]),
        ('"of the"', ["a.md"]),
        ('"TOKEN_ONE"', ["b.md"]),
        ('"TOKEN_TWO"', ["b.md"]),  # no passage has it, so its words are looked for
        ("TOKEN_TWO walrus", ["a, b.md", "a.md", "b.md"]),
    ],
)
def test_quotes_bind_the_search_for_words(engine, query, paths):
    assert found(call(engine, "search", query=query)) == paths


def test_existing_documents_are_returned_and_missing_ones_named(engine):
    answer = call(engine, "multi_get", patterns=["a.md", "dep.md", "nowhere.pdf", "b.md"])
    assert not answer.is_error
    assert found(answer) == ["a.md", "b.md"]
    first, second = answer.data["notes"]
    assert first.startswith(
        "no document of 'notes' matches 'dep.md'; did you mean notes:guides/deep.md"
    )
    assert second == "no document of 'notes' matches 'nowhere.pdf'"
    assert first in answer.text
    assert answer.text.index(first) > answer.text.index("<documents-")
    plain = engine.ask("multi_get", {"patterns": ["a.md", "dep.md"], "dataset": "notes"})
    assert len(plain["documents"]) == len(plain["notes"]) == 1


def test_names_that_are_all_of_no_document_are_an_error_with_near_misses(engine):
    answer = call(engine, "multi_get", patterns=["dep.md", "nowhere.pdf"])
    assert answer.is_error
    assert "'dep.md'; no document of 'notes' matches 'nowhere.pdf'" in answer.text
    assert "did you mean notes:guides/deep.md" in answer.text
