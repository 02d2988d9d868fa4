"""A progress bar on a terminal; elsewhere, a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from catalog.interfaces.cli.output import note
from catalog.interfaces.plain_text import safe

_LINE_EVERY_SECONDS = 5.0


class TerminalProgress:
    """Shows on standard error how much is done."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._total = self._done = 0
        self._printed = time.monotonic()

    def start(self, total: int) -> None:
        """The run, or its next part, will cover this much."""
        self._close_bar()
        self._total, self._done = total, 0
        if sys.stderr.isatty():
            self._open_bar(total)

    def advance(self, amount: int, label: str) -> None:
        """So much more is done."""
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._task, advance=amount, description=safe(label)[-40:])
        elif time.monotonic() - self._printed > _LINE_EVERY_SECONDS:
            self._printed = time.monotonic()
            share = self._done / max(1, self._total)
            note(f"{share:4.0%}  {safe(label)}\n")

    def _open_bar(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("reading", total=max(1, total))
        self._bar.start()

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_bar()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
