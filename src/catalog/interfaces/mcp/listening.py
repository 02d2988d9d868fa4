"""``catalog mcp --http``: the endpoint on an address of its own, until a signal ends it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from catalog.interfaces.mcp.http import PATH, streamable_http_app
from catalog.interfaces.serving.addresses import Address
from catalog.interfaces.serving.listening import bind_socket, end_process, serve_until_signal

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from catalog.core.settings.models import ServeSettings
    from catalog.interfaces.operations import Engine
    from catalog.interfaces.serving.workers import Workers


def serve_http(
    server: Server[Workers], engine: Engine, address: Address, serve: ServeSettings
) -> NoReturn:
    """Answer on the address until SIGINT or SIGTERM, then end this process with code 0.

    Port 0 is any free one; the URL is told on standard error. Raises :class:`ConfigError` when the
    address cannot be had.
    """
    app = streamable_http_app(server, address, serve)
    with bind_socket(address) as listening:
        url = Address(address.host, listening.getsockname()[1]).url

        def ready() -> None:
            print(f"MCP on {url}{PATH}; stop with Ctrl-C", file=sys.stderr, flush=True)

        serve_until_signal(app, listening, ready)
    end_process(engine)
