"""LlamaIndex's own engines, agents, evaluators and stores around our parts."""

import asyncio
import json
import pickle
from threading import get_ident
from uuid import NAMESPACE_OID, uuid5

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
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.evaluation import (
    FaithfulnessEvaluator,
    RelevancyEvaluator,
    RetrieverEvaluator,
)
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    get_leaf_nodes,
)
from llama_index.core.postprocessor import (
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
)
from llama_index.core.query_engine import (
    CitationQueryEngine,
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
    RouterRetriever,
    TransformRetriever,
)
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from catalog import search_v2
from catalog.core.errors import InputError, UnknownDatasetError
from catalog.search_v2 import (
    AnswerQueryEngine,
    CatalogRetriever,
    CitedSentences,
    DatasetRetriever,
    DatasetVectorStore,
    DistinctText,
    HybridRetrieverFactoryV2,
    IngestionPipelineBuilderV2,
    MaxChunksPerDocument,
    QueryEngineBuilderV2,
    QueryExpansionRetrieverV2,
    RerankPostprocessor,
    TokenBudget,
)
from catalog.search_v2.nodes import PassageNode
from catalog.search_v2.service import SearchServiceV2
from fakes import DIM, WordEncoder
from llama_parts import OtherModel, Scripted, foreign_index, paths
from made_results import stored
from scripted import ScriptedReranker
from small_documents import NOTES
from stores import open_store

pytestmark = pytest.mark.usefixtures("service")
BREAD = "At how many degrees is bread baked?"
BACKUPS = "midnight backups"
SECOND = '[{"choice": 2, "reason": "x"}]'


def engine(**arguments):
    return QueryEngineBuilderV2().build_query_engine("notes", **arguments)


def tool_of(one):
    return QueryEngineTool.from_defaults(one, name="notes", description="notes")


def memory():
    return ChatMemoryBuffer.from_defaults(token_limit=3000)


async def joined(response):
    return "".join([part async for part in response.async_response_gen()])


# each retriever, however LlamaIndex asks it

RETRIEVERS = (
    lambda: CatalogRetriever("notes", top_k=2),
    lambda: HybridRetrieverFactoryV2().build(dataset_name="notes"),
    lambda: QueryExpansionRetrieverV2("notes", llm=Scripted(reply="lex: backups of midnight")),
)


async def ask_at_once(one):
    """Ask in a running loop, many at once and without waiting."""
    many = await asyncio.gather(*(one.aretrieve(BACKUPS) for _ in range(5)))
    assert all(paths(found) == paths(one.retrieve(BACKUPS)) for found in many)
    return many[0]


def ask_beside_another_index(one, mode="simple", **options):
    stock = foreign_index(DIM).as_retriever(similarity_top_k=1)
    return QueryFusionRetriever([stock, one], mode=mode, llm=MockLLM(), num_queries=1, **options)


def ask_where_a_node_leads(one):
    pointer = IndexNode(text="backups", index_id="ours", id_="ours")
    root = VectorStoreIndex([pointer], embed_model=OtherModel(dim=7)).as_retriever()
    return RecursiveRetriever("root", retriever_dict={"root": root, "ours": one})


def ask_as_an_object(one):
    objects = [IndexNode(text="backups", index_id="ours", obj=one)]
    return VectorStoreIndex(objects=objects, embed_model=OtherModel(dim=7)).as_retriever()


def choose(one):
    tools = [RetrieverTool.from_defaults(each, description="notes") for each in (None, one)]
    selector = LLMSingleSelector.from_defaults(llm=Scripted(reply=SECOND))
    return RouterRetriever(selector=selector, llm=MockLLM(), retriever_tools=tools)


def transform(one):
    return TransformRetriever(
        one, HyDEQueryTransform(llm=Scripted(reply="Backups run at midnight."))
    )


