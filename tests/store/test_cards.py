"""Cards: made of what the store holds, kept in step with it, and found by their words."""

import pytest
from sqlalchemy import func, select

from builders import drop, put
from catalog.store import Database
from catalog.store.cards import card_terms, find_documents, search_cards
from catalog.store.listing import allowed_documents
from catalog.store.phrases import CARDS
from catalog.store.restriction import Restriction
from catalog.store.schema import document_cards

pytestmark = pytest.mark.both_stores


@pytest.fixture
def database(tmp_path):
    opened = Database.at(tmp_path)
    yield opened
    opened.close()


def found(database, query, dataset="notes", limit=100):
    with database.read() as connection:
        allowed = allowed_documents(Restriction(dataset))
        ids = search_cards(connection, card_terms(query), allowed, limit)
    return [one.removeprefix(f"{dataset}:") for one in ids]


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
        "It is about hinges. " + "word " * 300 + "itself",
        title="On locks",
        metadata={"tags": ("ops", "safety"), "author": "Ada", "media": "talk.mp4", "pages": 7},
        sections=("Chapter one", "Doors"),
    )
    for query in ["locks", "guides", "rotating keys", "v2", "ops", "ada", "talk", "doors", "hinge"]:
        assert found(database, query) == ["guides/RotatingKeys_v2.md"], query
    assert found(database, "itself") == found(database, "7 md5") == []


def test_the_title_weighs_more_than_the_name_and_that_more_than_the_summary(database):
    # in one order of the paths and, as ties go by path, in the other as well
    put(database, "notes", "a.md", "Here comes a walrus.", title="other one")
    put(database, "notes", "c.md", "x", title="the walrus")
    put(database, "notes", "b/walrus.md", "x", title="third one")
    assert found(database, "walrus") == ["c.md", "b/walrus.md", "a.md"]


def test_a_card_goes_with_its_document_and_changes_with_it(database):
    put(database, "notes", "a.md", "x", title="walrus")
    put(database, "notes", "b.md", "x", title="walrus too")
    assert rows(database) == (2, 2)
    put(database, "notes", "a.md", "y", title="seal")
    assert found(database, "walrus") == ["b.md"]
    assert (found(database, "seal"), rows(database)) == (["a.md"], (2, 2))
    drop(database, "notes", "a.md", "b.md")
    assert (found(database, "seal walrus"), rows(database)) == ([], (0, 0))


def test_another_dataset_is_never_found(database):
    put(database, "notes", "a.md", "x", title="walrus")
    put(database, "secret", "canary.md", "x", title="walrus canary")
    assert found(database, "walrus canary") == ["a.md"]


def test_equal_cards_are_found_in_the_order_of_their_paths(database):
    for path in ["d.md", "a.md", "c.md", "b.md"]:
        put(database, "notes", path, "x", title="same")
    assert found(database, "same") == ["a.md", "b.md", "c.md", "d.md"]
    assert found(database, "same", limit=2) == ["a.md", "b.md"]


def test_a_script_without_spaces_is_found_by_a_part_of_a_run(database):
    put(database, "notes", "a.md", "x", title="机器学习入门")
    put(database, "notes", "b.md", "x", title="今天天气")
    assert found(database, "学习") == ["a.md"]
    assert found(database, "习学") == []


@pytest.mark.parametrize(
    "query",
    ["", "   ", '"', '"" OR', "NEAR(a b)", "*", "title:", "a* NOT", "\0", "\ud800", "^x", "{", "-"],
)
def test_no_sign_is_an_operator_and_none_raises(database, query):
    put(database, "notes", "one.md", "otter", title="walrus")
    with database.read() as connection:
        allowed = allowed_documents(Restriction("notes"))
        assert find_documents(connection, query, allowed) == ({}, {})


def test_the_first_parts_of_a_long_compound_are_searched():
    parts = [f"w{number}" for number in range(5000)]
    assert card_terms(".".join(parts)) == [" ".join(parts[:12]), *parts[:12]]
    assert card_terms(" ".join(parts)) == parts[:64]
    assert len(card_terms("日本" * 3000 + "語")) == 3  # each pair of signs once


def test_operators_of_the_index_are_words(database):
    put(database, "notes", "a.md", "x", title="walrus near the sea")
    put(database, "notes", "b.md", "x", title="walrus")
    assert found(database, 'NEAR("sea" 2) NOT walrus') == ["a.md", "b.md"]
    assert found(database, "w* wal*") == []
