"""Filters asked again: what they cost, and that they follow the documents all the same."""

import json

import pytest
from sqlalchemy import event

from catalog.core.filters import Condition, Op
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

pytestmark = pytest.mark.both_stores


@pytest.fixture
def library(tmp_path, notes):
    for name, value in (("one", "1"), ("yes", "true")):
        (notes / f"{name}.md").write_text(f"---\nflag: {value}\n---\nBread of {name}.\n")
    with open_library(tmp_path / "home") as opened:
        Indexer(opened).build(notes, "notes")
        yield opened


def paths(results):
    return sorted(result.path for result in results)


def count_statements(library, ask, having=""):
    statements = []

    def note(connection, cursor, statement, *more):
        statements.append(statement)

    ask()
    event.listen(library.database.engine, "before_cursor_execute", note)
    ask()
    event.remove(library.database.engine, "before_cursor_execute", note)
    return len([statement for statement in statements if having in statement])


def test_a_filter_asked_again_costs_two_statements(library):
    service = SearchServiceV2(library)
    plain = count_statements(library, lambda: service.search("bread"))
    filtered = count_statements(library, lambda: service.search("bread", filters="path~bread"))
    assert filtered - plain <= 2


def test_the_list_of_documents_that_a_filter_lets_through_is_made_once(library):
    service = SearchServiceV2(library)
    made = count_statements(
        library,
        lambda: service.search("bread", filters="path~bread"),
        having="chunks.document_id IN (SELECT document_fields",
    )
    assert made == 0


def test_a_filter_asked_again_follows_the_documents(library, notes):
    service = SearchServiceV2(library)
    records = Condition("path", Op.EQ, "more.jsonl")
    assert paths(service.search("bread", filters=records)) == []
    rows = [{"_id": name, "text": f"Bread of {name}."} for name in ("rye", "oats")]
    (notes / "more.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Indexer(library).update("notes")
    added = paths(service.search("bread", filters=records))
    assert len(added) == 2
    (notes / "more.jsonl").write_text(json.dumps(rows[1]))
    Indexer(library).update("notes")
    assert len(paths(service.search("bread", filters=records))) == 1


def test_a_filter_on_one_is_not_that_on_true_though_python_takes_them_for_equal(library):
    service = SearchServiceV2(library)
    for mode in ("vector", "lexical", "hybrid"):
        for value, path in ((True, "yes.md"), (1, "one.md"), (True, "yes.md")):
            found = service.search("bread", mode=mode, filters=Condition("flag", Op.EQ, value))
            assert paths(found) == [path]
