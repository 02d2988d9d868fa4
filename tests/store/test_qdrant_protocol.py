"""The Qdrant engine over HTTP: what a server does that the in-memory mode does not, and faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from qdrant_client import QdrantClient, models

from builders import drop, make_database
from catalog.core.errors import EngineError, EngineLockedError, EngineUnreachableError
from catalog.core.settings import QdrantSettings
from catalog.store.database import set_meta
from catalog.store.vectors import outbox as outbox_module
from catalog.store.vectors import qdrant_server
from catalog.store.vectors import server as server_module
from catalog.store.vectors.qdrant_server import QdrantServer, open_client
from catalog.store.vectors.server import ServerEngine
from qdrant_protocol import DRIPS, FLOODS, QdrantProtocol, qdrant_protocol
from vector_bench import DATASET, DIM, FINGERPRINT, Bench, bench, everything, paths_of, vector

pytestmark = pytest.mark.filterwarnings(
    "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
)
ALIAS = f"cat_{DATASET}"
FIRST, SECOND = f"{ALIAS}@toy-1", f"{ALIAS}@toy-1~2"
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
def engines(server: QdrantProtocol, desk: Bench) -> Iterator[Any]:
    """Make engines over the server, each with a client of its own as another process has."""
    made: list[ServerEngine] = []

    def make(fingerprint: str = FINGERPRINT, **options: Any) -> ServerEngine:
        chosen = QdrantSettings(**{"batch_size": 2, "timeout_seconds": 5, **options})
        client = open_client(server.url, None, chosen.timeout_seconds)
        engine = ServerEngine(
            desk.database,
            DATASET,
            client,
            "cat_",
            DIM,
            fingerprint,
            options=chosen,
            owns_client=True,
            sleep=lambda _seconds: None,
        )
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def answers(desk: Bench, engine: ServerEngine) -> list[str]:
    hits = engine.search(vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


def collections(server: QdrantProtocol) -> set[str]:
    return {one.name for one in server.client.get_collections().collections}


def alias_of(server: QdrantProtocol) -> str | None:
    aliases = {one.alias_name: one.collection_name for one in server.client.get_aliases().aliases}
    return aliases.get(ALIAS)


def points(server: QdrantProtocol, name: str) -> int:
    return server.client.count(name).count


def test_a_collection_is_made_as_the_settings_say(server, engines, desk):
    engine = engines(
        shard_number=3,
        replication_factor=2,
        write_consistency_factor=2,
        on_disk=True,
        quantization="int8",
        oversampling=3.0,
    )
    assert answers(desk, engine) == ALL
    wanted = ("PUT", f"/collections/{FIRST}")
    (made,) = [body for method, path, body in server.requests if (method, path) == wanted]
    assert (made["shard_number"], made["replication_factor"]) == (3, 2)
    assert made["write_consistency_factor"] == 2
    assert made["vectors"] == {"size": DIM, "distance": "Cosine", "on_disk": True}
    assert made["quantization_config"]["scalar"]["type"] == "int8"
    (asked,) = [body for _, path, body in server.requests if path.endswith("/points/query")]
    assert asked["params"]["quantization"] == {"rescore": True, "oversampling": 3.0}
    assert asked["with_payload"] == ["chunk"]


def test_payload_indexes_are_made_once_and_mended(server, engines, desk):
    engines().refresh()
    assert server.indexes[FIRST] == {"kv": "keyword", "doc_id": "keyword", "page": "float"}
    made = [path for method, path, _ in server.requests if method == "PUT" and "/index" in path]
    assert len(made) == 3
    del server.indexes[FIRST]["doc_id"]
    server.requests.clear()
    engines().refresh()
    made = [body for method, path, body in server.requests if method == "PUT" and "/index" in path]
    assert [body["field_name"] for body in made] == ["doc_id"]


def test_other_options_are_applied_to_a_collection_that_is_there(server, engines, desk):
    engines().refresh()
    again = engines(on_disk=True, quantization="int8", replication_factor=3)
    assert answers(desk, again) == ALL
    (change,) = [
        body for method, _, body in server.requests if method == "PATCH" and "params" in body
    ]
    assert change["params"]["replication_factor"] == 3
    assert change["vectors"] == {"": {"on_disk": True}}
    assert change["quantization_config"]["scalar"]["type"] == "int8"
    server.requests.clear()
    engines(on_disk=True, quantization="int8", replication_factor=3).refresh()
    assert [one for one in server.requests if one[0] == "PATCH"] == []


def test_points_go_in_several_batches_at_once(server, engines, desk):
    assert engines(batch_size=2, parallel=3).rebuild() == COUNT
    sizes = [
        len(body["points"])
        for method, path, body in server.requests
        if method == "PUT" and path.endswith("/points")
    ]
    assert sorted(sizes) == [1, 2, 2, 2]


LOST = {"status": 0, "is_done": True}  # the work is done and the answer is lost
FAULTS = [
    {"status": 429, "headers": {"Retry-After": "2"}},
    {"status": 429},
    {"status": 503},
    {"status": 0},
    LOST,
    {"status": 500, "is_done": True},
]
STEPS = [
    ("PUT", r"/collections/[^/]+$"),
    ("PUT", "/index$"),
    ("PATCH", "/collections/"),
    ("POST", "/aliases$"),
    ("DELETE", "/collections/"),
    ("POST", "/points/query$"),
]


@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        *(("PUT", "/points$", fault) for fault in FAULTS),
        *((*step, fault) for step in STEPS for fault in (FAULTS[0], LOST)),
    ],
)
def test_a_fault_in_any_step_loses_nothing_and_doubles_nothing(
    server, engines, desk, method, path, fault
):
    server.fail(method, path, times=2, **fault)
    engine = engines()
    assert answers(desk, engine) == ALL
    assert alias_of(server) == FIRST
    assert points(server, FIRST) == COUNT
    assert collections(server) == {FIRST}
    assert engine.verify() == 0


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_build_that_a_dead_server_ends_is_gone_on_with(server, engines, desk, monkeypatch, batch):
    monkeypatch.setattr(outbox_module, "BATCH", 2)
    fault = server.fail("PUT", "/points$", 503, times=10_000, skip=batch)
    with pytest.raises(EngineUnreachableError, match=rf"{server.url} failed: 503"):
        engines().refresh()
    assert alias_of(server) is None
    assert points(server, FIRST) <= 2 * batch
    fault.times = 0
    server.requests.clear()
    assert answers(desk, engines()) == ALL
    sent = [
        point["id"]
        for method, path, body in server.requests
        if method == "PUT" and path.endswith("/points")
        for point in body["points"]
    ]
    assert len(sent) == len(set(sent)) == COUNT - 2 * batch
    assert engines().verify() == 0


@pytest.mark.parametrize("left", [0, 3, None], ids=["nothing", "half", "no collection"])
def test_a_server_that_is_killed_and_comes_back_without_its_last_writes_is_filled_again(
    server, engines, desk, left
):
    engine = engines()
    engine.refresh()
    desk.put("new.md", vector(1, 0.5))
    server.fail("PUT", "/points$", 0, times=10_000, is_done=True)
    with pytest.raises(EngineUnreachableError):
        engine.refresh()
    server.faults.clear()
    if left is None:
        server.client.delete_collection(FIRST)
    else:
        records, _ = server.client.scroll(FIRST, limit=100)
        server.client.delete(FIRST, [record.id for record in records[left:]])
    engines().refresh()
    assert engines().verify() == 0
    assert points(server, alias_of(server)) == COUNT + 1
    assert sorted(answers(desk, engines())) == sorted([*ALL, "new.md"])


def test_a_batch_dropped_in_the_middle_of_an_update_is_done_again(server, engines, desk):
    engine = engines()
    engine.refresh()
    for index in range(5):
        desk.put(f"new{index}.md", vector(1, 0.1 * index))
    drop(desk.database, DATASET, "3.md")
    server.fail("PUT", "/points$", 0, times=10_000, skip=1)
    with pytest.raises(EngineUnreachableError):
        engine.refresh()
    server.faults.clear()
    assert engine.refresh() == 6
    assert engine.verify() == 0
    assert points(server, FIRST) == COUNT + 4


def test_searches_use_the_live_collection_during_a_rebuild(server, engines, desk, monkeypatch):
    live = engines()
    assert answers(desk, live) == ALL
    monkeypatch.setattr(server_module, "APPLY_WAIT_SECONDS", 0)
    seen: list[Any] = []
    original = QdrantProtocol.answer

    def answer(self, method, path, body):
        if (method, path.rpartition("/")[2]) == ("PUT", "points") and not seen:
            seen.append("search")
            seen[0] = answers(desk, live)
            seen.append(alias_of(server))
        return original(self, method, path, body)

    with monkeypatch.context() as patched:
        patched.setattr(QdrantProtocol, "answer", answer)
        patched.setattr(QdrantProtocol, "guard", threading.RLock(), raising=False)
        server.guard = threading.RLock()
        done: list[int] = []
        other = engines(parallel=1)
        worker = threading.Thread(target=lambda: done.append(other.rebuild()))
        worker.start()
        worker.join(60)
    assert done == [COUNT]
    assert seen == [ALL, FIRST]
    assert alias_of(server) == SECOND
    assert collections(server) == {SECOND}
    assert answers(desk, live) == ALL  # its collection is gone: it takes the new one
    assert engines().rebuild() == COUNT
    assert collections(server) == {FIRST}


def test_a_new_model_is_swapped_in_at_once_and_back(server, engines, desk):
    old = engines()
    assert answers(desk, old) == ALL
    new = engines("toy/2")
    assert answers(desk, new) == ALL
    assert alias_of(server) == f"{ALIAS}@toy-2"
    assert collections(server) == {FIRST, f"{ALIAS}@toy-2"}
    assert answers(desk, old) == ALL  # who has the old one open goes on in it
    desk.put("later.md", vector(1, 0.5))
    assert "later.md" in answers(desk, new)
    drop(desk.database, DATASET, "2.md")
    new.refresh()
    server.requests.clear()
    back = engines()
    assert sorted(answers(desk, back)) == sorted([*ALL[:2], *ALL[3:], "later.md"])
    sent = [
        point["id"]
        for method, path, body in server.requests
        if method == "PUT" and path.endswith("/points")
        for point in body["points"]
    ]
    assert len(sent) == 1  # what had changed alone
    assert alias_of(server) == FIRST
    assert back.verify() == 0
    third = engines("toy/3")
    third.refresh()
    assert collections(server) == {FIRST, f"{ALIAS}@toy-3"}  # the one before, no older


def test_another_store_s_build_that_is_not_live_yet_is_left_alone(server, engines, desk, tmp_path):
    other = make_database(tmp_path / "other")
    with other.write() as connection:
        set_meta(connection, "store_id", "another")
    server.fail("PUT", "/points$", 503, times=10_000)
    with pytest.raises(EngineUnreachableError):
        engines().refresh()
    server.faults.clear()
    client = QdrantClient(url=server.url, check_compatibility=False)
    second = ServerEngine(other, DATASET, client, "cat_", DIM, FINGERPRINT)
    with pytest.raises(EngineError, match="belongs"):
        second.refresh()
    client.close()
    other.close()
    assert collections(server) == {FIRST}


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
    engine._server._clock = lambda: 1e12
    assert answers(desk, engine) == ALL


def test_a_reply_that_drips_or_floods_does_not_hold_a_search(server, engines, desk, monkeypatch):
    monkeypatch.setattr(qdrant_server, "_MOST_BYTES", 1_000_000)
    engine = engines()
    engine.refresh()
    engine._server._seconds = 0.2
    for how, why in ((DRIPS, "no answer within 0.2 s"), (FLOODS, "over 1000000 bytes")):
        fault = server.fail("POST", "/points/query$", how, times=10_000)
        engine._server._failure = None  # it is asked at once, not in five seconds
        with pytest.raises(EngineUnreachableError, match=why):
            answers(desk, engine)
        fault.times = 0
    engine._server._failure = None
    assert answers(desk, engine) == ALL


def test_a_search_does_not_wait_for_another_thread_that_writes(server, engines, desk, monkeypatch):
    monkeypatch.setattr(server_module, "APPLY_WAIT_SECONDS", 0.05)
    engine, unopened = engines(), engines()
    engine.refresh()
    desk.put("new.md", vector(1))
    with ThreadPoolExecutor(1) as other:
        with engine._turns.enter(0):
            assert other.submit(answers, desk, engine).result() == ALL  # as it was
        with unopened._turns.enter(0), pytest.raises(EngineLockedError, match="another thread"):
            other.submit(answers, desk, unopened).result()
    engine._impatient_until = 0.0
    assert "new.md" in answers(desk, engine)


def test_a_packed_reply_is_refused_before_it_is_unpacked(server, engines, desk):
    engine = engines()
    engine.refresh()
    server.fail("POST", "/points/query$", 200, headers={"Content-Encoding": "gzip"}, times=10_000)
    with pytest.raises(EngineUnreachableError, match="compressed"):
        answers(desk, engine)


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
    assert engine.refresh() == 1  # who does not wait for an answer asks at once
    assert answers(desk, engine)[:2] == ["0.md", "new.md"]


def test_who_comes_while_another_process_builds_searches_what_is_live(server, engines, desk):
    engines().refresh()
    desk.put("new.md", vector(1))
    newcomer = engines()
    with FileLock(newcomer._turns._lock.lock_file):
        server.requests.clear()
        newcomer._impatient_until = float("inf")
        assert answers(desk, newcomer) == ALL
        assert server.writes() == []
        other = engines("toy/2")
        other._impatient_until = float("inf")
        with pytest.raises(EngineLockedError):  # there is none of this model: exact ones answer
            answers(desk, other)
    newcomer._impatient_until = 0
    assert answers(desk, newcomer) == ["0.md", "new.md", *ALL[1:]]


def test_an_answer_that_is_no_qdrant_s_is_reported_without_repeating_it(server, engines, desk):
    engine = engines()
    engine.refresh()
    server.client.delete(FIRST, models.Filter())
    desk.put("new.md", vector(1))
    original = QdrantProtocol.answer
    server.answer = lambda *given: (
        {"points": "SECRET"} if "query" in given[1] else original(server, *given)
    )
    with pytest.raises(EngineError, match="not a Qdrant server") as caught:
        answers(desk, engine)
    assert "SECRET" not in str(caught.value)
