"""Which part of a long passage is read."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.tokens import CharTokenCounter
from catalog.retrieval.rerank.scoring import SPECIAL_TOKENS, best_window, cut_query, fit_pair


class WordCounter:
    """One token a word or mark."""

    name = "words"

    def spans(self, text):
        found = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
        return np.array(found, dtype=np.int64).reshape(-1, 2)


def window(text, query, max_tokens):
    return best_window(text, query, max_tokens, WordCounter().spans(text))


def test_a_text_that_fits_is_left_alone():
    assert window("  one two three ", "three", 3) == ("  one two three ", False)


def test_the_run_with_most_different_query_words_is_read():
    # of four tokens: "red red red a" holds one word, "red fox c red" two
    text = "red red red a b red fox c red"
    assert window(text, "red fox", 4) == ("b red fox c", True)


def test_a_word_said_twice_counts_once():
    text = "fox fox fox a b c fox hen d e f g"
    assert window(text, "fox hen", 3)[0] == "c fox hen"


def test_the_earliest_of_equal_runs_is_read():
    text = "x a b cat c d e f g h cat i j"
    # the first "cat" is in the runs that start at 1, 2 and 3; the middle one is taken
    assert window(text, "cat", 3) == ("b cat c", True)


def test_a_word_near_either_end_brings_that_end_with_it():
    text = "a b c cat d e f g h i j k l m n o p q r s"
    assert window(text, "cat", 9)[0] == "a b c cat d e f g h"
    backwards = " ".join(text.split()[::-1])
    assert window(backwards, "cat", 9)[0] == "h g f e d cat c b a"


def test_without_a_query_word_the_head_is_read():
    assert window("a b c d e f", "zebra", 2) == ("a b", True)


def test_words_are_compared_whole_and_without_case():
    text = "category of things and then straße STRASSE Cat end of it"
    assert "Cat end" in window(text, "CAT", 3)[0]
    assert "STRASSE" in window(text, "Straße", 1)[0].upper().replace("ß", "SS")


def test_stop_words_of_the_query_do_not_draw_the_run():
    # "how", "do", "i" and "the" stand first; only "key" is looked for
    text = "how do i see the man who said how do you do and now one key turns"
    assert window(text, "how do i turn the key", 4)[0] == "now one key turns"


def test_words_are_found_in_their_other_forms():
    text = "a b c d revoked keys e f g"
    assert window(text, "revoking a key", 2)[0] == "revoked keys"


def test_words_of_a_script_without_spaces_are_found():
    text = "今日は天気がいい。" * 3 + "鍵を回転させる。"
    spans = np.array([(at, at + 1) for at in range(len(text))])
    assert best_window(text, "鍵の回転", 8, spans)[0] == "鍵を回転させる。"


def test_a_run_begins_at_a_sentence_where_it_can():
    text = "aa bb cc dd. Now the key is here ee ff gg hh ii jj kk"
    # "key" (token 7) is in the runs of six that start at tokens 2 to 7; the sentence starts at 5
    assert window(text, "key", 6)[0] == "Now the key is here ee"


def test_a_run_begins_at_a_line_where_it_can():
    text = "aa bb cc dd\nee the key is here ff gg hh"
    assert window(text, "key", 5)[0] == "ee the key is here"


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
    class Breaking(WordCounter):
        """A word without the text's last mark counts twice."""

        def spans(self, text):
            spans = super().spans(text)
            return spans if text.endswith("!") else np.repeat(spans, 2, axis=0)

    text, cut = fit_pair("q", " ".join("abcdefgh") + "!", Breaking(), 12)
    assert cut
    assert len(Breaking().spans(text)) <= 12 - SPECIAL_TOKENS - 1


@pytest.mark.parametrize("passage", ["", " ", "\n"])
def test_an_empty_passage_stays(passage):
    assert fit_pair("query", passage, WordCounter(), 32) == (passage, False)