ASKED = {
    "alone": lambda one: one.retrieve(BACKUPS),
    "by who waits": lambda one: asyncio.run(one.aretrieve(BACKUPS)),
    "at once": lambda one: asyncio.run(ask_at_once(one)),
    "fused": lambda one: ask_beside_another_index(one, use_async=False).retrieve(BACKUPS),
    "fused, waiting": lambda one: asyncio.run(ask_beside_another_index(one).aretrieve(BACKUPS)),
    "recursive": lambda one: ask_where_a_node_leads(one).retrieve(BACKUPS),
    "object": lambda one: ask_as_an_object(one).retrieve(BACKUPS),
    "object, waiting": lambda one: asyncio.run(ask_as_an_object(one).aretrieve(BACKUPS)),
    "chosen": lambda one: choose(one).retrieve(BACKUPS),
    "transformed": lambda one: transform(one).retrieve("when"),
    **{
        mode: lambda one, mode=mode: ask_beside_another_index(one, mode).retrieve(BACKUPS)
        for mode in ("reciprocal_rerank", "relative_score", "dist_based_score")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ASKED)
def test_each_retriever_answers_however_llama_index_asks_it(how):
    for retriever in RETRIEVERS:
        assert paths(ASKED[how](retriever()))[0] == "guides/backup.md"


TALKS = {
    "citing": CitationQueryEngine,
    "context": ContextChatEngine.from_defaults,
    "condensing": CondensePlusContextChatEngine.from_defaults,
}


@pytest.mark.parametrize("kind", TALKS)
def test_engines_of_llama_index_answer_from_our_retriever(kind):
    llm = Scripted(reply="At midnight [1].")
    more = {} if kind == "citing" else {"memory": memory()}
    one = TALKS[kind](CatalogRetriever("notes", top_k=1), llm=llm, **more)
    for response in (
        (one.query(BACKUPS),)
        if kind == "citing"
        else (one.chat(BACKUPS), asyncio.run(one.achat(BACKUPS)))
    ):
        assert str(response) == "At midnight [1]."
        assert paths(response.source_nodes) == ["guides/backup.md"]
    assert ("Source 1:\n# Backups" if kind == "citing" else "place: lines 1-3\n\n# Backups") in (
        llm.prompts[0]
    )
    assert "source_doc_id" not in "".join(llm.prompts)
    if kind != "citing":
        assert "".join(one.stream_chat(BACKUPS).response_gen) == "At midnight [1]."


def test_a_retriever_tool_gives_an_agent_what_a_prompt_would_have():
    tool = RetrieverTool.from_defaults(CatalogRetriever("notes", top_k=1), description="notes")
    for output in (tool.call(BACKUPS), asyncio.run(tool.acall(BACKUPS))):
        assert "place: lines 1-3\n\n# Backups" in output.content
        assert "source_doc_id" not in output.content


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


# each engine, however LlamaIndex asks it

ENGINES = (
    engine,
    lambda: engine(llm=Scripted(reply="Bake at 230 degrees.")),
    lambda: AnswerQueryEngine("notes"),
    lambda: AnswerQueryEngine("notes", streaming=True),
)


def route(one, chosen=SECOND, selector=LLMSingleSelector):
    llm = Scripted(reply="Both say 230.")
    return RouterQueryEngine(
        selector=selector.from_defaults(llm=Scripted(reply=chosen)),
        query_engine_tools=[tool_of(engine()), tool_of(one)],
        llm=llm,
        summarizer=get_response_synthesizer(llm=llm, response_mode="tree_summarize"),
    )


def route_to_both(one):
    return route(one, f'[{{"choice": 1, "reason": "y"}}, {SECOND[1:]}', LLMMultiSelector)


def ask_in_parts(one):
    asked = {"sub_question": BREAD, "tool_name": "notes"}
    plan = json.dumps({"items": [asked, {**asked, "sub_question": BACKUPS}]})
    llm = Scripted(reply="At 230 degrees, at midnight.", replies=[f"```json\n{plan}\n```"])
    response = SubQuestionQueryEngine.from_defaults(
        query_engine_tools=[tool_of(one)],
        llm=llm,
        question_gen=LLMQuestionGenerator.from_defaults(llm=llm),
        verbose=False,
    ).query("compare them")
    assert {"bread.txt", "guides/backup.md"} <= set(paths(response.source_nodes))
    return response


def chat_about(one):
    """Chat at once and, if it can, streamed."""
    llm = Scripted(reply=BREAD)
    chat = CondenseQuestionChatEngine.from_defaults(one, memory=memory(), llm=llm)
    whole = str(chat.chat(BREAD))
    if getattr(one, "_is_streaming", True):
        chat.reset()
        response = chat.stream_chat(BREAD)
        assert "".join(response.response_gen) == whole
        assert response.source_nodes
    return whole


QUERIED = {
    "query": lambda one: one.query(BREAD),
    "aquery": lambda one: asyncio.run(one.aquery(BREAD)),
    "router": lambda one: route(one).query(BREAD),
    "router, waiting": lambda one: asyncio.run(route(one).aquery(BREAD)),
    "router to both": lambda one: route_to_both(one).query(BREAD),
    "sub-questions": ask_in_parts,
    "tool": lambda one: tool_of(one).call(BREAD).content,
    "chat": chat_about,
}


@pytest.mark.slow
@pytest.mark.parametrize("how", QUERIED)
def test_each_engine_answers_however_llama_index_asks_it(how):
    for made in ENGINES:
        assert "230" in str(QUERIED[how](made()))


@pytest.mark.slow
def test_engines_stream_in_a_running_loop():
    written = engine(llm=Scripted(reply="It rests at 230."), streaming=True)
    assert "".join(written.query(BREAD).response_gen) == "It rests at 230."

    async def talk(one):
        chat = CondenseQuestionChatEngine.from_defaults(
            one, memory=memory(), llm=Scripted(reply=BREAD)
        )
        whole = str(await chat.achat(BREAD))
        chat.reset()
        assert whole == await joined(await chat.astream_chat(BREAD))
        assert "230" in whole

    async def ask(one):
        response = await one.aquery(BREAD)
        assert response.source_nodes
        assert "230" in await joined(response)

    asyncio.run(ask(written))
    asyncio.run(ask(AnswerQueryEngine("notes", streaming=True)))
    for one in (engine(), AnswerQueryEngine("notes", streaming=True)):
        asyncio.run(talk(one))


def test_an_answer_engine_retrieves_for_texts_and_bundles():
    answering = AnswerQueryEngine("notes")
    for asked in (BACKUPS, QueryBundle(BACKUPS)):
        assert paths(answering.retrieve(asked))[0] == "guides/backup.md"
    assert asyncio.run(answering.aretrieve(QueryBundle(BACKUPS)))
    assert answering.get_prompts() == {}


@pytest.mark.slow
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


# nodes on both sides

NUMBERS = ("zero", "one", "two", "three", "four")
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


def test_our_nodes_are_copied_pickled_written_and_fill_other_indexes(tmp_path):
    found = CatalogRetriever("notes", top_k=4).retrieve("the keys")
    for node in found:
        assert json.loads(node.to_json())["score"] == node.score
        for one in (pickle.loads(pickle.dumps(node)), node.model_copy(deep=True)):
            assert (one.text, one.score, one.relevance) == (node.text, node.score, node.relevance)
            assert one.node.chunk == node.node.chunk
    nodes = [one.node for one in found]
    index = VectorStoreIndex(nodes, embed_model=OtherModel())
    index.storage_context.persist(str(tmp_path))
    stored = StorageContext.from_defaults(persist_dir=str(tmp_path))
    again = load_index_from_storage(stored, embed_model=OtherModel())
    found = again.as_retriever(similarity_top_k=4).retrieve(BACKUPS)
    assert sorted(paths(found)) == sorted(one.metadata["path"] for one in nodes)
    assert len(SummaryIndex(nodes).as_retriever().retrieve("all")) == len(nodes)


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


def test_every_stage_of_ours_follows_a_fusion_with_another_index():
    llm = Scripted(reply="At midnight.")
    both = [foreign_index(DIM).as_retriever(), CatalogRetriever("notes")]
    fused = QueryFusionRetriever(both, num_queries=1, llm=llm, use_async=False, similarity_top_k=6)
    stages = [
        RerankPostprocessor(ScriptedReranker(1.0)),
        TokenBudget(limit=100),
        MaxChunksPerDocument(limit=2),
    ]
    asked = RetrieverQueryEngine.from_args(fused, llm=llm, node_postprocessors=stages)
    response = asked.query(BACKUPS)
    assert {"zoo", "sea"} & {one.node_id for one in response.source_nodes}
    assert "guides/backup.md" in paths(response.source_nodes)
    assert "midnight" in str(CitedSentences().synthesize(BACKUPS, fused.retrieve(BACKUPS)))


class StoresModel(OtherModel):
    """The store's own model, as a LlamaIndex model."""

    def _get_text_embedding(self, text):
        return WordEncoder().encode([text])[0].tolist()

    _get_query_embedding = _get_text_embedding


def test_an_index_of_llama_index_reads_a_dataset():
    store = DatasetVectorStore("notes")
    index = VectorStoreIndex.from_vector_store(store, embed_model=StoresModel())
    found = index.as_retriever(similarity_top_k=2).retrieve(BACKUPS)
    assert paths(found)[0] == "guides/backup.md"
    same = CatalogRetriever("notes", mode="vector", top_k=2).retrieve(BACKUPS)
    assert [one.node_id for one in found] == [one.node_id for one in same]
    for mode in ("hybrid", "sparse", "text_search"):
        one = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=1)
        assert paths(one.retrieve(BACKUPS)) == ["guides/backup.md"]
    with pytest.raises(InputError, match="no query mode mmr: use default, hybrid"):
        index.as_retriever(vector_store_query_mode="mmr").retrieve(BACKUPS)
    by_words = VectorStoreQuery(query_str="bake", similarity_top_k=5, mode="text_search")
    assert paths(NodeWithScore(node=one) for one in store.query(by_words).nodes) == ["bread.txt"]
    filters = MetadataFilters(filters=[MetadataFilter(key="file_type", value="txt")])
    assert set(paths(index.as_retriever(filters=filters).retrieve(BACKUPS))) == {"bread.txt"}


