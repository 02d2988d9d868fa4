"""Fitting relevance: the regression, how good it is, and what is observed to fit it on."""

import math
from dataclasses import replace

import numpy as np
import pytest

from catalog.core.errors import InputError
from catalog.evaluation.calibration import (
    LabelledCandidate,
    auc,
    collect_candidates,
    fit_calibration,
    fit_own,
    measure_quality,
)
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.relevance import Calibration, Features
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

SLOPES = ("cosine", "words", "rank", "name", "named", "exact", "keywords")
TRUTH = Calibration(constant=-1.0, cosine=-2.0, words=0.8, rank=1.5)


def drawn(truth, queries, seed, *, candidates=10):
    """Queries whose candidates are labelled by chance, as likely as ``truth`` says."""
    generator = np.random.default_rng(seed)
    return [
        [_labelled(truth, generator.normal(size=7), generator.random()) for _ in range(candidates)]
        for _ in range(queries)
    ]


def _labelled(truth, values, chance):
    seen = Features(*values)
    return LabelledCandidate("a.md", int(chance < truth.relevance(seen)), 1.0, seen)


def one(grade, cosine=0.0):
    return LabelledCandidate("a.md", grade, 1.0, Features(cosine=cosine, rank=1.0))


def with_grades(relevant, irrelevant):
    return [[one(1, 0.1 * (n % 5))] for n in range(relevant)] + [
        [one(0, 0.1 * (n % 3))] for n in range(irrelevant)
    ]


def test_the_coefficients_that_labels_were_drawn_by_are_found():
    made = fit_calibration([drawn(TRUTH, 3_000, seed=1)], has_cosines=True, about="made up")
    for name in ("constant", *SLOPES):  # the standard error of each is about .02
        assert getattr(made, name) == pytest.approx(getattr(TRUTH, name), abs=0.08)
    assert made.about == "made up"


def test_the_fit_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    truth = Calibration(constant=-0.5, cosine=0.5, words=-0.7, rank=1.0, name=1.2)
    # Of one candidate and of nine: every query weighs the same.
    group = drawn(truth, 200, seed=2, candidates=1) + drawn(truth, 100, seed=3, candidates=9)
    made = fit_calibration([group], has_cosines=True)
    rows = [(seen, 1 / len(query)) for query in group for seen in query]
    weights = np.array([weight for _, weight in rows])
    theirs = linear_model.LogisticRegression(C=math.inf, tol=1e-10, max_iter=1_000).fit(
        [[getattr(seen.features, name) for name in SLOPES] for seen, _ in rows],
        [seen.grade for seen, _ in rows],
        sample_weight=weights / weights.sum() * len(rows),
    )
    ours = [getattr(made, name) for name in SLOPES]
    assert ours == pytest.approx(list(theirs.coef_[0]), abs=1e-3)
    assert made.constant == pytest.approx(theirs.intercept_[0], abs=1e-3)


def test_groups_of_other_base_rates_do_not_bend_the_slopes():
    def group(constant, shift, seed):
        """Densely labelled where cosines are high: pooled, they would seem to tell."""
        truth = Calibration(constant, rank=1.0)
        return [
            [
                LabelledCandidate(
                    "a.md", s.grade, 1.0, replace(s.features, cosine=s.features.cosine + shift)
                )
                for s in query
            ]
            for query in drawn(truth, 800, seed)
        ]

    sparse, dense = group(-2.0, -3.0, seed=4), group(2.0, 3.0, seed=5)
    pooled = fit_calibration([[*sparse, *dense]], has_cosines=True)
    apart = fit_calibration([sparse, dense], has_cosines=True)
    assert pooled.cosine > 0.4, "the trap is set"
    assert apart.cosine == pytest.approx(0.0, abs=0.1)
    assert apart.rank == pytest.approx(1.0, abs=0.15)
    assert apart.constant == pytest.approx(0.0, abs=0.3), "the mean of -2 and 2"


def test_a_group_without_a_passage_counts_for_nothing():
    group = drawn(TRUTH, 100, seed=6)
    alone = fit_calibration([group], has_cosines=True)
    assert fit_calibration([group, [], [[]]], has_cosines=True) == alone


def test_without_cosines_the_other_features_are_fitted_on():
    group = drawn(Calibration(0.0, *[1.0] * 7), 200, seed=7)
    made = fit_calibration([group], has_cosines=False)
    assert {name for name in SLOPES if getattr(made, name) != 0} == set(SLOPES) - {"cosine"}


def test_labels_that_a_line_separates_give_numbers_and_not_infinities():
    group = [[one(1, 1.0)] for _ in range(30)] + [[one(0, -1.0)] for _ in range(30)]
    made = fit_calibration([group], has_cosines=True)
    assert 2 < made.cosine < 100
    assert measure_quality(group, made).auc == 1


@pytest.mark.parametrize(("relevant", "irrelevant"), [(19, 100), (100, 19), (0, 0), (0, 100)])
def test_too_few_labels_of_either_kind_are_refused_and_counted(relevant, irrelevant):
    group = with_grades(relevant, irrelevant)
    with pytest.raises(InputError, match=f"there are {relevant} and {irrelevant}: label more"):
        fit_calibration([group], has_cosines=True)
    with pytest.raises(InputError, match=f"there are {relevant} and {irrelevant}: label more"):
        fit_own(group, None, has_cosines=True, about="")


def test_as_many_labels_as_a_fit_needs_are_enough_to_judge_it():
    group = with_grades(20, 20)
    fit_calibration([group], has_cosines=True)
    assert fit_own(group, None, has_cosines=True, about="").quality.n == 40


def test_one_query_cannot_be_left_out():
    query = [seen for part in with_grades(20, 20) for seen in part]
    with pytest.raises(InputError, match="a single query"):
        fit_own([query, []], None, has_cosines=True, about="")


