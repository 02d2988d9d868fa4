"""The blends, worked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.retrieval.rerank.scoring import RerankScore, blend, sort_positions

BLENDS = ("position", "linear", "replace")


def judged(*raws):
    return [RerankScore(raw, 1 / (1 + math.exp(-raw))) for raw in raws]


def numbers(parts):
    return [(pytest.approx(fused), pytest.approx(reranked)) for fused, reranked in parts]


def test_position_weighs_by_rank_band():
    said = [RerankScore(0.0, 0.5)] * 11
    parts = blend("position", [1.0] * 11, said)
    assert numbers(parts)[0] == (0.75, 0.125)  # .75 / 1, .25 · .5
    assert numbers(parts)[2] == (0.25, 0.125)  # .75 / 3
    assert numbers(parts)[3] == (0.15, 0.2)  # .60 / 4, .40 · .5
    assert numbers(parts)[9] == (0.06, 0.2)
    assert numbers(parts)[10] == (pytest.approx(0.4 / 11), 0.3)


def test_linear_maps_both_to_their_range_before_weighing():
    parts = blend("linear", [9.0, 5.0, 1.0], judged(-2.0, 2.0, 0.0), weight=0.25)
    assert numbers(parts) == [(0.75, 0.0), (0.375, 0.25), (0.0, 0.125)]
    assert sort_positions(parts, 3) == [0, 1, 2]
    heavier = blend("linear", [9.0, 5.0, 1.0], judged(-2.0, 2.0, 0.0), weight=0.6)
    assert sort_positions(heavier, 3) == [1, 0, 2]  # .2 + .6 > .4 + 0 > 0 + .3


def test_linear_over_equal_scores_leaves_the_other_to_decide():
    parts = blend("linear", [3.0, 3.0], judged(-1.0, 4.0), weight=0.3)
    assert numbers(parts) == [(0.7, 0.0), (0.7, 0.3)]
    assert sort_positions(parts, 2) == [1, 0]


def test_replace_is_the_rerankers_own_relevance():
    parts = blend("replace", [9.0, 5.0], [RerankScore(-4.0, 0.02), RerankScore(4.0, 0.98)])
    assert numbers(parts) == [(0.0, 0.02), (0.0, 0.98)]
    assert sort_positions(parts, 2) == [1, 0]


@given(
    st.sampled_from(BLENDS),
    st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    st.data(),
)
def test_passages_that_were_not_scored_follow_in_their_order(name, raws, data):
    scored = data.draw(st.integers(0, len(raws)))
    fused = sorted((abs(raw) for raw in raws), reverse=True)
    places = sort_positions(blend(name, fused, judged(*raws[:scored])), scored)
    assert sorted(places) == list(range(len(raws)))
    assert places[scored:] == list(range(scored, len(raws)))


@given(
    st.sampled_from(["linear", "replace"]),
    st.lists(st.floats(-20, 20), min_size=1, max_size=10),
)
def test_a_reranker_that_agrees_changes_nothing(name, raws):
    fused = sorted(raws, reverse=True)
    parts = blend(name, fused, judged(*fused))
    assert sort_positions(parts, len(fused)) == list(range(len(fused)))
