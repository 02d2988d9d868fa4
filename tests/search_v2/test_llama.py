"""Catalog as a LlamaIndex user takes it: names, arguments known by heart, settings set later."""

import ast
import asyncio
import os
import pickle
import subprocess
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
from llama_index.core import Document, PromptTemplate, QueryBundle, VectorStoreIndex
from llama_index.core import Settings as LlamaSettings
from llama_index.core.callbacks import (
    CallbackManager,
    CBEventType,
    LlamaDebugHandler,
    TokenCountingHandler,
)
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import PrevNextNodePostprocessor, SimilarityPostprocessor
from llama_index.core.query_engine import TransformQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from pydantic import BaseModel

from catalog import search_v2
from catalog.core.errors import (
    ConfigError,
    InputError,
    StageFailedError,
    StoreError,
    UnknownDatasetError,
)
from catalog.search_v2 import (
    AnswerQueryEngine,
    CatalogRetriever,
    CitedSentences,
    DatasetRetriever,
    DatasetVectorStore,
    HybridRetrieverFactoryV2,
    IngestionPipelineBuilderV2,
    MaxChunksPerDocument,
    QueryEngineBuilderV2,
    QueryExpansionRetrieverV2,
    RerankPostprocessor,
    SearchServiceV2,
    TemporalExpansion,
    TokenBudget,
)
from fakes import DIM, WordEncoder, open_library
from llama_parts import OtherModel, Scripted, foreign_index, paths
from scripted import ScriptedReranker
from small_documents import NOTES
from stores import open_store, store_of

BACKUPS = "midnight backups"


def build_engine(**arguments):
    return QueryEngineBuilderV2().build_query_engine("notes", **arguments)


def ingest(service, *documents, nodes=()):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("own")
    return pipeline.run(documents=list(documents) or None, nodes=list(nodes) or None)


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
    typed, _ = (node for node in tree.body if isinstance(node, ast.If))
    told = {alias.name: f"{one.module}" for one in typed.body for alias in one.names}
    assert told.pop("SearchResults") == "catalog.core.results"
    assert told == search_v2._MODULE_OF
    with pytest.raises(AttributeError, match="no attribute 'Retriever'"):
        _ = search_v2.Retriever


IMPORT = """
import catalog, catalog.search_v2
assert not {{'llama_index', 'qdrant_client', 'numpy'}} & set(sys.modules)
"""
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
@pytest.mark.parametrize("code", [IMPORT, SEARCH, BUILD], ids=["import", "search", "index build"])
def test_neither_an_import_nor_a_search_nor_a_build_loads_llama_index(tmp_path, notes, code):
    code = (
        f"import sys\n{code.format(folder=str(notes))}\n"
        "assert not [name for name in sys.modules if name.startswith('llama_index')]\n"
    )
    environment = {
        **os.environ,
        "IDX_HOME": str(store_of(NOTES) if SEARCH in code else tmp_path / "cold"),
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
    assert paths(fused.retrieve('"kept for thirty days" -bread'))[0] == "guides/backup.md"
    assert paths(fused.retrieve("lex: yeast / vec: bake bread"))[0] == "bread.txt"
    with pytest.raises(UnknownDatasetError, match="notes"):
        CatalogRetriever("other").retrieve("bread")


def test_the_next_query_opens_a_closed_service_again(tmp_path, monkeypatch):
    open_store(NOTES, tmp_path).close()
    monkeypatch.setattr(
        "catalog.library.library.Library", lambda _: open_library(tmp_path / "home")
    )
    retriever = CatalogRetriever("notes")
    for _ in range(2):
        assert paths(retriever.retrieve("bake bread"))[0] == "bread.txt"
        search_v2.close()


def test_every_part_takes_the_service_by_name_or_first(tmp_path, monkeypatch):
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "none"))  # the shared service has no store
    with open_store(NOTES, tmp_path) as library:
        service = SearchServiceV2(library)
        llm = Scripted(reply="lex: yeast")
        for retriever in (
            CatalogRetriever("notes", service=service),
            DatasetRetriever("notes", service=service),
            QueryExpansionRetrieverV2("notes", service=service, llm=llm),
            HybridRetrieverFactoryV2(service).build(dataset_name="notes"),
        ):
            assert paths(retriever.retrieve(BACKUPS))[0] == "guides/backup.md"
        for engine in (
            QueryEngineBuilderV2(service=service).build_query_engine("notes"),
            AnswerQueryEngine("notes", service=service),
        ):
            assert engine.query(BACKUPS).source_nodes
        pipeline = IngestionPipelineBuilderV2(service=service).build_pipeline("more")
        pipeline.run(documents=[Document(text="A walrus.", metadata={"file_name": "w.txt"})])
        assert paths(CatalogRetriever("more", service=service).retrieve("walrus")) == ["w.txt"]


