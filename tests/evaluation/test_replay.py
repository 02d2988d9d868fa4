"""Asking again: overlap, the verdict, files of lists, and labels that follow their words."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import BlindComparisonError, GoldenSetError
from catalog.core.user_search import RankedHit
from catalog.evaluation.golden import GoldenSet, find_drift, follow_drift
from catalog.evaluation.replay import (
    Snapshot,
    compare_replay,
    decide,
    rank_biased_overlap,
    read_snapshot,
    replay_lines,
    tied_documents,
    write_snapshot,
)
from catalog.evaluation.runs import run_backends
from evaluation.stubs import TableBackend, golden, question
from stores import open_store
from tables import table

RANKINGS = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=12)
SPAN = "keys rotate every ninety days"


def by_equation(first, second, p):
    """Equation 30 of Webber et al. with the agreement of section 5, for rankings without ties."""
    tops = [(first[:d], second[:d]) for d in range(1, max(len(first), len(second)) + 1)]
    agreements = [2 * len({*one} & {*other}) / len(one + other) for one, other in tops]
    whole = sum(one * p**d for d, one in enumerate(agreements, 1))
    return (1 - p) / p * whole + agreements[-1] * p ** len(agreements)


@table("first, second, overlap")
def test_overlap_is_the_number_worked_by_hand(first, second, overlap):
    assert rank_biased_overlap(first.split(), second.split()) == pytest.approx(overlap, abs=1e-9)


@given(RANKINGS.filter(bool), RANKINGS.filter(bool), st.floats(0.5, 0.98))
def test_overlap_without_ties_is_the_equation_of_the_paper(first, second, p):
    found = rank_biased_overlap(first, second, p)
    assert found == pytest.approx(by_equation(first, second, p))
    assert found == pytest.approx(rank_biased_overlap(second, first, p))
    assert -1e-9 <= found <= 1 + 1e-9
    assert (found == 0) == (not {*first} & {*second})


@given(RANKINGS, st.data())
def test_the_order_within_a_tie_does_not_matter_and_equal_rankings_overlap_wholly(names, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, 11))))
    groups = [names[a:b] for a, b in zip([0, *cuts], [*cuts, 12], strict=True)]
    other = [data.draw(st.permutations(group)) for group in groups]
    assert rank_biased_overlap(groups, other) == pytest.approx(1)
    assert rank_biased_overlap(groups, names[::-1]) == pytest.approx(
        rank_biased_overlap(other, names[::-1])
    )


@table("scores, churn, verdict, reason", inner=list)
def test_the_verdict_follows_labels_then_the_limit(scores, churn, verdict, reason):
    changed, size, same = scores
    found = decide(np.array([size] * changed + [0.0] * same), churn)
    assert found[0] == verdict
    assert reason in found[1]


def asked(queries, *tables):
    backends = [TableBackend(f"s{n}", lists) for n, lists in enumerate(tables)]
    return run_backends(backends, queries, dataset="books", repeats=0)


def test_lost_answers_and_moved_lists_are_named_with_their_ranks(tmp_path):
    queries = golden(*(question(n) for n in range(30)), question(30, expected=[], kind=None))
    wrong = [f"{n}.md" for n in range(10)]
    old = {f"q{n}": ["right.md", "wrong.md"] for n in range(31)}
    before, now = asked(queries, old, old | {"q3": [*wrong, "right.md"], "q30": ["wrong.md"]})
    found = compare_replay(before, now, queries, changed={"version": ("1", "2")})
    assert (found.verdict, found.moved[0].query.id) == ("PASS", "q3")
    many = compare_replay(before, now, queries, changed={f"s{n}": (n, None) for n in range(12)})
    lines = [*replay_lines(many)]
    assert "  and 3 more changes (--json)" in lines  # 12, and the search
    assert not any("pipeline" in line for line in lines)
    assert found.moved[0].documents == (("right.md", 1, 11),)
    assert [(one.query.id, one.lost) for one in found.moved if one.lost] == [
        ("q3", [("right.md", 1, 11)]),
        ("q30", [("right.md", 1, None)]),  # the first three stand for labels
    ]
    assert found.churn == pytest.approx(sum(one.churn for one in found.moved) / 31)
    assert sum(one.churn > 0 for one in found.moved) == 2
    file = tmp_path / "lists.json"
    write_snapshot(Snapshot(queries, before, {"version": "1"}), file)
    read = read_snapshot(file)
    assert [*read.golden] == [*queries]
    assert read.run == before
    assert read.about == {"version": "1"}
    assert compare_replay(read.run, now, read.golden).moved == found.moved


def test_a_file_keeps_scores_copies_and_the_words_of_three_hits(tmp_path):
    hits = [
        RankedHit("a", 0.0, "x  " * 900, "lines 1–2", also_in=(RankedHit("b", 0.0),)),
        *(RankedHit(name, 0.0, f"words of {name}") for name in "cde"),
    ]
    same = [{"path": "a", "grade": 1}, {"path": "b", "grade": 1}]
    queries, file = golden(question(1, expected=same)), tmp_path / "lists.json"
    (run,) = asked(queries, {"q1": hits})
    write_snapshot(Snapshot(queries, run, {}), file)
    read = read_snapshot(file)
    answer = read.run.outcomes["q1"].answer
    assert tied_documents(answer) == tied_documents(run.outcomes["q1"].answer) == [[*"abcde"]]
    assert {path: len(words) for (_, path), words in read.quotes.items()} == {
        "a": 200, "c": 10, "d": 10,
    }  # fmt: skip
    assert answer.hits[0].location == "lines 1–2"


def test_labels_with_spans_keep_their_passages_whole_so_that_span_recall_is_compared(tmp_path):
    label = {"path": "b", "grade": 1, "span": SPAN}
    queries = golden(*(question(n, expected=[label]) for n in range(3)))
    copy = (RankedHit("b", 0.5, text := "x " * 300 + SPAN),)
    filler = [RankedHit(f"f{n}", 0.5, "filler " * 90, times=(n, n + 1.5)) for n in range(12)]
    old = [filler[0], RankedHit("a", 0.5, text, also_in=copy), *filler[1:]]
    new = [*filler[:10], RankedHit("b", 0.5, text)]
    same = {query.id: old for query in queries}
    before, now = asked(queries, same, same | {"q1": new})
    write_snapshot(Snapshot(queries, before, {}), file := tmp_path / "lists.json")
    read = read_snapshot(file)
    told = [hit.text for hit in read.run.outcomes["q0"].answer.hits]
    assert [len(one) for one in told] == [630, *[len(text)] * 1, *[630] * 8, 0, 0, 0]
    assert read.run.outcomes["q0"].answer.hits[0].times == (0, 1.5)
    assert {len(words) for words in read.quotes.values()} == {200}
    by_file, by_run = (compare_replay(one, now, queries) for one in (read.run, before))
    rows = [{row.metric: row.test for row in it.comparison.metrics} for it in (by_file, by_run)]
    assert rows[0] == rows[1]
    assert rows[0]["SR@10"].difference == pytest.approx(-1 / 3)
    assert "  SR@10 1.000 → 0.667 over 3 with quoted labels" in [*replay_lines(by_file)]


def test_lists_cut_to_their_first_have_moved_and_an_answer_in_neither_list_kept_no_rank():
    labels = [{"path": "gone.md", "grade": 1}]
    queries = golden(*(question(n, expected=labels) for n in range(3)))
    lists = {query.id: [f"{n}.md" for n in range(17)] for query in queries}
    before, now = asked(queries, lists, {name: one[:1] for name, one in lists.items()})
    for found in (compare_replay(before, now, queries), compare_replay(now, before, queries)):
        assert (found.verdict, found.churn > 0.5) == ("HOLD", True)
        told = "\n".join(replay_lines(found))
        assert "0 with the same list" in told
        assert told.count("its answers are in neither list") == 3


def test_a_replay_in_which_every_question_fails_decides_nothing():
    queries = golden(*(question(n) for n in range(3)))
    lists = {query.id: ["right.md"] for query in queries}
    before, now = asked(queries, lists, dict.fromkeys(lists, ValueError("no index")))
    with pytest.raises(BlindComparisonError, match="every question failed: ValueError: no index"):
        compare_replay(before, now, queries)


def test_a_file_is_for_its_owner_alone_and_one_with_another_depth_is_refused(tmp_path):
    queries, file = golden(question(1)), tmp_path / "lists.json"
    (run,) = asked(queries, {"q1": ["right.md"]})
    write_snapshot(Snapshot(queries, run, {}), file)
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_text()
    for depth in (10**30, 1e300, "many", 0):
        file.write_text(whole.replace('"top_k": 100', f'"top_k": {json.dumps(depth)}'))
        with pytest.raises(GoldenSetError, match="top_k that is not from 10 to 1,000"):
            read_snapshot(file)
    file.write_text('{"form":' * 100_000)
    with pytest.raises(GoldenSetError, match="was changed"):
        read_snapshot(file)


def test_words_of_a_renamed_document_are_not_those_of_another_one_that_is_labelled(tmp_path):
    labels = [{"path": f"{name}.md", "grade": 2, "span": SPAN} for name in ("old", "other")]
    sets = [GoldenSet("set", (question(1, expected=labels[:count]),)) for count in (2, 1)]
    with open_store({f"docs/{name}.md": SPAN for name in ("new", "other")}, tmp_path) as library:
        found = [find_drift(one, library.database, "docs") for one in sets]
    assert [[(one.path, one.new_path) for one in drift] for drift in found] == [
        [("old.md", "new.md")],
        [("old.md", None)],
    ]


@table("text")
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(GoldenSetError, match="odd"):
        read_snapshot(tmp_path / "odd.json")


@table("old, other, path, words")
def test_a_label_follows_its_words(tmp_path, old, other, path, words):
    texts = {"old.md": old, "new.md": other, "third.md": "Bread."}
    files = {f"docs/{name}": text for name, text in texts.items() if text}
    query = question(1, expected=[{"path": "old.md", "grade": 2, "span": SPAN}])
    with open_store(files, tmp_path) as library:
        drift = find_drift(GoldenSet("set", (query,)), library.database, "docs")
        gone = question(2, expected=[{"path": "gone.md"}], kind=None)
        quoted = {("q2", "gone.md"): "Bread."}
        (renamed,) = find_drift(GoldenSet("set", (gone,)), library.database, "docs", quoted)
    (label,) = follow_drift([query], drift)[0].expected
    assert bool(drift) == bool(path)
    assert (label.path, label.span.text) == ((path, words) if words else ("old.md", SPAN))
    if path == "lost":
        assert str(drift[0]).endswith("is in no document or in several: label it again")
    assert follow_drift([gone], [renamed])[0].relevant == {"third.md": 1}
