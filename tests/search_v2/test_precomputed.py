"""Embeddings that somebody computed before: the design's tests, and what may go wrong."""

import dataclasses
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import QueryBundle

from catalog.core.errors import CatalogError, InputError
from catalog.search_v2 import PrecomputedRetriever, precomputed
from catalog.search_v2.precomputed import (
    AgentContextConfig,
    ChunkWithScore,
    ConfigError,
    EmbeddingIndex,
    QueryError,
    RetrieverConfig,
    SemanticContextRetriever,
    SemanticRetrievalError,
    read_content,
)

DIM = 1536


def name_of(number: int) -> str:
    return hashlib.sha256(f"chunk {number}".encode()).hexdigest()


def write_cache(folder: Path, vectors: Any, metadata: dict[int, Any] | None = None) -> list[str]:
    """Write vectors as files; their names, in the order of the vectors."""
    folder.mkdir(exist_ok=True)
    names = [*map(name_of, range(len(vectors)))]
    for number, vector in enumerate(vectors):
        (folder / names[number]).write_text(json.dumps([float(x) for x in vector]))
        if metadata is not None and number in metadata:
            sidecar = folder / f"{names[number]}.meta.json"
            sidecar.write_text(json.dumps(metadata[number]))
    return names


def directions(count: int, seed: int = 5) -> Any:
    vectors = np.random.default_rng(seed).normal(size=(count, DIM))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def fixture_metadata() -> dict[str, Any]:
    return {
        "source_file": "guide.md", "line_number": 2, "tags": ["python", "best-practices"],
        "chunk_index": 0, "chunk_length": 12,
    }  # fmt: skip


@pytest.fixture
def fixture_embeddings_small(tmp_path: Path, fixture_metadata: dict[str, Any]) -> Path:
    """Ten chunks of 1536 dimensions; the even ones are tagged python, and 3 nothing but odd."""
    folder = tmp_path / ".emb_cache"
    tagged = dict.fromkeys(range(0, 10, 2), fixture_metadata)
    write_cache(folder, directions(10), {**tagged, 3: {"tags": ["odd"]}})
    return folder


