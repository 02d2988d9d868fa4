"""What a run scores: every metric by hand, and what the metrics do not see."""

import math

import ir_measures
import pytest

from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.metrics import MEASURES, Timing, Unanswerable, score_run, timing
from catalog.evaluation.runs import BackendRun, QueryOutcome
from evaluation.stubs import golden, question


def a_run(asked, top_k=100):
    """A run of lists of paths, passages or whole records, by query id."""
    return BackendRun("stub", {}, "books", top_k, {id_: record(one) for id_, one in asked.items()})


def record(one):
    if isinstance(one, QueryOutcome):
        return one
    hits = [RankedHit(hit) if isinstance(hit, str) else hit for hit in one]
    return QueryOutcome(Ranking(tuple(hits)))


def labels(**grades):
    return [{"path": path, "grade": grade} for path, grade in grades.items()]


def means_of(expected, found):
    return score_run(a_run({"q1": found}), golden(question(1, expected=expected))).means


def test_graded_labels_give_the_numbers_worked_by_hand():
    # labels a 3, b 2, c 1, d 0 (judged, wrong); e and f unjudged. Ranking: e b d a f
    means = means_of(labels(a=3, b=2, c=1, d=0), ["e", "b", "d", "a", "f"])
    # DCG = 2/log2(3) + 3/log2(5); ideal 3 2 1: 3/log2(2) + 2/log2(3) + 1/log2(4)
    dcg = 2 / math.log2(3) + 3 / math.log2(5)  # 1.26186 + 1.29203 = 2.55389
    ideal = 3 + 2 / math.log2(3) + 1 / 2  # 4.76186
    assert means["nDCG@10"] == pytest.approx(dcg / ideal)
    assert means["nDCG@10"] == pytest.approx(0.53632, abs=1e-5)
    assert means["RR@10"] == pytest.approx(1 / 2)  # b, the first relevant, is second
    assert means["R@5"] == pytest.approx(2 / 3)  # a and b of a, b, c
    assert means["R@10"] == pytest.approx(2 / 3)
    assert means["R@100"] == pytest.approx(2 / 3)
    assert means["Success@1"] == 0  # e is not relevant
    assert means["Success@3"] == 1  # b is
    assert means["P@1"] == 0
    assert means["P@5"] == pytest.approx(2 / 5)
    assert means["P@10"] == pytest.approx(2 / 10)  # absent ranks count as wrong
    assert means["Judged@10"] == pytest.approx(3 / 5)  # b, d, a of the five that are there


def test_the_numbers_are_those_of_ir_measures_on_a_larger_set():
    queries = [
        question(n, expected=[{"path": f"d{(7 * n + j) % 40}", "grade": j % 4} for j in range(6)])
        for n in range(1, 31)
    ]
    lists = {
        one.id: [f"d{(3 * n + 11 * j) % 40}" for j in range(25)] for n, one in enumerate(queries)
    }
    scores = score_run(a_run(lists), golden(*queries))
    qrels = [ir_measures.Qrel(q.id, one.path, one.grade) for q in queries for one in q.expected]
    hits = [
        ir_measures.ScoredDoc(query, path, float(100 - rank))
        for query, paths in lists.items()
        for rank, path in enumerate(paths)
    ]
    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    seen = 0
    for value in ir_measures.iter_calc(measures, qrels, hits):
        assert scores.per_query[str(value.measure)][value.query_id] == pytest.approx(value.value)
        seen += 1
    assert seen == len(queries) * len(MEASURES)
    assert 0.01 < scores.means["nDCG@10"] < 0.99


def test_a_document_stands_where_its_first_passage_stands():
    # passages a a b: documents a b, so b is second
    means = means_of(labels(b=1), ["a", "a", "b", "a", "b"])
    assert means["RR@10"] == pytest.approx(1 / 2)
    assert means["P@5"] == pytest.approx(1 / 5)