def test_a_closed_service_says_so(tmp_path):
    closed = SearchServiceV2(open_store(NOTES, tmp_path))
    retrievers = [
        CatalogRetriever("notes", service=closed, mode=mode) for mode in ("hybrid", "lexical")
    ]
    pipeline = IngestionPipelineBuilderV2(closed).build_pipeline("notes")
    pipeline.run(documents=[Document(text="Tea at four.", doc_id="tea.txt")])
    assert all(one.retrieve("keys") for one in retrievers)
    closed.close()
    for call in (
        *(partial(one.retrieve, "keys") for one in retrievers),
        partial(pipeline.run, documents=[Document(text="Late.", doc_id="late.txt")]),
        partial(pipeline.delete, "tea.txt"),
    ):
        with pytest.raises(StoreError, match="this search service is closed"):
            call()


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


@pytest.mark.slow
def test_a_value_that_no_document_has_finds_nothing(service):
    said = {"tags": "ops", "author": "ops"}
    ingest(service, Document(text="Tea at four.", doc_id="tea.txt", metadata=said))
    for operator, value, count in (
        *(("==", "zz", 0), ("contains", "zz", 0), ("text_match", "zz", 0), (">", "zz", 0)),
        *(("in", ["zz"], 0), ("any", ["zz"], 0), ("all", ["ops", "zz"], 0), ("all", ["zz"], 0)),
        *(("!=", "zz", 1), ("nin", ["zz"], 1)),
    ):
        for key in said:
            condition = MetadataFilter(key=key, value=value, operator=operator)
            filters = MetadataFilters(filters=[condition])
            found = [
                len(part("own", filters=given).retrieve("tea"))
                for part, given in ((CatalogRetriever, condition), (DatasetRetriever, filters))
            ]
            assert found == [count, count], (operator, key)


REFUSED = [
    (partial(CatalogRetriever, "notes", topk=3), "top_k"),
    (partial(CatalogRetriever, "notes", top_k=0), "top_k"),
    (partial(CatalogRetriever, "notes", query="bread"), "no argument 'query'"),
    (partial(TokenBudget, limit=3, token_limit=4), "the same argument"),
    (partial(CatalogRetriever, "notes", top_k=2, similarity_top_k=3), "give one of them"),
    (partial(CatalogRetriever, "notes", score="cosine"), "relevance"),
    (partial(CatalogRetriever, "notes", score="relevance", whole=False), "whole"),
    (partial(CatalogRetriever, "notes", dataset_name="own"), "give one of them"),
    (partial(CatalogRetriever, "notes", similarity_topk=3), "did you mean top_k"),
    (partial(HybridRetrieverFactoryV2().build, "notes", query="bread"), r"retrieve\(query\)"),
    (partial(DatasetRetriever, "notes", k_fuse=3), "did you mean k_fused"),
    (partial(DatasetRetriever, "notes", top_k=3), "k_fused is its depth"),
    (partial(DatasetRetriever, "notes", k_lex=0), "k_lex is .*: use a number from 1"),
    (partial(DatasetRetriever, "notes", k_dense=-1), "k_dense is .*: use a number from 1"),
    (partial(DatasetRetriever, "notes", k_fused=0), "k_fused is .*: use a number from 1"),
    (partial(DatasetRetriever, "notes", k_fused=1, similarity_top_k=2), "give one of them"),
    (partial(build_engine, topk=3), "top_k"),
    (partial(build_engine, stream=True), "did you mean streaming"),
    (partial(build_engine, streaming=True), "streaming needs a language model"),
    (partial(build_engine, streaming=True, response_synthesizer=CitedSentences()), "streaming"),
    (partial(build_engine, response_mode="refine"), "response_mode needs a language model"),
    (partial(AnswerQueryEngine, "notes", response_mode="refine"), "there is no argument"),
    (partial(TokenBudget, budget=10), "there is no argument"),
    (partial(RerankPostprocessor, ScriptedReranker(1.0), model="big"), "not both"),
    (partial(MaxChunksPerDocument, top_n=1), "there is no argument"),
    (partial(TemporalExpansion, None, seconds=1), "there is no argument"),
]


