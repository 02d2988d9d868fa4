"""The keyword engine on a Qdrant server: what a server does, and what happens when it fails."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from builders import drop, make_database, put
from catalog.core.errors import CatalogError, ConfigError, EngineError, EngineUnreachableError
from catalog.core.filters import Op, condition
from catalog.core.settings import QdrantSettings, RAGv2Settings
from catalog.library.indexing import Indexer, rebuild_indexes
from catalog.retrieval.legs import Question, lexical_leg, run_leg
from catalog.search_v2.service import SearchServiceV2
from catalog.store.database import Database, set_meta
from catalog.store.engine_types import Restriction
from catalog.store.lexical import (
    get_lexical_engine,
    qdrant_words,
    word_collection,
)
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.lexical.qdrant_words import QdrantWordsEngine
from catalog.store.vectors.qdrant_server import open_client
from catalog.store.vectors.server_index import read_note, write_note
from fakes import open_library
from qdrant_protocol import QdrantProtocol, qdrant_protocol

WHOLE = Restriction("notes")
COLLECTION = "cat_notes~words"
POINTS = "/points$"
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


@pytest.fixture
def server(monkeypatch) -> Iterator[QdrantProtocol]:
    with qdrant_protocol(monkeypatch) as running:
        yield running


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def engines(server: QdrantProtocol, database: Database) -> Iterator[Any]:
    """Make engines over the server, each with a client of its own as another process has."""
    made: list[QdrantWordsEngine] = []

    def make(dataset: str = "notes", prefix: str = "cat_", **options: Any) -> QdrantWordsEngine:
        engine = QdrantWordsEngine(
            database,
            dataset,
            open_client(server.url, None, 5),
            prefix,
            options=QdrantSettings(**{"batch_size": 2, "timeout_seconds": 5, **options}),
            owns_client=True,
            sleep=lambda _seconds: None,
        )
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def fill(database: Database, count: int, dataset: str = "notes") -> None:
    """Store short passages of few words, some far more frequent than others."""
    drawn = random.Random(5)
    weights = [2.0**-n for n in range(len(WORDS))]
    for index in range(count):
        words = drawn.choices(WORDS, weights, k=drawn.randint(3, 30))
        put(database, dataset, f"{dataset}{index}.md", " ".join(words))


def seqs(engine: QdrantWordsEngine, text: str = "alpha theta") -> list[int]:
    return [hit.seq for hit in engine.search(text, 1000, WHOLE)]


def bodies(server: QdrantProtocol, method: str, end: str) -> list[Any]:
    return [body for verb, path, body in server.requests if verb == method and path.endswith(end)]


def ids(server: QdrantProtocol) -> set[int]:
    records, _ = server.client.scroll(COLLECTION, limit=10_000)
    return {int(record.id) for record in records}


def test_a_collection_is_made_as_the_settings_say(server, engines, database):
    fill(database, 3)
    engine = engines(shard_number=3, replication_factor=2, on_disk=True)
    engine.refresh()
    (made,) = bodies(server, "PUT", f"/{COLLECTION}")
    assert (made["shard_number"], made["replication_factor"]) == (3, 2)
    words = made["sparse_vectors"]["words"]
    assert (words["modifier"], words["index"]["on_disk"]) == ("idf", True)


def test_it_ranks_and_spreads_as_bm25_does(engines, database, tmp_path):
    fill(database, 60)
    engine, bm25 = engines(), Bm25Engine(database, "notes", tmp_path / "bm25")
    for text in ("theta", "alpha eta", "gamma zeta zeta", "nothing of it", "the"):
        wanted, got = bm25.search(text, 20, WHOLE), engine.search(text, 20, WHOLE)
        assert [hit.score for hit in got] == pytest.approx([hit.score for hit in wanted], rel=0.025)
        assert got.spread == pytest.approx(wanted.spread, rel=0.025)


def test_a_spread_over_more_than_the_sample_is_near_the_exact_one(engines, database, monkeypatch):
    fill(database, 300)
    exact = engines().search("alpha delta", 400, WHOLE).spread
    monkeypatch.setattr(word_collection, "SAMPLE", 200)
    drawn = engines().search("alpha delta", 5, WHOLE).spread
    assert drawn != exact
    assert drawn == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("most_named", [1, 1000])
def test_a_filter_holds_named_or_looked_through(engines, database, monkeypatch, most_named):
    fill(database, 120)
    monkeypatch.setattr(qdrant_words, "MOST_NAMED", most_named)
    some = Restriction("notes", filter=condition("path", Op.IN, ("notes3.md", "notes90.md")))
    engine = engines()
    everything = engine.search("alpha theta", 1000, WHOLE)
    within = engine.search("alpha theta", 5, some)
    allowed = {hit.seq for hit in within}
    assert len(allowed) == 2
    assert within == [hit for hit in everything if hit.seq in allowed]
    assert within.spread == pytest.approx(everything.spread)


def test_only_what_changed_is_sent(server, engines, database):
    for index in range(6):
        put(database, "notes", f"notes{index}.md", "theta alpha beta gamma alpha beta")
    engine = engines()
    assert len(seqs(engine)) == 6
    server.requests.clear()
    drop(database, "notes", "notes0.md")
    [new] = put(database, "notes", "new.md", "theta alpha beta beta alpha beta")
    assert new in seqs(engine)
    sent = [point["id"] for body in bodies(server, "PUT", "/points") for point in body["points"]]
    assert sent == [new]
    assert len(ids(server)) == 6


def test_another_process_finds_the_index_complete_and_writes_nothing(server, engines, database):
    fill(database, 6)
    first = seqs(engines())
    server.requests.clear()
    assert seqs(engines()) == first
    assert server.writes() == []


@pytest.mark.parametrize("status", [0, 500, 503])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_fault_that_passes_loses_nothing_and_doubles_nothing(
    server, engines, database, status, is_done
):
    fill(database, 9)
    server.fail("PUT", POINTS, status, times=2, skip=1, is_done=is_done)
    assert len(seqs(engines())) == 9
    assert len(ids(server)) == 9


def test_a_build_that_was_cut_off_goes_on_where_it_was(server, engines, database):
    fill(database, 9)
    fault = server.fail("PUT", POINTS, 500, times=1000, skip=2)
    with pytest.raises(EngineUnreachableError):
        engines().refresh()
    kept = ids(server)
    assert 0 < len(kept) < 9
    fault.times = 0
    server.requests.clear()
    engines().refresh()
    sent = {point["id"] for body in bodies(server, "PUT", "/points") for point in body["points"]}
    assert len(ids(server)) == 9
    assert sent.isdisjoint(kept)


def test_a_change_of_the_average_that_was_cut_off_leaves_no_mixture(server, engines, database):
    fill(database, 9)
    first = engines()
    first.refresh()
    long = put(database, "notes", "long.md", "alpha beta " * 400)
    fault = server.fail("PUT", POINTS, 500, times=1000, skip=2)
    with pytest.raises(EngineUnreachableError):
        engines().refresh()
    fault.times = 0
    drop(database, "notes", "long.md")
    engine = engines()
    assert long[0] not in seqs(engine)
    assert engine.verify() == 0


@pytest.mark.parametrize("how", ["without the collection", "without its last points"])
def test_a_server_that_came_back_with_less_is_filled_again(server, engines, database, how):
    fill(database, 6)
    engine = engines()
    before = seqs(engine)
    if how == "without the collection":
        server.client.delete_collection(COLLECTION)
    else:
        server.client.delete(COLLECTION, before[:2])
    engine.refresh()
    assert seqs(engine) == before


def test_the_next_search_rebuilds_a_collection_that_disappears_during_a_search(
    server, engines, database
):
    fill(database, 6)
    engine = engines()
    before = seqs(engine)
    server.client.delete_collection(COLLECTION)
    assert engine.search("alpha", 5, WHOLE).fallback.startswith("Qdrant at ")
    again = engine.search("alpha theta", 1000, WHOLE)
    assert ([hit.seq for hit in again], again.fallback) == (before, "")


def test_a_server_that_is_away_leaves_the_search_to_the_store(server, engines, database):
    fill(database, 6)
    engine = engines()
    found = set(seqs(engine))
    server.fail("POST", "/points/query/batch$", 503, times=1000)
    run = run_leg(lexical_leg(database, engine, WHOLE, 20), Question("alpha theta"))
    assert run.error is None
    assert (run.engine, {hit.seq for hit in run.hits}) == ("fts", found)
    assert "503" in run.fallback
    assert "searched the store's full text instead" in run.note


def test_a_restriction_to_more_passages_than_were_indexed_comes_to_an_end(
    server, engines, database, monkeypatch
):
    """Another process adds some after the search has looked for what is new."""
    fill(database, 2)
    engine = engines()
    engine.refresh()
    read_allowed = engine._allowed

    def add_and_read(restriction):
        fill(database, 20)
        engines().refresh()
        return read_allowed(restriction)

    monkeypatch.setattr(engine, "_allowed", add_and_read)
    server.requests.clear()
    hits = engine.search("alpha beta", 10, Restriction("notes", without=("nothing",)))
    assert len(hits) == 10
    assert len(server.requests) < 40


def test_a_search_waits_little_for_a_server_that_fails_every_batch(server, engines, database):
    fill(database, 9)
    pauses: list[float] = []
    engine = engines()
    engine._server._sleep = pauses.append
    server.fail("PUT", POINTS, 503, times=1000, headers={"Retry-After": "30"})
    assert engine.search("alpha", 5, WHOLE).fallback
    assert sum(pauses) < 6


def test_a_list_of_points_without_an_end_is_an_error(server, engines, database):
    fill(database, 3)
    engine = engines()
    engine.refresh()
    fill(database, 4)
    one = {"id": 7, "payload": {"key": 1, "length": 2, "language": 0}}
    for points in ([one] * 1000, []):
        server.lies["/scroll"] = {"points": points, "next_page_offset": 7}
        with pytest.raises(EngineError, match="more points"):
            engine.search("alpha", 5, WHOLE)


def test_too_few_answers_are_an_error(server, engines, database):
    fill(database, 3)
    engine = engines()
    engine.refresh()
    server.lies["/query/batch"] = []
    with pytest.raises(EngineError, match="0 answers to 2 questions"):
        engine.search("alpha", 5, WHOLE)


def test_while_another_thread_brings_it_up_the_store_answers(engines, database, monkeypatch):
    monkeypatch.setattr(qdrant_words, "APPLY_WAIT_SECONDS", 0.05)
    fill(database, 3)
    engine = engines()
    with ThreadPoolExecutor(1) as other, engine._turns.enter(0):
        hits = other.submit(engine.search, "alpha theta", 20, WHOLE).result()
    assert "another thread" in hits.fallback
    assert len(hits) == 3


def test_a_dataset_may_be_called_as_the_words_of_another(server, tmp_path):
    options = {"vector_engine": "qdrant", "lexical_engine": "qdrant", "qdrant_url": server.url}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "sun.md").write_text("# Sun\n\nThe sun is hot.\n")
    with open_library(tmp_path / "home", **options) as library:
        service = SearchServiceV2(library)
        for _ in range(2):
            for name in ("notes", "notes.words"):
                Indexer(library).build(tmp_path / "a", name)
                results = service.search("sun", dataset=name, strict=True)
                assert [hit.dataset for hit in results] == [name]


def test_a_key_that_is_refused_is_an_error(server, engines, database):
    fill(database, 2)
    server.fail("GET", "/exists$", 403, times=1000)
    run = run_leg(lexical_leg(database, engines(), WHOLE, 20), Question("alpha"))
    assert isinstance(run.error, EngineError)
    assert "QDRANT_API_KEY" in str(run.error)


def test_collections_of_other_programs_and_stores_are_not_touched(server, engines, database):
    fill(database, 2)
    server.client.create_collection(COLLECTION, vectors_config={})
    with pytest.raises(EngineError, match="not made"):
        engines().refresh()
    server.client.delete_collection(COLLECTION)
    engines().refresh()
    with database.write() as connection:
        set_meta(connection, "store_id", "another")
    with pytest.raises(EngineError, match="another catalog store"):
        engines().refresh()
    assert len(ids(server)) == 2


def test_a_point_that_is_not_as_in_the_truth_is_found_and_mended(server, engines, database):
    fill(database, 5)
    engine = engines()
    before = engine.search("alpha theta", 20, WHOLE)
    assert engine.verify() == 0
    [record, *_] = server.client.scroll(COLLECTION)[0]
    other = models.SparseVector(indices=[1], values=[0.5])
    wrong = models.PointStruct(id=record.id, vector={"words": other}, payload=record.payload)
    server.client.upsert(COLLECTION, [wrong])
    assert engine.verify() == 1
    assert engine.search("alpha theta", 20, WHOLE) == before
    assert engine.verify() == 0


@pytest.mark.parametrize(
    "told",
    [
        {"average": "x"},
        {"average": 0},
        {"average": None},
        {"languages": ["x"]},
        {"words": "others"},
    ],
    ids=repr,
)
def test_an_invalid_note_is_written_again(engines, database, told):
    fill(database, 5)
    engine = engines()
    before = engine.search("alpha theta", 20, WHOLE)
    note = read_note(engine._server, COLLECTION)
    write_note(engine._server, COLLECTION, note | told)
    other = engines()
    assert other.search("alpha theta", 20, WHOLE) == before
    assert other.verify() == 0


@pytest.mark.parametrize(
    "told",
    [{"key": "x"}, {"length": 10**30}, {"language": 999}, {"language": -1}, {"key": None}, None],
    ids=repr,
)
def test_invalid_points_are_written_again(server, engines, database, told):
    fill(database, 5)
    engine = engines()
    before = engine.search("alpha theta", 20, WHOLE)
    if told is None:  # one that is not ours
        one = models.SparseVector(indices=[1], values=[1.0])
        foreign = models.PointStruct(id=str(uuid.UUID(int=9)), vector={"words": one}, payload={})
        server.client.upsert(COLLECTION, [foreign])
    else:
        server.client.set_payload(COLLECTION, told, points=[before[0].seq])
    note = read_note(engine._server, COLLECTION)
    write_note(engine._server, COLLECTION, note | {"state": None})
    assert engines().search("alpha theta", 20, WHOLE) == before
    assert server.client.count(COLLECTION).count == 5


def test_several_datasets_answer_together(engines, database):
    fill(database, 10)
    fill(database, 10, "other")
    parts = [engines("notes"), engines("other")]
    joined = parts[0].join(parts[1:])
    both = Restriction(("notes", "other"))
    hits = joined.search("alpha theta", 50, both)
    alone = [part.search("alpha theta", 50, Restriction(part.dataset)) for part in parts]
    assert sorted(hits) == sorted(hit for one in alone for hit in one)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits.spread.mean == pytest.approx(sum(one.spread.mean for one in alone) / 2)
    assert sum(joined.languages().values()) == 20


def test_several_datasets_are_searched_in_the_store_while_the_server_is_away(
    server, engines, database
):
    fill(database, 4)
    fill(database, 4, "other")
    joined = engines("notes").join([engines("other")])
    both = Restriction(("notes", "other"))
    found = {hit.seq for hit in joined.search("alpha theta", 50, both)}
    server.fail("POST", "/points/query/batch$", 503, times=1000)
    away = joined.search("alpha theta", 50, both)
    assert {hit.seq for hit in away} == found
    assert away.fallback.count("searched the store's full text instead") == 1


def test_a_rebuild_mends_the_words_and_leaves_the_vectors_of_that_name(server, tmp_path, notes):
    told = {"vector_engine": "exact", "qdrant_url": server.url, "lexical_engine": "qdrant"}
    with open_library(tmp_path / "home", **told) as library:
        Indexer(library).build(notes, "notes")
        vectors = library.indexes.folder("notes") / "qdrant"
        vectors.mkdir(parents=True)
        [record, *_] = server.client.scroll("catalog_notes~words")[0]
        other = models.SparseVector(indices=[1], values=[0.5])
        wrong = models.PointStruct(id=record.id, vector={"words": other}, payload=record.payload)
        server.client.upsert("catalog_notes~words", [wrong])
        rebuild_indexes(library, vectors=False)
        assert vectors.is_dir()
        assert library.indexes.lexical("notes").verify() == 0


def test_without_a_server_it_is_refused(database, tmp_path):
    with pytest.raises(ConfigError, match="IDX_RAG_V2__QDRANT_URL"):
        get_lexical_engine("qdrant", database, "notes", tmp_path, rag=RAGv2Settings())


def test_without_a_server_it_is_refused_before_a_file_is_read(tmp_path, notes):
    with open_library(tmp_path / "home", lexical_engine="qdrant") as library:
        with pytest.raises(ConfigError, match="IDX_RAG_V2__QDRANT_URL"):
            Indexer(library).build(notes, "notes")
        assert library.datasets() == []


def test_one_server_serves_both_legs_and_the_store_answers_while_it_is_away(
    server, tmp_path, notes
):
    own = {"vector_engine": "qdrant", "qdrant_url": server.url, "lexical_engine": "qdrant"}
    with open_library(tmp_path / "both", **own) as library:
        Indexer(library).build(notes, "notes")
        service = SearchServiceV2(library)
        found = service.search("rotate the api keys")
        assert {report.name: report.note for report in found.stages}["lexical"].startswith(
            "qdrant: "
        )
        assert found[0].path == "keys.md"
        assert {"catalog_notes~words", "catalog_notes"} <= names(server)
        for method in ("GET", "POST", "PUT"):
            server.fail(method, "/(collections|aliases)", 503, times=10_000)
        away = service.search("rotate the api keys")
        assert away[0].path == "keys.md"
        with pytest.raises(CatalogError, match="503"):
            service.search("rotate the api keys", strict=True)


def names(server: QdrantProtocol) -> set[str]:
    aliases = {one.alias_name for one in server.client.get_aliases().aliases}
    return aliases | {one.name for one in server.client.get_collections().collections}


def test_a_missing_address_is_reported_before_a_file_is_read(tmp_path, notes):
    with open_library(tmp_path / "home", lexical_engine="qdrant") as library:
        with pytest.raises(ConfigError, match="IDX_RAG_V2__QDRANT_URL"):
            Indexer(library).build(notes, "notes")
        assert library.datasets() == []
