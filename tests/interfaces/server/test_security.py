"""Who may call over HTTP: Host, Origin, token and size, one at a time."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from catalog.core.errors import ConfigError
from catalog.core.settings import ServeSettings
from catalog.interfaces.server.security import Address, guard_app, is_loopback, parse_address

LOOPBACK = Address("127.0.0.1", 8180)
TOKEN = "a token of some length"
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def echo(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body", False)
    await PlainTextResponse(body)(scope, receive, send)


def send(app, method="GET", path="/v1/status", host="127.0.0.1:8180", headers=(), content=None):
    async def go():
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            told = {"host": host, **dict(headers)}
            return await client.request(method, path, headers=told, content=content)

    return asyncio.run(go())


def asked(serve=None, address=LOOPBACK, open_paths=frozenset(), **request):
    return send(
        guard_app(echo, address, serve or ServeSettings(), open_paths=open_paths), **request
    )


def refused(answer):
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"kind", "message"}
    return answer.status_code, body["error"]["kind"]


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8180", "127.0.0.1", 8180, True),
        ("127.8.8.8:1", "127.8.8.8", 1, True),
        ("[::1]:8181", "::1", 8181, True),
        ("LocalHost:0", "localhost", 0, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("[::]:80", "::", 80, False),
        ("catalog.example:443", "catalog.example", 443, False),
    ],
)
def test_an_address_is_read(text, host, port, loopback):
    assert parse_address(text) == Address(host, port)
    assert is_loopback(parse_address(text).host) is loopback


@pytest.mark.parametrize(
    "text",
    [
        *("", ":8181", "127.0.0.1", "127.0.0.1:", "a:65536", "a:-1", "::1:80", "http://a:80"),
        *("a b:1", "[::1]", "user@a:80", "a:1/x", "a:1_0", "a:\u0663", "a:b"),
    ],
)
def test_a_malformed_address_is_refused(text):
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        parse_address(text)


def test_a_server_that_listens_everywhere_is_reached_on_loopback():
    assert Address("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert Address("::", 80).url == "http://[::1]:80"
    assert Address("10.0.0.5", 80).url == "http://10.0.0.5:80"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8180", 200),
        ("127.0.0.1", 200),
        ("localhost:3000", 200),
        ("LOCALHOST", 200),
        ("[::1]:8180", 200),
        ("catalog.example", 200),
        ("catalog.example:99", 200),
        ("behind.example:8443", 200),
        ("behind.example", 421),
        ("behind.example:8444", 421),
        ("evil.example", 421),
        ("evil.example:8180", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("catalog.example.evil.example", 421),
        ("catalog.example@evil.example", 421),
        ("evil.example#catalog.example", 421),
        ("127.0.0.1:port", 421),
        ("", 421),
    ],
)
def test_only_our_own_names_are_answered(host, status):
    serve = ServeSettings(allowed_hosts=("catalog.example", "behind.example:8443"))
    answer = asked(serve, host=host)
    assert answer.status_code == status
    if status == 421:
        assert refused(answer) == (421, "WrongHost")


def test_the_name_it_listens_on_is_its_own():
    serve = ServeSettings(token=TOKEN)
    assert asked(serve, Address("box.lan", 80), host="box.lan", headers=BEARER).status_code == 200
    assert asked(serve, Address("fd00::1", 80), host="[fd00::1]:80", headers=BEARER).is_success
    assert asked(serve, Address("box.lan", 80), host="other.lan", headers=BEARER).is_client_error


def test_two_host_headers_are_refused():
    app, sent = guard_app(echo, LOOPBACK, ServeSettings()), []
    hosts = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": hosts}

    async def keep(message):
        sent.append(message)

    asyncio.run(app(scope, None, keep))
    assert sent[0]["status"] == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("https://catalog.example", 200),
        ("https://app.example", 200),
        ("https://APP.example", 200),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil.example", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://localhost", 403),
        ("chrome-extension://127.0.0.1", 403),
    ],
)
def test_only_pages_that_are_named_may_call(origin, status):
    serve = ServeSettings(
        allowed_hosts=("catalog.example",), allowed_origins=("https://app.example/",)
    )
    answer = asked(serve, headers={} if origin is None else {"origin": origin})
    assert answer.status_code == status
    if status == 403:
        assert refused(answer) == (403, "WrongOrigin")


def test_a_named_page_may_read_the_answer_and_ask_beforehand():
    serve = ServeSettings(allowed_origins=("https://app.example",), token=TOKEN)
    page = {"origin": "https://app.example"}
    before = asked(
        serve,
        method="OPTIONS",
        headers={
            **page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        },
    )
    assert before.status_code == 200
    for answer in (before, asked(serve, headers=page | BEARER), asked(serve, headers=page)):
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in asked(serve, headers=BEARER).headers
    unnamed = asked(serve, method="OPTIONS", headers={"origin": "http://localhost:1"})
    assert unnamed.status_code == 401


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
    ],
)
def test_the_token_is_needed_once_it_is_set(header, status):
    headers = {} if header is None else {"authorization": header}
    answer = asked(ServeSettings(token=TOKEN), headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert refused(answer) == (401, "Unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in answer.text


def test_a_token_with_letters_beyond_ascii_works():
    token = "schlüssel für alle türen"
    headers = [("authorization", f"Bearer {token}".encode())]
    assert asked(ServeSettings(token=token), headers=headers).status_code == 200


def test_an_open_path_needs_no_token_but_its_host_is_checked():
    serve, health = ServeSettings(token=TOKEN), frozenset(["/v1/health"])
    assert asked(serve, open_paths=health, path="/v1/health").status_code == 200
    assert asked(serve, open_paths=health, path="/v1/health/").status_code == 401
    assert asked(serve, open_paths=health, path="/v1/status").status_code == 401
    evil = asked(serve, open_paths=health, path="/v1/health", host="evil.example")
    assert evil.status_code == 421


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.lan"])
def test_where_others_can_connect_a_token_is_demanded_at_once(host):
    with pytest.raises(ConfigError, match="IDX_SERVE__TOKEN"):
        guard_app(echo, Address(host, 80), ServeSettings())
    guard_app(echo, Address(host, 80), ServeSettings(token=TOKEN))


def test_an_allowed_host_that_is_an_address_of_a_page_is_refused_at_once():
    with pytest.raises(ConfigError, match="ALLOWED_HOSTS"):
        guard_app(echo, LOOPBACK, ServeSettings(allowed_hosts=("https://catalog.example",)))


def in_pieces(*sizes):
    async def pieces():
        for size in sizes:
            yield b"x" * size

    return pieces()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"x" * 1000, 200),
        (b"x" * 1001, 413),
        (in_pieces(500, 500), 200),
        (in_pieces(500, 501), 413),
        (in_pieces(1001), 413),
        (in_pieces(), 200),
    ],
)
def test_a_body_beyond_the_limit_is_refused_whether_or_not_it_tells_its_length(content, status):
    answer = asked(ServeSettings(max_body_bytes=1000), method="POST", content=content)
    assert answer.status_code == status
    if status == 413:
        assert refused(answer) == (413, "TooLarge")
    elif isinstance(content, bytes):
        assert answer.content == content


def test_the_body_is_not_read_before_the_token_is_checked():
    sent = []

    async def never():
        raise AssertionError("read")

    async def keep(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    asyncio.run(guard_app(echo, LOOPBACK, ServeSettings(token=TOKEN))(scope, never, keep))
    assert sent[0]["status"] == 401


def test_web_sockets_are_closed_at_once():
    sent = []

    async def keep(message):
        sent.append(message)

    app = guard_app(echo, LOOPBACK, ServeSettings())
    asyncio.run(app({"type": "websocket", "path": "/", "headers": []}, None, keep))
    assert [message["type"] for message in sent] == ["websocket.close"]
