"""LlamaIndex habits: what an experienced developer does from memory with our parts."""

import asyncio
import pickle
from functools import partial

import pytest
from llama_index.core import Document, PromptTemplate, QueryBundle, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.retrievers import QueryFusionRetriever, RecursiveRetriever
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from pydantic import BaseModel

from catalog.core.errors import InputError, StoreError
from catalog.library.indexing import Indexer
from catalog.search_v2 import (
    AnswerQueryEngine,
    CatalogRetriever,
    CitedSentences,
    DatasetRetriever,
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
from fakes import DIM, open_library, open_qdrant_library
from llama_parts import OtherModel, Scripted, foreign_index, paths
from scripted import ScriptedReranker


def test_an_embedding_of_another_length_is_replaced(service):
    stock = foreign_index(7).as_retriever()
    for ours in (
        CatalogRetriever("notes", mode="vector", top_k=1),
        HybridRetrieverFactoryV2().build(dataset_name="notes", mode="vector", k_fused=1),
    ):
        bundle = QueryBundle("midnight backups")
        stock.retrieve(bundle)
        assert bundle.embedding is not None
        [alone], [node] = ours.retrieve("midnight backups"), ours.retrieve(bundle)
        assert (node.node_id, node.score) == (alone.node_id, alone.score)


@pytest.mark.parametrize("dim", [7, DIM])
def test_fusion_recursion_and_objects_of_llama_index_reach_our_retriever(service, dim):
    ours = CatalogRetriever("notes", top_k=1)
    stock = foreign_index(dim).as_retriever(similarity_top_k=1)
    fused = QueryFusionRetriever([stock, ours], num_queries=1, use_async=False, llm=MockLLM())
    assert paths(fused.retrieve("midnight backups")) == ["guides/backup.md"]
    fused = QueryFusionRetriever([stock, ours], num_queries=1, llm=MockLLM())
    assert paths(asyncio.run(fused.aretrieve("midnight backups"))) == ["guides/backup.md"]
    pointer = IndexNode(text="backups", index_id="ours", id_="ours")
    root = VectorStoreIndex([pointer], embed_model=OtherModel(dim=dim)).as_retriever()
    recursive = RecursiveRetriever("root", retriever_dict={"root": root, "ours": ours})
    assert paths(recursive.retrieve("midnight backups")) == ["guides/backup.md"]
    objects = [IndexNode(text="backups", index_id="ours", obj=ours)]
    over = VectorStoreIndex(objects=objects, embed_model=OtherModel(dim=dim)).as_retriever()
    assert paths(over.retrieve("midnight backups")) == ["guides/backup.md"]
    assert paths(asyncio.run(over.aretrieve("midnight backups"))) == ["guides/backup.md"]


def ingest(service, *documents, nodes=()):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("own")
    return pipeline.run(documents=list(documents) or None, nodes=list(nodes) or None)


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
        "date": "2024-05-06",
        "url": "https://example.org/a",
        "creation_date": "2024-05-01",
        "keywords": "ops, keys",
        "source": "https://example.org/b",
        "page_title": "Zoo",
        "author": "Ann",
    }
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
    nodes = sorted((one.node for one in fused.retrieve("walrus")), key=lambda n: n.start_char_idx)
    ids = [node.node_id for node in nodes]
    assert len(ids) >= 3
    assert [node.prev_node and node.prev_node.node_id for node in nodes] == [None, *ids[:-1]]
    assert [node.next_node and node.next_node.node_id for node in nodes] == [*ids[1:], None]
    [first, *_] = CatalogRetriever("own").retrieve("walrus")
    assert first.node.relationships in [node.relationships for node in nodes]


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


def test_scores_can_be_relevance_for_cut_offs_of_llama_index(service):
    ours = CatalogRetriever("notes", score="relevance")
    nodes = ours.retrieve("midnight backups")
    assert [node.score for node in nodes] == [node.relevance for node in nodes]
    assert all(0 <= node.score <= 1 for node in nodes)
    cut = SimilarityPostprocessor(similarity_cutoff=0.5)
    assert paths(cut.postprocess_nodes(nodes)) == ["guides/backup.md"]
    build = QueryEngineBuilderV2().build_query_engine
    engine = build("notes", score="relevance", node_postprocessors=[cut])
    assert paths(engine.query("midnight backups").source_nodes) == ["guides/backup.md"]
    with pytest.raises(InputError, match="relevance"):
        CatalogRetriever("notes", score="cosine")
    with pytest.raises(InputError, match="whole"):
        CatalogRetriever("notes", score="relevance", whole=False)


def test_no_argument_of_a_postprocessor_is_swallowed(service):
    for make in (
        partial(TokenBudget, budget=10),
        partial(RerankPostprocessor, ScriptedReranker(1.0), model="big"),
        partial(MaxChunksPerDocument, top_n=1),
        partial(TemporalExpansion, service.library.database, seconds=1),
        partial(AnswerQueryEngine, "notes", response_mode="refine"),
    ):
        with pytest.raises(InputError, match="there is no argument"):
            make()


