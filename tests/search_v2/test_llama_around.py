"""LlamaIndex's own engines, agents, evaluators and stores around our parts."""

import asyncio
import json
import pickle

import pytest
from llama_index.core import (
    Document,
    StorageContext,
    SummaryIndex,
    VectorStoreIndex,
    get_response_synthesizer,
    load_index_from_storage,
)
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.evaluation import (
    FaithfulnessEvaluator,
    RelevancyEvaluator,
    RetrieverEvaluator,
)
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import (
    MarkdownNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
)
from llama_index.core.postprocessor import (
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    SimilarityPostprocessor,
)
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import (
    CitationQueryEngine,
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.retrievers import (
    QueryFusionRetriever,
    RouterRetriever,
    TransformRetriever,
)
from llama_index.core.schema import QueryBundle
from llama_index.core.selectors import LLMMultiSelector, LLMSingleSelector
from llama_index.core.settings import Settings as LlamaSettings
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from catalog.core.errors import InputError
from catalog.search_v2 import (
    AnswerQueryEngine,
    CatalogRetriever,
    CitedSentences,
    DatasetVectorStore,
    DistinctText,
    HybridRetrieverFactoryV2,
    IngestionPipelineBuilderV2,
    MaxChunksPerDocument,
    QueryEngineBuilderV2,
    RerankPostprocessor,
    TokenBudget,
)
from fakes import DIM, WordEncoder
from llama_parts import OtherModel, Scripted, foreign_index, paths
from scripted import ScriptedReranker

pytestmark = pytest.mark.usefixtures("service")
BREAD = "At how many degrees is bread baked?"
BACKUPS = "midnight backups"


def engine(**arguments):
    return QueryEngineBuilderV2().build_query_engine("notes", **arguments)


def tool_of(one):
    return QueryEngineTool.from_defaults(one, name="notes", description="notes")


def test_a_router_chooses_among_our_engines():
    tools = [tool_of(engine()), tool_of(AnswerQueryEngine("notes"))]
    llm = Scripted(reply='[{"choice": 2, "reason": "x"}]')
    selector = LLMSingleSelector.from_defaults(llm=llm)
    router = RouterQueryEngine(selector=selector, query_engine_tools=tools, llm=llm)
    assert "230" in str(router.query(BREAD))
    assert "230" in str(asyncio.run(router.aquery(BREAD)))


def test_a_router_joins_several_of_our_engines():
    tools = [tool_of(engine()), tool_of(AnswerQueryEngine("notes"))]
    chosen = '[{"choice": 1, "reason": "x"}, {"choice": 2, "reason": "y"}]'
    llm = Scripted(reply="Both.")
    router = RouterQueryEngine(
        selector=LLMMultiSelector.from_defaults(llm=Scripted(reply=chosen)),
        query_engine_tools=tools,
        llm=llm,
        summarizer=get_response_synthesizer(llm=llm, response_mode="tree_summarize"),
    )
    assert str(router.query(BREAD)) == "Both."


def test_a_router_chooses_among_our_retrievers():
    llm = Scripted(reply='[{"choice": 2, "reason": "x"}]')
    fused = HybridRetrieverFactoryV2().build(dataset_name="notes")
    router = RouterRetriever(
        selector=LLMSingleSelector.from_defaults(llm=llm),
        llm=llm,
        retriever_tools=[
            RetrieverTool.from_defaults(one, description="notes")
            for one in (CatalogRetriever("notes"), fused)
        ],
    )
    assert paths(router.retrieve(BACKUPS))[0] == "guides/backup.md"


def test_sub_questions_are_asked_of_our_engine():
    asked = {"sub_question": BREAD, "tool_name": "notes"}
    plan = json.dumps({"items": [asked, {**asked, "sub_question": BACKUPS}]})
    llm = Scripted(reply="Done.", replies=[f"```json\n{plan}\n```"])
    sub = SubQuestionQueryEngine.from_defaults(
        query_engine_tools=[tool_of(engine(top_k=1))],
        llm=llm,
        question_gen=LLMQuestionGenerator.from_defaults(llm=llm),
        verbose=False,
    )
    response = sub.query("compare them")
    assert str(response) == "Done."
    assert {"bread.txt", "guides/backup.md"} <= set(paths(response.source_nodes))


def test_a_citation_engine_numbers_our_passages():
    llm = Scripted(reply="At 230 degrees [1].")
    response = CitationQueryEngine(CatalogRetriever("notes", top_k=2), llm=llm).query("bake bread")
    assert str(response) == "At 230 degrees [1]."
    assert paths(response.source_nodes)[0] == "bread.txt"
    assert "Source 1:\nMix flour" in llm.prompts[-1]


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
def test_chat_engines_answer_from_our_retriever(kind):
    llm = Scripted(reply="At midnight.")
    memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
    chat = kind.from_defaults(CatalogRetriever("notes", top_k=1), llm=llm, memory=memory)
    assert str(chat.chat(BACKUPS)) == "At midnight."
    assert "".join(chat.stream_chat(BACKUPS).response_gen) == "At midnight."
    assert paths(asyncio.run(chat.achat(BACKUPS)).source_nodes) == ["guides/backup.md"]
    assert "place: lines 1-3\n\n# Backups" in llm.prompts[0]
    assert "source_doc_id" not in "".join(llm.prompts)


def test_evaluators_judge_our_retriever_and_answers():
    retriever = CatalogRetriever("notes", top_k=1)
    [best] = retriever.retrieve(BACKUPS)
    evaluator = RetrieverEvaluator.from_metric_names(["mrr", "hit_rate"], retriever=retriever)
    judged = evaluator.evaluate(BACKUPS, [best.node_id])
    assert judged.metric_vals_dict == {"mrr": 1.0, "hit_rate": 1.0}
    llm = Scripted(reply="YES")
    for one in (engine(), AnswerQueryEngine("notes")):
        response = one.query(BREAD)
        assert FaithfulnessEvaluator(llm=llm).evaluate_response(response=response).passing
        assert RelevancyEvaluator(llm=llm).evaluate_response(BREAD, response=response).passing


def test_parts_are_used_in_a_running_loop():
    async def ask():
        retriever, asked = CatalogRetriever("notes"), engine()
        many = await asyncio.gather(*(retriever.aretrieve(BACKUPS) for _ in range(20)))
        together = await asked.aquery(BREAD)
        return many, retriever.retrieve(BACKUPS), str(together), str(asked.query(BREAD))

    many, alone, awaited, called = asyncio.run(ask())
    assert all(paths(one) == paths(alone) for one in many)
    assert awaited == called


def test_a_retriever_tool_gives_an_agent_what_a_prompt_would_have():
    tool = RetrieverTool.from_defaults(CatalogRetriever("notes", top_k=1), description="notes")
    for output in (tool.call(BACKUPS), asyncio.run(tool.acall(BACKUPS))):
        assert "place: lines 1-3\n\n# Backups" in output.content
        assert "source_doc_id" not in output.content


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of LlamaIndex's workflows
def test_an_agent_calls_our_tools():
    act = 'Thought: look\nAction: notes\nAction Input: {"input": "midnight backups"}'
    end = "Thought: I can answer without using any more tools.\nAnswer: At midnight."
    for one in (AnswerQueryEngine("notes"), engine()):
        llm = Scripted(reply=end, replies=[act])

        async def run(one=one, llm=llm):
            return await ReActAgent(tools=[tool_of(one)], llm=llm, streaming=False).run("when?")

        assert "At midnight." in str(asyncio.run(run()))
        assert "Backups run at midnight" in llm.prompts[-1]


ZOO = "# Zoo\n\nA walrus sleeps. A seal swims.\n\n## Food\n\nFish is food. Crabs are, too.\n"


@pytest.mark.parametrize(
    "parser",
    [
        SentenceSplitter(chunk_size=40, chunk_overlap=0),
        MarkdownNodeParser(),
        SentenceWindowNodeParser.from_defaults(window_size=1),
    ],
    ids=["sentences", "markdown", "windows"],
)
def test_nodes_of_a_parser_keep_their_document(parser):
    nodes = parser.get_nodes_from_documents([Document(text=ZOO, doc_id="zoo")])
    IngestionPipelineBuilderV2().build_pipeline("zoo").run(nodes=nodes)
    [best, *_] = CatalogRetriever("zoo").retrieve("fish food")
    assert "Fish is food." in best.text
    assert best.node.ref_doc_id == "zoo"


def test_our_nodes_fill_other_indexes_and_stores(tmp_path):
    nodes = [one.node for one in CatalogRetriever("notes", top_k=4).retrieve("the keys")]
    index = VectorStoreIndex(nodes, embed_model=OtherModel())
    index.storage_context.persist(str(tmp_path))
    stored = StorageContext.from_defaults(persist_dir=str(tmp_path))
    again = load_index_from_storage(stored, embed_model=OtherModel())
    found = again.as_retriever(similarity_top_k=4).retrieve(BACKUPS)
    assert sorted(paths(found)) == sorted(one.metadata["path"] for one in nodes)
    assert len(SummaryIndex(nodes).as_retriever().retrieve("all")) == len(nodes)


def test_neighbours_come_from_a_docstore_of_our_nodes():
    long = "\n\n".join(f"## Part {n}\n\n{'walrus seal otter ' * 30}" for n in range(3))
    pipeline = IngestionPipelineBuilderV2().build_pipeline("zoo")
    pipeline.run(documents=[Document(text=long, doc_id="zoo.md")])
    nodes = HybridRetrieverFactoryV2().build(dataset_name="zoo").retrieve("walrus")
    docstore = SimpleDocumentStore()
    docstore.add_documents([one.node for one in nodes])
    middle = next(one for one in nodes if one.node.prev_node and one.node.next_node)
    around = PrevNextNodePostprocessor(docstore=docstore, num_nodes=1, mode="both")
    found = around.postprocess_nodes([middle])
    ids = [middle.node.prev_node.node_id, middle.node_id, middle.node.next_node.node_id]
    assert [one.node_id for one in found] == ids


def test_nodes_are_copied_pickled_and_written_as_json():
    for node in CatalogRetriever("notes").retrieve("the keys"):
        assert json.loads(node.to_json())["score"] == node.score
        copies = (pickle.loads(pickle.dumps(node)), node.model_copy(deep=True))
        for one in copies:
            assert (one.text, one.score, one.relevance) == (node.text, node.score, node.relevance)
            assert one.node.chunk == node.chunk


def test_postprocessors_of_both_sides_follow_each_other():
    nodes = CatalogRetriever("notes", score="relevance").retrieve("the keys")
    for stage in (LongContextReorder(), MetadataReplacementPostProcessor(target_metadata_key="x")):
        assert len(stage.postprocess_nodes(list(nodes), query_str="keys")) == len(nodes)
    llm = Scripted(reply="Doc: 2, Relevance: 9\nDoc: 1, Relevance: 3")
    ranked = LLMRerank(llm=llm, top_n=2).postprocess_nodes(nodes, query_str="keys")
    assert [one.node_id for one in ranked] == [nodes[1].node_id, nodes[0].node_id]
    for stage in (
        MaxChunksPerDocument(limit=2),
        RerankPostprocessor(ScriptedReranker(1.0)),
        DistinctText(),
        TokenBudget(limit=500),
    ):
        done = stage.postprocess_nodes(ranked, query_str="keys")
        assert {one.node_id for one in done} == {one.node_id for one in ranked}


def test_hyde_over_our_retriever():
    llm = Scripted(reply="Backups run at midnight.")
    hyde = TransformRetriever(CatalogRetriever("notes", top_k=1), HyDEQueryTransform(llm=llm))
    assert paths(hyde.retrieve("when")) == ["guides/backup.md"]


@pytest.mark.parametrize(
    "mode", ["reciprocal_rerank", "relative_score", "dist_based_score", "simple"]
)
def test_stock_fusion_of_our_retrievers_in_each_mode(mode):
    both = [CatalogRetriever("notes"), HybridRetrieverFactoryV2().build(dataset_name="notes")]
    for use_async in (True, False):
        llm = Scripted(reply="backups at midnight\nthe backups")
        fused = QueryFusionRetriever(both, mode=mode, llm=llm, num_queries=3, use_async=use_async)
        assert paths(fused.retrieve(BACKUPS))[0] == "guides/backup.md"


def test_a_stock_engine_cuts_off_by_relevance():
    llm = Scripted(reply="At midnight.")
    stock = RetrieverQueryEngine.from_args(
        CatalogRetriever("notes", score="relevance"),
        llm=llm,
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.5)],
    )
    assert paths(stock.query(BACKUPS).source_nodes) == ["guides/backup.md"]


