"""Whether labels fit a dataset, against a real store of three small documents."""

import pytest

from catalog.evaluation.golden import (
    GoldenQuery,
    GoldenSet,
    find_allowed_documents,
    find_dataset_problems,
    find_duplicate_queries,
    with_own_names,
)
from catalog.library.indexing import Indexer
from evaluation.stubs import question
from fakes import open_library
from tables import table

BREAD = "Mix flour, water and yeast. Bake the bread at 230 degrees.\n"  # 59 characters, one line


@pytest.fixture
def database(tmp_path, notes):
    other = tmp_path / "other"
    other.mkdir()
    (other / "elsewhere.md").write_text("---\ncolour: red\n---\nAnother dataset's document.\n")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        Indexer(library).build(other, "other")
        yield library.database


@pytest.fixture
def problems(database):
    def found(*queries):
        return find_dataset_problems(GoldenSet("set", queries), database, "notes")

    return found


def labelled(*expected, **fields):
    return question(1, **{"expected": list(expected), "kind": None, **fields})


def test_labels_that_fit_are_no_problem(problems, notes):
    assert (notes / "bread.txt").read_text() == BREAD
    assert len(BREAD) == 59
    spans = ["Bake the bread", [0, 59], {"line_start": 1, "line_end": 1}, None]
    queries = [labelled({"path": "bread.txt", "grade": 2, "span": span}) for span in spans]
    within = labelled({"path": "guides/backup.md"}, filters=["path~guides"])
    assert problems(*queries, within) == []


def test_an_absent_document_is_named_with_the_nearest_there_is(problems):
    query = labelled({"path": "guides/backups.md"}, {"path": "zzz", "grade": 0})
    assert problems(query) == [
        "q1: no document 'guides/backups.md'; is it 'guides/backup.md'?",
        "q1: no document 'zzz'",
    ]


@table("span, told", inner=list)
def test_a_span_that_is_not_in_the_text_is_reported(problems, span, told):
    assert problems(labelled({"path": "bread.txt", "span": span})) == [f"q1: {told}"]


def test_an_answer_the_filters_forbid_is_reported_and_a_wrong_document_is_not(problems):
    query = labelled(
        {"path": "keys.md", "grade": 1},
        {"path": "bread.txt", "grade": 1},
        {"path": "guides/backup.md", "grade": 0},
        filters=["tag=ops"],
    )
    assert problems(query) == ["q1: 'bread.txt' is expected, but the filters forbid it"]


def test_a_filter_on_a_field_that_no_document_has_is_reported_once(problems):
    query = labelled({"path": "bread.txt"}, filters=["colour=red"])  # only the other dataset's
    (told,) = problems(query)
    assert told.startswith("q1: filters: no document has the field 'colour'")


def test_each_problem_names_its_query(problems):
    first, second = labelled({"path": "x"}), question(2, expected=[{"path": "y"}])
    assert [
        one.split(":")[0] for one in problems(first, question(3, expected=[], kind=None), second)
    ] == ["q1", "q2"]


@table("name")
def test_a_label_may_name_its_document_like_any_argument(database, notes, name):
    queries = labelled({"path": name.format(notes), "grade": 2}, {"path": "zzz", "grade": 0})
    named = with_own_names(GoldenSet("set", (queries,)), database, "notes")
    assert named.queries[0].grades == {"guides/backup.md": 2, "zzz": 0}


def test_filters_allow_the_documents_they_match_and_no_filter_allows_all(database):
    def allowed(**fields):
        return find_allowed_documents(database, "notes", GoldenQuery(id="q", query="x", **fields))

    assert allowed() is None
    assert allowed(filters=["tag=ops"]) == {"keys.md"}
    assert allowed(filters={"path": ["bread.txt", "keys.md"]}) == {"keys.md", "bread.txt"}
    assert allowed(filters=["tag=nothing"]) == frozenset()
    assert allowed(filters=["path~elsewhere"]) == frozenset()


def test_a_text_asked_twice_with_the_same_filters_is_told_however_it_is_written():
    def asked(*queries):
        return find_duplicate_queries(
            GoldenSet(
                "set",
                tuple(
                    GoldenQuery(id=f"q{n}", query=text, filters=filters)
                    for n, (text, filters) in enumerate(queries)
                ),
            )
        )

    assert asked(("Why", None), (" why ", None), ("how", None)) == ["why"]
    assert asked(("why", ["tag=a"]), ("WHY", ["tag=a"])) == ["why"]
    assert asked(("why", ["tag=a"]), ("why", ["tag=b"]), ("why", None)) == []
