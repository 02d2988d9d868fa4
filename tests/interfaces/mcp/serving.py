"""Run by the tests as a process: ``serving.py HOME|stub|fail stdio|http``.

On the store of a home a query with HOLD tells that it began and waits for the sign ``go``. The
stub's calls are held for good.
"""

import os
import sys
from functools import partial
from pathlib import Path

from catalog.core.errors import ConfigError
from catalog.core.settings.sections import ServeSettings
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.mcp import catalog_server, serve_http, serve_stdio
from catalog.interfaces.server.security import Address
from catalog.interfaces.server.workers import Workers
from fakes import open_library
from interfaces.mcp.signs import give, wait_for
from interfaces.mcp.stubs import StubEngine


class Held(LocalEngine):
    """See above."""

    def ask(self, verb, arguments):
        if "HOLD" in str(arguments.get("query")):
            began, go = (Path(os.environ["TEST_SIGNS"]) / name for name in ("began", "go"))
            give(began)
            wait_for(go)
        return super().ask(verb, arguments)


class Telling(StubEngine):
    """Tells when a call is held; closing it must not be tried while one is."""

    def hold(self):
        print("began", file=sys.stderr, flush=True)
        give(Path(os.environ["TEST_SIGNS"]) / "began")
        super().hold()

    def close(self):
        print("closed", file=sys.stderr, flush=True)


def fail(engine):
    raise ConfigError("this store is not yours")


def main():
    store, transport = sys.argv[1:]
    workers = Workers(8, 30)
    make = fail if store == "fail" else partial(catalog_server, workers=workers)
    stub = store in ("stub", "fail")
    engine = Telling() if stub else Held(open_library(Path(store)))
    if transport == "stdio":
        serve_stdio(engine, make, workers)
    address = Address("127.0.0.1", int(os.environ.get("TEST_PORT", "0")))
    serve_http(make(engine), engine, address, ServeSettings(token=os.environ.get("TEST_TOKEN")))


if __name__ == "__main__":
    main()
