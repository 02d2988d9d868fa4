"""Catalog as a LlamaIndex user takes it: a name to import, a dataset, and stock parts around."""

import asyncio
import subprocess
import sys

import pytest
from llama_index.core import Settings as LlamaSettings
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import QueryEngineTool
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

from catalog import search_v2
from catalog.core.errors import InputError, UnknownDatasetError
from catalog.core.settings import get_settings
from catalog.library.indexing import Indexer
from catalog.search_v2 import (
    CatalogRetriever,
    CitedPassages,
    HybridRetrieverFactoryV2,
    QueryEngineBuilderV2,
    SearchServiceV2,
    shared,
)
from fakes import open_library


@pytest.fixture
def service(tmp_path, notes):
    """The shared service of this process, over three notes and a model without files."""
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    made = SearchServiceV2(open_library(tmp_path / "home"))
    shared._services.get(get_settings().model_dump_json(), lambda: made)
    yield made
    search_v2.close()


@pytest.fixture
def debug(monkeypatch):
    handler = LlamaDebugHandler(print_trace_on_end=False)
    monkeypatch.setattr(LlamaSettings, "_callback_manager", CallbackManager([handler]))
    return handler


@pytest.fixture
def events():
    class Noting(BaseEventHandler):
        seen: list = []

        def handle(self, event, **_):
            self.seen.append(event)

    handler, root = Noting(), get_dispatcher()
    root.add_event_handler(handler)
    yield handler.seen
    root.event_handlers.remove(handler)


def paths(nodes):
    return [node.metadata["path"] for node in nodes]


def test_every_part_is_imported_from_one_place():
    for name in search_v2.__all__:
        assert getattr(search_v2, name).__name__ == name
    assert set(search_v2.__all__) <= set(dir(search_v2))
    with pytest.raises(AttributeError, match="no attribute 'Retriever'"):
        _ = search_v2.Retriever


def test_importing_search_loads_no_llama_index_until_a_part_is_asked_for():
    code = (
        "import sys, catalog, catalog.search_v2\n"
        "assert not {'llama_index', 'qdrant_client', 'numpy'} & set(sys.modules)\n"
        "from catalog.search_v2 import CatalogRetriever\n"
        "assert 'llama_index.core' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_retrievers_need_a_datasets_name_and_serve_any_query(service):
    whole = CatalogRetriever("notes", top_k=2)
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes")
    assert isinstance(fused, QueryFusionRetriever)
    for retriever in (whole, fused, CatalogRetriever()):
        assert paths(retriever.retrieve("bake bread"))[0] == "bread.txt"
        assert paths(asyncio.run(retriever.aretrieve("midnight backups")))[0] == "guides/backup.md"
    assert paths(fused.retrieve('"kept for thirty days" -bread'))[0] == "guides/backup.md"
    assert paths(fused.retrieve("lex: yeast / vec: bake bread"))[0] == "bread.txt"
    with pytest.raises(UnknownDatasetError, match="notes"):
        CatalogRetriever("other").retrieve("bread")


def test_a_closed_service_is_opened_anew_by_the_next_query(tmp_path, notes, monkeypatch):
    monkeypatch.setattr(
        "catalog.library.library.Library", lambda _: open_library(tmp_path / "home")
    )
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    retriever = CatalogRetriever("notes")
    for _ in range(2):
        assert paths(retriever.retrieve("bake bread"))[0] == "bread.txt"
        search_v2.close()


def test_a_retriever_is_narrowed_by_stock_filters_and_documents(service):
    tagged = MetadataFilters(
        filters=[MetadataFilter(key="tags", value="ops", operator=FilterOperator.EQ)]
    )
    factory = HybridRetrieverFactoryV2()
    for narrow, allowed in (
        ({"filters": tagged}, {"keys.md"}),
        ({"filters": {"tags": "ops"}}, {"keys.md"}),
        ({"doc_ids": ["bread.txt"]}, {"bread.txt"}),
        ({"doc_ids": []}, set()),
    ):
        assert set(paths(factory.build(None, "notes", **narrow).retrieve("the keys"))) == allowed
        assert set(paths(factory.build("keys", "notes", **narrow).retrieve("keys"))) == allowed
        assert set(paths(CatalogRetriever("notes", **narrow).retrieve("the keys"))) == allowed


@pytest.mark.parametrize("depth", [{"k_lex": 0}, {"k_dense": -1}, {"k_fused": 0}])
def test_a_depth_below_one_is_refused(service, depth):
    (name,) = depth
    for query in (None, "bread"):
        with pytest.raises(InputError, match=f"{name} is .*: use 1 or more"):
            HybridRetrieverFactoryV2().build(query, "notes", **depth)
    with pytest.raises(InputError):
        CatalogRetriever("notes", top_k=0)
    with pytest.raises(InputError, match="top_k"):
        HybridRetrieverFactoryV2().build(None, "notes", top_k=3)


def test_a_query_engine_without_a_model_answers_with_the_passages_cited(service):
    engine = QueryEngineBuilderV2().build_query_engine("notes", top_k=2)
    for response in (engine.query("bake bread"), asyncio.run(engine.aquery("bake bread"))):
        first, second = str(response).split("\n\n[2] ")
        assert first == (
            "[1] bread.txt [source: bread, line 1]\n"
            "Mix flour, water and yeast. Bake the bread at 230 degrees."
        )
        assert second
        assert paths(response.source_nodes)[0] == "bread.txt"
        assert response.metadata.keys() == {node.node_id for node in response.source_nodes}
    none = QueryEngineBuilderV2().build_query_engine("notes", doc_ids=[])
    assert str(none.query("bake bread")) == "No passage was found."
    assert none.query("bake bread").source_nodes == []


def test_cited_passages_cites_nodes_of_other_retrievers():
    node = TextNode(text="walrus", metadata={"file_name": "zoo.txt"})
    response = CitedPassages().synthesize("what", [NodeWithScore(node=node)])
    assert str(response) == "[1] zoo.txt\nwalrus"


def test_a_model_of_the_settings_writes_the_answer(service, monkeypatch):
    monkeypatch.setattr(LlamaSettings, "_llm", MockLLM(max_tokens=3))
    response = QueryEngineBuilderV2().build_query_engine("notes", top_k=1).query("bake bread")
    assert str(response) == "text text text"
    assert paths(response.source_nodes) == ["bread.txt"]


def test_chat_engines_and_tools_of_llama_index_take_our_parts(service):
    engine = QueryEngineBuilderV2().build_query_engine("notes", top_k=1)
    chat = CondenseQuestionChatEngine.from_defaults(
        engine, memory=ChatMemoryBuffer.from_defaults(), llm=MockLLM()
    )
    assert paths(chat.chat("bake bread").source_nodes) == ["bread.txt"]
    tool = QueryEngineTool.from_defaults(engine, name="notes", description="notes")
    assert tool.call("bake bread").content.startswith("[1] bread.txt")
