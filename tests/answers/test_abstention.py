"""Whether to answer is decided from what a search found, before any model is asked."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from catalog.answers.abstention import (
    RetrievalEvidence,
    decide_abstention,
    gather_evidence,
)
from catalog.core.results import SearchResults
from made_results import result

EVIDENCE = RetrievalEvidence(mode="hybrid", passages=3, relevance=0.5, coverage=1.0)


def test_a_question_is_answered_where_relevance_and_words_speak_for_it() -> None:
    assert decide_abstention(EVIDENCE) is None


def test_a_question_of_another_field_is_refused_with_what_was_seen() -> None:
    abstention = decide_abstention(replace(EVIDENCE, relevance=0.05, coverage=0.25))
    assert abstention is not None
    assert "25% of the question's words" in abstention.reason
    assert "5% relevant" in abstention.reason


def test_the_estimate_is_the_formula_of_the_module() -> None:
    # logit(.2) = ln .25; .6095 + 1.1125 ln .25 + 1.2699 / 4
    logit = 0.6095 + 1.1125 * math.log(0.25) + 1.2699 * 0.25
    abstention = decide_abstention(replace(EVIDENCE, relevance=0.2, coverage=0.25))
    assert abstention is not None
    assert abstention.answerable == pytest.approx(1 / (1 + math.exp(-logit)))


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_a_search_that_nothing_was_fitted_for_is_not_decided(mode) -> None:
    evidence = replace(EVIDENCE, mode=mode, relevance=None, coverage=0.0)
    assert decide_abstention(evidence) is None


def test_a_search_by_words_goes_by_the_words() -> None:
    evidence = replace(EVIDENCE, mode="lexical", relevance=None)
    assert decide_abstention(evidence) is None
    assert decide_abstention(replace(evidence, coverage=0.2)) is not None


def test_without_any_passage_there_is_no_answer() -> None:
    abstention = decide_abstention(replace(EVIDENCE, passages=0, relevance=None, coverage=0.0))
    assert abstention is not None
    assert abstention.reason == "no passage was found"


def test_a_stricter_limit_refuses_more() -> None:
    evidence = replace(EVIDENCE, relevance=0.4, coverage=0.6)
    assert decide_abstention(evidence) is None
    assert decide_abstention(evidence, least=0.9) is not None


def test_the_evidence_is_the_best_relevance_and_the_words_of_one_passage_with_its_headings() -> (
    None
):
    results = [
        result(text="Refunds are paid within ten days.", title="Billing", sections=("Terms",)),
        result(text="A zebra.", title="Animals", sections=(), rank=2),
    ]
    found = SearchResults(
        results,
        query="billing refunds for zebras",
        datasets=["notes"],
        mode="hybrid",
        stages=(),
        elapsed_ms=1.0,
        confidence=0.3,
    )
    # billing and refunds stand in the first passage with its title, zebras only in the second
    assert gather_evidence(found) == RetrievalEvidence("hybrid", 2, 0.3, pytest.approx(2 / 3))
