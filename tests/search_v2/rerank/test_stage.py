"""The rerank stage: who is scored, what the cache spares, what a failure leaves."""

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from catalog.core.errors import RerankError
from catalog.search_v2.model_cache import ModelCache
from catalog.search_v2.rerank.stage import RerankPostprocessor
from catalog.store import Database
from scripted import ScriptedReranker


@pytest.fixture
def cache(tmp_path):
    database = Database.at(tmp_path / "home")
    yield ModelCache(database, kind="rerank", lifetime=3600)
    database.close()


def nodes(*texts, **metadata):
    return [
        NodeWithScore(
            node=TextNode(text=text, id_=f"n{number}", metadata=dict(metadata)), score=10.0 - number
        )
        for number, text in enumerate(texts)
    ]


def texts(found):
    return [node.node.text for node in found]


def test_nodes_of_any_retriever_are_ordered_by_the_blend_and_not_changed():
    reranker = ScriptedReranker({"a": -3.0, "b": 0.0, "c": 3.0})
    given = nodes("a", "b", "c")
    stage = RerankPostprocessor(reranker, blend="replace")
    assert texts(stage.postprocess_nodes(given, QueryBundle("q"))) == ["c", "b", "a"]
    assert [node.score for node in given] == [10.0, 9.0, 8.0]


def test_only_the_first_candidates_are_scored_and_the_others_follow():
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0, "c": 9.0, "d": 9.0})
    stage = RerankPostprocessor(reranker, candidates=2, blend="replace")
    done = stage.rerank(nodes("a", "b", "c", "d"), "q")
    assert texts(done.nodes) == ["b", "a", "c", "d"]
    assert reranker.asked == ["a", "b"]
    assert "2 of 4 scored" in done.note


def test_top_n_keeps_the_best():
    stage = RerankPostprocessor(ScriptedReranker({"a": 0.0, "b": 1.0}), blend="replace", top_n=1)
    assert texts(stage.rerank(nodes("a", "b"), "q").nodes) == ["b"]


def test_title_and_headings_are_read_before_the_text():
    reranker = ScriptedReranker({"Keys > Rotation\na": 1.0})
    given = nodes("a", title="Keys", heading_path=["Keys", "Rotation"])
    RerankPostprocessor(reranker).rerank(given, "q")
    assert reranker.asked == ["Keys > Rotation\na"]


def test_a_text_that_stands_twice_is_scored_once():
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0})
    done = RerankPostprocessor(reranker, blend="replace").rerank(nodes("a", "b", "b"), "q")
    assert reranker.asked == ["a", "b"]
    assert texts(done.nodes) == ["b", "b", "a"]


def test_the_cache_spares_every_score_of_the_same_query_text_and_model(cache):
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0, "c": 2.0})
    stage = RerankPostprocessor(reranker, cache, blend="replace")
    first = stage.rerank(nodes("a", "b"), "q")
    again = stage.rerank(nodes("a", "b", "c"), "q")
    assert reranker.asked == ["a", "b", "c"]
    assert "2 of them cached" in again.note
    assert texts(first.nodes) == ["b", "a"]
    assert [node.score for node in again.nodes[1:]] == [node.score for node in first.nodes]
    stage.rerank(nodes("a"), "another query")
    assert reranker.asked == ["a", "b", "c", "a"]
    RerankPostprocessor(ScriptedReranker({"a": 5.0}, fingerprint="2"), cache).rerank(
        nodes("a"), "q"
    )
    cache.clear_memory()
    assert "1 of them cached" in stage.rerank(nodes("a"), "q").note


def test_a_budget_scores_as_many_as_fit_and_says_so():
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0, "c": 2.0, "d": 3.0}, seconds=0.05)
    stage = RerankPostprocessor(reranker, blend="replace", budget_ms=120)
    done = stage.rerank(nodes("a", "b", "c", "d"), "q")
    assert 1 <= len(reranker.asked) < 4
    assert f"{len(reranker.asked)} of 4 scored" in done.note
    assert "120 ms allow no more" in done.note
    assert texts(done.nodes)[-1] == "d"


def test_a_failure_is_raised_to_those_who_ask_and_leaves_the_order_to_those_who_chain(caplog):
    reranker = ScriptedReranker({}, error=RerankError("no answer"))
    stage = RerankPostprocessor(reranker)
    with pytest.raises(RerankError):
        stage.rerank(nodes("a", "b"), "q")
    assert texts(stage.postprocess_nodes(nodes("a", "b"), QueryBundle("q"))) == ["a", "b"]
    assert "no answer" in caplog.text


def test_scores_known_before_a_failure_are_not_lost(cache):
    first = ScriptedReranker({"a": 0.0, "b": 1.0})
    RerankPostprocessor(first, cache).rerank(nodes("a", "b"), "q")
    broken = ScriptedReranker({}, error=RerankError("no answer"))
    done = RerankPostprocessor(broken, cache, blend="replace").rerank(nodes("a", "b"), "q")
    assert texts(done.nodes) == ["b", "a"]
