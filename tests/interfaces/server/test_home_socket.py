"""The socket in a home: what its server says comes back as if it had been said here."""

import errno
import json
import os
import re
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from inspect import isclass
from multiprocessing.connection import Listener, Pipe

import pytest

from catalog.core import errors
from catalog.core.errors import (
    ArtifactSchemaError,
    CatalogError,
    ConfigError,
    DamagedDocumentError,
    DocumentNotFoundError,
    InputError,
    MissingExtraError,
    OutOfTimeError,
    ServingError,
    StoreReplacedError,
)
from catalog.core.settings import ServeSettings
from catalog.interfaces import home_socket
from catalog.interfaces.calls import VERBS
from catalog.interfaces.home_socket import (
    Greeting,
    OtherSettingsError,
    ServerGoneError,
    listening,
    server_of,
    socket_of,
)
from catalog.interfaces.terminal import Form, render
from interfaces.server.conftest import KEY, Remote

GREETING = Greeting(os.getpid(), 8180, KEY, 20.0)
KINDS = [
    one
    for one in vars(errors).values()
    if isclass(one) and issubclass(one, CatalogError) and one is not StoreReplacedError
]
TIMES = re.compile(r"[\d.]+ ms|ms\": [\d.]+")
ASKED = {"question": "How often are the API keys rotated?"}


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


@contextmanager
def stranger(home, behave):
    """A listener at the home's socket that gives each connection to ``behave``."""
    home.mkdir(exist_ok=True)
    with Listener(str(socket_of(home)), "AF_UNIX") as listener:

        def serve():
            try:
                while True:
                    with listener.accept() as connection:
                        behave(connection)
            except (OSError, EOFError):
                return

        threading.Thread(target=serve, daemon=True).start()
        yield


def greets(connection, **changes):
    connection.send_bytes(json.dumps(GREETING._asdict() | changes).encode())


@pytest.mark.slow
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_server_prints_and_answers_as_the_engine_does(engine, served, home, verb):
    arguments = {
        "search": {"query": "bread", "mode": "lexical"},
        "ask": {"question": "bread"},
        "generate": {"kind": "workflow", "topic": "bread", "model": "scripted:write"},
        "get": {"reference": "keys.md:4-6"},
        "multi_get": {"patterns": ["*.md"]},
    }.get(verb, {})
    with served(engine, home) as remote:
        parts, (out, _, code) = remote.printed(verb, arguments, {"numbers": True, "bold": True})
        assert (parts, code) == ([], 0)
        own = render(verb, engine.answer(verb, arguments), Form(numbers=True, bold=True)).out
        assert TIMES.sub("", out) == TIMES.sub("", own)
        assert remote.ask(verb, arguments).keys() == engine.ask(verb, arguments).keys()


def test_every_error_of_ours_comes_back_as_what_it_was(stub, served, home):
    raising = {}

    def fail(operation, arguments):
        raise raising["error"]

    with served(stub(fail), home) as remote:
        for error in map(made, KINDS):
            raising["error"] = error
            with pytest.raises(CatalogError) as raised:
                remote.ask("get", {"reference": "a"})
            assert type(raised.value) is type(error)
            assert str(raised.value) == str(error)
            assert vars(raised.value) == vars(error)
    assert len(KINDS) > 30


def test_a_defect_and_an_overloaded_server_are_reported(stub, served, home):
    gate = threading.Event()

    def wait_or_fail(operation, arguments):
        if arguments.get("fail"):
            raise ValueError("secret words")
        assert gate.wait(20)
        return {}

    serve = ServeSettings(timeout_seconds=0.1, max_concurrent=1)
    with served(stub(wait_or_fail), home, serve=serve) as remote:
        with pytest.raises(CatalogError, match="internal") as raised:
            remote.ask("get", {"fail": True})
        assert "secret words" not in str(raised.value)
        with pytest.raises(OutOfTimeError, match=r"no answer within 0\.1 seconds"):
            remote.ask("get", {})
        gate.set()


def test_calls_at_once_do_not_wait_for_one_another(stub, served, home):
    barrier = threading.Barrier(3)

    def meets(operation, arguments):
        barrier.wait(20)
        return {}

    with served(stub(meets), home) as remote, ThreadPoolExecutor(3) as pool:
        assert list(pool.map(remote.ask, ["get"] * 3, [{}] * 3)) == [{}] * 3


def test_a_server_of_other_settings_or_another_release_is_not_asked(engine, served, home):
    with served(engine, home, key="other"), pytest.raises(OtherSettingsError):
        Remote(home, KEY).ask("status", {})
    with (
        stranger(home, lambda connection: greets(connection, version="99.0")),
        pytest.raises(ServerGoneError, match="of this release"),
    ):
        Remote(home, KEY).ask("status", {})


@pytest.mark.parametrize(
    "behave",
    [
        lambda connection: threading.Event().wait(2),
        lambda connection: connection.close(),
        lambda connection: connection.send_bytes(b"<html>"),
        lambda connection: connection.send_bytes(b"[]"),
        lambda connection: connection.send_bytes(b'{"pid": 1}'),
        lambda connection: connection.send_bytes(b"[" * 4000),
        lambda connection: connection.send_bytes(b" " * 5000),
    ],
)
def test_what_does_not_greet_as_our_server_is_told_nothing(home, behave, monkeypatch, patience):
    monkeypatch.setattr(home_socket, "_GREETING_SECONDS", 0.3)
    with stranger(home, behave):
        assert server_of(home) is None


