"""Filters asked again: what they cost, and that they follow the documents all the same."""

import json

import pytest
from sqlalchemy import event

from catalog.core.filters import Condition, Op
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from small_documents import NOTES
from stores import open_store

pytestmark = pytest.mark.both_stores


FLAGS = {
    f"notes/{name}.md": f"---\nflag: {value}\n---\nBread of {name}.\n"
    for name, value in (("one", "1"), ("yes", "true"))
}


@pytest.fixture
def library(tmp_path):
    with open_store(NOTES | FLAGS, tmp_path) as opened:
        yield opened


def paths(results):
    return sorted(result.path for result in results)


def statements_of(library, ask):
    """What a search that was asked before asks of the store."""
    statements = []

    def note(connection, cursor, statement, *more):
        statements.append(statement)

    ask()
    event.listen(library.database.engine, "before_cursor_execute", note)
    ask()
    event.remove(library.database.engine, "before_cursor_execute", note)
    return statements


def test_a_filter_asked_again_costs_two_statements_and_lists_no_documents(library):
    service = SearchServiceV2(library)
    plain = statements_of(library, lambda: service.search("bread"))
    filtered = statements_of(library, lambda: service.search("bread", filters="path~bread"))
    assert len(filtered) - len(plain) <= 2
    made = "chunks.document_id IN (SELECT document_fields"
    assert not any(made in statement for statement in filtered)


def test_a_filter_asked_again_follows_the_documents(library, tmp_path):
    service = SearchServiceV2(library)
    records = Condition("path", Op.EQ, "more.jsonl")
    file = tmp_path / "notes" / "more.jsonl"
    assert paths(service.search("bread", filters=records)) == []
    rows = [{"_id": name, "text": f"Bread of {name}."} for name in ("rye", "oats")]
    file.write_text("\n".join(map(json.dumps, rows)))
    Indexer(library).update("notes")
    added = paths(service.search("bread", filters=records))
    assert len(added) == 2
    file.write_text(json.dumps(rows[1]))
    Indexer(library).update("notes")
    assert len(paths(service.search("bread", filters=records))) == 1


def test_a_filter_on_one_is_not_that_on_true_though_python_takes_them_for_equal(library):
    service = SearchServiceV2(library)
    for mode in ("vector", "lexical", "hybrid"):
        for value, path in ((True, "yes.md"), (1, "one.md"), (True, "yes.md")):
            found = service.search("bread", mode=mode, filters=Condition("flag", Op.EQ, value))
            assert paths(found) == [path]
