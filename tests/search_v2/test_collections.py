"""A Qdrant collection that other software filled: searched as it is, and never written to."""

import asyncio
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from llama_index.core.schema import QueryBundle
from qdrant_client import QdrantClient, models

from catalog.core.errors import (
    ConfigError,
    EmbeddingMismatchError,
    EngineError,
    FilterError,
    InputError,
    UnknownFieldError,
)
from catalog.core.settings import CollectionSettings, RAGv2Settings, Settings
from catalog.embedding.model import EmbeddingModel
from catalog.search_v2 import CollectionRetriever, CollectionSearch
from fakes import DIM, WordEncoder
from foreign_collection import BOOK, NAME, PASSAGES, fill
from qdrant_protocol import QdrantProtocol, qdrant_protocol
from tables import table


def add(client: QdrantClient, point_id: int, about: dict[str, Any] | None, text: str) -> None:
    vector = WordEncoder().encode([text])[0].tolist()
    client.upsert(NAME, [models.PointStruct(id=point_id, vector=vector, payload=about)])


@pytest.fixture
def client():
    made = QdrantClient(":memory:")
    fill(made)
    yield made
    made.close()


@pytest.fixture
def server(monkeypatch):
    with qdrant_protocol(monkeypatch) as running:
        fill(running.client)
        yield running


def search_of(client: Any = None, url: str | None = None, **fields: Any) -> CollectionSearch:
    fields = {"name": NAME, "url": url, **fields}
    settings = Settings(collection=CollectionSettings(**fields), rag_v2=RAGv2Settings())
    return CollectionSearch(
        settings,
        client=client,
        embed_model=EmbeddingModel(WordEncoder()),
        sleep=lambda _seconds: None,
    )


def over_http(server: QdrantProtocol, **fields: Any) -> CollectionSearch:
    return search_of(url=server.url, **fields)


def texts(results: Any) -> list[str]:
    return [result.text for result in results]


def note_of(results: Any, stage: str) -> str:
    return next(one.note for one in results.stages if one.name == stage)


def test_the_nearest_passages_come_with_their_source(client):
    results = search_of(client).search("what is a node of ROS 2", top_k=2)
    best = results[0]
    assert best.text == PASSAGES[0][0]
    assert (best.source_url, best.path) == (BOOK + "ros2", BOOK + "ros2")
    assert (best.title, best.section, best.chunk_index) == ("ROS 2", "Nodes and topics", 0)
    assert best.citation == f"ROS 2, Nodes and topics ({BOOK}ros2)"
    assert [result.rank for result in results] == [1, 2]
    assert results[0].score > results[1].score
    assert [stage.name for stage in results.stages] == [
        "collection", "embedding", "vector", "payload",
    ]  # fmt: skip
    assert note_of(results, "payload") == ""


def test_top_k_and_threshold_bound_what_comes_and_low_scores_are_flagged(client):
    search = search_of(client)
    assert len(search.search("robot", top_k=3)) == 3
    whole = search.search("robot brain plans", top_k=4)
    above = search.search("robot brain plans", top_k=4, threshold=whole[0].score - 1e-4)
    assert texts(above) == texts(whole)[:1]
    assert texts(search_of(client, threshold=0.99).search("robot")) == []
    assert list(search_of(client).search("quantum teleportation", threshold=0.9)) == []
    results = search_of(client, low_score_below=0.9).search("quantum teleportation", top_k=2)
    assert [result.is_low for result in results] == [True, True]
    assert results.low_confidence
    assert not search_of(client, low_score_below=0.5).search(PASSAGES[0][0]).low_confidence


@table("filters, expected", inner=list)
def test_filters_are_qdrant_s_to_apply(client, filters, expected):
    results = search_of(client).search("Gazebo simulation", top_k=10, filters=filters)
    assert set(texts(results)) == {PASSAGES[index][0] for index in expected}


def test_a_filter_on_a_field_that_the_collection_does_not_know_is_an_error(client):
    with pytest.raises(UnknownFieldError, match="'author'"):
        search_of(client).search("robot", filters={"author": "x"})
    with pytest.raises(FilterError, match="needs a number"):
        search_of(client).search("robot", filters={"section": {">": "a"}})


def test_an_index_changes_no_filters_meaning(server):
    server.indexes[NAME] = {"section": "keyword", "lang": "keyword"}
    search = over_http(server)
    results = search.search("x", filters={"section": "simulation"})
    assert len(results) == 1
    assert note_of(results, "vector") == "filtered"
    assert len(search.search("x", filters={"lang": "en"})) == 0  # indexed, so it may be asked


