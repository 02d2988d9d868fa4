"""Spans of questions, searches and their stages, for whoever traces them.

LlamaIndex's instrumentation passes them on. While a program has not loaded it, nobody can listen,
and a search does not load it either: that would take a fifth of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.core.results import StageReport

_PACKAGE = "llama_index_instrumentation"


@contextmanager
def span(name: str) -> Iterator[None]:
    """Report the begin and the end of a block, and the class of an error."""
    if _PACKAGE not in sys.modules:
        yield
        return
    from catalog.retrieval.instrumentation import report_span

    with report_span(name):
        yield


def report_stage(report: StageReport) -> None:
    """Report a stage that has ended, with its milliseconds; skipped stages are not reported."""
    if _PACKAGE in sys.modules:
        from catalog.retrieval import instrumentation

        instrumentation.report_stage(report)


def export_spans() -> None:
    """Send spans to OpenTelemetry from now on; see ``instrumentation.export``."""
    from catalog.retrieval.instrumentation import export

    export()
