"""The Qdrant engine over HTTP: what a server does that the in-memory mode does not, and faults."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders import drop
from catalog.core.errors import EngineError, EngineUnreachableError
from catalog.core.settings import QdrantSettings, RAGv2Settings
from catalog.store.database import EngineSetup
from catalog.store.vectors import points as points_module
from catalog.store.vectors.qdrant import QdrantServer, QdrantServerEngine, open_client
from qdrant_protocol import DRIPS, QdrantProtocol, qdrant_protocol
from tables import table
from vector_bench import DATASET, DIM, FINGERPRINT, Bench, bench, everything, paths_of, vector

pytestmark = pytest.mark.filterwarnings(
    "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
)
NAME = f"cat_{DATASET}"
COUNT = 7
ALL = [f"{index}.md" for index in range(COUNT)]


@pytest.fixture
def server(monkeypatch) -> Iterator[QdrantProtocol]:
    with qdrant_protocol(monkeypatch) as running:
        yield running


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "flat") as made:
        for index in range(COUNT):
            made.put(f"{index}.md", vector(1, index), title=f"T{index}")
        yield made


@pytest.fixture
def engines(server: QdrantProtocol, desk: Bench) -> Iterator[Callable[[], QdrantServerEngine]]:
    """Make engines over the server, each with a client of its own as another process has."""
    made: list[QdrantServerEngine] = []

    def make() -> QdrantServerEngine:
        chosen = QdrantSettings(collection_prefix="cat_", timeout_seconds=5)
        rag = RAGv2Settings(qdrant_url=server.url, qdrant=chosen)
        setup = EngineSetup(desk.database, DATASET, desk.folder / "i", rag, DIM, FINGERPRINT)
        made.append(QdrantServerEngine(setup))
        made[-1].sleep = bool
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def answers(desk: Bench, engine: QdrantServerEngine) -> list[str]:
    hits = desk.search(engine, vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


def points(server: QdrantProtocol) -> int:
    return server.client.count(NAME).count


def test_payload_indexes_are_made_once(server, engines, desk):
    engines().refresh()
    assert server.indexes[NAME] == {
        "doc_id": "keyword", "source_url": "keyword", "title": "text", "section": "text",
    }  # fmt: skip
    server.requests.clear()
    engines().refresh()
    assert server.writes() == []


LOST = {"status": 0, "is_done": True}  # the work is done and the answer is lost
FAULTS = [
    {"status": 429, "headers": {"Retry-After": "2"}},
    {"status": 503, "headers": {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}},
    {"status": 429},
    {"status": 503},
    {"status": 0},
    LOST,
    {"status": 500, "is_done": True},
]
STEPS = [
    ("PUT", r"/collections/[^/]+$"), ("PUT", "/index$"), ("PATCH", "/collections/"),
    ("DELETE", "/collections/"), ("POST", "/points/query$"),
]  # fmt: skip


@table("method, path, fault")
def test_a_fault_in_any_step_loses_nothing_and_doubles_nothing(
    server, engines, desk, method, path, fault
):
    server.fail(method, path, times=2, **fault)
    engine = engines()
    assert answers(desk, engine) == ALL
    assert points(server) == COUNT
    assert engine.verify() == 0


@pytest.mark.slow
@pytest.mark.parametrize("sent", [0, 1, 3])
def test_a_build_that_a_dead_server_ends_is_gone_on_with(server, engines, desk, monkeypatch, sent):
    monkeypatch.setattr(points_module, "_BATCH", 2)
    fault = server.fail("PUT", "/points$", 503, times=10_000, skip=sent)
    with pytest.raises(EngineUnreachableError, match=rf"{server.url} failed: 503"):
        engines().refresh()
    assert points(server) == 2 * sent
    fault.times = 0
    server.requests.clear()
    assert answers(desk, engines()) == ALL
    again = [
        point["id"]
        for method, path, body in server.requests
        if method == "PUT" and path.endswith("/points")
        for point in body["points"]
    ]
    assert len(again) == len(set(again)) == COUNT - 2 * sent
    assert engines().verify() == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH"])
def test_an_update_that_a_dead_server_ends_is_done_again(server, engines, desk, method):
    engine = engines()
    engine.refresh()
    desk.put("new.md", vector(1, 0.5))
    drop(desk.database, DATASET, "3.md")
    paths = {"PUT": "/points$", "POST": "/points/delete", "PATCH": "/collections/"}
    server.fail(method, paths[method], 0, times=10_000, is_done=True)
    with pytest.raises(EngineUnreachableError):
        engine.refresh()
    server.faults.clear()
    other = engines()
    other.refresh()
    assert other.verify() == engine.verify() == 0
    assert sorted(answers(desk, engine)) == sorted([*ALL[:3], *ALL[4:], "new.md"])


def test_a_search_of_a_dead_server_ends_soon_and_the_next_one_at_once(server, engines, desk):
    engine = engines()
    engine.refresh()
    server.fail("POST", "/points/query$", 503, times=10_000)
    with pytest.raises(EngineUnreachableError):
        answers(desk, engine)
    server.requests.clear()
    with pytest.raises(EngineUnreachableError, match="trying again"):
        answers(desk, engine)
    assert server.requests == []
    server.faults.clear()
    engine.server._failure = None  # it is asked at once, not in five seconds
    assert answers(desk, engine) == ALL


@pytest.mark.slow
def test_a_reply_that_drips_does_not_hold_a_search(server, engines, desk):
    engine = engines()
    engine.refresh()
    engine.server._seconds = 0.2
    fault = server.fail("POST", "/points/query$", DRIPS, times=10_000)
    with pytest.raises(EngineUnreachableError, match=r"no answer within 0\.2 s"):
        answers(desk, engine)
    fault.times = 0
    engine.server._failure = None  # it is asked at once, not in five seconds
    assert answers(desk, engine) == ALL


def test_a_key_that_cannot_be_sent_is_in_no_message(server, caplog):
    asked = QdrantServer(open_client(server.url, "SECRET ", 5), sleep=lambda _: None)
    with pytest.raises(EngineError, match="address") as raised:
        asked.call(asked.client.get_collections)
    assert "SECRET" not in f"{raised.value} {caplog.text}"
    assert caplog.records == []  # nor is it tried again


def test_a_search_with_changes_to_apply_gives_up_soon_too(server, engines, desk):
    engine = engines()
    engine.refresh()
    desk.put("new.md", vector(1))
    server.fail("PUT", "/points$", 503, times=10_000)
    server.fail("PATCH", "", 503, times=10_000)
    with pytest.raises(EngineUnreachableError):
        answers(desk, engine)
    server.requests.clear()
    with pytest.raises(EngineUnreachableError, match="trying again"):
        answers(desk, engine)
    assert server.requests == []
    server.faults.clear()
    engine.refresh()  # who does not wait for an answer asks at once
    assert answers(desk, engine)[:2] == ["0.md", "new.md"]


def test_an_answer_that_is_no_qdrant_s_is_reported_without_repeating_it(server, engines, desk):
    engine = engines()
    engine.refresh()
    desk.put("new.md", vector(1))
    original = QdrantProtocol.answer
    server.answer = lambda *given: (
        {"points": "SECRET"} if "query" in given[1] else original(server, *given)
    )
    with pytest.raises(EngineError, match="not a Qdrant server") as caught:
        answers(desk, engine)
    assert "SECRET" not in str(caught.value)