def test_an_argument_without_meaning_is_refused_and_no_argument_is_swallowed(service):
    for call, said in (*REFUSED, (partial(service.search, "bread", topk=3), "top_k")):
        with pytest.raises(InputError, match=said):
            call()


def test_similarity_top_k_is_taken_by_every_part(service):
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes", similarity_top_k=1)
    words = QueryExpansionRetrieverV2("notes", similarity_top_k=1, llm=Scripted(reply="lex: yeast"))
    for retriever in (fused, words, CatalogRetriever("notes", similarity_top_k=1)):
        assert len(retriever.retrieve("the keys")) == 1
    for engine in (
        AnswerQueryEngine("notes", similarity_top_k=1),
        build_engine(similarity_top_k=1),
    ):
        assert len(engine.query("how hot is bread baked").source_nodes) == 1


def test_a_dataset_is_named_by_either_name(service):
    makers = (CatalogRetriever, DatasetRetriever, QueryExpansionRetrieverV2, AnswerQueryEngine)
    for make in (*makers, HybridRetrieverFactoryV2().build):
        for name in ("dataset", "dataset_name"):
            part = make(**{name: "own"})
            assert part.dataset == "own"
            part.dataset_name = "notes"
            assert part.dataset == part.dataset_name == "notes"
    for name in ("dataset", "dataset_name"):
        assert DatasetVectorStore(**{name: "notes"}).dataset == "notes"
        [best] = search_v2.search("bake bread", top_k=1, **{name: "notes"})
        assert best.path == "bread.txt"
        engine = QueryEngineBuilderV2().build_query_engine(top_k=1, **{name: "notes"})
        assert paths(engine.retrieve(QueryBundle("bake bread"))) == ["bread.txt"]


def test_an_empty_query_finds_nothing(service):
    vectors = DatasetVectorStore("notes")
    for retriever in (
        CatalogRetriever("notes"),
        DatasetRetriever("notes"),
        HybridRetrieverFactoryV2().over([CatalogRetriever("notes")]),
        VectorStoreIndex.from_vector_store(vectors, embed_model=OtherModel()).as_retriever(),
    ):
        for query in ("", " \n"):
            assert asyncio.run(retriever.aretrieve(query)) == retriever.retrieve(query) == []
    for engine in (build_engine(), AnswerQueryEngine("notes")):
        for response in (engine.query(" "), asyncio.run(engine.aquery(""))):
            assert (str(response), response.source_nodes) == ("No passage was found.", [])
    assert str(AnswerQueryEngine("notes", streaming=True).query("")) == "No passage was found."
    vector = WordEncoder().encode([BACKUPS])[0].tolist()
    alone = VectorStoreQuery(query_embedding=vector, similarity_top_k=1)
    assert vectors.query(alone).nodes[0].metadata["path"] == "guides/backup.md"


def test_parts_are_copied_and_pickled_and_ask_the_same_store(service):
    for make in (CatalogRetriever, DatasetRetriever, AnswerQueryEngine, DatasetVectorStore):
        part = make("notes")
        for one in (pickle.loads(pickle.dumps(part)), deepcopy(part)):
            assert (type(one), one.dataset) == (make, "notes")
        held = make("notes", service=service)
        assert deepcopy(held)._service is service
        with pytest.raises(InputError, match="cannot be pickled"):
            pickle.dumps(held)
    ours = CatalogRetriever("notes", top_k=1)
    for one in (pickle.loads(pickle.dumps(ours)), deepcopy(ours)):
        one.top_k = 2
        assert len(ours.retrieve("the keys")) == 1 < len(one.retrieve("the keys"))


