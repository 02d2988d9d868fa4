"""The balance of the legs that labels teach: chosen, shrunk, and adopted only when it wins."""

import json

import numpy as np
import pytest

from catalog.evaluation.calibration import SHIFTS, fit_shift, measure_shifts
from catalog.evaluation.golden_files import read_golden
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.retrieval.adaptive import BY_WORDS, PRIOR, find_shift, save_balance
from catalog.retrieval.search_parts import SearchParts
from fakes import open_library


def curves(queries, best, height, noise, seed=7):
    """Scores that fall off evenly to both sides of the best shift, with chance added."""
    fall = np.abs(np.array(SHIFTS) - best) * height
    return 0.6 - fall + np.random.default_rng(seed).normal(0, noise, (queries, len(SHIFTS)))


def test_a_shift_that_most_queries_gain_by_is_found_and_wins():
    fit = fit_shift(curves(60, best=-0.4, height=0.3, noise=0.02))
    assert fit.shift == pytest.approx(-0.4, abs=0.1)
    assert fit.gain == pytest.approx(0.12, abs=0.04)
    assert fit.wins


def test_a_fit_that_is_better_by_chance_does_not_win():
    sets = [curves(50, best=0.0, height=0.0, noise=0.2, seed=seed) for seed in range(40)]
    assert sum(fit_shift(scores).wins for scores in sets) <= 4


def test_few_queries_move_the_balance_less_than_many_with_the_same_scores():
    row = 0.6 - np.abs(np.array(SHIFTS) + 0.6) * 0.05
    few, many = (fit_shift(np.tile(row, (queries, 1))).shift for queries in (10, 1000))
    assert many <= -0.5
    assert abs(few) < abs(many)


def test_the_shift_without_labels_is_what_another_has_to_win_over():
    scores = curves(60, best=-0.4, height=0.3, noise=0.02)
    assert fit_shift(scores, usual=0.0).wins
    assert not fit_shift(scores, usual=-0.4).wins
    assert fit_shift(curves(60, best=0.0, height=0.3, noise=0.02), usual=-0.35).wins


def test_the_prior_itself_never_wins():
    fit = fit_shift(np.ones((60, len(SHIFTS))))
    assert (fit.shift, fit.gain, fit.wins) == (0.0, 0.0, False)


@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.md").write_text(f"alpha beta topic{number} gamma\n")
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(folder, "docs")
        yield SearchParts(library)


def test_every_shift_is_scored_for_every_answerable_query_without_filters(parts, tmp_path):
    lines = [
        {"id": "a", "query": "topic3", "expected": [{"path": "3.md"}]},
        {"id": "b", "query": "nothing here", "kind": "unanswerable"},
        {"id": "c", "query": "topic4", "expected": [{"path": "4.md"}], "filters": ["path=4.md"]},
    ]
    file = tmp_path / "set.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = measure_shifts(parts, read_golden(file), "docs", progress=Silent())
    assert scores.shape == (1, len(SHIFTS))
    assert scores[0] == pytest.approx(1.0)


def test_a_learnt_balance_is_of_its_dataset_model_and_formula(parts):
    model = parts.library.wanted_model.fingerprint
    assert parts.with_settings({"rrf_k": 61}).balance("docs") == PRIOR
    save_balance(parts.database, "docs", model, parts.rag, shift=-0.3, about="by hand")
    assert parts.balance("docs").shift == -0.3
    assert parts.balance("other") == parts.balance(("docs", "other")) == PRIOR
    assert parts.with_settings({"fusion_mode": "rrf"}).balance("docs") == PRIOR
    heavier = parts.with_settings({"vector_weight": 2.0})
    assert heavier.balance("docs") == PRIOR
    assert find_shift(parts.database, "docs", model, parts.rag) == -0.3
    save_balance(parts.database, "docs", model, parts.rag, shift=None, about="none won")
    assert find_shift(parts.database, "docs", model, parts.rag) is None


def test_what_labels_taught_of_useless_vectors_keeps_that_they_make_up_for_nothing(parts):
    model = parts.library.wanted_model.fingerprint
    entry = json.dumps({"state": "", "agreement": 0.1, "useless": "vector"})
    parts.database.set_meta("agreement:docs", entry)
    assert parts.balance("docs") == BY_WORDS
    save_balance(parts.database, "docs", model, parts.rag, shift=-0.5, about="by hand")
    fresh = parts.with_settings({"rrf_k": 61}).balance("docs")
    assert [fresh.vector_share(cover) for cover in (1.0, 0.1)] == pytest.approx([0.15, 0.15])
