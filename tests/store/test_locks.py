"""Lock files: held by one, told when they cannot be had or opened."""

import pytest

from catalog.core.errors import StoreBusyError, StoreError
from catalog.store.database import hold_lock


def test_a_second_holder_of_the_lock_gets_the_callers_message(tmp_path):
    file = tmp_path / "locks" / "d.lock"
    with (
        hold_lock(file, seconds=0, busy="no"),
        pytest.raises(StoreBusyError, match=r"^it is held$"),
        hold_lock(file, seconds=0, busy="it is held"),
    ):
        pass
    with hold_lock(file, seconds=0, busy="it is held"):
        pass


@pytest.mark.parametrize("in_the_way", ["locks", "locks/d.lock"])
def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path, in_the_way):
    file = tmp_path / "locks" / "d.lock"
    if in_the_way == "locks":
        file.parent.write_text("a file where a folder should be")
    else:
        file.mkdir(parents=True)
    with pytest.raises(StoreError) as raised, hold_lock(file, seconds=0, busy="held"):
        pass
    assert str(raised.value).startswith(f"cannot open the lock {file}: ")
    assert not isinstance(raised.value, StoreBusyError)


def test_an_error_while_the_lock_is_held_is_raised_unchanged(tmp_path):
    mine = FileNotFoundError("mine")
    with (
        pytest.raises(FileNotFoundError) as raised,
        hold_lock(tmp_path / "l", seconds=0, busy="held"),
    ):
        raise mine
    assert raised.value is mine
    with hold_lock(tmp_path / "l", seconds=0, busy="held"):
        pass
