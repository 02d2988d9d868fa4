"""Better, worse or not shown: what a comparison says of searches whose quality is known."""

import json
import random

import pytest

from catalog.core.errors import BlindComparisonError, InputError
from catalog.core.user_search import RankedHit
from catalog.evaluation.comparison import compare_runs
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import SHOWN_METRICS
from catalog.evaluation.runs import run_backends
from catalog.evaluation.significance import McNemar, holm
from catalog.evaluation.summary import comparison_dict, comparison_lines
from evaluation.stubs import TableBackend, compared, golden, question

RIGHT, WRONG = ["right.md", "wrong.md"], ["wrong.md", "right.md"]
# one answer of grade 3 in second place: 3/log2(3) ÷ 3/log2(2)
SECOND = 0.6309297535714575


def real_set(n=120, seed=7):
    """``n`` queries with three graded labels each, and a search that mostly finds them."""
    rng = random.Random(seed)
    queries, found = [], {}
    for number in range(1, n + 1):
        paths = [f"d{number}-{j}" for j in range(20)]
        expected = [{"path": paths[j], "grade": 3 - j} for j in range(4)]
        queries.append(
            question(
                number,
                expected=expected,
                difficulty=rng.choice(["easy", "medium", "hard", "fusion"]),
                kind=rng.choice(["semantic", "exact", "metadata"]),
            )
        )
        noisy = sorted(range(20), key=lambda j, r=rng: j + r.gauss(0, 4))
        found[f"q{number}"] = [paths[j] for j in noisy]
    return queries, found


def shuffled(found, seed=11):
    rng = random.Random(seed)
    return {query: rng.sample(paths, len(paths)) for query, paths in found.items()}


def test_a_search_compared_with_itself_shows_no_difference():
    queries, found = real_set()
    result = compared(queries, found, found, repeats=0)
    assert result.outcome == "no difference"
    assert (result.primary.p, result.primary.difference) == (1.0, 0.0)
    assert {row.adjusted_p for row in result.metrics} == {1.0}
    assert result.warnings == ()
    assert result.verdict.startswith("No difference between new and old is shown: nDCG@10 ")
    assert "p = 1.000, n = 120." in result.verdict
    assert {one.delta for one in result.deltas} == {0.0}


def test_a_search_with_shuffled_ranks_is_worse_beyond_doubt():
    queries, found = real_set()
    result = compared(queries, found, shuffled(found), repeats=0)
    assert result.outcome == "worse"
    assert result.primary.p < 0.01
    assert result.primary.interval.high < 0
    assert result.verdict.startswith("new is worse than old: nDCG@10 ")
    assert "p < .001" in result.verdict


def test_a_verdict_holds_the_numbers_it_rests_on():
    # 30 queries, half of them answered second instead of first:
    # mean (15 + 15 × .63093) / 30 = .81546, difference .81546 - 1 = -.18454
    queries = [question(n) for n in range(1, 31)]
    old = {one.id: RIGHT for one in queries}
    new = {one.id: RIGHT if n % 2 else WRONG for n, one in enumerate(queries)}
    result = compared(queries, old, new)
    assert result.primary.candidate_mean == pytest.approx((15 + 15 * SECOND) / 30)
    assert "nDCG@10 0.815 against 1.000, -0.185 [-0." in result.verdict
    assert result.verdict.endswith("p < .001, n = 30.")
    assert result.outcome == "worse"


def test_a_failing_query_scores_zero_and_is_reported():
    queries = [question(n) for n in range(1, 31)]
    old = {one.id: RIGHT for one in queries}
    new = old | {f"q{n}": ConnectionError("refused") for n in (4, 5, 6)}
    result = compared(queries, old, new)
    assert result.primary.candidate_mean == pytest.approx(27 / 30)
    assert [(one.query.id, one.delta) for one in result.deltas[:4]] == [
        ("q4", -1.0), ("q5", -1.0), ("q6", -1.0), ("q1", 0.0),
    ]  # fmt: skip
    (warning,) = [one for one in result.warnings if "failed" in one]
    assert warning == (
        "new failed on 3 of 30 queries, which score 0; first q4: ConnectionError: refused"
    )
    assert f"! {warning}" in list(comparison_lines(result))
    told = comparison_dict(result)
    assert told["failures"]["candidate"]["q5"] == "ConnectionError: refused"
    assert told["failures"]["baseline"] == {}
    assert told["runs"]["candidate"]["failed"] == 3
    assert warning in told["warnings"]


def test_a_baseline_that_always_fails_does_not_flatter_the_candidate():
    queries = [question(n) for n in range(1, 31)]
    old = {one.id: RuntimeError("down") for one in queries}
    with pytest.raises(BlindComparisonError, match="failed"):
        compared(queries, old, {one.id: RIGHT for one in queries})