def test_a_malformed_payload_is_a_warning_and_costs_no_passage(client):
    add(client, 10, None, "zebra")
    add(client, 11, {"text": 7, "page_title": {"a": 1}, "chunk_index": "x"}, "zebra")
    add(client, 12, {"text": "zebra", "section": ["A", "B"], "chunk_index": "4"}, "zebra")
    results = search_of(client).search("zebra", top_k=3)
    by_id = {result.chunk_id: result for result in results}
    assert by_id["10"].text == ""
    assert by_id["10"].citation == "point 10"
    assert by_id["10"].path == "10"
    assert by_id["10"].source_url is None
    assert by_id["11"].text == "7"
    assert by_id["11"].title == ""
    assert by_id["12"].section == "A > B"
    assert by_id["12"].chunk_index == 4
    note = note_of(results, "payload")
    assert "1 passage without text" in note
    assert "3 passages without source_url" in note
    assert "1 passage with a page_title that is no text" in note
    assert "1 passage with a chunk_index that is no number" in note


def test_fields_may_lie_in_others_and_in_json_that_is_a_text(client):
    add(client, 20, {"page_content": "zebra stripes", "metadata": {"source": "z.html"}}, "zebra")
    found = search_of(client, text="page_content", source_url="metadata.source")
    best = found.search("zebra", top_k=1)[0]
    assert (best.text, best.source_url) == ("zebra stripes", "z.html")
    assert len(found.search("zebra", filters={"source_url": "z.html"})) == 1
    add(client, 21, {"_node_content": '{"text": "okapi legs"}'}, "okapi")
    best = search_of(client, text="_node_content.text").search("okapi", top_k=1)[0]
    assert best.text == "okapi legs"


@pytest.mark.parametrize(
    ("vectors", "name", "message"),
    [
        ({"a": models.Distance.COSINE, "b": models.Distance.DOT}, None, "set one: a, b"),
        ({"a": models.Distance.COSINE}, "c", "no vector 'c'; vectors: a"),
        (models.Distance.COSINE, "a", "has no name"),
        (models.Distance.EUCLID, None, "uses Euclid distance"),
    ],
)
def test_a_collection_that_cannot_be_searched_says_why(client, vectors, name, message):
    def params(distance):
        return models.VectorParams(size=DIM, distance=distance)

    is_named = isinstance(vectors, dict)
    config = {key: params(one) for key, one in vectors.items()} if is_named else params(vectors)
    client.create_collection("odd", vectors_config=config)
    with pytest.raises(ConfigError, match=message):
        search_of(client, name="odd", vector=name).search("robot")
    with pytest.raises(ConfigError, match=rf"'absent' at this process does not exist.*: .*{NAME}"):
        search_of(client, name="absent").search("robot")


def test_a_model_of_another_dimension_is_refused_before_the_first_search(client):
    size = models.VectorParams(size=DIM + 1, distance=models.Distance.COSINE)
    client.create_collection("wide", vectors_config=size)
    search = search_of(client, name="wide")
    with pytest.raises(EmbeddingMismatchError, match=rf"{DIM + 1} numbers, those of words {DIM}"):
        search.search("robot")


def test_a_named_vector_is_found_alone_or_by_its_name(client):
    fill(client, "named", "dense")
    for vector in (None, "dense"):
        results = search_of(client, name="named", vector=vector).search("ROS 2 node", top_k=1)
        assert texts(results) == [PASSAGES[0][0]]


def test_what_cannot_be_asked_is_refused_before_anything_is_sent(server):
    for arguments in ({"query": "  "}, {"query": "x", "top_k": 0}, {"query": "x", "top_k": "3"}):
        with pytest.raises(InputError):
            over_http(server).search(**arguments)
    assert server.requests == []


def test_over_http_nothing_but_reads_is_sent(server):
    with over_http(server, api_key="KEY") as search:
        search.search("robot", filters={"section": "planning"})
        search.check()
        retriever = CollectionRetriever(server.url, NAME, embed_model=EmbeddingModel(WordEncoder()))
        retriever.retrieve("robot")
        retriever.close()
    sent = {(method, path.rpartition("/")[2]) for method, path, _ in server.requests}
    assert sent == {
        ("GET", "exists"), ("GET", NAME), ("POST", "query"), ("POST", "count"),
    }  # fmt: skip
    assert server.writes() == []
    assert server.keys[0] == "KEY"


