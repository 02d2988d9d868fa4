"""Adaptive fusion against numbers worked by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.retrieval.fusion import (
    BY_MEANING,
    BY_WORDS,
    DEPTH,
    PRIOR,
    Balance,
    FoundWords,
    RankedList,
    adaptive,
    balance_of_languages,
    rarity_of,
)
from catalog.store.restriction import FLAT, Spread
from tables import table

LEXICAL, VECTOR = Spread(1.0, 2.0), Spread(0.5, 0.1)
BALANCE = Balance(base=0.6)


def ranked(leg, scores, *, spread=None, weight=1.0, origin="original", **words):
    spread = spread or (LEXICAL if leg == "lexical" else VECTOR)
    found = FoundWords(**words)
    return RankedList(leg, "engine", "q", origin, weight, tuple(scores.items()), spread, found)


def falling(names, first, last):
    """Names with scores falling evenly from first to last."""
    step = (first - last) / (len(names) - 1)
    return {name: first - step * n for n, name in enumerate(names)}


def scores_of(fused):
    return {hit.key: hit.score for hit in fused}


def test_the_share_of_the_vector_leg_grows_with_what_the_best_keyword_hit_lacks():
    # four fifths of the words are enough: .6; half of that: 1 - .4 / 4; a tenth: 1 - .4 / 100
    shares = [BALANCE.vector_share(cover) for cover in (1.0, 0.8, 0.4, 0.08)]
    assert shares == pytest.approx([0.6, 0.6, 0.9, 0.996])


def test_vectors_of_a_model_that_does_not_know_the_language_make_up_for_less():
    # of half of the passages: 1 - .4 * .2 / .8; of none: what the words lack is no reason
    half, none = replace(BALANCE, known=0.5), replace(BALANCE, known=0.0)
    assert half.vector_share(0.2) == pytest.approx(0.9)
    assert none.vector_share(0.2) == none.vector_share(1.0) == pytest.approx(0.6)


def test_a_shift_moves_the_share_but_not_beyond_0_and_1():
    for shift, shares in ((-0.3, [0.3, 0.825]), (-0.7, [0.0, 0.75]), (0.5, [1.0, 1.0])):
        balance = replace(BALANCE, shift=shift)
        assert [balance.vector_share(cover) for cover in (1.0, 0.4)] == pytest.approx(shares)


def test_a_leg_is_left_out_where_no_query_gives_it_a_share():
    assert PRIOR.left_out is None
    assert (BY_WORDS.left_out, BY_MEANING.left_out) == ("vector", "lexical")
    assert [BY_WORDS.vector_share(cover) for cover in (1.0, 0.1)] == [0.0, 0.0]
    assert [BY_MEANING.vector_share(cover) for cover in (1.0, 0.1)] == [1.0, 1.0]
    # what labels taught weighs a leg as nothing at most, and still shows what it found
    assert [replace(PRIOR, shift=shift).left_out for shift in (-0.6, 0.4)] == [None, None]


def test_the_vector_leg_loses_share_with_the_passages_in_languages_its_model_does_not_know():
    # a fifth of the passages: -.35 / 5; what no one can tell counts as known
    passages = {"english": 7, "": 1, "german": 2}
    assert balance_of_languages(passages, ["english"]).shift == pytest.approx(-0.07)
    assert balance_of_languages(passages, ["english"]).known == pytest.approx(0.8)
    assert "20%" in balance_of_languages(passages, ["english"]).reason
    assert balance_of_languages({"russian": 5}, ["english"]).shift == pytest.approx(-0.35)
    for known in (["german", "english"], []):  # the last: a model of which nothing is known
        assert balance_of_languages(passages, known) == PRIOR
    assert balance_of_languages({}, ["english"]) == PRIOR
    assert balance_of_languages({"english": 9, "italian": 1}, ["english"]) == PRIOR


def test_a_score_is_the_sum_of_what_both_legs_give():
    # half of what is enough: a = 1 - .4 / 4 = .9
    # lexical, floor 0: a 9 / 2 = 4.5, b 4 / 2 = 2; vector, floor .7: c 2, a 1, d 0
    lexical = ranked("lexical", {"a": 9.0, "b": 4.0}, cover=0.4)
    vector = ranked("vector", {"c": 0.9, "a": 0.8, "d": 0.7})
    assert scores_of(adaptive([lexical, vector], BALANCE)) == pytest.approx(
        {"a": 0.1 * 4.5 + 0.9 * 1, "b": 0.1 * 2, "c": 0.9 * 2, "d": 0.0}
    )


def test_a_lexical_list_that_holds_all_that_matched_is_measured_from_zero():
    full = ranked("lexical", falling([f"l{n}" for n in range(DEPTH)], 9.0, 4.0))
    assert [one.score for one in adaptive([ranked("lexical", {"a": 9.0, "b": 4.0})])] == [4.5, 2.0]
    assert adaptive([full])[0].score == pytest.approx(2.5)


def test_a_vector_list_is_measured_from_its_last_hit():
    scores = [one.score for one in adaptive([ranked("vector", {"a": 0.9, "b": 0.8})])]
    assert scores == pytest.approx([1.0, 0.0])


def test_what_lies_deeper_than_the_first_hundred_changes_nothing_before_it():
    names = [f"v{n:03}" for n in range(300)]
    lexical = ranked("lexical", falling(names[::3], 9.0, 1.0))
    deep_scores = falling(names, 0.9, 0.3)
    first = dict(list(deep_scores.items())[:DEPTH])
    deep = adaptive([lexical, ranked("vector", deep_scores)])
    shallow = adaptive([lexical, ranked("vector", first)])
    assert [(one.key, one.score) for one in deep][:100] == [
        (one.key, one.score) for one in shallow
    ][:100]


def test_a_leg_that_is_alone_or_found_nothing_leaves_the_order_to_the_other():
    vector = ranked("vector", {"b": 0.9, "a": 0.8, "c": 0.7})
    assert [one.key for one in adaptive([vector])] == ["b", "a", "c"]
    assert [one.key for one in adaptive([ranked("lexical", {}), vector])] == ["b", "a", "c"]
    assert adaptive([]) == adaptive([ranked("lexical", {}), ranked("vector", {})]) == []


def test_a_leg_that_is_alone_has_all_of_the_score():
    vector = ranked("vector", {"a": 0.9, "b": 0.8, "c": 0.7})
    assert [one.score for one in adaptive([vector])] == pytest.approx([2.0, 1.0, 0.0])
    assert [one.score for one in adaptive([ranked("lexical", {"a": 9.0})])] == pytest.approx([4.5])


def test_equal_scores_are_no_reason_to_prefer_anything():
    fused = adaptive(
        [ranked("vector", {"b": 0.5, "a": 0.5}), ranked("lexical", {"c": 0.0}, spread=FLAT)]
    )
    assert [(one.key, one.score) for one in fused] == [("b", 0.0), ("c", 0.0), ("a", 0.0)]


def test_an_expansion_list_counts_by_its_weight_and_does_not_move_the_balance():
    lexical = ranked("lexical", {"a": 9.0}, cover=0.4)
    vector = ranked("vector", falling("abcd", 0.9, 0.6))
    more = ranked("lexical", {"x": 9.0, "y": 1.0}, weight=0.5, origin="expansion")
    before = scores_of(adaptive([lexical, vector], BALANCE))
    after = scores_of(adaptive([lexical, vector, more], BALANCE))
    assert {name: after[name] for name in before} == before
    # the lexical share is 1 - .9, as worked out above; parts 4.5 and .5
    assert after["x"] == pytest.approx(0.5 * 0.1 * 4.5)
    assert after["y"] == pytest.approx(0.5 * 0.1 * 0.5)


@table("passages, holding, rarity")
def test_the_rarity_of_a_word_falls_from_1_in_one_passage_to_0_at_four_fifths_of_its_idf(
    passages, holding, rarity
):
    assert rarity_of(passages, holding) == pytest.approx(rarity, abs=5e-5)


@table("rare, rarity, share")
def test_a_best_keyword_hit_with_a_rare_word_counts_as_one_with_most_words(rare, rarity, share):
    words = {"cover": 0.2, "first": "a", "rare": set(rare), "rarity": rarity}
    lexical = ranked("lexical", {"a": 9.0, "b": 4.0}, **words)
    hits = adaptive([lexical, ranked("vector", {"a": 0.9, "c": 0.8})], BALANCE)
    both = next(hit for hit in hits if hit.key == "a")
    weights = {part.source.leg: part.source.weight for part in both.contributions}
    assert weights == pytest.approx({"lexical": 1 - share, "vector": share})


def test_every_passage_with_a_rare_word_gains_by_it_whichever_leg_found_it():
    # a = .6; lexical: a 4.5, b 2; vector, floor .7: c 2, d 1, a 0; the bonus .5 counts twice
    lexical = ranked("lexical", {"a": 9.0, "b": 4.0}, weight=2.0, rare={"b", "c", "x"}, rarity=1.0)
    fused = adaptive([lexical, ranked("vector", {"c": 0.9, "d": 0.8, "a": 0.7})], BALANCE)
    assert scores_of(fused) == pytest.approx(
        {"b": 0.8 * 2 + 1, "c": 0.6 * 2 + 1, "a": 0.8 * 4.5, "d": 0.6}
    )
    assert {hit.key: hit.bonus for hit in fused} == {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.0}


scores = st.dictionaries(
    st.sampled_from([f"c{n}" for n in range(30)]), st.floats(0.001, 50), max_size=30
).map(lambda found: dict(sorted(found.items(), key=lambda hit: -hit[1])))


@given(scores, scores)
def test_every_score_adds_up_is_not_negative_and_inputs_do_not_change(lexical, vector):
    lists = [ranked("lexical", lexical, weight=2.0), ranked("vector", vector, weight=2.0)]
    fused = adaptive(lists)
    assert {one.key for one in fused} == lexical.keys() | vector.keys()
    assert all(one.score == sum(share.contribution for share in one.contributions) for one in fused)
    assert all(one.score >= 0 for one in fused)
    assert lists == [ranked("lexical", lexical, weight=2.0), ranked("vector", vector, weight=2.0)]