def test_what_is_set_later_acts_or_raises(service):
    ours, fused = CatalogRetriever("notes"), HybridRetrieverFactoryV2().build("notes")
    assert len(ours.retrieve("the keys")) == len(fused.retrieve("the keys")) == 4
    for retriever in (ours, fused):
        retriever.similarity_top_k = 1
        assert (len(retriever.retrieve("the keys")), retriever.similarity_top_k) == (1, 1)
    ours.top_k = 2
    assert (len(ours.retrieve(BACKUPS)), ours.top_k, ours.similarity_top_k) == (2, 2, 2)
    ours.score, ours.filters = "relevance", {"path": "keys.md"}
    node = ours.retrieve(BACKUPS)[0]
    assert (node.metadata["path"], 0 <= node.score <= 1) == ("keys.md", True)
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes")
    fused.mode, fused.k_lex, fused.docs = "lexical", 1, ["guides/backup.md"]
    assert paths(fused.retrieve("midnight backups keys")) == ["guides/backup.md"]
    engine = AnswerQueryEngine("notes")
    engine.top_k = 1
    assert len(engine.query("when do backups run").source_nodes) == 1
    for part, name, value, said in (
        (ours, "top_kk", 3, "did you mean top_k"),
        (ours, "top_k", 0, "top_k must be"),
        (ours, "similarity_top_k", 0, "top_k"),
        (ours, "mode", "dense", "mode must be"),
        (ours, "score", "cosine", "no score"),
        (fused, "similarity_top_k", 0, "use a number from 1"),
        (fused, "num_queries", 4, "num_queries"),
        (fused, "top_k", 4, "k_fused is its depth"),
        (fused, "k_dense", 0, "k_dense is 0"),
        (engine, "response_mode", "refine", "no argument 'response_mode'"),
    ):
        with pytest.raises(InputError, match=said):
            setattr(part, name, value)
    with pytest.raises(AttributeError):
        HybridRetrieverFactoryV2().similarity_top_k = 1


def test_a_retriever_gives_as_many_nodes_as_asked_for_even_of_one_document(service):
    text = " ".join(f"Ferry {n} leaves pier {n} at noon." for n in range(40))
    splitter = SentenceSplitter(chunk_size=40, chunk_overlap=0)
    pipeline = IngestionPipelineBuilderV2().build_pipeline("ferries", splitter=splitter)
    pipeline.run(documents=[Document(text=text, doc_id="long")])
    ours = CatalogRetriever("ferries", similarity_top_k=8)
    found = ours.retrieve("when does the ferry leave")
    scores = [node.score for node in found]
    assert (len(found), scores) == (8, sorted(scores, reverse=True))
    assert len({node.node_id for node in found}) == 8
    pipeline.run(documents=[Document(text=f"The ferry of {n}.", doc_id=f"d{n}") for n in range(9)])
    found = ours.retrieve("when does the ferry leave")
    assert len(found) == 8
    assert sum(node.metadata["path"] == "long" for node in found) <= 3
    engine = QueryEngineBuilderV2().build_query_engine("ferries", similarity_top_k=12)
    assert len(engine.query("when does the ferry leave").source_nodes) == 12
    assert len(service.search("ferry", dataset="ferries", docs=["long"], top_k=5)) == 5


# queries with a text or an embedding of their own


def test_the_text_of_a_query_transform_is_searched_by_meaning(service):
    """HyDE: the passage stands for the query in the vector leg, the words stay the query's."""
    bundle = QueryBundle("unheard of", custom_embedding_strs=["yeast and flour for the bread"])
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes", mode="vector", k_dense=1)
    for retriever in (fused, CatalogRetriever("notes", top_k=1)):
        assert paths(retriever.retrieve(bundle)) == ["bread.txt"]
        assert paths(asyncio.run(retriever.aretrieve(bundle))) == ["bread.txt"]
    hyde = HyDEQueryTransform(llm=Scripted(reply="Backups run at midnight."), include_original=True)
    answer = TransformQueryEngine(build_engine(top_k=1), hyde).query("when")
    assert paths(answer.source_nodes) == ["guides/backup.md"]


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_an_embedding_that_a_query_brings_is_used_if_it_is_of_our_model(service, mode):
    vector = list(map(float, service.parts.query_vectors.embed("bake bread")[0]))
    stock = foreign_index(7).as_retriever()
    embedded = service.library.model.encoder.texts
    for ours in (
        CatalogRetriever("notes", mode=mode, top_k=1),
        HybridRetrieverFactoryV2().build(dataset_name="notes", mode=mode, k_fused=1),
    ):
        asked = len(embedded)
        assert paths(ours.retrieve(QueryBundle("unheard of", embedding=vector))) == ["bread.txt"]
        assert len(embedded) == asked
        bundle = QueryBundle(BACKUPS)
        stock.retrieve(bundle)
        assert len(bundle.embedding) == 7
        [alone], [node] = ours.retrieve(BACKUPS), ours.retrieve(bundle)
        assert (node.node_id, node.score) == (alone.node_id, alone.score)


