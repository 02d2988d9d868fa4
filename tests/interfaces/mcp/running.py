"""Server processes for tests, and clients of them that plain functions can use."""

import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from processes import Forked

HERE = Path(__file__).parent
DEADLINE = 30
_URL = re.compile(r"http://[^;\s]+")


def environment(signs, **more):
    """Variables of a server process; ``signs`` is where it tells of held calls."""
    shared = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return shared | {"TEST_SIGNS": str(signs)} | more


def serving(store, transport):
    """The arguments of a server on the store of a home, or of stubs (``stub``)."""
    return [str(HERE / "serving.py"), str(store), transport]


def stdio_server(arguments, signs):
    """What a client starts."""
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment(signs))


@contextmanager
def http_server(arguments, signs, **variables):
    """A server process and its URL; it is ended as Ctrl-C would."""
    server = Forked(
        arguments, env=environment(signs, **variables), stderr=subprocess.PIPE, text=True
    )
    with server:
        try:
            line = ""
            while not (found := _URL.search(line)):
                line = server.stderr.readline()
                assert line, "the server ended"
            yield server, found[0]
        finally:
            if server.poll() is None:
                server.terminate()
            _, told = server.communicate(timeout=DEADLINE)
            assert "Traceback" not in told, told


@asynccontextmanager
async def bearing(url, token):
    """A client's way to a server that demands a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


class Talk:
    """A client in an event loop of its own thread."""

    def __init__(self, portal, client):
        self.portal = portal
        self.client = client

    def call(self, name, **arguments):
        return self.portal.call(self.client.call_tool, name, arguments)

    def later(self, name, **arguments):
        """A future, which may be cancelled."""
        return self.portal.start_task_soon(self.client.call_tool, name, arguments)

    def do(self, method, *arguments, **named):
        async def run():
            return await getattr(self.client, method)(*arguments, **named)

        return self.portal.call(run)


@contextmanager
def talk(server, mode="auto"):
    """A session with a server: its parameters, its URL or a transport."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(server, mode=mode, cache=None)) as client,
    ):
        yield Talk(portal, client)
