"""A small store behind the HTTP edge: as an app in this process, and on a real port."""

import asyncio
import os
import threading
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace

import httpx
import pytest
import uvicorn

from catalog.core.settings import ServeSettings
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.home_socket import Greeting, ask_server
from catalog.interfaces.home_socket import listening as listening_in
from catalog.interfaces.server.asgi import answer_calls, build_app
from catalog.interfaces.server.security import Address
from catalog.interfaces.server.workers import Workers
from fakes import open_library
from stores import store_of

KEY = "k" * 64
LOOPBACK = Address("127.0.0.1", 8180)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A server of a busy machine is not lost after a second."""
    monkeypatch.setattr("catalog.interfaces.home_socket._GREETING_SECONDS", 60.0)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture(scope="session")
def engine():
    """An engine on a store of three notes that no test changes."""
    files = {
        "notes/keys.md": "---\ntags: [ops, security]\n---\n# Keys\n\n## Rotating\n\n"
        "Rotate the API keys every ninety days with the keys command.\n",
        "notes/guides/backup.md": "# Backups\n\nBackups run at midnight and are kept.\n",
        "notes/bread.txt": "Mix flour, water and yeast. Bake the bread at 230 degrees.\n",
    }
    with LocalEngine(open_library(store_of(files))) as engine:
        yield engine


class StubEngine:
    """Answers with a function of the operation and its arguments; any status is that of nothing."""

    def __init__(self, answer):
        self._answer = answer

    def ask(self, operation, arguments):
        return {"datasets": []} if operation == "status" else self._answer(operation, arguments)

    def answer(self, operation, arguments):
        found = self.ask(operation, arguments)
        return SimpleNamespace(to_dict=lambda: found)

    def check_store(self):
        pass

    def observe(self, observer):
        pass

    def close(self):
        pass


@pytest.fixture
def stub():
    return StubEngine


@pytest.fixture
def app_of():
    """The app of an engine, as ``catalog serve`` builds it."""
    return lambda engine, **serve: build_app(engine, LOOPBACK, ServeSettings(**serve))


@lru_cache(maxsize=4)
def app_with(engine, serve):
    """The app of an engine and settings: building one takes longer than most requests to it."""
    return build_app(engine, LOOPBACK, ServeSettings(**dict(serve)))


@pytest.fixture
def asked():
    """Sends one request to an app of the engine, in this process."""

    def ask(engine, method, path, serve=None, **request):
        app = app_with(engine, frozenset((serve or {}).items()))
        return asyncio.run(send(app, method, path, **request))

    return ask


@pytest.fixture
def sending():
    """Sends one request to an app, in a loop that runs already."""
    return send


@pytest.fixture
def served():
    return serving


@pytest.fixture
def on_port():
    return listening


async def send(app, method, path, **request):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8180") as client:
        return await client.request(method, path, **request)


@contextmanager
def listening(app, port=0):
    """The app on a port, in a thread; yields the port and a way to stop it early."""
    config = uvicorn.Config(app, port=port, log_config=None, timeout_graceful_shutdown=1)
    server, started = uvicorn.Server(config), threading.Event()
    startup = server.startup

    async def tell(sockets=None):
        await startup(sockets)
        started.set()

    server.startup = tell
    thread = threading.Thread(target=server.run)
    thread.start()

    def stop():
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()

    try:
        assert started.wait(20)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield SimpleNamespace(port=port, stop=stop)
    finally:
        stop()


class Remote:
    """Asks the home's server."""

    def __init__(self, home, key):
        self._server = home, key

    def ask(self, verb, arguments, seconds=None):
        call = {"verb": verb, "arguments": arguments, "form": None}
        (message,) = ask_server(*self._server, call, seconds)
        return message["data"]

    def printed(self, verb, arguments, form, *, streamed=False):
        """What comes as it is written, and the rest: output, errors, code."""
        call = {"verb": verb, "arguments": arguments, "form": form, "streamed": streamed}
        *parts, rest = ask_server(*self._server, call)
        return [part["write"] for part in parts], (rest["out"], rest["err"], rest["code"])


@contextmanager
def serving(engine, home, *, key=KEY, serve=None):
    """The engine as ``catalog serve`` answers this user's processes; yields how to ask it."""
    serve = serve or ServeSettings()
    workers = Workers(serve.max_concurrent, serve.timeout_seconds)
    greeting = Greeting(os.getpid(), 8180, key, serve.timeout_seconds)
    with listening_in(home, greeting, answer_calls(engine, workers)):
        yield Remote(home, key)
