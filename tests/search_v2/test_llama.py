"""Catalog as a LlamaIndex user takes it: a name to import, a dataset, and stock parts around."""

import ast
import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from llama_index.core import QueryBundle
from llama_index.core import Settings as LlamaSettings
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import TransformQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import QueryEngineTool
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

from catalog import search_v2
from catalog.core.errors import (
    ConfigError,
    InputError,
    StageFailedError,
    UnknownDatasetError,
)
from catalog.library.indexing import Indexer
from catalog.search_v2 import (
    CatalogRetriever,
    CitedSentences,
    DatasetRetriever,
    HybridRetrieverFactoryV2,
    MaxChunksPerDocument,
    QueryEngineBuilderV2,
    QueryExpansionRetrieverV2,
    RerankPostprocessor,
)
from fakes import DIM, open_library
from llama_parts import Scripted, paths
from scripted import ScriptedReranker


@pytest.fixture
def debug(monkeypatch):
    handler = LlamaDebugHandler(print_trace_on_end=False)
    monkeypatch.setattr(LlamaSettings, "_callback_manager", CallbackManager([handler]))
    return handler


def test_every_part_is_imported_from_one_place():
    for name in search_v2.__all__:
        assert getattr(search_v2, name).__name__ == name
    assert set(search_v2.__all__) <= set(dir(search_v2))
    # type checkers read the same names of the same modules
    tree = ast.parse(Path(search_v2.__file__).read_text(encoding="utf-8"))
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    told = {alias.name: f"{one.module}" for one in typed.body for alias in one.names}
    assert told.pop("SearchResults") == "catalog.core.results"
    assert told == search_v2._MODULE_OF
    with pytest.raises(AttributeError, match="no attribute 'Retriever'"):
        _ = search_v2.Retriever


