"""Fixtures for every test, and an environment that settings of the machine cannot reach."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from catalog.store import database, migrate

for variable in [name for name in os.environ if name.startswith("IDX_") and "TEST" not in name]:
    del os.environ[variable]
os.environ["HF_HUB_OFFLINE"] = "1"

DATA = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(autouse=True, scope="session")
def _one_first_schema():
    """Run the migrations on the first empty store of a process; the next ones copy its pages."""
    upgrade = migrate._upgrade
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as made:

        def upgrade_or_copy(engine: Engine) -> None:
            with closing(engine.raw_connection()) as pooled:
                is_empty = not inspect(engine).get_table_names()
                if is_empty and made.execute("SELECT 1 FROM sqlite_master").fetchone():
                    made.backup(pooled.driver_connection)
                    return
                upgrade(engine)
                if is_empty:
                    pooled.driver_connection.backup(made)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(migrate, "_upgrade", upgrade_or_copy)
            yield


@pytest.fixture(autouse=True, scope="session")
def _one_compilation():
    """Let the stores of a process share their compiled statements; a command has one store."""
    compiled, create = LRUCache(5_000), database.create_engine

    def create_sharing(*arguments, **options) -> Engine:
        engine = create(*arguments, **options)
        engine._compiled_cache = compiled  # its keys begin with the engine's dialect
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", create_sharing)
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda dialect: hash(type(dialect)))
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, two: type(one) is type(two))
        yield


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of three small documents on different matters."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "keys.md").write_text(
        "---\ntags: [ops, security]\n---\n# Keys\n\n## Rotating\n\n"
        "Rotate the API keys every ninety days with the keys command.\n\n"
        "## Revoking\n\nA leaked key is revoked in the admin console at once.\n"
    )
    (folder / "bread.txt").write_text(
        "Mix flour, water and yeast. Bake the bread at 230 degrees.\n"
    )
    (folder / "guides").mkdir()
    (folder / "guides" / "backup.md").write_text(
        "# Backups\n\nBackups run at midnight and are kept for thirty days.\n"
    )
    return folder