@pytest.fixture(scope="session")
def fixture_embeddings_large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand chunks of 1536 dimensions."""
    folder = tmp_path_factory.mktemp("large") / ".emb_cache"
    write_cache(folder, directions(1000, seed=6))
    return folder


@pytest.fixture
def fixture_query_vector() -> Any:
    """Nearest to the chunk 4 of the small fixture."""
    return directions(10)[4] + 0.01 * directions(10, seed=9)[0]


def found(chunks: list[ChunkWithScore]) -> list[str]:
    return [chunk.chunk_id for chunk in chunks]


def first_number(retriever: SemanticContextRetriever) -> float:
    index = retriever.index
    return float(index.matrix[index.ids.index(name_of(0)), 0])


def index_of(*vectors: list[float]) -> EmbeddingIndex:
    ids = [f"{number:064x}" for number in range(len(vectors))]
    return EmbeddingIndex(ids, np.array(vectors, dtype=np.float32))


def cosines(index: EmbeddingIndex, *query: float) -> list[float]:
    found = index.similarities(np.array([query], dtype=np.float32))[0]
    return [round(float(score), 6) for score in found]


# The design's unit tests.


def test_cosine_similarity():
    index = index_of([1, 0], [0, 1], [-1, 0], [0, 0], [3, 4])
    assert cosines(index, 1, 0) == [1.0, 0.0, -1.0, 0.0, 0.6]
    assert cosines(index, 10, 0) == cosines(index, 0.1, 0) == [1.0, 0.0, -1.0, 0.0, 0.6]
    assert cosines(index, 0, 0) == [0.0] * 5


def test_chunk_with_score_creation(fixture_metadata: dict[str, Any]):
    reads: list[int] = []

    def read() -> str:
        reads.append(1)
        return "the text"

    embedding = np.zeros(3, dtype=np.float32)
    chunk = ChunkWithScore("a", 0.5, embedding, fixture_metadata, read)
    assert (chunk.chunk_id, chunk.score, chunk.metadata) == ("a", 0.5, fixture_metadata)
    assert chunk.embedding is embedding
    assert not reads
    assert chunk.content == chunk.content == "the text"
    assert reads == [1]
    assert ChunkWithScore("a", 0.5, embedding, {}).content is None
    assert ChunkWithScore("a", 0.5, embedding, {}, "given").content == "given"
    with pytest.raises(dataclasses.FrozenInstanceError):
        chunk.score = 1.0


def test_batch_similarity_computation():
    chance = np.random.default_rng(1)
    matrix = chance.normal(size=(50, 8)).astype(np.float32)
    queries = chance.normal(size=(4, 8)).astype(np.float32)
    index = EmbeddingIndex([f"{number:064x}" for number in range(50)], matrix)
    scores = index.similarities(queries)
    assert scores.shape == (4, 50)
    assert scores.min() >= -1
    assert scores.max() <= 1
    for query, row in zip(queries, scores, strict=True):
        for vector, score in zip(matrix, row, strict=True):
            expected = vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
            assert score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *((RetrieverConfig, {"top_k": bad}) for bad in (0, 2.5, True)),
        *((RetrieverConfig, {"similarity_threshold": bad}) for bad in (1.5, float("nan"), "high")),
        *((RetrieverConfig, bad) for bad in ({"batch_size": 0}, {"cache_dir": " "})),
        *((AgentContextConfig, bad) for bad in ({"agent_name": ""}, {"top_k": -1})),
        *((AgentContextConfig, {"filter_by_tags": bad}) for bad in ("python", [1])),
    ],
)
def test_config_validation(kind: Any, values: dict[str, Any]):
    named = {"agent_name": "a"} if kind is AgentContextConfig else {}
    with pytest.raises(ConfigError) as caught:
        kind(**named | values)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SemanticRetrievalError)


# The design's integration tests.


def test_retriever_load_embeddings(fixture_embeddings_small: Path):
    retriever = SemanticContextRetriever(cache_dir=fixture_embeddings_small)
    assert len(retriever.index) == 10
    assert retriever.index.dim == DIM
    assert list(retriever.index.ids) == sorted(map(name_of, range(10)))
    assert retriever.index.metadata[name_of(3)] == {"tags": ["odd"]}
    assert retriever.embedding_model == "text-embedding-3-small"
    assert retriever.index.matrix.shape == (10, DIM)


def test_retriever_single_query(fixture_embeddings_small: Path, fixture_query_vector: Any):
    retriever = SemanticContextRetriever(str(fixture_embeddings_small))
    chunks = retriever.retrieve(query_embedding=fixture_query_vector, top_k=3)
    assert len(chunks) == 3
    assert chunks[0].chunk_id == name_of(4)
    assert [chunk.score for chunk in chunks] == sorted((c.score for c in chunks), reverse=True)
    assert chunks[0].score == pytest.approx(1, abs=1e-3)
    assert found(retriever.retrieve(list(fixture_query_vector * 7), top_k=3)) == found(chunks)


@pytest.mark.slow
def test_retriever_batch_query(fixture_embeddings_large: Path):
    config = RetrieverConfig(cache_dir=fixture_embeddings_large, batch_size=3)
    retriever = SemanticContextRetriever(config=config)
    queries = np.random.default_rng(2).normal(size=(7, DIM))
    batch = retriever.retrieve_batch(query_embeddings=list(queries), top_k=5)
    assert len(batch) == 7
    assert [found(chunks) for chunks in batch] == [
        found(retriever.retrieve(query, top_k=5)) for query in queries
    ]
    assert retriever.retrieve_batch([]) == []


def test_agent_config_filtering(fixture_embeddings_small: Path, fixture_query_vector: Any):
    retriever = SemanticContextRetriever(fixture_embeddings_small)
    python = AgentContextConfig(
        agent_name="a", top_k=10, similarity_threshold=-1, filter_by_tags=["python", "other"]
    )
    tagged = retriever.retrieve(fixture_query_vector, config=python)
    assert sorted(found(tagged)) == sorted(name_of(number) for number in range(0, 10, 2))
    assert len(retriever.retrieve(fixture_query_vector, 2, python)) == 2
    near = AgentContextConfig(agent_name="a", similarity_threshold=0.9)
    assert found(retriever.retrieve(fixture_query_vector, config=near)) == [name_of(4)]
    nothing = AgentContextConfig(agent_name="a", filter_by_tags=["absent"])
    assert retriever.retrieve(fixture_query_vector, config=nothing) == []


def test_a_query_in_words_is_embedded_by_the_provider(
    fixture_embeddings_small: Path, fixture_query_vector: Any
):
    provider = Provider(fixture_query_vector)
    retriever = SemanticContextRetriever(fixture_embeddings_small, provider=provider)
    config = AgentContextConfig(agent_name="code-analyzer", top_k=2)
    chunks = retriever.retrieve(query="what?", config=config)
    assert found(chunks) == found(retriever.retrieve(fixture_query_vector, config=config))
    assert PrecomputedRetriever(retriever, config=config).retrieve("what?")[0].score > 0.9
    with pytest.raises(QueryError, match="provider"):
        SemanticContextRetriever(fixture_embeddings_small).retrieve(query="what?")


# What may go wrong.


def test_a_missing_folder_is_an_empty_index_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        retriever = SemanticContextRetriever(tmp_path / "none")
    assert "there is no folder" in caplog.text
    assert retriever.retrieve([1.0, 2.0]) == []
    assert retriever.retrieve_batch([[1.0], [2.0]]) == [[], []]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "content",
    [
        "[1, 2", "", "{}", "[]", "[[1, 2]]", '["1", "2"]', "[true, false]", "[1, null]",
        "[1, NaN]", "[1, Infinity]", "[1, 1e39]", "[1, " + "9" * 400 + "]", "[" * 100_000,
    ],
)  # fmt: skip
def test_a_file_that_is_no_vector_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
):
    (tmp_path / ("a" * 64)).write_text("[1, 2]")
    (tmp_path / ("b" * 64)).write_text(content)
    (tmp_path / "notes.txt").write_text("[1, 2]")
    (tmp_path / ("c" * 64)).mkdir()
    with caplog.at_level(logging.WARNING):
        retriever = SemanticContextRetriever(tmp_path)
    assert retriever.index.ids == ("a" * 64,)
    assert "left out: " + "b" * 64 in caplog.text


def test_vectors_of_different_dimensions_are_refused_with_detail(tmp_path: Path):
    for name, numbers in (("a", "[1, 2]"), ("b", "[1, 2]"), ("c", "[1, 2, 3]")):
        (tmp_path / (name * 64)).write_text(numbers)
    with pytest.raises(ValueError, match=r"2 of 2, 1 of 3.*cccc") as caught:
        SemanticContextRetriever(tmp_path)
    assert isinstance(caught.value, precomputed.IndexError)
    assert isinstance(caught.value, CatalogError)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ([1.0], "shape"), ([[1.0, 2.0]], "shape"), ([float("nan"), 1], "NaN"),
        ([float("inf"), 1], "NaN"), ("text", "numbers"), (None, "shape"), ([1, 1e39], "float32"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_query_that_cannot_be_compared_is_refused(tmp_path: Path, query: Any, message: str):
    (tmp_path / ("a" * 64)).write_text("[1, 2]")
    with pytest.raises(QueryError) as caught:
        SemanticContextRetriever(tmp_path).retrieve(query)
    assert isinstance(caught.value, InputError)
    assert message in str(caught.value) or "NaN" in str(caught.value)
    with pytest.raises(ConfigError, match="top_k"):  # before anything else
        SemanticContextRetriever(tmp_path).retrieve(query, top_k=0)


def test_scores_below_zero_are_left_out_by_the_default_threshold(tmp_path: Path):
    (tmp_path / ("a" * 64)).write_text("[1, 0]")
    (tmp_path / ("b" * 64)).write_text("[-1, 0]")
    (tmp_path / ("c" * 64)).write_text("[0, 0]")
    assert [c.score for c in SemanticContextRetriever(tmp_path).retrieve([1, 0])] == [1.0, 0.0]
    config = RetrieverConfig(cache_dir=tmp_path, similarity_threshold=-1)
    all_of_them = SemanticContextRetriever(config=config).retrieve([1, 0])
    assert [chunk.score for chunk in all_of_them] == [1.0, 0.0, -1.0]
    for name in "fed":
        (tmp_path / (name * 64)).write_text("[1, 0]")
    best = SemanticContextRetriever(tmp_path).retrieve([1, 0], 3)
    assert [chunk.chunk_id[0] for chunk in best] == ["a", "d", "e"]  # equal scores come by id


def test_a_file_written_over_in_place_is_seen_by_reload_and_by_a_new_retriever(
    fixture_embeddings_small: Path, caplog: pytest.LogCaptureFixture
):
    retriever = SemanticContextRetriever(fixture_embeddings_small)
    for value in (2.0, 3.0):  # of the same size
        (fixture_embeddings_small / name_of(0)).write_text(json.dumps([value] * DIM))
        made = SemanticContextRetriever(fixture_embeddings_small)
        assert first_number(made) == value
    retriever.reload()
    assert first_number(retriever) == 3.0
    sidecar = fixture_embeddings_small / f"{name_of(0)}.meta.json"
    for tag in ("old", "new"):
        sidecar.write_text(json.dumps({"tags": [tag]}))
        made = SemanticContextRetriever(fixture_embeddings_small)
        assert made.index.metadata[name_of(0)] == {"tags": [tag]}
    for content in ("{", "[1]", '"text"'):  # no object: the metadata alone are lost
        caplog.clear()
        sidecar.write_text(content)
        made = SemanticContextRetriever(fixture_embeddings_small)
        assert made.index.metadata[name_of(0)] == {}
        assert "no metadata" in caplog.text
    sidecar.unlink()
    assert name_of(0) not in SemanticContextRetriever(fixture_embeddings_small).index.metadata


def test_a_folder_with_only_unreadable_names_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    assert len(SemanticContextRetriever(tmp_path).index) == 0
    assert caplog.text == ""
    (tmp_path / "chunk-1.json").write_text("[1, 0]")
    for _ in range(2):
        caplog.clear()
        assert len(SemanticContextRetriever(tmp_path).index) == 0
        assert "none of the 1 files" in caplog.text
        assert "chunk-1.json" in caplog.text


# Content.


def test_content_is_read_from_below_its_root_alone(
    fixture_embeddings_small: Path, fixture_query_vector: Any, tmp_path: Path
):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "guide.md").write_text("one\nThe second line\nthree")
    (tmp_path / "secret.md").write_text("secret\nsecret")
    config = RetrieverConfig(cache_dir=fixture_embeddings_small, content_root=root)
    chunk = SemanticContextRetriever(config=config).retrieve(fixture_query_vector, 1)[0]
    assert chunk.content == "The second l"
    assert SemanticContextRetriever(fixture_embeddings_small).retrieve(fixture_query_vector)[
        0
    ].content is None  # fmt: skip
    for metadata in (
        {"source_file": "../secret.md"}, {"source_file": str(tmp_path / "secret.md")},
        {"source_file": "absent.md"}, {"source_file": "guide.md", "line_number": 9},
        {"source_file": "guide.md", "line_number": 0}, {"source_file": 3}, {"source_file": "a\0b"},
    ):  # fmt: skip
        assert read_content(metadata, root) is None, metadata
    os.mkfifo(root / "pipe")
    assert read_content({"source_file": "pipe"}, root) is None


# LlamaIndex.


class Provider:
    def __init__(self, vector: Any) -> None:
        self._vector = [float(x) for x in vector]

    def get_query_embedding(self, query: str) -> list[float]:
        assert query == "what?"
        return self._vector


def test_it_is_a_llama_index_retriever(fixture_embeddings_small: Path, fixture_query_vector: Any):
    semantic = SemanticContextRetriever(fixture_embeddings_small)
    nodes = PrecomputedRetriever(semantic, Provider(fixture_query_vector)).retrieve("what?")
    assert [node.node_id for node in nodes] == found(semantic.retrieve(fixture_query_vector))
    assert nodes[0].node.metadata["tags"] == ["python", "best-practices"]
    given = QueryBundle("", embedding=[float(x) for x in fixture_query_vector])
    assert PrecomputedRetriever(semantic).retrieve(given)[0].score == nodes[0].score
    with pytest.raises(QueryError, match="provider"):
        PrecomputedRetriever(semantic).retrieve("what?")
