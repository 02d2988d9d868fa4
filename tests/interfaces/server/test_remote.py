"""Asking a server: what it says comes back as if it had been said here, and no stranger is told."""

import json
import threading
from inspect import isclass

import pytest

from catalog import __version__
from catalog.core import errors
from catalog.core.errors import (
    ArtifactSchemaError,
    CatalogError,
    DamagedDocumentError,
    DocumentNotFoundError,
    InputError,
    MissingExtraError,
    OutOfTimeError,
    ServingError,
    StoreReplacedError,
)
from catalog.core.settings import ServeSettings
from catalog.interfaces.server import remote as remote_module
from catalog.interfaces.server.announcement import Announcement
from catalog.interfaces.server.http_errors import error_body
from catalog.interfaces.server.remote import Remote, ServerGoneError
from catalog.interfaces.terminal import Form, render
from interfaces.server.strangers import prove, read_request, reply, stranger

SECRET = "5" * 64
KINDS = [
    one
    for one in vars(errors).values()
    if isclass(one) and issubclass(one, CatalogError) and one is not StoreReplacedError
]
QUERY = {"query": "my diagnosis"}


def said(port, secret=SECRET, version=__version__):
    return Announcement(pid=1, host="127.0.0.1", port=port, secret=secret, key="k", version=version)


def made(kind):
    if kind is ArtifactSchemaError:
        return kind("it has no goals", "# Overview")
    if kind is DocumentNotFoundError:
        return kind("no document 'a'", ("b", "c"))
    if kind is DamagedDocumentError:
        return kind("notes:a.md", "a passage")
    if kind is MissingExtraError:
        return kind("this", "llm")
    return kind("so it is: “ü”")


@pytest.fixture
def quick(monkeypatch, patience):
    monkeypatch.setattr(remote_module, "_PROOF_SECONDS", 0.3)


def test_a_server_answers_as_the_engine_does(engine, served, home):
    arguments = {"reference": "keys.md:4-6"}
    with served(engine, home) as server:
        remote = Remote(server.announcement)
        assert remote.ask("get", arguments) == engine.ask("get", arguments)
        form = {"numbers": True}
        printed = render("get", engine.answer("get", arguments), Form(**form))
        assert remote.run_command("get", arguments, form) == (
            printed.out,
            printed.err,
            printed.code,
        )
        assert remote.ask("browse", {})["total"] == 3
        remote.close()
        assert remote.ask("browse", {})["total"] == 3
        remote.close()
        remote.close()


def test_every_error_of_ours_comes_back_as_what_it_was(stub, served, home):
    raising = {}

    def fail(operation, arguments):
        raise raising["error"]

    with served(stub(fail), home) as server:
        remote = Remote(server.announcement)
        for error in map(made, KINDS):
            raising["error"] = error
            with pytest.raises(CatalogError) as raised:
                remote.ask("get", {"reference": "a"})
            assert type(raised.value) is type(error)
            assert str(raised.value) == str(error)
            assert vars(raised.value) == vars(error)
        remote.close()
    assert len(KINDS) > 30


def test_a_defect_and_an_overloaded_server_are_reported(stub, served, home):
    gate = threading.Event()

    def wait_or_fail(operation, arguments):
        if arguments.get("fail"):
            raise ValueError("secret words")
        assert gate.wait(20)
        return {}

    serve = ServeSettings(timeout_seconds=0.1, max_concurrent=1)
    with served(stub(wait_or_fail), home, serve=serve) as server:
        remote = Remote(server.announcement)
        with pytest.raises(CatalogError, match="internal") as raised:
            remote.ask("get", {"fail": True})
        assert "secret words" not in str(raised.value)
        with pytest.raises(OutOfTimeError, match=r"no answer within 0\.1 seconds"):
            remote.ask("get", {})
        gate.set()
        remote.close()


def test_a_call_too_large_for_the_server_is_refused(engine, served, home):
    with served(engine, home, serve=ServeSettings(max_body_bytes=1000)) as server:
        remote = Remote(server.announcement)
        with pytest.raises(ServerGoneError):
            remote.ask("search", {"query": "x" * 2000})
        remote.close()


