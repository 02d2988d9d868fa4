"""Summaries: whole sentences of the document itself, and nothing that is no sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ingest.summaries import rank_sentences, summarise

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
    ranks = rank_sentences(["red house door", "red house roof", "seven green bottles"])
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


def test_repeated_speech_is_shown_once():
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
    summary = summarise(text, max_chars=60)
    assert summary == "and so we go on to part 0 and so we go on to part 1 and so…"


def test_a_sentence_that_is_too_long_is_cut_after_a_word():
    summary = summarise("The committee of the old town council met again in spring.", max_chars=30)
    assert summary == "The committee of the old town…"


def test_a_script_without_spaces_has_sentences_too():
    text = "机器学习研究如何让计算机从数据中学习。今天天气很好我们去公园。机器学习的数据很重要。"
    assert summarise(text, max_chars=40) == (
        "机器学习研究如何让计算机从数据中学习。机器学习的数据很重要。"
    )


def test_a_long_document_is_read_to_its_end_but_opens_with_its_beginning():
    filler = "".join(f"Item{n} is of kind{n} with form{n}. " for n in range(400))
    ending = "Rotors and stators of turbines need oil for rotors and stators. " * 400
    summary = summarise(f"Turbines are what this manual is about here. {filler}\n\n{ending}")
    assert summary.startswith("Turbines are what this manual is about here.")
    assert "Rotors and stators" in summary


@pytest.mark.parametrize(
    "sentence",
    [
        "A grid with x*y vertices has 2*x*y - y edges.",
        "The call is Expr_t* exopen(Exdisc_t*) and returns char *name or char **names here.",
        "Here 2*3*4 is a product of three numbers.",
        "The method __init__ sets _private and snake_case names up.",
        "Files such as *.txt and *.md are read first.",
        "The element m[i][j] of it is set by f[k](x) alone.",
        "Include <stdio.h> and write to <ann@example.org> about std::vector<int> and a<b.",
        "The flags [ -a ][ -b ] may be given in any order.",
        "An unpaired `tick and ``two of them'' stay here.",
    ],
)
def test_signs_that_are_no_paired_markup_stay(sentence):
    assert summarise(sentence) == sentence


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("This *is* an **easy way** to ***win*** it.", "This is an easy way to win it."),
        ("He said (*never*), and `a*b*c` was meant.", "He said (never), and a*b*c was meant."),
        (
            "It was _very good_ and __not so bad__ at all.",
            "It was very good and not so bad at all.",
        ),
        ("See :mod:`json` and `the docs <https://x.org>`_ first.", "See json and the docs first."),
        ("It is <b>bold</b> and<br/>has <a href='x'>a link</a>.", "It is bold and has a link."),
        ("See [the one][1] before it.\n\n[1]: https://example.com\n", "See the one before it."),
    ],
)
def test_paired_markup_around_whole_words_goes(marked, plain):
    assert summarise(marked) == plain


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("a | b\nc | d\n\nmerged cell |\n\ne | f\n", "a, b; c, d; merged cell; e, f"),
        ("|Operator|Note|\n|---|:-:|\n|Add||\n|And|bool|\n", "Operator, Note; Add; And, bool"),
        (
            ".. _top:\n\nThings\n======\n\n.. autoclass:: lib.Thing()\n   :members:\n       part\n",
            "Things lib.Thing() part",
        ),
        (":orphan:\n\n====\npump\n====\n\n.. code:: xml\n\nUsage\n*****\n", "pump Usage"),
        (".. include:: ../README.rst\n", "../README.rst"),
        (".. module:: x\n\n|Run| objects\n-----------\n", "x Run objects"),
        ("<!-- not\nthis -->\n# Title ##\n\n```py\n# code\n__all__ = 1\n```\n", None),
        ('<?xml version=\'1.0\'?>\n<Rels xmlns="u"><Rel Id="a" Target="b.png"/></Rels>', ""),
        ("<w:p><w:t>Hello there</w:t></w:p>", "Hello there"),
        ("![image](picture.png)\n", ""),
        ("![A cat on the mat](picture.png)\n", "A cat on the mat"),
    ],
)
def test_a_text_without_prose_is_told_by_its_first_lines_without_their_markup(text, summary):
    assert summarise(text) == ("Title ## # code __all__ = 1" if summary is None else summary)


def test_a_scrap_of_a_sentence_gives_way_to_the_first_lines():
    table = "".join(f"| part{n} | costs {n} |\n" for n in range(200))
    summary = summarise(f"{table}\nSee the note below.\n")
    assert summary.startswith("part0, costs 0; part1, costs 1;")
    assert summarise(f"See the long table below here.\n\n{table[:100]}") == (
        "See the long table below here."
    )


def test_lines_that_are_repeated_are_told_once():
    assert summarise("One two three four five.\n" * 1000) == "One two three four five."
    assert summarise("we go on\nand so on\n" * 1000) == "we go on and so on"


@pytest.mark.parametrize("chapters", [3, 300])
def test_a_table_of_contents_is_no_prose(chapters):
    dotted = "".join(f"{n}.1 Getting started{' .' * 30} {n}\n" for n in range(1, chapters))
    contents = f"Contents\n\n1 Applying to Become a Member 5\n{dotted}\n"
    summary = summarise(f"{contents}This manual tells how a member is made.\n\n{KEYS * 300}")
    assert summary.startswith("This manual tells how a member is made. ")
    assert "Getting started" not in summary
    assert "Applying" not in summary


def test_contents_may_be_without_dots_but_a_few_numbers_make_none():
    contents = "1 The first of the pumps. 3\n2 The second of the pumps. 14\n\n3 All valves. 15\n"
    assert summarise(f"{contents}\nThe pump needs oil.\n") == "The pump needs oil."
    steps = "1 Open the red valve of pump 2\n2 Close the blue valve again."
    assert summarise(steps) == "1 Open the red valve of pump 2 2 Close the blue valve again."


def test_a_number_at_the_end_is_no_end_of_a_sentence():
    text = "Manual of the old pump 3.19\n\nThis manual tells of the pump."
    assert summarise(text) == "This manual tells of the pump."


def test_a_licence_counts_only_where_there_is_nothing_else():
    licence = (
        "Permission is granted to make copies of this manual. "
        "It comes WITHOUT ANY WARRANTY of any kind. "
    )
    assert summarise(licence + KEYS, max_chars=60) == KEYS[:47].strip()
    assert summarise(licence) == licence.strip()


def test_a_line_of_links_within_a_paragraph_is_a_part_of_it():
    text = "The team has a\n[code of conduct](conduct.md)\nfor all.\n\n[Next page.](a)\n"
    assert summarise(text) == "The team has a code of conduct for all."


def test_a_heading_in_capitals_is_no_part_of_the_sentence_after_it():
    text = "NAME\npump\nDESCRIPTION\npump moves water from one tank to another.\n"
    assert summarise(text) == "pump moves water from one tank to another."


def test_lines_of_a_script_without_spaces_are_joined_without_one():
    text = "机器学习研究如何让计算机从数据中学习并且\n得出结论。今天天气很好我们去公园。"
    assert summarise(text) == text.replace("\n", "")


@given(st.text(max_size=600), st.integers(1, 120))
def test_any_text_has_one_line_of_at_most_so_many_characters_and_always_the_same(text, most):
    summary = summarise(text, max_chars=most)
    assert len(summary) <= most
    assert "\n" not in summary
    assert summary == summary.strip()
    assert summary == summarise(text, max_chars=most)
