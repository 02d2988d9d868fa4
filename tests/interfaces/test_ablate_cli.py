"""``catalog ablate`` as a person uses it, with a tiny model and a scripted reranker."""

import json
import sys

import pytest

from catalog.core.errors import RerankError
from catalog.library.indexing import Indexer
from fakes import WordEncoder, open_library
from scripted import ScriptedReranker, ScriptedSource

ANIMALS = ("badger", "camel", "dingo", "eagle", "ferret", "gibbon")
OWN_MODEL = "from llama_index.core.llms import MockLLM\nmodel = MockLLM()\n"


@pytest.fixture
def zoo(tmp_path):
    """A store of six documents."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    for number, name in enumerate(ANIMALS):
        (folder / f"{name}.md").write_text(
            f"# The {name}\n\nOne {name} lives in house {number} and eats at noon.\n"
        )
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(folder, "zoo")


@pytest.fixture
def catalog(zoo, tmp_path, monkeypatch, command):
    """Run the command in this process; exit code, standard output, standard error."""
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
        monkeypatch.setattr("catalog.retrieval.search_parts.get_reranker", lambda *_, **__: made)
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
        for n, name in enumerate(ANIMALS)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_every_variant_is_a_row_and_the_first_is_what_the_others_are_compared_with(
    catalog, golden, reranker
):
    code, out, _ = catalog("ablate", "--golden", golden)
    assert code == 0
    head, columns, first, *others = out.splitlines()
    assert head == "zoo-questions on zoo: 6 queries, 30 deep"
    assert columns.split()[0] == "nDCG@10"
    assert first.startswith("hybrid ")
    assert "n = 6" in first
    assert [line[:26].strip() for line in others] == [
        "lexical leg alone",
        "vector leg alone",
        "fusion rrf",
        "fusion relative_score",
        "best chunk by keywords",
        "+ router",
        "+ rerank",
    ]
    assert all("[" in line for line in others)


def test_the_reranker_is_asked_in_its_row_alone_and_its_order_is_measured(
    catalog, golden, reranker, monkeypatch
):
    class Contrary(ScriptedReranker):
        def scores(self, query, passages):
            named = next(name for name in (*ANIMALS, "warm up") if name in query)
            return [-9.0 if named in passage else 0.0 for passage in passages]

    monkeypatch.setenv("IDX_RAG_V2__RERANK_BLEND", "replace")
    reranker(Contrary(0.0))
    code, out, _ = catalog("ablate", "--golden", golden, "--json", "--repeats", "0")
    assert code == 0
    means = {row["name"]: row["mean"] for row in json.loads(out)["rows"]}
    assert means["+ rerank"] == pytest.approx(0.5)  # the last of three read: 1 / log2(4)
    assert min(mean for name, mean in means.items() if name != "+ rerank") > 0.9


def test_as_json_it_is_one_object_and_progress_stays_out_of_it(catalog, golden, reranker):
    code, out, _ = catalog("ablate", "--golden", golden, "--json", "--top-k", "3", "--repeats", "0")
    told = json.loads(out)
    assert code == 0
    assert (told["golden"], told["dataset"]) == ("zoo-questions", "zoo")
    assert (told["metric"], told["compared_with"]) == ("nDCG@10", "hybrid")
    assert len(told["rows"]) == 8
    first = told["rows"][0]
    assert (first["mean"], first["failed"], first["latency"]) == (1.0, 0, None)
    assert (first["test"]["n"], first["test"]["difference"]) == (6, 0.0)


def test_a_stage_that_fails_is_reported_with_the_number_of_queries(catalog, golden, reranker):
    reranker(ScriptedReranker({}, error=RerankError("no answer")))
    code, out, _ = catalog("ablate", "--golden", golden)
    assert code == 0
    assert out.splitlines()[-1] == "! + rerank failed on 6 queries, which score 0"
    assert out.count("!") == 1


def test_with_a_language_model_expansion_has_rows_too(
    catalog, golden, reranker, tmp_path, monkeypatch
):
    (tmp_path / "own_model.py").write_text(OWN_MODEL)
    source = ScriptedSource("lex: badger camel dingo")
    monkeypatch.setenv("IDX_LLM__PROVIDER", "own_model:model")
    monkeypatch.setattr("catalog.retrieval.expansion.sources.get_source", lambda *_, **__: source)
    code, out, err = catalog("ablate", "--golden", golden, "--json", "--repeats", "0")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert [row["name"] for row in rows[-2:]] == ["+ expansion", "+ expansion + rerank"]
    assert [row["failed"] for row in rows] == [0] * 10
    asked = set(source.asked)
    assert asked == {f"where does the {name} live" for name in ANIMALS} | {"warm up"}


def test_a_missing_reranker_is_left_out_and_the_other_variants_are_measured(
    catalog, golden, monkeypatch
):
    monkeypatch.setenv("IDX_RAG_V2__RERANK_PROVIDER", "http")
    code, out, err = catalog("ablate", "--golden", golden)
    assert code == 0
    assert "+ router" in out
    assert "+ rerank" not in out
    assert "+ rerank is left out" in err
    assert "IDX_RAG_V2__RERANK_URL" in err


def test_queries_without_answers_alone_are_refused(catalog, tmp_path, reranker):
    file = tmp_path / "nothing.jsonl"
    file.write_text('{"id": "q1", "query": "the moon", "kind": "unanswerable"}\n')
    code, out, err = catalog("ablate", "--golden", file)
    assert (code, out) == (1, "")
    assert "no query of the golden set has an answer" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give either --golden or --beir"),
        (["--golden", "absent.jsonl"], 1, "cannot read"),
        (["--golden", "zoo-questions.jsonl", "-d", "nope"], 1, "no dataset 'nope'"),
    ],
)
def test_a_call_that_cannot_work_says_why(catalog, golden, reranker, arguments, code, message):
    ended, out, err = catalog("ablate", *arguments)
    assert (ended, out) == (code, "")
    assert message in err
