"""Conditions that fail a comparison."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import InputError
from catalog.evaluation.gates import parse_gate
from catalog.evaluation.metrics import Timing
from evaluation.stubs import compared, question

QUESTIONS = [question(number) for number in range(1, 5)]
RIGHT_FIRST = {"q1": ["right.md"], "q2": ["right.md"], "q3": ["right.md"], "q4": ["right.md"]}
# q1 as before; q2 second of two; q3 nothing; q4 an error
WORSE = {
    "q1": ["right.md"],
    "q2": ["wrong.md", "right.md"],
    "q3": [],
    "q4": ConnectionError("down"),
}


@pytest.fixture(scope="module")
def worse():
    return compared(QUESTIONS, RIGHT_FIRST, WORSE)


@pytest.fixture(scope="module")
def better():
    return compared(QUESTIONS, WORSE, RIGHT_FIRST)


@pytest.mark.parametrize(
    ("text", "metric", "compare", "limit"),
    [
        ("ndcg@10 < -0.01", "ndcg@10", "<", -0.01),
        ("nDCG@10<-.01", "ndcg@10", "<", -0.01),
        ("  MRR@10 <= 0  ", "rr@10", "<=", 0.0),
        ("recall@100 < -5e-2", "r@100", "<", -0.05),
        ("R@5 < +1", "r@5", "<", 1.0),
        ("hit@3 < 0", "success@3", "<", 0.0),
        ("Success@1 < 0", "success@1", "<", 0.0),
        ("precision@5 < 0", "p@5", "<", 0.0),
        ("p95_ms > 50", "p95_ms", ">", 50.0),
        ("failed >= 1", "failed", ">=", 1.0),
    ],
)
def test_a_gate_is_read_in_the_fields_usual_names(text, metric, compare, limit):
    gate = parse_gate(text)
    assert (gate.metric, gate.compare, gate.limit) == (metric, compare, limit)
    assert gate.text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ndcg@10",
        "ndcg@10 <",
        "< 0.1",
        "ndcg@10 = 0",
        "ndcg@10 == 0",
        "ndcg@10 < high",
        "ndcg@10 < 1 2",
        "ndcg@10 < 1%",
        "ndcg@10 < nan",
        "ndcg 10 < 0",
        "ndcg@10 < 0; r@5 < 0",
    ],
)
def test_what_is_no_gate_is_refused_with_an_example(text):
    with pytest.raises(InputError, match=r"--fail-if .*such as 'ndcg@10 < -0.01'"):
        parse_gate(text)


@given(st.sampled_from(["<", "<=", ">", ">="]), st.floats(-10, 10).map(lambda x: round(x, 4)))
def test_any_number_is_read_as_python_reads_it(compare, limit):
    assert parse_gate(f"r@10 {compare} {limit}").limit == limit


@pytest.mark.parametrize(
    ("metric", "difference"),
    [
        # old: 1 on all four; new: 1, 1/2, 0, 0, so its mean is 3/8
        ("mrr@10", 3 / 8 - 1),
        # new finds the document on two of four
        ("recall@10", -0.5),
        ("hit@1", 1 / 4 - 1),
        # nDCG of one relevant document at rank 2 is 1 / log2 3 = 0.63093
        ("ndcg@10", (1 + 0.63093) / 4 - 1),
        # of the first ten one each is right: 1/10 on all four against two of four
        ("precision@10", 0.05 - 0.1),
        # nothing found: q3 and the failed q4
        ("empty", 0.5),
        ("failed", 1),
    ],
)
def test_a_gate_looks_at_the_candidate_minus_the_baseline(worse, better, metric, difference):
    gate = parse_gate(f"{metric} < 0")
    assert gate.difference(worse) == pytest.approx(difference, abs=1e-5)
    assert gate.difference(better) == pytest.approx(-difference, abs=1e-5)


def test_each_operator_trips_on_its_side_of_the_limit_and_at_it_if_it_says_so(worse):
    tripped = {
        text
        for compare in ("<", "<=", ">", ">=")
        for limit in ("0.9", "1", "1.1")
        if parse_gate(text := f"failed {compare} {limit}").trips(worse)  # the difference is 1
    }
    assert tripped == {
        "failed < 1.1",
        "failed <= 1.1",
        "failed <= 1",
        "failed > 0.9",
        "failed >= 0.9",
        "failed >= 1",
    }


def test_a_better_candidate_trips_no_gate_against_losses(better):
    assert not any(
        parse_gate(text).trips(better)
        for text in ("ndcg@10 < 0", "mrr@10 < -0.01", "recall@10 < 0", "failed > 0", "empty > 0")
    )


def test_latency_gates_see_milliseconds():
    same = compared(QUESTIONS, RIGHT_FIRST, RIGHT_FIRST)
    slower = replace(
        same,
        baseline_scores=replace(same.baseline_scores, latency=Timing(p50=4, p95=10)),
        candidate_scores=replace(same.candidate_scores, latency=Timing(p50=5.5, p95=40)),
    )
    assert parse_gate("p50_ms > 0").difference(slower) == 1.5
    assert parse_gate("p95_ms > 0").difference(slower) == 30
    assert parse_gate("p95_ms > 29").trips(slower)
    assert not parse_gate("p50_ms > 29").trips(slower)


@pytest.mark.parametrize("text", ["mrr < 0", "ndcg@3 < 0", "map < 0", "speed > 1"])
def test_an_unknown_metric_is_refused_naming_those_there_are(worse, text):
    with pytest.raises(InputError) as raised:
        parse_gate(text).trips(worse)
    assert repr(text) in str(raised.value)
    for known in ("ndcg@10", "rr@10", "success@5", "p95_ms", "failed"):
        assert known in str(raised.value)
