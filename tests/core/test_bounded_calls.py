"""Calls under a time limit."""

import contextvars
import subprocess
import sys
import threading

import pytest

from catalog.core import bounded_calls
from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import LLMBusyError, LLMError, LLMTimeoutError

NEVER = 0.01  # seconds that a blocked call certainly lasts


@pytest.fixture
def gate():
    """Blocks calls until it is opened; opened at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


def wait_until_none_runs(calls):
    for _ in range(1000):
        if calls.abandoned == 0:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the abandoned calls never ended")


@pytest.mark.parametrize("error", [ValueError("bad"), TimeoutError("its own"), SystemExit(3)])
def test_an_error_of_the_function_is_raised_unchanged(error):
    def fail():
        raise error

    calls = BoundedCalls(1)
    with pytest.raises(type(error)) as raised:
        calls.call(fail, 60)
    assert raised.value is error
    assert calls.abandoned == 0


def test_a_call_that_takes_too_long_is_left_behind(gate):
    calls = BoundedCalls(1)
    with pytest.raises(LLMTimeoutError, match=r"0\.01 s") as raised:
        calls.call(gate.wait, NEVER)
    assert isinstance(raised.value, LLMError)
    assert calls.abandoned == 1


def test_a_stream_without_an_end_is_left_behind_though_each_piece_comes_in_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(bounded_calls, "monotonic", lambda: now[0])

    def drip():
        for piece in range(1_000):
            now[0] += 1.0
            yield piece

    calls, read = BoundedCalls(1), []
    with pytest.raises(LLMTimeoutError, match="in time"):
        read.extend(calls.stream(drip, 1.5, deadline=18.0))
    assert now[0] <= 20
    wait_until_none_runs(calls)


def test_who_reads_slowly_gets_all_that_came_in_time(monkeypatch):
    now, makers, read = [0.0], [], []
    monkeypatch.setattr(bounded_calls, "monotonic", lambda: now[0])

    def two():
        makers.append(threading.current_thread())
        yield from (1, 2)

    for piece in BoundedCalls(1).stream(two, 1, deadline=12.0):
        makers[0].join(60)
        now[0] = 99.0
        read.append(piece)
    assert read == [1, 2]


def test_nothing_starts_while_too_many_calls_hang_and_all_do_once_they_have_ended(gate):
    def fail():
        gate.wait()
        raise ValueError("too late")

    calls, started = BoundedCalls(2), []
    for hanging in (gate.wait, fail):
        with pytest.raises(LLMTimeoutError):
            calls.call(hanging, NEVER)
    with pytest.raises(LLMBusyError):
        calls.call(lambda: started.append(1), 60)
    assert started == []
    gate.set()
    wait_until_none_runs(calls)
    assert calls.call(lambda: "again", 60) == "again"


def test_the_function_sees_the_callers_context():
    request = contextvars.ContextVar("request", default="none")
    request.set("r-1")
    assert BoundedCalls(1).call(request.get, 60) == "r-1"


def test_a_hanging_call_does_not_hold_up_the_end_of_the_process():
    code = (
        "from threading import Event\n"
        "from catalog.core.bounded_calls import BoundedCalls\n"
        "from catalog.core.errors import LLMTimeoutError\n"
        "try:\n"
        "    BoundedCalls(1).call(Event().wait, 0.2)\n"
        "except LLMTimeoutError:\n"
        "    print('went on')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=40, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "went on\n")
