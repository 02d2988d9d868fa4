"""A/A: how often a gate fires when neither side is better."""

import json

import numpy as np
import pytest

from catalog.core.errors import BlindComparisonError
from catalog.evaluation.gates import USUAL_GATES, count_false_alarms, false_alarm_lines, parse_gate
from evaluation.stubs import compared, question

QUERIES = [question(number) for number in range(100)]
PLACES = [[f"x{i}" for i in range(place)] + ["right.md"] for place in range(5)]
RIGHT = PLACES[0]


def ranked(seed):
    """A search that puts the answer of each query first to fifth, as it happens."""
    places = np.random.default_rng(seed).integers(0, 5, len(QUERIES))
    return {
        query.id: ["wrong.md", *PLACES[place]] for query, place in zip(QUERIES, places, strict=True)
    }


def alarms(comparison, *texts, **options):
    found = count_false_alarms(comparison, [parse_gate(text) for text in texts], **options)
    return {one["gate"]: one["share"] for one in found["gates"]}


@pytest.mark.slow
def test_a_gate_at_five_per_cent_fires_in_about_five_per_cent():
    comparison = compared(QUERIES, ranked(1), ranked(2), repeats=0)
    texts = ("ndcg@10 worse", "rr@10 worse", "ndcg@10 worse by 0.05")
    shares = alarms(comparison, *texts, repetitions=2_000)
    # 2,000 times: standard deviation √(.05 · .95 / 2000) = .0049, four of them on either side
    assert shares["ndcg@10 worse"] == pytest.approx(0.05, abs=0.0195)
    assert shares["rr@10 worse"] == pytest.approx(0.05, abs=0.0195)
    assert shares["ndcg@10 worse by 0.05"] < shares["ndcg@10 worse"]


@pytest.mark.slow
def test_a_candidate_that_is_much_worse_raises_no_more_false_alarms():
    # every answer first against second: all differ, all in one direction, and so real
    second = {one.id: ["wrong.md", "right.md"] for one in QUERIES}
    comparison = compared(QUERIES, {one.id: RIGHT for one in QUERIES}, second, repeats=0)
    assert parse_gate("ndcg@10 worse").decide(comparison).failed
    assert alarms(comparison, "ndcg@10 worse", repetitions=400)["ndcg@10 worse"] < 0.094


@pytest.mark.slow
def test_a_search_that_answers_alike_on_both_sides_raises_no_alarm():
    comparison = compared(QUERIES, ranked(1), ranked(1))
    shares = alarms(
        comparison, "ndcg@10 worse", "ndcg@10 not as good within 0.05", "p95_ms > 0", "failed > 0",
        repetitions=50
    )  # fmt: skip
    assert set(shares.values()) == {0.0}


def test_a_margin_under_three_queries_of_all_is_shown_by_no_answers_however_alike():
    comparison = compared(QUERIES, ranked(1), ranked(1), repeats=0)
    told = count_false_alarms(comparison, repetitions=10)
    assert (told["repetitions"], told["queries"], told["differing"]) == (10, 100, 0)
    # 3 of 101 is .0297
    fired = {one["gate"]: one["fired"] for one in told["gates"]}
    assert fired == dict.fromkeys(USUAL_GATES, 0) | {"ndcg@10 not as good within 0.02": 10}


def test_what_is_compared_as_measured_is_dealt_as_well():
    # new fails on ten of a hundred, old on none; dealt by a coin, either side has more as often
    broken = {one.id: OSError("down") if n < 10 else RIGHT for n, one in enumerate(QUERIES)}
    comparison = compared(QUERIES, {one.id: RIGHT for one in QUERIES}, broken, repeats=0)
    shares = alarms(comparison, "failed > 0", "empty > 0", "failed > 20", repetitions=400)
    # about ten coins: a tie in C(10, 5) / 2^10 = .25 and a little less, half of the rest
    assert shares["failed > 0"] == pytest.approx(0.39, abs=0.1)
    assert shares["empty > 0"] == shares["failed > 0"]
    assert shares["failed > 20"] == 0


def test_what_cannot_be_decided_is_refused():
    few = [question(number) for number in range(4)]
    comparison = compared(few, {one.id: RIGHT for one in few}, {}, repeats=0)
    with pytest.raises(BlindComparisonError, match="too few"):
        count_false_alarms(comparison)
    with pytest.raises(BlindComparisonError, match="has no times"):
        alarms(comparison, "p50_ms > 0")


@pytest.mark.slow
def test_the_lines_say_what_was_dealt_and_how_often_each_gate_fired():
    comparison = compared(QUERIES, ranked(1), ranked(2), repeats=0)
    counted = count_false_alarms(comparison, repetitions=20)
    lines = list(false_alarm_lines(counted))
    assert "of 20 comparisons in which neither side is better" in lines[1]
    assert lines[2].endswith("queries.")
    assert [line.split("%  ")[1] for line in lines[3:]] == list(USUAL_GATES)
    json.dumps(counted)
