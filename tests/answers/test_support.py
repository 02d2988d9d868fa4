"""A passage supports true sentences; each kind of change to one is caught and named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from catalog.answers.claims import Claim, check_claim, find_denial
from catalog.answers.support import check_support
from made_results import result
from tables import table

PASSAGE = (
    "The Geneva Protocol was signed by Clara Maass on May 31, 2024 in Lisbon. "
    "About 1,200 patients received 5 mg of aspirin, and 300 received placebo. "
    "Aspirin does not reduce mortality in healthy adults. "
    "The server waits 30 seconds before it retries a request, and the client waits 3 minutes. "
    "Samsung makes the sensor, and Bosch makes the housing of the camera. "
    "Blood pressure increases with age in most people. "
    "The parser accepts UTF-8 text without a byte order mark. "
    "Staff travel by train in second class and report expenses each week."
)


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


def test_an_about_number_may_be_rounded_and_an_exact_one_may_not() -> None:
    passage = "The survey of rivers counted 1,987 dams in the region."
    assert check_support("About 2,000 dams were counted in the region.", passage).supported
    assert not check_support("Exactly 2,000 dams were counted in the region.", passage).supported


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


RULES = (
    "# Club rules\n\n## Not allowed\n\n- Dogs in the boathouse\n- Open fire\n\n"
    "## Allowed\n\n- Cats in the boathouse\n\n## I do not see my key\n\nAsk the porter for it.\n\n"
    "Some say that the tower is open on Sundays. This is untrue.\n"
)


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Dogs are allowed in the boathouse.", "negation: the passage says it under 'Not allowed'"),
        ("Dogs are not allowed in the boathouse.", None),
        ("Cats are allowed in the boathouse.", None),
        ("Ask the porter for the key.", None),
        ("Club rules", "words: it is only a title"),
        (
            "The tower is open on Sundays.",
            "negation: the passage goes on with 'This is untrue.'",
        ),
    ],
)
def test_a_heading_that_denies_a_sentence_speaks_against_it(sentence, reason):
    passage = result(text=RULES, title="Club rules", heading_path=("Club rules",), link=None)
    checked = check_claim(Claim("", f"{sentence} [1]"), {1: passage})
    assert checked.supported == (reason is None)
    assert checked.reasons == (() if reason is None else (reason,))


REFUNDS = "Refunds are paid within 14 days, except for gift cards, which are never refunded."
TAXIS = "Taxis are not reimbursed, except after midnight."
FLIGHTS = "Flights may be booked in business class unless the trip is paid by a client."
SERVERS = (
    "| host | role | memory | owner |\n|---|---|---|---|\n| alder | database | 64 GB | Mira |\n"
    "| birch | web | 16 GB | Jonas |\n| cedar | web | 8 GB | Mira |\n"
)
PARTS = "| id | part | pieces |\n|---|---|---|\n| 1 | wheel | 4 |\n| 2 | axle | 7 |\n"
DOGS = "Q: Can I bring my dog to the office?\nA: No. Only assistance dogs are allowed.\n"
COFFEE = "Myth: Decaf contains no caffeine at all.\nFact: Decaf contains 2 to 5 mg of it.\n"


@pytest.mark.parametrize(
    ("sentence", "source"),
    [
        ("Gift cards are refunded within 14 days.", REFUNDS),
        ("Refunds for gift cards are paid within 14 days.", REFUNDS),
        ("Taxis are not reimbursed after midnight.", TAXIS),
        ("Flights may be booked in business class if the trip is paid by a client.", FLIGHTS),
        ("Decaf contains no caffeine at all.", COFFEE),
        ("Alder is owned by Jonas.", SERVERS),
        ("The host alder has 16 GB of memory.", SERVERS),
        ("The owner of cedar is Jonas.", SERVERS),
        ("You can bring your dog to the office.", DOGS),
    ],
)
def test_a_sentence_that_turns_its_source_is_denied(sentence, source):
    assert find_denial(sentence, SimpleNamespace(text=source, title="Rules", sections=()))


@pytest.mark.parametrize(
    ("sentence", "source"),
    [
        ("Refunds are paid within 14 days.", REFUNDS),
        ("Gift cards are never refunded.", REFUNDS),
        ("Taxis are reimbursed after midnight.", TAXIS),
        ("Taxis are not reimbursed, except after midnight.", TAXIS),
        ("Flights may be booked in business class.", FLIGHTS),
        ("Decaf contains 2 to 5 mg of it.", COFFEE),
        ("Alder is owned by Mira.", SERVERS),
        ("The web host birch has 16 GB of memory.", SERVERS),
        ("Alder has 64 GB and birch 16 GB.", SERVERS),
        ("The axle has 7 pieces, 1 of them of steel.", PARTS),
        ("Only assistance dogs are allowed.", DOGS),
        ("You cannot bring your dog to the office.", DOGS),
    ],
)
def test_a_sentence_that_keeps_the_sense_of_its_source_is_not_denied(sentence, source):
    passage = SimpleNamespace(text=source, title="Rules", sections=())
    assert find_denial(sentence, passage) is None
