"""``catalog eval --each-stage`` as a person uses it, with a tiny model and a scripted reranker."""

import json
import sys

import pytest

from catalog.core.errors import RerankError
from fakes import WordEncoder
from scripted import ScriptedReranker, ScriptedSource
from stores import open_store

ANIMALS = ("badger", "camel", "dingo", "eagle", "ferret", "gibbon")
ZOO = {
    f"zoo/{name}.md": f"# The {name}\n\nOne {name} lives in house {number} and eats at noon.\n"
    for number, name in enumerate(ANIMALS)
}
ASKED = ANIMALS[:2]
OWN_MODEL = "from llama_index.core.llms import MockLLM\nmodel = MockLLM()\n"


@pytest.fixture
def catalog(tmp_path, monkeypatch, command):
    """Run the command in this process; exit code, standard output, standard error."""
    open_store(ZOO, tmp_path).close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda *_: WordEncoder())
    monkeypatch.setenv("IDX_RAG_V2__VECTOR_ENGINE", "flat")

    yield command
    sys.modules.pop("own_model", None)


@pytest.fixture
def reranker(monkeypatch):
    """What reranks from now on."""

    def use(made):
        monkeypatch.setattr("catalog.retrieval.rerank.get_reranker", lambda *_, **__: made)
        return made

    use(ScriptedReranker(1.0))
    return use


@pytest.fixture
def golden(tmp_path):
    file = tmp_path / "zoo-questions.jsonl"
    lines = [
        {
            "id": f"q{n}",
            "query": f"where does the {name} live",
            "expected": [{"path": f"{name}.md"}],
        }
        for n, name in enumerate(ASKED)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


MEASURE = ("eval", "--each-stage", "--repeats", "0", "--top-k", "30")


@pytest.mark.slow
def test_each_stage_is_changed_alone_and_compared_with_the_search_as_it_is_set(
    catalog, golden, reranker
):
    code, out, _ = catalog(*MEASURE, "--golden", golden)
    assert code == 0
    head, columns, *rows = out.splitlines()
    assert head == "zoo-questions on zoo: 2 queries, 30 deep"
    assert columns.split()[0] == "nDCG@10"
    changed = [row.split(" − ")[1] for row in rows if row.startswith("v2 − ")]
    assert [one.rpartition(": nDCG")[0] for one in changed] == [
        "lexical", "vector", "v2:fusion_mode=rrf", "v2:fusion_mode=relative_score",
        "v2:chunk_selection=keyword", "v2:router_enabled=true", "v2:rerank_enabled=true",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_reranker_is_asked_in_its_row_alone_and_its_order_is_measured(
    catalog, golden, reranker, monkeypatch
):
    class Contrary(ScriptedReranker):
        def scores(self, query, passages):
            named = next(name for name in (*ANIMALS, "warm up") if name in query)
            return [-9.0 if named in passage else 0.0 for passage in passages]

    monkeypatch.setenv("IDX_RAG_V2__RERANK_BLEND", "replace")
    reranker(Contrary(0.0))
    code, out, _ = catalog(*MEASURE, "--golden", golden, "--json")
    assert code == 0
    means = {run["backend"]: run["metrics"]["nDCG@10"] for run in json.loads(out)["runs"]}
    assert means.pop("v2:rerank_enabled=true") == pytest.approx(0.5)  # the last of three read
    assert min(means.values()) > 0.9


@pytest.mark.slow
def test_a_stage_that_fails_is_reported_with_the_number_of_queries(catalog, golden, reranker):
    reranker(ScriptedReranker({}, error=RerankError("no answer")))
    code, out, _ = catalog(*MEASURE, "--golden", golden)
    assert code == 0
    assert "! v2:rerank_enabled=true failed on 2 queries, which score 0" in out
    assert out.count("!") == 1


@pytest.mark.slow
def test_with_a_language_model_expansion_is_a_stage_too(
    catalog, golden, reranker, tmp_path, monkeypatch
):
    (tmp_path / "own_model.py").write_text(OWN_MODEL)
    source = ScriptedSource("lex: badger camel dingo")
    monkeypatch.setenv("IDX_LLM__PROVIDER", "own_model:model")
    monkeypatch.setattr("catalog.retrieval.expansion.LexVecSource", lambda *_, **__: source)
    code, out, err = catalog(*MEASURE, "--golden", golden, "--json")
    assert code == 0, err
    runs = json.loads(out)["runs"]
    assert [run["backend"] for run in runs[-2:]] == ["v2:expansion_enabled=true", "v2"]
    assert [run["failed"] for run in runs] == [0] * 9
    asked = set(source.asked)
    assert asked == {f"where does the {name} live" for name in ASKED} | {"warm up"}


@pytest.mark.slow
def test_a_missing_reranker_is_left_out_and_the_other_stages_are_measured(
    catalog, golden, monkeypatch
):
    monkeypatch.setenv("IDX_RAG_V2__RERANK_PROVIDER", "http")
    code, out, err = catalog(*MEASURE, "--golden", golden)
    assert code == 0
    assert "v2:router_enabled=true" in out
    assert "rerank" not in out
    assert "reranking is left out" in err
    assert "IDX_RAG_V2__RERANK_URL" in err


def test_it_names_its_searches_itself(catalog, golden):
    code, _, err = catalog(*MEASURE, "--golden", golden, "--backend", "v1")
    assert code == 2
    assert "--each-stage" in err
