"""Files and folders that are their owner's alone."""

import os
import stat
import subprocess

import pytest

from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from fakes import open_library

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_a_new_home_is_its_owners_alone_whatever_the_umask(tmp_path, notes):
    home = tmp_path / "above" / "home"
    with open_library(home) as library:
        Indexer(library).build(notes, "notes")
        files = [home / f"catalog.db{ending}" for ending in ("", "-wal", "-shm")]
        files.append(home / "locks" / "notes.lock")
        assert {mode(file) for file in files} == {0o600}
    assert {mode(folder) for folder in (home, home / "indexes", home / "locks")} == {0o700}


def test_doctor_reports_a_store_that_other_users_may_read_and_the_fix(tmp_path, notes):
    home = tmp_path / "the home"
    with open_library(home) as library:
        Indexer(library).build(notes, "notes")
        (home / "catalog.db").chmod(0o644)
        home.chmod(0o755)
        [check] = [check for check in diagnose(library) if check.name == "permissions"]
        assert not check.ok
        subprocess.run(["sh", "-c", check.fix], check=True)
        [check] = [check for check in diagnose(library) if check.name == "permissions"]
        assert (check.ok, check.fix) == (True, "")


def test_a_folder_open_to_other_users_is_not_a_defect_while_its_files_are_closed(tmp_path, notes):
    home = tmp_path / "home"
    with open_library(home) as library:
        Indexer(library).build(notes, "notes")
        home.chmod(0o755)
        [check] = [check for check in diagnose(library) if check.name == "permissions"]
        assert (check.ok, check.fix) == (True, "")
        assert f"'chmod 700 {home}'" in check.detail
        assert [one.name for one in diagnose(library) if one.ok and one.fix] == []
