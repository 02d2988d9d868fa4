"""The nearest engine: the store's server while there is one, else this process."""

import threading

import pytest

from catalog.core.errors import NoStoreError
from catalog.core.settings import Settings
from catalog.interfaces.home_socket import NearestEngine
from catalog.interfaces.mcp import catalog_server, list_documents
from catalog.interfaces.server.workers import Workers
from catalog.store import Database
from interfaces.server.test_home_socket import greets, stranger

KEY = "k" * 64
GET = ("get", {"reference": "bread.txt"})


class Local:
    """A local engine that says it is one, and keeps count of those there were."""

    def __init__(self, made):
        self.closed = 0
        self.gate = None
        made.append(self)

    def ask(self, operation, arguments):
        assert not self.closed
        if self.gate is not None:
            assert self.gate.wait(20)
            assert not self.closed
        return {"by": "local"}

    def warm(self):
        self.warmed = True

    def close(self):
        self.closed += 1


@pytest.fixture
def made():
    return []


@pytest.fixture
def now():
    return [1000.0]


@pytest.fixture
def nearest(home, made, now):
    home.mkdir(exist_ok=True)
    engine = NearestEngine(Settings(home=home), KEY, lambda: Local(made), clock=lambda: now[0])
    yield engine
    engine.close()


@pytest.fixture
def there(stub):
    """An engine that says it is the server's."""
    return stub(lambda operation, arguments: {"by": "server"})


def test_without_a_server_one_local_engine_answers_and_is_made_at_need(nearest, made):
    assert made == []
    assert nearest.ask(*GET) == nearest.ask(*GET) == {"by": "local"}
    assert len(made) == 1
    nearest.close()
    assert made[0].closed == 1
    nearest.close()
    assert made[0].closed == 1


def test_a_server_that_appears_takes_over_and_one_that_goes_is_replaced(
    nearest, made, there, served, home
):
    with served(there, home):
        assert nearest.ask(*GET) == {"by": "server"}
        nearest.warm()
    assert made == []
    for _ in range(2):
        assert nearest.ask(*GET) == {"by": "local"}
        with served(there, home):
            assert nearest.ask(*GET) == {"by": "server"}
    assert len(made) == 1


def test_a_server_that_dies_in_mid_call_costs_the_call_nothing(nearest, made, home):
    received = []

    def dies(connection):
        greets(connection)
        received.append(connection.recv_bytes())

    with stranger(home, dies):
        assert nearest.ask(*GET) == {"by": "local"}
    assert b"bread.txt" in received[0]


def test_a_lost_server_is_passed_over_for_ten_seconds(nearest, now, made, home):
    knocks = []
    with stranger(home, lambda connection: knocks.append(1)):
        nearest.ask(*GET)
        now[0] += 9.9
        nearest.ask(*GET)
        assert len(knocks) == 1
        now[0] += 0.2
        nearest.ask(*GET)
    assert len(knocks) == 2
    assert len(made) == 1


def test_a_server_that_follows_a_lost_one_is_asked_at_once(nearest, made, there, served, home):
    with stranger(home, lambda connection: None):
        assert nearest.ask(*GET) == {"by": "local"}
    with served(there, home):
        assert nearest.ask(*GET) == {"by": "server"}


def test_many_threads_make_one_local_engine(nearest, made):
    barrier, answers = threading.Barrier(8), []

    def ask():
        barrier.wait(20)
        answers.append(nearest.ask(*GET))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [{"by": "local"}] * 8
    assert len(made) == 1


def test_without_a_server_the_local_engine_is_what_is_warmed(nearest, made):
    nearest.warm()
    assert made[0].warmed


def test_before_the_first_index_there_is_no_store_and_no_command_creates_one(tmp_path):
    """An agent's server may be started before: it finds the store once there is one."""
    settings = Settings(home=tmp_path / "home")
    engine = NearestEngine.of(settings)
    with pytest.raises(NoStoreError, match="catalog index build"):
        engine.warm()
    server = catalog_server(engine, Workers(1, 20))
    assert server.instructions.endswith("There is no dataset yet.")
    assert list_documents(engine, None).resources == []
    assert not (tmp_path / "home").exists()
    Database.at(tmp_path / "home").close()
    assert engine.ask("status", {})["datasets"] == []
    engine.close()