def test_a_backend_with_other_document_names_is_refused_with_examples():
    queries = [question(n) for n in range(1, 31)]
    old = {one.id: ["/home/me/right.md"] for one in queries}
    result = compared(queries, old, {one.id: RIGHT for one in queries})
    told = next(one for one in result.warnings if "no labelled document" in one)
    assert told.startswith("old found")
    assert "'/home/me/right.md'" in told
    assert "'right.md'" in told


def test_nothing_is_compared_when_neither_finds_any_answer():
    queries = [question(n) for n in range(1, 31)]
    found = {one.id: ["wrong.md", "x"] for one in queries}
    with pytest.raises(BlindComparisonError, match="score 0"):
        compared(queries, found, {one.id: ["y"] for one in queries})


def test_nothing_is_compared_when_too_little_is_judged():
    # a judged document near the top on 14 of 30 queries is under half, on 15 it is half
    queries = [question(n) for n in range(1, 31)]

    def seen(n):
        return {one.id: RIGHT if i < n else ["x", "y"] for i, one in enumerate(queries)}

    with pytest.raises(BlindComparisonError, match="16 of 30"):
        compared(queries, seen(14), seen(10))
    assert compared(queries, seen(15), seen(10)).outcome


def test_a_judged_document_after_the_tenth_is_not_seen():
    queries = [question(n) for n in range(1, 31)]
    late = {one.id: [*(f"x{n}" for n in range(10)), "right.md"] for one in queries}
    early = late | {"q1": RIGHT}
    with pytest.raises(BlindComparisonError, match="for 29 of 30"):
        compared(queries, late, early)


def test_a_set_without_an_answerable_query_cannot_be_compared():
    queries = [question(n, kind="unanswerable", expected=[]) for n in range(1, 31)]
    with pytest.raises(BlindComparisonError, match="golden"):
        compared(queries, {}, {})


@pytest.mark.parametrize("others", [(1, 2), (1, 2, 3, 4)])
def test_runs_of_other_queries_are_refused_by_name(others):
    asked = golden(*(question(n) for n in (1, 2, 3)))
    other = golden(*(question(n) for n in others))
    table = TableBackend("old", {f"q{n}": RIGHT for n in range(9)})
    (right,) = run_backends([table], asked, dataset="d")
    (wrong,) = run_backends([TableBackend("new", {})], other, dataset="d")
    with pytest.raises(InputError, match="other queries"):
        compare_runs(right, wrong, asked)
    with pytest.raises(InputError, match="other queries"):
        compare_runs(wrong, right, asked)


def test_unanswerable_queries_do_not_decide():
    queries = [question(n) for n in range(1, 31)]
    silly = [question(n, kind="unanswerable", expected=[]) for n in range(31, 61)]
    found = {one.id: RIGHT for one in queries}
    result = compared([*queries, *silly], found, found | {one.id: WRONG for one in silly})
    assert result.primary.n == 30
    assert result.outcome == "no difference"
    assert len(result.deltas) == 30
    assert result.candidate_scores.unanswerable.answered == 30
    assert result.baseline_scores.unanswerable.answered == 0


def test_strata_are_the_queries_of_one_difficulty_or_kind_with_their_number():
    # 25 easy, all better; 24 hard, all better, too few; 5 metadata among the easy
    easy = [question(n, kind="metadata" if n <= 5 else "semantic") for n in range(1, 26)]
    hard = [question(n, difficulty="hard") for n in range(26, 50)]
    plain = [question(50, difficulty=None, kind=None)]
    queries = [*hard, *easy, *plain]
    old, new = {one.id: WRONG for one in queries}, {one.id: RIGHT for one in queries}
    strata = compared(queries, old, new).strata
    assert [(one.by, one.name, one.test.n, one.outcome) for one in strata] == [
        ("all", "all", 50, "better"),
        ("difficulty", "easy", 25, "better"),
        ("difficulty", "hard", 24, "too few to tell"),
        ("kind", "semantic", 44, "better"),
        ("kind", "metadata", 5, "too few to tell"),
    ]


@pytest.mark.slow
def test_the_metrics_shown_are_tested_and_corrected_for_their_number():
    queries, found = real_set()
    result = compared(queries, found, shuffled(found), repeats=0)
    assert [row.metric for row in result.metrics] == ["nDCG@10", "Success@1", "R@10", "R@100"]
    assert result.primary is result.metrics[0].test
    raw = {row.metric: row.test.p for row in result.metrics}
    assert {row.metric: row.adjusted_p for row in result.metrics} == holm(raw)
    assert any(row.adjusted_p > row.test.p for row in result.metrics)


