"""What queries need is loaded beside the first answers."""

import threading

import pytest

from catalog.core.errors import ModelUnavailableError
from catalog.interfaces.server.workers import warm_in_background

DEADLINE = 20


class Engine:
    def __init__(self, warm):
        self.warm = warm


def test_warming_up_blocks_no_request_and_waits_for_none():
    began, go, ended = threading.Event(), threading.Event(), threading.Event()

    def warm():
        began.set()
        go.wait(DEADLINE)
        ended.set()

    warm_in_background(Engine(warm))
    assert began.wait(DEADLINE)
    assert not ended.is_set()
    go.set()
    assert ended.wait(DEADLINE)


@pytest.mark.parametrize("error", [ModelUnavailableError("no model"), RuntimeError("query text")])
def test_a_warm_up_that_fails_is_logged_without_what_a_defect_says(error, caplog):
    def warm():
        raise error

    warm_in_background(Engine(warm))
    for thread in threading.enumerate():
        if thread.name == "catalog-warm":
            thread.join(DEADLINE)
    assert "warm" in caplog.text
    assert "query text" not in caplog.text


def test_an_engine_that_cannot_be_warmed_is_left_alone():
    before = threading.active_count()
    warm_in_background(object())
    assert threading.active_count() == before
