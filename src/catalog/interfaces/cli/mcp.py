"""``catalog mcp``: the documents for coding agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from catalog.interfaces.cli.options import HomeOption, PresetOption, chosen, settings_for
from catalog.interfaces.cli.output import note

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from catalog.interfaces.operations import Engine
    from catalog.interfaces.serving.workers import Workers


def mcp(
    context: typer.Context,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Streamable HTTP instead of stdio."),
    ] = None,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Serve the documents to coding agents over the Model Context Protocol.

    An agent starts it by itself, from its configuration: {"mcpServers": {"catalog": {"command":
    "catalog", "args": ["mcp"]}}}. It answers until its input ends; see docs/agents.md.
    """
    import logging
    import sys

    from catalog.interfaces.mcp import catalog_server, serve_stdio
    from catalog.interfaces.serving.client import NearestEngine
    from catalog.interfaces.serving.defects import quiet_libraries
    from catalog.interfaces.serving.security import parse_address
    from catalog.interfaces.serving.warming import warm_in_background
    from catalog.interfaces.serving.workers import Workers

    address = None if http is None else parse_address(http)
    settings = settings_for(context, home, preset).settings
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    quiet_libraries()
    workers = Workers(settings.serve.max_concurrent, settings.serve.timeout_seconds)

    def make(engine: Engine) -> Server[Workers]:
        warm_in_background(engine)
        return catalog_server(engine, workers)

    engine = NearestEngine.of(settings, chosen(context, home, preset).preset)
    if address is not None:
        from catalog.interfaces.mcp.listening import serve_http

        serve_http(make(engine), engine, address, settings.serve)
    if sys.stdin.isatty():
        note("MCP on standard input: an agent starts this; Ctrl-C ends it\n")
    serve_stdio(engine, make)
