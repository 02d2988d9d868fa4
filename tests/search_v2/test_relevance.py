"""Relevance: the formula, what it sees of a passage, and whose calibration is used."""

import json
import math
from dataclasses import asdict, fields, replace
from importlib.resources import files

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from catalog.core.documents import Chunk, Locator
from catalog.core.results import Reranked
from catalog.search_v2.fusion import RankedList, rrf
from catalog.search_v2.passages import Passage
from catalog.search_v2.relevance import (
    Calibration,
    Features,
    RelevanceEstimator,
    Signals,
    extract_features,
    find_calibration,
    save_calibration,
)
from catalog.search_v2.search_parts import SearchParts
from fakes import open_library
from scripted import ScriptedReranker

MADE = Calibration(constant=-1.0, fused=2.0, cosine=3.0, lexical=0.5, rerank=0.25, about="by hand")
SIGNALS = Signals(
    mode="hybrid",
    fusion="adaptive",
    embedding="words-1",
    lexical_engine="bm25",
    lexical_weight=1.0,
    vector_weight=1.0,
    reranker="",
)


def chunk(name):
    return Chunk(
        seq=1,
        chunk_id=name,
        source_doc_id="notes:a.md",
        dataset="notes",
        path="a.md",
        docid="3fa9c1ab",
        title="",
        position=0,
        start_offset=0,
        end_offset=4,
        heading_path=(),
        modality="text",
        locator=Locator(),
        text="text",
    )


def ranked(leg, *hits, origin="original", weight=2.0):
    return RankedList(leg, "engine", "query", origin, weight, hits)


def passages(*lists, raw=None, heard=("lex", "vec")):
    """What fusing the lists gives (1 / rank, no bonus), by chunk; ``raw``: what was reranked."""
    found = {}
    for one in rrf(lists, k=0, bonus_first=0.0, bonus_second=0.0):
        node = Passage(chunk(one.chunk_id), one.score, one, frozenset(heard)).to_node()
        if raw is not None:
            record = Reranked(
                model="m",
                blend="linear",
                rank=1,
                raw_score=raw.get(one.chunk_id),
                relevance=None,
                fused_part=1.0,
                rerank_part=0.0,
            )
            node = node.with_rerank(1.0, record)
        found[one.chunk_id] = node
    return found


def seen(found, original_weight=2.0):
    return dict(zip(found, extract_features(list(found.values()), original_weight), strict=True))


def test_relevance_is_the_logistic_of_the_weighted_sum():
    # -1 + 2 * .5 + 3 * .8 + .5 * 2 + .25 * -4 = 2.4; 1 / (1 + e^-2.4) = .91683
    assert MADE.relevance(Features(fused=0.5, cosine=0.8, lexical=2.0, rerank=-4.0)) == (
        pytest.approx(0.916827, abs=1e-6)
    )
    assert Calibration(0, 0, 0, 0, 0).relevance(Features(1, 1, 1, 1)) == 0.5


@pytest.mark.parametrize("far", [1e3, 1e300, -1e3, -1e300])
def test_relevance_stays_above_0_and_at_most_1_however_far_out(far):
    told = Calibration(0, 0, 0, 0, rerank=1.0).relevance(Features(0, 0, 0, rerank=far))
    assert 0 < told <= 1
    assert (told > 0.5) == (far > 0)


def test_a_passage_is_seen_by_its_fused_share_cosine_and_logarithm_of_bm25():
    found = passages(ranked("lexical", ("a", 7.0), ("b", 3.0)), ranked("vector", ("a", 0.9)))
    # first in both lists of weight 2: (2/1 + 2/1) / 2 = 2; second in one: 2/2 / 2 = .5
    assert seen(found)["a"] == Features(2.0, 0.9, math.log(8), 0.0)
    assert seen(found)["b"].fused == 0.5


def test_a_passage_of_the_lexical_leg_alone_has_the_cosine_of_the_last_vector_hit():
    found = passages(
        ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9), ("c", 0.6), ("d", 0.4))
    )
    assert seen(found)["a"].cosine == 0.4
    # also when that last hit is not among the passages
    assert seen({name: found[name] for name in ("a", "b")})["a"].cosine == 0.4


def test_a_passage_of_the_vector_leg_alone_has_a_lexical_feature_of_0():
    found = passages(ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9)))
    assert seen(found)["b"] == Features(1.0, 0.9, 0.0, 0.0)


