"""Fusion against numbers worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.retrieval.fusion import RankedList, relative_score, rrf, single


def ranked(*ids, leg="lexical", weight=1.0, origin="original", scores=None):
    scores = scores or [float(len(ids) - i) for i in range(len(ids))]
    return RankedList(leg, "engine", "q", origin, weight, tuple(zip(ids, scores, strict=True)))


def by_id(fused):
    return {one.key: one.score for one in fused}


def test_rrf_without_bonus_is_the_papers_formula_counting_ranks_from_one():
    # a: 1/61 + 1/62; b: 1/62 + 1/61; c: 1/63
    fused = rrf([ranked("a", "b", "c"), ranked("b", "a")], bonus_first=0, bonus_second=0)
    assert by_id(fused) == pytest.approx({"a": 1 / 61 + 1 / 62, "b": 1 / 61 + 1 / 62, "c": 1 / 63})


def test_a_lists_weight_multiplies_its_contribution():
    # a: 2/61 = .032787; b: 1/61 = .016393
    fused = rrf([ranked("a", weight=2.0), ranked("b", weight=1.0)], bonus_first=0)
    assert by_id(fused) == pytest.approx({"a": 0.0327868852, "b": 0.0163934426})


def test_the_bonus_is_given_once_by_the_best_rank_in_an_original_list():
    # a is first in both lists: 1/61 + 1/61 + .05; b second in one: 1/62 + .02;
    # d fourth: 1/64 and nothing
    fused = by_id(rrf([ranked("a", "b", "c", "d"), ranked("a")]))
    assert fused["a"] == pytest.approx(2 / 61 + 0.05)
    assert fused["b"] == pytest.approx(1 / 62 + 0.02)
    assert fused["c"] == pytest.approx(1 / 63 + 0.02)
    assert fused["d"] == pytest.approx(1 / 64)


def test_an_expansion_list_earns_no_bonus():
    fused = by_id(rrf([ranked("a", "b", "c", "d"), ranked("x", origin="expansion")]))
    assert fused["x"] == pytest.approx(1 / 61)


def test_order_is_by_score_then_by_best_single_rank_then_by_id():
    # A list of equal scores gives each passage its whole weight:
    #   z, y: 1 each, at ranks 1 and 2;  c, b: 1 each, at ranks 1 and 2;  m, n: 3 each, 1 and 2
    fused = relative_score(
        [
            ranked("z", "y", scores=[1.0, 1.0]),
            ranked("c", "b", scores=[1.0, 1.0]),
            ranked("m", "n", weight=3.0, scores=[1.0, 1.0]),
        ]
    )
    assert [one.score for one in fused] == [3.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    # the higher score though n is second; then rank 1 though z is last by id; then the smaller id
    assert [one.key for one in fused] == ["m", "n", "c", "z", "b", "y"]


def test_equal_sums_of_reciprocal_ranks_go_to_the_better_single_rank():
    # with k = 1: b is 1/(1+1) = 1/2, a is 1/(1+3) + 1/(1+3) = 1/2; b stands first, a third
    lists = [ranked("b"), ranked("x", "y", "a"), ranked("x", "y", "a")]
    fused = rrf(lists, k=1, bonus_first=0, bonus_second=0)
    assert by_id(fused)["a"] == by_id(fused)["b"]
    assert [one.key for one in fused] == ["x", "y", "b", "a"]


def test_relative_score_maps_each_list_to_its_own_range():
    # lexical 10, 6, 2 -> 1, .5, 0; vector .9, .8 -> 1, 0; weights 1 and 3
    fused = relative_score(
        [
            ranked("a", "b", "c", scores=[10.0, 6.0, 2.0]),
            ranked("b", "a", leg="vector", weight=3.0, scores=[0.9, 0.8]),
        ]
    )
    assert by_id(fused) == pytest.approx({"b": 0.5 + 3.0, "a": 1.0, "c": 0.0})


def test_words_speak_for_both_legs_where_a_passage_has_no_vector_yet():
    lists = [ranked("a", "b", weight=1.0), ranked("c", "a", leg="vector", weight=3.0)]
    # b has no vector: 1/62 of weight 1 counts as (1 + 3) / 1; a: 1/61 + 3/62; c: 3/61
    fused = by_id(rrf(lists, bonus_first=0, bonus_second=0, unembedded={"b"}))
    assert fused == pytest.approx({"a": 1 / 61 + 3 / 62, "b": 4 / 62, "c": 3 / 61})
    assert by_id(rrf(lists, bonus_first=0, bonus_second=0))["b"] == pytest.approx(1 / 62)


def test_a_passage_without_a_vector_is_where_it_would_be_if_both_legs_ranked_it_alike():
    def place(lists, **more):
        return [one.key for one in rrf(lists, **more)].index("new")

    words = ranked("a", "new", "b", "c")
    whole = place([words, ranked("b", "new", "a", "c", leg="vector")])
    waiting = [words, ranked("b", "a", "c", leg="vector")]
    assert place(waiting, unembedded={"new"}) == whole == 2
    assert place(waiting) == 3  # without that it would be behind


def test_relative_score_speaks_for_both_legs_likewise():
    lists = [ranked("a", "b", "c"), ranked("a", "c", leg="vector")]
    # b: (2 - 1) / (3 - 1) = .5 of weight 1, counted for two lists of weight 1
    assert by_id(relative_score(lists, unembedded={"b"}))["b"] == pytest.approx(1.0)
    assert by_id(relative_score(lists))["b"] == pytest.approx(0.5)


def test_a_list_of_equal_scores_gives_each_passage_its_whole_weight():
    assert by_id(relative_score([ranked("a", "b", scores=[1.0, 1.0])])) == {"a": 1.0, "b": 1.0}


def test_a_single_list_keeps_its_engines_scores():
    assert by_id(single(ranked("a", "b", scores=[7.5, 1.25]))) == {"a": 7.5, "b": 1.25}


def test_nothing_fused_is_nothing():
    assert rrf([]) == relative_score([]) == rrf([ranked()]) == relative_score([ranked()]) == []


ids = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(st.lists(ids, max_size=4), st.integers(1, 100))
def test_every_score_adds_up_and_no_input_changes(lists, k):
    given_lists = [ranked(*one, weight=1.5) for one in lists]
    copies = [RankedList(o.leg, o.engine, o.query, o.origin, o.weight, o.hits) for o in given_lists]
    for fused in (rrf(given_lists, k=k), relative_score(given_lists)):
        assert given_lists == copies
        assert {one.key for one in fused} == {i for one in lists for i in one}
        assert [one.score for one in fused] == sorted((o.score for o in fused), reverse=True)
        for one in fused:
            assert sum(share.contribution for share in one.contributions) + one.bonus == one.score


@given(ids, ids)
def test_rrf_does_not_depend_on_the_order_of_the_lists(one, other):
    lists = [ranked(*one), ranked(*other, leg="vector")]
    forward, backward = rrf(lists), rrf(lists[::-1])
    assert [o.key for o in forward] == [o.key for o in backward]
