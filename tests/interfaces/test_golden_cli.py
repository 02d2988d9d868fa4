"""``catalog golden`` as a person uses it, over a store with a tiny model."""

import io
import json
import sys
from functools import partial

import pytest

from catalog.interfaces.cli import golden_sets
from catalog.library.indexing import Indexer
from fakes import open_library

QUERY = "rotate the keys"


@pytest.fixture
def catalog(monkeypatch, command, tmp_path, notes):
    """Run ``catalog golden``; exit code, standard output, standard error."""
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    monkeypatch.setattr(
        golden_sets, "open_library", lambda context: open_library(tmp_path / "home")
    )

    return partial(command, "golden")


@pytest.fixture
def type_in(monkeypatch):
    """What the person types, line by line; an exception is raised where it stands."""

    class Keyboard(io.StringIO):
        def __init__(self, lines):
            super().__init__()
            self.left = lines

        def readline(self, size=-1, /):
            said = self.left.pop(0) if self.left else EOFError
            if isinstance(said, type):
                raise said
            return f"{said}\n"

    def typed(*lines):
        left = list(lines)
        monkeypatch.setattr(sys, "stdin", Keyboard(left))
        return left

    return typed


@pytest.fixture
def file(tmp_path):
    return tmp_path / "set.jsonl"


def write(file, *queries):
    file.write_text("".join(json.dumps(one) + "\n" for one in queries))


def kept(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def grades(query):
    return {one["path"]: one.get("grade", 1) for one in query.get("expected", [])}


def asked_paths(out):
    return [line.split()[1] for line in out.splitlines() if line.startswith("[")]


# check


def test_a_sound_set_is_counted_and_passes(catalog, file):
    write(
        file,
        {
            "id": "q1",
            "query": "rotate",
            "difficulty": "easy",
            "kind": "exact",
            "expected": [{"path": "keys.md"}, {"path": "bread.txt", "grade": 0}],
        },
        {"id": "q2", "query": "the moon", "difficulty": "hard", "kind": "unanswerable"},
    )
    code, out, err = catalog("check", file, "--dataset", "notes")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "set: 2 queries, 1 of them unanswerable, 1 answers, 2 judged documents",
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "q1", "query": "x"}\n{"id": "q1"}\n', "line 2: query: is missing"),
        ("", "has no query"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_is_no_golden_set_is_one_clear_error(catalog, file, content, message):
    if content is not None:
        file.write_text(content)
    code, out, err = catalog("check", file)
    assert (code, out) == (1, "")
    assert err.startswith("catalog: ")
    assert message in err
    assert "Traceback" not in err


def test_a_check_against_an_unknown_dataset_names_those_there_are(catalog, file):
    write(file, {"id": "q1", "query": "x"})
    code, _, err = catalog("check", file, "--dataset", "nope")
    assert code == 1
    assert "no dataset 'nope'; datasets: notes" in err


# label


def test_typed_grades_are_kept_with_the_query(catalog, file, type_in):
    left = type_in(QUERY, "3", "0", "1", "")
    code, out, err = catalog("label", "--golden", file)
    assert (code, err, left) == (0, "", [])
    (query,) = kept(file)
    shown = asked_paths(out)
    assert sorted(shown) == ["bread.txt", "guides/backup.md", "keys.md"]
    assert (query["id"], query["query"]) == ("q001", QUERY)
    assert grades(query) == dict(zip(shown, (3, 0, 1), strict=True))
    assert "    | Rotate the API keys every ninety days" in out
    assert "q001: 2 answers, 3 judged" in out


def test_queries_given_as_options_are_labelled_in_turn_without_asking_for_more(
    catalog, file, type_in
):
    left = type_in("3", "q", "0", "0", "0")
    code, _, err = catalog("label", "--golden", file, "--query", QUERY, "--query", "the moon")
    assert (code, err, left) == (0, "", [])
    first, second = kept(file)
    assert (first["id"], second["id"]) == ("q001", "q002")
    assert list(grades(first).values()) == [3]
    assert (second["query"], second["kind"]) == ("the moon", "unanswerable")


def test_a_second_run_asks_only_what_is_not_judged_yet(catalog, file, type_in):
    type_in("3", "q")
    _, out, _ = catalog("label", "--golden", file, "--query", QUERY)
    judged = asked_paths(out)[0]
    type_in("0", "2")
    _, out, _ = catalog("label", "--golden", file, "--query", QUERY)
    assert len(asked_paths(out)) == 2
    assert judged not in asked_paths(out)
    (query,) = kept(file)
    assert grades(query) == {judged: 3, **dict(zip(asked_paths(out), (0, 2), strict=True))}
    left = type_in("3")
    code, out, _ = catalog("label", "--golden", file, "--query", QUERY)
    assert (code, asked_paths(out), left) == (0, [], ["3"])
    assert kept(file) == [query]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, EOFError])
