"""Writing to a terminal: lines, JSON and progress; standard streams that are closed or full."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from catalog.core.errors import CatalogError, StoreBusyError, StoreUnreachableError
from catalog.core.files import describe_os_error, remedy
from catalog.interfaces.plain_text import complaint, fit, safe

if TYPE_CHECKING:
    from types import FrameType


_LINE_EVERY_SECONDS = 5.0


def complain(message: str) -> None:
    """Print a message on standard error."""
    note(f"{complaint(message)}\n")


def note(text: str) -> None:
    """Write text to standard error, wrapped for a terminal; drop text that cannot be written."""
    with suppress(OSError):
        sys.stderr.write(fit(text, columns_of(sys.stderr)))
    _flush(sys.stderr)  # else unwritten text would be tried again at exit, which then fails


def say(*lines: str) -> None:
    """Print lines on standard output, safe for a terminal and wrapped for it."""
    width = columns_of(sys.stdout)
    for line in lines:
        print(fit(safe(line), width))


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table, as wide as its cells; the columns of ``right`` are set right.

    In a terminal that is narrower each row is its first cells, and lines that name the others.
    """
    cells = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + 2 * len(widths) - 2 <= (columns_of(sys.stdout) or sys.maxsize):
        signs = ["><"[heading not in right] for heading in headings]
        form = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
        yield from (form.format(*row).rstrip() for row in cells)
        return
    first = 1 if headings[0] else 2
    for row in cells[1:]:
        yield " ".join(filter(None, row[:first]))
        named = zip(headings[first:], row[first:], strict=True)
        yield f"    {', '.join(f'{heading} {cell}' for heading, cell in named if cell)}"


def has_styles(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that shows bold, and ``NO_COLOR`` is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns_of(stream: TextIO) -> int | None:
    """Return the columns of the stream's terminal; ``None`` (no wrapping) without a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def prepare_streams() -> None:
    """Replace each missing stream, so that no file opened later takes its number.

    Writing to the replaced standard output fails, since the answer would be lost; text for
    standard error is dropped.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a document's letters


def flush_streams() -> None:
    """Write out what waits; raise :class:`CatalogError` if standard output does not take it."""
    _flush(sys.stderr)
    error = _flush(sys.stdout)
    if error is not None and error.errno != errno.EPIPE:  # a reader that left has read enough
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise CatalogError(f"cannot write to standard output: {reason}")


def _flush(stream: TextIO) -> OSError | None:
    """Return why the stream does not take what waits in it; that is dropped then, at exit too."""
    try:
        stream.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # ValueError: no file is behind it
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        return error
    return None


def refuse(error: OSError | ExceptionGroup[Exception]) -> None:
    """Raise :class:`CatalogError` for a lack of permissions, space or handles; ignore a defect."""
    one: Exception = error
    while isinstance(one, ExceptionGroup) and len(one.exceptions) == 1:
        one = one.exceptions[0]
    name = getattr(one, "filename", None)
    path = Path(name) if isinstance(name, str) else Path()
    if isinstance(one, OSError) and remedy(one.errno, path):
        message = f"cannot write to standard output or a file: {one.strerror}"
        raise CatalogError(describe_os_error(path, one) if path.name else message) from one


def time_left(seconds: float) -> str:
    """Return ``40 s left``, ``12 min left`` or ``2 h 5 min left``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s left"
    minutes = round(seconds / 60)
    return f"{minutes} min left" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min left"


RESUMABLE = "finished work is kept: run the same command to continue"
NO_RUN = "no run is recorded before all queries are answered: the same command begins again"
_GO_ON = (StoreBusyError, StoreUnreachableError)  # which pass


@contextmanager
def heeding_termination() -> Iterator[None]:
    """Exit with code 143 on SIGTERM and 129 on SIGHUP, so that drafts are removed.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored.
    """

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    default = [one for one in numbers if one and signal.getsignal(one) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


class TerminalProgress:
    """Show on standard error how much is done, and after Ctrl-C how to go on, if one can.

    A Ctrl-C that is lost, as some extension modules lose it while they are imported, stops the work
    at its next step.
    """

    _bar: Any = None
    _on_interrupt: Any = None  # what Ctrl-C did before
    _is_interrupted = False

    def __init__(self, kept: str = RESUMABLE) -> None:
        self._kept = kept  # said if Ctrl-C, or a store that is away, ends the work
        self.start(0)

    def start(self, total: float, doing: str = "", *, then: str = "") -> None:
        """Begin the run, or its next part, which will cover this much (0: not known).

        Where there is no terminal, a line says so.
        """
        from catalog.ingest.sync_report import Pace

        self._heed_interrupt()
        self._close_bar()
        self._total, self._done, self._pace = total, 0.0, Pace(total, time.monotonic)
        self._doing, self._then, self._counts = doing, then, ""
        self._printed = time.monotonic()
        if doing and sys.stderr.isatty():
            self._open_bar()
        elif doing:
            note(f"{safe(doing)}\n")

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Add to the finished amount; without a terminal write a line now and then."""
        self._heed_interrupt()
        self._done += amount
        self._counts = counts or self._counts
        self._pace.advance(amount)
        if self._bar is not None:
            told = f"{self._state()} {safe(label)[-40:]}"
            self._bar.update(self._bar.task_ids[0], advance=amount, told=told)
        elif time.monotonic() - self._printed > _LINE_EVERY_SECONDS:
            self._printed = time.monotonic()
            share = f"{self._done / max(1, self._total):4.0%}"
            parts = (self._doing, share, self._state(), safe(label))
            note(f"{'  '.join(filter(None, parts))}\n")

    def reach(self, done: int, total: int, doing: str, label: str = "", counts: str = "") -> None:
        """Show the number done of the total; the first call begins this part."""
        if doing != self._doing:
            self.start(total, doing)
        self.advance(done - self._done, label, counts)

    def _state(self) -> str:
        """Return how many are done, how long the rest will take, and what follows."""
        left, follows = self._pace.seconds_left, f"then {self._then}" if self._then else ""
        of_part = f" of {self._doing}" if self._then else ""
        rest = "" if left is None else f"{time_left(left)}{of_part}"
        return ", ".join(filter(None, (self._counts, rest, follows)))

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            *((BarColumn(bar_width=20), TaskProgressColumn()) if self._total else ()),
            TextColumn("{task.fields[told]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(self._doing, total=max(1, self._total), told=self._state())
        self._bar.start()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._is_interrupted = True
        self._on_interrupt(number, frame)

    def _heed_interrupt(self) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> TerminalProgress:
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._on_interrupt = before
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._on_interrupt is not None:
            signal.signal(signal.SIGINT, self._on_interrupt)
        self._close_bar()
        if self._kept and isinstance(error, (KeyboardInterrupt, *_GO_ON)):
            complain(self._kept)
