"""What a vector index is asked for under a filter: the shorter list of documents, or nothing."""

from builders import make_database, put
from catalog.core.filters import parse_filters
from catalog.core.scope import Scope
from catalog.store.engine_types import Restriction
from catalog.store.vectors.point_search import point_condition


def ask(tmp_path, filters=None, scope=None):
    database = make_database(tmp_path)
    for number in range(40):
        put(database, "notes", f"a{number:02}.md", "text")
    put(database, "other", "a40.md", "text")
    scope = Scope.all() if scope is None else Scope.of(scope)
    with database.read() as connection:
        return point_condition(connection, Restriction("notes", scope, parse_filters(filters)))


def test_a_filter_that_every_document_meets_asks_for_nothing(tmp_path):
    assert ask(tmp_path, "path~.md") is True


def test_a_filter_that_most_documents_meet_lists_the_documents_that_do_not(tmp_path):
    condition = ask(tmp_path, "path>a02.md")
    assert condition == {
        "must_not": [
            {"key": "doc_id", "match": {"any": ["notes:a00.md", "notes:a01.md", "notes:a02.md"]}}
        ]
    }


def test_a_filter_that_half_of_the_documents_meet_names_them(tmp_path):
    condition = ask(tmp_path, "path<a20.md")
    assert condition["match"]["any"][-1] == "notes:a19.md"
    assert len(condition["match"]["any"]) == 20


def test_names_of_a_scope_that_are_no_documents_do_not_hide_those_left_out(tmp_path):
    named = [f"notes:a{number:02}.md" for number in range(39)]
    gone = [f"notes:gone{number}.md" for number in range(30)]
    condition = ask(tmp_path, scope=[*named, *gone])
    assert condition == {"must_not": [{"key": "doc_id", "match": {"any": ["notes:a39.md"]}}]}
