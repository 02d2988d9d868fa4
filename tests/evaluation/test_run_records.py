"""Runs in the store: kept whole, found again, and never taken for a run of something else."""

import json
import shutil
from types import SimpleNamespace

import pytest

from builders import drop, make_database, put
from catalog.core.errors import InputError
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation import backends
from catalog.evaluation.backends import Backends, require_run
from catalog.evaluation.metrics import score_run
from catalog.evaluation.run_records import (
    diff_runs,
    find_recorded_run,
    record_run,
    run_key,
    summarize_scores,
)
from catalog.evaluation.runs import BackendRun, QueryOutcome, run_backends
from catalog.evaluation.summary import diff_dict, diff_lines, run_lines
from catalog.library.indexing import Indexer
from catalog.store import Database
from catalog.store.eval_runs import list_runs
from evaluation.stubs import TableBackend, golden, question
from fakes import WordEncoder, open_library

QUERIES = golden(question(1), question(2), question(3))
NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    opened = make_database(folder)
    put(opened, "books", "right.md", "the right one")
    put(opened, "books", "wrong.md", "the wrong one")
    opened.close()
    return folder


@pytest.fixture
def database(template, tmp_path):
    opened = make_database(shutil.copytree(template, tmp_path / "store"))
    yield opened
    opened.close()


def a_run(found=("right.md", "wrong.md"), identity=None, queries=QUERIES, name="stub"):
    asked = {
        one.id: QueryOutcome(Ranking(tuple(map(RankedHit, found))), (1.0, 3.0)) for one in queries
    }
    return BackendRun(name, identity or {"pipeline": "x"}, "books", 10, asked)


def keep(database, run, queries=QUERIES, now=NOW):
    return record_run(database, run, score_run(run, queries), queries, now=now)


def test_a_record_comes_back_as_it_was_written(database):
    run = a_run(identity={"pipeline": "v2", "rag_v2": {"rrf_k": 60, "qdrant_url": None}})
    written = keep(database, run)
    found = require_run(database, written.id)
    assert found == written
    assert found.lists == {f"q{n}": ["right.md", "wrong.md"] for n in (1, 2, 3)}
    assert found.scores["nDCG@10"] == {"q1": 1.0, "q2": 1.0, "q3": 1.0}
    assert found.summary["latency"] == {"p50": 2.0, "p95": 3.0}
    assert found.summary["metrics"]["P@10"] == pytest.approx(0.1)
    assert found.identity["rag_v2"] == {"rrf_k": 60, "qdrant_url": None}
    assert (found.golden, found.queries, found.top_k) == ("stub", 3, 10)
    assert (found.dataset, found.backend, found.created_at) == ("books", "stub", NOW)


def test_odd_names_of_documents_survive(database):
    names = ["nul\0.md", "\ud800.md", "two words.md", "line\nbreak.md", '"quoted".md', "ünï🍞.md"]
    written = keep(database, a_run(names))
    assert require_run(database, written.id).lists["q1"] == names


def test_a_summary_is_ready_for_json_and_holds_the_unanswerable(database):
    queries = golden(question(1), question(2, kind="unanswerable", expected=[]))
    summary = json.loads(json.dumps(summarize_scores(score_run(a_run(queries=queries), queries))))
    assert summary["unanswerable"] == {"n": 1, "answered": 1, "doubted": None}
    assert summary["metrics"]["nDCG@10"] == 1.0
    assert "per_query" not in summary


def test_a_failed_query_has_an_empty_list_and_is_counted(database):
    table = {"q1": ["right.md"], "q2": RuntimeError("down"), "q3": []}
    (run,) = run_backends([TableBackend("stub", table)], QUERIES, dataset="books")
    found = require_run(database, keep(database, run).id)
    assert found.lists == {"q1": ["right.md"], "q2": [], "q3": []}
    assert found.summary["failed"] == 1


# what makes a run another


def key_of(database, *, identity=None, queries=QUERIES, dataset="books", top_k=10):
    return run_key(database, identity or {"pipeline": "x", "a": 1}, queries, dataset, top_k)


