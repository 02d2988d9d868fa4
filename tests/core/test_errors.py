"""Messages of errors: what they repeat of a call is short."""

from __future__ import annotations

import pytest

from catalog.core.errors import DocumentNotFoundError, InputError


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
