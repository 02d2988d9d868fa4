"""The Qdrant engine by URL: ownership of collections, retries, and LlamaIndex's view of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from filelock import FileLock
from httpx import Headers
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from sqlalchemy import delete, insert

from builders import drop, make_database
from catalog.core.documents import Chunk
from catalog.core.errors import EngineError, EngineLockedError
from catalog.core.settings import QdrantSettings
from catalog.search_v2.qdrant_store import MinimalQdrantVectorStore
from catalog.store.chunks import find_chunks
from catalog.store.schema import meta
from catalog.store.vectors import server as server_module
from catalog.store.vectors.outbox import Outbox
from catalog.store.vectors.qdrant_server import address_of, collection_name
from catalog.store.vectors.server import ServerEngine
from processes import Forked
from qdrant_protocol import qdrant_protocol
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


def engine_of(desk: Bench, fingerprint: str = FINGERPRINT, **more: Any) -> ServerEngine:
    more.setdefault("sleep", lambda _seconds: None)
    return ServerEngine(desk.database, DATASET, desk.client, "cat_", DIM, fingerprint, **more)


def answers(desk: Bench, engine: ServerEngine) -> list[str]:
    hits = engine.search(vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


ALL = [f"{index}.md" for index in range(5)]


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    counted: list[str] = []
    original = Outbox.fill

    def fill(*given):
        counted.append("built")
        return original(*given)

    monkeypatch.setattr(Outbox, "fill", fill)
    return counted


def test_a_collection_is_built_once_and_again_for_another_model(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    builds = count_builds(monkeypatch)
    assert answers(desk, engine_of(desk)) == ALL
    assert answers(desk, engine_of(desk)) == ALL
    assert builds == ["built"]
    assert answers(desk, engine_of(desk, "another/1")) == ALL
    assert builds == ["built"] * 2


def test_a_collection_that_was_not_filled_to_the_end_is_built_again(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "fill", lambda *_: (_ for _ in ()).throw(EngineError("no")))
        with pytest.raises(EngineError, match="no"):
            engine_of(desk).refresh()
    assert desk.client.collection_exists(f"cat_{DATASET}@toy-1")
    assert answers(desk, engine_of(desk)) == ALL


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


@pytest.mark.parametrize("method", ["query_points", "upsert", "delete", "collection_exists"])
def test_a_server_that_was_away_for_a_moment_is_not_noticed(
    desk: Bench, monkeypatch: pytest.MonkeyPatch, method: str
):
    pauses: list[float] = []
    engine = engine_of(desk, sleep=pauses.append)
    engine.refresh()
    engine.close()
    left = flaky(monkeypatch, desk.client, method, AWAY, status(503), status(429))
    desk.put("new.md", vector(0, 1))
    drop(desk.database, DATASET, "4.md")
    assert answers(desk, engine) == [*ALL[:4], "new.md"]
    assert left == []
    assert len(pauses) == 3


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


def test_a_write_that_failed_is_done_at_the_next_refresh(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    engine = engine_of(desk)
    engine.refresh()
    desk.put("new.md", vector(1, 0.5))
    with monkeypatch.context() as patched:
        flaky(patched, desk.client, "upsert", *[AWAY] * 9)
        with pytest.raises(EngineError):
            engine.refresh()
    assert engine.refresh() == 1
    assert answers(desk, engine) == ["0.md", "new.md", *ALL[1:]]


def test_a_search_does_not_wait_for_another_process_that_is_writing(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "APPLY_WAIT_SECONDS", 0)
    engine = engine_of(desk)
    engine.refresh()
    desk.put("new.md", vector(1))
    with FileLock(engine._turns._lock.lock_file):
        assert answers(desk, engine) == ALL
    assert answers(desk, engine) == ["0.md", "new.md", *ALL[1:]]


_HOLD = f"""
import sys
from pathlib import Path
from qdrant_client import QdrantClient
from catalog.store.database import Database
from catalog.store.vectors.server import ServerEngine

