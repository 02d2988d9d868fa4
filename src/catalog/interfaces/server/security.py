"""Who may call over HTTP: checks of Host, Origin, token and size before anything is read.

Host and Origin are always checked: a web page whose name was made to point at this machine (DNS
rebinding) still sends its own name. See the transport section of the MCP specification. The MCP SDK
has such checks, too, but less strict ones: see :class:`HostCheck`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response

from catalog.core.errors import ConfigError
from catalog.core.scope import asked_as
from catalog.interfaces.plain_text import json_text

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings

ROLE = "catalog_role"  # the key of the sender's role in the state of a request
PASS = "catalog_pass"  # noqa: S105  # the name of a browser's cookie
_BRACKETED = re.compile(r"\[[^\[\]]*\](:\d*)?")
_HEADERS = ("Authorization", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version")
_NOT_INCLUDED = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)
_ALL_INTERFACES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a server; port 0 is any free one. ``host`` has no brackets."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Return ``http://host:port`` for this machine: of loopback, if it listens everywhere."""
        host = _ALL_INTERFACES.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def json_response(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer; one of status 503 says when to try again."""
    fields = dict(headers or {}) | ({"Retry-After": "1"} if status == 503 else {})
    return Response(json_text(body), status, fields, media_type="application/json")


def error_body(kind: str, message: str) -> dict[str, dict[str, str]]:
    """Return the body of an answer that is not a success."""
    return {"error": {"kind": kind, "message": message}}


def error_response(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer that is not a success."""
    return json_response(status, error_body(kind, message), headers)


def with_headers(send: Send, own: Iterable[tuple[bytes, bytes]]) -> Send:
    """Return ``send`` that adds headers to an answer that lacks them."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", ())
            names = {name for name, _ in given}
            added = [pair for pair in own if pair[0] not in names]
            message = {**message, "headers": [*given, *added]}
        await send(message)

    return send_with_headers


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT`` or ``[IPV6]:PORT``; raise :class:`ConfigError` for anything else."""
    parts = split_host_port(text.strip())
    if parts is None or not parts[0] or parts[1] is None:
        raise ConfigError(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:8180")
    return Address(parts[0], parts[1])


def is_loopback(host: str) -> bool:
    """Return whether the lower-case name can only mean this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def split_host_port(name: str) -> tuple[str, int | None] | None:
    """Return lower-case host and port of ``host[:port]``; ``None`` for any other form."""
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


def guard_app(
    app: ASGIApp,
    address: Address,
    serve: ServeSettings,
    *,
    open_paths: frozenset[str] = frozenset(),
    login: str = "",
) -> ASGIApp:
    """Return the app behind every check; paths in ``open_paths`` need no token.

    With the path of a ``login`` page, browsers may send the cookie of :func:`page_pass` instead of
    a token, and are sent to that page without one.

    421: Host is not a loopback name, ``address.host`` or one of ``serve.allowed_hosts``.
    403: Origin is sent, and is neither on such a host nor one of ``serve.allowed_origins``.
    401: the token is missing or wrong; needed when one is set. Who bears the token of a role asks
    as that role.
    413: the body is larger than ``serve.max_body_bytes``. Web sockets are refused. Pages of
    ``serve.allowed_origins`` may read the answers (CORS).
    Raises :class:`ConfigError` when other machines can connect and no token is set.
    """
    tokens = serve.tokens()
    if not is_loopback(address.host) and not tokens:
        raise ConfigError(
            f"other machines can reach {address.host}: set IDX_SERVE__TOKEN, a secret of 16 "
            "characters or more, or listen on 127.0.0.1"
        )
    inner: ASGIApp = BodyLimit(app, serve.max_body_bytes)
    if tokens:
        inner = TokenCheck(inner, tokens, open_paths, login)
    if serve.allowed_origins:
        from starlette.middleware.cors import CORSMiddleware

        inner = CORSMiddleware(
            inner,
            allow_origins=[_normalise_origin(origin) for origin in serve.allowed_origins],
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=_HEADERS,
            expose_headers=("Mcp-Session-Id",),
        )
    return HostCheck(inner, (address.host, *serve.allowed_hosts), serve.allowed_origins)


class HostCheck:
    """Pass on requests for one of our host names, except from web pages that may not call.

    Another site's page may load nothing in the background or in a frame (``Sec-Fetch-Site``): even
    a failure would reveal which documents exist. Links work.
    The SDK's ``TransportSecurityMiddleware`` (mcp 2.3) takes the first of two Host headers, an
    empty Origin and, if any port is allowed, anything after the colon. It knows only the loopback
    names that it is given, letter for letter.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = {_parse_allowed_host(host) for host in hosts}
        self._origins = {_normalise_origin(origin) for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "not offered"})
            return
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._is_own_name(hosts[0]):
            message = "this server does not have that host name: see IDX_SERVE__ALLOWED_HOSTS"
            refusal = error_response(421, "WrongHost", message)
        elif not all(map(self._is_allowed_origin, origins)):
            message = "pages of that origin may not call it: see IDX_SERVE__ALLOWED_ORIGINS"
            refusal = error_response(403, "WrongOrigin", message)
        elif not self._is_asked_by_a_person(scope["method"], headers):
            refusal = error_response(403, "WrongOrigin", "another site's page asks")
        else:
            await self._app(scope, receive, with_headers(send, _NOT_INCLUDED))
            return
        await refusal(scope, receive, send)

    def _is_asked_by_a_person(self, method: str, headers: Headers) -> bool:
        """Return whether no other site's page asks, unless it is allowed or leads a person here."""
        if set(headers.getlist("sec-fetch-site")) <= {"same-origin", "none"}:
            return True
        if any(_normalise_origin(one) in self._origins for one in headers.getlist("origin")):
            return True
        is_link = method in ("GET", "HEAD") and headers.getlist("sec-fetch-mode") == ["navigate"]
        is_early = "sec-purpose" in headers  # before anybody follows the link
        return is_link and headers.getlist("sec-fetch-dest") in (["document"], []) and not is_early

    def _is_own_name(self, name: str) -> bool:
        parts = split_host_port(name)
        return parts is not None and (
            is_loopback(parts[0]) or not self._hosts.isdisjoint((parts, (parts[0], None)))
        )

    def _is_allowed_origin(self, origin: str) -> bool:
        scheme, _, name = origin.partition("://")
        is_own = scheme.lower() in ("http", "https") and self._is_own_name(name)
        return is_own or _normalise_origin(origin) in self._origins


class TokenCheck:
    """Pass on requests with a token, as its role, and all requests to the open paths.

    ``tokens`` has the role of each token, ``None`` for one that sees everything. The app finds the
    role in ``scope["state"]`` as well, under :data:`ROLE`. ``login``: see :func:`guard_app`.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Mapping[str, str | None],
        open_paths: frozenset[str],
        login: str = "",
    ) -> None:
        self._app, self._open_paths, self._login = app, open_paths, login
        self._roles = {token.encode(): role for token, role in tokens.items()}
        self._passes = {page_pass(one).encode(): role for one, role in tokens.items() if login}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if values := headers.getlist("authorization"):
            scheme, _, given = values[0].partition(" ")
            is_bearer = len(values) == 1 and scheme.lower() == "bearer"
            found = _same_secret(given.strip(" \t"), self._roles) if is_bearer else None
        else:
            cookies = ";".join(headers.getlist("cookie")).split(";")
            named = [one.strip().partition("=") for one in cookies]
            sent = [value for name, _, value in named if name == PASS]
            found = _same_secret(sent[0], self._passes) if len(sent) == 1 else None
        if found is not None:
            (role,) = found
            with asked_as(role):
                state = {**scope.get("state", {}), ROLE: role}
                await self._app({**scope, "state": state}, receive, send)
        elif self._login:  # it leads back to where the browser was
            query = scope["query_string"]
            asked = quote(scope["path"].encode() + b"?" * bool(query) + query)
            place = f".{self._login}" + (f"?next={asked}" if scope["method"] == "GET" else "")
            await RedirectResponse(place, 303)(scope, receive, send)
        else:
            challenge = {"www-authenticate": 'Bearer realm="catalog"'}
            message = "send 'Authorization: Bearer …' with the server's token"
            refusal = error_response(401, "Unauthorized", message, challenge)
            await refusal(scope, receive, send)


def page_pass(token: str) -> str:
    """Return the value of the cookie :data:`PASS` for a token, from which nobody learns it."""
    return hmac.new(token.encode(), b"a browser may see the page", "sha256").hexdigest()


def _same_secret(sent: str, roles: Mapping[bytes, str | None]) -> tuple[str | None] | None:
    """Return the role of the secret that was sent; ``None`` if there is no such secret.

    All are compared, each in the same time, so that the time does not tell which is near.
    """
    same = [secret for secret in roles if hmac.compare_digest(sent.encode("latin-1"), secret)]
    return (roles[same[0]],) if same else None


@dataclass
class BodyLimit:
    """Pass on requests whose body has at most ``max_bytes``, after it was read."""

    app: ASGIApp
    max_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, has_more = bytearray(), True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the caller has gone
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
            if len(body) > self.max_bytes:
                told = f"the body is larger than IDX_SERVE__MAX_BODY_BYTES, {self.max_bytes} bytes"
                refusal = error_response(413, "TooLarge", told, {"connection": "close"})
                await refusal(scope, receive, send)
                return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self.app(scope, replay, send)


def _parse_allowed_host(text: str) -> tuple[str, int | None]:
    parts = split_host_port(text)
    if parts is None:
        raise ConfigError(f"{text!r} in IDX_SERVE__ALLOWED_HOSTS is not NAME or NAME:PORT")
    return parts


def _normalise_origin(text: str) -> str:
    return text.strip().rstrip("/").lower()
