"""Cards: made of what the store holds, kept in step with it, and found by their words."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, func, select, update

from builders import drop, put
from catalog.store import Database
from catalog.store.cards import (
    card_terms,
    count_without_card,
    find_documents,
    read_uncarded_documents,
    save_cards,
    search_cards,
)
from catalog.store.engine_types import Restriction
from catalog.store.listing import allowed_documents
from catalog.store.phrases import CARDS
from catalog.store.schema import document_cards, documents

pytestmark = pytest.mark.both_stores


@pytest.fixture
def database(tmp_path):
    opened = Database.at(tmp_path)
    yield opened
    opened.close()


def make(database, dataset="notes", summary="Nothing to say."):
    with database.write() as connection:
        uncarded = read_uncarded_documents(connection, dataset, 100)
        return save_cards(connection, {document: summary for document, _ in uncarded})


def found(database, query, dataset="notes", limit=100):
    with database.read() as connection:
        allowed = allowed_documents(Restriction(dataset))
        ids = search_cards(connection, card_terms(query), allowed, limit)
        paths = dict(connection.execute(select(documents.c.id, documents.c.path)).all())
    return [paths[one] for one in ids]


def rows(database):
    with database.read() as connection:
        cards = connection.scalar(select(func.count()).select_from(document_cards))
        indexed = connection.scalar(select(func.count()).select_from(CARDS))
    return cards, indexed


def test_a_card_holds_title_name_headings_summary_and_the_text_of_metadata(database):
    put(
        database,
        "notes",
        "guides/RotatingKeys_v2.md",
        "the text itself",
        title="On locks",
        metadata={"tags": ("ops", "safety"), "author": "Ada", "media": "talk.mp4", "pages": 7},
        sections=("Chapter one", "Doors"),
    )
    assert make(database, summary="It is about hinges.") == 1
    for query in ["locks", "guides", "rotating keys", "v2", "ops", "ada", "talk", "doors", "hinge"]:
        assert found(database, query) == ["guides/RotatingKeys_v2.md"], query
    assert found(database, "itself") == found(database, "7 md5") == []


def test_the_title_weighs_more_than_the_name_and_that_more_than_the_summary(database):
    # in one order of the paths and, as ties go by path, in the other as well
    put(database, "notes", "a.md", "Here comes a walrus.", title="other one")
    put(database, "notes", "c.md", "x", title="the walrus")
    put(database, "notes", "b/walrus.md", "x", title="third one")
    with database.write() as connection:
        save_cards(connection, dict(read_uncarded_documents(connection, "notes", 100)))
    assert found(database, "walrus") == ["c.md", "b/walrus.md", "a.md"]


def test_a_card_goes_with_its_document_and_changes_with_it(database):
    put(database, "notes", "a.md", "x", title="walrus")
    put(database, "notes", "b.md", "x", title="walrus too")
    make(database)
    assert rows(database) == (2, 2)
    put(database, "notes", "a.md", "y", title="seal")
    assert found(database, "walrus") == ["b.md"]
    assert make(database) == 1
    assert (found(database, "seal"), rows(database)) == (["a.md"], (2, 2))
    drop(database, "notes", "a.md", "b.md")
    assert (found(database, "seal walrus"), rows(database)) == ([], (0, 0))


def test_cards_that_are_deleted_or_of_another_version_are_lacking_again(database):
    put(database, "notes", "a.md", "x", title="walrus")
    put(database, "notes", "b.md", "x", title="walrus too")
    make(database)
    with database.write() as connection:
        connection.execute(update(document_cards).values(version=0).where(_is(connection, "a.md")))
        connection.execute(delete(document_cards).where(_is(connection, "b.md")))
        assert count_without_card(connection, "notes") == 2
    assert make(database) == 2
    assert found(database, "walrus") == ["a.md", "b.md"]
    assert rows(database) == (2, 2)


def _is(connection, path):
    one = connection.scalar(select(documents.c.id).where(documents.c.path == path))
    return document_cards.c.document_id == one


def test_a_document_removed_while_its_card_was_made_gets_no_card(database):
    put(database, "notes", "a.md", "x")
    put(database, "notes", "b.md", "x")
    with database.read() as connection:
        uncarded = read_uncarded_documents(connection, "notes", 100)
        summaries = dict(uncarded)
    drop(database, "notes", "a.md")
    with database.write() as connection:
        assert save_cards(connection, summaries) == 1
    assert rows(database) == (1, 1)


def test_another_dataset_is_never_found(database):
    put(database, "notes", "a.md", "x", title="walrus")
    put(database, "secret", "canary.md", "x", title="walrus canary")
    make(database)
    make(database, "secret")
    assert found(database, "walrus canary") == ["a.md"]


def test_equal_cards_are_found_in_the_order_of_their_paths(database):
    for path in ["d.md", "a.md", "c.md", "b.md"]:
        put(database, "notes", path, "x", title="same")
    make(database)
    assert found(database, "same") == ["a.md", "b.md", "c.md", "d.md"]
    assert found(database, "same", limit=2) == ["a.md", "b.md"]


def test_a_script_without_spaces_is_found_by_a_part_of_a_run(database):
    put(database, "notes", "a.md", "x", title="机器学习入门")
    put(database, "notes", "b.md", "x", title="今天天气")
    make(database)
    assert found(database, "学习") == ["a.md"]
    assert found(database, "习学") == []


@pytest.mark.parametrize(
    "query",
    ["", "   ", '"', '"" OR', "NEAR(a b)", "*", "title:", "a* NOT", "\0", "\ud800", "^x", "{", "-"],
)
def test_no_sign_is_an_operator_and_none_raises(database, query):
    put(database, "notes", "one.md", "x", title="walrus")
    make(database)
    with database.read() as connection:
        allowed = allowed_documents(Restriction("notes"))
        assert find_documents(connection, "notes", query, allowed).scores == {}


def test_the_first_parts_of_a_long_compound_are_searched():
    parts = [f"w{number}" for number in range(5000)]
    assert card_terms(".".join(parts)) == [" ".join(parts[:12]), *parts[:12]]
    assert card_terms(" ".join(parts)) == parts[:64]
    assert len(card_terms("日本" * 3000 + "語")) == 3  # each pair of signs once


def test_operators_of_the_index_are_words(database):
    put(database, "notes", "a.md", "x", title="walrus near the sea")
    put(database, "notes", "b.md", "x", title="walrus")
    make(database)
    assert found(database, 'NEAR("sea" 2) NOT walrus') == ["a.md", "b.md"]
    assert found(database, "w* wal*") == []


def tables(connection):
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master").all()
    return dict(map(tuple, rows))
