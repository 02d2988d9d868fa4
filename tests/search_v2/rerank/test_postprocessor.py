"""The rerank stage: who is scored, what the cache spares, what a failure leaves."""

import time

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from catalog.core.errors import RerankError
from catalog.retrieval.rerank.http import HttpReranker
from catalog.retrieval.rerank.scoring import RerankOptions, rerank_passages
from catalog.search_v2.nodes import to_passage
from catalog.search_v2.postprocessors import RerankPostprocessor
from catalog.store import Database
from catalog.store.llm_cache import ModelCache
from scripted import ScriptedReranker
from tables import table


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
    return [
        to_passage(one).chunk.text if isinstance(one, NodeWithScore) else one.chunk.text
        for one in found
    ]


class Stage:
    """Reranks the passages of nodes, and returns the outcome."""

    def __init__(self, reranker, cache=None, *, clock=time.perf_counter, **options):
        self.reranker, self.cache, self.clock = reranker, cache, clock
        self.options = RerankOptions(**options)

    def rerank(self, given, query):
        passages = [to_passage(node) for node in given]
        return rerank_passages(passages, query, self.reranker, self.cache, self.options, self.clock)


def test_nodes_of_any_retriever_are_ordered_by_the_blend_and_not_changed():
    reranker = ScriptedReranker({"a": -3.0, "b": 0.0, "c": 3.0})
    given = nodes("a", "b", "c")
    stage = RerankPostprocessor(reranker, blend="replace")
    assert texts(stage.postprocess_nodes(given, QueryBundle("q"))) == ["c", "b", "a"]
    assert [one.score for one in given] == [10.0, 9.0, 8.0]


def test_only_the_first_candidates_are_scored_and_the_others_follow():
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0, "c": 9.0, "d": 9.0})
    stage = Stage(reranker, candidates=2, blend="replace")
    done = stage.rerank(nodes("a", "b", "c", "d"), "q")
    assert texts(done.passages) == ["b", "a", "c", "d"]
    assert reranker.asked == ["a", "b"]
    assert "2 of 4 scored" in done.note
    stage = Stage(reranker, candidates=2, blend="replace", top_n=1)
    assert texts(stage.rerank(nodes("a", "b"), "q").passages) == ["b"]


def test_three_are_scored_and_blended_unless_another_number_is_asked_for():
    reranker = ScriptedReranker({"a": -1.0, "b": 4.0, "c": 1.0, "d": 9.0, "e": 9.0})
    done = Stage(reranker).rerank(nodes(*"abcde"), "q")
    # .7 of (10, 9, 8 as 1, .5, 0) and .3 of (-1, 4, 1 as 0, 1, .4); then d and e, however good
    assert texts(done.passages) == ["a", "b", "c", "d", "e"]
    assert [one.score for one in done.passages][:3] == pytest.approx([0.7, 0.65, 0.12])
    assert reranker.asked == list("abc")
    assert "3 of 5 scored" in done.note


def test_a_text_that_stands_twice_is_scored_once():
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0})
    done = Stage(reranker, blend="replace").rerank(nodes("a", "b", "b"), "q")
    assert reranker.asked == ["a", "b"]
    assert texts(done.passages) == ["b", "b", "a"]


def test_the_cache_spares_every_score_of_the_same_query_text_and_model(cache):
    reranker = ScriptedReranker({"a": 0.0, "b": 1.0, "c": 2.0})
    stage = Stage(reranker, cache, blend="replace")
    first = stage.rerank(nodes("a", "b"), "q")
    again = stage.rerank(nodes("a", "b", "c"), "q")
    assert reranker.asked == ["a", "b", "c"]
    assert "2 of them cached" in again.note
    assert texts(first.passages) == ["b", "a"]
    assert [one.score for one in again.passages[1:]] == [one.score for one in first.passages]
    stage.rerank(nodes("a"), "another query")
    assert reranker.asked == ["a", "b", "c", "a"]
    Stage(ScriptedReranker({"a": 5.0}, fingerprint="2"), cache).rerank(nodes("a"), "q")
    assert "1 of them cached" in stage.rerank(nodes("a"), "q").note


def test_a_budget_scores_as_many_as_fit_and_says_so():
    reranker = Timed(seconds=0.05)
    stage = Stage(reranker, blend="replace", budget_ms=120, clock=reranker.clock)
    done = stage.rerank(nodes("a", "c", "d", "e"), "q")
    assert reranker.asked == ["a", "c"]  # a third would end at 150 ms
    assert "2 of 4 scored; the budget of 120 ms allows no more" in done.note
    assert texts(done.passages) == ["c", "a", "d", "e"]


