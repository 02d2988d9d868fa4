"""What the checks of a store find, and the fix they name."""

import errno
import os

import pytest
from filelock import FileLock

from catalog.core.errors import EngineBlockedError, EngineError
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.database import POINTS_LOCK
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine
from fakes import open_qdrant_library, write


@pytest.fixture
def library(tmp_path):
    write(tmp_path / "docs", a_dot_md="# Bread\n\nFlour, water and yeast.\n")
    with open_qdrant_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "docs", "d")
        yield library


def failing(monkeypatch, engine, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(engine, "refresh", fail)


def found(library, name):
    return next(check for check in diagnose(library) if check.name == name)


def caused(code):
    error = EngineError("cannot write the index")
    error.__cause__ = OSError(code, os.strerror(code))
    return error


def test_a_sound_store_needs_nothing(library):
    assert [(check.ok, check.fix) for check in diagnose(library)] == [(True, "")] * 12


def test_for_want_of_room_or_rights_the_fix_is_not_to_try_again(library, monkeypatch):
    failing(monkeypatch, Bm25Engine, caused(errno.ENOSPC))
    told = EngineError("the vector index cannot open: Permission denied (os error 13)")
    failing(monkeypatch, QdrantEdgeEngine, told)
    place = library.indexes.folder("d")
    assert found(library, "d: lexical index").fix == (
        f"free some space on the disk of {place / 'bm25'}"
    )
    fix = found(library, "d: vector index").fix
    assert fix == f"let this user read and write {place / 'qdrant'}"


def test_a_blocked_index_is_mended_before_it_is_updated(library, monkeypatch):
    failing(monkeypatch, QdrantEdgeEngine, EngineBlockedError("the disk has 0 MB left: make room"))
    fix = found(library, "d: vector index").fix
    assert fix == "solve this first, then catalog index update --dataset d"


def test_an_index_that_a_server_holds_is_no_defect(library):
    SearchServiceV2(library).search("bread")
    home = library.settings.home
    library.close()
    [lock] = (home / "indexes").rglob(POINTS_LOCK)
    with FileLock(lock), open_qdrant_library(home) as other:
        check = found(other, "d: vector index")
    assert (check.ok, check.fix) == (True, "")
    assert check.detail.startswith("not checked: another process")


def test_damage_is_mended_by_an_update(library, monkeypatch):
    failing(monkeypatch, Bm25Engine, caused(errno.EIO))
    assert found(library, "d: lexical index").fix == "catalog index update --dataset d"
