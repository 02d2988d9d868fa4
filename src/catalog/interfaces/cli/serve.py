"""``catalog serve``: one warm engine for every command, agent and program on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog.interfaces.cli.options import HomeOption, PresetOption, chosen, open_workspace


def serve(
    context: typer.Context,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Where to listen; port 0: any.")
    ] = "127.0.0.1:8180",
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Keep the model and indexes open for other commands, agents and programs, until Ctrl-C.

    Commands with the same settings ask it by themselves. Programs find the HTTP API described at
    /openapi.json, agents the Model Context Protocol at /mcp; see docs/serving.md.
    """
    from catalog.core.places import home_folder, settings_key
    from catalog.interfaces.operations import LocalEngine
    from catalog.interfaces.serving import run
    from catalog.interfaces.serving.listening import end_process
    from catalog.interfaces.serving.security import parse_address

    address = parse_address(http)
    engine = LocalEngine(open_workspace(context, home, preset))
    asked = chosen(context, home, preset)
    place = home_folder(asked.home)
    try:
        run.serve(engine, address, place, settings_key(place, asked.preset))
    except BaseException:
        engine.close()
        raise
    end_process(engine)