def test_without_a_vector_leg_every_cosine_is_0():
    assert seen(passages(ranked("lexical", ("a", 7.0))))["a"].cosine == 0.0


def test_a_passage_without_a_vector_is_judged_as_in_a_search_by_words():
    lists = (ranked("lexical", ("a", 7.0), ("b", 3.0)), ranked("vector", ("a", 0.9)))
    both, words = passages(*lists)["a"], passages(*lists, heard=("lex",))["b"]
    features = extract_features([both, words], 2.0)
    assert features[0] == Features(2.0, 0.9, math.log(8), 0.0)
    assert features[1].fused == 1.5  # the score that it has in its list alone, by weight 2
    by_mode = {
        "hybrid": MADE,
        "lexical": Calibration(constant=0.5, fused=0.0, cosine=0.0, lexical=0.0, rerank=0.0),
    }
    estimator = RelevanceEstimator(lambda mode, reranked: by_mode.get(mode))
    hybrid, lexical = estimator.postprocess_nodes([both, words])
    assert hybrid.relevance == MADE.relevance(features[0])
    assert lexical.relevance == pytest.approx(0.622459, abs=1e-6)  # 1 / (1 + e^-0.5)
    del by_mode["lexical"]
    assert [node.relevance is None for node in estimator.postprocess_nodes([both, words])] == [
        False,
        True,
    ]


def test_what_an_expansion_found_does_not_count():
    own = (ranked("lexical", ("a", 7.0)), ranked("vector", ("a", 0.8), ("b", 0.5)))
    expansions = (
        ranked("lexical", ("b", 40.0), ("c", 30.0), origin="expansion", weight=1.0),
        ranked("vector", ("c", 0.99), ("a", 0.97), ("d", 0.1), origin="expansion", weight=1.0),
    )
    plain, expanded = seen(passages(*own)), seen(passages(*own, *expansions))
    assert {name: expanded[name] for name in plain} == plain
    assert expanded["c"] == Features(0.0, 0.5, 0.0, 0.0)


def test_a_passage_the_reranker_was_not_given_counts_like_the_worst_it_was():
    found = passages(
        ranked("lexical", ("a", 7.0), ("b", 6.0), ("c", 5.0)), raw={"a": -2.5, "b": 4.0}
    )
    assert {name: one.rerank for name, one in seen(found).items()} == {
        "a": -2.5,
        "b": 4.0,
        "c": -2.5,
    }


def test_a_weight_of_0_of_the_original_lists_is_no_division_by_0():
    found = passages(ranked("lexical", ("a", 7.0), weight=0.0))
    assert seen(found, original_weight=0.0)["a"].fused == 0.0


def find_made(mode, *, reranked):
    """Find the calibration of whatever was asked."""
    return MADE if (mode, reranked) == ("hybrid", False) else None


@pytest.mark.parametrize("heard", [{"lex"}, {"vec"}, {"lex", "hyde"}, {"hyde"}, set()])
def test_a_search_whose_legs_are_not_those_calibrated_has_no_relevance(heard):
    found = passages(ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9)), heard=heard)
    told = RelevanceEstimator(find_made, 2.0).postprocess_nodes([found["a"]], query_str="q")
    assert told[0].relevance is None


def test_the_estimator_judges_passages_in_their_order_and_leaves_other_nodes_alone():
    found = passages(ranked("lexical", ("a", 7.0), ("b", 3.0)), ranked("vector", ("b", 0.9)))
    other = NodeWithScore(node=TextNode(text="someone else's"), score=5.0)
    given = [found["a"], other, found["b"]]
    told = RelevanceEstimator(find_made, 2.0).postprocess_nodes(given, query_str="q")
    assert [one.node_id for one in told] == [one.node_id for one in given]
    assert [one.score for one in told] == [one.score for one in given]
    assert told[1] is other
    by_hand = extract_features([found["a"], found["b"]], 2.0)
    assert [told[0].relevance, told[2].relevance] == [MADE.relevance(one) for one in by_hand]
    assert found["a"].relevance is None, "the given passage is not changed"