def test_an_engine_retrieves_synthesizes_and_takes_prompts():
    llm = Scripted(reply="At midnight.")
    ours = engine(llm=llm)
    nodes = ours.retrieve(QueryBundle(BACKUPS))
    assert str(ours.synthesize(QueryBundle(BACKUPS), nodes)) == "At midnight."
    name = "response_synthesizer:text_qa_template"
    assert name in ours.get_prompts()
    ours.update_prompts({name: PromptTemplate("Mine: {context_str} {query_str}")})
    ours.query(BACKUPS)
    assert llm.prompts[-1].startswith("Mine: ")
    answering = AnswerQueryEngine("notes")
    assert paths(answering.retrieve(QueryBundle(BACKUPS)))[0] == "guides/backup.md"
    assert asyncio.run(answering.aretrieve(QueryBundle(BACKUPS)))
    assert answering.get_prompts() == {}


def test_an_engine_streams_to_both_kinds_of_callers():
    streaming = engine(llm=Scripted(reply="It rests now."), streaming=True)
    assert "".join(streaming.query(BREAD).response_gen) == "It rests now."

    async def ask():
        response = await streaming.aquery(BREAD)
        return "".join([part async for part in response.async_response_gen()])

    assert asyncio.run(ask()) == "It rests now."


def test_a_token_counter_counts_our_embeddings(monkeypatch):
    counter = TokenCountingHandler(tokenizer=str.split)
    monkeypatch.setattr(LlamaSettings, "_callback_manager", CallbackManager([counter]))
    engine().query("bake bread")
    assert counter.total_embedding_token_count == 2


