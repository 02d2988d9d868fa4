"""Noticing that another file is in the store's place."""

import pytest

from catalog.core.errors import StoreReplacedError
from catalog.interfaces.server.asgi import store_unchanged_check


@pytest.fixture
def store(tmp_path):
    file = tmp_path / "home" / "catalog.db"
    file.parent.mkdir()
    file.write_text("store")
    return file


def test_what_is_written_to_the_file_does_not_matter(store):
    check = store_unchanged_check(store)
    store.write_text("more")
    check()


def test_another_file_in_its_place_does(store):
    check = store_unchanged_check(store)
    copy = store.with_name("copy")
    copy.write_text("store")
    copy.replace(store)
    with pytest.raises(StoreReplacedError, match="start the server again"):
        check()


def test_so_does_a_home_that_is_gone(store):
    check = store_unchanged_check(store)
    store.unlink()
    with pytest.raises(StoreReplacedError, match=str(store)):
        check()
    store.parent.rmdir()
    with pytest.raises(StoreReplacedError):
        check()
