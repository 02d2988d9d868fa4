"""The schema of a store: made at once or not at all, and never guessed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import create_engine, inspect

from catalog.core.errors import StoreVersionError
from catalog.store import Database
from catalog.store.schema import metadata


def test_a_new_store_has_every_table_column_and_index(tmp_path):
    Database.at(tmp_path).close()
    engine = create_engine(f"sqlite:///{tmp_path / 'catalog.db'}")
    there = inspect(engine)
    for name, table in metadata.tables.items():
        assert {one["name"] for one in there.get_columns(name)} == set(table.columns.keys())
        indexes = {one["name"] for one in there.get_indexes(name)}
        assert indexes >= {index.name for index in table.indexes if index.name}
    assert {"chunks_fts", "document_cards_fts"} <= set(there.get_table_names())
    engine.dispose()


@pytest.mark.parametrize("schema", ["0001", "0017"])
def test_a_store_of_before_the_first_release_says_how_to_move_it(tmp_path, schema):
    Database.at(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (schema,))
    before = (tmp_path / "catalog.db").read_bytes()
    with pytest.raises(StoreVersionError, match="'catalog export' of that version"):
        Database.at(tmp_path)
    assert (tmp_path / "catalog.db").read_bytes() == before
