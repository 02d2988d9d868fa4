"""The report of a search: one entry for each step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from catalog.core.errors import StageFailedError
from catalog.core.results import StageReport
from catalog.core.retrieval_events import tell_failure, tell_fallback

Status = Literal["ran", "skipped", "failed"]
OnStage = Callable[[StageReport], object]


class StageLog:
    """Collect stage reports; with ``strict`` a failure or fallback raises at once.

    ``on_stage`` gets each report as soon as its step ends: names and times, and a note for people.
    """

    def __init__(self, *, strict: bool = False, on_stage: OnStage | None = None) -> None:
        self.strict, self._on_stage = strict, on_stage
        self.reports: list[StageReport] = []

    def fork(self) -> StageLog:
        """Return an empty log of the same strictness, for work that may be repeated."""
        return StageLog(strict=self.strict, on_stage=self._on_stage)

    @contextmanager
    def run(self, name: str, *, survives: type[Exception] | tuple[()] = ()) -> Iterator[list[str]]:
        """Time a step and report it; the texts in the yielded list become its note.

        If the search ``survives`` an error, it is reported as the step's failure and not raised.
        """
        notes, started = list[str](), time.perf_counter()
        try:
            yield notes
        except survives as error:
            self.failed(name, (time.perf_counter() - started) * 1000, error)
        else:
            self.ran(name, (time.perf_counter() - started) * 1000, "; ".join(notes))

    def ran(self, name: str, ms: float, note: str = "") -> None:
        """Report that the step did its work."""
        self._add(name, "ran", ms, note)

    def skipped(self, name: str, note: str) -> None:
        """Report that the step was left out, with the reason."""
        self._add(name, "skipped", 0.0, note)

    def failed(self, name: str, ms: float, error: BaseException) -> None:
        """Report that the step failed and the search goes on without it; ``strict`` raises."""
        self._add(name, "failed", ms, f"{type(error).__name__}: {error}")
        tell_failure(name, error)
        if self.strict:
            raise StageFailedError(f"stage {name} failed: {error}") from error

    def fell_back(self, name: str, note: str, *, reason: str) -> None:
        """Tell that the step worked in another way than the settings say; ``strict`` raises.

        ``reason`` is logged, so it must not quote a query or a document.
        """
        tell_fallback(name, reason)
        if self.strict:
            raise StageFailedError(f"stage {name} fell back: {note}")

    def log_failures(self, log: logging.Logger) -> None:
        """Log a warning for each failed step, for callers that do not see the stages."""
        for one in self.reports:
            if one.status == "failed":
                log.warning("%s failed, the search continues without it: %s", one.name, one.note)

    def _add(self, name: str, status: Status, ms: float, note: str) -> None:
        report = StageReport(name=name, status=status, ms=round(ms, 3), note=note)
        self.reports.append(report)
        if self._on_stage is not None:
            self._on_stage(report)
