"""Reading documents, listing them, and what the store holds."""

from dataclasses import replace

import pytest

from catalog.interfaces.agents import AGENT_TOOLS
from catalog.interfaces.server.mcp.protocol import document_uri


def test_a_document_is_given_between_the_markers(tools):
    answer = tools.call("get", {"reference": "notes:recipes/bread.txt"})
    document = answer.data["document"]
    assert document["text"] == "Mix flour and water in a kettle.\nBake the bread at 230 degrees.\n"
    assert (document["line_start"], document["line_end"], document["lines_total"]) == (1, 2, 2)
    assert f"\n\n{document['text']}\n</documents-" in answer.text


def test_lines_are_picked_in_either_way(tools):
    asked = ({"reference": "keys.md:4-6"}, {"reference": "keys.md", "line_start": 4, "line_end": 6})
    first, second = (tools.call("get", one).data["document"] for one in asked)
    assert first == second
    assert first["text"] == "# Keys\n\n## Rotating"


@pytest.mark.parametrize("path", ["keys.md", "a b/ü & c.md", "what?.md", "100%25.md"])
def test_a_resource_names_its_document_in_every_tool_that_takes_one(tmp_path, path):
    from catalog.interfaces.calls import LocalEngine
    from catalog.library.indexing import Indexer
    from fakes import open_library

    file = tmp_path / "docs" / path
    file.parent.mkdir(parents=True)
    file.write_text("An otter.\nA walrus.\n")
    uri = document_uri("my.notes", path)
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(tmp_path / "docs", dataset="my.notes")
        whole = AGENT_TOOLS["get"].call(engine, {"reference": uri})
        line = AGENT_TOOLS["get"].call(engine, {"reference": f"{uri}:2"})
        several = AGENT_TOOLS["multi_get"].call(engine, {"patterns": [uri]})
        found = AGENT_TOOLS["search"].call(engine, {"query": "walrus", "docs": [uri]})
    assert whole.data["document"]["path"] == path
    assert line.data["document"]["text"].strip() == "A walrus."
    assert [one["path"] for one in several.data["documents"]] == [path]
    assert [one["path"] for one in found.data["results"]] == [path]


def test_a_text_that_is_too_long_is_cut_with_a_note(tmp_path):
    from catalog.interfaces.calls import LocalEngine
    from catalog.library.indexing import Indexer
    from fakes import open_library, write

    write(tmp_path / "docs", long_dot_txt="".join(f"line {n:04} of many\n" for n in range(200)))
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(tmp_path / "docs", dataset="notes")
        answer = AGENT_TOOLS["get"].call(engine, {"reference": "long.txt", "max_bytes": 10})
    # 17 characters and a line end: 55 lines are 990 bytes, 56 are 1008
    assert answer.data["document"]["line_end"] == 55
    assert answer.data["notes"] == [
        "max_bytes 10 is out of range, so 1000 was used",
        "cut after line 55 of 200, at max_bytes 1000; continue with line_start 56",
    ]
    assert "note: cut after line 55" in answer.text.split("<documents-")[0]


def test_an_unknown_document_is_an_error_with_near_names(tools):
    answer = tools.call("get", {"reference": "key.md"})
    assert answer.is_error
    own, _, quoted = answer.text.partition("<documents-")
    assert "did you mean notes:keys.md" in quoted
    assert "keys.md" not in own


def test_several_documents_are_given_as_long_as_all_fit(engine):
    class Two:
        def ask(self, operation, arguments):
            keys = engine.ask("get", {"reference": "keys.md"}) | {"text": "k" * 700}
            bread = engine.ask("get", {"reference": "recipes/bread.txt"}) | {"text": "b" * 600}
            small = bread | {"text": "s" * 300}
            return {"documents": [keys, bread, small], "skipped": [], "notes": []}

        def close(self):
            pass

    answer = AGENT_TOOLS["multi_get"].call(Two(), {"patterns": "*", "max_bytes": 1_000})
    assert [len(one["text"]) for one in answer.data["documents"]] == [700, 300]
    assert answer.data["skipped"] == [
        {
            "reference": "notes:recipes/bread.txt",
            "path": "recipes/bread.txt",
            "reason": "600 bytes, but only 300 are left of max_bytes 1000: get it separately",
        }
    ]
    assert "not returned: recipes/bread.txt: 600 bytes" in answer.text


def test_documents_that_are_all_too_large_are_no_results(engine):
    class Large:
        def ask(self, operation, arguments):
            skipped = {"source_doc_id": "notes:a.md", "path": "a.md", "reason": "9999 bytes"}
            return {"documents": [], "skipped": [skipped], "notes": []}

        def close(self):
            pass

    answer = AGENT_TOOLS["multi_get"].call(Large(), {"patterns": "a.*"})
    assert answer.data["status"] == "no_results"
    assert answer.text.startswith("no results: no document of 'a.*' could be read.\n")
    assert "not returned: a.md: 9999 bytes" in answer.text


