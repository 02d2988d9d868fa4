"""``catalog serve`` and ``catalog mcp``."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from catalog.interfaces.cli.options import logged_settings, open_library, store_options
from catalog.interfaces.cli.output import note

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from catalog.interfaces.calls import Engine


def serve(
    context: typer.Context,
    http: str = Option(
        "127.0.0.1:8180",
        "--http",
        metavar="HOST:PORT",
        help="Address to listen on; port 0: any free port.",
    ),
    page: bool = Option(True, "--page/--no-page", help="Show a search page at /."),
    opens: bool = Option(False, "--open", help="Open the page in a browser."),
    compare: list[str] | None = Option(
        None, help="Offer this search on the page, too; may be repeated."
    ),
    golden: Path | None = Option(
        None, help="Folder of the golden sets. Default: golden in the home."
    ),
) -> None:
    """Keep model and indexes open for all that ask.

    Its address shows a search page. Commands with the same settings ask it by themselves. Programs
    find the HTTP API described at /openapi.json, agents the Model Context Protocol at /mcp.

    Examples:
        catalog serve --open
        catalog serve --http 127.0.0.1:9000 --preset vault
    """
    from catalog.core.files import home_folder, settings_key
    from catalog.interfaces.calls import LocalEngine
    from catalog.interfaces.server import asgi
    from catalog.interfaces.server.listen import end_process
    from catalog.interfaces.server.security import parse_address

    def open_page(url: str) -> None:  # a browser in the terminal returns only when it ends
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    if opens and not page:
        raise typer.BadParameter("--no-page leaves out the page that --open shows")
    address = parse_address(http)
    engine = LocalEngine(open_library(context))
    store = store_options(context)
    folder = home_folder(store.home)
    try:
        asgi.serve(
            engine,
            address,
            folder,
            settings_key(folder, store.preset),
            page={"compared": compare or (), "golden": golden} if page else None,
            opens=open_page if opens else lambda _: None,
        )
    except BaseException:
        engine.close()
        raise
    end_process(engine)


def mcp(
    context: typer.Context,
    http: str | None = Option(
        None, "--http", metavar="HOST:PORT", help="Streamable HTTP instead of stdio."
    ),
) -> None:
    """Serve the documents to coding agents by MCP.

    An agent starts it by itself, from its configuration: {"mcpServers": {"catalog": {"command":
    "catalog", "args": ["mcp"]}}}. It answers until its input or the agent ends.

    Examples:
        catalog mcp
        catalog mcp --http 127.0.0.1:8190
    """
    import sys

    from catalog.interfaces.home_socket import NearestEngine
    from catalog.interfaces.mcp import catalog_server, serve_http, serve_stdio
    from catalog.interfaces.server.security import parse_address
    from catalog.interfaces.server.workers import Workers, warm_in_background

    address = None if http is None else parse_address(http)
    settings = logged_settings(context)
    workers = Workers(settings.serve.max_concurrent, settings.serve.timeout_seconds)

    def build_server(engine: Engine) -> Server[Any]:
        warm_in_background(engine)
        return catalog_server(
            engine, workers, with_answers=settings.answers.tool, roles=settings.serve.roles()
        )

    engine = NearestEngine.of(settings, store_options(context).preset)
    if address is not None:
        serve_http(build_server(engine), engine, address, settings.serve)
    if sys.stdin.isatty():
        note("MCP on standard input: an agent starts this; Ctrl-C ends it\n")
    serve_stdio(engine, build_server, workers)
