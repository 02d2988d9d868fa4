"""Loading the searches that can be compared, by the text that names them."""

import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from qdrant_client import models

from catalog.core.errors import (
    BackendError,
    ConfigError,
    StageFailedError,
    UnknownDatasetError,
    UnknownFieldError,
)
from catalog.core.settings import CollectionSettings
from catalog.core.user_search import Ranking
from catalog.embedding.model import EmbeddingModel
from catalog.evaluation.backends import Backends, code_digest
from catalog.evaluation.runs import run_backends
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.search.embed_model import ResilientEmbedding
from catalog.store.chunks import find_root
from evaluation.stubs import golden, question
from fakes import DIM, WordEncoder, open_library, write
from qdrant_protocol import qdrant_protocol
from tables import read_cases, table

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

NOTES = dict(read_cases(__file__)["notes"])


@pytest.fixture(scope="module")
def encoder():
    return WordEncoder()


@pytest.fixture(scope="module")
def library(tmp_path_factory, encoder):
    """One store for all tests: none changes it."""
    folder = tmp_path_factory.mktemp("notes")
    write(folder, **NOTES)
    with open_library(tmp_path_factory.mktemp("home"), encoder) as opened:
        Indexer(opened).build(folder, "notes")
        yield opened


@pytest.fixture
def load(library, monkeypatch):
    monkeypatch.setattr(
        "catalog.search.service.get_embed_model",
        lambda *_, **__: ResilientEmbedding(EmbeddingModel(WordEncoder())),
    )
    with Backends(library) as backends:
        yield backends.load


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into the working directory; its name. Each test has its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(text, name="own_search"):
        sys.modules.pop(name, None)
        (folder / f"{name}.py").write_text(text)
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("own_") or name == "run":
            del sys.modules[name]


def asked(backend, text="rotate the api keys", top_k=10, **fields):
    return backend.search(question(1, query=text, **fields), dataset="notes", top_k=top_k)


# names


@pytest.mark.parametrize(
    ("spec", "pipeline"), TABLES["ours are known by short and by dotted names"]
)
def test_ours_are_known_by_short_and_by_dotted_names(load, spec, pipeline):
    assert load(spec).identity["pipeline"] == pipeline


def test_v1_answers_from_its_own_index(load):
    backend = load("v1")
    backend.prepare("notes", Silent())
    assert asked(backend, "bake the bread").documents[0] == "bread.txt"


def test_v1_answers_from_the_index_it_has_until_it_is_prepared_again(load, library, tmp_path):
    write(tmp_path / "edited", old_dot_md="# Old\n\nOwls fly at night.\n")
    Indexer(library).build(tmp_path / "edited", "edited")
    try:
        backend = load("v1")
        backend.prepare("edited", Silent())
        write(tmp_path / "edited", new_dot_md="# New\n\nOwls fly at dawn.\n")
        Indexer(library).update("edited")
        query = question(1, query="owls at dawn")
        before = backend.search(query, dataset="edited", top_k=5)
        backend.prepare("edited", Silent())
        after = backend.search(query, dataset="edited", top_k=5)
        assert (set(before.documents), set(after.documents)) == ({"old.md"}, {"old.md", "new.md"})
    finally:
        Indexer(library).remove("edited")


def test_a_leg_alone_answers_without_the_other(load, encoder, monkeypatch):
    monkeypatch.setattr(encoder, "down", True)
    assert asked(load("lexical")).documents[0] == "keys.md"
    with pytest.raises(Exception, match="no answer"):
        asked(load("vector"))


def test_changed_settings_reach_the_search(load):
    one = load("v2:max_chunks_per_doc=1")
    assert len(asked(one).hits) == len(asked(one).documents)
    assert asked(load("v2:fusion_mode=rrf")).hits[0].explain[0].endswith("by rrf")
    assert (
        asked(load("v2:fusion_mode=relative_score"))
        .hits[0]
        .explain[0]
        .endswith("by relative_score")
    )


def test_a_query_asked_again_is_embedded_again(load, encoder):
    backend = load("v2")
    for text in ("bake bread", "rotate keys", "bake bread"):
        asked(backend, text)
    assert encoder.texts[-3:] == ["bake bread", "rotate keys", "bake bread"]


def test_identities_differ_by_mode_and_by_every_setting(load):
    specs = [
        "v1", "v2", "lexical", "vector", "v2:rrf_k=61", "v2:fusion_mode=rrf", "vector:rrf_k=61",
    ]  # fmt: skip
    identities = [json.dumps(load(spec).identity, sort_keys=True) for spec in specs]
    assert len(set(identities)) == len(specs)


def test_an_identity_holds_the_code_and_no_secret(load, library, monkeypatch):
    identity = load("v2").identity
    assert identity["code"] == code_digest()
    assert identity["embedding"] == "words-1"
    assert "qdrant_api_key" not in identity["rag_v2"]
    monkeypatch.setattr("catalog.evaluation.backends.code_digest", lambda: "other")
    assert load("v2").identity != identity
    assert load("v1").identity["code"] == "other"


