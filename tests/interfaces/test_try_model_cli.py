"""Trying, adopting and dropping a model from the command line."""

import json

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


COMPARE = ("compare", "--golden", "golden.jsonl", "--repeats", "0")


def test_a_model_is_tried_on_a_sample_compared_and_adopted(catalog, place, monkeypatch):
    given = ("index", "try-model", "new", "--golden", "golden.jsonl")
    code, out, _ = catalog(*given, "--sample", "3", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["counts"]["embedded"], told["missing"]) == (3, 1)
    assert told["trial"]["model"]["dim"] == 24
    for baseline, candidate in (("v2", "trial"), ("vector", "trial-vector")):
        pair = ("--baseline", baseline, "--candidate", candidate)
        code, out, err = catalog(*COMPARE, *pair, "--json")
        assert code == 0
        assert "a sample of notes: 3 of 4 passages, in 3 documents" in err
        comparison = json.loads(out)
        assert comparison["failures"] == {"baseline": {}, "candidate": {}}
        for run in ("baseline", "candidate"):  # the labelled documents are in the sample
            assert {query[run] for query in comparison["queries"]} == {1.0}

    code, _, err = catalog(*COMPARE, "--baseline", "v1", "--candidate", "trial")
    assert code == 1
    assert "v1 cannot search only the documents of the sample" in err

    code, out, _ = catalog("index", "stats")
    assert "model on trial  new: 3 of 4 passages, 3 vectors" in out

    assert catalog(*given)[0] == 0
    code, _, err = catalog(*COMPARE, "--baseline", "v2", "--candidate", "trial")
    assert code == 0
    assert "sample" not in err
    code, out, _ = catalog("index", "adopt")
    assert code == 0
    assert "IDX_EMBEDDING__MODEL=new\n" in out
    assert "IDX_EMBEDDING__PROVIDER=static\n" in out
    code, out, _ = catalog("index", "update")
    assert "the store adopted new on" in out
    assert "set IDX_EMBEDDING__PROVIDER=" in out or "set IDX_EMBEDDING__MODEL=new" in out
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", "new")
    code, out, _ = catalog("index", "update")
    assert "adopted" not in out
    assert "4 unchanged" in out
    assert catalog("doctor")[0] == 0


def test_documents_that_labels_name_are_added_to_a_sample(catalog, place):
    (place / "one.jsonl").write_text(f"{json.dumps(GOLDEN[0])}\n")
    catalog("index", "try-model", "new", "--golden", "one.jsonl", "--sample", "1")
    given = ("index", "try-model", "new", "--golden", "golden.jsonl", "--sample", "1")
    _, out, _ = catalog(*given, "--json")
    assert json.loads(out)["counts"]["embedded"] == 2


def test_settings_of_a_tried_model_are_given_by_name(catalog, place):
    given = ("index", "try-model", "old", "--set", "rag_v2.embed_prefix_doc=ice ", "--json")
    told = json.loads(catalog(*given)[1])
    assert told["trial"]["settings"]["rag_v2.embed_prefix_doc"] == "ice "
    assert catalog("index", "try-model", "old", "--set", "embedding.dim")[0] == 2


def test_a_dropped_model_is_forgotten(catalog, place):
    catalog("index", "try-model", "new")
    code, out, _ = catalog("index", "drop", "--json")
    assert (code, json.loads(out)) == (0, {"dropped": "new", "vectors": 4})
    _, out, _ = catalog("index", "stats", "--json")
    assert json.loads(out)["trial"] is None
    for command in (("index", "drop"), (*COMPARE, "--candidate", "trial")):
        code, _, err = catalog(*command)
        assert code == 1
        assert "no model is on trial" in err


def test_a_golden_file_that_is_not_there_is_named_before_anything_is_embedded(catalog, place):
    code, _, err = catalog("index", "try-model", "new", "--golden", "nowhere.jsonl")
    assert code == 1
    assert "nowhere.jsonl" in err
    _, out, _ = catalog("index", "stats", "--json")
    assert json.loads(out)["trial"] is None


def test_a_store_with_an_adopted_model_is_imported_where_the_settings_name_it(
    catalog, place, monkeypatch
):
    catalog("index", "try-model", "new")
    catalog("index", "adopt")
    ask = ("search", "tea snow", "--dataset", "notes", "--mode", "vector", "--json")
    before = json.loads(catalog(*ask)[1])["results"]
    assert catalog("export", "out.jsonl", "--vectors")[0] == 0
    monkeypatch.setenv("IDX_HOME", str(place / "elsewhere"))
    assert catalog("import", "out.jsonl")[0] == 0
    assert catalog(*ask)[0] == 1  # the settings name the model that was replaced
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", "new")
    assert json.loads(catalog(*ask)[1])["results"] == before
    catalog("export", "again.jsonl", "--vectors")
    assert (place / "again.jsonl").read_bytes() == (place / "out.jsonl").read_bytes()
