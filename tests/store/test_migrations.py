"""The schema of a store: what a new one has."""

from __future__ import annotations

from sqlalchemy import create_engine, inspect

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
