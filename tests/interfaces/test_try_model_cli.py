"""Trying, adopting and dropping a model from the command line."""

import json
import shlex

import pytest

from fakes import write
from static_models import make_random_model

GOLDEN = [
    {"id": "q1", "query": "tea snow", "expected": [{"path": "tea.md"}]},
    {"id": "q2", "query": "boat sea", "expected": [{"path": "boat.md"}]},
]


@pytest.fixture
def place(catalog, tmp_path, monkeypatch):
    """A store of four documents, the golden queries, and a model that is not the store's."""
    monkeypatch.chdir(tmp_path)
    make_random_model(tmp_path / "old", 16, seed=1)
    make_random_model(tmp_path / "new", 24, seed=2)
    write(tmp_path / "notes", tea_dot_md="tea and snow", boat_dot_md="a boat at sea")
    write(tmp_path / "notes", oven_dot_md="bread oven", moon_dot_md="moon and star")
    lines = "".join(f"{json.dumps(query)}\n" for query in GOLDEN)
    (tmp_path / "golden.jsonl").write_text(lines)
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IDX_EMBEDDING__PROVIDER", "static")
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", "old")
    code, _, err = catalog("index", "build", "notes", "--dataset", "notes")
    assert code == 0, err
    return tmp_path


def test_a_model_is_tried_on_a_sample_compared_and_adopted(catalog, place, monkeypatch):
    given = ("index", "try-model", "new", "--golden", "golden.jsonl")
    code, out, _ = catalog(*given, "--sample", "3", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["embedded"], told["missing"], told["tried"]["dim"]) == (3, 1, 24)
    compared = told["comparison"]["compared"]
    assert (compared["documents"], compared["is_sample"], compared["all_passages"]) == (3, True, 4)
    for mode in ("hybrid", "vector"):
        comparison = told["comparison"]["modes"][mode]
        assert (comparison["baseline"], comparison["candidate"]) == ("old", "new")
        assert comparison["failures"] == {"baseline": {}, "candidate": {}}
        for run in ("baseline", "candidate"):  # the labelled documents are in the sample
            assert {query[run] for query in comparison["queries"]} == {1.0}

    code, out, _ = catalog("index", "stats")
    assert "tried model     new: 3 of 4 passages, 3 vectors of 24 numbers" in out
    code, _, err = catalog("index", "adopt", "new")
    assert code == 1
    assert "3 of 4 passages, 1 are missing" in err

    code, out, _ = catalog(*given, "--mode", "vector")
    assert "Both searched all 4 passages of notes." in out
    assert "mode vector:" in out
    assert "mode hybrid:" not in out
    code, out, _ = catalog("index", "adopt", "new")
    assert code == 0
    assert '[embedding]\nmodel = "new"\nprovider = "static"\n' in out
    code, out, _ = catalog("index", "update")
    assert "the store adopted new on" in out
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", "new")
    code, out, _ = catalog("index", "update")
    assert "adopted" not in out
    assert "4 unchanged" in out
    assert catalog("doctor")[0] == 0


def test_the_command_that_adopt_asks_for_has_every_option_that_was_given(catalog, place):
    given = ("--provider", "static", "--max-tokens", "64", "--document-prefix", "a page: ")
    assert catalog("index", "try-model", "new", *given, "--sample", "1")[0] == 0
    code, _, err = catalog("index", "adopt", "new")
    assert code == 1
    command = err.partition("are missing: `catalog ")[2].partition("`")[0]
    assert set(given) < set(shlex.split(command))
    assert catalog(*shlex.split(command))[0] == 0
    assert catalog("index", "adopt", "new")[0] == 0


def test_documents_that_labels_name_are_added_to_a_sample(catalog, place):
    (place / "one.jsonl").write_text(f"{json.dumps(GOLDEN[0])}\n")
    catalog("index", "try-model", "new", "--golden", "one.jsonl", "--sample", "1")
    given = ("index", "try-model", "new", "--golden", "golden.jsonl", "--sample", "1")
    _, out, _ = catalog(*given, "--json")
    assert json.loads(out)["comparison"]["compared"]["documents"] == 2


def test_a_dropped_model_is_forgotten(catalog, place):
    catalog("index", "try-model", "new")
    code, out, _ = catalog("index", "drop", "new", "--json")
    assert (code, json.loads(out)) == (0, {"dropped": "new", "vectors": 4})
    _, out, _ = catalog("index", "stats", "--json")
    assert json.loads(out)["tried_models"] == []
    code, _, err = catalog("index", "drop", "new")
    assert code == 1
    assert "'new' is not tried; tried models: none" in err


def test_a_golden_file_that_is_not_there_is_named_before_anything_is_embedded(catalog, place):
    code, _, err = catalog("index", "try-model", "new", "--golden", "nowhere.jsonl")
    assert code == 1
    assert "nowhere.jsonl" in err
    _, out, _ = catalog("index", "stats", "--json")
    assert json.loads(out)["tried_models"] == []


def test_a_store_with_an_adopted_model_is_exported_and_imported_with_the_model(
    catalog, place, monkeypatch
):
    catalog("index", "try-model", "new")
    catalog("index", "adopt", "new")
    ask = ("search", "tea snow", "--dataset", "notes", "--mode", "vector", "--json")
    before = json.loads(catalog(*ask)[1])["results"]
    assert catalog("export", "out.jsonl", "--vectors")[0] == 0
    monkeypatch.setenv("IDX_HOME", str(place / "elsewhere"))
    code, _, err = catalog("import", "out.jsonl")
    assert code == 0
    assert "the store adopted new on" in err
    assert "not up to date" not in err
    assert json.loads(catalog(*ask)[1])["results"] == before
    catalog("export", "again.jsonl", "--vectors")
    assert (place / "again.jsonl").read_bytes() == (place / "out.jsonl").read_bytes()

    monkeypatch.setenv("IDX_HOME", str(place / "third"))
    monkeypatch.setenv("IDX_EMBEDDING__MAX_TOKENS", "64")  # neither the old model nor the new
    code, _, err = catalog("import", "out.jsonl")
    assert code == 0
    assert "set embedding.model new, embedding.provider static" in err
    assert "the store adopted" not in catalog("index", "stats")[1]


def edited(place, **settings):
    """Change the adopted model's settings in an export; return the name of the new file."""
    header, *rest = (place / "out.jsonl").read_text().splitlines(keepends=True)
    line = json.loads(header)
    line.pop("crc")
    line["adoption"]["settings"] |= settings
    (place / "edited.jsonl").write_text("".join((json.dumps(line), "\n", *rest)))
    return "edited.jsonl"


def test_a_file_sends_no_text_to_a_server_that_nobody_set(catalog, place, monkeypatch):
    catalog("index", "try-model", "new")
    catalog("index", "adopt", "new")
    catalog("export", "out.jsonl", "--vectors")
    monkeypatch.setenv("IDX_HOME", str(place / "elsewhere"))
    for name, value in (("embedding.url", "http://127.0.0.1:1/v1"), ("llm.url", "x")):
        code, _, err = catalog("import", edited(place, **{name: value}))
        assert code == 1
        assert "edited.jsonl, line 1: adoption: " in err
        assert name in err
    code, _, err = catalog("import", edited(place, **{"embedding.provider": "openai"}))
    assert "the store adopted" not in err
    assert "set embedding.model new, embedding.provider openai" in err
    assert catalog("search", "tea", "--mode", "vector")[0] == 1