def test_every_passage_is_judged_by_a_fit_that_did_not_see_its_query():
    group = drawn(TRUTH, 40, seed=8)
    told, labels = [], []
    for fold in range(5):
        judged = group[fold::5]
        others = [query for number, query in enumerate(group) if number % 5 != fold]
        made = fit_calibration([others], has_cosines=True)
        told += [made.relevance(seen.features) for query in judged for seen in query]
        labels += [seen.grade > 0 for query in judged for seen in query]
    found = fit_own(group, None, has_cosines=True, about="").quality
    assert found.n == 400
    assert found.auc == pytest.approx(auc(np.array(told), np.array(labels)))
    assert found.auc < measure_quality(group, fit_calibration([group], has_cosines=True)).auc


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order():
    labels = np.array([True, False, True, False, False])
    # pairs: .9 before .8, .3, .1; .3 before .1, with .3 a tie, after .8: 3 + 1 + .5 of 6
    assert auc(np.array([0.9, 0.8, 0.3, 0.3, 0.1]), labels) == pytest.approx(4.5 / 6)
    assert auc(np.array([0.5] * 5), labels) == 0.5
    assert auc(np.array([0.9, 0.1, 0.8, 0.2, 0.3]), labels) == 1
    assert auc(np.array([0.1, 0.9, 0.2, 0.8, 0.7]), labels) == 0


@pytest.mark.parametrize("label", [True, False])
def test_labels_of_a_single_kind_have_an_auc_of_one_half(label):
    assert auc(np.array([0.1, 0.9]), np.array([label, label])) == 0.5


def test_the_calibration_error_is_the_mean_distance_over_bins_of_estimates():
    def told(relevance, grade):
        logit = math.log(relevance / (1 - relevance))
        return LabelledCandidate("a.md", grade, 0.0, Features(cosine=logit))

    as_is = Calibration(0.0, cosine=1.0)
    observed = [[told(0.12, 0), told(0.18, 1)], [told(0.85, 2), told(0.95, 1)]]
    # bins: .1-.2 holds .15 against 1/2, .8-.9 holds .85 against 1, .9-1 .95 against 1
    # (2 * .35 + 1 * .15 + 1 * .05) / 4
    found = measure_quality(observed, as_is)
    assert (found.n, found.error) == (4, pytest.approx(0.225))
    assert found.auc == 1


QUERIES = (
    {"id": "q1", "query": "rotate the api keys", "expected": [{"path": "keys.md", "grade": 3}]},
    {
        "id": "q2",
        "query": "rotate the api keys",
        "filters": {"path": "bread.txt"},
        "expected": [{"path": "bread.txt", "grade": 1}, {"path": "keys.md", "grade": 0}],
    },
    {"id": "q3", "query": "backups of the keys", "kind": "unanswerable", "expected": []},
)


@pytest.fixture
def observed(tmp_path, notes):
    golden = GoldenSet("own", tuple(GoldenQuery.model_validate(query) for query in QUERIES))
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(notes, "notes")

        def run(rag=None, **more):
            service = SearchServiceV2(library, SearchParts(library).with_settings(rag or {}))
            return service, collect_candidates(service, golden, "notes", progress=Silent(), **more)

        yield run


def test_passages_are_observed_with_the_grade_of_their_document(observed):
    _, found = observed()
    assert list(found) == ["q1", "q2", "q3"]
    assert {seen.path: seen.grade for seen in found["q1"]} == {
        "keys.md": 3,
        "bread.txt": 0,
        "guides/backup.md": 0,
    }
    assert {seen.path: seen.grade for seen in found["q2"]} == {"bread.txt": 1}, "it is filtered"
    assert found["q3"]
    assert {seen.grade for seen in found["q3"]} == {0}


def test_what_is_observed_is_what_the_mode_and_the_depth_give(observed):
    _, lexical = observed(mode="lexical", depth=1)
    assert [(seen.path, seen.features.cosine) for seen in lexical["q1"]] == [("keys.md", 0.0)]
    assert lexical["q1"][0].features.words > 0


def test_a_threshold_or_a_budget_of_the_settings_does_not_stand_in_the_way(observed):
    _, plain = observed()
    _, found = observed({"similarity_threshold": 0.9, "token_budget": 1})
    assert found == plain


def own(group, packaged):
    return fit_own(group, packaged, has_cosines=True, about="mine")


def test_own_labels_shift_the_constant_of_what_is_packaged_and_nothing_else():
    packaged = replace(TRUTH, constant=-3.0, about="packaged")
    fit = own(drawn(TRUTH, 60, seed=21), packaged)
    assert fit.wins
    assert fit.calibration.constant == pytest.approx(TRUTH.constant, abs=0.3)
    expected = replace(packaged, constant=fit.calibration.constant, about="mine")
    assert fit.calibration == expected


def test_few_labels_shift_it_less_than_many():
    packaged = replace(TRUTH, constant=-3.0)
    group = drawn(TRUTH, 100, seed=22)
    few, many = own(group[:8], packaged).calibration, own(group, packaged).calibration
    assert packaged.constant < few.constant < many.constant


def test_a_packaged_calibration_that_is_right_is_not_won_over():
    assert not own(drawn(TRUTH, 100, seed=23), TRUTH).wins


def test_without_a_packaged_one_all_is_fitted_and_has_to_win_over_the_share_of_relevant_passages():
    fit = own(drawn(TRUTH, 200, seed=24), None)
    assert fit.wins
    assert fit.calibration.rank == pytest.approx(TRUTH.rank, abs=0.3)
    blind = Calibration(constant=-1.0)
    assert not own(drawn(blind, 100, seed=25), None).wins
