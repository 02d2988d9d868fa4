"""A store that cannot be opened or written to says why, and what to do."""

import sqlite3
from typing import NamedTuple

import pytest

from builders import make_database, put
from catalog.core.errors import StoreDamagedError, StoreError
from catalog.store import Database
from catalog.store.database import translate_errors


class Usage(NamedTuple):
    free: int


@pytest.fixture
def home(tmp_path):
    """The home of a store of one document that nobody has open."""
    database = make_database(tmp_path)
    put(database, "d", "a.md", "first")
    database.close()
    return tmp_path


def test_a_store_beside_which_nothing_can_be_written_says_what_rights_it_needs(home):
    """A link that leads nowhere in place of SQLite's shared memory keeps even root from writing."""
    (home / "catalog.db-shm").symlink_to("nowhere/at/all")
    with pytest.raises(StoreError, match="let this user read and write") as raised:
        Database.at(home)
    assert str(home / "catalog.db") in str(raised.value)
    (home / "catalog.db-shm").unlink()
    put(Database.at(home), "d", "a.md", "second")


def test_a_folder_in_its_place_is_reported(tmp_path):
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(StoreError, match=r"catalog\.db"):
        Database.at(tmp_path)


def told(file, text, kind=sqlite3.OperationalError):
    with pytest.raises(StoreError) as raised, translate_errors(file):
        raise kind(text)
    return str(raised.value)


@pytest.mark.parametrize("text", ["disk I/O error", "unable to open database file"])
def test_a_full_disk_has_its_own_error(home, monkeypatch, text):
    file = home / "catalog.db"
    assert "free some space" not in told(file, text)
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(free=16_384))
    assert "free some space on its disk" in told(file, text)
    assert str(file) in told(file, text)
    assert "free some space" not in told(file, "no such table: x")


def test_a_disk_that_filled_up_while_writing_is_reported(home):
    assert "free some space" in told(home / "catalog.db", "database or disk is full")


def test_damage_is_not_reported_as_missing_rights(home):
    with (
        pytest.raises(StoreDamagedError, match=r"catalog\.db"),
        translate_errors(home / "catalog.db"),
    ):
        raise sqlite3.DatabaseError("database disk image is malformed")