# nodes


def test_a_page_is_cited_and_filtered_by_its_number(service):
    """One page or several; the labels of a reader are the pages."""
    pages = [f"{'Much more text. ' * 60}Here are {animal}." for animal in ("walrus", "seals")]
    for name, texts in (("one.pdf", pages[:1]), ("two.pdf", pages)):
        about = {"file_name": name, "file_path": f"/x/{name}"}
        ingest(
            service,
            *(
                Document(text=text, metadata={**about, "page_label": str(number)})
                for number, text in enumerate(texts, start=1)
            ),
        )
    for path, query, page in (("/x/one.pdf", "walrus", 1), ("/x/two.pdf", "seals", 2)):
        [node, *_] = CatalogRetriever("own", doc_ids=[path]).retrieve(query)
        told = node.metadata
        assert f"page {page}" in told["citation"]
        assert (told["page"], told["page_label"]) == (page, str(page))
        assert told["link"].endswith(f"{path.rpartition('/')[2]}#page={page}")
        assert 0 < told["relevance"] <= 1
        assert told["relevance"] == node.relevance
        assert "line_start" not in told
    for key, value in (("page", 2), ("page_label", "2"), ("page_label", ["2", "3"])):
        operator = FilterOperator.IN if isinstance(value, list) else FilterOperator.EQ
        condition = MetadataFilter(key=key, value=value, operator=operator)
        filters = MetadataFilters(filters=[condition])
        found = CatalogRetriever("own", filters=filters).retrieve("text")
        assert set(paths(found)) == {"/x/two.pdf"}
    ingest(service, Document(text="Otters.", metadata={"file_name": "c.pdf", "page_label": "7"}))
    [node] = CatalogRetriever("own", filters={"page": 7}).retrieve("otters")
    assert node.metadata["citation"] == "[source: c, page 7]"


def test_users_keys_and_ids_keep_their_names(service):
    said = {
        "date": "2024-05-06", "url": "https://example.org/a", "creation_date": "2024-05-01",
        "keywords": "ops, keys", "source": "https://example.org/b", "page_title": "Zoo",
        "author": "Ann",
    }  # fmt: skip
    ingest(service, Document(text="A walrus sleeps.", doc_id="zoo-7", metadata=said))
    [node] = CatalogRetriever("own").retrieve("walrus")
    assert said.items() <= node.metadata.items()
    assert node.node.ref_doc_id == node.node.source_node.node_id == "zoo-7"
    for key in said:
        exact = MetadataFilters(filters=[MetadataFilter(key=key, value=said[key])])
        assert CatalogRetriever("own", filters=exact).retrieve("walrus"), key
    assert CatalogRetriever("own", filters={"created": "2024-05-01"}).retrieve("walrus")
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="sea")}
    node = TextNode(id_="sea-1", text="Seals swim.", relationships=source)
    ingest(service, nodes=[node])
    [found] = CatalogRetriever("own", doc_ids=["sea"]).retrieve("seals swim")
    assert found.node.ref_doc_id == "sea"
    assert found.metadata["node_id"] == "sea-1"


