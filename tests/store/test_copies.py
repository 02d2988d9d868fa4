"""Copying a store from one kind of database into the other: nothing is lost and nothing changes."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL, select, text, update

from builders import NOW, drop, put
from catalog.core.errors import InputError, StoreBusyError, StoreDamagedError, StoreError
from catalog.interfaces.cli import main
from catalog.store import schema
from catalog.store.backup import copy_store
from catalog.store.cards import card_terms, save_cards, search_cards
from catalog.store.database import Database, store_file
from catalog.store.embedding_cache import save
from catalog.store.engine_types import Restriction
from catalog.store.lexical import get_lexical_engine
from catalog.store.schema import chunks, datasets, document_fields, documents
from catalog.store.vectors.exact import ExactEngine
from vector_bench import vector

WORDS = """kettle harbour ledger otter batch rotating keys c++ foo.bar café 鍵の束 straße""".split()  # noqa: SIM905
CHANGED = ("meta", "datasets")  # the state of a dataset is another one afterwards
QUERIES = ("kettle", "rotate the key", "foo.bar café", "straße otter ledger", '"kettle"', "鍵")


def fill(database: Database, seed: int = 3) -> Database:
    """A store with all that there is to copy: texts, fields, vectors, cards, gaps in numbers."""
    luck = random.Random(seed)
    for number in range(25):
        path = f"{number:02}/Note {number}.md"
        passages = [" ".join(luck.choices(WORDS, k=luck.randint(3, 30))) for _ in range(3)]
        keys = [f"{number}-{at}" for at in range(3)]
        vectors = {key: vector(*(luck.random() for _ in range(4))) for key in keys[:2]}
        with database.write() as connection:
            save(connection, vectors, fingerprint="toy/1", side="document", now=NOW)
        metadata = {"tags": ("b", "a", "z\0z"), "year": 2000 + number, "low": -0.0, "draft": True}
        put(
            database,
            "notes",
            path,
            passages,
            title=luck.choice(WORDS),
            metadata=metadata,
            sections=("Intro", luck.choice(WORDS)),
            embed_keys=keys,
        )
    drop(database, "notes", "24/Note 24.md")
    with database.write() as connection:
        ids = connection.scalars(select(documents.c.id)).all()
        save_cards(connection, {number: f"About {WORDS[number % 9]}." for number in ids})
    return database


def rows_of(database: Database) -> dict[str, list[tuple]]:
    """Every row of every table that is copied as it is, in an order of its own."""
    with database.read() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in schema.metadata.sorted_tables
            if table.name not in CHANGED
        }


def answers_of(database: Database, folder: Path) -> list[object]:
    """What the engines answer, to the digit, that cut words alike in every store."""
    whole = Restriction("notes")
    words = get_lexical_engine("bm25", database, "notes", folder / "bm25")
    answers: list[object] = [words.search(query, 10, whole) for query in QUERIES]
    exact = ExactEngine(database, "notes")
    answers.append(exact.search(vector(1, 0.5), 10, whole))
    without = Restriction("notes", without=("rotating keys",), containing=("kettle",))
    answers.append(words.search("otter", 10, without))
    with database.read() as connection:
        terms = card_terms("kettle note 7")
        answers.append(search_cards(connection, terms, documents.c.dataset == "notes", 10))
    for engine in (words, exact):
        engine.close()
    return answers


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    file = store_file(tmp_path / "source")
    opened = fill(Database(URL.create("sqlite", database=str(file))))
    yield opened
    opened.close()


@pytest.fixture
def server(source, on_postgres, tmp_path):
    """An empty store in Postgres."""
    opened = on_postgres.open(tmp_path / "server")
    yield opened
    opened.close()


def test_a_store_is_the_same_in_postgres_and_back_in_a_file(source, server, tmp_path):
    counts = copy_store(source, server)
    file = Database(URL.create("sqlite", database=str(tmp_path / "back.db")))
    copy_store(server, file)
    assert counts["documents"] == 24
    assert counts["embeddings"] == 50
    assert rows_of(source) == rows_of(server) == rows_of(file)
    wanted = answers_of(source, tmp_path / "one")
    assert all(wanted[: len(QUERIES) - 1])
    assert answers_of(server, tmp_path / "two") == wanted
    assert answers_of(file, tmp_path / "three") == wanted
    assert source.meta("store_id") == server.meta("store_id") == file.meta("store_id")
    file.close()


def test_documents_indexed_again_have_the_same_ids_and_answers_in_both(source, server, tmp_path):
    fill(server)
    assert rows_of(server) == rows_of(source)
    assert answers_of(server, tmp_path / "two") == answers_of(source, tmp_path / "one")


def test_numbers_go_on_after_the_highest_that_ever_was(source, server):
    copy_store(source, server)
    numbers = [put(one, "notes", "new.md", "a new text") for one in (source, server)]
    assert numbers[0] == numbers[1]


def test_values_come_in_the_order_they_were_stored_in(source, server):
    copy_store(source, server)
    query = select(document_fields.c.text_value).where(document_fields.c.field == "tags")
    query = query.order_by(document_fields.c.document_id, text("document_fields.rowid"))
    with server.read() as connection:
        assert connection.scalars(query).all()[:3] == ["b", "a", "z\0z"]


def test_a_folder_that_is_not_there_is_named_for_what_it_is(tmp_path):
    folder = tmp_path / "not" / "there"
    with pytest.raises(StoreError, match=rf"there is no folder {folder} for the store"):
        Database(f"sqlite:///{folder}/catalog.db")
    assert not folder.exists()


def test_a_database_with_a_store_in_it_is_left_alone(source, server):
    put(server, "other", "a.md", "what was there")
    with pytest.raises(InputError, match="the database already has"):
        copy_store(source, server)
    with server.read() as connection:
        assert connection.scalars(select(documents.c.path)).all() == ["a.md"]


def test_a_copy_that_is_cut_short_leaves_nothing_and_is_made_by_running_it_again(source, server):
    def cut(table: str, count: int) -> None:
        if table == "chunks":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(source, server, cut)
    with server.read() as connection:
        assert connection.scalars(select(datasets.c.name)).all() == []
    copy_store(source, server)
    assert rows_of(source) == rows_of(server)


def test_a_store_that_is_written_to_meanwhile_is_not_half_copied(source, server):
    def write(table: str, count: int) -> None:
        if table == "chunks":
            put(source, "notes", "late.md", "written while the copy was made")

    with pytest.raises(StoreBusyError, match="changed while it was copied"):
        copy_store(source, server, write)
    with server.read() as connection:
        assert connection.scalars(select(datasets.c.name)).all() == []


def test_rows_that_changed_while_copied_are_noticed(source, server, monkeypatch):
    from catalog.store import backup

    copy = backup._copy_cards

    def copy_and_change(read, write) -> None:
        copy(read, write)
        write.execute(update(chunks).where(chunks.c.seq == 1).values(text="another"))

    monkeypatch.setattr(backup, "_copy_cards", copy_and_change)
    with pytest.raises(StoreDamagedError, match="'notes'"):
        copy_store(source, server)


def test_the_command_copies_a_store_and_says_what_to_set(source, server, capsys):
    address = server.url.render_as_string(hide_password=False)
    home = source.file.parent
    asked = ["catalog", "migrate-store", "--to", address, "--home", str(home)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "at", lambda _home: source)
        patch.setattr(sys, "argv", asked)
        with pytest.raises(SystemExit) as ended:
            main()
    said = capsys.readouterr().out
    assert not ended.value.code
    assert "24 documents, 72 chunks, 50 embeddings" in said
    assert "IDX_DATABASE_URL" in said
    assert rows_of(source) == rows_of(server)