def test_a_server_that_is_gone_is_named_without_credentials_and_not_asked_twice(server):
    address = server.url.replace("http://", "http://user:pass@")
    search = search_of(url=address)
    server.fail("GET", "/exists$", 503, times=99)
    with pytest.raises(EngineError, match=rf"Qdrant at {server.url} failed: 503") as caught:
        search.search("robot")
    assert "pass" not in str(caught.value)
    asked = len(server.requests)
    assert asked == 4
    with pytest.raises(EngineError, match="in a few seconds"):
        search.search("robot")
    assert len(server.requests) == asked


def test_llama_index_gets_nodes_with_their_citations(client):
    retriever = CollectionRetriever(
        collection=NAME,
        client=client,
        embed_model=EmbeddingModel(WordEncoder()),
        top_k=2,
        filters={"page_title": "Digital Twin"},
        fields={"low_score_below": 0.99},
    )
    nodes = retriever.retrieve("a lidar sensor")
    assert [node.get_content() for node in nodes] == [PASSAGES[2][0], PASSAGES[1][0]]
    assert nodes[0].metadata == {
        "source_url": BOOK + "gazebo",
        "page_title": "Digital Twin",
        "section": "Sensor simulation",
        "chunk_index": 2,
        "citation": f"Digital Twin, Sensor simulation ({BOOK}gazebo)",
        "low_score": True,
    }
    own = WordEncoder().encode([PASSAGES[1][0]])[0].tolist()
    bundle = QueryBundle("whatever", embedding=own)
    nodes = asyncio.run(retriever.aretrieve(bundle))
    assert nodes[0].get_content() == PASSAGES[1][0]
    short = QueryBundle(PASSAGES[1][0], embedding=[0.6, 0.8, 0.0])  # replaced by the text's own
    assert retriever.retrieve(short) == retriever.retrieve(PASSAGES[1][0])
    assert retriever.retrieve(" ") == []
    copied = deepcopy(retriever)  # with the same client
    copied.similarity_top_k = 1
    assert len(copied.retrieve("a lidar sensor")) == 1
    assert len(retriever.retrieve("a lidar sensor")) == 2
    with pytest.raises(InputError, match="filters cannot be set here"):
        retriever.filters = {}


def test_a_wrong_text_field_is_an_error_that_names_those_there_are(client, caplog):
    model = EmbeddingModel(WordEncoder())
    make = partial(CollectionRetriever, collection=NAME, client=client, embed_model=model)
    with pytest.raises(ConfigError, match=r"'page_content'.*fields with text: .*\btext\b"):
        make(fields={"text": "page_content"}).retrieve("robot")
    with pytest.raises(ConfigError, match="page_content"):
        search_of(client, text="page_content").search("robot", filters={"page_title": "ROS"})
    add(client, 30, {"_node_content": '{"text": "okapi legs"}', "text": ""}, "okapi")
    [node] = make(similarity_top_k=1).retrieve("okapi")
    assert node.text == ""
    assert "1 of 1 passages have no text in 'text'" in caplog.text
    with pytest.raises(ConfigError, match="_node_content"):
        make(fields={"text": "none"}).retrieve("okapi legs")


def test_no_server_or_no_name_or_a_misspelled_field_is_a_sentence(client):
    with pytest.raises(ConfigError, match="titel"):
        CollectionRetriever(collection=NAME, client=client, fields={"titel": "x"})
    with pytest.raises(ConfigError, match=r"text: .*at least 1 character"):
        CollectionRetriever(collection=NAME, client=client, fields={"text": ""})
    with pytest.raises(ConfigError, match="IDX_COLLECTION__URL"):
        search_of()
    with pytest.raises(ConfigError, match="IDX_COLLECTION__NAME"):
        search_of(url="http://127.0.0.1:1", name=None)


def test_the_key_of_one_server_is_not_sent_to_another(server):
    settings = Settings(
        collection=CollectionSettings(name=NAME, url=server.url),
        rag_v2=RAGv2Settings(qdrant_url="http://127.0.0.1:1", qdrant_api_key="KEY"),
    )
    with CollectionSearch(settings, embed_model=EmbeddingModel(WordEncoder())) as search:
        search.search("robot")
    assert set(server.keys) == {None}


def test_a_check_tells_whether_the_set_model_filled_it(client):
    state = search_of(client).check()
    assert (state["points"], state["dim"], state["distance"]) == (4, DIM, "Cosine")
    assert state["fields"] == dict.fromkeys(state["fields"], 4)
    assert state["agreement"] > 0.999
    assert state["fits"]

    class Other(WordEncoder):
        def encode(self, texts):
            return super().encode([text[::-1] for text in texts])

    other = search_of(client)
    other._given_model = EmbeddingModel(Other())
    state = other.check()
    assert state["agreement"] < 0.7
    assert not state["fits"]