def test_nodes_know_the_ones_before_and_after_them(service):
    parts = [f"## Part {number}\n\n{'walrus seal otter ' * 30}" for number in range(3)]
    ingest(service, Document(text="\n\n".join(parts), metadata={"file_name": "zoo.md"}))
    fused = HybridRetrieverFactoryV2().build(dataset_name="own")
    found = sorted(fused.retrieve("walrus"), key=lambda one: one.node.start_char_idx)
    nodes = [one.node for one in found]
    ids = [node.node_id for node in nodes]
    assert len(ids) >= 3
    assert [node.prev_node and node.prev_node.node_id for node in nodes] == [None, *ids[:-1]]
    assert [node.next_node and node.next_node.node_id for node in nodes] == [*ids[1:], None]
    [first, *_] = CatalogRetriever("own").retrieve("walrus")
    assert first.node.relationships in [node.relationships for node in nodes]
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    around = PrevNextNodePostprocessor(docstore=docstore, num_nodes=1, mode="both")
    assert [one.node_id for one in around.postprocess_nodes([found[1]])] == ids[:3]


def test_a_prompt_has_the_text_and_at_most_title_section_and_place(service):
    text = "# Zoo\n\n## Seals\n\nA seal swims in the cold sea.\n"
    about = {"file_name": "zoo.md", "file_size": 7, "author": "Ann"}
    ingest(service, Document(text=text, metadata=about))
    [found] = CatalogRetriever("own", top_k=1).retrieve("seal")
    node = found.node
    head = "title: Zoo\nsection: Zoo > Seals\nplace: lines 1-5\n\n"
    assert node.get_content(MetadataMode.LLM) == head + node.text
    node.excluded_llm_metadata_keys.append("place")
    node.metadata_template, node.text_template = "<{key}={value}>", "{metadata_str}|{content}"
    assert node.get_content(MetadataMode.LLM) == f"<title=Zoo>\n<section=Zoo > Seals>|{node.text}"
    llm = Scripted(reply="It swims.")
    engine = QueryEngineBuilderV2().build_query_engine("own", llm=llm, top_k=1)
    assert str(engine.query("seal")) == "It swims."
    assert head + found.node.text in llm.prompts[-1]
    assert "Ann" not in llm.prompts[-1]
    [source] = AnswerQueryEngine("own").query("what does a seal do").source_nodes
    assert source.node.get_content(MetadataMode.LLM).startswith("title: Zoo\nsection")
    assert source.metadata["number"] == 1


def test_a_passage_has_one_hash_whichever_query_found_it(service):
    retriever = CatalogRetriever("notes", service=service)
    first, second = (
        retriever.retrieve(query)[0].node for query in ("keys", "how often are the keys rotated")
    )
    assert first.node_id == second.node_id
    assert first.metadata["relevance"] != second.metadata["relevance"]
    assert first.hash == second.hash


def test_scores_can_be_relevance_for_cut_offs_of_llama_index(service):
    nodes = CatalogRetriever("notes", score="relevance").retrieve(BACKUPS)
    assert [node.score for node in nodes] == [node.relevance for node in nodes]
    assert all(0 <= node.score <= 1 for node in nodes)
    cut = SimilarityPostprocessor(similarity_cutoff=0.5)
    assert paths(cut.postprocess_nodes(nodes)) == ["guides/backup.md"]
    engine = build_engine(score="relevance", node_postprocessors=[cut])
    assert paths(engine.query(BACKUPS).source_nodes) == ["guides/backup.md"]


# engines


class Degrees(BaseModel):
    """A structured answer."""

    degrees: int


def test_response_mode_templates_and_output_class_are_llama_indexs_own(service):
    llm = Scripted(reply="It rests.")
    asked = build_engine(llm=llm, text_qa_template=PromptTemplate("Q {query_str}|{context_str}"))
    asked.query("bake bread")
    assert llm.prompts[-1].startswith("Q bake bread|title: ")
    name = "response_synthesizer:text_qa_template"
    assert name in asked.get_prompts()
    asked.update_prompts({name: PromptTemplate("Mine: {context_str} {query_str}")})
    nodes = asked.retrieve(QueryBundle("bake bread"))
    assert str(asked.synthesize(QueryBundle("bake bread"), nodes)) == "It rests."
    assert llm.prompts[-1].startswith("Mine: ")
    for mode, calls in (("refine", 4), ("tree_summarize", 1), ("accumulate", 4), ("no_text", 0)):
        llm = Scripted(reply="It rests.", prompts=[])
        response = build_engine(llm=llm, response_mode=mode).query("the keys")
        assert (len(llm.prompts), len(response.source_nodes)) == (calls, 4), mode
    llm = Scripted(reply='{"degrees": 230}')
    answer = build_engine(llm=llm, output_cls=Degrees).query("bake bread")
    assert answer.response == Degrees(degrees=230)
    assert build_engine(response_mode="no_text").query("bake bread").source_nodes
    with pytest.raises(InputError, match="output_cls"):
        build_engine(response_synthesizer=CitedSentences(), output_cls=Degrees)