def test_a_mean_is_over_answerable_queries_and_a_failure_or_nothing_found_is_zero():
    queries = golden(
        question(1), question(2), question(3), question(4, kind="unanswerable", expected=[])
    )
    run = a_run(
        {"q1": ["right.md"], "q2": [], "q3": QueryOutcome(None, error="boom"), "q4": ["right.md"]}
    )
    scores = score_run(run, queries)
    for name in ("nDCG@10", "RR@10", "R@5", "Success@1", "P@1", "Judged@10"):
        assert scores.per_query[name] == {"q1": 1.0, "q2": 0.0, "q3": 0.0}, name
    assert scores.means["RR@10"] == pytest.approx(1 / 3)
    assert scores.failed == 1
    assert scores.empty_rate == pytest.approx(2 / 4)  # q2 and q3 of all four


def test_queries_without_an_answer_are_distinguished_and_have_no_metric():
    queries = golden(
        *(question(n, kind="unanswerable", expected=[]) for n in (1, 2, 3)),
        question(4, kind=None, expected=labels(seen=0)),
    )
    run = a_run(
        {
            "q1": QueryOutcome(Ranking((RankedHit("a"),), {}, True)),
            "q2": QueryOutcome(Ranking((RankedHit("a"),), {}, False)),
            "q3": [],
            "q4": QueryOutcome(Ranking((RankedHit("seen"),), {}, True)),
        }
    )
    scores = score_run(run, queries)
    assert scores.unanswerable == Unanswerable(n=4, answered=3, doubted=2)
    assert scores.means == {}
    assert scores.exact_recall is None


def test_doubt_is_unknown_of_a_backend_that_never_says():
    queries = golden(question(1, kind="unanswerable", expected=[]))
    scores = score_run(a_run({"q1": ["a"]}), queries)
    assert scores.unanswerable == Unanswerable(1, 1, None)
    assert scores.low_confidence_rate is None


def test_the_rate_of_doubt_is_over_the_answers_that_tell():
    doubts = {"q1": True, "q2": False, "q3": None, "q4": False}
    run = a_run(
        {id_: QueryOutcome(Ranking((RankedHit("a"),), {}, one)) for id_, one in doubts.items()}
    )
    scores = score_run(run, golden(*(question(n) for n in range(1, 5))))
    assert scores.low_confidence_rate == pytest.approx(1 / 3)


def test_distinct_documents_are_counted_among_the_ten_passages_a_person_sees():
    # q1: 2 among the first ten, and a third after them; q2: 4; q3 found nothing and is left out
    run = a_run({"q1": ["a"] * 9 + ["b", "c"], "q2": ["a", "b", "c", "d"], "q3": []})
    scores = score_run(run, golden(*(question(n) for n in (1, 2, 3))))
    assert scores.distinct_documents == pytest.approx((2 + 4) / 2)


def test_passages_that_a_filter_forbids_are_counted_among_the_first_ten():
    filters = {"tag": "ops"}
    queries = golden(
        question(1, kind="filtered", filters=filters), question(2), question(3, filters=filters)
    )
    run = a_run(
        {
            "q1": ["right.md", "wrong.md", "wrong.md"],  # two passages of a forbidden document
            "q2": ["wrong.md"],  # not filtered
            "q3": ["right.md"] * 10 + ["wrong.md"],  # forbidden, but eleventh
        }
    )
    allowed = lambda query: frozenset({"right.md"})  # noqa: E731
    assert score_run(run, queries, allowed).scope_violations == 2
    assert score_run(run, queries).scope_violations is None
    assert score_run(run, queries, lambda query: None).scope_violations == 0
    assert score_run(run, queries, lambda query: frozenset()).scope_violations == 3 + 10


def test_exact_recall_is_over_exact_queries_only():
    queries = golden(
        question(1, kind="exact", expected=labels(a=1, b=1)),
        question(2, kind="exact", expected=labels(a=1)),
        question(3, kind="semantic", expected=labels(a=1)),
    )
    # q1 finds one of two, q2 its one at rank 11, q3 would be 1
    run = a_run({"q1": ["a"], "q2": [*(f"x{n}" for n in range(10)), "a"], "q3": ["a"]})
    assert score_run(run, queries).exact_recall == pytest.approx((1 / 2 + 0) / 2)


def moment(start, end, path="talk.vtt", grade=1):
    return {"path": path, "grade": grade, "span": {"time_start": start, "time_end": end}}