@pytest.mark.parametrize("name", [field.name for field in fields(Signals)])
def test_signals_that_differ_in_one_thing_have_another_key(name):
    other = 2.0 if name.endswith("_weight") else "another"
    assert replace(SIGNALS, **{name: other}).key != SIGNALS.key
    assert replace(SIGNALS).key == SIGNALS.key


@pytest.fixture
def parts(tmp_path):
    with open_library(tmp_path / "home") as library:
        yield SearchParts(library, make_reranker=lambda: ScriptedReranker(1.0))


def test_signals_leave_out_what_the_mode_does_not_use(parts):
    lexical = parts.signals("lexical", reranked=False)
    assert (lexical.fusion, lexical.embedding, lexical.reranker) == ("none", "", "")
    weighed = parts.with_settings(
        {"vector_weight": 3.0, "lexical_weight": 2.0, "fusion_mode": "rrf"}
    )
    assert weighed.signals("lexical", reranked=False) == lexical
    vector = weighed.signals("vector", reranked=True)
    assert (vector.lexical_engine, vector.embedding) == ("", "words-1")
    assert vector.reranker == "scripted-1"
    hybrid = weighed.signals("hybrid", reranked=False)
    assert (hybrid.fusion, hybrid.lexical_weight, hybrid.vector_weight) == ("rrf 60", 2.0, 3.0)


def test_the_constant_of_rrf_is_part_of_its_scale_and_of_no_other_fusions(parts):
    def key(**changes):
        return parts.with_settings(changes).signals("hybrid", reranked=False).key

    assert key(fusion_mode="rrf", rrf_k=1) != key(fusion_mode="rrf", rrf_k=60)
    assert key(fusion_mode="adaptive", rrf_k=1) == key(fusion_mode="adaptive", rrf_k=60)


def test_a_calibration_made_for_an_older_scale_of_adaptive_fusion_is_not_used(parts):
    now = parts.signals("hybrid", reranked=False)
    save_calibration(parts.database, replace(now, fusion="adaptive"), MADE)
    assert find_calibration(parts.database, now) is None


def test_a_kept_calibration_is_read_by_a_newly_opened_library(parts, tmp_path):
    signals = parts.signals("lexical", reranked=False)
    save_calibration(parts.database, signals, MADE)
    with open_library(tmp_path / "home") as opened:
        assert SearchParts(opened).calibration("lexical", reranked=False) == MADE
        assert find_calibration(opened.database, replace(signals, embedding="another")) is None
    again = replace(MADE, constant=7.0)
    save_calibration(parts.database, signals, again)
    assert find_calibration(parts.database, signals) == again


def test_a_view_with_another_fusion_has_another_calibration(parts):
    view = parts.with_settings({"fusion_mode": "rrf"})
    save_calibration(parts.database, parts.signals("hybrid", reranked=False), MADE)
    other = replace(MADE, constant=3.0)
    save_calibration(parts.database, view.signals("hybrid", reranked=False), other)
    assert parts.calibration("hybrid", reranked=False) == MADE
    assert view.calibration("hybrid", reranked=False) == other
    same = parts.with_settings({"max_chunks_per_doc": 7})
    assert same.calibration("hybrid", reranked=False) == MADE


def test_every_packaged_calibration_loads_and_belongs_to_signals_of_its_own():
    text = files("catalog.search_v2").joinpath("calibrations.json").read_text(encoding="utf-8")
    keys = []
    for one in json.loads(text):
        assert set(one) == {"signals", "calibration"}
        signals, made = Signals(**one["signals"]), Calibration(**one["calibration"])
        keys.append(signals.key)
        numbers = {name: value for name, value in asdict(made).items() if name != "about"}
        assert all(isinstance(value, (int, float)) for value in numbers.values()), one
        assert all(map(math.isfinite, numbers.values())), one
        assert made.about.strip(), one
        assert asdict(signals) == one["signals"], "no field is left to a default"
    assert len(set(keys)) == len(keys)


def test_a_stores_own_calibration_comes_before_the_packaged_one(parts, monkeypatch):
    signals = parts.signals("lexical", reranked=False)
    packaged = {signals.key: replace(MADE, about="packaged")}
    monkeypatch.setattr("catalog.search_v2.relevance._packaged", lambda: packaged)
    assert find_calibration(parts.database, signals).about == "packaged"
    save_calibration(parts.database, signals, MADE)
    assert find_calibration(parts.database, signals) == MADE
