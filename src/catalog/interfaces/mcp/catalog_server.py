"""The server of all agent tools, with instructions for the model that calls them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.interfaces.mcp.server import build_server, shown

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from catalog.interfaces.operations import Engine
    from catalog.interfaces.serving.workers import Workers

_LOG = logging.getLogger(__name__)


def catalog_server(engine: Engine, workers: Workers) -> Server[Workers]:
    """The server of all agent tools; asks the engine once, for what its instructions tell."""
    from catalog.interfaces.tools import AGENT_TOOLS

    return build_server(
        engine,
        tools=AGENT_TOOLS,
        instructions=instructions(engine),
        workers=workers,
    )


def instructions(engine: Engine) -> str:
    """How to use the tools and, if the store can be read, which datasets there are."""
    from catalog.interfaces.tools import agent_guidance

    try:
        datasets = engine.ask("status", {})["datasets"]
    except CatalogError as error:
        _LOG.warning("instructions without datasets: %s", error)
        return agent_guidance()
    counted = {shown(one["dataset"]): one["documents"] for one in datasets}
    told = "; ".join(
        f"{name}: {count} document{'' if count == 1 else 's'}" for name, count in counted.items()
    )
    held = f"Datasets here: {told}." if told else "There is no dataset yet."
    return f"{agent_guidance(tuple(counted)).rstrip()}\n\n{held}"
