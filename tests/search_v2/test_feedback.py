"""Pseudo-relevance feedback against numbers worked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.search_v2.feedback import expansion_text, relevance_model
from catalog.store.lexical.analysis import Analyzer

ANALYZER = Analyzer()
CAT = (["cat", "cat", "dog", "mouse"], 3.0)
DOG = (["dog", "bird"], 1.0)


def test_rm3_is_the_papers_formula():
    # shares of the score 3/4 and 1/4
    # cat 2/4 * 3/4 = .375; dog 1/4 * 3/4 + 1/2 * 1/4 = .3125; mouse .1875; bird .125
    # the best two scaled: cat .375 / .6875 = 6/11, dog 5/11
    # half of that and half of the query: cat 3/11 + 1/2, dog 5/22
    model = relevance_model(["cat"], [CAT, DOG], terms=2)
    assert model == pytest.approx({"cat": 17 / 22, "dog": 5 / 22})
    assert list(model) == ["cat", "dog"]


def test_the_original_weight_is_the_querys_part():
    # query: cat 2/3, fish 1/3; documents: cat 6/11, dog 5/11; a fifth of the first, four of these
    model = relevance_model(["cat", "fish", "cat"], [CAT, DOG], terms=2, original_weight=0.2)
    assert model == pytest.approx(
        {"cat": 0.8 * 6 / 11 + 0.2 * 2 / 3, "dog": 0.8 * 5 / 11, "fish": 0.2 / 3}
    )


def test_a_weight_of_zero_or_one_leaves_one_side_only():
    learnt = relevance_model(["fish"], [CAT, DOG], terms=2, original_weight=0.0)
    assert learnt == pytest.approx({"cat": 6 / 11, "dog": 5 / 11})
    assert relevance_model(["fish"], [CAT, DOG], original_weight=1.0) == {"fish": 1.0}


def test_equal_words_are_cut_in_the_order_of_the_alphabet():
    assert list(relevance_model([], [(["d", "bb", "cc", "aa"], 1.0)], terms=2)) == ["aa", "bb"]


def test_single_characters_and_digits_are_learnt_only_when_asked_for():
    document = (["x", "42", "cat", "c"], 1.0)
    assert relevance_model([], [document]) == {"cat": 1.0}
    # 42 and cat have 1/2 each of what was learnt: 42 gets 1/4 + 1/2
    assert relevance_model(["42"], [document]) == pytest.approx({"42": 0.75, "cat": 0.25})


@pytest.mark.parametrize(
    "documents",
    [[], [([], 1.0)], [(["dog"], 0.0)], [(["dog"], -1.0), (["dog"], math.nan)]],
)
def test_documents_that_teach_nothing_leave_the_query_alone(documents):
    assert relevance_model(["cat", "fish"], documents) == {"cat": 0.5, "fish": 0.5}
    assert relevance_model([], documents) == {}


def test_a_document_of_score_zero_adds_nothing_to_the_others():
    assert relevance_model(["cat"], [CAT, (["bird"], 0.0)]) == relevance_model(["cat"], [CAT])


def test_no_term_asked_for_leaves_the_query_alone():
    assert relevance_model(["cat"], [CAT], terms=0) == {"cat": 1.0}


words = st.lists(st.sampled_from(["cat", "dog", "bird", "x", "7", "mouse"]), max_size=8)
scored = st.lists(st.tuples(words, st.floats(0, 100, allow_subnormal=False)), max_size=5)


@given(words, scored, st.integers(0, 5), st.floats(0, 1))
def test_a_model_is_a_distribution_best_first_and_no_larger_than_allowed(
    query, documents, terms, weight
):
    model = relevance_model(query, documents, terms=terms, original_weight=weight)
    assert not model or sum(model.values()) == pytest.approx(1.0)
    assert list(model.values()) == sorted(model.values(), reverse=True)
    assert len(set(model) - set(query)) <= terms
    assert bool(query) <= bool(model)


@given(words, scored, st.sampled_from([0.5, 2.0, 8.0]))
def test_only_the_proportions_of_the_scores_matter(query, documents, factor):
    times = [(tokens, score * factor) for tokens, score in documents]
    assert relevance_model(query, times) == pytest.approx(relevance_model(query, documents))


def test_the_expansion_is_the_best_words_that_the_query_lacks():
    # ten words each, equal scores: rotat 3/10 and 1/10, key in both, ledger 2/10, vault 1/10
    texts = [
        "rotate keys rotate keys rotated keys ledger ledger keys keys",
        "keys rotating keys keys vault keys keys keys keys keys",
    ]
    assert expansion_text(ANALYZER, "key", texts, [1.0, 1.0]) == "rotate ledger vault"
    assert expansion_text(ANALYZER, "key", texts, [1.0, 1.0], terms=3) == "rotate ledger"
    # the second weighs nine times as much: vault .1 * .9 = .09 against ledger .2 * .1 = .02
    assert expansion_text(ANALYZER, "key", texts, [1.0, 9.0]) == "rotate vault ledger"


def test_a_term_is_shown_as_its_most_frequent_word_and_ties_by_the_alphabet():
    assert expansion_text(ANALYZER, "key", ["rotation rotate rotation"], [1.0]) == "rotation"
    assert expansion_text(ANALYZER, "key", ["rotation rotated"], [1.0]) == "rotated"


def test_stop_words_are_never_proposed():
    assert expansion_text(ANALYZER, "key", ["the vault of the king"], [1.0]) == "king vault"


@pytest.mark.parametrize("text", ["keys", "KEYS key Key's", "key-ring ring_key keyRing"])
def test_query_words_are_never_repeated_not_even_inside_a_compound(text):
    assert expansion_text(ANALYZER, "key ring", [text], [1.0]) == ""


def test_a_compound_comes_once_and_leaves_its_parts_to_simple_words():
    # red-wine gives red-wine, red and wine; wine has a simple word of its own, red has none:
    # wine 2/4, red and red-wine 1/4
    assert expansion_text(ANALYZER, "key", ["red-wine wines"], [1.0]) == "wines red-wine"
    assert expansion_text(ANALYZER, "key", ["red-wine red-wine wines"], [1.0]) == "wines red-wine"


@pytest.mark.parametrize(
    ("texts", "scores"), [([], []), ([""], [1.0]), (["vault"], [0.0]), (["the 7 x"], [1.0])]
)
def test_nothing_learnt_is_no_expansion(texts, scores):
    assert expansion_text(ANALYZER, "key", texts, scores) == ""


def test_a_query_of_no_word_is_expanded_by_the_texts_alone():
    assert expansion_text(ANALYZER, "", ["vault vault king"], [1.0]) == "vault king"


def test_every_text_needs_a_score():
    with pytest.raises(ValueError, match="zip"):
        expansion_text(ANALYZER, "key", ["vault"], [])


prose = st.text(alphabet="kKeyrRing-_. '7é#+", max_size=60)


@given(prose, st.lists(prose, max_size=4))
def test_an_expansion_shares_no_token_with_the_query(query, texts):
    told = expansion_text(ANALYZER, query, texts, [1.0] * len(texts))
    assert set(ANALYZER.tokens(told)).isdisjoint(ANALYZER.tokens(query))
    assert len(set(told.split())) == len(told.split()) <= 10
