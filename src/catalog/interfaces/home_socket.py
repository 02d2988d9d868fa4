"""The socket in a home by which its user's own processes ask the home's server.

Only its owner can open it, so the kernel says who may ask. A connection begins with the server's
greeting; then comes one call, a JSON message, and its answer, one message or several. This module
imports nothing heavy, because a command that asks a server needs only this.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from catalog import __version__
from catalog.core import errors
from catalog.core.errors import CatalogError, ConfigError, ServingError, StoreBusyError
from catalog.core.files import describe_os_error, settings_key
from catalog.core.ids import sha1_hex

if TYPE_CHECKING:
    from multiprocessing.connection import Connection, Listener

    from catalog.core.settings import Settings
    from catalog.interfaces.calls import LocalEngine

_LONGEST = 100  # bytes of a socket's path; the kernel takes 107
_MOST_BYTES = 64_000_000  # of a call
_LONGEST_GREETING = 4096  # bytes
_GREETING_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_EXTRA_SECONDS = 2.0  # beyond the server's own time limit
_PASS_OVER_SECONDS = 10.0
Message = dict[str, Any]


class Greeting(NamedTuple):
    """A server's account of itself; ``key`` is its ``settings_key``, ``seconds`` its time limit."""

    pid: int
    port: int
    key: str
    seconds: float
    version: str = __version__


class ServerGoneError(Exception):
    """No server of this release answers: answer without it."""


class OtherSettingsError(ServerGoneError):
    """The home's server has other settings."""


def socket_of(home: Path) -> Path:
    """Return the path of the home's socket, in a private folder if the home is too deep."""
    path = home / "serve.sock"
    if len(os.fsencode(path)) <= _LONGEST:
        return path
    folder = Path(tempfile.gettempdir(), f"catalog-{os.getuid()}")
    return folder / sha1_hex(str(path))[:16]


def server_of(home: Path) -> Greeting | None:
    """Return the greeting of the home's server, ``None`` without one that answers."""
    with suppress(ServerGoneError):
        connection, greeting = _connect(socket_of(home))
        with connection:
            return greeting
    return None


@contextmanager
def listening(
    home: Path, greeting: Greeting, answer: Callable[[Message], Iterator[Message]]
) -> Iterator[None]:
    """Answer calls at the home's socket until the end of the block.

    ``answer`` yields the messages of an answer, of which all but the last have ``write``. Enter
    it before other threads make files: it changes the umask of the process for a moment. Raises
    :class:`ConfigError` if the home has a server, or the socket cannot be made.
    """
    from multiprocessing.connection import Listener

    from catalog.store.database import hold_lock

    if not hasattr(socket, "AF_UNIX"):  # on Windows each process answers for itself
        yield
        return
    path = socket_of(home)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(home / "locks" / "serve.lock", seconds=0, busy="served"))
        except StoreBusyError:
            raise ConfigError(f"another process serves {home} already: use it") from None
        umask = os.umask(0o177)  # from the first moment on, only its owner can open it
        try:
            if path.parent != home:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                if path.parent.stat().st_uid != os.getuid():
                    raise PermissionError(errno.EPERM, "it belongs to another user")
                path.parent.chmod(0o700)
            path.unlink(missing_ok=True)  # of a server that was killed
            listener = stack.enter_context(Listener(str(path), "AF_UNIX", backlog=64))
        except OSError as error:
            reason = describe_os_error(path, error)
            raise ConfigError(f"cannot announce the server in {reason}") from error
        finally:
            os.umask(umask)
        accept = partial(_accept, listener, greeting, answer)
        threading.Thread(target=accept, daemon=True).start()
        yield


def _accept(
    listener: Listener, greeting: Greeting, answer: Callable[[Message], Iterator[Message]]
) -> None:
    def serve(connection: Connection) -> None:
        with connection, suppress(EOFError, OSError, ValueError, RecursionError):
            _send(connection, greeting._asdict())
            for message in answer(json.loads(connection.recv_bytes(_MOST_BYTES))):
                _send(connection, message)

    while True:
        try:
            threading.Thread(target=serve, args=(listener.accept(),), daemon=True).start()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return  # it is closed
            time.sleep(_PAUSE_SECONDS)  # until other connections end


