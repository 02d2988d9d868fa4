"""v2's fusion over retrievers that people have: stock BM25, Qdrant, and any other."""

import asyncio
import pickle
import threading
from copy import deepcopy

import pytest
from llama_index.core import QueryBundle, StorageContext, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import (
    IndexNode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient

from catalog.core.errors import EngineError, InputError, StageFailedError
from catalog.embedding.model import EmbeddingModel
from catalog.search.embed_model import ResilientEmbedding
from catalog.search_v2 import CatalogRetriever, DistinctText, HybridRetrieverFactoryV2
from fakes import WordEncoder
from small_documents import NOTES
from stores import service_of

PASSAGES = {
    "11111111-1111-1111-1111-111111111111": ("keys.md", "Rotate the API keys every ninety days."),
    "22222222-2222-2222-2222-222222222222": ("keys.md", "A leaked key is revoked at once."),
    "33333333-3333-3333-3333-333333333333": ("bread.md", "Bake the bread at 230 degrees."),
    "44444444-4444-4444-4444-444444444444": ("backup.md", "Backups run at midnight, every day."),
}
ROTATE, LEAKED, BREAD, BACKUP = PASSAGES


class Given(BaseRetriever):
    """Returns these nodes: an id, or an id with a score; with a barrier, once all have met."""

    def __init__(self, *found, error=None, met=None):
        self.found = [one if isinstance(one, tuple) else (one, 1.0) for one in found]
        self.error, self.met, self.bundles, self.threads = error, met, [], []
        super().__init__()

    def _retrieve(self, query_bundle):
        self.bundles.append(query_bundle)
        self.threads.append(threading.current_thread())
        if self.met:
            self.met.wait(timeout=60)  # or an error: the others never come
        if self.error is not None:
            raise self.error
        return [
            NodeWithScore(node=TextNode(id_=id_, text=f"text of {id_}"), score=score)
            for id_, score in self.found
        ]


class GivenAsync(Given):
    """The same for those who wait."""

    async def _aretrieve(self, query_bundle):
        if self.met:
            return await asyncio.to_thread(super()._retrieve, query_bundle)
        return super()._retrieve(query_bundle)


def over(*retrievers, **options):
    return HybridRetrieverFactoryV2().over(retrievers, **options)


def scores(nodes):
    return {one.node.node_id: one.score for one in nodes}


def nodes_of_notes():
    nodes = []
    for id_, (document, text) in PASSAGES.items():
        node = TextNode(id_=id_, text=text, metadata={"file_name": document})
        node.excluded_embed_metadata_keys = ["file_name"]
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
        nodes.append(node)
    return nodes


@pytest.fixture(scope="module")
def bm25():
    return BM25Retriever.from_defaults(nodes=nodes_of_notes(), similarity_top_k=3)


@pytest.fixture(scope="module")
def vectors():
    """A stock index over a Qdrant in memory, with a synchronous client alone."""
    client = QdrantClient(":memory:")
    context = StorageContext.from_defaults(vector_store=QdrantVectorStore("notes", client=client))
    model = ResilientEmbedding(EmbeddingModel(WordEncoder()))
    index = VectorStoreIndex(nodes_of_notes(), storage_context=context, embed_model=model)
    yield index.as_retriever(similarity_top_k=3)
    client.close()


# the formula


def test_weighted_reciprocal_ranks_and_the_bonus_of_the_best_rank():
    found = over(Given("a", "b", "c", "d"), Given("d", "a"), weights=[2, 0.5]).retrieve("q")
    # a: 2/61 + .5/62 + .05;  d: 2/64 + .5/61 + .05;  b: 2/62 + .02;  c: 2/63 + .02
    assert scores(found) == {
        "a": 2 / 61 + 0.5 / 62 + 0.05,
        "d": 2 / 64 + 0.5 / 61 + 0.05,
        "b": 2 / 62 + 0.02,
        "c": 2 / 63 + 0.02,
    }
    assert [one.node.node_id for one in found] == ["a", "d", "b", "c"]
    assert sum(part.contribution for part in found[0].fused.contributions) == 2 / 61 + 0.5 / 62
    assert found[0].fused.bonus == 0.05


def test_another_bonus_another_k_and_none():
    assert scores(over(Given("a", "b", "c", "d"), bonus=(0.5, 0.25), k=1).retrieve("q")) == {
        "a": 1 / 2 + 0.5,
        "b": 1 / 3 + 0.25,
        "c": 1 / 4 + 0.25,
        "d": 1 / 5,
    }
    plain = over(Given("a", "b"), Given("b"), bonus=(0, 0)).retrieve("q")
    assert scores(plain) == {"b": 1 / 62 + 1 / 61, "a": 1 / 61}


def test_a_retrievers_own_order_is_its_ranking_whatever_its_scores():
    distances = Given(("near", 0.1), ("far", 0.9))
    unscored = Given(("near", None), ("far", None))
    assert [one.node.node_id for one in over(distances, unscored).retrieve("q")] == ["near", "far"]


def test_a_node_is_its_id_whatever_its_text_or_metadata():
    class Copies(BaseRetriever):
        def _retrieve(self, query_bundle):
            copies = [
                TextNode(id_=id_, text="the same", metadata={"n": n})
                for id_, n in [("x", 1), ("x", 2), ("y", 1)]
            ]
            return [NodeWithScore(node=one, score=1.0) for one in copies]

    found = over(Copies(), Given("y")).retrieve("q")
    assert scores(found) == {"y": 1 / 62 + 1 / 61 + 0.05, "x": 1 / 61 + 0.05}
    assert {one.score for one in Copies().retrieve("q")} == {1.0}


def test_no_more_than_asked_for_come():
    retriever = over(Given(*"abcdef"), Given(*"fedcba"), k_fused=2)
    assert len(retriever.retrieve("q")) == 2
    retriever.similarity_top_k = 1
    assert len(retriever.retrieve("q")) == 1
    assert over(Given()).retrieve("q") == []


@pytest.mark.parametrize(
    ("retrievers", "options", "reason"),
    [
        ([], {}, "no retriever"),
        ([VectorStoreIndex.from_documents([], embed_model=ResilientEmbedding(
            EmbeddingModel(WordEncoder())))], {}, "give its as_retriever"),
        (["bm25"], {}, "str is not a LlamaIndex retriever$"),
        ([Given()], {"weights": [1, 2]}, "2 weights for 1 retrievers"),
        ([Given()], {"weights": [0]}, "every weight is 0"),
        ([Given()], {"weights": [-1]}, "weight -1"),
        ([Given()], {"weights": [1], "retriever_weights": [2]}, "give one of them"),
        ([Given()], {"weights": [float("nan")]}, "weight nan"),
        ([Given()], {"bonus": (0.05,)}, "give two numbers"),
        ([Given()], {"bonus": (0.05, -1)}, "give two numbers"),
        ([Given()], {"k": 0}, "whole number"),
        ([Given()], {"k_fused": 0}, "k_fused is 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_fused_is_refused_with_the_reason(retrievers, options, reason):
    with pytest.raises(InputError, match=reason):
        over(*retrievers, **options)


def test_llama_indexs_names_mean_the_same_and_a_weight_of_zero_switches_a_retriever_off():
    debug = LlamaDebugHandler(print_trace_on_end=False)
    legs = Given("a", "b"), Given("b"), Given("c")
    theirs = {"retriever_weights": [2, 0.5, 0], "similarity_top_k": 1}
    named = over(*legs, **theirs, callback_manager=CallbackManager([debug]))
    own = over(*legs, weights=[2, 0.5, 0], k_fused=1)
    best = {"b": 2 / 62 + 0.5 / 61 + 0.05}
    assert scores(named.retrieve("q")) == scores(own.retrieve("q")) == best
    assert debug.get_event_pairs(CBEventType.RETRIEVE)
    assert legs[2].bundles == []


class Texts(BaseRetriever):
    def __init__(self, name, *found):
        super().__init__()
        self.found = [
            TextNode(id_=f"{name}{n}", text=text, metadata={"file_name": file, "made by": name})
            for n, (text, file) in enumerate(found)
        ]

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=one, score=1.0) for one in self.found]


def test_passages_of_other_ids_are_matched_by_text_and_file_and_the_log_says_so_once(caplog):
    again = Texts("w", ("The same.", "a.md"), ("The same.", "b.md"), ("The same.", "a.md"))
    kept = Texts("v", ("Other.", "a.md"), ("The same.", "a.md"))
    fused = over(again, kept, bonus=(0, 0))
    found = scores(fused.retrieve("q"))
    # the third text is the first once more; equal texts of one list stay apart
    assert found == {"w0": 1 / 61 + 1 / 62, "w1": 1 / 62, "w2": 1 / 63, "v0": 1 / 61}
    assert scores(fused.retrieve("q")) == found
    assert caplog.text.count("different node ids") == 1
    # two that share ids, and one that was split again
    three = over(again, kept, Texts("v", ("Other.", "a.md")), bonus=(0, 0))
    assert scores(three.retrieve("q"))["w0"] == 1 / 61 + 1 / 62
    caplog.clear()
    over(Texts("x", ("One.", "a.md")), kept).retrieve("q")
    assert caplog.text == ""


def test_a_copy_asks_the_same_retrievers(vectors):
    fused = over(Given("a", "b"), vectors)  # whose client cannot be copied
    copied = deepcopy(fused)
    assert scores(copied.retrieve("bake")) == scores(fused.retrieve("bake"))
    copied.similarity_top_k = 1
    assert len(fused.retrieve("bake")) > len(copied.retrieve("bake")) == 1
    node = over(Given("a")).retrieve("q")[0]
    for one in (deepcopy(node), pickle.loads(pickle.dumps(node))):
        assert (one.score, one.fused.bonus) == (node.score, 0.05)


# both ways of asking, and failures


def test_what_cannot_be_set_later_is_an_error():
    fused = over(Given("a", "b"))
    for name in ("num_queries", "mode", "use_async", "retriever_weights", "bonus"):
        with pytest.raises(InputError, match=f"{name} cannot be set here"):
            setattr(fused, name, 1)
    for depth in (0, "3"):
        with pytest.raises(InputError, match="use a number from 1"):
            fused.similarity_top_k = depth


def test_retrievers_run_beside_each_other_in_both_ways():
    met = threading.Barrier(3)
    together = over(Given("a", met=met), GivenAsync("b", met=met), Given("c", met=met), strict=True)
    found = together.retrieve("q")
    assert sorted(scores(found)) == ["a", "b", "c"]
    assert scores(asyncio.run(together.aretrieve("q"))) == scores(found)


def test_a_retriever_without_an_asynchronous_form_does_not_block_the_loop():
    blocking = Given("a")
    asyncio.run(over(blocking).aretrieve("q"))
    assert blocking.threads[0] is not threading.main_thread()
    waiting = GivenAsync("a")
    asyncio.run(over(waiting).aretrieve("q"))
    assert waiting.threads[0] is threading.main_thread()


def test_each_retriever_gets_its_own_copy_of_the_query():
    class Writes(Given):
        def _retrieve(self, query_bundle):
            assert query_bundle.embedding is None
            query_bundle.embedding = [1.0]
            return super()._retrieve(query_bundle)

    bundle = QueryBundle("q", custom_embedding_strs=["other words"])
    retriever = over(Writes("a"), Writes("b"))
    retriever.retrieve(bundle)
    asyncio.run(retriever.aretrieve(bundle))
    assert bundle.embedding is None
    assert all(
        one.bundles[-1].custom_embedding_strs == ["other words"] for one in retriever._retrievers
    )


class Odd(BaseRetriever):
    """Returns something else than nodes with scores."""

    def _retrieve(self, query_bundle):
        return [TextNode(text="no score")]


@pytest.mark.parametrize("wait", [False, True])
def test_a_failing_retriever_is_named_and_the_rest_answers(caplog, wait):
    def ask(retriever):
        return asyncio.run(retriever.aretrieve("q")) if wait else retriever.retrieve("q")

    down = GivenAsync(error=ConnectionError("no answer"))
    assert scores(ask(over(Given("a"), down))) == {"a": 1 / 61 + 0.05}
    assert (
        "GivenAsync failed, the search continues without it: ConnectionError: no answer"
        in caplog.text
    )
    with pytest.raises(StageFailedError, match="stage GivenAsync failed: no answer"):
        ask(over(Given("a"), down, strict=True))
    with pytest.raises(
        EngineError, match="every retriever failed: Given: ValueError: x; GivenAsync: Conn"
    ):
        ask(over(Given(error=ValueError("x")), down))
    caplog.clear()
    ask(over(Given("a"), Given(error=RuntimeError("boom")), Odd()))
    assert "Given 2 failed" in caplog.text  # two of one class are told apart
    assert "Odd failed" in caplog.text


# LlamaIndex's own parts


def test_a_word_that_no_note_has_gives_bm25_no_say(bm25, vectors):
    assert [one.score for one in bm25.retrieve("zebra")] == [0.0, 0.0, 0.0]
    assert over(bm25).retrieve("zebra") == []
    assert scores(over(bm25, vectors).retrieve("zebra")) == scores(over(vectors).retrieve("zebra"))


def test_what_bm25s_filter_excludes_does_not_come_back():
    only = MetadataFilters(filters=[MetadataFilter(key="file_name", value="bread.md")])
    filtered = BM25Retriever.from_defaults(nodes=nodes_of_notes(), similarity_top_k=4, filters=only)
    assert len(filtered.retrieve("bake keys")) == 4  # three of them excluded, with score 0
    assert list(scores(over(filtered).retrieve("bake keys"))) == [BREAD]


def test_bm25_and_qdrant_are_fused_alike_in_both_ways(bm25, vectors):
    query = "rotate the API keys"
    words = [one.node.node_id for one in bm25.retrieve(query) if one.score]
    near = [one.node.node_id for one in vectors.retrieve(query)]
    expected = {
        id_: sum(
            factor / (61 + listed.index(id_))
            for listed, factor in ((words, 2.0), (near, 1.0))
            if id_ in listed
        )
        for id_ in [*words, *near]
    }
    retriever = over(bm25, vectors, weights=[2.0, 1.0], bonus=(0, 0))
    assert scores(retriever.retrieve(query)) == expected
    assert scores(asyncio.run(retriever.aretrieve(query))) == expected
    (first, *_) = retriever.retrieve(query)
    assert (first.node.node_id, first.node.metadata["file_name"]) == (ROTATE, "keys.md")
    assert first.text == PASSAGES[ROTATE][1]


def test_it_is_a_query_fusion_retriever_in_engines_events_and_other_fusions(bm25, vectors):
    debug = LlamaDebugHandler(print_trace_on_end=False)
    retriever = over(bm25, vectors)
    assert isinstance(retriever, QueryFusionRetriever)
    retriever.callback_manager = CallbackManager([debug])
    engine = RetrieverQueryEngine(
        retriever, NoText(llm=MockLLM()), node_postprocessors=[DistinctText()]
    )
    answer = engine.query("bake bread")
    assert answer.source_nodes[0].node.node_id == BREAD
    assert debug.get_event_pairs(CBEventType.RETRIEVE)
    outer = QueryFusionRetriever(
        [retriever, bm25], llm=MockLLM(), num_queries=1, use_async=False,
        mode="reciprocal_rerank", similarity_top_k=3,
    )  # fmt: skip
    assert outer.retrieve("bake bread")[0].node.node_id == BREAD
    assert over(retriever, outer).retrieve("bake bread")[0].node.node_id == BREAD


def test_an_asynchronous_client_is_used_where_there_is_one(bm25, caplog):
    async def ask():
        client = AsyncQdrantClient(":memory:")
        store = QdrantVectorStore("notes", aclient=client)
        model = ResilientEmbedding(EmbeddingModel(WordEncoder()))
        nodes = nodes_of_notes()
        for node in nodes:
            node.embedding = model.get_text_embedding(node.text)
        await store.async_add(nodes)
        index = VectorStoreIndex.from_vector_store(store, embed_model=model)
        retriever = over(bm25, index.as_retriever(similarity_top_k=3))
        found = await retriever.aretrieve("bake bread")
        await client.close()
        return found, retriever

    found, retriever = asyncio.run(ask())
    assert found[0].node.node_id == BREAD
    assert found[0].fused.originals("vector")
    assert caplog.text == ""
    assert not retriever.retrieve("bake bread")[0].fused.originals("vector")
    assert "VectorIndexRetriever failed, the search continues without it" in caplog.text


def test_an_index_node_leads_to_what_it_stands_for():
    class Leads(BaseRetriever):
        def _retrieve(self, query_bundle):
            hidden = TextNode(id_="hidden", text="Hidden node!")
            index_node = IndexNode(text="a way", index_id="way", obj=hidden)
            return [NodeWithScore(node=index_node, score=0.5)]

    retriever = over(Leads(), Given("hidden"))
    assert scores(retriever.retrieve("q")) == {"hidden": 2 / 61 + 0.05}
    assert scores(asyncio.run(retriever.aretrieve("q"))) == {"hidden": 2 / 61 + 0.05}


def test_a_search_of_ours_can_be_fused_with_theirs_and_keeps_its_parts(bm25):
    ours = CatalogRetriever("notes", service=service_of(NOTES), top_k=3)
    found = over(ours, bm25).retrieve("rotate the API keys")
    first = next(one for one in found if one.node.node_id != ROTATE)
    assert first.node.metadata["path"] == "keys.md"
    assert first.relevance is not None
    assert first.score == 1 / 61 + 0.05
    assert any(one.node.node_id == ROTATE for one in found)


# the later stages, on their nodes
