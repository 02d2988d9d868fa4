"""Messages of errors, and why a file cannot be used: the reason, the place and what helps."""

import errno
import os

import pytest

from catalog.core.errors import DocumentNotFoundError, EngineError, InputError
from catalog.core.files import describe_os_error, errno_of, remedy
from tables import table


@pytest.mark.parametrize("said", ["a" * 5000, "it's " * 1000, "é\n" * 900])
def test_an_error_repeats_two_hundred_characters_of_an_argument(said):
    message = str(InputError(f"no document matches {said!r}, of 'notes'"))
    assert len(message) < 450
    assert message.startswith(f"no document matches {repr(said)[:100]}")
    assert message.endswith("of 'notes'")


def test_a_message_without_a_long_argument_stays_as_it_is():
    told = "the model's answer is no JSON: it's cut at the server's limit, " * 9
    assert str(InputError(told)) == told
    assert str(DocumentNotFoundError("no 'x'", ["a.md"])) == "no 'x'; did you mean a.md?"


def failed(code):
    return OSError(code, os.strerror(code))


def test_for_a_file_that_is_not_there_yet_the_folder_is_named(tmp_path):
    assert remedy(errno.EACCES, tmp_path / "new" / "file").startswith(
        f"let this user read and write {tmp_path}"
    )


@table("code, words")
def test_room_and_handles_have_a_remedy_of_their_own(tmp_path, code, words):
    assert words in remedy(getattr(errno, code), tmp_path / "file")


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
