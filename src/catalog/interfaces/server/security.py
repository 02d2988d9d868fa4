"""Who may call over HTTP: checks of Host, Origin, token and size before anything is read.

Host and Origin are checked always: a web page whose name was made to point at this machine (DNS
rebinding) still sends its own name. See the transport section of the MCP specification.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from catalog.core.errors import ConfigError
from catalog.interfaces.server.http_errors import send_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings


_BRACKETED = re.compile(r"\[[^\[\]]*\](:\d*)?")
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens; port 0 is any free one. ``host`` has no brackets."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def reachable_host(self) -> str:
        """The host to connect to from this machine: loopback, if it listens everywhere."""
        return _ANYWHERE.get(self.host, self.host)

    @property
    def url(self) -> str:
        """``http://host:port``, as this machine reaches it."""
        host = self.reachable_host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``HOST:PORT`` or ``[IPV6]:PORT``; raises :class:`ConfigError` for anything else."""
    found = split_host_port(text.strip())
    if found is None or not found[0] or found[1] is None:
        raise ConfigError(f"{text!r} is no address: write HOST:PORT, such as 127.0.0.1:8180")
    return Address(found[0], found[1])


def is_loopback(host: str) -> bool:
    """Whether the name, in small letters, can only mean this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def split_host_port(name: str) -> tuple[str, int | None] | None:
    """Host in small letters and port of ``host[:port]``; ``None`` if it is neither."""
    if not name.isascii() or any(char in "/?#@\\%" or char.isspace() for char in name):
        return None
    if name.count(":") > 1 and not name.startswith("["):
        name = f"[{name}]"  # a bare IPv6 address, as settings and Address.host have it
    try:
        parts = urlsplit(f"//{name}")
        if "]" in name and not _BRACKETED.fullmatch(name):
            return None  # urlsplit passes over what follows the bracket
        return ((parts.hostname or "").lower(), parts.port)
    except ValueError:
        return None


_DIGITS = 19  # of a length; more is nobody's
_METHODS = ("GET", "POST", "DELETE")
_HEADERS = ("Authorization", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version")


def guard_app(
    app: ASGIApp,
    address: Address,
    serve: ServeSettings,
    *,
    open_paths: frozenset[str] = frozenset(),
) -> ASGIApp:
    """The app behind every check; paths in ``open_paths`` need no token.

    421: Host is no loopback name, nor ``address.host``, nor one of ``serve.allowed_hosts``.
    403: Origin is sent and is on none of those, nor one of ``serve.allowed_origins``.
    401: the token is missing or wrong; needed when one is set.
    413: the body is larger than ``serve.max_body_bytes``; a body of untold length is read whole
    before the app sees it. Web sockets are refused. Pages of ``serve.allowed_origins`` are told
    that they may read the answers (CORS).
    Raises :class:`ConfigError` when others can connect and no token is set.
    """
    if not address.is_loopback and serve.token is None:
        raise ConfigError(
            f"{address.host} can be reached by others: set IDX_SERVE__TOKEN, a secret of 16 "
            "characters or more, or listen on 127.0.0.1"
        )
    inner: ASGIApp = _Sized(app, serve.max_body_bytes)
    if serve.token is not None:
        inner = _Tokened(inner, serve.token, open_paths)
    if serve.allowed_origins:
        from starlette.middleware.cors import CORSMiddleware

        inner = CORSMiddleware(
            inner,
            allow_origins=[_origin(one) for one in serve.allowed_origins],
            allow_methods=_METHODS,
            allow_headers=_HEADERS,
            expose_headers=("Mcp-Session-Id",),
        )
    return _Named(inner, (address.host, *serve.allowed_hosts), serve.allowed_origins)


class _Named:
    """Lets through what was sent to one of our names, from none or an allowed web page."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = {_name(one) for one in hosts}
        self._origins = {_origin(one) for one in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "not offered"})
            return
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            message = "this server is not known by that name: see IDX_SERVE__ALLOWED_HOSTS"
            await send_error(send, 421, "WrongHost", message)
        elif not all(map(self._may_call, origins)):
            message = "pages of that origin may not call: see IDX_SERVE__ALLOWED_ORIGINS"
            await send_error(send, 403, "WrongOrigin", message)
        else:
            await self._app(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        found = split_host_port(name)
        if found is None:
            return False
        return is_loopback(found[0]) or found in self._hosts or (found[0], None) in self._hosts

    def _may_call(self, origin: str) -> bool:
        if _origin(origin) in self._origins:
            return True
        scheme, _, name = origin.partition("://")
        return scheme.lower() in ("http", "https") and self._is_ours(name)


class _Tokened:
    """Lets through who bears the token, and everybody to the open paths."""

    def __init__(self, app: ASGIApp, token: str, open_paths: frozenset[str]) -> None:
        self._app = app
        self._token = token.encode("utf-8")
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            given = _values(scope, b"authorization")
            if len(given) != 1 or not self._is_right(given[0]):
                challenge = {"www-authenticate": 'Bearer realm="catalog"'}
                message = "send 'Authorization: Bearer …' with the server's token"
                await send_error(send, 401, "Unauthorized", message, challenge)
                return
        await self._app(scope, receive, send)

    def _is_right(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        same = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        return same and scheme.lower() == "bearer"


class _Sized:
    """Lets through bodies up to a size."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lengths = _values(scope, b"content-length")
        if not lengths and _values(scope, b"transfer-encoding"):
            await self._of_untold_length(scope, receive, send)
        elif not all(one.isdecimal() and len(one) < _DIGITS for one in lengths):
            await send_error(send, 400, "BadRequest", "Content-Length makes no sense")
        elif any(int(one) > self._most for one in lengths):
            await self._refuse(send)
        else:
            await self._app(scope, receive, send)

    async def _of_untold_length(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the caller has gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most:
                await self._refuse(send)
                return
        kept: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return kept.pop() if kept else await receive()

        await self._app(scope, replay, send)

    async def _refuse(self, send: Send) -> None:
        message = f"the body is larger than {self._most} bytes: see IDX_SERVE__MAX_BODY_BYTES"
        await send_error(send, 413, "TooLarge", message, {"connection": "close"})


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _name(text: str) -> tuple[str, int | None]:
    found = split_host_port(text)
    if found is None:
        raise ConfigError(f"{text!r} in IDX_SERVE__ALLOWED_HOSTS is no name, nor NAME:PORT")
    return found


def _origin(text: str) -> str:
    return text.strip().rstrip("/").lower()
