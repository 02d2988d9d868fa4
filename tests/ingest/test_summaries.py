"""Summaries: the beginning of a document's prose, without what is no prose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ingest.summaries import MAX_CHARS, shorten, summarise


@pytest.mark.parametrize("text", ["", "   \n\n\t ", "***\n"])
def test_a_text_without_words_is_its_own_summary(text):
    assert summarise(text) == text.strip()


def test_the_times_of_subtitles_are_left_out():
    text = (
        "WEBVTT\n\n1\n00:00:01.000 --> 00:00:03.000\n<v Ann>We open the layers\n\n"
        "2\n00:00:03.000 --> 00:00:05.000\npanel.\n\n[00:12:00] Then we pick the brush.\n"
    )
    assert summarise(text) == "We open the layers panel. Then we pick the brush."


def test_a_text_without_prose_is_summarised_by_its_first_words():
    assert summarise("| pump | costs 3 |\n|---|---|\n") == "| pump | costs 3 | |---|---|"


def test_a_summary_is_cut_after_a_word():
    assert shorten("The committee of the old town", 17) == "The committee of…"
    assert shorten("机器学习研究如何让计算机", 6) == "机器学习研…"
    assert summarise("word " * 1000) == "word " * 159 + "word…"


@given(st.text(max_size=1200))
def test_any_text_has_one_line_of_at_most_800_characters(text):
    summary = summarise(text)
    assert len(summary) <= MAX_CHARS
    assert summary == " ".join(summary.split())


def test_nothing_after_the_first_20_000_characters_is_read():
    assert "Prose" not in summarise("# Heading\n" * 3_000 + "Prose.")
