"""Repeating what fails for a reason that passes, for as long as a caller would wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from tenacity.wait import wait_random

from catalog.core.errors import CatalogError, EmbeddingServerError
from catalog.core.retrieval_events import tell_retry

ResultT = TypeVar("ResultT")

TRIES = 6
_LONGEST = 30.0  # seconds between two tries, unless the server asks for more
_backoff = wait_random_exponential(multiplier=1, max=_LONGEST, min=0.2)
_spread = wait_random(0, 1)  # so that those who were told the same do not all come at once


class Patience:
    """Repeat a call that raises :class:`EmbeddingServerError`, up to :data:`TRIES` in all.

    Between two tries passes what the server asks for, else an ever longer time with chance in it
    ("full jitter"). No try begins later than ``seconds`` after the first, and none is waited for
    that would. After a call that failed in the end, the next ones are not repeated until one
    succeeds.
    """

    def __init__(self, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds, self._sleep = seconds, sleep
        self._is_failing = False

    def call(
        self,
        function: Callable[[], ResultT],
        on_retry: Callable[[BaseException | None, float], None],
    ) -> ResultT:
        """Return what the function returns; ``on_retry`` hears of errors and how long is waited."""
        retrying = Retrying(
            retry=retry_if_exception_type(EmbeddingServerError),
            stop=self._is_over,
            wait=_wait,
            sleep=self._sleep,
            before_sleep=lambda state: _tell(state, on_retry),
            reraise=True,
        )
        try:
            result = retrying(function)
        except EmbeddingServerError:
            self._is_failing = True
            raise
        except CatalogError:
            self._is_failing = False
            raise
        self._is_failing = False
        return result

    def _is_over(self, state: RetryCallState) -> bool:
        tries = 1 if self._is_failing else TRIES
        passed = max(state.idle_for, state.seconds_since_start or 0.0)
        is_late = passed + state.upcoming_sleep > self._seconds
        return state.attempt_number >= tries or is_late


def _error(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _tell(state: RetryCallState, on_retry: Callable[[BaseException | None, float], None]) -> None:
    tell_retry("embedding", state.attempt_number, _error(state), state.upcoming_sleep)
    on_retry(_error(state), state.upcoming_sleep)


def _wait(state: RetryCallState) -> float:
    asked = getattr(_error(state), "retry_after", None)
    return _backoff(state) if asked is None else asked + _spread(state)
