"""The Qdrant engine by URL: ownership of collections, retries, and LlamaIndex's view of them."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from httpx import Headers
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from sqlalchemy import delete, insert

from builders import drop, make_database
from catalog.core.errors import EngineError
from catalog.core.filters import parse_filters
from catalog.core.settings import QdrantSettings, RAGv2Settings
from catalog.store.database import EngineSetup
from catalog.store.engines import nearest
from catalog.store.schema import meta
from catalog.store.vectors.foreign_collection import payload_condition
from catalog.store.vectors.qdrant import QdrantServerEngine, address_of, collection_name
from tables import table
from vector_bench import DATASET, DIM, FINGERPRINT, Bench, bench, everything, paths_of, vector

pytestmark = pytest.mark.filterwarnings(
    "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "qdrant-memory") as made:
        for index in range(5):
            made.put(f"{index}.md", vector(1, index), title=f"T{index}")
        yield made


def engine_of(
    desk: Bench, fingerprint: str = FINGERPRINT, sleep: Callable[[float], None] = bool
) -> QdrantServerEngine:
    rag = RAGv2Settings(qdrant=QdrantSettings(collection_prefix="cat_"))
    setup = EngineSetup(desk.database, DATASET, desk.folder / "index", rag, DIM, fingerprint)
    engine = QdrantServerEngine(setup, desk.client)
    engine.sleep = sleep
    return engine


def answers(desk: Bench, engine: QdrantServerEngine) -> list[str]:
    hits = desk.search(engine, vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


ALL = [f"{index}.md" for index in range(5)]


def test_a_collection_is_filled_once_and_again_for_another_model(desk: Bench):
    engine = engine_of(desk)
    assert answers(desk, engine) == ALL
    desk.client.delete(engine.collection, models.PointIdsList(points=[*engine._ids()][:2]))
    assert len(answers(desk, engine_of(desk))) == 3  # the record is believed
    assert answers(desk, engine_of(desk, "another/1")) == ALL


def test_points_that_a_server_lost_are_sent_at_the_next_refresh(desk: Bench):
    engine = engine_of(desk)
    engine.refresh()
    desk.client.delete(engine.collection, models.PointIdsList(points=[*engine._ids()][:2]))
    assert engine.verify() == 2
    engine.refresh()
    assert engine.verify() == 0
    desk.client.delete_collection(engine.collection)
    engine.refresh()
    assert answers(desk, engine) == ALL


def test_a_foreign_collection_is_left_alone(desk: Bench):
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    desk.client.create_collection(f"cat_{DATASET}", vectors_config=size)
    desk.client.upsert(
        f"cat_{DATASET}", [models.PointStruct(id=1, vector=vector(1).tolist(), payload={})]
    )
    engine = engine_of(desk)
    for call in (engine.refresh, engine.rebuild, lambda: answers(desk, engine)):
        with pytest.raises(EngineError, match="cat_notes"):
            call()
    assert desk.client.count(f"cat_{DATASET}").count == 1


def test_another_store_s_collection_is_taken_over_by_rebuild_only(desk: Bench):
    engine_of(desk).refresh()
    with desk.database.write() as connection:
        connection.execute(delete(meta).where(meta.c.key == "store_id"))
        connection.execute(insert(meta).values(key="store_id", value="another"))
    engine = engine_of(desk)
    with pytest.raises(EngineError, match="belongs"):
        engine.refresh()
    assert engine.rebuild() == 5
    assert answers(desk, engine_of(desk)) == ALL


def flaky(monkeypatch: pytest.MonkeyPatch, client: QdrantClient, name: str, *failures: Exception):
    """Let the client's method fail with each of these in turn before it works."""
    left, original = list(failures), getattr(client, name)

    def call(*given, **more):
        if left:
            raise left.pop(0)
        return original(*given, **more)

    monkeypatch.setattr(client, name, call)
    return left


def status(code: int) -> UnexpectedResponse:
    return UnexpectedResponse(code, "a reason", b"body with a secret", Headers())


AWAY = ResponseHandlingException(ConnectionError("connection refused"))


