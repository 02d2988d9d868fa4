"""``catalog golden`` as a person uses it, over a store with a tiny model."""

import json
from functools import partial

import pytest

from catalog.interfaces.cli import golden
from fakes import open_library
from small_documents import NOTES
from stores import store_of


@pytest.fixture
def catalog(monkeypatch, command):
    """Run ``catalog golden``; exit code, standard output, standard error."""
    monkeypatch.setattr(golden, "open_library", lambda context: open_library(store_of(NOTES)))
    return partial(command, "golden")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "set.jsonl"


def write(file, *queries):
    file.write_text("".join(json.dumps(one) + "\n" for one in queries))


# check


def test_a_sound_set_is_counted_and_passes(catalog, file):
    write(
        file,
        {
            "id": "q1",
            "query": "rotate",
            "difficulty": "easy",
            "kind": "exact",
            "expected": [{"path": "keys.md", "grade": 9}, {"path": "bread.txt", "grade": 0}],
        },
        {"id": "q2", "query": "the moon", "difficulty": "hard", "kind": "unanswerable"},
    )
    code, out, err = catalog("check", file, "--dataset", "notes")
    assert (code, err) == (0, "note: q1: grade 9 of 'keys.md'; the scale is 0 to 3\n")
    assert out.splitlines() == [
        "set: 2 queries, 1 of them unanswerable, 1 answer, 2 judged documents",
        "  difficulty: 1 easy, 0 medium, 1 hard, 0 fusion",
        "  kind: 0 semantic, 1 exact, 0 metadata, 0 temporal, 0 filtered, 1 unanswerable",
    ]


def test_labels_that_do_not_fit_the_dataset_fail_with_near_misses(catalog, file):
    write(
        file,
        {"id": "q1", "query": "a", "expected": [{"path": "kyes.md"}]},
        {"id": "q2", "query": "b", "expected": [{"path": "keys.md", "span": "no such words"}]},
    )
    code, out, err = catalog("check", file, "--dataset", "notes")
    assert code == 1
    assert "q1: no document 'kyes.md'; is it 'keys.md'?" in out
    assert "q2: 'keys.md' does not contain the span 'no such words'" in out
    assert err == f"catalog: {file}: 2 problems\n"


def test_without_a_dataset_only_the_form_is_checked(catalog, file):
    write(file, {"id": "q1", "query": "a", "expected": [{"path": "kyes.md"}]})
    assert catalog("check", file)[0] == 0
    write(file, {"id": "q1", "query": "Why?"}, {"id": "q2", "query": "why?"})
    code, out, _ = catalog("check", file)
    assert code == 1
    assert "asked twice: 'why?'" in out


# import and export


def test_labels_go_to_other_tools_and_come_back_as_they_were(catalog, file, tmp_path):
    quepid = tmp_path / "quepid.csv"
    write(file, {"id": "q001", "query": "rotate", "expected": [{"path": "keys.md", "grade": 3}]})
    assert catalog("export", file, quepid)[0] == 0
    assert quepid.read_text() == "query,docid,rating\nrotate,keys.md,3\n"
    assert "'catalog golden import' reads labels of Quepid" in catalog("check", quepid)[2]
    code, out, _ = catalog("import", quepid, tmp_path / "again.jsonl")
    assert (code, out.partition(": ")[2]) == (0, "1 query; 0 without a label left out\n")
    assert (tmp_path / "again.jsonl").read_text() == file.read_text()
    before = file.read_text()
    for wrong in (
        ("import", quepid, file),
        *(("export", file, file), ("export", file, "new.qrels", "--queries", file)),
        ("export", file, "same.txt", "--queries", "same.txt"),
    ):
        code, _, err = catalog(*wrong)
        assert (code, "exists" in err, file.read_text()) == (1, True, before)
