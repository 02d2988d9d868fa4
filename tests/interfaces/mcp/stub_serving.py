"""Run by the tests as a process: ``stub_serving.py stdio|http|fail``, the stub tools.

Standard error and the sign ``began`` tell when a call is held; it is held for good.
"""

import os
import sys
from functools import partial
from pathlib import Path

from catalog.core.errors import ConfigError
from catalog.core.settings.sections import ServeSettings
from catalog.interfaces.server.mcp import serve_http, serve_stdio
from catalog.interfaces.server.mcp.protocol import build_server
from catalog.interfaces.server.security import Address
from catalog.interfaces.server.workers import Workers
from interfaces.mcp.signs import give
from interfaces.mcp.stubs import TOOLS, StubEngine


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
    serve = ServeSettings(token=os.environ.get("TEST_TOKEN"))
    make = partial(build_server, tools=TOOLS, instructions="how", workers=Workers(8, 30))
    if sys.argv[1] == "http":
        engine, port = Telling(), int(os.environ.get("TEST_PORT", "0"))
        serve_http(make(engine), engine, Address("127.0.0.1", port), serve)
    serve_stdio(Telling(), fail if sys.argv[1] == "fail" else make)


if __name__ == "__main__":
    main()