def test_a_failure_is_raised_to_those_who_ask_and_leaves_the_order_to_those_who_chain(caplog):
    reranker = ScriptedReranker({}, error=RerankError("no answer"))
    with pytest.raises(RerankError):
        Stage(reranker).rerank(nodes("a", "b"), "q")
    stage = RerankPostprocessor(reranker)
    assert texts(stage.postprocess_nodes(nodes("a", "b"), QueryBundle("q"))) == ["a", "b"]
    assert "no answer" in caplog.text
    caplog.clear()
    stage = RerankPostprocessor(
        Failing({"a": 0.0, "b": 1.0}, error=RerankError("no answer")), blend="replace"
    )
    done = stage.postprocess_nodes(nodes("a", "b", "bad"), QueryBundle("q"))
    assert texts(done) == ["b", "a", "bad"]
    assert "no answer" in caplog.text


class Failing(ScriptedReranker):
    """Raises ``error`` for the text ``bad``, or answers ``answer`` whatever it is asked."""

    def __init__(self, scores=0.0, *, error=None, answer=None, **settings):
        super().__init__(scores, **settings)
        self._raised, self._answer = error, answer

    def scores(self, query, passages):
        if "bad" in passages:
            raise self._raised
        return super().scores(query, passages) if self._answer is None else self._answer


def test_scores_made_before_a_failure_are_blended_and_cached(cache):
    error = RerankError("no answer")
    reranker = Failing({"a": 0.0, "b": 1.0, "c": 9.0}, error=error)
    stage = Stage(reranker, cache, blend="replace")
    done = stage.rerank(nodes("a", "b", "bad", "c"), "q")
    assert texts(done.passages) == ["b", "a", "bad", "c"]
    assert done.error is error
    assert "2 of 4 scored; stopped: no answer" in done.note
    assert reranker.asked == ["a", "b"]
    again = stage.rerank(nodes("a", "b"), "q")
    assert reranker.asked == ["a", "b"]
    assert again.error is None
    assert "stopped" not in again.note
    broken = ScriptedReranker({}, error=error)  # what was known before is not lost
    done = Stage(broken, cache, blend="replace").rerank(nodes("a", "b"), "q")
    assert texts(done.passages) == ["b", "a"]


def test_whatever_a_reranker_raises_is_a_rerank_error():
    stage = Stage(Failing(error=KeyError("lost")))
    with pytest.raises(RerankError, match="Failing failed: KeyError: 'lost'"):
        stage.rerank(nodes("bad"), "q")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_wish_to_stop_is_no_failure_of_the_reranker(stop):
    with pytest.raises(stop):
        Stage(Failing(error=stop())).rerank(nodes("bad"), "q")


@table("answer, said", inner=list)
def test_the_answer_of_any_reranker_is_checked(answer, said):
    with pytest.raises(RerankError, match=said):
        Stage(Failing(answer=answer)).rerank(nodes("a"), "q")
    reranker = ScriptedReranker({"a": 1.0})
    reranker.relevance = lambda _score: float("nan")
    with pytest.raises(RerankError, match="not finite"):
        Stage(reranker).rerank(nodes("a"), "q")


@pytest.mark.parametrize(
    ("headings", "read"),
    [
        ("Rotation", "Keys > Rotation\na"), (("Keys", "Rotation"), "Keys > Rotation\na"),
        ({"Rotation": 1}, "Keys\na"), (5, "Keys\na"), (None, "Keys\na"),
    ],
)  # fmt: skip
def test_headings_are_a_list_or_one_text(headings, read):
    reranker = ScriptedReranker(0.0)
    Stage(reranker).rerank(nodes("a", title="Keys", heading_path=headings), "q")
    assert reranker.asked == [read]


def test_a_server_whose_scores_are_logits_has_one_scale_for_kept_scores(cache):
    def rerank():
        server = HttpReranker("http://127.0.0.1:9/", model="m")
        server.scores = lambda _query, passages: [float(text) for text in passages]
        return Stage(server, cache, blend="replace").rerank(nodes("0.9", "4.0"), "q")

    fresh, kept = rerank(), rerank()
    assert "2 of them cached" in kept.note
    # 1 / (1 + e^-4) and 1 / (1 + e^-.9)
    for done in (fresh, kept):
        assert [one.score for one in done.passages] == pytest.approx([0.98201, 0.71095], abs=1e-5)


class Timed(ScriptedReranker):
    """Takes its ``seconds`` for each call."""

    def __init__(self, seconds=0.0):
        super().__init__({"a": 1.0, "c": 2.0, "d": 3.0})
        self.now, self.seconds = 100.0, seconds

    def clock(self):
        return self.now

    def scores(self, query, passages):
        self.now += self.seconds
        return super().scores(query, passages)