def test_a_query_engine_without_a_model_answers_with_the_best_sentences_cited(service):
    engine = build_engine(top_k=2)
    for response in (engine.query("bake bread"), asyncio.run(engine.aquery("bake bread"))):
        assert str(response) == (
            "Bake the bread at 230 degrees. [1]\n\n[1] bread.txt [source: bread, line 1]"
        )
        assert paths(response.source_nodes)[0] == "bread.txt"
        assert response.metadata.keys() == {node.node_id for node in response.source_nodes}
    none = build_engine(doc_ids=[])
    assert str(none.query("bake bread")) == "No passage was found."
    assert none.query("bake bread").source_nodes == []
    foreign = TextNode(text="walrus", metadata={"file_name": "zoo.txt"})
    response = CitedSentences().synthesize("what", [NodeWithScore(node=foreign)])
    assert str(response) == "walrus [1]\n\n[1] zoo.txt"


def test_a_model_of_the_settings_writes_the_answer(service, monkeypatch):
    monkeypatch.setattr(LlamaSettings, "_llm", MockLLM(max_tokens=3))
    response = build_engine(top_k=1).query("bake bread")
    assert str(response) == "text text text"
    assert paths(response.source_nodes) == ["bread.txt"]
    monkeypatch.setattr(LlamaSettings, "_llm", MockLLM())  # what Settings.llm = None leaves
    assert str(build_engine(top_k=1).query("bake bread")).startswith("Bake the bread")


def test_the_answer_engine_and_the_expansion_take_the_model_of_the_settings(service, monkeypatch):
    llm = Scripted(reply="Bread is baked at 230 degrees [1].")
    monkeypatch.setattr(LlamaSettings, "_llm", llm)
    question = "at how many degrees is bread baked"
    assert str(AnswerQueryEngine("notes").query(question)) == "Bread is baked at 230 degrees. [1]"
    asked = len(llm.prompts)
    assert asked
    named = AnswerQueryEngine("notes", model="none").query(question)
    assert str(named) == "Bake the bread at 230 degrees. [1]"
    assert len(llm.prompts) == asked
    words = Scripted(reply="lex: yeast")
    monkeypatch.setattr(LlamaSettings, "_llm", words)
    QueryExpansionRetrieverV2("notes").retrieve("baking with yeast")
    assert words.prompts


def test_an_expansion_retriever_asks_its_models_words(service):
    llm = Scripted(reply="lex: yeast\nvec: flour and yeast for bread")
    retriever = QueryExpansionRetrieverV2("notes", llm=llm)
    assert paths(retriever.retrieve("baking with yeast"))[0] == "bread.txt"
    assert llm.prompts
    with pytest.raises(ConfigError, match="needs a language model"):
        QueryExpansionRetrieverV2("notes").retrieve("yeast")


# what callbacks, events and logs are told


def test_callbacks_see_retrieval_and_embedding(service, debug, monkeypatch):
    given = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([given])
    CatalogRetriever("notes", callback_manager=manager).retrieve("bake bread")
    (pair,) = given.get_event_pairs(CBEventType.RETRIEVE)
    assert paths(pair[1].payload["nodes"])[0] == "bread.txt"
    CatalogRetriever("notes").retrieve("bread baking")
    pairs = debug.get_event_pairs(CBEventType.RETRIEVE)
    assert pairs
    assert all(len(pair) == 2 for pair in pairs)
    embedding = debug.get_event_pairs(CBEventType.EMBEDDING)[-1]
    assert embedding[1].payload["chunks"] == ["bread baking"]
    assert len(embedding[1].payload["embeddings"][0]) == DIM
    counter = TokenCountingHandler(tokenizer=str.split)
    monkeypatch.setattr(LlamaSettings, "_callback_manager", CallbackManager([counter]))
    build_engine().query("bake the bread")
    assert counter.total_embedding_token_count == 3


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


