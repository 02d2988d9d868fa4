"""Adaptive fusion against numbers worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.search_v2.adaptive import DEPTH, Balance, Confidence, Scale, adaptive, confidence
from catalog.search_v2.fusion import RankedList


def ranked(leg, scores, *, weight=1.0, origin="original"):
    return RankedList(leg, "engine", "q", origin, weight, tuple(scores.items()))


def spread(names, first, last):
    """Names with scores falling evenly from first to last."""
    step = (first - last) / (len(names) - 1)
    return {name: first - step * n for n, name in enumerate(names)}


def test_a_lexical_list_is_filled_up_with_zeros_because_other_passages_hold_no_word():
    # one hit of 10 among 100: mean .1, deviation sqrt(1 - .01) = .99499, z = 9.94987
    scale = Scale.of(ranked("lexical", {"a": 10.0}))
    assert scale.mean == pytest.approx(0.1)
    assert scale.best == pytest.approx(9.9498744)
    assert scale.flat == pytest.approx(0.01)
    assert scale.floor == 0.0
    assert scale.part(10.0) == pytest.approx(9.9498744)


def test_a_vector_list_is_scaled_by_its_own_scores_and_its_last_part_is_zero():
    # .9 .8 .7: mean .8, deviation .0816497; z 1.2247, 0, -1.2247; parts 2.4495, 1.2247, 0
    scale = Scale.of(ranked("vector", {"a": 0.9, "b": 0.8, "c": 0.7}))
    parts = [scale.part(score) for score in (0.9, 0.8, 0.7)]
    assert parts == pytest.approx([2.4494897, 1.2247449, 0.0])
    assert scale.part(0.1) == 0.0


def test_the_share_of_the_vector_leg_is_the_formulas():
    # flat .01, z_lexical 9.94987, z_vector 1.224745: -.39 + 3.12 * .01 - .41 * 9.94987
    # + .44 * 1.224745 = -3.899361; 1 / (1 + e^3.899361) = 0.019853
    seen = confidence(
        ranked("lexical", {"a": 10.0}), ranked("vector", {"b": 0.9, "a": 0.8, "c": 0.7})
    )
    share = Balance().vector_share(seen)
    assert share == pytest.approx(0.019853, abs=1e-6)
    fused = adaptive(
        [ranked("lexical", {"a": 10.0}), ranked("vector", {"b": 0.9, "a": 0.8, "c": 0.7})]
    )
    # a: (1 - 0.019853) * 9.94987 + 0.019853 * 1.224745 = 9.776657
    # b: 0.019853 * 2.44949 = 0.048629; c: 0
    assert {one.chunk_id: one.score for one in fused} == pytest.approx(
        {"a": 9.776657, "b": 0.048629, "c": 0.0}, abs=1e-5
    )


def test_a_rare_word_makes_the_lexical_leg_count_and_a_flat_list_the_vector_leg():
    vector = ranked("vector", spread([f"v{n}" for n in range(DEPTH)], 0.8, 0.5))
    rare = ranked("lexical", {"a": 9.0})
    flat = ranked("lexical", spread([f"l{n}" for n in range(DEPTH)], 9.0, 8.0))
    balance = Balance()
    assert balance.vector_share(confidence(rare, vector)) < 0.15
    assert balance.vector_share(confidence(flat, vector)) > 0.85


def test_what_lies_deeper_than_the_first_hundred_changes_nothing_before_it():
    names = [f"v{n:03}" for n in range(300)]
    lexical = ranked("lexical", spread(names[::3], 9.0, 1.0))
    deep_scores = spread(names, 0.9, 0.3)
    first = dict(list(deep_scores.items())[:DEPTH])
    deep = adaptive([lexical, ranked("vector", deep_scores)])
    shallow = adaptive([lexical, ranked("vector", first)])
    assert [(one.chunk_id, one.score) for one in deep][:100] == [
        (one.chunk_id, one.score) for one in shallow
    ][:100]


def test_a_leg_that_is_alone_or_found_nothing_leaves_the_order_to_the_other():
    vector = ranked("vector", {"b": 0.9, "a": 0.8, "c": 0.7})
    assert [one.chunk_id for one in adaptive([vector])] == ["b", "a", "c"]
    assert [one.chunk_id for one in adaptive([ranked("lexical", {}), vector])] == ["b", "a", "c"]
    assert adaptive([]) == adaptive([ranked("lexical", {}), ranked("vector", {})]) == []


def test_a_leg_that_is_alone_has_all_of_the_score():
    # the parts worked out above, undivided
    vector = ranked("vector", {"a": 0.9, "b": 0.8, "c": 0.7})
    assert [one.score for one in adaptive([vector])] == pytest.approx([2.4494897, 1.2247449, 0.0])
    lexical = ranked("lexical", {"a": 10.0})
    assert [one.score for one in adaptive([lexical])] == pytest.approx([9.9498744])


def test_a_lexical_leg_that_found_nothing_is_neither_flat_nor_sure():
    vector = ranked("vector", {"a": 0.9, "b": 0.8, "c": 0.7})
    lexical = ranked("lexical", {})
    seen = confidence(lexical, vector)
    assert (seen.flat, seen.lexical) == (0.0, 0.0)
    # -.39 + .44 * 1.2247449 = .1488877; 1 / (1 + e^-.1488877) = .5371533, of 2.4494897: 1.3157516
    assert adaptive([lexical, vector])[0].score == pytest.approx(1.3157516)


def test_how_flat_a_list_is_is_its_mean_beside_its_best():
    # 12 among 100: mean .12, of 8 .015; a last score of zero makes no difference
    assert Scale.of(ranked("lexical", {"a": 8.0, "b": 4.0})).flat == pytest.approx(0.015)
    assert Scale.of(ranked("lexical", {"a": 8.0, "b": 4.0, "c": 0.0})).flat == pytest.approx(0.015)


def test_a_list_whose_best_score_is_not_above_zero_is_not_flat():
    for best in (0.0, -0.1):
        assert Scale.of(ranked("lexical", {"a": best, "b": -0.3})).flat == 0.0


def test_the_surest_query_overflows_nothing():
    sure = Confidence(flat=0.0, lexical=1e6, vector=0.0)
    assert Balance(lexical=-1.0).vector_share(sure) == pytest.approx(0.0, abs=1e-12)
    assert Balance(lexical=1.0).vector_share(sure) == pytest.approx(1.0, abs=1e-12)


def test_equal_scores_are_no_reason_to_prefer_anything():
    # no spread: every z is 0, every part 0; then best rank, then id
    fused = adaptive([ranked("vector", {"b": 0.5, "a": 0.5}), ranked("lexical", {"c": 3.0})])
    assert [one.chunk_id for one in fused] == ["c", "b", "a"]


def test_an_expansion_list_counts_by_its_weight_and_does_not_move_the_balance():
    lexical, vector = ranked("lexical", {"a": 9.0}), ranked("vector", spread("abcd", 0.9, 0.6))
    # 10 among 100: mean .1, deviation sqrt((81 + 1) / 100 - .01) = .9; z 8.9 / .9 and 1
    more = ranked("lexical", {"x": 9.0, "y": 1.0}, weight=0.5, origin="expansion")
    before = {one.chunk_id: one.score for one in adaptive([lexical, vector])}
    after = {one.chunk_id: one.score for one in adaptive([lexical, vector, more])}
    assert {name: after[name] for name in before} == before
    share = 1 - Balance().vector_share(confidence(lexical, vector))
    assert after["x"] == pytest.approx(0.5 * share * 8.9 / 0.9)
    assert after["y"] == pytest.approx(0.5 * share)


scores = st.dictionaries(
    st.sampled_from([f"c{n}" for n in range(30)]), st.floats(0.001, 50), max_size=30
).map(lambda found: dict(sorted(found.items(), key=lambda hit: -hit[1])))


@given(scores, scores)
def test_every_score_adds_up_is_not_negative_and_inputs_do_not_change(lexical, vector):
    lists = [ranked("lexical", lexical, weight=2.0), ranked("vector", vector, weight=2.0)]
    fused = adaptive(lists)
    assert {one.chunk_id for one in fused} == lexical.keys() | vector.keys()
    assert all(one.score == sum(share.contribution for share in one.contributions) for one in fused)
    assert all(one.score >= 0 for one in fused)
    assert lists == [ranked("lexical", lexical, weight=2.0), ranked("vector", vector, weight=2.0)]


@given(scores, scores, st.floats(0.01, 100))
def test_the_unit_of_a_legs_scores_does_not_matter(lexical, vector, unit):
    plain = adaptive([ranked("lexical", lexical), ranked("vector", vector)])
    scaled = {name: score * unit for name, score in lexical.items()}
    other = {
        one.chunk_id: one.score
        for one in adaptive([ranked("lexical", scaled), ranked("vector", vector)])
    }
    assert other == pytest.approx({one.chunk_id: one.score for one in plain}, rel=1e-6, abs=1e-6)