def test_calls_at_once_have_a_connection_each_and_later_ones_use_them_again(stub, app_of, on_port):
    barrier, seen = threading.Barrier(3), []

    def meets(operation, arguments):
        if arguments["together"]:
            barrier.wait(20)
        return {}

    app = app_of(stub(meets))

    async def noting(scope, receive, send):
        if scope["type"] == "http":
            seen.append((scope["path"], scope["client"][1]))
        await app(scope, receive, send)

    def run_in_threads(count, together):
        threads = [
            threading.Thread(target=remote.ask, args=("get", {"together": together}))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    with on_port(noting) as server:
        remote = Remote(said(server.port))
        run_in_threads(3, together=True)
        for _ in range(4):
            run_in_threads(1, together=False)
        run_in_threads(3, together=True)
        remote.close()
    assert len({port for _, port in seen}) == 3
    assert [path for path, _ in seen].count("/v1/health") == 3
    assert [path for path, _ in seen].count("/call") == 10


def test_a_closed_connection_is_opened_and_proved_again(engine, app_of, on_port):
    with on_port(app_of(engine)) as server:
        remote = Remote(said(server.port))
        assert remote.ask("get", {"reference": "bread.txt"})
    with on_port(app_of(engine), server.port):
        assert remote.ask("get", {"reference": "bread.txt"})
    with pytest.raises(ServerGoneError):
        remote.ask("get", {"reference": "bread.txt"})
    remote.close()


def test_a_server_that_is_not_there_is_gone():
    with stranger(lambda *_: None) as other:
        port = other.port
    with pytest.raises(ServerGoneError):
        Remote(said(port)).ask("search", QUERY)


def test_a_server_with_another_secret_or_of_another_release_is_gone(engine, served, home):
    with served(engine, home) as server:
        with pytest.raises(ServerGoneError, match="another server listens there"):
            Remote(said(server.port, secret="6" * 64)).ask("search", QUERY)
        with pytest.raises(ServerGoneError, match=r"catalog 99\.0"):
            Remote(said(server.port, version="99.0")).ask("search", QUERY)


def silent(connection, received):
    while read_request(connection, received):
        pass


def drips(connection, received):
    read_request(connection, received)
    pause = threading.Event()
    for _ in range(400):
        connection.sendall(b"H")
        pause.wait(0.05)
    received += b"nobody hung up"


def answers(body, status=200):
    def behave(connection, received):
        read_request(connection, received)
        reply(connection, body, status)
        read_request(connection, received)

    return behave


def sends(raw):
    def behave(connection, received):
        read_request(connection, received)
        connection.sendall(raw)
        read_request(connection, received)

    return behave


STRANGERS = {
    "silent": silent,
    "closes": lambda connection, received: None,
    "drips": drips,
    "another service": answers(b"<html>hello</html>"),
    "health without a proof": answers(b'{"status": "ok"}'),
    "health with a wrong proof": answers(json.dumps({"proof": "0" * 64}).encode()),
    "a proof that is no text": answers(b'{"proof": 7, "timeout_seconds": 1}'),
    "a proof of odd letters": answers('{"proof": "ü\\ud800"}'.encode()),
    "an older server of another store": answers(b'{"error": {"kind": "x"}}', 422),
    "no object": answers(b"[]"),
    "deep": answers(b"[" * 4000),
    "longer than a proof": answers(b" " * 5000),
    "told length is huge": sends(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"),
    "told length is absurd": sends(
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n"
    ),
    "no length": sends(b"HTTP/1.1 200 OK\r\n\r\n{}"),
    "more than told": sends(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}"),
    "not HTTP": sends(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "empty lines": sends(b"\r\n\r\n\r\n\r\n"),
    "an endless head": sends(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000),
    "bytes": sends(bytes(range(256)) + b"\r\n\r\n"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("behave", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_on_the_port_learns_nothing_and_blocks_no_call(behave):
    with stranger(behave) as other:
        remote = Remote(said(other.port))
        with pytest.raises(ServerGoneError):
            remote.ask("search", QUERY)
    assert SECRET.encode() not in other.received
    assert b"diagnosis" not in other.received
    assert b"nobody hung up" not in other.received


def test_a_server_that_dies_in_mid_call_is_gone():
    def dies(connection, received):
        prove(connection, received, SECRET)
        read_request(connection, received)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")

    with stranger(dies) as other, pytest.raises(ServerGoneError):
        Remote(said(other.port)).ask("search", QUERY)
    assert b"diagnosis" in other.received


def test_a_server_whose_store_was_replaced_is_gone(stub, served, home):
    def refuse(operation, arguments):
        raise StoreReplacedError("start the server again")

    with served(stub(refuse), home) as server:
        remote = Remote(server.announcement)
        with pytest.raises(ServerGoneError, match="start the server again"):
            remote.ask("get", {"reference": "a"})
        remote.close()


def test_a_server_that_is_stopping_is_gone():
    def stops(connection, received):
        prove(connection, received, SECRET)
        answers(json.dumps(error_body("Stopping", "ask again")).encode(), 503)(connection, received)

    with stranger(stops) as other:
        remote = Remote(said(other.port))
        with pytest.raises(ServerGoneError, match="status 503"):
            remote.ask("search", QUERY)
        remote.close()


def test_a_server_that_froze_is_gone_after_the_time_allowed():
    def freezes(connection, received):
        prove(connection, received, SECRET)
        silent(connection, received)

    with stranger(freezes) as other:
        remote = Remote(said(other.port))
        with pytest.raises(ServerGoneError, match="time"):
            remote.ask("search", QUERY, timeout=0.1)
        with pytest.raises(ServerGoneError, match="time"):
            remote.ask("search", QUERY, timeout=0.1)


def test_an_answer_after_the_time_allowed_is_not_taken_for_the_next_one():
    late = threading.Event()

    def is_late(connection, received):
        prove(connection, received, SECRET)
        while request := read_request(connection, received):
            if b"first" in request:
                assert late.wait(20)
            reply(
                connection, b'{"data": {"of": "first"}}' if b"first" in request else b'{"data": {}}'
            )

    with stranger(is_late) as other:
        remote = Remote(said(other.port))
        with pytest.raises(ServerGoneError):
            remote.ask("search", {"query": "first"}, timeout=0.1)
        late.set()
        assert remote.ask("search", {"query": "second"}) == {}
        remote.close()


@pytest.mark.parametrize("host", ["a" * 300, "h.\u00e9..x", "a b", ""])
def test_an_invalid_host_counts_as_a_server_that_is_gone(host):
    told = {"pid": 1, "port": 1, "secret": SECRET, "key": "k", "version": __version__}
    with pytest.raises(ServerGoneError):
        Remote(Announcement(host=host, **told)).ask("status", {}, 1.0)


def test_text_that_is_not_unicode_is_asked_like_any_other(engine, served, home):
    with served(engine, home) as server:
        remote = Remote(server.announcement)
        assert remote.ask("search", {"query": "z\udcff backups"})["results"]
        with pytest.raises(DocumentNotFoundError):
            remote.ask("get", {"reference": "nor\udcff.md"})
        remote.close()


ASKED = {"question": "How often are the API keys rotated?"}


def streamed(remote, arguments):
    """What comes as it is written, and the rest: output, errors, code."""
    parts, rest = [], []

    def following():
        rest.append((yield from remote.stream_command("ask", arguments, {})))

    parts.extend(following())
    return parts, rest[0]


def test_an_answer_comes_as_it_is_written_and_is_the_one_that_comes_whole(engine, served, home):
    with served(engine, home) as server:
        remote = Remote(server.announcement)
        parts, (out, err, code) = streamed(remote, ASKED)
        whole, _, _ = remote.run_command("ask", ASKED, {})
        assert parts[0].startswith("Rotate the API keys every ninety days")
        assert "".join(parts) + out == whole
        assert (code, "passages in " in err) == (0, True)
        with pytest.raises(InputError, match="nobody"):
            streamed(remote, ASKED | {"role": "nobody"})
        assert remote.ask("browse", {})["total"] == 3
        remote.close()
    with pytest.raises(ServerGoneError):
        streamed(remote, ASKED)


@pytest.mark.parametrize(
    ("sent", "error"), [(b"", ServerGoneError), (b'{"write": "A"}\n', ServingError)]
)
def test_a_server_that_breaks_off_is_passed_over_only_before_anything_came(sent, error):
    def behave(connection, received):
        prove(connection, received, SECRET)
        read_request(connection, received)
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + sent)

    with stranger(behave) as other, pytest.raises(error):
        streamed(Remote(said(other.port)), ASKED)
