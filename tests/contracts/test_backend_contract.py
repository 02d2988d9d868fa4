"""What every search under comparison must do, whatever it is; whoever adds one adds it here."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from catalog.core.user_search import Ranking
from catalog.embedding import EmbeddingModel
from catalog.evaluation.backends import Backends, write_run
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.metrics import score_run
from catalog.evaluation.run_records import record_run
from catalog.evaluation.runs import run_backends
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.search.embed_model import ResilientEmbedding
from fakes import WordEncoder, open_library, write

QUERIES = GoldenSet(
    "notes",
    (
        GoldenQuery(id="q1", query="rotate the api keys", expected=({"path": "keys.md"},)),
        GoldenQuery(id="q2", query="bake the bread", expected=({"path": "bread.txt"},)),
        GoldenQuery(id="q3", query="backups at midnight", expected=({"path": "guides/backup.md"},)),
    ),
)
NOTES = {
    "keys_dot_md": "---\ntags: [ops]\n---\n# Keys\n\n## Rotating\n\nRotate the API keys every "
    "ninety days with the keys command.\n\n## Revoking\n\nA leaked key is revoked at once.\n",
    "bread_dot_txt": "Mix flour, water and yeast. Bake the bread at 230 degrees.\n",
    "guides__backup_dot_md": "# Backups\n\nBackups run at midnight and are kept for a month.\n",
}
PATHS = {"keys.md", "bread.txt", "guides/backup.md"}
PLUGGED = """
HITS = ["notes:guides/backup.md", "keys.md", "bread.txt"]
def search(query, dataset, limit):
    return HITS[:limit] if "midnight" in query else HITS[::-1][:limit]
"""


@dataclass
class Setup:
    library: Any
    spec: str


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notes")
    write(folder, **NOTES)
    with open_library(tmp_path_factory.mktemp("home")) as opened:
        Indexer(opened).build(folder, "notes")
        yield opened


@pytest.fixture(autouse=True)
def _v1_has_the_same_model(monkeypatch):
    monkeypatch.setattr(
        "catalog.search.service.get_embed_model",
        lambda *_, **__: ResilientEmbedding(EmbeddingModel(WordEncoder())),
    )


@pytest.fixture(
    params=[
        *("v1", "v2", "v2:fusion_mode=rrf,rrf_k=7", "lexical", "vector"),
        *("plugged", "file", "run"),
    ]
)
def setup(request, library, tmp_path, monkeypatch):
    if request.param == "plugged":
        (tmp_path / "contract_plugged.py").write_text(PLUGGED)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        yield Setup(library, "contract_plugged:search")
        sys.modules.pop("contract_plugged", None)
        return
    spec = request.param
    if request.param in ("file", "run"):
        with Backends(library) as backends:
            (run,) = run_backends([backends.load("lexical")], QUERIES, dataset="notes", repeats=0)
        scores = score_run(run, QUERIES)
        record = record_run(library.database, run, scores, QUERIES, now=1.0)
        spec = f"run:{record.id}"
        if request.param == "file":
            spec = str(write_run(tmp_path, "theirs", record.lists))
    yield Setup(library, spec)


@pytest.fixture
def backend(setup):
    with Backends(setup.library) as backends:
        loaded = backends.load(setup.spec)
        loaded.prepare("notes", Silent())
        yield loaded


def ask(backend, number=0, top_k=10):
    return backend.search(QUERIES.queries[number], dataset="notes", top_k=top_k)


def test_an_answer_is_a_ranked_list_of_the_datasets_documents(backend):
    for number, right in enumerate(("keys.md", "bread.txt", "guides/backup.md")):
        answer = ask(backend, number)
        assert isinstance(answer, Ranking)
        assert answer.documents
        assert set(answer.documents) <= PATHS
        assert right in answer.documents


def test_no_more_passages_come_than_asked_for(backend):
    for top_k in (1, 2, 100):
        assert 1 <= len(ask(backend, top_k=top_k).hits) <= top_k
    assert ask(backend, top_k=1).documents == ask(backend, top_k=100).documents[:1]


def test_the_same_question_gives_the_same_answer(backend):
    for number in range(3):
        assert ask(backend, number).documents == ask(backend, number).documents


def test_scores_if_told_fall_with_the_rank(backend):
    for number in range(3):
        scores = [hit.score for hit in ask(backend, number).hits if hit.score is not None]
        assert scores == sorted(scores, reverse=True)


def test_preparing_twice_is_harmless(backend):
    before = ask(backend)
    backend.prepare("notes", Silent())
    assert ask(backend).documents == before.documents


def test_a_backend_has_a_name_and_an_identity_that_json_can_hold(backend):
    assert backend.name
    assert backend.identity
    assert json.loads(json.dumps(backend.identity)) == backend.identity
    assert backend.identity == backend.identity


def test_equal_setups_have_equal_identities_before_and_after_preparing(setup, backend):
    with Backends(setup.library) as backends:
        assert backends.load(setup.spec).identity == backend.identity


def test_a_backend_can_be_closed_twice_and_leaves_the_store_open(setup):
    backends = Backends(setup.library)
    loaded = backends.load(setup.spec)
    loaded.prepare("notes", Silent())
    ask(loaded)
    backends.close()
    loaded.close()
    backends.close()
    setup.library.require_dataset("notes")


def test_a_backend_runs_to_the_end_of_a_set_without_an_error(setup):
    with Backends(setup.library) as backends:
        (run,) = run_backends([backends.load(setup.spec)], QUERIES, dataset="notes", repeats=2)
    assert run.errors == {}
    assert {one.stable for one in run.outcomes.values()} <= {True, None}
    assert score_run(run, QUERIES).means["R@10"] == 1
