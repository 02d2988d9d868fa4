"""Why a file cannot be used: the reason, the place and what helps."""

import errno
import os
from pathlib import Path

import pytest

from catalog.core.errors import EngineError
from catalog.core.files import describe_os_error, errno_of, remedy


def failed(code):
    return OSError(code, os.strerror(code))


@pytest.fixture
def others(tmp_path, monkeypatch):
    """A folder that is not ours: it can be entered by nobody but its owner."""
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o700)
    really = os.access
    monkeypatch.setattr(os, "access", lambda path, how: Path(path) != closed and really(path, how))
    return closed


def test_the_folder_that_keeps_us_out_is_named_with_its_owner(others, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: others.stat().st_uid + 1)
    told = describe_os_error(others / "locks" / "d.lock", failed(errno.EACCES))
    assert told == (
        f"{others}/locks/d.lock: Permission denied; get access to {others} "
        f"from its owner, {others.owner()} (its mode is 700)"
    )


def test_owners_can_restore_their_own_access(others):
    told = remedy(errno.EPERM, others / "d.lock")
    assert told == f"give yourself access to {others} (its mode is 700)"


def test_an_owner_without_a_name_is_told_by_number(others, monkeypatch):
    def nameless(path):
        raise KeyError(path)

    monkeypatch.setattr(os, "getuid", lambda: others.stat().st_uid + 1)
    monkeypatch.setattr(Path, "owner", nameless)
    assert f"from its owner, user {others.stat().st_uid} (" in remedy(errno.EACCES, others / "x")


def test_for_a_file_that_is_not_there_yet_the_folder_is_named(tmp_path):
    assert remedy(errno.EACCES, tmp_path / "new" / "file").startswith(
        f"give yourself access to {tmp_path} ("
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "free some space on the disk of "),
        (errno.EDQUOT, "free some space on the disk of "),
        (errno.EROFS, " is on a read-only file system: mount it for writing"),
        (errno.EMFILE, "raise the limit on open files (ulimit -n)"),
    ],
)
def test_room_and_handles_have_a_remedy_of_their_own(tmp_path, code, words):
    assert words in remedy(code, tmp_path / "file")


def test_for_other_reasons_the_reason_stands_alone(tmp_path):
    file = tmp_path / "serve.json"
    assert describe_os_error(file, failed(errno.EISDIR)) == f"{file}: Is a directory"
    assert describe_os_error(file, OSError("odd")) == f"{file}: odd"
    assert remedy(None, file) == ""


def test_the_cause_is_found_behind_an_error_and_in_a_librarys_words():
    error = EngineError("cannot write")
    error.__cause__ = failed(errno.ENOSPC)
    assert errno_of(error) == errno.ENOSPC
    assert errno_of(EngineError("it says: Permission denied (os error 13)")) == errno.EACCES
    assert errno_of(EngineError("the shard is damaged")) is None
