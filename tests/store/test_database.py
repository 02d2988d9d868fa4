"""Opening the store: many at once, damaged, from the future, read-only."""

import os
import sqlite3
import threading

import pytest
from sqlalchemy import create_engine, inspect

from builders import make_database, put
from catalog.core.errors import ConfigError, StoreBusyError, StoreError
from catalog.store import Database
from catalog.store.schema import metadata
from catalog.store.statistics import find_damage


def test_a_snapshot_holds_one_state_for_all_reads_of_its_thread(tmp_path):
    database = make_database(tmp_path)
    put(database, "d", "a.md", "first")

    def texts() -> list[str]:
        with database.read() as connection:
            return list(connection.exec_driver_sql("SELECT text FROM chunks").scalars())

    with database.snapshot():
        put(database, "d", "a.md", "second")
        with database.snapshot():
            assert texts() == ["first"]
        assert texts() == ["first"]
    assert texts() == ["second"]


def test_a_failing_transaction_leaves_nothing_behind(tmp_path):
    database = make_database(tmp_path)
    put(database, "d", "a.md", "kept")

    def fail_in_the_middle() -> None:
        with database.write() as connection:
            connection.exec_driver_sql("DELETE FROM documents")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT text FROM chunks").scalar() == "kept"


def test_a_writer_that_will_not_wait_is_told_the_store_is_busy(tmp_path):
    database = make_database(tmp_path)
    with (
        database.write(),
        pytest.raises(StoreBusyError, match="try again"),
        Database.at(tmp_path).write(wait=False),
    ):
        pass


def test_deleting_a_document_leaves_no_row_of_it(tmp_path):
    database = make_database(tmp_path)
    put(database, "d", "a.md", ["one", "two"], sections=["H"], embed_keys=["k1", "k2"])
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM documents")
    with database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        for table in ("chunks", "revisions", "document_fields", "chunk_sections", "chunk_windows"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0
        assert find_damage(connection) is None


@pytest.mark.slow
def test_a_database_with_flipped_bytes_is_found_out(tmp_path):
    database = make_database(tmp_path)
    for number in range(200):
        put(database, "d", f"{number}.md", "some words to fill pages " * 20)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    file = tmp_path / "catalog.db"
    content = bytearray(file.read_bytes())
    for offset in range(4096 * 20, len(content), 4096):
        content[offset : offset + 64] = os.urandom(64)
    file.write_bytes(content)
    try:
        with Database.at(tmp_path).read() as connection:
            assert find_damage(connection) is not None
    except StoreError:
        return


def test_a_store_whose_file_is_removed_while_open_is_not_created_again(tmp_path):
    database = make_database(tmp_path)
    put(database, "d", "a.md", "first")
    for work in (database.read, database.write):
        database.close()  # as if another thread needed a connection
        for file in tmp_path.rglob("catalog.db*"):
            file.unlink()
        with pytest.raises(StoreError, match="removed"), work():
            pass
        assert not list(tmp_path.rglob("catalog.db"))


def test_a_home_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match="home"):
        Database.at(tmp_path / "home")


def test_another_kind_of_database_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"mysql.*postgresql://"):
        Database("mysql://localhost/x")


def test_a_store_waits_for_a_process_that_writes_to_it_while_its_log_is_made(tmp_path):
    """SQLite gives up at once there, whatever its timeout."""
    file = tmp_path / "catalog.db"
    writer = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    writer.execute("CREATE TABLE one (x)")
    writer.execute("BEGIN IMMEDIATE")
    leaving = threading.Timer(0.3, lambda: writer.execute("COMMIT"))
    leaving.start()
    database = Database.at(tmp_path)
    with database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    leaving.join()
    database.close()
    writer.close()


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
