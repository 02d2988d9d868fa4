"""Run by the tests as a process: ``serving.py HOME stdio|http``, on a small real store.

A query with HOLD tells that it began and waits for the sign ``go``; one with NOISE prints in every
way a library may; one with BUG fails as a defect would.
"""

import os
import sys
from functools import partial
from pathlib import Path

from catalog.core.settings.sections import ServeSettings
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.mcp import catalog_server, serve_http, serve_stdio
from catalog.interfaces.server.security import Address
from catalog.interfaces.server.workers import Workers
from fakes import open_library
from interfaces.mcp.signs import give, wait_for
from interfaces.mcp.stubs import make_noise


class Odd(LocalEngine):
    """See above."""

    def ask(self, operation, arguments):
        query = str(arguments.get("query"))
        if "HOLD" in query:
            began, go = (Path(os.environ["TEST_SIGNS"]) / name for name in ("began", "go"))
            give(began)
            wait_for(go)
        if "NOISE" in query:
            make_noise()
        if "BUG" in query:
            raise ValueError(query)
        return super().ask(operation, arguments)


def main():
    engine = Odd(open_library(Path(sys.argv[1])))
    make = partial(catalog_server, workers=Workers(8, 30))
    if sys.argv[2] == "stdio":
        serve_stdio(engine, make)
    serve_http(make(engine), engine, Address("127.0.0.1", 0), ServeSettings())


if __name__ == "__main__":
    main()
