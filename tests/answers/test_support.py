"""A passage supports true sentences; each kind of change to one is caught and named."""

from types import SimpleNamespace

import pytest

from catalog.answers.claims import Claim, check_claim, find_denial
from catalog.answers.support import check_support
from made_results import result
from tables import read_cases, table

SOURCES = read_cases(__file__)["sources"]
PASSAGE = SOURCES["passage"]


@table("sentence")
def test_a_true_sentence_is_supported_however_it_is_written(sentence: str) -> None:
    assert check_support(sentence, PASSAGE).reasons == ()


@table("sentence, kind")
def test_a_changed_sentence_is_not_supported_and_the_reason_names_what_changed(
    sentence: str, kind: str
) -> None:
    support = check_support(sentence, PASSAGE)
    assert not support.supported
    assert {reason.split(":")[0] for reason in support.reasons} == {kind}


def test_a_detail_that_the_passage_has_elsewhere_is_reported_with_the_right_one() -> None:
    support = check_support("The server waits 3 minutes before it retries a request.", PASSAGE)
    assert support.reasons == ("unit: 3 minutes, where the passage has 30 seconds",)


def test_the_score_is_the_share_of_words_that_the_passage_has() -> None:
    # server, waits, request of the five stems server, wait, penguin, zebra, request
    support = check_support("The servers waited: penguins, zebras, requests.", PASSAGE)
    assert support.score == pytest.approx(3 / 5)


def test_the_threshold_says_how_many_of_the_words_must_be_there() -> None:
    sentence = "Aspirin reduces no mortality whatsoever among elephants."
    assert check_support(sentence, PASSAGE, threshold=0.4).supported
    assert not check_support(sentence, PASSAGE, threshold=0.9).supported


def test_each_sentence_of_a_passage_is_supported_by_it() -> None:
    for sentence in PASSAGE.split(". "):
        assert check_support(f"{sentence.rstrip('.')}.", PASSAGE).supported, sentence


def test_a_sentence_of_more_details_than_are_checked_is_unsupported():
    many = "There were " + ", ".join(str(number) for number in range(100, 160)) + " of them."
    support = check_support(many, many)
    assert not support.supported
    assert "details, the most that are checked" in support.reasons[0]


FILLING = "The quick brown fox of the meadow jumps over the lazy dog near the old mill. " * 4
FAR_APART = (
    "The storage nodes encrypt every backup before its upload to the archive. "
    f"{FILLING}Interns water the office plants each Monday with cold tea. {FILLING}"
)


def test_words_of_sentences_that_stand_far_apart_make_no_statement():
    support = check_support("The storage nodes encrypt every backup with cold tea.", FAR_APART)
    assert support.score == 1
    assert support.reasons == ("words: they are scattered over the passage, not in one place",)


def test_a_sentence_may_join_statements_that_stand_far_apart():
    joined = (
        "The storage nodes encrypt every backup, and interns water the office plants each Monday."
    )
    assert check_support(joined, FAR_APART).supported


def test_the_words_of_headings_count_wherever_in_the_passage_the_others_stand():
    sentence = "Interns of Acme Berlin Robotics water the office plants."
    assert not check_support(sentence, f"Acme Berlin Robotics\n{FAR_APART}").supported
    assert check_support(sentence, FAR_APART, headings="Acme Berlin Robotics").supported


def test_two_passages_give_a_stretch_each():
    sentence = "The storage nodes encrypt every backup with cold tea."
    assert check_support(sentence, FAR_APART, stretches=2).supported


RULES = SOURCES["rules"]


@table("sentence, reason")
def test_a_heading_that_denies_a_sentence_speaks_against_it(sentence, reason):
    passage = result(text=RULES, title="Club rules", heading_path=("Club rules",), link=None)
    checked = check_claim(Claim("", f"{sentence} [1]"), {1: passage})
    assert checked.supported == (not reason)
    assert checked.reasons == ((reason,) if reason else ())


@table("sentence, source")
def test_a_sentence_that_turns_its_source_is_denied(sentence, source):
    assert denial(sentence, source)


@table("sentence, source")
def test_a_sentence_that_keeps_the_sense_of_its_source_is_not_denied(sentence, source):
    assert denial(sentence, source) is None


def denial(sentence, source):
    text = SOURCES[source]
    return find_denial(sentence, SimpleNamespace(text=text, title="Rules", sections=()))
