"""Scores of rerankers: the blends worked by hand, and which part of a long passage is read."""

import math
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.tokens import CharTokenCounter
from catalog.retrieval.rerank.scoring import (
    SPECIAL_TOKENS,
    RerankScore,
    best_window,
    blend,
    cut_query,
    fit_pair,
    sort_positions,
)
from counters import WordCounter as Counter
from tables import table

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


@given(st.sampled_from(BLENDS), st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.data())
def test_passages_that_were_not_scored_follow_in_their_order(name, raws, data):
    scored = data.draw(st.integers(0, len(raws)))
    fused = sorted((abs(raw) for raw in raws), reverse=True)
    places = sort_positions(blend(name, fused, judged(*raws[:scored])), scored)
    assert sorted(places) == list(range(len(raws)))
    assert places[scored:] == list(range(scored, len(raws)))


@given(
    st.sampled_from(["linear", "replace"]), st.lists(st.floats(-20, 20), min_size=1, max_size=10)
)
def test_a_reranker_that_agrees_changes_nothing(name, raws):
    fused = sorted(raws, reverse=True)
    parts = blend(name, fused, judged(*fused))
    assert sort_positions(parts, len(fused)) == list(range(len(fused)))


WordCounter = partial(Counter, punctuation=True)


def window(text, query, max_tokens):
    return best_window(text, query, max_tokens, WordCounter().spans(text))


@table("text, query, size, read")
def test_the_run_with_most_different_words_of_the_query_is_read(text, query, size, read):
    assert window(text, query, size) == (read, True)
    assert window(f"  {text} ", query, 99) == (f"  {text} ", False)  # one that fits stays whole


def test_words_are_compared_whole_and_without_case():
    text = "category of things and then straße STRASSE Cat end of it"
    assert "Cat end" in window(text, "CAT", 3)[0]
    assert "STRASSE" in window(text, "Straße", 1)[0].upper().replace("ß", "SS")


def test_words_of_a_script_without_spaces_are_found():
    text = "今日は天気がいい。" * 3 + "鍵を回転させる。"
    spans = np.array([(at, at + 1) for at in range(len(text))])
    assert best_window(text, "鍵の回転", 8, spans)[0] == "鍵を回転させる。"


def test_a_run_ends_no_word_in_the_middle():
    text = "abcd efgh ijklmnopqrst"
    spans = np.array([(0, 4), (5, 9), (10, 14), (14, 18), (18, 22)])
    assert best_window(text, "abcd", 3, spans) == ("abcd efgh", True)


def test_a_word_of_several_tokens_counts_only_when_all_are_in_the_run():
    text = "aaaa bbbb cccc needle dddd"
    spans = np.array([(0, 4), (5, 9), (10, 14), (15, 18), (18, 21), (22, 26)])
    assert best_window(text, "needle", 2, spans) == ("needle", True)


@given(
    st.text(alphabet="ab c1.\nßİ!", max_size=120),
    st.text(alphabet="ab c1ß", max_size=20),
    st.integers(1, 12),
    st.sampled_from([WordCounter(), CharTokenCounter()]),
)
def test_a_window_is_part_of_the_text_and_fits(text, query, max_tokens, counter):
    spans = counter.spans(text)
    part, cut = best_window(text, query, max_tokens, spans)
    assert part in text
    assert cut == (len(spans) > max_tokens)
    if not cut:
        assert part == text
    starts = [at for at in range(len(text) + 1) if text.startswith(part, at)]
    within = [((spans[:, 1] > at) & (spans[:, 0] < at + len(part))).sum() for at in starts]
    assert min(within) <= max_tokens


@given(
    st.lists(st.sampled_from(["red", "fox", "hen", "a", "b", "c."]), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_no_other_run_holds_more_query_words(words, max_tokens):
    text = " ".join(words)
    spans = WordCounter().spans(text)
    tokens = [text[start:end] for start, end in spans]
    wanted = {"red", "fox", "hen"}
    best = max(
        len(wanted & set(tokens[at : at + max_tokens]))
        for at in range(max(1, len(tokens) - max_tokens + 1))
    )
    part, _ = best_window(text, "red fox hen", max_tokens, spans)
    assert len(wanted & set(re.findall(r"\w+", part))) == best


def test_room_is_left_for_the_query():
    # 20 tokens, 4 special, 3 of the query: 13 of the passage
    passage = " ".join(f"w{number:02}" for number in range(40))
    text, cut = fit_pair("one two three", passage, WordCounter(), 20)
    assert cut
    assert len(WordCounter().spans(text)) == 20 - SPECIAL_TOKENS - 3


def test_a_long_query_takes_half_of_the_window_at_most():
    query = " ".join(f"q{number}" for number in range(30))
    assert cut_query(query, WordCounter(), 20) == " ".join(f"q{number}" for number in range(10))
    assert cut_query("short query", WordCounter(), 20) == "short query"
    text, _ = fit_pair(query, "a b c d e f g h i j", WordCounter(), 20)
    assert text == "a b c d e f"  # 20 less 10 less 4


def test_the_head_stands_above_the_best_run():
    passage = " ".join(["filler"] * 30 + ["the", "needle"])
    text, cut = fit_pair("needle", passage, WordCounter(), 20, head="Title > Part")
    # 20 less 4 less 1 of the query less 3 of the head ("Title", ">", "Part"): 12
    assert text == "Title > Part\n" + " ".join(["filler"] * 10 + ["the", "needle"])
    assert cut


def test_a_long_head_is_cut_to_a_quarter_and_that_does_not_count_as_cut():
    head = " ".join(f"h{number}" for number in range(20))
    text, cut = fit_pair("q", "short passage", WordCounter(), 20, head=head)
    assert text == "h0 h1 h2 h3 h4\nshort passage"
    assert not cut


def test_a_run_that_comes_apart_into_more_tokens_is_cut_again():
    class Breaking(Counter):
        """A word without the text's last mark counts twice."""

        def spans(self, text):
            spans = super().spans(text)
            return spans if text.endswith("!") else np.repeat(spans, 2, axis=0)

    text, cut = fit_pair("q", " ".join("abcdefgh") + "!", Breaking(punctuation=True), 12)
    assert cut
    assert len(Breaking(punctuation=True).spans(text)) <= 12 - SPECIAL_TOKENS - 1


@pytest.mark.parametrize("passage", ["", " ", "\n"])
def test_an_empty_passage_stays(passage):
    assert fit_pair("query", passage, WordCounter(), 32) == (passage, False)
