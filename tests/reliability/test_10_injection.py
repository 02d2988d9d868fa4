"""No text of a request or document acts as SQL, a LIKE pattern, FTS5 or engine syntax: D4.10."""

import os
import random

import pytest

from catalog.core.errors import CatalogError
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library, write
from tables import table

SEED = int(os.environ.get("IDX_TEST_SEED", "0")) or 10
PIECES = (
    *"';%_\\*()[]{}$.a",
    *('"', "--", "rose"),
    *("NOT ", " OR ", " AND ", "NEAR(", "title:", "^", "' OR 1=1 --", "DROP TABLE chunks;", "\x00"),
    *("$.a", "a[0].b", "?", ":p", "%s", "{0}", "\n", "\u202e", "é", "ß", "SS", "0", "1e9", "null"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("injection")
    write(
        folder / "notes",
        plain_dot_md="---\nowner: rose\n---\nA rose is red.\n",
        percent_dot_md="---\nowner: 100%_sure\n---\nNothing of note here.\n",
        quote_dot_md='---\nowner: "it\'s; DROP TABLE chunks;--"\n---\nAnother text.\n',
    )
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        yield engine


def paths(engine, **arguments):
    answer = engine.ask("browse", {"dataset": "notes", **arguments})
    return {entry["path"] for entry in answer["entries"]}


@table("value, found")
def test_a_value_is_looked_for_letter_by_letter(store, value, found):
    held = [{"owner": {"text_match_insensitive": value}}]
    assert paths(store, filters=held[0]) == set(found)


@pytest.mark.slow
def test_whatever_is_typed_narrows_or_is_refused_and_changes_nothing(store):
    draw = random.Random(SEED)  # for texts, not for secrets
    before = store.ask("status", {})["datasets"]
    known = {"plain.md", "percent.md", "quote.md"}
    for _ in range(60):
        text = "".join(draw.choices(PIECES, k=draw.randint(1, 4)))
        calls = [
            ("search", {"query": text, "mode": "lexical"}),
            ("search", {"query": "rose", "mode": "lexical", "filters": {"owner": text}}),
            ("search", {"query": "rose", "mode": "lexical", "filters": {text: "rose"}}),
            ("search", {"query": "rose", "mode": "lexical", "docs": [text]}),
            ("browse", {"query": text, "name": text, "tags": [text]}),
            ("browse", {"file_type": text}),
            ("get", {"reference": text}),
            ("multi_get", {"patterns": [text]}),
        ]
        for verb, arguments in calls:
            try:
                answer = store.ask(verb, {"dataset": "notes", **arguments})
            except CatalogError:
                continue
            except Exception as error:
                raise AssertionError(f"seed {SEED}: {verb} {arguments!r}") from error
            if "owner" in (arguments.get("filters") or {}):
                owners = {r["path"] for r in answer["results"]}
                assert owners <= ({"plain.md"} if text == "rose" else set()), f"{SEED}: {text!r}"
    assert store.ask("status", {})["datasets"] == before
    assert paths(store) == known
