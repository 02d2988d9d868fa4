"""Fixtures for every test, and an environment that settings of the machine cannot reach."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import hypothesis
import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

import postgres
import stores
from catalog.store import Database
from catalog.store import database as store_database
from catalog.store import postgres as store_postgres
from small_documents import write_notes

gc.disable()  # looking through what collecting makes costs a quarter of it

for variable in [name for name in os.environ if name.startswith("IDX_") and "TEST" not in name]:
    del os.environ[variable]
os.environ["HF_HUB_OFFLINE"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children inherit what we do

hypothesis.settings.register_profile("everyday", max_examples=40)  # `make chaos` asks more
hypothesis.settings.load_profile("everyday")

_MEMORY, _ROOM = Path("/dev/shm"), 6 << 30
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and shutil.disk_usage(_MEMORY).free > _ROOM
):  # most of the tests' time was waiting for a disk
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

DATA = Path(__file__).parents[1].parent / "shared" / "data"
_OF_FILE = Database.__dict__["at"]


@pytest.fixture(autouse=True, scope="session")
def _one_first_schema():
    """Compile the schema for the first store of a process; the next ones repeat its statements."""
    create, made = store_database.create_schema, []
    of_it = (
        "SELECT sql FROM sqlite_master WHERE sql > '' AND "
        "(type <> 'table' OR name NOT GLOB 'sqlite_*' AND name NOT GLOB '*_fts_*')"
    )

    def create_or_repeat(connection: Connection) -> None:
        is_of_file = connection.dialect.name == "sqlite"
        is_new = is_of_file and not connection.exec_driver_sql(of_it).first()
        for statement in made if is_new else ():
            connection.exec_driver_sql(statement)
        if not (is_new and made):
            create(connection)
            made.extend(connection.exec_driver_sql(of_it).scalars() if is_new else ())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_database, "create_schema", create_or_repeat)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_compilation():
    """Let the stores of a process share their compiled statements; a command has one store."""
    compiled, create = LRUCache(10_000), store_database.create_engine

    def create_sharing(*arguments, **options) -> Engine:
        engine = create(*arguments, **options)
        engine._compiled_cache = compiled  # its keys begin with the engine's dialect
        return engine

    with pytest.MonkeyPatch.context() as patch:
        for pool in (store_database, store_postgres):
            patch.setattr(pool, "create_engine", create_sharing)
        for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
            patch.setattr(dialect, "__hash__", lambda dialect: hash(type(dialect)))
            patch.setattr(dialect, "__eq__", lambda one, two: type(one) is type(two))
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_model_session():
    """Load each weights file once in a process; every opened library would load it again."""
    import onnxruntime

    make, made = onnxruntime.InferenceSession, {}

    def make_or_share(path, *arguments, **options):
        if not isinstance(path, str | Path):
            return make(path, *arguments, **options)
        status = Path(path).stat()  # a test may damage or replace the file
        settings = arguments[0] if arguments else options.get("sess_options")
        threads = getattr(settings, "intra_op_num_threads", 0)
        key = (str(path), status.st_mtime_ns, status.st_size, threads, str(options["providers"]))
        if key not in made:
            made[key] = make(path, *arguments, **options)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "InferenceSession", make_or_share)
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked ``both_stores`` on SQLite and on Postgres.

    Other tests that share a store with those run on SQLite.
    """
    if metafunc.definition.get_closest_marker("both_stores"):
        metafunc.fixturenames.insert(0, "store_kind")
        of_file = metafunc.definition.get_closest_marker("of_sqlite")
        kinds = ["sqlite"] if of_file else ["sqlite", "postgres"]
        metafunc.parametrize("store_kind", kinds, indirect=True, scope="module")
    elif "store_kind" in metafunc.fixturenames:
        metafunc.parametrize("store_kind", ["sqlite"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which database every home's store is in; a wider fixture that opens one asks for this."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    with postgres.in_place_of_files():
        yield "postgres"


@pytest.fixture
def on_postgres() -> Iterator[postgres.Stores]:
    """Have every home's store be in Postgres."""
    with postgres.in_place_of_files() as on_server:
        yield on_server


@pytest.fixture(autouse=True)
def _removed_stores(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if request.node.get_closest_marker("both_stores") is None:
        # Between two tests on Postgres the server is still in place of files.
        monkeypatch.setattr(Database, "at", _OF_FILE)
        yield
    elif request.getfixturevalue("store_kind") == "sqlite":
        yield
    else:
        with postgres.removed_after(postgres.stores()):
            yield


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    stores.close()
    postgres.stop()


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders, not made yet: to make one for each test costs more than many a test."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _homes: Iterator[Path]
) -> None:
    has_folder = "tmp_path" in request.fixturenames
    folder = request.getfixturevalue("tmp_path") if has_folder else next(_homes)
    monkeypatch.setenv("IDX_HOME", str(folder / "home"))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of three small documents on different matters."""
    return write_notes(tmp_path / "notes")


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs ``catalog`` with arguments: exit code, standard output, standard error."""

    from catalog.interfaces.cli import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["catalog", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return exit_.value.code or 0, out, err

    return run