def _send(connection: Connection, message: Mapping[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _connect(path: Path) -> tuple[Connection, Greeting]:
    """Return a connection to our own server, and its greeting."""
    from multiprocessing.connection import Client

    try:
        if path.lstat().st_uid != os.getuid():
            raise ServerGoneError(f"{path} belongs to another user")
        connection = Client(str(path), "AF_UNIX")
    except OSError as error:
        raise ServerGoneError(str(error)) from error
    with suppress(OSError, EOFError, ValueError, TypeError, RecursionError):
        if connection.poll(_GREETING_SECONDS):
            greeting = Greeting(**json.loads(connection.recv_bytes(_LONGEST_GREETING)))
            if greeting.version == __version__:
                return connection, greeting
    connection.close()
    raise ServerGoneError("no server of this release answers")


def encode_error(error: CatalogError) -> Message:
    """Return ``{"error": {"kind", "message", "details"}}``; details are the error's attributes."""
    told = {"kind": type(error).__name__, "message": str(error), "details": dict(vars(error))}
    return {"error": told}


def _decode_error(told: Message) -> Exception:
    """Return the error of a message, or the one that makes the caller answer by itself."""
    kind = getattr(errors, told["kind"], None)
    if kind is errors.StoreReplacedError:
        return ServerGoneError(told["message"])
    if not (isinstance(kind, type) and issubclass(kind, CatalogError)):
        return CatalogError(f"the server says: {told['message']}")
    error = kind.__new__(kind)
    error.args = (told["message"],)
    for name, value in (told.get("details") or {}).items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


def ask_server(
    home: Path, key: str, call: Message, seconds: float | None = None
) -> Iterator[Message]:
    """Yield the messages of the server's answer, of which all but the last have ``write``.

    Raises the errors that the verb raised there, and :class:`ServerGoneError` without a server of
    these settings or an answer within ``seconds`` (``None``: the server's own limit, and a little
    more). After the first message that is a :class:`ServingError`.
    """
    connection, greeting = _connect(socket_of(home))
    with connection:
        if greeting.key != key:
            raise OtherSettingsError("the server has other settings")
        limit = greeting.seconds + _EXTRA_SECONDS if seconds is None else seconds
        message: Message = {}
        try:
            _send(connection, call)
            while not message or "write" in message:
                if not connection.poll(limit):
                    raise TimeoutError("no answer in time")
                told = json.loads(connection.recv_bytes())
                if "error" in told:
                    raise _decode_error(told["error"])
                message = told
                yield message
        except CatalogError:
            raise
        except (OSError, EOFError, ValueError, ServerGoneError) as error:
            if message:
                raise ServingError(f"the connection broke ({error}): try again") from error
            raise ServerGoneError(str(error)) from error


class NearestEngine:
    """Ask the home's server while one runs with the same settings, else answer here.

    The local engine is made when first needed. If a server is lost during a call, that call only
    takes longer. Thread-safe.
    """

    def __init__(
        self,
        settings: Settings,
        key: str,
        make_local: Callable[[], LocalEngine],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home, self._key, self._make_local = settings.home, key, make_local
        self._clock = clock
        self._lock = threading.Lock()
        self._lost: tuple[object, float] = (None, 0.0)  # the socket of a server, and since when
        self._local: LocalEngine | None = None

    @classmethod
    def of(cls, settings: Settings, preset: str | None = None) -> NearestEngine:
        """Return the engine for settings loaded with that preset in this environment."""

        def local() -> LocalEngine:
            from catalog.interfaces.calls import LocalEngine
            from catalog.library.library import Library
            from catalog.store.database import require_store

            require_store(settings)
            return LocalEngine(Library(settings))

        return cls(settings, settings_key(settings.home, preset), local)

    def ask(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer as ``Engine.ask`` says."""
        if server := self._server():
            call = {"verb": verb, "arguments": dict(arguments), "form": None}
            try:
                (message,) = ask_server(self._home, self._key, call)
                return cast("dict[str, Any]", message["data"])
            except ServerGoneError:
                self._lost = server, self._clock()
        return self._here().ask(verb, arguments)

    def warm(self) -> None:
        """Prepare the local engine, if it is the one that would answer."""
        if self._server() is None:
            self._here().warm()

    def close(self) -> None:
        """Release the local engine."""
        with self._lock:
            local, self._local = self._local, None
        if local is not None:
            local.close()

    def _server(self) -> object:
        """Return the identity of the server's socket; ``None`` if it was just lost."""
        with suppress(OSError):
            status = socket_of(self._home).lstat()
            server, (lost, since) = (status.st_ino, status.st_ctime_ns), self._lost
            return server if server != lost or self._clock() - since >= _PASS_OVER_SECONDS else None
        return None

    def _here(self) -> LocalEngine:
        with self._lock:
            self._local = self._local or self._make_local()
            return self._local
