"""Summaries: whole sentences of the document itself, and nothing that is no sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ingest.summaries import sentence_ranks, summarise

KEYS = (
    "This guide explains how a team keeps its keys. "
    "The weather was fine on the day it was written. "
    "A leaked key is revoked in the admin console and a new key is made there. "
    "Lunch is served at noon. "
    "Every key is rotated in the admin console after ninety days."
)


@pytest.mark.parametrize("text", ["", "   \n\n\t ", "---\ntitle: x\n---\n"])
def test_a_text_of_nothing_has_no_summary(text):
    assert summarise(text) == ""


def test_a_short_text_is_its_own_summary():
    assert summarise("One fine morning we left. The\nroad was long.") == (
        "One fine morning we left. The road was long."
    )


def test_the_opening_and_the_sentences_most_like_the_others_stand_in_the_order_of_the_text():
    assert summarise(KEYS, max_chars=200) == (
        "This guide explains how a team keeps its keys. "
        "A leaked key is revoked in the admin console and a new key is made there. "
        "Every key is rotated in the admin console after ninety days."
    )


def test_ranks_are_those_of_the_paper():
    # A and B share two words, C none. C leads everywhere: C = .15 + .85 C/3, so C = .15/.71667
    # = .2093. A = B = .15 + .85 (A + C/3), so A = (.15 + .0593)/.15 = 1.3953.
    ranks = sentence_ranks(["red house door", "red house roof", "seven green bottles"])
    assert ranks == pytest.approx([1.3953, 1.3953, 0.2093], abs=0.01)


def test_what_is_no_prose_is_left_out():
    text = (
        "---\ntags: [front, matter]\n---\n"
        "# Heading with words that end in a full stop.\n\n"
        "Setext heading that is underlined.\n=====\n\n"
        "Known heading that nobody marked.\n"
        "The real text begins with this sentence.\n\n"
        "```python\nprint('this code is not prose at all.')\n```\n\n"
        "| a table | has cells that end here. |\n|---|---|\n\n"
        "- [A link to somewhere else.](https://example.com)\n"
        "- https://example.com/only.an.address.\n\n"
        "2.1.3 A numbered heading with five words.\n\n"
        "Too short.\n\n"
        "Copyright 2024 by Somebody Incorporated. All rights reserved to them.\n\n"
        "<!-- a comment that\nnobody is to see. -->\n\n"
        "And the *real* text `ends` with [this one](https://example.com) here.\n"
    )
    assert summarise(text, headings=["Known  heading that nobody marked."]) == (
        "The real text begins with this sentence. And the real text ends with this one here."
    )


def test_what_is_said_twice_is_told_once():
    text = "The pump must be primed before use. " * 3 + "Then open the red valve slowly."
    assert summarise(text) == "The pump must be primed before use. Then open the red valve slowly."


def test_times_of_subtitles_are_no_words_and_sentences_go_on_over_cues():
    text = (
        "WEBVTT\n\n1\n00:00:01.000 --> 00:00:03.000\n<v Ann>We open the layers\n\n"
        "2\n00:00:03.000 --> 00:00:05.000\npanel on the right.\n\n"
        "3\n00:00:05.000 --> 00:00:09.000\nThen we pick the brush tool.\n"
    )
    assert summarise(text) == "We open the layers panel on the right. Then we pick the brush tool."


def test_a_transcript_without_punctuation_is_told_by_its_first_words():
    text = "\n".join(f"[00:{n:02}:00] and so we go on to part {n}" for n in range(50))
    told = summarise(text, max_chars=60)
    assert told == "and so we go on to part 0 and so we go on to part 1 and so…"


def test_a_sentence_that_is_too_long_is_cut_after_a_word():
    told = summarise("The committee of the old town council met again in spring.", max_chars=30)
    assert told == "The committee of the old town…"


def test_a_script_without_spaces_has_sentences_too():
    text = "机器学习研究如何让计算机从数据中学习。今天天气很好我们去公园。机器学习的数据很重要。"
    assert summarise(text, max_chars=40) == (
        "机器学习研究如何让计算机从数据中学习。 机器学习的数据很重要。"
    )


def test_a_long_document_is_read_to_its_end_but_opens_with_its_beginning():
    filler = "".join(f"Item{n} is of kind{n} with form{n}. " for n in range(400))
    ending = "Rotors and stators of turbines need oil for rotors and stators. " * 400
    told = summarise(f"Turbines are what this manual is about here. {filler}\n\n{ending}")
    assert told.startswith("Turbines are what this manual is about here.")
    assert "Rotors and stators" in told


@given(st.text(max_size=600), st.integers(1, 120))
def test_any_text_has_one_line_of_at_most_so_many_characters_and_always_the_same(text, most):
    told = summarise(text, max_chars=most)
    assert len(told) <= most
    assert "\n" not in told
    assert told == told.strip()
    assert told == summarise(text, max_chars=most)
