"""Sentences of a model that a passage has only as an error, or as an exception from a rule."""

from types import SimpleNamespace

import pytest

from catalog.answers.claims import find_denial

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
