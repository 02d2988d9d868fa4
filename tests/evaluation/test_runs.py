"""Asking backends in turn: who is asked what and when, what is timed, what becomes of trouble."""

import pytest

from catalog.core.errors import InputError
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.backends import RecordedBackend
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import score_run
from catalog.evaluation.runs import run_backends
from evaluation.stubs import TableBackend, golden, question, ticking
from tables import table

THREE = golden(question(1), question(2), question(3))


class Listening:
    """A backend that tells a shared log of every call; ``answers`` are given in turn."""

    def __init__(self, name, log, answers=None):
        self.name, self.log = name, log
        self.answers = iter(answers) if answers is not None else None
        self.identity = {"pipeline": name}

    def prepare(self, dataset, progress):
        self.log.append((self.name, "prepare", dataset))

    def search(self, query, *, dataset, top_k):
        self.log.append((self.name, query.id, top_k))
        found = next(self.answers) if self.answers is not None else ["right.md"]
        if isinstance(found, BaseException):
            raise found
        return Ranking(tuple(map(RankedHit, found)))

    def close(self):
        self.log.append((self.name, "close"))


class Watch:
    def __init__(self):
        self.told = []

    def start(self, total):
        self.told.append(total)

    def advance(self, amount, label):
        self.told[-1] -= amount
        assert label


def shown_once(path, *others):
    return RankedHit(path, also_in=tuple(map(RankedHit, others)))


@pytest.mark.parametrize(
    ("hits", "expected"),
    [
        ([shown_once("twin.md", "right.md")], 1.0),  # the labelled one is the copy
        ([shown_once("right.md", "twin.md"), "x.md"], 1.0),
        (["x.md", shown_once("twin.md", "x.md", "right.md")], 0.6309),  # 1 / log2(3)
        ([shown_once("x.md", "twin.md")], 0.0),
        ([shown_once("x.md", "y.md", "z.md"), "right.md"], 0.6309),  # three copies, one place
    ],
)
def test_a_labelled_document_that_another_stands_for_counts_at_its_rank(hits, expected):
    asked = golden(question(1))
    (run,) = run_backends([TableBackend("new", {"q1": hits})], asked, dataset="books")
    assert score_run(run, asked).per_query["nDCG@10"]["q1"] == pytest.approx(expected, abs=1e-4)


NAMED = ("a/b.md", "box.mbox › 1", "box.mbox › 2", "box.mbox › 2 › plan.pdf")


@table("shown, documents, is_whole")
def test_a_hit_has_the_datasets_own_name_and_a_file_stands_for_its_parts(
    shown, documents, is_whole
):
    labels = [{"path": path} for path in documents]
    asked = golden(question(1, expected=labels))
    backend = TableBackend("theirs", {"q1": [shown]})
    folders = ("/home/me/books/", "books/")
    (run,) = run_backends([backend], asked, dataset="books", documents=NAMED, folders=folders)
    assert run.documents("q1") == documents
    told = "theirs names 'box.mbox', which counts for its parts"
    assert run.notes == ((told,) if is_whole else ())


def test_all_relevant_documents_of_a_group_are_found():
    asked = golden(question(1, expected=[{"path": "a.md", "grade": 1}, {"path": "b.md"}]))
    hits = [shown_once("x.md", "b.md", "y.md", "a.md")]
    (run,) = run_backends([TableBackend("new", {"q1": hits})], asked, dataset="books")
    assert score_run(run, asked).per_query["R@5"]["q1"] == 1.0
    assert run.documents("q1") == ("b.md", "a.md")


def test_each_query_is_put_to_all_before_the_next_and_who_is_first_alternates():
    log = []
    run_backends(
        [Listening("old", log), Listening("new", log)], THREE, dataset="books", top_k=50, repeats=1
    )
    assert log[:4] == [
        ("old", "prepare", "books"),
        ("old", "q1", 50),  # loads what is left to load
        ("new", "prepare", "books"),
        ("new", "q1", 50),
    ]
    deep = [
        ("old", "q1", 50), ("new", "q1", 50), ("new", "q2", 50), ("old", "q2", 50),
        ("old", "q3", 50), ("new", "q3", 50),
    ]  # fmt: skip
    timed = [(name, query, 10) for name, query, _ in deep]
    assert log[4:] == [*deep, *timed]


def test_milliseconds_are_the_clocks_of_the_timed_passes_alone():
    # The clock is read before and after each of 1 + 3 searches: loading, deep, timed, timed.
    ticks = iter([0.0, 9.0, 10.0, 17.0, 20.0, 20.25, 30.0, 30.5])
    backend = TableBackend("old", {"q1": ["right.md"]})
    backend.stages = {"fuse": 1.5}
    queries = golden(question(1))
    (run,) = run_backends([backend], queries, dataset="d", clock=lambda: next(ticks))
    assert run.outcomes["q1"].ms == (250.0, 500.0)
    assert run.outcomes["q1"].stages_ms == ({"fuse": 1.5}, {"fuse": 1.5})
    assert next(ticks, None) is None


def test_the_deep_answer_is_the_one_that_metrics_are_of():
    documents = [f"{n}.md" for n in range(40)]
    backend = TableBackend("old", {"q1": documents})
    (run,) = run_backends([backend], golden(question(1)), dataset="books", top_k=30, repeats=1)
    assert run.documents("q1") == tuple(documents[:30])
    assert (run.name, run.dataset, run.top_k) == ("old", "books", 30)
    assert run.identity == {"pipeline": "old"}