def test_a_key_stays_while_nothing_that_matters_changes(database):
    first = key_of(database)
    assert key_of(database) == first
    assert key_of(database, identity={"a": 1, "pipeline": "x"}) == first
    put(database, "other", "right.md", "in another dataset")
    put(database, "books", "right.md", "the right one")
    assert key_of(database) == first
    database.close()
    assert key_of(Database(database.url)) == first


@pytest.mark.parametrize(
    "change",
    [
        lambda store: put(store, "books", "right.md", "the right one, changed"),
        lambda store: put(store, "books", "right.md", "the right one", title="Now titled"),
        lambda store: put(store, "books", "right.md", "the right one", metadata={"tag": "ops"}),
        lambda store: put(store, "books", "new.md", "one more"),
        lambda store: drop(store, "books", "wrong.md"),
    ],
    ids=["text", "title", "tag", "added", "removed"],
)
def test_a_key_changes_with_any_document(database, change):
    first = key_of(database)
    change(database)
    assert key_of(database) != first


@pytest.mark.parametrize(
    "other",
    [
        {"top_k": 11},
        {"dataset": "elsewhere"},
        {"identity": {"pipeline": "x", "a": 2}},
        {"identity": {"pipeline": "x", "a": 1, "b": None}},
        {"queries": golden(question(1), question(2))},
        {"queries": golden(question(1), question(2), question(3, query="put otherwise"))},
        {"queries": golden(question(1), question(2), question(3, kind="exact"))},
        {"queries": golden(question(1), question(2), question(3, filters={"tag": "x"}))},
        {"queries": golden(question(1), question(2),
                           question(3, expected=[{"path": "right.md", "grade": 2}]))},
    ],
)  # fmt: skip
def test_a_key_changes_with_depth_dataset_setting_question_and_label(database, other):
    assert key_of(database, **other) != key_of(database)


def test_a_key_changes_with_the_code(tmp_path, notes, monkeypatch):
    with open_library(tmp_path / "home") as library, Backends(library) as loaded:
        Indexer(library).build(notes, "books")

        def key(spec):
            return key_of(library.database, identity=loaded.load(spec).identity)

        first = {spec: key(spec) for spec in ("v1", "v2", "lexical", "v2:rrf_k=61")}
        assert len(set(first.values())) == 4
        assert first == {spec: key(spec) for spec in first}
        monkeypatch.setattr(backends, "code_digest", lambda: "another release")
        assert all(key(spec) != before for spec, before in first.items())


def test_a_key_changes_when_documents_are_cut_differently(tmp_path, notes):
    keys = []
    for size in (100, 60):
        with open_library(tmp_path / "home", chunk_size=size) as library:
            Indexer(library).build(notes, "books", apply_settings=True)
            keys.append(key_of(library.database))
    assert keys[0] != keys[1]


def test_a_record_tells_what_the_dataset_was_made_with_whatever_the_call_says(tmp_path, notes):
    runs = []
    for size, apply in ((100, False), (60, False), (60, True)):
        with open_library(tmp_path / "home", chunk_size=size) as library:
            Indexer(library).build(notes, "books", apply_settings=apply)
            runs.append(keep(library.database, a_run()))
    assert diff_runs(runs[0], runs[1]).changed == {}
    changed = diff_runs(runs[1], runs[2]).changed
    assert changed == {"dataset_settings.chunk_size": (100, 60)}


def test_a_key_changes_when_missing_vectors_are_added(tmp_path, notes):
    (notes / "bad.md").write_text("# Bad\n\nPOISON in here.\n")
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        assert Indexer(library).build(notes, "books").incomplete == 1
        first = key_of(library.database)
        encoder.poison = "nothing"
        assert Indexer(library).update("books").incomplete == 0
        assert key_of(library.database) != first


def test_the_newest_of_equal_runs_is_reused(database):
    early = keep(database, a_run(), now=NOW)
    late = keep(database, a_run(), now=NOW + 1)
    keep(database, a_run(identity={"pipeline": "y"}), now=NOW + 2)
    assert early.key == late.key
    assert find_recorded_run(database, {"pipeline": "x"}, QUERIES, "books", 10) == late


# finding


