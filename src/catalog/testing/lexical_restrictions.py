"""Requirements for every keyword engine on scopes, filters, and phrases to contain or exclude."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.filters import And, Condition, Filter, Not, Op, Or, condition, matches
from catalog.core.query import SubQuery
from catalog.core.scope import Scope
from catalog.retrieval.legs import LegQuery, rank_words
from catalog.store.database import Database
from catalog.store.engines import LexicalEngine
from catalog.store.restriction import Restriction
from catalog.testing.stores import make_database, put

Maker = Callable[[Database, str, Path], LexicalEngine]
WHOLE = Restriction("notes")
RELAXED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
VALUES: st.SearchStrategy[MetadataScalar] = st.sampled_from(
    ["ops", "security", "bread", "a.md", 2020, 2021, 1, 2020.5, True, False]
)

FIELDS = st.sampled_from(["tags", "year", "flag", "path", "title", "modality", "missing"])

CONDITIONS = st.one_of(
    st.builds(condition, FIELDS, st.sampled_from([Op.EQ, Op.NE, Op.GT, Op.LTE]), VALUES),
    st.builds(
        condition,
        FIELDS,
        st.sampled_from([Op.IN, Op.NIN, Op.ANY, Op.ALL]),
        st.lists(VALUES, max_size=3),
    ),
    st.builds(condition, FIELDS, st.just(Op.IS_EMPTY), st.none()),
    st.builds(condition, FIELDS, st.just(Op.TEXT_MATCH_INSENSITIVE), st.just("O")),
)


def trees(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    parts = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, inner))


FILTERS: st.SearchStrategy[Filter] = st.recursive(CONDITIONS, trees, max_leaves=5)
METADATA = {
    "a.md": {"tags": ("ops", "security"), "year": (2020,), "flag": (True,)},
    "b.md": {"tags": ("ops",), "year": (2021,)},
    "c.md": {"tags": ("bread",), "year": (1,), "flag": (1,)},
    "d.md": {},
}


def values_of(path: str) -> Callable[[str], tuple[MetadataScalar, ...]]:
    own: dict[str, tuple[MetadataScalar, ...]] = {
        **METADATA[path],  # type: ignore[dict-item]
        "path": (path,),
        "title": (path,),
        "modality": ("text",),
    }
    return lambda field: own.get(field, ())


def found(engine: LexicalEngine, text: str, restriction: Restriction = WHOLE) -> set[int]:
    """Return the passages that a text finds."""
    return {hit.seq for hit in engine.search(text, 1000, restriction)}


class LexicalRestrictions:
    """The part of the contract that is about restrictions; ``LexicalContract`` has all of it."""

    def open_engine(self, database: Database, dataset: str, folder: Path) -> LexicalEngine:
        """Return the engine under test over a dataset; ``folder`` is for its derived files."""
        raise NotImplementedError

    @pytest.fixture
    def make(self) -> Maker:
        """Return the function that opens an engine; tests of several engines replace it."""
        return self.open_engine

    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[Database]:
        opened = make_database(tmp_path)
        yield opened
        opened.close()

    @pytest.fixture
    def engine(self, make: Maker, database: Database, tmp_path: Path) -> Iterator[LexicalEngine]:
        made = make(database, "notes", tmp_path / "index")
        yield made
        made.close()

    @pytest.fixture
    def corpus(self, database: Database) -> dict[str, int]:
        """Four documents that all hold the word ``keys``, and one of another dataset."""
        about: list[tuple[str, dict[str, MetadataValue]]] = [
            ("a.md", {"tags": ("ops", "security"), "year": 2020, "flag": True}),
            ("b.md", {"tags": ("ops",), "year": 2021}),
            ("c.md", {"tags": ("bread",), "year": 1, "flag": 1}),
            ("d.md", {}),
        ]
        put(database, "other", "a.md", "keys of another dataset")
        return {
            path: put(database, "notes", path, f"keys in {path[0]}", title=path, metadata=metadata)[
                0
            ]
            for path, metadata in about
        }

    def test_only_documents_in_scope_answer(
        self, corpus: dict[str, int], engine: LexicalEngine
    ) -> None:
        def within(scope: Scope) -> set[int]:
            return found(engine, "keys", Restriction("notes", scope))

        assert within(Scope.of(None)) == set(corpus.values())
        assert within(Scope.of([])) == set()
        assert within(Scope.of(["notes:b.md"])) == {corpus["b.md"]}
        assert within(Scope.of(["notes:nowhere.md", "other:a.md"])) == set()

    def test_a_scope_of_very_many_documents_is_no_trouble(
        self, corpus: dict[str, int], engine: LexicalEngine, database: Database
    ) -> None:
        @event.listens_for(database.engine, "connect")
        def _as_small_as_sqlite_comes(connection: Any, _record: object) -> None:
            if isinstance(connection, sqlite3.Connection):
                connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)

        database.close()
        many = Scope.of(["notes:c.md", *(f"notes:{n}.md" for n in range(40_000))])
        assert found(engine, "keys", Restriction("notes", many)) == {corpus["c.md"]}

    def test_other_datasets_never_answer(
        self, corpus: dict[str, int], make: Maker, database: Database, tmp_path: Path
    ) -> None:
        notes = make(database, "notes", tmp_path / "notes")
        absent = make(database, "absent", tmp_path / "absent")
        other = make(database, "other", tmp_path / "other")
        assert found(notes, "keys") == set(corpus.values())
        assert found(notes, "keys", Restriction("other")) == set()
        assert found(absent, "keys", Restriction("absent")) == set()
        assert found(other, "keys", Restriction("other")).isdisjoint(corpus.values())

    def test_a_dataset_that_does_not_exist_never_answers_for_the_only_one(
        self, make: Maker, database: Database, tmp_path: Path
    ) -> None:
        put(database, "notes", "a.md", "keys")
        absent = make(database, "absent", tmp_path / "absent")
        absent.refresh()
        assert found(absent, "keys", Restriction("absent")) == set()

    def test_values_that_python_takes_for_equal_are_still_told_apart(
        self, corpus: dict[str, int], engine: LexicalEngine
    ) -> None:
        def holding(value: MetadataScalar) -> set[int]:
            asked = condition("flag", Op.EQ, value)
            return found(engine, "keys", Restriction("notes", filter=asked))

        assert holding(True) == {corpus["a.md"]}
        assert holding(1) == {corpus["c.md"]}
        assert holding("1") == set()

    @RELAXED
    @given(asked=FILTERS, ids=st.none() | st.lists(st.sampled_from(sorted(METADATA)), max_size=3))
    def test_filter_and_scope_mean_what_the_rules_say(
        self, corpus: dict[str, int], engine: LexicalEngine, asked: Filter, ids: list[str] | None
    ) -> None:
        scope = Scope.of(None if ids is None else [f"notes:{path}" for path in ids])
        expected = {
            seq
            for path, seq in corpus.items()
            if (ids is None or path in ids) and matches(asked, values_of(path))
        }
        assert found(engine, "keys", Restriction("notes", scope, asked)) == expected

    def test_in_an_empty_list_is_nothing(
        self, corpus: dict[str, int], engine: LexicalEngine
    ) -> None:
        nothing = Condition("path", Op.IN, ())
        assert found(engine, "keys", Restriction("notes", filter=nothing)) == set()
        everything = Restriction("notes", filter=Not(nothing))
        assert found(engine, "keys", everything) == set(corpus.values())

    def test_excluded_words_and_phrases_keep_passages_out(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [red] = put(database, "notes", "a.md", "red keys on the old ring")
        [blue] = put(database, "notes", "b.md", "blue keys on the new ring")
        [both] = put(database, "notes", "c.md", "red keys, blue keys")

        def without(*phrases: str) -> set[int]:
            return found(engine, "keys", Restriction("notes", without=phrases))

        assert without("red") == {blue}
        assert without("old ring") == {blue, both}
        assert without("ring old") == {red, blue, both}
        assert without("old ring", "new ring") == {both}
        assert without("red", "blue") == set()
        assert without('"', "???") == {red, blue, both}

    def test_an_excluded_name_with_signs_is_not_the_letter_before_them(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        put(database, "notes", "a.md", "keys in C++")
        [vitamin] = put(database, "notes", "b.md", "keys to vitamin C")
        excluded = Restriction("notes", without=("c++",))
        assert found(engine, "keys", excluded) == {vitamin}

    def test_required_phrases_keep_other_passages_out(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [first] = put(database, "notes", "a.md", "keys to the old town and a new ring")
        [second] = put(database, "notes", "b.md", "keys to the new town and an old ring")

        def containing(*phrases: str, without: tuple[str, ...] = ()) -> set[int]:
            return found(engine, "keys", Restriction("notes", containing=phrases, without=without))

        assert containing("old town") == {first}
        assert containing("old town", "new ring") == {first}
        assert containing("old town", "old ring") == set()
        assert containing("town", without=("new town",)) == {first}
        assert containing("town", without=("old town",)) == {second}
        assert containing('" OR "') == set()

    def test_quotes_and_exclusions_hold_inside_scripts_without_spaces(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [city] = put(database, "notes", "a.md", "keys 東京都の図書館でPython入門を読む")
        [other] = put(database, "notes", "b.md", "keys 京都の公園と서울에서")
        for phrase in ("東京都", "図書館", "python入門", "東京"):
            assert found(engine, "keys", Restriction("notes", containing=(phrase,))) == {city}, (
                phrase
            )
            assert found(engine, "keys", Restriction("notes", without=(phrase,))) == {other}, phrase
        for phrase in ("서울", "公園と"):
            assert found(engine, "keys", Restriction("notes", containing=(phrase,))) == {other}, (
                phrase
            )
        assert found(engine, "keys", Restriction("notes", containing=("都京",))) == set()

    def test_a_search_for_a_phrase_alone_finds_it_inside_scripts_without_spaces(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [city] = put(database, "notes", "a.md", "東京は日本の首都です。猫が好きです。")
        put(database, "notes", "b.md", "大阪は大きい。")
        for phrase, wanted in (("日本の首都", [city]), ("東京", [city]), ("名古屋", [])):
            within = Restriction("notes", containing=(phrase,))
            leg = LegQuery(SubQuery("lex", phrase), within, 10)
            with database.read() as connection:
                run = rank_words(connection, engine, leg)
            assert [hit.seq for hit in run.hits] == wanted, phrase
        # what a model adds to the question is ranked or not found at all
        added = SubQuery("lex", "zebra", origin="expansion")
        within = Restriction("notes", containing=("東京",))
        with database.read() as connection:
            assert not rank_words(connection, engine, LegQuery(added, within, 10)).hits

    def test_a_phrase_of_stop_words_is_found_where_it_is_required(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [walrus] = put(database, "notes", "a.md", "The walrus does not sing.")
        put(database, "notes", "b.md", "It does sing, not badly.")
        put(database, "other", "c.md", "It does not.")
        required = Restriction("notes", containing=("does not",))
        assert found(engine, "does not", required) == {walrus}
        assert engine.search("does not", 0, required) == []
