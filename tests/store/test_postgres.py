"""A store in Postgres: what it has of its own, what its errors say, and what it has in common."""

import subprocess
import sys
import traceback

import pytest
from sqlalchemy import create_engine, func, inspect, select, text

from builders import make_database, put
from catalog.core.errors import CatalogError, ConfigError, NoStoreError, StoreBusyError, StoreError
from catalog.core.settings import Settings
from catalog.library.health import describe_store
from catalog.store import schema
from catalog.store.database import Database, find_store, require_store
from catalog.store.filter_sql import among
from catalog.store.schema import documents, meta
from fakes import open_library
from tables import table


@pytest.fixture
def database(on_postgres, tmp_path):
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def url(on_postgres):
    return on_postgres.new_url()


def test_every_column_and_index_of_the_metadata_is_there(database):
    tables = schema.metadata.tables.values()
    with database.read() as connection:
        indexes = set(connection.scalars(text("SELECT indexname FROM pg_indexes")))
        there = inspect(connection)
        for table in tables:
            found = {column["name"] for column in there.get_columns(table.name)}
            assert found - {"rowid", "words"} == set(table.columns.keys())
    assert {index.name for table in tables for index in table.indexes} <= indexes


def test_a_value_that_postgres_cannot_store_may_be_asked_for(database):
    put(database, "d", "a.md", "one", metadata={"tag": "a\U0010fffeb"})
    tag = schema.document_fields.c.text_value
    with database.read() as connection:
        for values in (["a\U0010fffeb", "a\0b"], ["a\U0010fffeb", "a\0b", *map(str, range(600))]):
            found = select(func.count()).where(among(tag, values))
            assert connection.scalar(found) == 1


@pytest.mark.slow
def test_postgres_folds_case_as_python_does(database):
    every = "".join(chr(one) for one in range(1, 0x1FFFF) if not 0xD800 <= one <= 0xDFFF)
    with database.read() as connection:
        folded = connection.scalar(text("SELECT catalog_casefold(:word)"), {"word": every})
        plain = connection.scalar(text("SELECT catalog_casefold(:word)"), {"word": "ABC é"})
    assert folded == every.casefold()
    assert plain == "abc é"


def test_a_reader_sees_one_state_while_another_writes(database):
    put(database, "d", "a.md", "one")
    count = select(func.count()).select_from(documents)
    with database.read() as reader:
        assert reader.scalar(count) == 1
        put(database, "d", "b.md", "two")
        assert reader.scalar(count) == 1
    with database.read() as reader:
        assert reader.scalar(count) == 2


def test_a_second_writer_gets_the_error_that_the_store_is_busy(database):
    with (
        database.write() as connection,
        pytest.raises(StoreBusyError, match="another process is writing"),
        database.write(wait=False),
    ):
        pytest.fail(f"two writers: {connection}")