def test_a_run_is_found_by_how_its_id_starts(database, monkeypatch):
    ids = iter(["aab111", "aac222", "b%_333"])
    monkeypatch.setattr(
        "catalog.evaluation.run_records.uuid4", lambda: SimpleNamespace(hex=next(ids))
    )
    for _ in range(3):
        keep(database, a_run())
    assert require_run(database, "aab").id == "aab111"
    assert require_run(database, "b").id == "b%_333"
    assert require_run(database, "aac222").id == "aac222"
    for prefix in ("a", "aa"):
        with pytest.raises(InputError, match="several runs begin with it"):
            require_run(database, prefix)
    for prefix in ("c", "%", "_", "aab1111"):
        with pytest.raises(InputError, match="no such run"):
            require_run(database, prefix)


def test_runs_are_listed_newest_first_up_to_the_limit(database):
    kept = [keep(database, a_run(name=f"n{n}"), now=NOW + n) for n in range(4)]
    with database.read() as connection:
        assert list_runs(connection, 3) == [kept[3], kept[2], kept[1]]
    lines = list(run_lines(kept[:1]))
    assert lines == [f"{kept[0].id}  2023-11-14 22:13:20  books  stub  n0  nDCG@10 1.0000"]
    assert list(run_lines([])) == [
        "No run is recorded yet; 'catalog eval' and 'catalog compare' record runs."
    ]


# differences


def test_a_difference_names_the_settings_that_changed_and_tests_every_metric(database):
    old = {"pipeline": "v2", "mode": "hybrid", "rag_v2": {"rrf_k": 60, "bonus_first": 0.05}}
    new = {"pipeline": "v2", "mode": "hybrid", "rag_v2": {"rrf_k": 20, "bonus_first": 0.05, "x": 1}}
    before = keep(database, a_run(identity=old))
    after = keep(database, a_run(("wrong.md", "right.md"), identity=new))
    found = diff_runs(before, after)
    assert found.changed == {"rag_v2.rrf_k": (60, 20), "rag_v2.x": (None, 1)}
    # every query from first to second place: RR 1 → 1/2
    assert found.tests["RR@10"].difference == pytest.approx(-0.5)
    # three queries lost alike: 2 of the 2^3 sign patterns are as extreme
    assert found.tests["RR@10"].p == pytest.approx(2 / 8)
    assert found.tests["R@10"].p == 1.0
    assert found.adjusted["RR@10"] == 1.0  # 2/8 times the number of metrics, at most 1
    lines = list(diff_lines(found))
    assert "  rag_v2.rrf_k: 60 → 20" in lines
    told = json.loads(json.dumps(diff_dict(found)))
    assert told["changed"]["rag_v2.rrf_k"] == {"before": 60, "after": 20}
    assert told["metrics"]["RR@10"]["difference"] == pytest.approx(-0.5)


def test_a_difference_pairs_queries_by_id_not_by_order(database):
    table = {"q1": ["right.md"], "q2": ["x", "right.md"], "q3": []}
    backwards = golden(*reversed(QUERIES.queries))
    runs = [
        run_backends([TableBackend("stub", table)], queries, dataset="books")[0]
        for queries in (QUERIES, backwards)
    ]
    found = diff_runs(keep(database, runs[0]), keep(database, runs[1], backwards))
    assert found.tests["RR@10"].wins_ties_losses.ties == 3


def test_equal_runs_are_said_to_be_equal_and_other_corpora_to_be_other(database):
    before, again = keep(database, a_run()), keep(database, a_run())
    assert "same configuration, corpus, queries and code" in list(
        diff_lines(diff_runs(before, again))
    )
    put(database, "books", "wrong.md", "changed")
    after = keep(database, a_run())
    assert "same configuration and code; the corpus or the depth changed" in list(
        diff_lines(diff_runs(before, after))
    )


def test_runs_without_an_answerable_query_differ_in_settings_only(database):
    silly = golden(question(1, kind="unanswerable", expected=[]))
    before = keep(database, a_run(queries=silly), silly)
    after = keep(database, a_run(queries=silly, identity={"pipeline": "y"}), silly)
    found = diff_runs(before, after)
    assert found.tests == {}
    assert found.changed == {"pipeline": ("x", "y")}
    assert "  pipeline: x → y" in list(diff_lines(found))
