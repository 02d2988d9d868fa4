"""What is particular to the FTS5 engine: its weights, its stop words and its query plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite

from builders import make_database, put
from catalog.core.scope import Scope
from catalog.store.database import Database
from catalog.store.lexical.fts import FtsEngine, _matching
from catalog.store.phrases import MAX_TERMS, fts_words, match_any, quote
from catalog.store.restriction import Restriction
from catalog.store.schema import chunks

WHOLE = Restriction("notes")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def engine(database: Database) -> FtsEngine:
    return FtsEngine(database, "notes")


def order(engine: FtsEngine, text: str) -> list[int]:
    return [hit.seq for hit in engine.search(text, 10, WHOLE)]


def test_a_title_weighs_more_than_a_heading_and_a_heading_more_than_text(
    database: Database, engine: FtsEngine
) -> None:
    [text] = put(database, "notes", "a.md", "flour", title="one", sections=("two",))
    [heading] = put(database, "notes", "b.md", "one", title="two", sections=("flour",))
    [title] = put(database, "notes", "c.md", "one", title="flour", sections=("two",))
    for index in range(5):
        put(database, "notes", f"{index}.md", "salt", title="one", sections=("two",))
    assert order(engine, "flour") == [title, heading, text]


def test_stop_words_find_nothing_unless_they_are_all_there_is(
    database: Database, engine: FtsEngine
) -> None:
    [both] = put(database, "notes", "a.md", "the flour")
    [the] = put(database, "notes", "b.md", "with the salt")
    assert order(engine, "what is the flour with") == [both]
    assert order(engine, "with") == [the]
    assert order(engine, "with the")[0] == the
    assert set(order(engine, "with the if")) == {both, the}


def test_the_parts_of_a_compound_side_by_side_rank_above_the_parts_apart(
    database: Database, engine: FtsEngine
) -> None:
    put(database, "notes", "a.md", "21 files in 0 folders, 1 error")
    [version] = put(database, "notes", "b.md", "release 1.0.21 is out now!!")
    for index in range(5):
        put(database, "notes", f"{index}.md", "salt")
    assert order(engine, "1.0.21")[0] == version


def test_a_score_does_not_depend_on_how_the_dataset_was_asked_for(
    database: Database, engine: FtsEngine
) -> None:
    for index in range(6):
        put(database, "notes", f"{index}.md", f"flour {'water ' * index}")
    everything = Restriction("notes", Scope.of(f"notes:{index}.md" for index in range(6)))
    assert engine.search("flour water", 9, everything) == engine.search("flour water", 9, WHOLE)


@pytest.mark.slow
def test_sqlite_never_matches_the_text_once_per_chunk(database: Database) -> None:
    for index in range(50):
        put(database, "notes", f"{index}.md", "flour")
    with database.read() as connection:
        query = _matching(connection, match_any(["flour"])).where(chunks.c.dataset == "notes")
        compiled = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}").all()
    [match] = [str(step[3]) for step in plan if "chunks_fts VIRTUAL TABLE" in str(step[3])]
    assert match.startswith("SCAN")
    assert "=" not in match


def test_no_user_text_becomes_syntax() -> None:
    assert quote('a"b') == '"a""b"'
    assert match_any(["NOT", "x*", "NOT"]) == '"NOT" OR "x*"'
    assert match_any(str(n) for n in range(1000)).count(" OR ") == MAX_TERMS - 1


def test_words_are_those_the_index_has() -> None:
    assert fts_words("search_v2, c++ «naïve» e\u0301t\u00e9 \0 \ud800") == [
        "search", "v2", "c", "naïve", "été",
    ]  # fmt: skip