def test_a_server_that_freezes_in_mid_call_is_gone(home):
    def freezes(connection):
        greets(connection)
        threading.Event().wait(2)

    with stranger(home, freezes), pytest.raises(ServerGoneError, match="in time"):
        Remote(home, KEY).ask("search", {}, 0.1)


def test_an_answer_after_the_time_allowed_is_not_taken_for_the_next_one(stub, served, home):
    late = threading.Event()

    def answer(operation, arguments):
        assert arguments["query"] == "second" or late.wait(20)
        return {"of": arguments["query"]}

    with served(stub(answer), home) as remote:
        with pytest.raises(ServerGoneError):
            remote.ask("search", {"query": "first"}, 0.1)
        late.set()
        assert remote.ask("search", {"query": "second"}) == {"of": "second"}


def test_a_server_whose_store_was_replaced_is_gone(stub, served, home):
    def refuse(operation, arguments):
        raise StoreReplacedError("start the server again")

    with (
        served(stub(refuse), home) as remote,
        pytest.raises(ServerGoneError, match="start the server again"),
    ):
        remote.ask("get", {"reference": "a"})


def test_text_that_is_not_unicode_is_asked_like_any_other(engine, served, home):
    with served(engine, home) as remote:
        assert remote.ask("search", {"query": "z\udcff backups"})["results"]
        with pytest.raises(DocumentNotFoundError):
            remote.ask("get", {"reference": "nor\udcff.md"})


def test_an_answer_comes_as_it_is_written_and_is_the_one_that_comes_whole(engine, served, home):
    with served(engine, home) as remote:
        parts, (out, err, code) = remote.printed("ask", ASKED, {}, streamed=True)
        _, (whole, _, _) = remote.printed("ask", ASKED, {})
        assert parts[0].startswith("Rotate the API keys every ninety days")
        assert "".join(parts) + out == whole
        assert (code, "passages in " in err) == (0, True)
        with pytest.raises(InputError, match="nobody"):
            remote.printed("ask", ASKED | {"role": "nobody"}, {}, streamed=True)
        assert remote.ask("browse", {})["total"] == 3


@pytest.mark.parametrize(("sent", "error"), [(None, ServerGoneError), ("A", ServingError)])
def test_a_server_that_breaks_off_is_passed_over_only_before_anything_came(home, sent, error):
    def behave(connection):
        greets(connection)
        connection.recv_bytes()
        if sent:
            connection.send_bytes(json.dumps({"write": sent}).encode())

    with stranger(home, behave), pytest.raises(error):
        Remote(home, KEY).printed("ask", ASKED, {}, streamed=True)


def test_only_the_owner_can_open_it_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        with listening(tmp_path, GREETING, lambda _: iter(())):
            assert stat.S_IMODE(socket_of(tmp_path).stat().st_mode) == 0o600
            assert server_of(tmp_path) == GREETING
    finally:
        os.umask(before)
    assert not socket_of(tmp_path).exists()
    assert server_of(tmp_path) is None


def test_a_socket_of_another_user_is_not_asked(tmp_path, monkeypatch):
    with listening(tmp_path, GREETING, lambda _: iter(())):
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert server_of(tmp_path) is None


def test_a_second_server_is_refused(tmp_path):
    with (
        listening(tmp_path, GREETING, lambda _: iter(())),
        pytest.raises(ConfigError, match="another process serves"),
        listening(tmp_path, GREETING, lambda _: iter(())),
    ):
        pass


def test_the_socket_of_a_killed_server_is_replaced(tmp_path):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(socket_of(tmp_path)))
    left.close()
    assert server_of(tmp_path) is None
    with listening(tmp_path, GREETING, lambda _: iter(())):
        assert server_of(tmp_path) == GREETING


def test_a_server_without_free_files_answers_once_there_are_some(monkeypatch):
    monkeypatch.setattr(home_socket, "_PAUSE_SECONDS", 0)
    ours, theirs = Pipe()
    steps = [OSError(errno.EMFILE, "too many"), theirs, OSError(errno.EBADF, "closed")]

    class Full:
        def accept(self):
            step = steps.pop(0)
            if isinstance(step, OSError):
                raise step
            return step

    home_socket._accept(Full(), GREETING, lambda call: iter([{"data": call}]))
    assert Greeting(**json.loads(ours.recv_bytes())) == GREETING
    ours.send_bytes(b"[1]")
    assert json.loads(ours.recv_bytes()) == {"data": [1]}
    ours.close()
    assert steps == []


def test_a_home_too_deep_for_a_socket_has_it_in_a_private_folder(tmp_path):
    home = tmp_path / ("d" * 90) / ("e" * 90)
    home.mkdir(parents=True)
    with listening(home, GREETING, lambda _: iter(())):
        assert socket_of(home).parent != home
        assert stat.S_IMODE(socket_of(home).parent.stat().st_mode) == 0o700
        assert server_of(home) == GREETING