@pytest.mark.parametrize("spec", ["v2:rrf_k", "v2:rrf_k=", "v2:=5", "lexical:x"])
def test_settings_without_a_value_or_a_name_are_refused(load, spec):
    with pytest.raises((BackendError, ConfigError), match=r"name=value|setting rag_v2"):
        load(spec)


@pytest.mark.parametrize(("spec", "message"), TABLES["a setting that cannot be is refused by name"])
def test_a_setting_that_cannot_be_is_refused_by_name(load, spec, message):
    with pytest.raises(ConfigError, match=message):
        load(spec)


@table("spec")
def test_a_backend_that_cannot_be_loaded_is_an_error_that_names_it(load, spec):
    with pytest.raises(BackendError) as raised:
        load(spec)
    assert repr(spec) in str(raised.value)


def test_filters_of_a_query_are_given_to_v2(load):
    assert asked(load("v2"), "keys bread", filters={"tag": "ops"}).documents == ("keys.md",)
    with pytest.raises(UnknownFieldError):
        asked(load("v2"), filters={"colour": "red"})


def test_a_dataset_that_is_not_there_is_refused_while_preparing(load):
    for spec in ("v1", "v2", "lexical"):
        with pytest.raises(UnknownDatasetError, match="datasets: notes"):
            load(spec).prepare("nope", Silent())


def test_a_leg_that_fails_behind_v2s_back_fails_the_query(load, encoder, monkeypatch):
    """v2 would answer with the other leg alone, and the scores would be of another search."""
    backend = load("v2")
    backend.prepare("notes", Silent())
    monkeypatch.setattr(encoder, "down", True)
    with pytest.raises(StageFailedError, match="vector failed"):
        asked(backend, "bake bread")
    (run,) = run_backends([backend], golden(question(1)), dataset="notes", repeats=0)
    assert run.errors["q1"].startswith("StageFailedError: stage vector failed")


# runs and files


def test_a_run_file_answers_in_the_order_of_its_scores(load, tmp_path):
    file = tmp_path / "their search.run"
    file.write_text("q1 Q0 b.md 1 0.5 t\nq1 Q0 a%20b.md 2 0.9 t\nq2 Q0 c.md 1 1 t\n")
    backend = load(str(file))
    assert backend.name == "their search"
    assert asked(backend).documents == ("a b.md", "b.md")
    assert asked(backend).hits[0].score == 0.9
    assert asked(backend, top_k=1).documents == ("a b.md",)
    assert backend.search(question(9), dataset="notes", top_k=5).documents == ()


def test_a_run_file_is_known_by_its_content(load, tmp_path):
    one, two = tmp_path / "one.run", tmp_path / "two.run"
    one.write_text("q1 Q0 a 1 1 t\n")
    two.write_text("q1 Q0 a 1 1 t\n")
    first = load(str(one)).identity
    assert first == load(str(two)).identity
    one.write_text("q1 Q0 b 1 1 t\n")
    assert load(str(one)).identity != first


# somebody's own


@pytest.mark.parametrize(
    ("code", "spec"), TABLES["a search may be any callable and gets the depth by the name it knows"]
)
def test_a_search_may_be_any_callable_and_gets_the_depth_by_the_name_it_knows(
    load, module, code, spec
):
    module(f"HITS = ['keys.md', 'bread.txt']\n{code}\n")
    assert asked(load(spec), top_k=1).documents == ("keys.md",)
    assert load(spec).name == spec


def test_a_search_gets_the_query_the_dataset_and_the_filters(load, module):
    module("got = []\ndef search(query, **given):\n    got.append((query, given))\n    return []\n")
    backend = load("own_search")
    asked(backend, "what?")
    asked(backend, "which?", filters={"tag": "ops"})
    assert sys.modules["own_search"].got == [
        ("what?", {"dataset": "notes", "top_k": 10}),
        ("which?", {"dataset": "notes", "top_k": 10, "filters": {"tag": "ops"}}),
    ]


def test_a_search_that_ignores_the_depth_is_cut_to_it(load, module):
    module("def search(query):\n    return [f'{n}.md' for n in range(100)]\n")
    assert asked(load("own_search"), top_k=3).documents == ("0.md", "1.md", "2.md")


@pytest.mark.parametrize("returned", TABLES["an answer may have any of the known shapes"])
def test_an_answer_may_have_any_of_the_known_shapes(load, module, returned):
    module(
        "from types import SimpleNamespace\n"
        "from llama_index.core.base.response.schema import Response\n"
        "from llama_index.core.schema import NodeWithScore, TextNode\n"
        f"def search(query):\n    return {returned}\n"
    )
    answer = asked(load("own_search"))
    assert isinstance(answer, Ranking)
    assert answer.documents == ("a.md", "b.md")


@pytest.mark.parametrize(
    ("returned", "named"), TABLES["an answer of no known shape is an error that names what came"]
)
def test_an_answer_of_no_known_shape_is_an_error_that_names_what_came(
    load, module, returned, named
):
    module(f"def search(query):\n    return {returned}\n")
    with pytest.raises(BackendError, match=named):
        asked(load("own_search"))


