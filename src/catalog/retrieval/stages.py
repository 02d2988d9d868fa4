"""The report of a search: one entry for each step, and spans for tracers."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catalog.core.errors import StageFailedError
from catalog.core.results import StageReport
from catalog.core.retrieval_events import tell_failure, tell_fallback

if TYPE_CHECKING:
    from catalog.core.results import StageReport


_PACKAGE = "llama_index_instrumentation"


@contextmanager
def span(name: str) -> Iterator[None]:
    """Report begin and end of a block, and the class of an error.

    LlamaIndex's instrumentation passes spans on. It is used only if the program has loaded it:
    otherwise nobody listens, and loading it would take a fifth of a second.
    """
    if _PACKAGE not in sys.modules:
        yield
        return
    from catalog.retrieval.instrumentation import report_span

    with report_span(name):
        yield


def report_stage(report: StageReport) -> None:
    """Report a completed stage with its milliseconds; skipped stages are not reported."""
    if _PACKAGE in sys.modules:
        from catalog.retrieval import instrumentation

        instrumentation.report_stage(report)


def export_spans() -> None:
    """Send spans to OpenTelemetry from now on; see ``instrumentation.export``."""
    from catalog.retrieval.instrumentation import export

    export()


class StageLog:
    """Collect stage reports; with ``strict`` a failure or fallback raises at once."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self._reports: list[StageReport] = []

    @property
    def reports(self) -> tuple[StageReport, ...]:
        """The reports so far, in order."""
        return tuple(self._reports)

    def fork(self) -> StageLog:
        """Return an empty log of the same strictness, for work that may be repeated."""
        return StageLog(strict=self.strict)

    def join(self, other: StageLog) -> None:
        """Add the reports of another log."""
        self._reports.extend(other.reports)

    @contextmanager
    def run(self, name: str, *, survives: type[Exception] | tuple[()] = ()) -> Iterator[list[str]]:
        """Time a step and report it; the texts in the yielded list become its note.

        If the search ``survives`` an error, the error is reported as the step's failure and not
        raised.
        """
        notes: list[str] = []
        started = time.perf_counter()
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

    def log_failures(self, log: logging.Logger) -> None:
        """Log a warning for each failed step, for callers that do not see the stages."""
        for report in self.reports:
            if report.status == "failed":
                log.warning(
                    "%s failed, the search continues without it: %s", report.name, report.note
                )

    def fell_back(self, name: str, note: str, *, reason: str) -> None:
        """Report that the step worked in another way than the settings say; ``strict`` raises.

        ``reason`` is logged, so it must not quote a query or a document.
        """
        tell_fallback(name, reason)
        if self.strict:
            raise StageFailedError(f"stage {name} fell back: {note}")

    def _add(self, name: str, status: str, ms: float, note: str) -> None:
        report = {"name": name, "status": status, "ms": round(ms, 3), "note": note}
        self._reports.append(StageReport.model_validate(report))
        report_stage(self._reports[-1])