def test_successes_are_counted_as_gained_and_lost():
    # Success@1: q1 to q9 gained, q10 and q11 lost, the rest alike.
    # p = 2 (C(11,0) + C(11,1) + C(11,2)) / 2^11 = 2 (1 + 11 + 55) / 2048 = 134 / 2048
    queries = [question(n) for n in range(1, 31)]
    old = {f"q{n}": WRONG if n <= 9 else RIGHT for n in range(1, 31)}
    new = {f"q{n}": WRONG if n in (10, 11) else RIGHT for n in range(1, 31)}
    result = compared(queries, old, new)
    more = compare_runs(
        result.baseline, result.candidate, result.golden, metrics=["P@1", "Success@3", "Success@1"]
    )
    rows = {row.metric: row for row in more.metrics}
    assert list(rows) == ["nDCG@10", "P@1", "Success@3", "Success@1"]  # what decides comes first
    assert rows["Success@1"].mcnemar == McNemar(gained=9, lost=2, p=134 / 2048)
    assert rows["Success@3"].mcnemar == McNemar(0, 0, 1.0)  # second is within three for both
    assert rows["nDCG@10"].mcnemar is None
    assert rows["P@1"].mcnemar is None


def test_queries_go_from_the_largest_loss_to_the_largest_win():
    queries = [question(n) for n in range(1, 6)]
    third = ["x", "y", "right.md"]  # 1/log2(4) = .5
    old = {"q1": RIGHT, "q2": third, "q3": RIGHT, "q4": RIGHT, "q5": WRONG}
    new = {"q1": RIGHT, "q2": RIGHT, "q3": third, "q4": [], "q5": RIGHT}
    found = [(one.query.id, pytest.approx(one.delta)) for one in compared(queries, old, new).deltas]
    assert found == [
        ("q4", -1.0), ("q3", -0.5), ("q1", 0.0), ("q5", 1 - SECOND), ("q2", 0.5),
    ]  # fmt: skip


def test_much_less_judged_on_one_side_is_reported_with_who_it_hurts():
    # judged: 2 of 2 documents against 2 of 8
    queries = [question(n) for n in range(1, 31)]
    new = {one.id: [*RIGHT, *(f"x{n}" for n in range(6))] for one in queries}
    result = compared(queries, {one.id: RIGHT for one in queries}, new)
    assert result.warnings == (
        "Of the first 10 documents 100% (old) and 25% (new) are judged; "
        "unjudged ones count as wrong, against new",
    )


def test_an_unstable_search_and_forbidden_passages_are_reported():
    class Wavering(TableBackend):
        turn = 0

        def search(self, query, **asked):
            answer = super().search(query, **asked)
            type(self).turn += query.id == "q1"
            swapped = query.id == "q1" and self.turn % 2
            return type(answer)(answer.hits[::-1]) if swapped else answer

    queries = [question(1), question(2, filters={"tag": "x"}), question(3), question(4)]
    found = {one.id: RIGHT for one in queries}
    asked = GoldenSet("stub", tuple(queries))
    before, after = run_backends(
        [TableBackend("old", found), Wavering("new", found)], asked, dataset="d", repeats=2
    )
    result = compare_runs(before, after, asked, lambda query: frozenset({"right.md"}))
    assert "new answered 25% of the queries differently the second time" in result.warnings
    assert any(one.startswith("old showed 1 passages that") for one in result.warnings)
    assert not any(one.startswith("old answered") for one in result.warnings)


def test_the_text_begins_with_the_verdict_and_ends_with_wins_and_losses():
    queries = [question(n) for n in range(1, 31)]
    old = {one.id: RIGHT for one in queries} | {"q7": []}
    new = {one.id: RIGHT for one in queries} | {"q9": [RankedHit("wrong.md")]}
    lines = list(comparison_lines(compared(queries, old, new)))
    assert lines[0].startswith("No difference")
    # one win and one loss of 30: variance 2 / 29; √(7.8489 · 2 / 29 / 30) = .134
    assert lines[1].startswith("30 questions would show a difference of 0.134 in 4 of 5 cases; it")
    assert "Largest wins:" in lines
    assert "  +1.000  q7  question number 7" in lines
    assert lines[-2:] == ["Largest losses:", "  -1.000  q9  question number 9"]


def test_the_json_holds_every_number_of_the_text():
    queries, found = real_set(40)
    told = json.loads(json.dumps(comparison_dict(compared(queries, found, shuffled(found)))))
    assert told["outcome"] == "worse"
    assert [one["metric"] for one in told["metrics"]] == list(SHOWN_METRICS)
    first = told["metrics"][0]
    assert first["difference"] == pytest.approx(first["candidate_mean"] - first["baseline_mean"])
    assert set(first["wins_ties_losses"]) == {"wins", "ties", "losses"}
    assert len(told["queries"]) == 40
    assert told["queries"][0]["candidate"] < told["queries"][0]["baseline"]
    assert told["runs"]["baseline"]["metrics"]["nDCG@10"] == pytest.approx(first["baseline_mean"])
