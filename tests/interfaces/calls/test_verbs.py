"""The verbs every edge is made of."""

import pytest
from pydantic import TypeAdapter

from catalog.core.errors import (
    DocumentNotFoundError,
    DocumentReferenceError,
    InputError,
    UnknownDatasetError,
    UnknownValueError,
)
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.http import SHAPES
from catalog.library.indexing import Indexer
from fakes import write
from stores import open_store
from tables import read_cases, table

NOTES = dict(read_cases(__file__)["notes"])


@pytest.fixture
def engine(tmp_path):
    with LocalEngine(open_store(NOTES, tmp_path)) as opened:
        yield opened


@table("verb, arguments")
def test_every_answer_has_the_shape_that_is_published(engine, verb, arguments):
    answer = engine.ask(verb, arguments)
    shape = TypeAdapter(SHAPES[verb])
    assert shape.validate_python(answer, strict=False)


def test_unknown_and_wrong_arguments_are_refused_by_name(engine):
    with pytest.raises(InputError, match="'colour'"):
        engine.ask("search", {"query": "keys", "colour": "red"})
    with pytest.raises(InputError, match="query"):
        engine.ask("search", {})
    with pytest.raises(InputError, match=r"top_k .*valid integer, not 'five'"):
        engine.ask("search", {"query": "keys", "top_k": "five"})
    with pytest.raises(InputError, match="top_k"):
        engine.ask("search", {"query": "keys", "top_k": 1001})
    with pytest.raises(InputError, match="multi_get"):
        engine.ask("drop", {})
    with pytest.raises(InputError) as caught:
        engine.ask("search", {"query": "keys", "top_k": "x" * 10_000})
    assert len(str(caught.value)) < 300


def test_a_search_is_narrowed_by_type_name_documents_and_filters_together(engine):
    found = engine.ask("search", {"query": "keys backups turnips", "file_type": "text"})
    assert {one["path"] for one in found["results"]} == {"plain.txt"}
    found = engine.ask("search", {"query": "keys backups turnips", "name": "GUIDES/"})
    assert {one["path"] for one in found["results"]} == {"guides/backup.md"}
    found = engine.ask("search", {"query": "keys", "name": "md", "filters": ["tag=ops"]})
    assert {one["path"] for one in found["results"]} == {"keys.md"}
    found = engine.ask("search", {"query": "keys", "name": "md", "docs": ["guides/*"]})
    assert {one["path"] for one in found["results"]} == {"guides/backup.md"}


def test_no_documents_is_nothing_and_a_pattern_that_names_none_is_an_error(engine):
    assert engine.ask("search", {"query": "keys", "docs": []})["results"] == []
    with pytest.raises(DocumentNotFoundError, match=r"keys\.md"):
        engine.ask("search", {"query": "keys", "docs": ["keyz.md"]})


def test_every_verb_takes_one_dataset_several_or_all(engine, tmp_path):
    for name in ("more", "third"):
        write(tmp_path / name, a_dot_md=f"Keys of {name}.", keys_dot_md=f"Keys again of {name}.")
        Indexer(engine.library).build(tmp_path / name, name)
    two = ["third", "more"]
    assert engine.ask("search", {"query": "keys", "dataset": "more"})["dataset"] == "more"
    found = engine.ask("search", {"query": "keys", "dataset": two})
    assert (found["dataset"], found["datasets"]) == (None, ["more", "third"])
    assert {hit["dataset"] for hit in found["results"]} == {"more", "third"}
    assert engine.ask("search", {"query": "keys"})["datasets"] == ["more", "notes", "third"]

    page = engine.ask("browse", {"dataset": two, "sort": "name"})
    listed = [entry["source_doc_id"] for entry in page["entries"]]
    assert listed == ["more:a.md", "third:a.md", "more:keys.md", "third:keys.md"]
    assert page["total"] == sum(page["types"].values()) == 4
    assert engine.ask("browse", {"dataset": two, "name": "keys.md"})["total"] == 2
    named = engine.ask("browse", {"dataset": two, "query": "keys"})
    assert [entry["dataset"] for entry in named["entries"]][:2] == ["more", "third"]
    assert engine.ask("browse", {})["total"] > 4

    given = engine.ask("multi_get", {"patterns": ["third:a.md", "keys.md"], "dataset": two})
    ids = [document["source_doc_id"] for document in given["documents"]]
    assert ids == ["third:a.md", "more:keys.md", "third:keys.md"]
    assert engine.ask("get", {"reference": "third:a.md", "dataset": two})["path"] == "a.md"
    with pytest.raises(DocumentReferenceError, match=r"more:a\.md, third:a\.md"):
        engine.ask("get", {"reference": "a.md", "dataset": two})
    with pytest.raises(DocumentNotFoundError):
        engine.ask("get", {"reference": "third:a.md", "dataset": ["more", "notes"]})
    for dataset in ("nope", ["more", "nope"]):
        for verb, ask in (
            ("browse", {}),
            ("search", {"query": "keys"}),
            ("get", {"reference": "a"}),
        ):
            with pytest.raises(UnknownDatasetError, match="'nope'"):
                engine.ask(verb, {**ask, "dataset": dataset})