def test_a_depth_changed_later_acts(service):
    whole, fused = CatalogRetriever("notes"), HybridRetrieverFactoryV2().build("notes")
    assert len(whole.retrieve("the keys")) == len(fused.retrieve("the keys")) == 4
    for retriever in (whole, fused):
        retriever.similarity_top_k = 1
        assert len(retriever.retrieve("the keys")) == 1
        assert retriever.similarity_top_k == 1
        with pytest.raises(InputError):
            retriever.similarity_top_k = 0
    with pytest.raises(InputError, match="num_queries"):
        fused.num_queries = 4
    with pytest.raises(AttributeError):
        HybridRetrieverFactoryV2().similarity_top_k = 1


def test_similarity_top_k_is_taken_by_every_part(service):
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes", similarity_top_k=1)
    words = QueryExpansionRetrieverV2("notes", similarity_top_k=1, llm=Scripted(reply="lex: yeast"))
    for retriever in (fused, words, CatalogRetriever("notes", similarity_top_k=1)):
        assert len(retriever.retrieve("the keys")) == 1
    answer = AnswerQueryEngine("notes", similarity_top_k=1).query("how hot is bread baked")
    assert len(answer.source_nodes) == 1
    with pytest.raises(InputError, match="give one of them"):
        DatasetRetriever("notes", k_fused=1, similarity_top_k=2)


class Degrees(BaseModel):
    """A structured answer."""

    degrees: int


def test_response_mode_templates_and_output_class_are_llama_indexs_own(service):
    build = QueryEngineBuilderV2().build_query_engine
    llm = Scripted(reply="It rests.")
    asked = build("notes", llm=llm, text_qa_template=PromptTemplate("Q {query_str}|{context_str}"))
    asked.query("bake bread")
    assert llm.prompts[-1].startswith("Q bake bread|title: ")
    for mode, calls in (("refine", 4), ("tree_summarize", 1), ("accumulate", 4), ("no_text", 0)):
        llm = Scripted(reply="It rests.", prompts=[])
        response = build("notes", llm=llm, response_mode=mode).query("the keys")
        assert (len(llm.prompts), len(response.source_nodes)) == (calls, 4), mode
    llm = Scripted(reply='{"degrees": 230}')
    answer = build("notes", llm=llm, output_cls=Degrees).query("bake bread")
    assert answer.response == Degrees(degrees=230)
    assert build("notes", response_mode="no_text").query("bake bread").source_nodes
    with pytest.raises(InputError, match="response_mode needs a language model"):
        build("notes", response_mode="refine")
    with pytest.raises(InputError, match="output_cls"):
        build("notes", response_synthesizer=CitedSentences(), output_cls=Degrees)


def engines(llm):
    build = QueryEngineBuilderV2().build_query_engine
    answers = AnswerQueryEngine("notes", streaming=True)
    for engine in (build("notes", llm=llm), build("notes"), answers):
        memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
        yield CondenseQuestionChatEngine.from_defaults(engine, memory=memory, llm=llm)


def test_chats_stream(service):
    llm = Scripted(reply="Bake at 230 degrees.")
    question = "At how many degrees is bread baked?"
    for chat in engines(llm):
        whole = str(chat.chat(question))
        assert "230" in whole
        chat.reset()
        response = chat.stream_chat(question)
        assert "".join(response.response_gen) == whole
        assert response.source_nodes
        chat.reset()
        assert len(chat.chat_history) == 0


@pytest.mark.slow
def test_chats_stream_in_a_running_loop(service):
    llm = Scripted(reply="Bake at 230 degrees.")
    question = "At how many degrees is bread baked?"

    async def talk(chat):
        whole = str(await chat.achat(question))
        chat.reset()
        response = await chat.astream_chat(question)
        return whole, "".join([part async for part in response.async_response_gen()])

    for chat in list(engines(llm))[1:]:
        whole, streamed = asyncio.run(talk(chat))
        assert whole == streamed

    async def ask():
        response = await AnswerQueryEngine("notes", streaming=True).aquery(question)
        assert response.source_nodes
        return "".join([part async for part in response.async_response_gen()])

    assert "230" in asyncio.run(ask())


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
        order = ["QueryStartEvent", "RetrievalStartEvent", "RetrievalEndEvent", "QueryEndEvent"]
        assert [name for name in names if name in order] == order
        ended = next(event for event in events if isinstance(event, RetrievalEndEvent))
        assert ended.nodes == response.source_nodes
        [(_, end)] = handler.get_event_pairs(CBEventType.RETRIEVE)
        assert end.payload["nodes"] == response.source_nodes
        assert len(handler.get_event_pairs(CBEventType.QUERY)) == 1


def test_a_reranker_alone_reads_all_foreign_nodes_and_orders_by_its_score(service):
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


