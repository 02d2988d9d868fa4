"""A store of an older release, brought up to date with all it holds."""

from __future__ import annotations

from sqlalchemy import create_engine

import catalog.store
from catalog.core.models import ChunkSpan, ParsedDocument
from catalog.store import Database
from catalog.store.documents import NewChunk, NewRevision, ensure_dataset, publish
from catalog.store.passages import load_chunks


def test_chunks_of_an_older_store_are_kept_and_know_nothing_of_their_inside(tmp_path):
    from alembic import command
    from alembic.config import Config

    document = ParsedDocument(path="a.md", text="Rotate the keys.", title="A", file_type="md")
    chunk = NewChunk("c" * 40, ChunkSpan(0, 16, tokens=4, page_breaks=(7,)), ())
    database = Database.at(tmp_path)
    with database.write() as connection:
        ensure_dataset(connection, "notes", 0.0)
        publish(connection, NewRevision("notes", "a.md", document, "f" * 64, (chunk,)), 0.0)
        (before,) = load_chunks(connection, "notes", [1]).values()
    database.close()
    assert before.page_breaks == (7,)

    config = Config()
    config.set_main_option("script_location", f"{catalog.store.__path__[0]}/migrations")
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{tmp_path / 'catalog.db'}")
    with engine.begin() as connection:  # the schema as release 0003 had it
        for column in ("tokens", "cues", "page_breaks"):
            connection.exec_driver_sql(f"ALTER TABLE chunks DROP COLUMN {column}")
        config.attributes["connection"] = connection
        command.stamp(config, "0003")
    engine.dispose()

    upgraded = Database.at(tmp_path)
    with upgraded.read() as connection:
        (chunk,) = load_chunks(connection, "notes", [1]).values()
    upgraded.close()
    assert (chunk.text, chunk.cues, chunk.page_breaks) == ("Rotate the keys.", (), ())
