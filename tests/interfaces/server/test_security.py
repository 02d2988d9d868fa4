"""Who may call over HTTP: Host, Origin, token and size, one at a time."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from catalog.core.errors import ConfigError
from catalog.core.settings import ServeSettings
from catalog.interfaces.server.security import Address, guard_app, is_loopback, parse_address
from tables import table

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


@table("text, host, port, loopback")
def test_an_address_is_read(text, host, port, loopback):
    assert parse_address(text) == Address(host, port)
    assert is_loopback(parse_address(text).host) is loopback


@table("text")
def test_a_malformed_address_is_refused(text):
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        parse_address(text)


def test_a_server_that_listens_everywhere_is_reached_on_loopback():
    assert Address("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert Address("::", 80).url == "http://[::1]:80"
    assert Address("10.0.0.5", 80).url == "http://10.0.0.5:80"


@table("host, status")
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


def sent_to(serve, **scope):
    """What the guarded app sends to one who sends no body: to read it fails."""
    sent = []

    async def keep(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []} | scope
    asyncio.run(guard_app(echo, LOOPBACK, serve)(scope, None, keep))
    return sent


def test_two_host_headers_are_refused():
    hosts = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]
    assert sent_to(ServeSettings(), headers=hosts)[0]["status"] == 421


@table("origin, status")
def test_only_pages_that_are_named_may_call(origin, status):
    serve = ServeSettings(
        allowed_hosts=("catalog.example",), allowed_origins=("https://app.example/",)
    )
    answer = asked(serve, headers={"origin": origin})
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


@table("header, status")
def test_the_token_is_needed_once_it_is_set(header, status):
    answer = asked(ServeSettings(token=TOKEN), headers={"authorization": header})
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
        (b"x" * 1000, 200), (b"x" * 1001, 413), (in_pieces(500, 500), 200),
        (in_pieces(500, 501), 413), (in_pieces(1001), 413), (in_pieces(), 200),
    ],
)  # fmt: skip
def test_a_body_beyond_the_limit_is_refused_whether_or_not_it_tells_its_length(content, status):
    answer = asked(ServeSettings(max_body_bytes=1000), method="POST", content=content)
    assert answer.status_code == status
    if status == 413:
        assert refused(answer) == (413, "TooLarge")
    elif isinstance(content, bytes):
        assert answer.content == content


def test_the_body_is_not_read_before_the_token_is_checked():
    headers = [(b"host", b"127.0.0.1"), (b"transfer-encoding", b"chunked")]
    assert sent_to(ServeSettings(token=TOKEN), headers=headers)[0]["status"] == 401


def test_web_sockets_are_closed_at_once():
    (closed,) = sent_to(ServeSettings(), type="websocket")
    assert closed["type"] == "websocket.close"