def test_a_second_service_answers_though_the_first_has_the_index_open(tmp_path, notes):
    with open_qdrant_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    first, second = (SearchServiceV2(open_qdrant_library(tmp_path / "home")) for _ in range(2))
    for service in (first, second, first):
        stages = service.search("midnight backups", dataset="notes", mode="vector").stages
        [note] = [stage.note for stage in stages if stage.name == "vector"]
        assert note.startswith("flat: " if service is second else "qdrant-edge: "), note
    first.close()
    assert paths(second.retrieve("midnight backups", dataset="notes"))[0] == "guides/backup.md"
    second.close()


def test_every_part_takes_the_service_by_name(tmp_path, notes, monkeypatch):
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "none"))  # the shared service has no store
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        service = SearchServiceV2(library)
        llm = Scripted(reply="lex: yeast")
        for retriever in (
            CatalogRetriever("notes", service=service),
            DatasetRetriever("notes", service=service),
            QueryExpansionRetrieverV2("notes", service=service, llm=llm),
            HybridRetrieverFactoryV2(service=service).build(dataset_name="notes"),
        ):
            assert paths(retriever.retrieve("midnight backups"))[0] == "guides/backup.md"
        for engine in (
            QueryEngineBuilderV2(service=service).build_query_engine("notes"),
            AnswerQueryEngine("notes", service=service),
        ):
            assert engine.query("midnight backups").source_nodes
        pipeline = IngestionPipelineBuilderV2(service=service).build_pipeline("more")
        pipeline.run(documents=[Document(text="A walrus.", metadata={"file_name": "w.txt"})])
        assert paths(CatalogRetriever("more", service=service).retrieve("walrus")) == ["w.txt"]


def test_a_retriever_gives_as_many_nodes_as_asked_for_even_of_one_document(service):
    text = " ".join(f"Ferry {n} leaves pier {n} at noon." for n in range(60))
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


def test_a_closed_service_says_so(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    closed = SearchServiceV2(open_library(tmp_path / "home"))
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


@pytest.mark.parametrize(
    ("operator", "value", "count"),
    [
        *(("==", "zz", 0), ("contains", "zz", 0), ("text_match", "zz", 0), (">", "zz", 0)),
        *(("in", ["zz"], 0), ("any", ["zz"], 0), ("all", ["ops", "zz"], 0), ("all", ["zz"], 0)),
        *(("!=", "zz", 1), ("nin", ["zz"], 1)),
    ],
)
@pytest.mark.parametrize("key", ["tags", "author"])
def test_a_value_that_no_document_has_finds_nothing(service, key, operator, value, count):
    said = {"tags": "ops", "author": "ops"}
    IngestionPipelineBuilderV2(service).build_pipeline("teas").run(
        documents=[Document(text="Tea at four.", doc_id="tea.txt", metadata=said)]
    )
    condition = MetadataFilter(key=key, value=value, operator=operator)
    for filters in (condition, MetadataFilters(filters=[condition])):
        for retriever in (CatalogRetriever, DatasetRetriever):
            assert len(retriever("teas", filters=filters).retrieve("tea")) == count


@pytest.mark.parametrize(
    "copied",
    [
        lambda stage: pickle.loads(pickle.dumps(stage)),
        lambda stage: type(stage).from_dict(stage.to_dict()),
        lambda stage: type(stage).from_json(stage.to_json()),
    ],
)
def test_a_serialised_postprocessor_is_the_same(service, copied):
    nodes = CatalogRetriever("notes", whole=False).retrieve("the keys")
    for stage in (
        MaxChunksPerDocument(limit=1),
        TokenBudget(limit=9),
    ):
        again = copied(stage)
        assert again.to_dict() == stage.to_dict()
        asked = {"query_str": "the keys"}
        assert [node.node_id for node in again.postprocess_nodes(nodes, **asked)] == [
            node.node_id for node in stage.postprocess_nodes(nodes, **asked)
        ]


def test_an_answer_engine_retrieves_for_a_text_too(service):
    (one, *_) = AnswerQueryEngine("notes").retrieve("midnight backups")
    assert one.metadata["path"] == "guides/backup.md"


def test_what_is_set_later_acts_or_raises(service):
    ours = CatalogRetriever("notes", top_k=5)
    ours.top_k = 1
    assert (len(ours.retrieve("midnight backups")), ours.top_k, ours.similarity_top_k) == (1, 1, 1)
    ours.score, ours.filters = "relevance", {"path": "keys.md"}
    (node,) = ours.retrieve("midnight backups")
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
        (ours, "mode", "dense", "mode must be"),
        (ours, "score", "cosine", "no score"),
        (fused, "num_queries", 4, "num_queries"),
        (fused, "top_k", 4, "k_fused is its depth"),
        (fused, "k_dense", 0, "k_dense is 0"),
        (engine, "response_mode", "refine", "no argument 'response_mode'"),
    ):
        with pytest.raises(InputError, match=said):
            setattr(part, name, value)
