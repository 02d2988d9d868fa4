"""Patterns, criteria and recommendations from numbers worked by hand."""

import tomllib
from pathlib import Path

import pytest

from catalog.evaluation.suite_verdict import Validation, validation_dict, validation_report
from catalog.evaluation.suites import (
    PATTERNS,
    QueryMeasurement,
    ShownPassage,
    SuiteLimits,
    SuiteQuery,
    SuiteRun,
    ValidationSuite,
)

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def passage(rank=1, relevance=0.6, *sources, **fields):
    return ShownPassage(
        rank,
        f"c{rank}",
        f"{rank}.md",
        f"Page {rank}, lines 1-2",
        score=1 / rank,
        relevance=relevance,
        sources=frozenset(sources),
        **{"is_right": bool(sources), "cosine": 0.7} | fields,
    )


def question(id_="q", kind="general", count=1, **fields):
    expected = [] if kind == "non-existent" else [f"path={n}.md" for n in range(count)]
    return SuiteQuery(id=id_, kind=kind, query=f"what of {id_}", expected=expected, **fields)


def measured(*passages, query=None, threshold=0.2, depths=(1, 3, 5, 10, 20), **fields):
    query = query or question()
    given = {
        "passages": passages,
        "available": len([one for one in passages if one.is_right]),
        "embedding_ms": (10.0, 10.0),
        "search_ms": (20.0, 20.0),
        "whole_ms": (30.0, 30.0),
        "by_depth": {depth: (passages[:depth], 5.0) for depth in depths},
        "unfiltered": passages,
    }
    return QueryMeasurement(query, threshold, **given | fields)


def run_of(*measurements, embedding=None, **limits):
    queries = tuple({one.query.id: one.query for one in measurements}.values())
    suite = ValidationSuite(name="s", query=queries, limits=SuiteLimits(**limits))
    times = {"alone": 10.0, "batched": 4.0, "cached": 0.1} if embedding is None else embedding
    about = {"preset": "none"}
    return SuiteRun(suite, "books", 5, 3, about, tuple(measurements), times, {"source_url": 1})