@pytest.mark.slow
def test_an_answer_engine_tells_its_retrieval(service, events):
    handler = LlamaDebugHandler(print_trace_on_end=False)
    for streaming in (False, True):
        engine = AnswerQueryEngine(
            "notes", streaming=streaming, callback_manager=CallbackManager([handler])
        )
        events.clear()
        handler.flush_event_logs()
        response = engine.query("how hot is bread baked")
        str(response)
        names = [type(event).__name__ for event in events]
        stages = ("Query", "Retrieval", "Synthesize")
        told = [name for name in names if name.startswith(stages)]
        assert told == [
            *("QueryStartEvent", "RetrievalStartEvent", "RetrievalEndEvent"),
            *("SynthesizeStartEvent", "SynthesizeEndEvent", "QueryEndEvent"),
        ]
        ended = next(event for event in events if isinstance(event, RetrievalEndEvent))
        assert ended.nodes == response.source_nodes
        [(_, end)] = handler.get_event_pairs(CBEventType.RETRIEVE)
        assert end.payload["nodes"] == response.source_nodes
        for kind in (CBEventType.QUERY, CBEventType.SYNTHESIZE):
            assert len(handler.get_event_pairs(kind)) == 1


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


# postprocessors


def test_a_reranker_alone_reads_all_foreign_nodes_and_orders_by_its_score():
    scores = {"a": -1.0, "b": -2.0, "c": -3.0, "walrus": 4.0, "d": -4.0}
    nodes = [
        NodeWithScore(node=TextNode(text=text), score=9.0 - n) for n, text in enumerate(scores)
    ]

    def order(**settings):
        stage = RerankPostprocessor(ScriptedReranker(scores), **settings)
        done = stage.postprocess_nodes(nodes, query_str="walrus")
        return [node.text for node in done], [node.score for node in done]

    texts, relevance = order()
    assert texts == ["walrus", "a", "b", "c", "d"]
    assert relevance == sorted(relevance, reverse=True)
    assert all(0 <= score <= 1 for score in relevance)
    assert order(top_n=1)[0] == ["walrus"]
    assert order(candidates=2)[0] == list(scores)
    assert order(blend="linear")[0][0] == "a"


def test_parts_are_copied_with_the_store_and_models_that_they_share(service):
    question, rerank = "at how many degrees is bread baked", ScriptedReranker(1.0)
    nodes = CatalogRetriever("notes").retrieve(question)
    for stage in (RerankPostprocessor(rerank, top_n=2), TemporalExpansion(), TokenBudget()):
        kept = deepcopy(stage).postprocess_nodes(nodes, query_str=question)
        assert paths(kept) == paths(stage.postprocess_nodes(nodes, query_str=question))
    engine = AnswerQueryEngine("notes", service=service)
    for again in (deepcopy(engine), pickle.loads(pickle.dumps(AnswerQueryEngine("notes")))):
        assert str(again.query(question)) == "Bake the bread at 230 degrees. [1]"


def test_a_reranker_is_named_by_its_model(service):
    named = RerankPostprocessor(model="own/reranker", top_n=2)
    assert named._reranker.name == "reranker"
    assert RerankPostprocessor()._reranker.name == service.parts.reranker.name != "reranker"


@pytest.mark.parametrize(
    "copied",
    [
        lambda stage: pickle.loads(pickle.dumps(stage)),
        lambda stage: type(stage).from_dict(stage.to_dict()),
        lambda stage: type(stage).from_json(stage.to_json()),
    ],
)
def test_a_serialised_postprocessor_is_the_same(copied):
    nodes = [NodeWithScore(node=TextNode(text=text), score=1.0) for text in ("a" * 40, "b", "c")]
    for stage in (MaxChunksPerDocument(limit=1), TokenBudget(token_limit=9)):
        again = copied(stage)
        assert again.to_dict() == stage.to_dict()
        kept = [one.postprocess_nodes(nodes, query_str="the keys") for one in (stage, again)]
        assert [node.node_id for node in kept[0]] == [node.node_id for node in kept[1]]
