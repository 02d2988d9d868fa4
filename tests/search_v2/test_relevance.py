"""Relevance: the formula, what it sees of a passage, and whose calibration is used."""

import json
import math
from dataclasses import asdict, fields, replace
from importlib.resources import files

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from catalog.core.documents import Chunk, Locator
from catalog.core.results import Reranked
from catalog.search_v2.adaptive import adaptive
from catalog.search_v2.fusion import RankedList, relative_score, rrf
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
from catalog.store.engine_types import Spread
from fakes import open_library
from scripted import ScriptedReranker

MADE = Calibration(constant=-1.0, cosine=3.0, lexical=0.5, rank=2.0, rerank=0.25, about="by hand")
SIGNALS = Signals(
    mode="hybrid",
    embedding="words-1",
    lexical_engine="bm25",
    reranker="",
)


def chunk(name, text="text"):
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
        end_offset=len(text),
        heading_path=(),
        modality="text",
        locator=Locator(),
        text=text,
    )


def ranked(leg, *hits, origin="original", weight=2.0):
    """Hits over chunks whose scores have the mean 1 and the deviation 2."""
    return RankedList(leg, "engine", "query", origin, weight, hits, Spread(1.0, 2.0))


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


def seen(found):
    return dict(zip(found, extract_features(list(found.values())), strict=True))


def test_relevance_is_the_logistic_of_the_weighted_sum():
    # -1 + 3 * .8 + .5 * 2 + 2 * .5 + .25 * -4 = 2.4; 1 / (1 + e^-2.4) = .91683
    assert MADE.relevance(Features(cosine=0.8, lexical=2.0, rank=0.5, rerank=-4.0)) == (
        pytest.approx(0.916827, abs=1e-6)
    )
    assert Calibration(0, 0, 0, 0, 0).relevance(Features(1, 1, 1, 1)) == 0.5


@pytest.mark.parametrize("far", [1e3, 1e300, -1e3, -1e300])
def test_relevance_stays_above_0_and_at_most_1_however_far_out(far):
    told = Calibration(0, 0, 0, 0, rerank=1.0).relevance(Features(0, 0, 0, rerank=far))
    assert 0 < told <= 1
    assert (told > 0.5) == (far > 0)


def test_a_passage_is_seen_by_its_cosine_how_far_its_words_stand_out_and_its_place():
    found = passages(ranked("lexical", ("a", 7.0), ("b", 3.0)), ranked("vector", ("a", 0.9)))
    # 7 and 3 are 3 and 1 deviations of 2 above the mean of 1
    assert seen(found)["a"] == Features(0.9, math.log(4), 1.0, 0.0)
    assert seen(found)["b"] == Features(0.9, math.log(2), 0.5, 0.0)


def test_a_score_below_the_mean_and_one_of_a_flat_list_stand_out_by_nothing():
    below = passages(ranked("lexical", ("a", 0.5)), ranked("vector", ("a", 0.9)))
    assert seen(below)["a"].lexical == 0.0
    flat = replace(ranked("lexical", ("a", 7.0)), spread=Spread(7.0, 0.0))
    assert seen(passages(flat))["a"].lexical == 0.0


@pytest.mark.parametrize("fuse", [adaptive, rrf, relative_score])
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_relevance_does_not_depend_on_how_the_legs_are_fused_and_weighed(fuse, weight):
    lists = (ranked("lexical", ("a", 7.0), weight=weight), ranked("vector", ("a", 0.9)))
    (hit,) = fuse(lists)
    passage = Passage(chunk("a"), hit.score, hit, frozenset({"lex", "vec"}))
    assert extract_features([passage]) == [Features(0.9, math.log(4), 1.0, 0.0)]


def test_a_passage_of_the_lexical_leg_alone_has_the_cosine_of_the_last_vector_hit():
    found = passages(
        ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9), ("c", 0.6), ("d", 0.4))
    )
    assert seen(found)["a"].cosine == 0.4
    # also when that last hit is not among the passages
    assert seen({name: found[name] for name in ("a", "b")})["a"].cosine == 0.4


def test_a_passage_of_the_vector_leg_alone_has_a_lexical_feature_of_0():
    found = passages(ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9)))
    assert seen(found)["b"] == Features(0.9, 0.0, 0.5, 0.0)


def test_without_a_vector_leg_every_cosine_is_0():
    assert seen(passages(ranked("lexical", ("a", 7.0))))["a"].cosine == 0.0