@pytest.mark.slow
def test_importing_search_loads_no_llama_index_until_a_part_is_asked_for():
    code = (
        "import sys, catalog, catalog.search_v2\n"
        "assert not {'llama_index', 'qdrant_client', 'numpy'} & set(sys.modules)\n"
        "from catalog.search_v2 import CatalogRetriever\n"
        "assert 'llama_index.core' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


SEARCH = """
from catalog import search_v2
found = search_v2.search('bake bread', dataset='notes', mode='lexical')
assert found[0].path == 'bread.txt'
"""
BUILD = """
from catalog.core.settings import load_settings
from catalog.embedding import EmbeddingModel
from catalog.interfaces.cli import main
from catalog.library.library import Library
from fakes import WordEncoder

Library.model = EmbeddingModel(WordEncoder())
sys.argv = ['catalog', 'index', 'build', {folder!r}, '--dataset', 'notes']
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [SEARCH, BUILD], ids=["search", "index build"])
def test_neither_a_search_nor_a_build_loads_llama_index(tmp_path, notes, code):
    home = tmp_path / "cold"
    if code == SEARCH:
        with open_library(home) as library:
            Indexer(library).build(notes, "notes")
    code = (
        f"import sys\n{code.format(folder=str(notes))}\n"
        "assert not [name for name in sys.modules if name.startswith('llama_index')]\n"
    )
    environment = {
        **os.environ,
        "IDX_HOME": str(home),
        "IDX_RAG_V2__VECTOR_ENGINE": "flat",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(command, check=True, timeout=120, env=environment)


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


def test_the_next_query_opens_a_closed_service_again(tmp_path, notes, monkeypatch):
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
        assert set(paths(factory.build("notes", **narrow).retrieve("the keys"))) == allowed
        assert set(paths(CatalogRetriever("notes", **narrow).retrieve("the keys"))) == allowed


@pytest.mark.parametrize("depth", [{"k_lex": 0}, {"k_dense": -1}, {"k_fused": 0}])
def test_a_depth_below_one_is_refused(service, depth):
    (name,) = depth
    with pytest.raises(InputError, match=f"{name} is .*: use a number from 1"):
        HybridRetrieverFactoryV2().build("notes", **depth)
    with pytest.raises(InputError):
        CatalogRetriever("notes", top_k=0)
    with pytest.raises(InputError, match="top_k"):
        HybridRetrieverFactoryV2().build("notes", top_k=3)


def test_names_that_llama_index_users_know_are_taken(service):
    assert len(CatalogRetriever("notes", similarity_top_k=2).retrieve("the keys")) == 2
    one = MaxChunksPerDocument(limit=1)
    build = QueryEngineBuilderV2().build_query_engine
    engine = build("notes", similarity_top_k=3, node_postprocessors=[one])
    assert 1 <= len(engine.query("the keys").source_nodes) <= 3
    streamed = build("notes", llm=MockLLM(max_tokens=3), streaming=True).query("bake bread")
    assert "".join(streamed.response_gen) == "text text text"


def test_an_unknown_argument_is_named_with_the_nearest(service):
    build = QueryEngineBuilderV2().build_query_engine
    for call in (
        partial(CatalogRetriever, "notes"),
        partial(build, "notes"),
        partial(service.search, "bread"),
    ):
        with pytest.raises(InputError, match="top_k"):
            call(topk=3)
    with pytest.raises(InputError, match="did you mean streaming"):
        build("notes", stream=True)
    with pytest.raises(InputError, match="no argument 'query'"):
        CatalogRetriever("notes", query="bread")
    with pytest.raises(InputError, match="did you mean k_fused"):
        DatasetRetriever("notes", k_fuse=3)
    with pytest.raises(InputError, match="k_fused is its depth"):
        DatasetRetriever("notes", top_k=3)
    with pytest.raises(InputError, match="give one of them"):
        CatalogRetriever("notes", top_k=2, similarity_top_k=3)


def test_streaming_without_a_model_to_write_is_refused(service):
    build = QueryEngineBuilderV2().build_query_engine
    with pytest.raises(InputError, match="streaming needs a language model"):
        build("notes", streaming=True)
    with pytest.raises(InputError, match="streaming"):
        build("notes", streaming=True, response_synthesizer=CitedSentences())


def test_a_query_engine_without_a_model_answers_with_the_best_sentences_cited(service):
    engine = QueryEngineBuilderV2().build_query_engine("notes", top_k=2)
    for response in (engine.query("bake bread"), asyncio.run(engine.aquery("bake bread"))):
        assert str(response) == (
            "Bake the bread at 230 degrees. [1]\n\n[1] bread.txt [source: bread, line 1]"
        )
        assert paths(response.source_nodes)[0] == "bread.txt"
        assert response.metadata.keys() == {node.node_id for node in response.source_nodes}
    none = QueryEngineBuilderV2().build_query_engine("notes", doc_ids=[])
    assert str(none.query("bake bread")) == "No passage was found."
    assert none.query("bake bread").source_nodes == []


def test_cited_sentences_cites_nodes_of_other_retrievers():
    node = TextNode(text="walrus", metadata={"file_name": "zoo.txt"})
    response = CitedSentences().synthesize("what", [NodeWithScore(node=node)])
    assert str(response) == "walrus [1]\n\n[1] zoo.txt"


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
    assert tool.call("bake bread").content.startswith("Bake the bread at 230 degrees. [1]")


def test_the_text_of_a_query_transform_is_searched_by_meaning(service):
    """HyDE: the passage stands for the query in the vector leg, the words stay the query's."""
    bundle = QueryBundle("unheard of", custom_embedding_strs=["yeast and flour for the bread"])
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes", mode="vector", k_dense=1)
    for retriever in (fused, CatalogRetriever("notes", top_k=1)):
        assert paths(retriever.retrieve(bundle)) == ["bread.txt"]
        assert paths(asyncio.run(retriever.aretrieve(bundle))) == ["bread.txt"]
    hyde = HyDEQueryTransform(llm=Scripted(reply="Backups run at midnight."), include_original=True)
    engine = QueryEngineBuilderV2().build_query_engine("notes", top_k=1)
    answer = TransformQueryEngine(engine, hyde).query("when")
    assert paths(answer.source_nodes) == ["guides/backup.md"]


def test_an_embedding_of_our_model_brought_along_is_used(service):
    vector = list(map(float, service.parts.query_vectors.embed("bake bread")[0]))
    bundle = QueryBundle("unheard of", embedding=vector)
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes", k_fused=1)
    assert paths(fused.retrieve(bundle)) == ["bread.txt"]
    assert paths(CatalogRetriever("notes", top_k=1).retrieve(bundle)) == ["bread.txt"]


def test_callbacks_see_retrieval_and_embedding(service, debug):
    CatalogRetriever("notes").retrieve("bake bread")
    pairs = debug.get_event_pairs(CBEventType.RETRIEVE)
    assert pairs
    assert all(len(pair) == 2 for pair in pairs)
    (embedding,) = debug.get_event_pairs(CBEventType.EMBEDDING)
    assert embedding[1].payload["chunks"] == ["bake bread"]
    assert len(embedding[1].payload["embeddings"][0]) == DIM


def test_callbacks_given_to_a_retriever_see_it(service):
    handler = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([handler])
    CatalogRetriever("notes", callback_manager=manager).retrieve("bake bread")
    (pair,) = handler.get_event_pairs(CBEventType.RETRIEVE)
    assert paths(pair[1].payload["nodes"])[0] == "bread.txt"


def test_reranking_is_told_to_callbacks_and_instrumentation(service, debug, events):
    stage = RerankPostprocessor(ScriptedReranker(1.0), top_n=2)
    nodes = CatalogRetriever("notes").retrieve("bake bread")
    stage.postprocess_nodes(nodes, query_str="bake bread")
    (pair,) = debug.get_event_pairs(CBEventType.RERANKING)
    assert pair[0].payload["model_name"] == "scripted"
    assert len(pair[1].payload["nodes"]) == 2
    names = [type(event).__name__ for event in events]
    assert names.count("ReRankStartEvent") == names.count("ReRankEndEvent") == 1
    assert {"EmbeddingStartEvent", "EmbeddingEndEvent", "RetrievalEndEvent"} <= set(names)
    (end,) = [event for event in events if type(event).__name__ == "EmbeddingEndEvent"]
    assert end.chunks == ["bake bread"]


def test_an_expansion_retriever_asks_its_models_words(service):
    llm = Scripted(reply="lex: yeast\nvec: flour and yeast for bread")
    retriever = QueryExpansionRetrieverV2("notes", llm=llm)
    assert paths(retriever.retrieve("baking with yeast"))[0] == "bread.txt"
    assert paths(asyncio.run(retriever.aretrieve("baking with yeast")))[0] == "bread.txt"
    assert llm.prompts
    with pytest.raises(ConfigError, match="needs a language model"):
        QueryExpansionRetrieverV2("notes").retrieve("yeast")


def test_a_failed_stage_is_logged_if_the_caller_does_not_see_stages(service, monkeypatch, caplog):
    def fail(*_):
        raise ConnectionError("no answer")

    monkeypatch.setattr(service.library.model.encoder, "encode", fail)
    for retriever in (CatalogRetriever("notes"), DatasetRetriever("notes")):
        caplog.clear()
        assert paths(retriever.retrieve("bread"))[0] == "bread.txt"
        assert "vector failed, the search continues without it" in caplog.text
    with pytest.raises(StageFailedError):
        DatasetRetriever("notes", strict=True).retrieve("bread")


def test_a_passage_has_one_hash_whichever_query_found_it(service):
    retriever = CatalogRetriever("notes", service=service)
    first, second = (
        retriever.retrieve(query)[0].node for query in ("keys", "how often are the keys rotated")
    )
    assert first.node_id == second.node_id
    assert first.metadata["relevance"] != second.metadata["relevance"]
    assert first.hash == second.hash


def test_the_factory_takes_a_service_as_its_first_argument(service):
    fused = HybridRetrieverFactoryV2(service).build(dataset_name="notes", k_fused=1)
    assert len(fused.retrieve("keys")) == 1