def test_an_interruption_keeps_what_was_saved_and_says_so(catalog, file, type_in, interruption):
    type_in(QUERY, "3", "0", "0", "the moon", "2", interruption)
    code, _, err = catalog("label", "--golden", file)
    assert code == 130
    assert "finished work is kept" in err
    assert "Traceback" not in err
    assert [one["query"] for one in kept(file)] == [QUERY]
    assert list(file.parent.glob(".set.jsonl.[0-9]*")) == []  # unfinished


def test_an_existing_file_is_kept_and_added_to(catalog, file, type_in):
    mine = {
        "id": "mine",
        "query": "how is bread made",
        "difficulty": "hard",
        "kind": "filtered",
        "expected": [{"path": "bread.txt", "grade": 3, "span": {"text": "Bake"}}],
        "filters": ["path=bread.txt"],
        "note": "by hand",
    }
    write(file, mine)
    type_in("3", "q")
    assert catalog("label", "--golden", file, "--query", QUERY)[0] == 0
    first, second = kept(file)
    assert first == mine
    assert (second["id"], second["query"]) == ("q002", QUERY)


def test_a_query_in_the_middle_of_the_file_stays_there(catalog, file, type_in):
    write(file, *({"id": f"q{n}", "query": text} for n, text in enumerate(("a", QUERY, "b"))))
    type_in("3", "q")
    catalog("label", "--golden", file, "--query", QUERY)
    assert [one["id"] for one in kept(file)] == ["q0", "q1", "q2"]
    assert list(grades(kept(file)[1]).values()) == [3]


def test_a_query_left_without_a_grade_is_not_kept(catalog, file, type_in):
    type_in("q", "", "", "", "3", "q")
    code, out, _ = catalog(
        "label", "--golden", file, "--query", "one", "--query", "two", "--query", QUERY
    )
    assert code == 0
    assert out.count("Nothing graded, nothing kept") == 2
    assert [one["query"] for one in kept(file)] == [QUERY]


def test_no_query_typed_ends_at_once_and_writes_nothing(catalog, file, type_in):
    type_in("  ")
    assert catalog("label", "--golden", file)[0] == 0
    assert not file.exists()


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_query_is_refused_after_keeping_those_before_it(catalog, file, type_in, blank):
    type_in("3", "q")
    code, _, err = catalog("label", "--golden", file, "--query", QUERY, "--query", blank)
    assert code == 1
    assert err.startswith(f"catalog: cannot label {blank.strip()!r}")
    assert [one["query"] for one in kept(file)] == [QUERY]


def test_a_damaged_file_is_refused_before_anything_is_asked(catalog, file, type_in):
    file.write_text('{"id": "q1"}\n')
    left = type_in("x")
    code, _, err = catalog("label", "--golden", file)
    assert (code, left) == (1, ["x"])
    assert "line 1: query" in err
    assert "catalog golden check" in err
    assert file.read_text() == '{"id": "q1"}\n'


def test_a_kind_or_difficulty_that_does_not_exist_is_refused_before_anything_is_asked(
    catalog, tmp_path
):
    for option in (["--kind", "unanswerable"], ["--difficulty", "impossible"]):
        code, _, err = catalog("label", "--golden", tmp_path / "g.jsonl", *option)
        assert code == 2
        assert "one of" in err