def test_nonsense_in_the_middle_of_a_run_is_counted_and_told(load, module):
    module("def search(query):\n    return None if '2' in query else ['right.md']\n")
    queries = golden(question(1), question(2), question(3))
    (run,) = run_backends([load("own_search")], queries, dataset="notes", repeats=0)
    assert list(run.errors) == ["q2"]
    assert run.errors["q2"].startswith("BackendError: a search must return a sequence of hits")


RETRIEVER = """
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from catalog.search_v2 import HybridRetrieverFactoryV2

class Found(BaseRetriever):
    def __init__(self, *paths):
        self.paths = paths
        super().__init__()

    def _retrieve(self, query_bundle):
        if self.paths == ("down",):
            raise ConnectionError("no answer")
        return [
            NodeWithScore(node=TextNode(id_=path, metadata={"file_path": path}), score=1.0)
            for path in self.paths
        ]

retriever = HybridRetrieverFactoryV2().over([Found("ROOT/keys.md"), Found(OTHER)], weights=[2, 1])
"""


def test_a_retriever_is_a_backend_and_whole_paths_are_the_datasets_documents(load, library, module):
    with library.database.read() as connection:
        root = find_root(connection, "notes")
    text = RETRIEVER.replace("ROOT", root)
    backend = load(f"{module(text.replace('OTHER', repr('bread.txt')))}:retriever")
    backend.prepare("notes", Silent())
    assert asked(backend).documents == ("keys.md", "bread.txt")
    before = backend.identity
    assert before["code"] is not None
    module(text.replace("OTHER", repr("guides/backup.md")))
    assert load("own_search:retriever").identity != before


ENGINE = """
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from catalog.search_v2 import KeywordChunkSelector

stages = [KeywordChunkSelector()]
engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM(), node_postprocessors=stages)
"""


def test_a_query_engine_is_a_backend_with_its_postprocessors_and_asks_no_model(load, module):
    text = (RETRIEVER + ENGINE).replace("OTHER", repr("keys.md"))
    backend = load(f"{module(text)}:engine")
    backend.prepare("notes", Silent())
    assert asked(backend).documents == ("ROOT/keys.md", "keys.md")
    assert backend.identity["code"] is not None


def test_a_retriever_of_which_a_part_fails_has_failed(load, module):
    backend = load(f"{module(RETRIEVER.replace('OTHER', repr('down')))}:retriever")
    (run,) = run_backends([backend], golden(question(1)), dataset="notes", repeats=0)
    reason = "StageFailedError: stage Found 2 failed: ConnectionError: no answer"
    assert run.errors == {"q1": reason}


def test_the_identity_of_a_search_changes_with_its_file(load, module):
    module("def search(query):\n    return ['a.md']\n")
    first = load("own_search").identity
    assert load("own_search").identity == first
    module("def search(query):\n    return ['a.md', 'b.md']\n")
    assert load("own_search").identity != first


@pytest.mark.parametrize(
    ("code", "message"), TABLES["a module that cannot be used is one error with its reason"]
)
def test_a_module_that_cannot_be_used_is_one_error_with_its_reason(load, module, code, message):
    module(f"{code}\n", name="own_broken")
    with pytest.raises(BackendError, match=message):
        load("own_broken")


def test_every_backend_is_closed_with_the_rest():
    closed = []
    backends = Backends(SimpleNamespace())
    for number in range(3):
        one = SimpleNamespace(close=lambda n=number: closed.append(n))
        backends._loaded.append(one)
    backends.close()
    backends.close()
    assert sorted(closed) == [0, 1, 2]


def test_a_foreign_collection_is_a_backend_whose_addresses_are_the_dataset_s_documents(
    monkeypatch, tmp_path
):
    write(
        tmp_path / "notes",
        keys_dot_md="---\nsource_url: https://n.example/keys\n---\n# Keys\n\nRotate the keys.\n",
    )
    monkeypatch.setattr(
        "catalog.search_v2.collections.get_model", lambda *_, **__: EmbeddingModel(WordEncoder())
    )
    told = {"keys": "Rotate the keys.", "bread": "Bake the bread."}
    with qdrant_protocol(monkeypatch) as server:
        size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
        server.client.create_collection("theirs", vectors_config=size)
        for number, (name, text) in enumerate(told.items()):
            payload = {"text": text, "source_url": f"https://n.example/{name}"}
            vector = WordEncoder().encode([text])[0].tolist()
            point = models.PointStruct(id=number, vector=vector, payload=payload)
            server.client.upsert("theirs", [point])
        settings = {"collection": CollectionSettings(url=server.url)}
        with open_library(tmp_path / "home", WordEncoder()) as opened, Backends(opened) as backends:
            opened.settings = opened.settings.model_copy(update=settings)
            Indexer(opened).build(tmp_path / "notes", "notes")
            backend = backends.load("collection:theirs")
            queries = golden(question(1), question(2))
            (run,) = run_backends([backend], queries, dataset="notes", repeats=0)
        assert backend.identity["collection"] == "theirs"
        assert server.writes() == []
    assert {frozenset(documents) for documents in map(run.documents, run.outcomes)} == {
        frozenset({"keys.md", "https://n.example/bread"})
    }