def test_an_exception_is_that_querys_error_and_the_other_queries_continue():
    table = {"q1": ["a"], "q2": TimeoutError("no answer in 5 s"), "q3": ["b"]}
    old, new = run_backends(
        [TableBackend("old", table), TableBackend("new", {"q2": ["c"]})], THREE, dataset="d"
    )
    assert old.errors == {"q2": "TimeoutError: no answer in 5 s"}
    assert [old.documents(query) for query in ("q1", "q2", "q3")] == [("a",), (), ("b",)]
    assert old.outcomes["q2"].answer is None
    assert old.outcomes["q2"].ms == ()
    assert old.outcomes["q2"].stable is None
    assert new.errors == {}
    assert new.documents("q2") == ("c",)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_one_failure_among_the_repetitions_is_a_failed_query(failing):
    # searches: 0 loads, 1 is deep, 2 and 3 are timed
    answers = [["right.md"]] * 4
    answers[failing] = RuntimeError("sometimes")
    backend = Listening("old", [], answers)
    (run,) = run_backends([backend], golden(question(1)), dataset="d", clock=ticking())
    assert run.errors == {"q1": "RuntimeError: sometimes"}
    assert run.documents("q1") == ()
    assert len(run.outcomes["q1"].ms) == (2 if failing == 1 else 1)


def test_an_interruption_ends_the_run():
    backend = Listening("old", [], [["right.md"], KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        run_backends([backend], golden(question(1)), dataset="d")


def test_a_search_that_exits_has_failed_on_that_query_and_ends_nothing():
    backend = Listening("old", [], [["right.md"], SystemExit(0), ["right.md"]])
    run = run_backends([backend], golden(question(1), question(2)), dataset="d", repeats=0)[0]
    assert run.errors == {"q1": "SystemExit: 0"}


def test_a_backend_that_cannot_prepare_ends_the_run():
    class Broken(Listening):
        def prepare(self, dataset, progress):
            raise InputError("no index")

    with pytest.raises(InputError, match="no index"):
        run_backends([Broken("old", [])], THREE, dataset="d")


@table("first, second, stable")
def test_an_answer_is_stable_if_the_repetitions_rank_alike(first, second, stable):
    backend = Listening("old", [], [["z"], ["z"], first, second])
    (run,) = run_backends([backend], golden(question(1)), dataset="d", repeats=2)
    assert run.outcomes["q1"].stable is stable


class Counted(RecordedBackend):
    """A recorded run that counts how often it is asked."""

    asked = 0

    def search(self, query, *, dataset, top_k):
        type(self).asked += 1
        return super().search(query, dataset=dataset, top_k=top_k)


def test_recorded_runs_take_no_time_and_are_asked_no_second_time():
    Counted.asked = 0
    recorded = Counted("theirs", {one.id: ["right.md"] for one in THREE}, {})
    log = []
    theirs, ours = run_backends(
        [recorded, Listening("ours", log)], THREE, dataset="d", repeats=2, clock=ticking(0.004)
    )
    assert Counted.asked == 1 + 3
    assert {(one.ms, one.stages_ms, one.stable) for one in theirs.outcomes.values()} == {
        ((), (), None)
    }
    assert theirs.documents("q2") == ("right.md",)
    assert [one.ms for one in ours.outcomes.values()] == [pytest.approx((4.0, 4.0))] * 3


def test_a_recorded_run_of_another_set_is_refused_before_anything_is_asked():
    log = []
    other = RecordedBackend("theirs", {"x1": ["a"], "x2": ["a"], "q1": ["a"]}, {})
    with pytest.raises(InputError, match="q2, q3"):
        run_backends([Listening("ours", log), other], THREE, dataset="d")
    assert log == []


def test_a_run_file_of_too_few_queries_is_refused():
    half = RecordedBackend("theirs", {"q1": ["a"]}, {})
    with pytest.raises(InputError, match="another set"):
        run_backends([half], THREE, dataset="d")


def test_a_run_file_without_lines_for_queries_that_found_nothing_is_taken():
    queries = golden(*THREE, question(4, kind="unanswerable", expected=[]))
    theirs = RecordedBackend("theirs", {"q1": ["a"], "q3": ["a"]}, {})
    (run,) = run_backends([theirs], queries, dataset="d")
    assert run.documents("q2") == ()
    assert run.errors == {}


def test_progress_is_reported_and_comes_to_its_end():
    watch = Watch()
    backends = [TableBackend("old", {}), TableBackend("new", {})]
    run_backends(backends, THREE, dataset="d", repeats=2, progress=watch)
    assert watch.told == [0]  # 3 queries, 3 passes: announced 9, and 9 done
    watch = Watch()
    watch.advance = lambda amount, label: None
    run_backends(backends, THREE, dataset="d", repeats=2, progress=watch)
    assert watch.told == [9]


@pytest.mark.parametrize("numbers", [{"top_k": 0}, {"top_k": -1}, {"repeats": -1}])
def test_numbers_out_of_range_are_refused(numbers):
    with pytest.raises(InputError, match="top_k"):
        run_backends([TableBackend("old", {})], THREE, dataset="d", **numbers)


def test_a_set_without_a_query_is_refused():
    with pytest.raises(InputError, match="nothing-test"):
        run_backends([TableBackend("old", {})], GoldenSet("nothing-test", ()), dataset="d")


def test_a_search_that_shows_what_the_filters_forbid_is_cut_to_them_and_that_is_counted():
    shown = ["wrong.md", "right.md", *["wrong.md"] * 9]
    backend = Listening("old", [], [shown] * 5)
    queries = golden(question(1, kind="filtered", filters={"tag": "ops"}), question(2))

    def allowed(query):
        return frozenset({"right.md"})

    (run,) = run_backends([backend], queries, dataset="d", repeats=0, allowed=allowed)
    assert run.documents("q1") == ("right.md",)
    assert run.documents("q2") == ("wrong.md", "right.md")  # it has no filter
    assert score_run(run, queries, allowed).scope_violations == 9  # among the first ten
