"""Keyword search in several languages, alone and in one dataset."""

import tomllib
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path

import pytest

from builders import make_database, put
from catalog.store.database import Database
from catalog.store.lexical.analysis import analyse_passage, query_terms, raw_words
from catalog.store.lexical.bm25 import Bm25Engine, WordIndex
from catalog.store.lexical.languages import detect_language
from catalog.store.restriction import Restriction
from passages_by_language import BY_LANGUAGE

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

WHOLE = Restriction("notes")


def engine_at(database: Database, folder: Path) -> Bm25Engine:
    return Bm25Engine(WordIndex(database, "notes", folder))


def ranked(engine: Bm25Engine, query: str) -> list[int]:
    return [hit.seq for hit in engine.search(query, 10, WHOLE)]


def mean_reciprocal_rank(engine: Bm25Engine, queries: dict[str, int]) -> float:
    total = 0.0
    for query, wanted in queries.items():
        rows = ranked(engine, query)
        total += 1 / (rows.index(wanted) + 1) if wanted in rows else 0.0
    return total / len(queries)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def put_passages(database: Database, languages: Sequence[str]) -> dict[str, dict[str, int]]:
    """Publish the passages; return each language's queries with the row each is to find."""
    wanted: dict[str, dict[str, int]] = {}
    for language in languages:
        for number, (passage, queries) in enumerate(BY_LANGUAGE[language].items()):
            [seq] = put(database, "notes", f"{language}-{number}.md", passage)
            wanted.setdefault(language, {}).update(dict.fromkeys(queries, seq))
    return wanted


@pytest.mark.parametrize("language", BY_LANGUAGE)
def test_words_are_found_in_any_form_their_language_gives_them(
    language: str, database: Database, folder: Path
) -> None:
    # With English stems for all of them: German .79, French 1, Spanish .92, Russian .36,
    # Japanese .54, English 1.
    queries = put_passages(database, [language])[language]
    assert mean_reciprocal_rank(engine_at(database, folder), queries) >= 0.97


@pytest.mark.slow
def test_a_dataset_of_many_languages_answers_in_each(database: Database, folder: Path) -> None:
    wanted = put_passages(database, list(BY_LANGUAGE))
    engine = engine_at(database, folder)
    found = {language: mean_reciprocal_rank(engine, wanted[language]) for language in wanted}
    assert min(found.values()) >= 0.9, found
    assert dict.fromkeys(BY_LANGUAGE, 6) == engine.languages()


def test_a_passage_too_short_to_tell_is_in_its_documents_language(
    database: Database, folder: Path
) -> None:
    body = "Die Häuser und die Gärten an dem Fluss sind nicht von der Stadt gekauft worden."
    [_, short] = put(database, "notes", "a.md", [body, "Schiffskatzen."])
    [alone] = put(database, "notes", "b.md", "Schiffskatzen.")
    engine = engine_at(database, folder)
    assert ranked(engine, "Schiffskatze") == [short]
    assert set(ranked(engine, "Schiffskatzen")) == {short, alone}
    assert engine.languages() == {"": 1, "german": 2}


@pytest.mark.slow
def test_an_index_that_grew_by_updates_is_the_one_built_afresh(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    grown = engine_at(database, folder)
    queries: list[str] = []
    for language in BY_LANGUAGE:
        queries += put_passages(database, [language])[language]
        grown.search(queries[-1], 1, WHOLE)
    fresh = engine_at(database, tmp_path / "other")
    for query in queries:
        assert grown.search(query, 10, WHOLE) == fresh.search(query, 10, WHOLE)
    assert grown.languages() == fresh.languages()


def test_the_forms_of_a_word_in_several_languages_are_one_term(
    database: Database, folder: Path
) -> None:
    # "running" is a token of the German passage, "run" one of the English ones. Each chunk has two
    # tokens, so the norm is 1.2; two chunks of three hold the term:
    #   score = ln(1 + 1.5 / 2.5) * 1 / (1 + 1.2)
    german = query_terms("running", ["english", "german"])
    assert german == [("run", "running")]
    [seq] = put(database, "notes", "a.md", "run shoe")
    [other] = put(database, "notes", "b.md", "runs shoes")
    put(database, "notes", "c.md", "salt oil")
    engine = engine_at(database, folder)
    alone = engine.search("run", 5, WHOLE)
    put(database, "notes", "d.md", "Der Schuh ist nicht von dem Mann und der Frau.")
    assert [hit.seq for hit in engine.search("running", 5, WHOLE)] == [seq, other]
    assert engine.languages() == {"": 3, "german": 1}
    assert [hit.seq for hit in alone] == [seq, other]
    assert alone[0].score == pytest.approx(log(1 + 1.5 / 2.5) / 2.2)


def test_stop_words_of_the_querys_language_are_not_looked_for_in_another(
    database: Database, folder: Path
) -> None:
    put(database, "notes", "en.md", "They die if the rain does not come before they were planted.")
    [cat] = put(database, "notes", "de.md", "Die Katze ist auf dem Dach und nicht in dem Haus.")
    engine = engine_at(database, folder)
    assert ranked(engine, "die Katze auf dem Dach") == [cat]


@pytest.mark.parametrize(("text", "language"), TABLES["the language of a text"])
def test_the_language_is_detected_by_letters_and_function_words(text: str, language: str) -> None:
    assert detect_language(text, raw_words(text)) == (language or None)


@pytest.mark.parametrize(
    ("language", "one", "other"), TABLES["case width and accents are of no account"]
)
def test_case_width_and_accents_are_of_no_account(language: str, one: str, other: str) -> None:
    _, tokens = analyse_passage(one, lambda: language)
    terms = query_terms(other, [language])
    assert any(token in tokens for term in terms for token in term), (tokens, terms)


def test_an_index_tells_the_languages_of_its_passages(database: Database, folder: Path) -> None:
    put_passages(database, ["german", "russian"])
    assert engine_at(database, folder).languages() == {"german": 6, "russian": 6}
