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
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from catalog.core.errors import CatalogError, StoreBusyError, StoreUnreachableError
from catalog.core.files import describe_os_error, remedy
from catalog.core.text import counted
from catalog.interfaces.plain_text import complaint, json_text, safe
from catalog.interfaces.wrapping import fit

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from catalog.ingest.sync_report import Pace
    from catalog.library.health import DatasetStats

_LINE_EVERY_SECONDS = 5.0
_REASONS_SHOWN = 10


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
    width = columns_of(sys.stdout)
    if width is not None and sum(widths) + 2 * len(widths) - 2 > width:
        yield from _listed(headings, cells[1:])
        return
    for row in cells:
        padded = [
            cell.rjust(width) if heading in right else cell.ljust(width)
            for heading, cell, width in zip(headings, row, widths, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _listed(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    first = next(at for at, heading in enumerate(headings) if heading) + 1
    for row in rows:
        yield " ".join(filter(None, row[:first]))
        named = zip(headings[first:], row[first:], strict=True)
        yield f"    {', '.join(f'{heading} {cell}' for heading, cell in named if cell)}"


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    print(json_text(value))


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
    if sys.stdin is None:
        sys.stdin = _stand_in(os.O_RDONLY, "r")
    if sys.stdout is None:
        sys.stdout = _stand_in(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _stand_in(os.O_WRONLY, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a document's letters


def _stand_in(flags: int, mode: str) -> TextIO:
    return cast("TextIO", os.fdopen(os.open(os.devnull, flags), mode, errors="replace"))


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
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # type: ignore[assignment]
    if not isinstance(error, OSError):
        return
    name = error.filename
    path = Path(name) if isinstance(name, str) else Path()
    if remedy(error.errno, path):
        message = f"cannot write to standard output or a file: {error.strerror}"
        if isinstance(name, str):
            message = describe_os_error(path, error)
        raise CatalogError(message) from error


def time_left(seconds: float) -> str:
    """Return ``40 s left``, ``12 min left`` or ``2 h 5 min left``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s left"
    minutes = round(seconds / 60)
    return f"{minutes} min left" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min left"


RESUMABLE = "finished work is kept: run the same command to continue"
_GO_ON = (StoreBusyError, StoreUnreachableError)  # which pass


@contextmanager
def heeding_termination() -> Iterator[None]:
    """Exit with code 143 on SIGTERM and 129 on SIGHUP, so that drafts are removed.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored.
    """

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()  # only it may set handlers
    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")] if is_main else []
    default = [one for one in numbers if one and signal.getsignal(one) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


def _pace_of(total: float) -> Pace:
    from catalog.ingest.sync_report import Pace

    return Pace(total, time.monotonic)


class TerminalProgress:
    """Show on standard error how much is done, and after Ctrl-C how to go on, if one can.

    A Ctrl-C that is lost, as some extension modules lose it while they are imported, stops the work
    at its next step.
    """

    def __init__(self, *, is_resumable: bool = True) -> None:
        self._is_resumable = is_resumable
        self._bar: Any = None
        self._task: Any = None
        self._doing = self._then = self._counts = ""
        self._total = self._done = 0.0
        self._pace = _pace_of(0)
        self._printed = time.monotonic()
        self._on_interrupt: Any = None  # what Ctrl-C did before
        self._is_interrupted = False

    def start(self, total: float, doing: str = "", *, then: str = "") -> None:
        """Begin the run, or its next part, which will cover this much (0: not known).

        Where there is no terminal, a line says so.
        """
        self._heed_interrupt()
        self._close_bar()
        self._total, self._done, self._pace = total, 0, _pace_of(total)
        self._doing, self._then, self._counts = doing, then, ""
        if sys.stderr.isatty():
            self._open_bar(total)
        elif doing:
            self._printed = time.monotonic()
            note(f"{safe(doing)}\n")

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Add to the finished amount; without a terminal write a line now and then."""
        self._heed_interrupt()
        self._done += amount
        self._counts = counts or self._counts
        self._pace.advance(amount)
        if self._bar is not None:
            self._bar.update(
                self._task, advance=amount, state=self._state(), label=safe(label)[-40:]
            )
        elif time.monotonic() - self._printed > _LINE_EVERY_SECONDS:
            self._printed = time.monotonic()
            share = f"{self._done / max(1, self._total):4.0%}"
            parts = (self._doing, share, self._state(), safe(label))
            note(f"{'  '.join(filter(None, parts))}\n")

    def _state(self) -> str:
        """Return how many are done, how fast, how long the rest will take, and what follows."""
        left, follows = self._pace.seconds_left, f"then {self._then}" if self._then else ""
        of_part = f" of {self._doing}" if self._then else ""
        rest = "" if left is None else f"{time_left(left)}{of_part}"
        return ", ".join(filter(None, (self._counts, rest, follows)))

    def _open_bar(self, total: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        measured = (BarColumn(bar_width=20), TaskProgressColumn()) if total else ()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            *measured,
            TextColumn("{task.fields[state]}", markup=False),
            TextColumn("{task.fields[label]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(
            self._doing, total=max(1, total), state=self._state(), label=""
        )
        self._bar.start()

    def __enter__(self) -> TerminalProgress:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._on_interrupt = before
                signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._is_interrupted = True
        self._on_interrupt(number, frame)

    def _heed_interrupt(self) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._on_interrupt is not None:
            signal.signal(signal.SIGINT, self._on_interrupt)
        self._close_bar()
        if self._is_resumable and isinstance(error, (KeyboardInterrupt, *_GO_ON)):
            complain(RESUMABLE)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def stats_lines(stats: DatasetStats) -> Iterator[str]:
    """Yield the counts, and why files are missing."""
    from catalog.interfaces.terminal import describe_origin

    files = stats.files
    share = "" if files.coverage is None else f", {files.coverage:.1%} of those with text"
    yield f"{'files':15} {files.indexed} of {files.listed} indexed{share}"
    for reasons, outcome in ((files.reasons, "not"), (files.partly, "not wholly, or not as it is")):
        for reason, count in list(reasons.items())[:_REASONS_SHOWN]:
            yield f"{'':15} {count} {outcome}: {reason}"
        if len(reasons) > _REASONS_SHOWN:
            yield f"{'':15} … for {len(reasons) - _REASONS_SHOWN} more reasons (--json lists all)"
    modalities = ", ".join(f"{count} {name}" for name, count in stats.modalities.items())
    languages = ", ".join(f"{count} {name}" for name, count in stats.languages.items())
    updated = datetime.fromtimestamp(stats.updated_at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    for name, value in (
        ("documents", stats.documents),
        ("chunks", f"{stats.chunks} ({modalities})" if modalities else stats.chunks),
        ("languages", languages or "not known yet"),
        ("embedded", f"{stats.embedded} of {counted(stats.chunks, 'passage')}"),
        ("database", f"{stats.database_bytes / 1e6:.1f} MB, all datasets"),
        ("updated", updated),
        ("folder", stats.root or "none: filled by a pipeline"),
        ("made with", describe_origin(stats.preset, stats.settings)),
    ):
        yield f"{name:15} {value}"
