"""Keyword search in several languages, alone and in one dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from builders import make_database, put
from catalog.store.database import Database
from catalog.store.engine_types import Restriction
from catalog.store.lexical.bm25 import Bm25Engine
from passages_by_language import BY_LANGUAGE

WHOLE = Restriction("notes")


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
    assert mean_reciprocal_rank(Bm25Engine(database, "notes", folder), queries) >= 0.97


def test_a_dataset_of_many_languages_answers_in_each(database: Database, folder: Path) -> None:
    wanted = put_passages(database, list(BY_LANGUAGE))
    engine = Bm25Engine(database, "notes", folder)
    found = {language: mean_reciprocal_rank(engine, wanted[language]) for language in wanted}
    assert min(found.values()) >= 0.9, found
    assert dict.fromkeys(BY_LANGUAGE, 6) == engine.languages()