def test_a_labelled_moment_is_met_by_a_passage_that_overlaps_it():
    cases = {
        (50.0, 70.0): True,  # within
        (0.0, 61.0): True,  # from before into it
        (69.0, 200.0): True,
        (70.0, 80.0): True,  # touches the end
        (70.1, 80.0): False,
        (0.0, 59.9): False,
        None: False,  # the passage tells no time
    }
    for times, met in cases.items():
        hit = RankedHit("talk.vtt", times=times)
        scores = score_run(a_run({"q1": [hit]}), golden(question(1, expected=[moment(60, 70)])))
        assert scores.per_query.get("SR@5", {"q1": False})["q1"] == met, times


def test_span_recall_counts_moments_of_the_right_document_among_the_first_five():
    at = (60.0, 70.0)
    queries = golden(
        question(1, expected=[moment(60, 70), moment(60, 70, "other.vtt")]),
        question(2, expected=[moment(60, 70)]),
        question(3, expected=[moment(60, 70)]),
        question(4, expected=[moment(60, 70, grade=0), {"path": "right.md", "grade": 1}]),
    )
    run = a_run(
        {
            "q1": [RankedHit("talk.vtt", times=at)],  # meets its own, not other.vtt's moment
            "q2": [*["x"] * 4, RankedHit("talk.vtt", times=at)],  # fifth
            "q3": [*["x"] * 5, RankedHit("talk.vtt", times=at)],  # sixth: too late
            "q4": [RankedHit("talk.vtt", times=at)],  # grade 0 is no answer
        }
    )
    assert score_run(run, queries).per_query["SR@5"] == {"q1": 0.5, "q2": 1, "q3": 0}
    assert "SR@5" not in score_run(a_run({"q1": ["a"]}), golden(question(1))).per_query


def test_stability_is_the_share_of_repeated_queries_that_ranked_alike():
    answer = Ranking((RankedHit("right.md"),))
    stable = {"q1": True, "q2": True, "q3": False, "q4": None}
    run = a_run({id_: QueryOutcome(answer, stable=one) for id_, one in stable.items()})
    assert score_run(run, golden(*(question(n) for n in range(1, 5)))).stability == pytest.approx(
        2 / 3
    )
    once = a_run({"q1": QueryOutcome(answer)})
    assert score_run(once, golden(question(1))).stability is None


def test_timings_are_over_all_queries_and_repetitions():
    # 1 … 21: the median is 11; the 95th percentile lies .95 × 20 = 19 steps up, at 20
    assert timing(range(1, 22)) == Timing(11.0, 20.0)
    # .95 × 1 step from 10 to 20
    assert timing([20.0, 10.0]) == Timing(15.0, pytest.approx(19.5))
    assert timing([]) is None
    answer = Ranking((RankedHit("right.md"),))
    run = a_run(
        {
            "q1": QueryOutcome(answer, (1.0, 3.0), ({"fuse": 0.5}, {"fuse": 0.7, "shape": 9.0})),
            "q2": QueryOutcome(answer, (2.0,), ({"fuse": 0.6},)),
        }
    )
    scores = score_run(run, golden(question(1), question(2)))
    assert scores.latency.p50 == 2.0
    assert scores.stages["fuse"].p50 == pytest.approx(0.6)
    assert scores.stages["shape"] == Timing(9.0, 9.0)


@pytest.mark.parametrize(
    "name",
    ["a\0b", "\ud800.md", "two words.md", "line\nbreak", "tab\there", " ", "%00",
     "é" * 5000, "#", "0"],
)  # fmt: skip
def test_any_name_of_a_document_is_scored(name):
    # the odd one first; a label of the same name must match it, one cut at the NUL must not
    run = a_run({"q1": [name, "a"]})
    query = question(1, expected=labels(right=1))
    odd = query.model_copy(
        update={"expected": (query.expected[0].model_copy(update={"path": name}),)}
    )
    scores = score_run(run, golden(odd))
    assert scores.means["RR@10"] == 1
    assert scores.means["Judged@10"] == pytest.approx(1 / 2)
    assert score_run(a_run({"q1": [name, "a"]}), golden(question(1))).means["RR@10"] == 0
