"""The protocol over standard input and output, which carry nothing else."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import anyio
import anyio.to_thread
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server

from catalog.core.errors import CatalogError
from catalog.interfaces.plain_text import complaint
from catalog.interfaces.server.mcp.jsonrpc_repair import Item, repair_messages

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from catalog.interfaces.engine import Engine
    from catalog.interfaces.server.workers import Workers


def serve_stdio(engine: Engine, make: Callable[[Engine], Server[Workers]]) -> NoReturn:
    """Answer until the input ends or SIGINT or SIGTERM comes, then end this process with code 0.

    The server is made once standard output is the protocol's alone: whatever prints from then on
    does so on standard error. When the input ends the engine is closed, unless calls still run:
    they are left alone, and the store withstands that. What goes wrong while the server is made
    ends the process with code 1.
    """
    busy = True
    try:
        busy = anyio.run(partial(_serve, engine, make))
    except* (BrokenPipeError, ConnectionResetError):
        pass  # the client is gone, and with it whom to tell
    with suppress(CatalogError, OSError):
        os.dup2(2, 1)  # what is printed at the end is no protocol either
        if not busy:
            engine.close()
    _leave()


async def _serve(engine: Engine, make: Callable[[Engine], Server[Workers]]) -> bool:
    """Answer, and return whether calls still run when the input has ended."""
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        with _print_to_stderr():
            tasks.start_soon(_end_at_signal)
            try:
                server = await anyio.to_thread.run_sync(make, engine)
            except Exception as error:  # noqa: BLE001 - told, and the process ends
                _give_up(error)
            good, repaired = anyio.create_memory_object_stream[Item](0)
            tasks.start_soon(repair_messages, read, write, good)
            async with server.lifespan(server) as workers:
                options = server.create_initialization_options()
                await serve_dual_era_loop(
                    server, repaired, write, lifespan_state=workers, init_options=options
                )
            tasks.cancel_scope.cancel()
    return workers.pending > 0


async def _end_at_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            # No joining the thread that waits for the next line of input.
            _leave()


@contextmanager
def _print_to_stderr() -> Iterator[None]:
    """Send ``print`` to standard error, so that nothing is left to be written at the end."""
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        yield


def _give_up(error: Exception) -> NoReturn:
    """End the process with what is wrong.

    Raising would wait for the thread that waits for the next line of input.
    """
    if isinstance(error, CatalogError):
        print(complaint(str(error)), file=sys.stderr)
    else:
        traceback.print_exception(error)
    _leave(1)


def _leave(code: int = 0) -> NoReturn:
    """End the process at once, whatever threads do and libraries have left to print."""
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)
