"""Conditions that fail a comparison, and when each of them does."""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from catalog.core.errors import BlindComparisonError, InputError
from catalog.evaluation.gates import gate_dict, gate_lines, parse_gate
from evaluation.stubs import compared, question

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

RIGHT, LOST = ["right.md"], ["wrong.md"]
FEW = [question(number) for number in range(1, 5)]


@cache
def outcome(lost, gained=0, n=200):
    """Compare two searches on n queries, of which one of them lost some as a whole."""
    queries = [question(number) for number in range(n)]
    old = {f"q{i}": LOST if i < gained else RIGHT for i in range(n)}
    new = {f"q{i}": LOST if gained <= i < gained + lost else RIGHT for i in range(n)}
    return compared(queries, old, new, repeats=0)


def fails(text, comparison):
    return parse_gate(text).decide(comparison).failed


# forms


@pytest.mark.parametrize(
    ("text", "metric", "form", "limit"), TABLES["a gate is read in the fields usual names"]
)
def test_a_gate_is_read_in_the_fields_usual_names(text, metric, form, limit):
    gate = parse_gate(text)
    assert (gate.metric, gate.form, gate.limit) == (metric, form, limit)
    assert gate.text == text


@pytest.mark.parametrize("text", TABLES["a malformed gate is refused with the possible forms"])
def test_a_malformed_gate_is_refused_with_the_possible_forms(text):
    with pytest.raises(InputError, match="p95_ms"):
        parse_gate(text)


@pytest.mark.parametrize(
    ("text", "instead"), TABLES["a difference of quality as measured is refused naming what to say"]
)
def test_a_difference_of_quality_as_measured_is_refused_naming_what_to_say(text, instead):
    with pytest.raises(InputError, match="would fire on noise") as raised:
        parse_gate(text)
    assert instead in str(raised.value)
    for form in str(raised.value).split("Write ")[1].split("'")[1::2]:
        parse_gate(form)


@pytest.mark.parametrize("margin", ["0", "1", "-0.02", "2"])
@pytest.mark.parametrize("form", ["worse by", "not as good within", "not equivalent within"])
def test_a_margin_lies_between_nothing_and_everything(form, margin):
    with pytest.raises(InputError, match="above 0 and below 1"):
        parse_gate(f"ndcg@10 {form} {margin}")


def test_what_has_no_bounds_is_compared_as_measured():
    with pytest.raises(InputError, match="say 'p95_ms > 0'"):
        parse_gate("p95_ms worse")


@pytest.mark.parametrize("text", ["mrr worse", "ndcg@3 worse", "map < 0", "speed > 1"])
def test_an_unknown_metric_is_refused_naming_those_there_are(text):
    with pytest.raises(InputError) as raised:
        parse_gate(text)
    assert repr(text) in str(raised.value)
    for known in ("ndcg@10", "rr@10", "success@5", "p95_ms", "failed"):
        assert known in str(raised.value)


# worse


@pytest.mark.slow
def test_a_loss_is_shown_by_five_lost_queries_of_which_chance_would_make_one_in_32():
    # all five on one side: 1 / 2^5 = .031 < .05; four: 1 / 2^4 = .0625
    assert fails("success@1 worse", outcome(lost=5))
    assert not fails("success@1 worse", outcome(lost=4))
    # the interval alone would have said so of four: none of them is drawn with e^-4 = .018
    assert parse_gate("success@1 worse").decide(outcome(lost=4)).high == pytest.approx(-1 / 200)


@pytest.mark.slow
def test_a_loss_beyond_a_margin_is_shown_by_the_whole_interval_only():
    # 40 of 200 lost, -.2; SE √(.2 · .8 / 200) = .0283: 90 % from -.247 to -.153
    comparison = outcome(lost=40)
    result = parse_gate("success@1 worse by 0.1").decide(comparison)
    assert (result.low, result.high) == pytest.approx((-0.247, -0.153), abs=0.006)
    assert result.failed
    assert not fails("success@1 worse by 0.18", comparison)