def test_a_passage_without_a_vector_is_judged_as_in_a_search_by_words():
    lists = (ranked("lexical", ("a", 7.0), ("b", 3.0)), ranked("vector", ("a", 0.9)))
    both, words = passages(*lists)["a"], passages(*lists, heard=("lex",))["b"]
    features = extract_features([both, words])
    by_mode = {
        "hybrid": MADE,
        "lexical": Calibration(constant=0.5, cosine=0.0, lexical=0.0, rank=0.0, rerank=0.0),
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
    assert {name: (expanded[name].cosine, expanded[name].lexical) for name in plain} == {
        name: (one.cosine, one.lexical) for name, one in plain.items()
    }
    assert (expanded["c"].cosine, expanded["c"].lexical) == (0.5, 0.0)


def test_a_passage_the_reranker_was_not_given_counts_like_the_worst_it_was():
    found = passages(
        ranked("lexical", ("a", 7.0), ("b", 6.0), ("c", 5.0)), raw={"a": -2.5, "b": 4.0}
    )
    assert {name: one.rerank for name, one in seen(found).items()} == {
        "a": -2.5,
        "b": 4.0,
        "c": -2.5,
    }


def find_made(mode, *, reranked):
    """Find the calibration of whatever was asked."""
    return MADE if (mode, reranked) == ("hybrid", False) else None


@pytest.mark.parametrize("heard", [{"lex"}, {"vec"}, {"lex", "hyde"}, {"hyde"}, set()])
def test_a_search_whose_legs_are_not_those_calibrated_has_no_relevance(heard):
    found = passages(ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9)), heard=heard)
    told = RelevanceEstimator(find_made).postprocess_nodes([found["a"]], query_str="q")
    assert told[0].relevance is None


def test_the_estimator_judges_passages_in_their_order_and_leaves_other_nodes_alone():
    found = passages(ranked("lexical", ("a", 7.0), ("b", 3.0)), ranked("vector", ("b", 0.9)))
    other = NodeWithScore(node=TextNode(text="someone else's"), score=5.0)
    given = [found["a"], other, found["b"]]
    told = RelevanceEstimator(find_made).postprocess_nodes(given, query_str="q")
    assert [one.node_id for one in told] == [one.node_id for one in given]
    assert [one.score for one in told] == [one.score for one in given]
    assert told[1] is other
    by_hand = extract_features([found["a"], found["b"]])
    assert [told[0].relevance, told[2].relevance] == [MADE.relevance(one) for one in by_hand]
    assert found["a"].relevance is None, "the given passage is not changed"


@pytest.mark.parametrize("name", [field.name for field in fields(Signals)])
def test_signals_that_differ_in_one_thing_have_another_key(name):
    assert replace(SIGNALS, **{name: "another"}).key != SIGNALS.key
    assert replace(SIGNALS).key == SIGNALS.key


@pytest.fixture
def parts(tmp_path):
    with open_library(tmp_path / "home") as library:
        yield SearchParts(library, make_reranker=lambda: ScriptedReranker(1.0))


def test_signals_leave_out_what_the_mode_does_not_use(parts):
    lexical = parts.signals("lexical", reranked=False)
    assert (lexical.embedding, lexical.reranker) == ("", "")
    vector = parts.signals("vector", reranked=True)
    assert (vector.lexical_engine, vector.embedding) == ("", "words-1")
    assert vector.reranker == "scripted-1"


@pytest.mark.parametrize("fusion", ["adaptive", "rrf", "relative_score"])
def test_every_fusion_and_weight_shares_a_calibration_for_the_legs_scores_are_the_same(
    parts, fusion
):
    view = parts.with_settings({"fusion_mode": fusion, "vector_weight": 3.0})
    save_calibration(parts.database, parts.signals("hybrid", reranked=False), MADE)
    assert view.calibration("hybrid", reranked=False) == MADE


def test_passages_in_another_language_than_was_fitted_on_have_no_relevance():
    english = replace(MADE, language="english")
    estimator = RelevanceEstimator(lambda mode, reranked: english)
    (hit,) = rrf([ranked("lexical", ("a", 7.0)), ranked("vector", ("a", 0.9))])

    def relevance(text):
        passage = Passage(chunk("a", text), hit.score, hit, frozenset({"lex", "vec"}))
        (told,) = estimator.postprocess_nodes([passage.to_node()])
        return told.relevance

    assert relevance("The keys are rotated when the service is restarted by its owner.") is not None
    assert relevance("Optionと同様、Resultは多くのメソッドを持ちます。") is None
    assert relevance("rotate_keys(x, y)") is not None, "it does not tell its language"


def test_a_kept_calibration_is_read_by_a_newly_opened_library(parts, tmp_path):
    signals = parts.signals("lexical", reranked=False)
    save_calibration(parts.database, signals, MADE)
    with open_library(tmp_path / "home") as opened:
        assert SearchParts(opened).calibration("lexical", reranked=False) == MADE
        assert find_calibration(opened.database, replace(signals, embedding="another")) is None
    again = replace(MADE, constant=7.0)
    save_calibration(parts.database, signals, again)
    assert find_calibration(parts.database, signals) == again


def test_every_packaged_calibration_loads_and_belongs_to_signals_of_its_own():
    text = files("catalog.search_v2").joinpath("calibrations.json").read_text(encoding="utf-8")
    keys = []
    for one in json.loads(text):
        assert set(one) == {"signals", "calibration"}
        signals, made = Signals(**one["signals"]), Calibration(**one["calibration"])
        keys.append(signals.key)
        numbers = {
            name: value for name, value in asdict(made).items() if name not in ("about", "language")
        }
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