def test_every_stage_of_ours_follows_a_fusion_with_another_index():
    stock = foreign_index(DIM).as_retriever()
    both = [stock, CatalogRetriever("notes")]
    llm = Scripted(reply="At midnight.")
    fused = QueryFusionRetriever(both, num_queries=1, llm=llm, use_async=False, similarity_top_k=6)
    stages = [
        RerankPostprocessor(ScriptedReranker(1.0)),
        TokenBudget(limit=100),
        MaxChunksPerDocument(limit=2),
    ]
    response = RetrieverQueryEngine.from_args(fused, llm=llm, node_postprocessors=stages).query(
        BACKUPS
    )
    assert {"zoo", "sea"} & {one.node_id for one in response.source_nodes}
    assert "guides/backup.md" in paths(response.source_nodes)
    assert "midnight" in str(CitedSentences().synthesize(BACKUPS, fused.retrieve(BACKUPS)))


class StoresModel(OtherModel):
    """The store's own model, as a LlamaIndex model."""

    def _get_text_embedding(self, text):
        return WordEncoder().encode([text])[0].tolist()

    _get_query_embedding = _get_text_embedding


def test_an_index_of_llama_index_reads_a_dataset_and_writes_nothing():
    store = DatasetVectorStore("notes")
    index = VectorStoreIndex.from_vector_store(store, embed_model=StoresModel())
    retriever = index.as_retriever(similarity_top_k=2)
    found = retriever.retrieve(BACKUPS)
    assert paths(found)[0] == "guides/backup.md"
    same = CatalogRetriever("notes", mode="vector", top_k=2).retrieve(BACKUPS)
    assert [one.node_id for one in found] == [one.node_id for one in same]
    filters = MetadataFilters(filters=[MetadataFilter(key="file_type", value="txt")])
    assert set(paths(index.as_retriever(filters=filters).retrieve(BACKUPS))) == {"bread.txt"}
    with pytest.raises(InputError, match="only read"):
        index.insert(Document(text="New."))
    with pytest.raises(InputError, match="only read"):
        index.delete_ref_doc("notes:bread.txt")
