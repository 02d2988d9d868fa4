"""More than two searches: every pair tested, groups that cannot be told apart, one report."""

from datetime import UTC, datetime

import pytest

from catalog.core.errors import InputError
from catalog.core.user_search import RankedHit
from catalog.evaluation.comparison import _find_groups, compare_systems
from catalog.evaluation.report import render_systems
from catalog.evaluation.runs import run_backends
from catalog.evaluation.significance import holm, paired_test
from catalog.evaluation.summary import systems_dict, systems_lines
from evaluation.stubs import TableBackend, golden, question, ticking
from tables import table

ASKED = golden(*(question(n) for n in range(40)))
FIRST, SECOND = ["right.md", "wrong.md"], ["wrong.md", "right.md"]
TABLES = {  # nDCG@10 is 1 where the right document is first, and .63 where it is second
    "old": {query.id: SECOND for query in ASKED},
    "best": {query.id: FIRST for query in ASKED},
    "near": {query.id: FIRST if n else SECOND for n, query in enumerate(ASKED)},
    "same": {query.id: SECOND if n != 1 else FIRST for n, query in enumerate(ASKED)},
}


def systems(asked=ASKED, names=tuple(TABLES)):
    backends = [TableBackend(name, TABLES[name]) for name in names]
    runs = run_backends(backends, asked, dataset="books", clock=ticking())
    return compare_systems(runs, asked, warnings=["a warning"])


def test_metrics_of_few_questions_say_of_how_many():
    label = [{"path": "right.md", "grade": 3, "span": "ninety days"}]
    asked = golden(*(question(n, expected=label) for n in range(3)), *ASKED.queries[3:])
    hits = {query.id: [RankedHit("right.md", text="every ninety days")] for query in asked}
    backends = [TableBackend(name, hits) for name in ("one", "two", "three")]
    lines = systems_lines(compare_systems(run_backends(backends, asked, dataset="books"), asked))
    assert sum(line.endswith("are of 3 queries with labelled spans") for line in lines) == 1
    assert not any("labelled spans" in line for line in systems_lines(systems()))


@table("apart, groups", inner=tuple)
def test_groups_are_the_longest_rows_of_which_no_two_are_apart(apart, groups):
    found = _find_groups("abcd", [frozenset(pair) for pair in apart])
    assert ["".join(group) for group in found] == [*groups]


def test_every_pair_is_tested_and_corrected_for_their_number():
    told = systems()
    columns = {name: [*one.per_query["nDCG@10"].values()] for name, one in told.scores.items()}
    assert [*told.scores] == ["best", "near", "same", "old"]  # the highest mean first
    raw = {
        (pair.baseline, pair.candidate): paired_test(
            columns[pair.baseline], columns[pair.candidate]
        )
        for pair in told.pairs
    }
    assert len(raw) == 6
    assert [pair.test for pair in told.pairs] == [*raw.values()]
    adjusted = holm({str(pair): test.p for pair, test in raw.items()})
    assert [pair.adjusted_p for pair in told.pairs] == [*adjusted.values()]
    assert told.groups == (("best", "near"), ("same", "old"))
    assert told.outcome == "tied"
    assert told.verdict.startswith("No best search is shown: best and near: nDCG@10 best 1.000")
    assert [one.candidate.name for one in told.comparisons] == ["best", "near", "same"]


def test_one_that_beats_each_other_is_best_and_few_queries_tell_nothing():
    assert systems(names=("old", "same", "best")).verdict.startswith(
        "best is better than each of the other 2: nDCG@10 best 1.000, same 0.640, old 0.631, "
        "3 pairs (Holm), n = 40."
    )
    few = systems(golden(*ASKED.queries[:20]))
    assert (few.outcome, few.groups) == ("too few to tell", (("best", "near", "same", "old"),))


def test_two_searches_of_one_name_are_refused():
    with pytest.raises(InputError, match="two of the searches are named 'old'"):
        systems(names=("old", "best", "old"))


def test_the_table_the_numbers_and_the_report_say_the_same():
    told = systems()
    lines, numbers = [*systems_lines(told)], systems_dict(told)
    assert lines[1] == "! a warning"
    assert [line.split()[:2] + line.split()[4:5] for line in lines[4:8]] == [
        ["best", "1.000", "a"], ["near", "0.991", "a"], ["same", "0.640", "b"],
        ["old", "0.631", "b"],
    ]  # fmt: skip
    assert next(one for one in lines if one.startswith("near − best")).endswith("not told apart")
    assert [one["groups"] for one in numbers["systems"]] == ["a", "a", "b", "b"]
    assert [one["differ"] for one in numbers["pairs"]] == [True, True, False, False, True, True]
    page = render_systems(told, created=datetime(2026, 1, 2, tzinfo=UTC))
    for part in ("a warning", "best, near", "same, old", "corrected by Holm for 6 pairs"):
        assert part in page