NOTHING = question(kind="non-existent")
PATTERN_CASES = {
    "failed": measured(failures=("stage vector failed: EngineError",)),
    "empty": measured(),
    "absent": measured(passage(1, 0.6, 0), query=question(count=2), absent=(1,)),
    "irrelevant": measured(passage(1)),
    "incomplete": measured(passage(1, 0.6, 0), query=question(count=2)),
    "low confidence": measured(passage(1, 0.19, 0), passage(2, 0.9)),
    "unwarranted": measured(passage(1, 0.2), query=NOTHING),
    "outside filters": measured(passage(1, 0.6, 0, is_outside=True)),
    "no score": measured(passage(1, None), query=NOTHING),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_failure_has_its_own_message_that_says_what_to_do(pattern):
    assert tuple(PATTERN_CASES[pattern].patterns("relevance")) == (pattern,)
    report = validation_report(Validation(run_of(PATTERN_CASES[pattern])))
    assert f"| {pattern} | 1: q | " in report


@pytest.mark.parametrize(
    "fine",
    [
        measured(passage(1, 0.2, 0)),
        measured(passage(1, 0.1), passage(2, 0.3, 0)),
        measured(passage(1, 0.5, 0), passage(2, 0.1, 0)),
        measured(passage(1, None, 0)),
        measured(query=NOTHING),
        measured(passage(1, 0.19), query=NOTHING),
        measured(passage(1, 0.6, 0), passage(2, 0.5, 1), query=question(count=2)),
    ],
)
def test_a_question_that_went_as_it_should_has_no_pattern(fine):
    assert tuple(fine.patterns("relevance")) == ()


def test_a_score_that_nothing_gives_is_no_ground_to_call_a_foreign_question_quiet():
    foreign = measured(passage(1, None), query=NOTHING)
    assert tuple(foreign.patterns("relevance")) == ("no score",)
    assert tuple(foreign.patterns("cosine")) == ("unwarranted",)


def test_a_question_without_an_answer_that_finds_one_makes_a_dataset_unready():
    fine = [measured(passage(1, 0.6, 0), query=question(f"q{n}")) for n in range(20)]
    for score, is_ready in ((0.19, True), (0.2, False)):
        foreign = measured(passage(1, score), query=NOTHING)
        assert Validation(run_of(*fine, foreign)).is_ready is is_ready


def two_questions(**limits):
    """One finds 1 of 2 sources with 1 of 2 passages right, one 1 of 1 with 1 of 1."""
    half = measured(passage(1, 0.6, 0), passage(2, 0.1), query=question("half", count=2))
    whole = measured(passage(1, 0.8, 0), query=question("whole"))
    return run_of(half, whole, **limits)


def numbers(validation):
    return {
        (one.id, one.name): (pytest.approx(one.value), one.holds)
        for one in validation.criteria
        if one.value is not None
    }


def test_criteria_have_the_numbers_of_the_questions_and_hold_at_their_limit():
    run = two_questions(queries=0.5, precision=0.75, recall=0.75, embedding_p95_ms=10)
    validation = Validation(run)
    assert numbers(validation) == {
        ("SC-001", "questions without a failure"): (0.5, True),  # half is incomplete
        ("SC-001", "precision@5"): (0.75, True),  # (1/2 + 1) / 2
        ("SC-001", "recall@5 of expected sources"): (0.75, True),  # (1/2 + 1) / 2
        ("SC-002", "passages with complete metadata"): (1.0, True),
        ("SC-003", "embedding a query, p95"): (10.0, True),
        ("SC-004", "searching with its vector, p95"): (20.0, True),
        ("SC-005", "questions with the same ids and scores each time"): (1.0, True),
    }
    assert validation.is_ready
    assert validation.counts == {"incomplete": 1}
    (first, *_) = validation.criteria
    # Wilson, 1 of 2: (.5 + z²/4) / (1 + z²/2) ± …, z² = 3.8415
    assert (first.interval.low, first.interval.high) == pytest.approx((0.0945, 0.9055), abs=1e-4)


@pytest.mark.parametrize(
    ("limits", "reason"), TABLES["one missed limit makes the dataset not ready and is the reason"]
)
def test_one_missed_limit_makes_the_dataset_not_ready_and_is_the_reason(limits, reason):
    usual = {"queries": 0.5, "precision": 0.5, "recall": 0.5}
    validation = Validation(two_questions(**usual | limits))
    assert not validation.is_ready
    assert [told[: len(reason)] for told in validation.reasons] == [reason]


def test_a_passage_without_its_source_and_an_answer_that_changes_are_not_ready():
    torn = measured(passage(1, 0.6, 0, problems=("no source_url",)), is_stable=False)
    validation = Validation(run_of(torn))
    assert [reason[:6] for reason in validation.reasons] == ["SC-002", "SC-005"]
    text = validation_report(validation)
    assert "- 1.md: no source\\_url" in text
    assert "not the same each time" in text


def test_a_passage_beyond_the_filters_is_never_ready():
    filtered = question(kind="filtered", filters=["path=0.md"])
    leak = measured(*(passage(n, 0.6, 0) for n in range(1, 5)), query=filtered)
    inside = run_of(leak, queries=0.0)
    assert Validation(inside).is_ready
    leak = measured(passage(1, 0.6, 0), passage(2, 0.5, 0, is_outside=True), query=filtered)
    assert [one[:6] for one in Validation(run_of(leak, queries=0.0)).reasons] == ["SC-002"]


def test_a_suite_of_nothing_but_foreign_questions_has_no_recall_to_keep():
    validation = Validation(run_of(measured(query=NOTHING), queries=1.0))
    metadata = next(one for one in validation.criteria if one.id == "SC-002")
    assert metadata.value is None
    assert [one.holds for one in validation.criteria if one.id == "SC-001"] == [True] * 4


def advice(run):
    return {answer.id: answer for answer in Validation(run).research}


def test_top_k_is_the_least_with_the_best_recall_up_to_the_limit_of_precision():
    # the second source comes at rank 2: recall .5 at 1, 1 from 3 on; precision 1, 2/3, 2/5 …
    late = measured(
        passage(1, 0.9, 0), passage(2, 0.8, 1), *(passage(n, 0.1) for n in range(3, 11)),
        query=question(count=2),
    )  # fmt: skip
    told = advice(run_of(late, precision=0.4))["R-01"]
    assert told.recommendation.startswith("Ask for 3 to 5: from 3 on recall is the best there is")
    assert told.support.startswith("1 of 1 questions need more than 1. 1 is few")
    assert [row[0] for row in told.rows] == ["1", "3", "5", "10", "20"]
    assert told.rows[0][1].startswith("0.50 [")
    assert told.rows[2][4] == "2 of 2"
    poor = advice(run_of(late, precision=0.9))["R-01"].recommendation
    assert poor.startswith("Ask for 3: ")
    assert "better ranking is needed" in poor


def test_the_threshold_is_the_middle_between_answers_and_what_foreign_questions_score():
    sure, unsure = measured(passage(1, 0.8, 0)), measured(passage(1, 0.5, 0))
    foreign = measured(passage(1, 0.1), query=NOTHING)
    told = advice(run_of(sure, unsure, foreign))["R-02"]
    # between .1 and .5
    assert told.recommendation.startswith("Hold an answer as doubtful below 0.30 ")
    rows = {row[0]: row for row in told.rows}
    assert rows["0.10"][4] == "1 of 1"
    assert rows["0.15"][3:] == ("0 of 2", "0 of 1")
    assert rows["0.60"][2:4] == ("1 of 1", "1 of 2")
    assert "95 % interval 21 % to 100 %" in told.support  # Wilson, 1 of 1


def test_no_threshold_is_named_where_a_foreign_question_scores_as_high():
    foreign = measured(passage(1, 0.5), query=NOTHING)
    told = advice(run_of(measured(passage(1, 0.5, 0)), foreign))["R-02"].recommendation
    assert told.startswith("No threshold of relevance tells them apart here")


def test_without_foreign_questions_or_scores_no_threshold_is_made_up():
    none = advice(run_of(measured(passage(1, 0.5, 0))))["R-02"].recommendation
    assert none == "None: the suite has no non-existent question to tell one by."
    right = passage(1, None, 0, cosine=None)
    unscored = advice(run_of(measured(right), measured(query=NOTHING)))["R-02"]
    assert unscored.recommendation == "None can be set: passages of this search have no relevance."


def test_where_nothing_is_calibrated_a_cosine_is_named_for_the_suite():
    right, other = passage(1, None, 0, cosine=0.8), passage(1, None, cosine=0.6)
    by_words = passage(2, None, cosine=None)
    told = advice(run_of(measured(right), measured(other, by_words, query=NOTHING)))["R-02"]
    assert '`score = "cosine"` and `threshold = 0.70` in the suite' in told.recommendation
    assert {row[0]: row[4] for row in told.rows}["0.65"] == "0 of 1"


def test_batches_are_advised_only_where_they_save_a_fifth():
    rows = measured(passage(1, 0.5, 0))
    fast = advice(run_of(rows, embedding={"alone": 10.0, "batched": 7.9, "cached": 0.1}))["R-03"]
    assert "in a batch (saves 2.1 ms for each)" in fast.recommendation
    assert "a repeated question saves 9.9 ms" in fast.recommendation
    slow = advice(run_of(rows, embedding={"alone": 10.0, "batched": 8.1, "cached": 0.1}))["R-03"]
    assert "do not gather queries into batches" in slow.recommendation
    words = advice(run_of(rows, embedding={}))["R-03"]
    assert words.recommendation == "Neither matters: nothing is embedded in this mode."


def test_the_report_names_every_question_its_verdict_and_ends_with_the_whole():
    text = validation_report(Validation(two_questions(queries=0.9)))
    lines = text.splitlines()
    assert "### half: what of half\n\n**FAIL**: incomplete. General; 1 of 2 expected" in text
    assert "### whole: what of whole\n\npass. General; 1 of 1 expected sources" in text
    assert "| incomplete | 1: half |" in text
    assert "- 1 of 3 documents have a passage without source\\_url" in text
    end = lines[lines.index("## Verdict") :]
    assert end[2].startswith("**NOT READY**")
    assert "- half: incomplete" in end
    assert all(f"## {name}" in text for name in ("R-01", "R-02", "R-03"))


def test_text_of_documents_cannot_forge_the_report():
    name = "a.md\n**READY** | <b>x</b>\u202e"
    odd = ShownPassage(1, "c", name, name, 1.0, 0.5, 0.5, frozenset({0}), is_right=True)
    lines = validation_report(Validation(run_of(measured(odd), queries=0.0))).splitlines()
    row = next(line for line in lines if "a.md" in line)
    assert "**READY**" not in row
    assert "\\<b\\>" in row
    assert "\u202e" not in "".join(lines)


def test_the_object_for_programs_has_the_same_verdict_and_numbers():
    told = validation_dict(Validation(two_questions(queries=0.9)))
    assert (told["ready"], told["failure_patterns"]) == (False, {"incomplete": 1})
    half = told["questions"][0]
    assert (half["precision"], half["recall"], half["patterns"]) == (0.5, 0.5, ["incomplete"])
    assert half["passages"][0]["sources"] == [0]
    assert told["latency_ms"]["search"] == {"p50": 20.0, "p95": 20.0, "n": 4}
    assert {one["id"] for one in told["research"]} == {"R-01", "R-02", "R-03"}
