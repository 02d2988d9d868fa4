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
    """Report a block when it begins and ends; of an error only the class."""
    if _PACKAGE not in sys.modules:
        yield
        return
    from catalog.retrieval.instrumentation import report_span

    with report_span(name):
        yield


def tell_stage(report: StageReport) -> None:
    """Report a stage that is over, with its milliseconds; nothing of one that was skipped."""
    if _PACKAGE in sys.modules:
        from catalog.retrieval.instrumentation import report_stage

        report_stage(report)


def export_spans() -> None:
    """Send spans to OpenTelemetry from now on; see ``instrumentation.export``."""
    from catalog.retrieval.instrumentation import export

    export()
