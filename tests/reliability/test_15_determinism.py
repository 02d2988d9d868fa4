"""The same input gives the same answer in every process, and no answer or record holds a secret."""

import json
import os
import subprocess
import sys

import pytest
from sqlalchemy import select

from catalog.core.settings import LLMSettings, RAGv2Settings, Settings
from catalog.embedding.model import EmbeddingModel
from catalog.evaluation.backends import Backends
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.metrics import score_run
from catalog.evaluation.run_records import record_run
from catalog.evaluation.runs import run_backends
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.store.schema import meta
from fakes import WordEncoder, open_library, open_qdrant_library, write

ASK = """
import json, sys
from pathlib import Path
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_qdrant_library
with LocalEngine(open_qdrant_library(Path(sys.argv[1]))) as engine:
    Indexer(engine.library).build(Path(sys.argv[2]), "notes")
    for mode in ("hybrid", "lexical", "vector"):
        asked = {"query": "the kettle of the harbour", "mode": mode, "top_k": 20, "explain": True}
        answer = engine.ask("search", asked)
        keys = ("rank", "chunk_id", "score", "snippet", "citation", "explain")
        print(json.dumps([[hit[key] for key in keys] for hit in answer["results"]]))
    for sort in ("best", "name", "modified", "size"):
        page = engine.ask("browse", {"sort": sort, "query": "kettle"})
        print(json.dumps([[entry["path"] for entry in page["entries"]], page["types"]]))
"""


@pytest.fixture
def folder(tmp_path):
    """Notes of which many are alike: their order is one of ties."""
    alike = {f"same{n}_dot_md": "# Kettle\n\nThe kettle.\n" for n in range(9)}
    write(tmp_path / "notes", **alike, other_dot_md="---\ntags: [b, a]\n---\nThe harbour.\n")
    for file in (tmp_path / "notes").iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return tmp_path / "notes"


@pytest.mark.slow
def test_every_process_and_hash_seed_gives_the_same_answers_ties_included(tmp_path, folder):
    told = []
    for seed in ("0", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", ASK, str(tmp_path / f"home{seed}"), str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.splitlines())
    assert len(told[0]) == 7
    assert len(json.loads(told[0][0])) > 2
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "reranker",
    [
        {"rerank_url": "http://user:zqsecret@127.0.0.1:9/rerank"},
        {"rerank_url": "http://127.0.0.1:9/rerank", "rerank_api_key": "zqsecret"},
    ],
    ids=["user", "key"],
)
def test_no_answer_error_or_record_holds_a_key_or_a_password(tmp_path, folder, reranker):
    secret = "zqsecret"
    rag = {
        "chunk_size": 100, "chunk_overlap": 10, "chunk_min_size": 8, "vector_engine": "flat",
        "qdrant_api_key": secret, "rerank_provider": "http", **reranker,
    }  # fmt: skip
    model = {
        "provider": "openai", "model": "m", "api_key": secret,
        "url": f"http://user:{secret}@127.0.0.1:9/v1", "timeout_seconds": 1,
    }  # fmt: skip
    settings = Settings(home=tmp_path / "home", rag_v2=RAGv2Settings(**rag),
                        llm=LLMSettings(**model))  # fmt: skip
    library = Library(settings, model=EmbeddingModel(WordEncoder()))
    with LocalEngine(library) as engine:
        Indexer(library).build(folder, "notes")
        answer = engine.ask("search", {"query": "kettle", "rerank": True, "explain": True})
        assert [stage for stage in answer["stages"] if stage["status"] == "failed"]
        asked = GoldenQuery(id="q1", query="kettle", expected=[{"path": "same1.md"}])
        queries = GoldenSet("g", (asked,))
        with Backends(library) as backends:
            (run,) = run_backends([backends.load("v2")], queries, dataset="notes", repeats=0)
        record_run(library.database, run, score_run(run, queries), queries, now=1.0)
        with library.database.read() as connection:
            rows = [
                str(tuple(row))
                for table in meta.metadata.sorted_tables
                for row in connection.execute(select(table))
            ]
        told = [json.dumps(answer), str(engine.ask("status", {})), str(run), *rows]
    assert [text for text in told if secret in text] == []


def test_one_poisoned_passage_is_reported_and_all_others_are_found(tmp_path, folder):
    (folder / "bad.md").write_text("# Bad\n\nPOISON in the kettle.\n")
    with LocalEngine(open_qdrant_library(tmp_path / "home")) as engine:
        report = Indexer(engine.library).build(folder, "notes")
        hits = engine.ask("search", {"query": "kettle harbour", "mode": "vector", "top_k": 50})
        assert {hit["path"] for hit in hits["results"]} == {
            *(f"same{n}.md" for n in range(9)), "other.md",
        }  # fmt: skip
        words = engine.ask("search", {"query": "POISON", "mode": "lexical"})
    assert "bad.md" in str(report)
    assert [hit["path"] for hit in words["results"]] in ([], ["bad.md"])


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_ties_have_the_same_order_after_an_update_as_after_a_new_build(tmp_path, folder, mode):
    def ask(home):
        with LocalEngine(open_library(tmp_path / home)) as engine:
            Indexer(engine.library).build(folder, "notes")
            found = engine.ask("search", {"query": "kettle", "mode": mode, "top_k": 5})
            return [(hit["path"], round(hit["score"], 9)) for hit in found["results"]]

    ask("updated")
    (folder / "same0.md").rename(folder / "zz.md")
    (folder / "same4.md").write_text("# Kettle\n\nThe kettle!\n", encoding="utf-8")
    (folder / "same5.md").unlink()
    found = ask("updated")
    assert len({score for _, score in found}) == 1
    assert found == ask("new")