def test_an_index_of_llama_index_inserts_replaces_and_deletes_documents():
    store = DatasetVectorStore("zoo")
    small = SentenceSplitter(chunk_size=40, chunk_overlap=0)
    made = {"embed_model": StoresModel(), "transformations": [small]}
    index = VectorStoreIndex.from_vector_store(store, **made)
    index.delete_ref_doc("zoo")  # neither it nor the dataset exists
    index.insert(Document(text=ZOO, doc_id="zoo"))
    drawn = Document(text="The okapi sleeps.", metadata={"file_name": "okapi.md"})
    index.insert(drawn)
    index.update_ref_doc(Document(text=ZOO.replace("walrus", "otter"), doc_id="zoo"))

    def read(query):
        return [one.text for one in index.as_retriever(similarity_top_k=9).retrieve(query)]

    assert "otter" in str(read("otter"))
    assert "walrus" not in str(read("walrus"))
    [okapi] = [one for one in read("okapi") if "okapi" in one]
    nodes = small.get_nodes_from_documents([Document(text=ZOO * 5, doc_id="zoo")])
    with pytest.raises(InputError, match="insert_batch_size"):
        index.insert_nodes(nodes[:1])
    assert okapi in read("okapi")
    index.delete_ref_doc(drawn.doc_id)
    assert okapi not in read("okapi")
    [best, *_] = CatalogRetriever("zoo").retrieve("otter")
    index.delete_ref_doc(best.node.ref_doc_id)
    assert read("otter") == []