store, server, home = sys.argv[1:]
database = Database(store, Path(home))
client = QdrantClient(url=server, check_compatibility=False)
engine = ServerEngine(database, {DATASET!r}, client, "cat_", {DIM}, {FINGERPRINT!r})
with engine._turns.take(5):
    print("held", flush=True)
    sys.stdin.readline()
print(engine.refresh(), engine.verify(), flush=True)
database.close()
"""


def test_machines_that_share_a_store_take_turns_at_writing(
    on_postgres: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "APPLY_WAIT_SECONDS", 0)
    with qdrant_protocol(monkeypatch) as server, closing(Bench(tmp_path, "flat")) as desk:
        desk.client = QdrantClient(url=server.url, check_compatibility=False)
        desk.put("0.md", vector(1))
        engine = engine_of(desk)
        engine.refresh()
        url = desk.database.url.render_as_string(hide_password=False)
        command = ["-c", _HOLD, url, server.url, str(tmp_path / "another-machine")]
        with Forked(command, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n", other.communicate()[1]
            desk.put("new.md", vector(1))
            assert answers(desk, engine) == ["0.md"]
            with pytest.raises(EngineLockedError):
                engine_of(desk, "another/1").search(vector(1), 5, everything())
            said, problem = other.communicate("go on\n")
        assert said == "1 0\n", problem
        assert answers(desk, engine) == ["0.md", "new.md"]


@pytest.mark.parametrize(
    ("client", "address"),
    [
        ({"url": "http://user:pass@host:6333/path?key=x"}, "http://host:6333"),
        ({"url": "https://cloud.example"}, "https://cloud.example"),
        ({"host": "host", "port": 1234}, "host:1234"),
    ],
)
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


def test_points_carry_nothing_but_what_filters_and_joins_need(desk: Bench):
    desk.put("p.md", vector(1), texts=["secret words"], page=3, page_breaks=(4,), sections=["S"])
    engine = engine_of(desk)
    engine.refresh()
    points, _ = desk.client.scroll(engine.collection, limit=100)
    assert len(points) == 6
    told = [point.payload["page"] for point in points if "page" in (point.payload or {})]
    assert told == [[3, 4]]
    for point in points:
        assert (point.payload or {}).keys() <= {"chunk", "doc_id", "page", "kv"}
        assert "secret" not in str(point.payload)


def test_llama_index_reads_the_collection_with_texts_from_the_truth(desk: Bench):
    desk.put("long.md", [vector(1, 0.1), vector(1, 0.2)], texts=["two windows"])
    engine = engine_of(desk)
    engine.refresh()
    drop(desk.database, DATASET, "0.md")
    store = MinimalQdrantVectorStore(
        engine.collection, desk.client, database=desk.database, dataset=DATASET
    )
    answer = store.query(VectorStoreQuery(query_embedding=vector(1).tolist(), similarity_top_k=4))
    assert [node.get_content() for node in answer.nodes or []] == ["two windows", "1.md passage 0"]
    assert answer.nodes is not None
    assert answer.nodes[1].metadata["title"] == "T1"
    assert answer.nodes[1].ref_doc_id == "notes:1.md"
    only = VectorStoreQuery(
        query_embedding=vector(1).tolist(), similarity_top_k=4, doc_ids=["notes:3.md"]
    )
    assert [node.get_content() for node in store.query(only).nodes or []] == ["3.md passage 0"]
    store.delete("notes:3.md")
    assert store.query(only).nodes == []


def test_texts_added_by_llama_index_come_back() -> None:
    nodes = [TextNode(text="Walrus swims.", metadata={"a": 1}), TextNode(text="Bake bread.")]
    client = QdrantClient(":memory:")
    store = MinimalQdrantVectorStore("added", client)
    context = StorageContext.from_defaults(vector_store=store)
    model = MockEmbedding(embed_dim=DIM)
    index = VectorStoreIndex(nodes, storage_context=context, embed_model=model)
    found = index.as_retriever().retrieve("anything")
    assert {node.text: node.metadata for node in found} == {
        "Walrus swims.": {"a": 1},
        "Bake bread.": {},
    }
    assert {node.node_id for node in found} == {node.node_id for node in nodes}
    (point, *_), _ = client.scroll("added")
    assert str(point.payload).count("Walrus") + str(point.payload).count("Bake") == 1
    document = Document(text="Seals dive.", doc_id="seals")
    index.insert(document)
    found = index.as_retriever(similarity_top_k=9).retrieve("x")
    (seal,) = [node for node in found if "Seal" in node.text]
    assert (seal.node.ref_doc_id, seal.metadata) == ("seals", {})
    index.delete_ref_doc("seals")
    assert "Seals" not in " ".join(node.text for node in index.as_retriever().retrieve("x"))


def test_the_stock_llama_index_store_reads_a_collection_with_texts(desk: Bench):
    options = QdrantSettings(texts=True)
    desk.put("long.md", [vector(1, 0.1), vector(1, 0.2)], texts=["two windows"], page=3)
    engine = engine_of(desk, options=options)
    engine.refresh()
    store = QdrantVectorStore(engine.collection, client=desk.client)
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=DIM))
    found = store.query(VectorStoreQuery(query_embedding=vector(1).tolist(), similarity_top_k=9))
    assert found.nodes is not None
    texts = {node.get_content() for node in found.nodes}
    assert texts == {"two windows", *(f"{number}.md passage 0" for number in range(5))}
    (long, *_) = [node for node in found.nodes if node.get_content() == "two windows"]
    assert (long.metadata["path"], long.metadata["page"]) == ("long.md", 3)
    assert long.metadata["title"] == desk_chunk(desk, long.node_id).title
    assert long.ref_doc_id == "notes:long.md"
    only = MetadataFilters(filters=[MetadataFilter(key="path", value="3.md")])
    assert [
        node.get_content() for node in index.as_retriever(filters=only).retrieve("anything")
    ] == ["3.md passage 0"]
    assert engine.verify() == 0
    desk.put("3.md", vector(1, 3), texts=["3.md as it is now"], title="Now")
    engine.refresh()
    (now,) = index.as_retriever(filters=only).retrieve("anything")
    assert (now.node.get_content(), now.node.metadata["title"]) == ("3.md as it is now", "Now")


def desk_chunk(desk: Bench, chunk_id: str) -> Chunk:
    with desk.database.read() as connection:
        return find_chunks(connection, DATASET, [chunk_id])[0]


def test_a_collection_gets_texts_or_loses_them_as_the_settings_say(desk: Bench):
    engine_of(desk).refresh()
    with_texts = engine_of(desk, options=QdrantSettings(texts=True))
    with_texts.refresh()
    points, _ = desk.client.scroll(with_texts.collection, limit=100)
    assert ["passage" in str(point.payload) for point in points] == [True] * 5
    assert answers(desk, with_texts) == ALL
    engine_of(desk).refresh()
    points, _ = desk.client.scroll(with_texts.collection, limit=100)
    assert ["passage" in str(point.payload) for point in points] == [False] * 5


def test_a_llama_index_retriever_works_on_the_collection(desk: Bench):
    engine = engine_of(desk)
    engine.refresh()
    store = MinimalQdrantVectorStore(
        engine.collection, desk.client, database=desk.database, dataset=DATASET
    )
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=DIM))
    nodes = index.as_retriever(similarity_top_k=3).retrieve("anything")
    assert len(nodes) == 3
    assert {node.get_content() for node in nodes} <= {f"{index}.md passage 0" for index in range(5)}


def test_two_stores_with_different_prefixes_share_a_server(desk: Bench, tmp_path: Path):
    other = make_database(tmp_path / "other")
    first = engine_of(desk)
    second = ServerEngine(other, DATASET, desk.client, "two_", DIM, FINGERPRINT)
    assert answers(desk, first) == ALL
    assert second.search(vector(1), 5, everything()) == []
    other.close()