def test_a_server_that_stays_away_is_named_without_credentials(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    engine = engine_of(desk)
    engine.refresh()
    left = flaky(monkeypatch, desk.client, "query_points", *[AWAY] * 9)
    with pytest.raises(EngineError, match=r"this process.*connection refused"):
        answers(desk, engine)
    assert len(left) == 5


def test_a_refused_request_is_not_tried_again_and_its_body_not_repeated(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    engine = engine_of(desk)
    engine.refresh()
    left = flaky(monkeypatch, desk.client, "query_points", status(403), status(403))
    with pytest.raises(EngineError, match="403") as caught:
        answers(desk, engine)
    assert len(left) == 1
    assert "secret" not in str(caught.value)


def test_who_does_not_get_the_lock_searches_the_points_there_are_and_says_so(desk: Bench):
    engine = engine_of(desk)
    engine.refresh()
    desk.put("new.md", vector(1))
    drop(desk.database, DATASET, "1.md")
    with engine_of(desk).lock(wait=False):
        hits = desk.search(engine, vector(1), 20, everything())
        assert paths_of(desk.database, [hit.seq for hit in hits]) == [ALL[0], *ALL[2:]]
        assert "another process" in hits.fallback
    assert answers(desk, engine) == ["0.md", "new.md", *ALL[2:]]


def test_machines_that_share_a_store_take_turns_at_writing(on_postgres: object, tmp_path: Path):
    with closing(Bench(tmp_path, "qdrant-memory")) as desk:
        desk.put("0.md", vector(1))
        engine = engine_of(desk)
        engine.refresh()
        other = Bench.make(desk, desk.database, DATASET, tmp_path / "another-machine")
        other.collection = engine.collection
        desk.put("new.md", vector(1))
        with ThreadPoolExecutor(1) as machine, other.lock(wait=False):
            assert machine.submit(answers, desk, engine).result() == ["0.md"]
        assert answers(desk, engine) == ["0.md", "new.md"]


@table("client, address")
def test_addresses_in_messages_hold_no_credentials(client: dict[str, Any], address: str):
    made = QdrantClient(**client, check_compatibility=False)
    assert address_of(made) == address
    made.close()


def test_every_dataset_name_makes_a_collection_name_of_its_own():
    names = ["notes", "a/b", "a-b", "a b", "ü", "x" * 300, "x" * 301, "..", "a\\b", "NOTES"]
    made = [collection_name("c_", name) for name in names]
    assert made[0] == "c_notes"
    assert len(set(made)) == len(names)
    assert all(len(name) <= 255 and not set(name) & set('<>:"/\\|?*\0\x1f') for name in made)


def test_points_carry_what_filters_and_joins_need_and_no_text(desk: Bench):
    about = {"title": "T", "sections": ["S", "P"], "metadata": {"source_url": "https://a.example"}}
    desk.put("p.md", vector(1), texts=["secret words"], **about)
    engine = engine_of(desk)
    engine.refresh()
    points, _ = desk.client.scroll(engine.collection, limit=100)
    assert "secret" not in str(points)
    (told,) = [point.payload for point in points if "source_url" in (point.payload or {})]
    assert told.keys() == {"chunk", "doc_id", "source_url", "title", "section"}
    assert (told["title"], told["section"]) == ("T", "S > P")
    by_section = payload_condition(parse_filters("section=S > P"), {"section": "section"})
    found, _ = desk.client.scroll(
        engine.collection, models.Filter.model_validate({"must": [by_section]})
    )
    assert [one.payload for one in found] == [told]


def test_two_stores_with_different_prefixes_share_a_server(desk: Bench, tmp_path: Path):
    other = make_database(tmp_path / "other")
    first = engine_of(desk)
    rag = RAGv2Settings(qdrant=QdrantSettings(collection_prefix="two_"))
    setup = EngineSetup(other, DATASET, tmp_path / "two", rag, DIM, FINGERPRINT)
    second = QdrantServerEngine(setup, desk.client)
    assert answers(desk, first) == ALL
    assert nearest(second, other, vector(1), 5, everything()) == []
    other.close()
