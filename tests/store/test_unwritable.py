"""A store that cannot be written to is read; one that cannot be read says why.

A link that leads nowhere in place of SQLite's shared memory keeps anybody from writing, whoever
runs the tests.
"""

import os
import sqlite3
from typing import NamedTuple

import pytest

from builders import make_database, put
from catalog.core.errors import StoreDamagedError, StoreError
from catalog.store import Database
from catalog.store.sqlite_pool import translate_errors


class Usage(NamedTuple):
    free: int


class Shut:
    def __init__(self, link):
        self._link = link
        self.close()

    def close(self):
        self._link.symlink_to("nowhere/at/all")

    def open(self):
        self._link.unlink()


@pytest.fixture
def home(tmp_path):
    """The home of a store of one document that nobody has open."""
    database = make_database(tmp_path)
    put(database, "d", "a.md", "first")
    database.close()
    return tmp_path


@pytest.fixture
def shut(home):
    """The same home; nothing can be written there until ``shut`` is opened."""
    return Shut(home / "catalog.db-shm")


def texts(database):
    with database.read() as connection:
        return list(connection.exec_driver_sql("SELECT text FROM chunks").scalars())


@pytest.mark.usefixtures("shut")
def test_it_is_read_as_it_is_and_refuses_to_be_written(home):
    database = Database.at(home)
    assert texts(database) == ["first"]
    with pytest.raises(StoreError, match="cannot be written to") as raised:
        put(database, "d", "b.md", "second")
    assert str(home / "catalog.db") in str(raised.value)
    assert texts(database) == ["first"]


@pytest.mark.usefixtures("shut")
def test_one_whose_log_holds_more_than_the_file_is_not_read_without_it(home):
    (home / "catalog.db-wal").write_bytes(b"what a writer published last")
    with pytest.raises(StoreError):
        Database.at(home)


def test_what_its_owner_changes_meanwhile_is_seen(home, shut):
    reading = Database.at(home)
    assert texts(reading) == ["first"]
    shut.open()
    owner = Database.at(home)
    put(owner, "d", "a.md", "second")
    owner.close()
    shut.close()
    assert texts(reading) == ["second"]


def test_it_is_written_to_as_soon_as_that_is_possible(home, shut):
    database = Database.at(home)
    assert texts(database) == ["first"]
    shut.open()
    put(database, "d", "a.md", "second")
    assert texts(database) == ["second"]


@pytest.mark.usefixtures("shut")
def test_a_database_named_by_a_uri_is_read_too(home):
    named = Database(f"sqlite:///file:{home}/catalog%2Edb?uri=true")
    assert named.file == home / "catalog.db"
    assert texts(named) == ["first"]


def test_a_folder_in_its_place_is_reported(tmp_path):
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(StoreError, match=r"catalog\.db is a folder"):
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
    assert "free some space on the disk of" in told(file, text)
    assert str(file) in told(file, text)
    assert "free some space" not in told(file, "no such table: x")


def test_a_disk_that_filled_up_while_writing_is_reported(home):
    assert "free some space" in told(home / "catalog.db", "database or disk is full")


def test_a_file_that_may_not_be_read_is_not_said_to_want_writing(home, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, how: how not in (os.R_OK, os.W_OK))
    said = told(home / "catalog.db", "unable to open database file")
    assert said.startswith(f"the store cannot be read: give yourself access to {home}/catalog.db")


def test_a_file_that_may_only_be_read_says_whom_to_ask(home, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, how: how != os.W_OK)
    said = told(home / "catalog.db", "attempt to write a readonly database")
    assert "cannot be written to (attempt to write a readonly database)" in said
    assert f"give yourself access to {home}/catalog.db" in said


def test_damage_is_not_reported_as_missing_rights(home):
    with (
        pytest.raises(StoreDamagedError, match=r"catalog\.db"),
        translate_errors(home / "catalog.db"),
    ):
        raise sqlite3.DatabaseError("database disk image is malformed")