@pytest.mark.slow
def test_a_gain_is_no_loss():
    assert not fails("success@1 worse", outcome(lost=0, gained=40))
    assert not fails("success@1 not as good within 0.02", outcome(lost=0, gained=40))
    assert fails("success@1 not equivalent within 0.02", outcome(lost=0, gained=40))


# not as good, not equivalent


@pytest.mark.slow
def test_queries_that_all_stay_rule_out_a_loss_of_three_in_n_and_no_less():
    # rule of three: of 201 (200 and the one that nobody asked) up to 3 may be lost: .0149
    comparison = outcome(lost=0)
    result = parse_gate("success@1 not as good within 0.015").decide(comparison)
    assert (result.low, result.high) == pytest.approx((-3 / 201, 3 / 201))
    assert not result.failed
    assert fails("success@1 not as good within 0.0149", comparison)
    assert not fails("success@1 not equivalent within 0.015", comparison)
    assert fails("success@1 not equivalent within 0.0149", comparison)


@pytest.mark.parametrize("form", ["worse", "not as good within 0.5", "not equivalent within 0.5"])
def test_too_few_queries_decide_no_gate(form):
    few = compared(FEW, {one.id: RIGHT for one in FEW}, {one.id: LOST for one in FEW})
    with pytest.raises(BlindComparisonError, match="4 queries"):
        parse_gate(f"ndcg@10 {form}").decide(few)


@pytest.mark.slow
def test_the_basis_of_a_gate_is_reported_in_words_and_as_data():
    result = parse_gate("success@1 worse").decide(outcome(lost=5))
    assert list(gate_lines([result]))[1].startswith(
        "FAILED  success@1 worse: difference -0.025, bounds [-0.045, -0.010], each at 5 %, p = 0.03"
    )
    told = gate_dict(result)
    assert (told["gate"], told["metric"], told["form"]) == ("success@1 worse", "Success@1", "worse")
    assert (told["failed"], told["low"], told["high"]) == (True, result.low, result.high)
    assert list(gate_lines([])) == []


# as measured


def test_failures_and_empty_answers_are_counted():
    # new: nothing for q3, an error for q4
    table = {"q1": RIGHT, "q2": RIGHT, "q3": [], "q4": ConnectionError("down")}
    comparison = compared(FEW, {one.id: RIGHT for one in FEW}, table)
    found = {
        text: parse_gate(text).decide(comparison)
        for compare in ("<", "<=", ">", ">=")
        for limit in ("0.9", "1", "1.1")
        if parse_gate(text := f"failed {compare} {limit}")
    }
    assert {result.difference for result in found.values()} == {1.0}
    assert {text for text, result in found.items() if result.failed} == {
        "failed < 1.1", "failed <= 1.1", "failed <= 1", "failed > 0.9", "failed >= 0.9",
        "failed >= 1",
    }  # fmt: skip
    assert parse_gate("empty > 0").decide(comparison).difference == 0.5


def test_latency_gates_see_milliseconds():
    same = compared(FEW, {one.id: RIGHT for one in FEW}, {one.id: RIGHT for one in FEW})
    # the stub takes 4 ms; the new one 5.5 ms, and 45 ms where it is asked for the fourth time
    slow = {
        query: replace(given, ms=(5.5, 45.0 if query == "q4" else 5.5))
        for query, given in same.candidate.outcomes.items()
    }
    slower = replace(same, candidate=replace(same.candidate, outcomes=slow))
    assert parse_gate("p50_ms > 0").decide(slower).difference == pytest.approx(1.5)
    # of 8 times, 95 % is .65 of the way from the seventh, 5.5, to the eighth: 31.175
    assert parse_gate("p95_ms > 0").decide(slower).difference == pytest.approx(31.175 - 4)
    assert fails("p95_ms > 27", slower)
    assert not fails("p50_ms > 27", slower)


def test_a_search_that_was_not_timed_has_no_latency_to_gate():
    untimed = compared(FEW, {one.id: RIGHT for one in FEW}, {}, repeats=0)
    with pytest.raises(BlindComparisonError, match="has no times"):
        parse_gate("p50_ms > 0").decide(untimed)