def test_an_index_refreshes_what_changed_and_finds_nodes_by_their_ids():
    store = DatasetVectorStore("zoo")
    index = VectorStoreIndex.from_documents(
        [Document(text="An okapi.", doc_id="o"), Document(text="A seal.", doc_id="s")],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=StoresModel(),
        store_nodes_override=True,
    )
    new = [Document(text="A walrus.", doc_id="o"), Document(text="A seal.", doc_id="s")]
    assert index.refresh_ref_docs(new) == [True, False]
    found = index.as_retriever(similarity_top_k=9).retrieve("okapi walrus seal")
    assert sorted(one.text for one in found) == ["A seal.", "A walrus."]
    assert store.add([TextNode(id_="owl", text="An owl.")]) == ["owl"]
    for ids in (["owl"], [store.get_nodes(["owl"])[0].node_id]):
        query = VectorStoreQuery(query_str="A walrus.", similarity_top_k=1, node_ids=ids)
        assert [one.text for one in store.query(query).nodes] == ["An owl."]
    only = MetadataFilters(filters=[MetadataFilter(key="path", value="s")])
    assert [one.text for one in store.get_nodes(filters=only)] == ["A seal."]
    assert len(store.get_nodes()) == 3
    for _ in range(2):
        store.clear()
    with pytest.raises(UnknownDatasetError):
        store.get_nodes()


def test_what_an_index_embeds_and_searches_leaves_the_event_loop_free(service, monkeypatch):
    seen, encoder = set(), service.library.model.encoder
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda texts: seen.add(get_ident()) or encode(texts))
    store = DatasetVectorStore("zoo")
    pipeline = IngestionPipelineBuilderV2().build_pipeline("zoo")

    async def use():
        await store.async_add([TextNode(id_="owl", text="An owl.")])
        await pipeline.arun(documents=[Document(text="A seal.", doc_id="s")])
        return await store.aquery(VectorStoreQuery(query_str="An owl.", similarity_top_k=1))

    assert asyncio.run(use()).nodes[0].text == "An owl."
    assert len(seen) >= 1
    assert get_ident() not in seen