def test_no_line_of_a_document_looks_like_the_head_of_another(tools):
    answer = tools.call("multi_get", {"patterns": ["hostile.md", "keys.md"]})
    lines = answer.text.split("\n")
    heads = [line for line in lines if line.endswith(")") and not line.startswith(" ")]
    assert [head.split(" ")[0] for head in heads] == [
        "hostile.md",
        "reference:",
        "keys.md",
        "reference:",
    ]


def test_the_catalog_lists_and_pages(tools):
    first = tools.call("query_catalog", {"limit": 4})
    rest = tools.call("query_catalog", {"limit": 4, "offset": first.data["next_offset"]})
    found = [one["path"] for one in (*first.data["documents"], *rest.data["documents"])]
    assert sorted(found) == sorted(set(found))
    assert len(found) == first.data["total"] == 7
    assert rest.data["next_offset"] is None
    assert [one["number"] for one in rest.data["documents"]] == [5, 6, 7]
    assert "7 documents match; shown are [1] to [4]" in first.text
    assert "ask again with offset 4" in first.text


def test_the_catalog_tells_of_a_document_what_is_known(tools):
    answer = tools.call("query_catalog", {"tags": "ops", "file_type": "markdown"})
    (document,) = answer.data["documents"]
    assert document["path"] == "keys.md"
    assert document["tags"] == ["ops", "security"]
    assert document["reference"] == "notes:keys.md"
    assert "1 document matches; file types: md 1\n" in answer.text
    assert "[1] keys.md — Keys\n    md, " in answer.text
    assert "    tags: ops, security\n" in answer.text


def test_a_missing_document_is_reported_as_missing(tools):
    answer = tools.call("query_catalog", {"file_type": "md", "query": "zebra"})
    assert answer.data["status"] == "no_results"
    assert answer.data["message"] == (
        "no results: no document of dataset 'notes' matches query 'zebra' and file_type 'md'. "
        "Leave out some conditions, or try search_chunks."
    )
    beyond = tools.call("query_catalog", {"offset": 100})
    assert beyond.data["message"] == "no results: 7 documents match, but offset 100 is beyond them."


def test_the_status_counts(tools):
    (dataset,) = tools.call("status", {}).data["datasets"]
    assert (dataset["name"], dataset["documents"], dataset["embedded"]) == ("notes", 7, 1.0)
    assert "dataset notes: 7 documents" in tools.call("status", {}).text


def test_an_empty_store_is_said_to_be_empty(tmp_path):
    from catalog.interfaces.calls import LocalEngine
    from fakes import open_library

    with LocalEngine(open_library(tmp_path / "home")) as engine:
        status = AGENT_TOOLS["status"].call(engine, {})
        search = AGENT_TOOLS["search_chunks"].call(engine, {"query": "keys"})
    assert status.data["status"] == "no_results"
    assert search.is_error
    assert "none yet" in search.text


def test_while_a_dataset_is_embedded_all_edges_count_the_same_passages(tmp_path):
    """Those with a vector, of all: speech has several vectors a passage, text has one."""
    from catalog.interfaces.calls import LocalEngine
    from catalog.interfaces.terminal import Form, render
    from catalog.library.indexing import Indexer
    from fakes import WordEncoder, open_library, write

    cues = (f"00:00:{n}0.000 --> 00:00:{n}9.000\nWords {n} of a talk." for n in range(6))
    write(tmp_path / "notes", talk_dot_vtt="WEBVTT\n\n" + "\n\n".join(cues))
    for name in "abc":
        write(tmp_path / "notes", **{f"{name}_dot_md": f"Walrus {name}."})
    encoder = WordEncoder()
    with LocalEngine(open_library(tmp_path / "home", encoder)) as engine:
        indexer = Indexer(engine.library)
        engine.library.model = replace(engine.library.model, batch_size=1)
        indexer.build(tmp_path / "notes", "notes", pause=lambda: len(encoder.texts) >= 1)
        stats = indexer.stats("notes")
        assert (stats.embedded, stats.chunks, stats.windows > stats.chunks) == (1, 4, True)
        notes = engine.ask("search", {"query": "walrus"})["notes"]
        text = AGENT_TOOLS["status"].call(engine, {}).text
        printed = str(render("status", engine.ask("status", {}), Form()))
    assert notes[0].startswith("by meaning: 25 % of the passages")
    assert ", 25 % embedded" in text
    assert "4 passages, 1 embedded (25 %)" in printed
