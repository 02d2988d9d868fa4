"""``serve.json``: written whole, for its owner only, gone at the end."""

import json
import os
import stat
from contextlib import ExitStack
from dataclasses import replace

import pytest

from catalog.core.errors import ConfigError, StoreError
from catalog.interfaces.server.announcement import FILE, Announcement, announce, read_announcement

SAID = Announcement(
    pid=4711, host="127.0.0.1", port=8180, secret="s" * 64, key="k" * 64, version="0.1.0"
)
OTHER = replace(SAID, pid=4712, secret="t" * 64)


def test_an_announcement_can_be_read_until_its_server_ends(tmp_path):
    assert read_announcement(tmp_path) is None
    with announce(tmp_path) as publish:
        assert read_announcement(tmp_path) is None
        publish(SAID)
        assert read_announcement(tmp_path) == SAID
    assert read_announcement(tmp_path) is None
    assert not list(tmp_path.glob(f"{FILE}*"))


def test_only_the_owner_can_read_it_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        with announce(tmp_path) as publish:
            publish(SAID)
            assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_the_secret_is_not_shown():
    assert "sss" not in repr(SAID)


def test_a_second_server_is_refused_and_told_which_one_is_there(tmp_path):
    with announce(tmp_path) as publish:
        with pytest.raises(ConfigError, match="another process serves"), announce(tmp_path):
            pass
        publish(SAID)
        with pytest.raises(ConfigError, match="process 4711 on port 8180"), announce(tmp_path):
            pass
        assert read_announcement(tmp_path) == SAID
    with announce(tmp_path):
        pass


def test_remains_of_a_killed_server_are_replaced(tmp_path):
    for leftover in (FILE, f"{FILE}.new"):
        (tmp_path / leftover).write_text("left by a server that was killed")
    with announce(tmp_path) as publish:
        publish(SAID)
        assert read_announcement(tmp_path) == SAID


def test_the_file_of_a_server_that_followed_in_a_home_put_back_stays(tmp_path):
    home = tmp_path / "home"
    with ExitStack() as following:
        with announce(home) as publish:
            publish(SAID)
            home.rename(tmp_path / "deleted")
            following.enter_context(announce(home))(OTHER)
        assert read_announcement(home) == OTHER
    assert read_announcement(home) is None


def test_a_failure_to_write_the_file_is_reported(tmp_path):
    file = tmp_path / FILE
    file.mkdir()
    with pytest.raises(ConfigError) as raised, announce(tmp_path):
        pass
    assert str(raised.value) == f"cannot announce the server in {file}: Is a directory"
    file.rmdir()
    with announce(tmp_path) as publish:
        (tmp_path / f"{FILE}.new").mkdir()
        with pytest.raises(ConfigError, match="announce"):
            publish(SAID)


def test_a_lock_that_cannot_be_opened_is_reported(tmp_path):
    (tmp_path / "locks" / "serve.lock").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot open the lock"), announce(tmp_path):
        pass


def test_the_file_goes_when_the_server_fails(tmp_path):
    def fail():
        with announce(tmp_path) as publish:
            publish(SAID)
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read_announcement(tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [{"port": "8180"}, {"pid": None}, {"secret": 1}, {"port": True}, {"key": ["k"]}],
)
def test_a_file_that_makes_no_sense_is_ignored(tmp_path, change):
    whole = {name: getattr(SAID, name) for name in Announcement.__slots__}
    file = tmp_path / FILE
    file.write_text(json.dumps(whole))
    assert read_announcement(tmp_path) == SAID
    file.write_text(json.dumps(whole | change))
    assert read_announcement(tmp_path) is None
    for text in ("", "{", "[]", "null", json.dumps({"pid": 1}), "[" * 2000):
        file.write_text(text)
        assert read_announcement(tmp_path) is None
    file.write_bytes(b"\xff\xfe")
    assert read_announcement(tmp_path) is None


def test_an_announcement_of_another_user_is_ignored(tmp_path, monkeypatch):
    with announce(tmp_path) as publish:
        publish(SAID)
        owner = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
        assert read_announcement(tmp_path) is None


def test_an_announcement_may_have_more_fields_in_a_later_release(tmp_path):
    whole = {name: getattr(SAID, name) for name in Announcement.__slots__}
    (tmp_path / FILE).write_text(json.dumps(whole | {"started": "today"}))
    assert read_announcement(tmp_path) == SAID


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_or_device_is_not_read_as_an_announcement(tmp_path):
    os.mkfifo(tmp_path / "serve.json")
    assert read_announcement(tmp_path) is None
    (tmp_path / "serve.json").unlink()
    (tmp_path / "serve.json").symlink_to("/dev/zero")
    assert read_announcement(tmp_path) is None