def test_a_docstore_has_what_llama_indexs_stages_look_up():
    text = "".join(f"## Part {n}\n\nThe {word} sleeps.\n\n" for n, word in enumerate(NUMBERS))
    pipeline = IngestionPipelineBuilderV2().build_pipeline("zoo", splitter=MarkdownNodeParser())
    pipeline.run(documents=[Document(text=text, doc_id="zoo.md")])
    [second] = CatalogRetriever("zoo", top_k=1).retrieve("two sleeps")
    docstore = search_v2.docstore("zoo")
    assert len(docstore.docs) == len(NUMBERS)
    assert docstore.get_document(second.node_id).hash == second.node.hash
    beside = PrevNextNodePostprocessor(docstore=docstore, num_nodes=1, mode="both")
    found = "".join(one.text for one in beside.postprocess_nodes([second]))
    assert [word for word in NUMBERS if word in found] == ["one", "two", "three"]
    words = BM25Retriever.from_defaults(docstore=docstore, similarity_top_k=1)
    assert words.retrieve("two")[0].node_id == second.node_id
    with pytest.raises(UnknownDatasetError):
        search_v2.docstore("none")


def test_children_are_merged_into_the_parents_of_a_docstore():
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[64, 16], chunk_overlap=0)
    pipeline = IngestionPipelineBuilderV2().build_pipeline("zoo", splitter=parser)
    pipeline.run(documents=[Document(text="A walrus sleeps. " * 12, doc_id="zoo")])
    docstore = search_v2.docstore("zoo")
    first = get_leaf_nodes([*docstore.docs.values()])[0]
    parent = docstore.get_document(first.parent_node.node_id)
    below = docstore.get_nodes([one.node_id for one in parent.child_nodes])

    class Leaves(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=one, score=1.0) for one in below]

    context = StorageContext.from_defaults(docstore=docstore)
    merged = AutoMergingRetriever(Leaves(), context).retrieve("walrus")
    assert [one.node_id for one in merged] == [parent.node_id]


def test_a_dataset_is_copied_into_qdrant_under_uuids_made_of_its_ids():
    client = QdrantClient(":memory:")
    store = QdrantVectorStore("notes", client=client)
    ours = DatasetVectorStore("notes")
    count = ours.copy_to(store)
    assert ours.copy_to(store) == count == client.count("notes").count
    index = VectorStoreIndex.from_vector_store(store, embed_model=StoresModel())
    found = index.as_retriever(similarity_top_k=3).retrieve(BACKUPS)
    same = DatasetRetriever("notes", mode="vector", k_fused=3).retrieve(BACKUPS)
    assert [one.node_id for one in found] == [str(uuid5(NAMESPACE_OID, one.id_)) for one in same]
    assert [one.text for one in found] == [one.text for one in same]
    assert found[0].node.ref_doc_id == "notes:guides/backup.md"
    related = {one.node_id for node in store.get_nodes() for one in (node.next_node,) if one}
    assert related <= {node.node_id for node in store.get_nodes()}
    client.close()


def test_a_nodes_metadata_is_its_own_to_change():
    metadata = {"tags": ["a"], "more": {"names": [["b"]]}, "year": 2024}
    chunk = stored(metadata=metadata)
    first = PassageNode.of(chunk)
    first.metadata["tags"].append("other")
    first.metadata["more"]["names"][0].clear()
    first.metadata["year"] = 1999
    again = PassageNode.of(chunk).metadata
    assert (again["tags"], again["more"], again["year"]) == (["a"], {"names": [["b"]]}, 2024)


def test_a_search_makes_no_nodes_and_a_retrieval_one_for_each_passage(tmp_path, monkeypatch):
    made = []
    make = PassageNode.of
    monkeypatch.setattr(PassageNode, "of", lambda chunk: made.append(chunk) or make(chunk))
    with open_store(NOTES, tmp_path) as library:
        service = SearchServiceV2(library)
        results = service.search("revoke a leaked key", top_k=2)
        assert len(results) == 2
        assert made == []
        nodes = service.retrieve("revoke a leaked key", top_k=2)
    assert [node.node_id for node in nodes] == [result.chunk_id for result in results]
    assert len(made) == 2