@pytest.mark.slow
def test_a_writer_that_waited_sees_what_the_one_before_wrote(database, tmp_path):
    code = (
        "import sys; from sqlalchemy import text; from catalog.store import Database\n"
        "database = Database(sys.argv[1])\n"
        "for _ in range(25):\n"
        "    with database.write() as connection:\n"
        "        n = int(connection.scalar(text(\"SELECT value FROM meta WHERE key = 'n'\")))\n"
        "        connection.execute(text(\"UPDATE meta SET value = :n WHERE key = 'n'\"), "
        "{'n': str(n + 1)})\n"
        "database.close()\n"
    )
    database.set_meta("n", "0")
    address = database.url.render_as_string(hide_password=False)
    running = [subprocess.Popen([sys.executable, "-c", code, address]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    assert database.meta("n") == "50"


@pytest.mark.slow
def test_several_processes_may_make_the_store_at_the_same_moment(url, tmp_path):
    code = "import sys; from catalog.store import Database; Database(sys.argv[1]).close()"
    address = url.render_as_string(hide_password=False)
    running = [subprocess.Popen([sys.executable, "-c", code, address]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    opened = Database(url, tmp_path)
    with opened.read() as connection:
        stores = select(func.count()).select_from(meta).where(meta.c.key == "store_id")
        assert connection.scalar(stores) == 1
    opened.close()


def test_a_store_of_a_newer_release_is_refused(database):
    with database.write() as connection:
        connection.execute(text("UPDATE meta SET value = '9999' WHERE key = 'schema'"))
    with pytest.raises(StoreError, match="9999"):
        Database(database.url, database.file.parent)


@pytest.mark.slow
def test_looking_for_a_store_does_not_create_one(url, tmp_path):
    address = url.render_as_string(hide_password=False)
    settings = Settings(home=tmp_path, database_url=address)
    with pytest.raises(NoStoreError, match="IDX_DATABASE_URL"):
        require_store(settings)
    Database(url, tmp_path).close()
    require_store(settings)


def test_a_store_on_a_server_is_no_file_to_copy(url, tmp_path):
    address = url.render_as_string(hide_password=False)
    with pytest.raises(CatalogError, match="pg_dump"):
        find_store(Settings(home=tmp_path, database_url=address))


@table("change, says")
def test_a_database_that_cannot_be_had_says_why_and_never_the_password(url, tmp_path, change, says):
    wrong = url.set(**({"password": "swordfish"} | change))
    with pytest.raises(StoreError, match=says) as raised:
        Database(wrong, tmp_path)
    causes = [raised.value, raised.value.__cause__]
    assert not any("swordfish" in str(cause) for cause in causes)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text_is_refused(url, tmp_path, encoding):
    made = url.set(database=f"store_{encoding.lower()}")
    engine = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        form = f"ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(text(f"DROP DATABASE IF EXISTS {made.database}"))
        connection.execute(text(f"CREATE DATABASE {made.database} {form}"))
    engine.dispose()
    with pytest.raises(ConfigError, match=f"{encoding}.*--encoding=UTF8"):
        Database(made, tmp_path)


@table("rest, says")
def test_a_wrong_address_is_one_sentence_without_the_password(tmp_path, rest, says):
    with pytest.raises(ConfigError, match=says) as raised:
        Database(f"postgresql://u:swordfish{rest}", tmp_path)
    causes = f"{raised.value} {raised.value.__cause__}"
    assert "swordfish" not in causes
    assert "TAIL" not in causes


def test_a_store_tells_where_it_is_without_the_password(url, tmp_path):
    given = url.set(password="swordfish").render_as_string(hide_password=False)
    with open_library(tmp_path / "home", database_url=given) as library:
        told = describe_store(library)["store"]
    assert told.startswith("postgresql://")
    assert url.database in told
    assert "swordfish" not in told


def test_a_lost_connection_is_an_error_and_the_next_call_connects_again(database, on_postgres):
    def read_after_the_loss():
        with database.read() as connection:
            process = connection.scalar(text("SELECT pg_backend_pid()"))
            on_postgres.run(f"SELECT pg_terminate_backend({process})")
            connection.scalar(text("SELECT 1"))

    with pytest.raises(StoreError, match="cannot be reached"):
        read_after_the_loss()
    assert database.meta("store_id")


def test_a_database_that_is_read_only_says_so(database):
    with database.write() as connection:
        name = connection.scalar(text("SELECT current_database()"))
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    database.close()
    with pytest.raises(StoreError, match="read-only"):
        database.set_meta("a", "b")
    assert database.meta("store_id")


def test_what_the_server_says_of_a_statement_shows_nothing_of_a_document(database):
    for statement in ("SELECT CAST(:value AS INTEGER)", "SELECT CAST(:value AS TSVECTOR)"):
        with pytest.raises(StoreError) as raised, database.read() as connection:
            connection.execute(text(statement), {"value": "SECRET '' salary"})
        assert "SECRET" not in "".join(traceback.format_exception(raised.value))


def test_a_failed_write_leaves_nothing(database):
    def fail_midway():
        with database.write() as connection:
            connection.execute(text("DELETE FROM meta"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway()
    assert database.meta("store_id")


def test_a_dataset_is_indexed_by_one_process_at_a_time_whatever_its_home(
    database, on_postgres, tmp_path
):
    waited: list[str] = []

    def hold(one: Database, name: str):
        return one.hold_dataset(
            name, seconds=0.05, busy="later", on_wait=lambda: waited.append("!")
        )

    elsewhere = Database(database.url, tmp_path / "elsewhere")
    with hold(database, "d"):
        with pytest.raises(StoreBusyError, match="later"), hold(elsewhere, "d"):
            pytest.fail("two at a time")
        with hold(elsewhere, "another"):
            pass
    assert waited == ["!"]
    with hold(elsewhere, "d"):
        pass
    elsewhere.close()
