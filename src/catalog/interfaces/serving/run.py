"""Being the server of a store until stopped."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from catalog import __version__
from catalog.interfaces.serving.announcing import Announcement, announce
from catalog.interfaces.serving.app import build_app
from catalog.interfaces.serving.defects import quiet_libraries
from catalog.interfaces.serving.listening import bind_socket, serve_until_signal
from catalog.interfaces.serving.replaced import store_unchanged_check
from catalog.interfaces.serving.security import Address
from catalog.interfaces.serving.warming import warm_in_background

if TYPE_CHECKING:
    from catalog.interfaces.operations import LocalEngine


def serve(engine: LocalEngine, address: Address, home: Path, key: str) -> None:
    """Answer on the address until SIGINT or SIGTERM; the caller closes the engine.

    Port 0 is any free one. Says on standard output where it listens, once it does. Raises
    :class:`ConfigError` when the address cannot be had, others could connect and no token is set,
    or the store has a server already.
    """
    with announce(home) as publish, bind_socket(address) as listening:
        host, port = listening.getsockname()[:2]
        secret, named = secrets.token_hex(32), Address(address.host, port)
        check = store_unchanged_check(engine.workspace.database.file)
        app = build_app(engine, named, engine.workspace.settings.serve, secret, check)

        def ready() -> None:
            reachable = Address(host, port).reachable_host
            publish(Announcement(os.getpid(), reachable, port, secret, key, __version__))
            offered = "search, documents, status, /mcp"
            with suppress(OSError):  # a full or closed standard output is no reason not to serve
                print(f"serving {home} on {named.url} ({offered}); stop with Ctrl-C", flush=True)

        quiet_libraries()
        warm_in_background(engine)
        serve_until_signal(app, listening, ready)
