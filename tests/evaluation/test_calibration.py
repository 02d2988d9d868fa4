"""Fitting the constants of relevance and of answering, and what is observed to fit them on."""

import math

import numpy as np
import pytest

from catalog.core.errors import InputError
from catalog.evaluation.calibration import (
    SHIFTS,
    AnswerDecisions,
    LabelledPassages,
    collect_passages,
    fit_relevance,
    fit_shift,
)
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.relevance import Calibration
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from tables import read_cases


def curves(queries, best, height, noise, seed=7):
    """Scores that fall off evenly to both sides of the best shift, with chance added."""
    fall = np.abs(SHIFTS - best) * height
    return 0.6 - fall + np.random.default_rng(seed).normal(0, noise, (queries, len(SHIFTS)))


def test_a_shift_that_most_queries_gain_by_is_found_and_wins():
    fit = fit_shift(curves(60, best=-0.4, height=0.3, noise=0.02), 2.0)
    assert fit.shift == pytest.approx(-0.4, abs=0.1)
    assert fit.gain == pytest.approx(0.12, abs=0.04)
    assert fit.wins


def test_a_fit_that_is_better_by_chance_does_not_win():
    sets = [curves(50, best=0.0, height=0.0, noise=0.2, seed=seed) for seed in range(40)]
    assert sum(fit_shift(scores, 2.0).wins for scores in sets) <= 4


def test_few_queries_move_the_shift_less_than_many_with_the_same_scores():
    row = 0.6 - np.abs(SHIFTS + 0.6) * 0.05
    few, many = (fit_shift(np.tile(row, (queries, 1)), 2.0).shift for queries in (10, 1000))
    assert many <= -0.5
    assert abs(few) < abs(many)


def test_no_shift_never_wins():
    fit = fit_shift(np.ones((60, len(SHIFTS))), 2.0)
    assert (fit.shift, fit.gain, fit.wins) == (0.0, 0.0, False)


def drawn(queries, shift, seed):
    """Queries of ten passages, labelled as often as estimates say whose logits are shifted."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(-1, 1.5, (queries, 10))
    relevant = generator.random((queries, 10)) < 1 / (1 + np.exp(-logits - shift))
    return [
        LabelledPassages(1 / (1 + np.exp(-own)), labels)
        for own, labels in zip(logits, relevant, strict=True)
    ]


def test_labels_shift_a_constant_that_is_wrong_and_few_shift_it_less():
    queries = drawn(100, 2.0, seed=21)
    many, few = fit_relevance(queries), fit_relevance(queries[:8])
    assert many.wins
    assert many.shift == pytest.approx(2.0, abs=0.3)
    assert 0 < few.shift < many.shift


def test_a_calibration_that_is_right_is_not_won_over():
    assert sum(fit_relevance(drawn(100, 0.0, seed=seed)).wins for seed in range(20)) <= 2


@pytest.mark.parametrize(("relevant", "irrelevant"), [(19, 100), (100, 19), (0, 0), (0, 100)])
def test_too_few_labels_of_either_kind_are_refused_and_counted(relevant, irrelevant):
    labels = [*[[True]] * relevant, *[[False]] * irrelevant]
    queries = [LabelledPassages(np.array([0.5]), np.array(one)) for one in labels]
    with pytest.raises(InputError, match=f"there are {relevant} and {irrelevant}: label more"):
        fit_relevance(queries)


def test_one_query_cannot_be_left_out():
    labels = np.array([True, False] * 20)
    with pytest.raises(InputError, match="a single query"):
        fit_relevance([LabelledPassages(np.full(40, 0.5), labels)])


def test_the_least_sure_of_twenty_answerable_queries_is_refused_and_none_without_a_passage_counts():
    margins = [*range(39), -math.inf, 50]  # the last one has no answer
    decisions = AnswerDecisions(np.array(margins) / 10, np.array([True] * 40 + [False]))
    shift, wrongly = decisions.fit_answerable()
    assert shift == 0.0  # the second lowest, of 40, is the least that is answered
    assert wrongly == pytest.approx(2 / 40)
    assert decisions.refused(shift) == (1 / 40, 0.0)


QUERIES = read_cases(__file__)["queries"]


def test_passages_are_observed_with_their_labels_whatever_the_settings_hide(tmp_path, notes):
    golden = GoldenSet("own", tuple(GoldenQuery.model_validate(query) for query in QUERIES))
    by_words = Calibration(0.0, words=1.0)
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(notes, "notes")

        def observe(rag):
            service = SearchServiceV2(library, SearchParts(library).with_settings(rag))
            return collect_passages(service, golden, "notes", by_words, progress=Silent())

        found = observe({})
        assert {name: set(map(bool, one.is_relevant)) for name, one in found.items()} == {
            "q1": {True, False},
            "q2": {True},
            "q3": {False},
        }
        hidden = observe({"similarity_threshold": 0.9, "token_budget": 1})
        assert {name: list(one.estimates) for name, one in hidden.items()} == {
            name: list(one.estimates) for name, one in found.items()
        }
