"""The full text of a store in Postgres: its language, fields and limits, and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, pstdev

import pytest
from pydantic import ValidationError
from sqlalchemy import text

from builders import drop, make_database, put
from catalog.core.errors import ConfigError
from catalog.core.settings import TsvectorSettings
from catalog.store.database import Database
from catalog.store.engine_types import Restriction
from catalog.store.lexical import get_lexical_engine
from catalog.store.lexical.tsvector import TsvectorEngine, split_terms

WHOLE = Restriction("notes")


@pytest.fixture
def database(on_postgres: object, tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


def engine_of(database: Database, *, most: int = 1000, **settings: str) -> TsvectorEngine:
    return TsvectorEngine(database, "notes", TsvectorSettings(**settings), most_candidates=most)


def order(engine: TsvectorEngine, query: str, restriction: Restriction = WHOLE) -> list[int]:
    return [hit.seq for hit in engine.search(query, 100, restriction)]


def tables(database: Database) -> list[str]:
    query = text("SELECT tablename FROM pg_tables WHERE tablename LIKE 'words_%'")
    with database.read(latest=True) as connection:
        return sorted(connection.scalars(query))


def counted(database: Database) -> list[tuple[str, int]]:
    [name] = [name for name in tables(database) if name.endswith("_counts")]
    query = text(f"SELECT lexeme, passages FROM {name} WHERE passages <> 0 ORDER BY lexeme")
    with database.read(latest=True) as connection:
        return [(word, number) for word, number in connection.execute(query)]


def test_the_full_text_of_a_store_is_that_of_its_database(
    database: Database, tmp_path: Path
) -> None:
    assert isinstance(get_lexical_engine("fts", database, "notes", tmp_path), TsvectorEngine)


def test_words_are_cut_in_the_language_that_is_set(database: Database) -> None:
    [seq] = put(database, "notes", "a.md", "Die Häuser und die Schlüssel")
    german, simple = engine_of(database, config="german"), engine_of(database, config="simple")
    assert order(german, "Haus") == order(german, "hauser") == [seq]
    assert (german.is_searchable("und"), simple.is_searchable("und")) == (False, True)
    assert order(simple, "Haus") == []
    assert order(simple, "und") == order(simple, "schlussel") == [seq]


def test_english_words_lose_their_accents_before_their_ending(database: Database) -> None:
    [seq] = put(database, "notes", "a.md", "a résumé of cafés")
    engine = engine_of(database)
    for query in ("resume", "résumé", "cafe", "Café"):
        assert order(engine, query) == [seq]


def test_a_language_that_the_server_does_not_know_is_refused(database: Database) -> None:
    put(database, "notes", "a.md", "keys")
    with pytest.raises(ConfigError, match=r"klingon.*TSVECTOR__CONFIG"):
        engine_of(database, config="klingon").search("keys", 5, WHOLE)


def test_fields_are_searched_as_set_and_weigh_more_than_text(database: Database) -> None:
    [text_] = put(database, "notes", "a/one.md", "backup " + "filler " * 5, title="Two")
    [tag] = put(database, "notes", "b/two.md", "six words that say nothing else", title="One")
    put(database, "notes", "b/two.md", "six", title="One", metadata={"tags": ("old",)})
    [tag] = put(database, "notes", "b/two.md", "six other", metadata={"tags": ("backup", "x")})
    assert order(engine_of(database), "backup") == [text_]
    fields = engine_of(database, fields="tags:A, path:B")
    assert order(fields, "backup") == [tag, text_]
    assert order(fields, "one") == [text_]  # of its path: the title is not searched any more
    assert order(fields, "old") == []


def test_past_the_limit_common_words_count_but_find_nothing(database: Database) -> None:
    texts = ["common", "common rare", "rare", "common common", "other"] * 8
    seqs = [put(database, "notes", f"{n}.md", text_)[0] for n, text_ in enumerate(texts)]
    whole, limited = engine_of(database), engine_of(database, most=20)
    everything = whole.search("rare common", 100, WHOLE)
    hits = limited.search("rare common", 100, WHOLE)
    with_rare = {seq for seq, text_ in zip(seqs, texts, strict=True) if "rare" in text_}
    assert list(hits) == [hit for hit in everything if hit.seq in with_rare]
    assert len(hits) == 16 < len(everything) == 32
    # The sample is the whole of so small a table, so what is not ranked is known exactly.
    scores = [hit.score for hit in everything] + [0.0] * 8
    assert hits.spread == pytest.approx((mean(scores), pstdev(scores)), rel=1e-4)


def test_the_rarest_words_are_looked_for_and_one_always_is() -> None:
    passages = {"of": 90, "keys": 5, "rotate": 3, "api": 5}
    assert split_terms(passages, 1000) == (["rotate", "api", "keys", "of"], [])
    assert split_terms(passages, 10) == (["rotate", "api"], ["keys", "of"])
    assert split_terms(passages, 1) == (["rotate"], ["api", "keys", "of"])


def test_two_datasets_rank_as_one_with_the_same_passages(database: Database) -> None:
    texts = ["alpha beta", "alpha " * 3, "beta gamma", "alpha gamma " * 2, "beta"]
    for number, text_ in enumerate(texts):
        put(database, "notes" if number % 2 else "other", f"{number}.md", text_)
        put(database, "both", f"{number}.md", text_)
    parts = [TsvectorEngine(database, name) for name in ("notes", "other")]
    joined = parts[0].join(parts[1:])
    found = joined.search("alpha beta", 10, Restriction(("notes", "other")))
    one = TsvectorEngine(database, "both").search("alpha beta", 10, Restriction("both"))
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in one])
    assert found.spread == pytest.approx(one.spread)


def test_how_rare_words_are_is_as_after_a_fresh_start(database: Database) -> None:
    engine = engine_of(database)
    for round_ in range(3):
        for number in range(4):
            put(database, "notes", f"{number}.md", f"word{number} round{round_} key")
        engine.refresh()
    drop(database, "notes", "1.md")
    engine.refresh()
    expected = [("key", 3), ("round2", 3), ("word0", 1), ("word2", 1), ("word3", 1)]
    assert counted(database) == expected


def test_tables_of_another_setting_go_when_those_of_the_new_one_are_made(
    database: Database,
) -> None:
    put(database, "notes", "a.md", "keys")
    put(database, "other", "a.md", "keys")
    TsvectorEngine(database, "other").refresh()
    engine_of(database).refresh()
    before = tables(database)
    engine_of(database, config="simple").refresh()
    after = tables(database)
    assert len(before) == len(after) == 4
    assert len({*before} & {*after}) == 2


def test_changed_words_are_counted_and_cut_again(database: Database) -> None:
    [seq] = put(database, "notes", "a.md", "keys")
    engine = engine_of(database)
    assert engine.verify() == 0
    name = min(tables(database), key=len)
    with database.write() as connection:
        connection.execute(text(f"UPDATE {name} SET words = 'bread'"))
    assert order(engine, "keys") == []
    assert engine.verify() == 1
    assert order(engine, "keys") == [seq]


@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET passages = 7"])
def test_miscounted_words_are_reported_and_counted_again(
    database: Database, statement: str
) -> None:
    put(database, "notes", "a.md", "keys")
    engine = engine_of(database)
    before = engine.search("keys", 5, WHOLE)
    with database.write() as connection:
        connection.execute(text(statement.format(max(tables(database), key=len))))
    assert engine.search("keys", 5, WHOLE) != before
    assert engine.verify() == 1
    assert engine.search("keys", 5, WHOLE) == before
    assert engine.verify() == 0


def test_a_row_number_that_comes_again_is_not_taken_for_the_passage_it_was(
    database: Database,
) -> None:
    """As after an older copy of the store was put back, which has no such tables."""
    [seq] = put(database, "notes", "old.md", "beta")
    engine = engine_of(database)
    assert order(engine, "beta") == [seq]
    drop(database, "notes", "old.md")
    with database.write() as connection:
        connection.execute(text(f"ALTER SEQUENCE chunks_seq_seq RESTART WITH {seq}"))
    assert put(database, "notes", "new.md", "gamma") == [seq]
    assert (order(engine, "beta"), order(engine, "gamma")) == ([], [seq])


_PAIRS = (f"{chr(0x20000 + n)}{chr(0x20007 + n)}-{chr(0x20003 + n)}" for n in range(30_000))


@pytest.mark.parametrize(
    "odd",
    ["\u0345 x", "\u0301\u0302", "\ufb2a" * 600, "\u0958" * 400, " ".join(_PAIRS), "a" * 9000],
    ids=["a mark", "marks", "Hebrew that grows", "Nagari that grows", "pairs", "long"],
)
def test_no_text_costs_another_passage_its_words(database: Database, odd: str) -> None:
    [plain] = put(database, "notes", "plain.md", "keys é")
    [own] = put(database, "notes", "odd.md", f"keys {odd}", title=odd)
    engine = engine_of(database)
    assert sorted(order(engine, "keys")) == [plain, own]
    assert order(engine, "e") == [plain]
    assert engine.search(odd, 5, WHOLE) is not None
    assert engine.verify() == 0


def test_no_amount_of_metadata_costs_another_passage_its_words(database: Database) -> None:
    [plain] = put(database, "notes", "plain.md", "keys")
    fields = {f"f{n}": " ".join(f"w{n}x{word:05d}" for word in range(22_000)) for n in range(8)}
    [own] = put(database, "notes", "odd.md", "keys", metadata=fields)
    engine = engine_of(database, fields=", ".join(f"{name}:B" for name in fields))
    assert sorted(order(engine, "keys")) == [plain, own]
    assert order(engine, "w3x00007") == [own]


@pytest.mark.parametrize(
    "wrong",
    [{"config": "123"}, {"config": "a.1"}, {"fields": " ".join(f"f{n}:A" for n in range(21))}],
    ids=["number", "number in a schema", "too many fields"],
)
def test_settings_that_no_server_could_take_are_refused_at_once(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        TsvectorSettings(**wrong)