def test_lines_are_cut_at_whole_lines_and_the_note_says_where_to_go_on(engine):
    whole = engine.ask("get", {"reference": "keys.md"})
    cut = engine.ask("get", {"reference": "keys.md", "max_bytes": 35})
    assert len(cut["text"].encode()) <= 35
    assert f"line_start {cut['line_end'] + 1}" in cut["notes"][0]
    rest = engine.ask("get", {"reference": "keys.md", "line_start": cut["line_end"] + 1})
    assert cut["text"] + "\n" + rest["text"] == whole["text"]
    assert rest["line_end"] == whole["lines_total"]


def test_a_line_that_is_too_large_alone_is_given_in_part(engine):
    part = engine.ask("get", {"reference": "keys.md", "line_start": 4, "max_bytes": 5})
    assert (part["text"], part["line_start"], part["line_end"]) == ("# Key", 4, 4)
    assert part["notes"] == [
        "only the first 5 bytes of line 4, which is longer; line_start 5 continues after it"
    ]


def test_lines_may_be_given_in_the_reference_or_beside_it_which_wins(engine):
    assert engine.ask("get", {"reference": "keys.md:4-4"})["text"] == "# Keys"
    beside = engine.ask("get", {"reference": "keys.md", "line_start": 4, "line_end": 4})
    assert beside["text"] == "# Keys"
    around = engine.ask("get", {"reference": "keys.md:4-4", "line_start": 3, "line_end": 5})
    assert (around["line_start"], around["line_end"]) == (3, 5)
    with pytest.raises(InputError, match="has lines 1-"):
        engine.ask("get", {"reference": "keys.md", "line_start": 5, "line_end": 4})


def test_several_documents_come_whole_and_the_large_and_the_many_are_named(engine):
    found = engine.ask("multi_get", {"patterns": ["*.md"], "max_bytes": 62})
    assert [one["path"] for one in found["documents"]] == ["guides/backup.md"]
    assert [one["path"] for one in found["skipped"]] == ["keys.md"]
    found = engine.ask("multi_get", {"patterns": ["*"], "limit": 1})
    assert (len(found["documents"]), found["notes"]) == (
        1,
        ["2 more documents match, beyond limit 1"],
    )


def test_text_that_is_not_unicode_and_endless_numbers_are_arguments_like_any_other(engine):
    with pytest.raises(DocumentNotFoundError):
        engine.ask("get", {"reference": "a\ud800\0"})
    with pytest.raises(UnknownDatasetError):
        engine.ask("search", {"query": "\udfff keys", "dataset": "\udfff"})
    with pytest.raises(InputError, match="too large to show"):
        engine.ask("search", {"query": "keys", "docs": 10**5000})


@pytest.mark.slow
def test_an_unknown_value_tells_no_value_that_filters_or_documents_hide(engine):
    for narrowing in ({"filters": ["tag=ops"]}, {"docs": ["keys.md"]}):
        with pytest.raises(UnknownValueError) as refused:
            engine.ask("search", {"query": "plans", "file_type": "psd", **narrowing})
        assert "txt" not in str(refused.value)
        assert "md" in str(refused.value)
