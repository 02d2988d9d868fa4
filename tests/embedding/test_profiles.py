"""Known models by their names, shorter vectors, and ONNX graphs that are not the whole model."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from catalog.core.errors import ConfigError, ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.embedding import get_encoder, get_model
from catalog.embedding.fastembed import FastEmbedEncoder, read_pooling
from catalog.embedding.profiles import PROFILES, profile_of, published_name
from embedding_server import running_server
from onnx_models import make_onnx_model
from tables import table

ROOT = Path(__file__).parents[2]
LEAF = "MongoDB/mdbr-leaf-ir"
GEMMA = "google/embeddinggemma-300m"
ARCTIC = "Snowflake/snowflake-arctic-embed-m-v1.5"


@table("name, published")
def test_a_known_model_is_known_by_the_names_of_servers_and_folders(name, published):
    assert published_name(name) == published


def test_each_embedding_model_of_the_guide_has_a_profile():
    guide = (ROOT / "docs/how-to/embedding-model.md").read_text(encoding="utf-8")
    table = guide.partition("| embedding model |")[2].partition("| reranker |")[0]
    models = re.findall(r"^\| `(\S+)` \|(?:[^|]+\|){3} ([^|]+) \|", table, re.MULTILINE)
    assert len(models) == 10
    for name, languages in models:
        profile = PROFILES[name]
        assert profile.dim
        assert profile.max_tokens
        assert all(0 < shorter < profile.dim for shorter in profile.shorter)
        assert (profile.languages == ("english",)) == (languages == "English")


def test_a_folder_named_after_a_model_has_its_prefix_and_pooling(tmp_path):
    folder = make_onnx_model(tmp_path / "snowflake-arctic-embed-s", dim=384)
    model = get_model(EmbeddingSettings(model=str(folder)))
    assert model.query_prefix == "Represent this sentence for searching relevant passages: "
    assert model.document_prefix == ""
    [vector] = model.embed(["ice tea"]).vectors
    assert vector[:4] == pytest.approx([1, 0, 0, 0])  # the first token: [CLS]


@pytest.mark.parametrize("form", ["old", "new"])
@pytest.mark.parametrize(("pooling", "first"), [("cls", [1, 0, 0]), ("mean", [1, 1, 1])])
def test_a_folder_without_a_known_name_is_pooled_as_its_files_say(tmp_path, pooling, first, form):
    folder = make_onnx_model(tmp_path / "mine", dim=8, pooling=pooling, form=form)
    [vector] = get_model(EmbeddingSettings(model=str(folder))).embed(["ice tea"]).vectors
    assert vector[:3] == pytest.approx(np.array(first) / np.linalg.norm(first))


@table("pooling, layers")
def test_a_graph_without_the_last_steps_is_refused_and_names_what_has_them(
    tmp_path, pooling, layers
):
    folder = make_onnx_model(tmp_path / "mine", dim=8, pooling=pooling, layers=layers)
    with pytest.raises(ModelUnavailableError, match="PROVIDER=huggingface"):
        get_model(EmbeddingSettings(model=str(folder))).embed(["ice"])


@pytest.mark.parametrize("name", ["mdbr-leaf-ir", "embeddinggemma-300m", "Qwen3-Embedding-0.6B"])
def test_a_bare_graph_of_a_known_model_is_refused_by_its_name(tmp_path, name):
    folder = make_onnx_model(tmp_path / name, dim=profile_of(name).dim)
    with pytest.raises(ModelUnavailableError, match="PROVIDER=huggingface"):
        get_model(EmbeddingSettings(model=str(folder))).embed(["ice"])


def test_a_graph_that_finishes_its_vectors_is_used(tmp_path):
    folder = make_onnx_model(tmp_path / "mdbr-leaf-ir", dim=768, finished=True)
    [vector] = get_model(EmbeddingSettings(model=str(folder))).embed(["ice tea"]).vectors
    assert vector[:4] == pytest.approx(np.array([1, 1, 1, 1]) / 2)


@pytest.mark.parametrize("content", ["", "[]", "[1]", '[{"type": "a.Pooling", "path": "none"}]'])
def test_a_folder_whose_description_cannot_be_read_has_none(tmp_path, content):
    (tmp_path / "modules.json").write_text(content)
    assert read_pooling(tmp_path) is None


def test_vectors_are_cut_to_a_length_that_the_card_allows(tmp_path):
    folder = make_onnx_model(tmp_path / "snowflake-arctic-embed-m-v1.5", dim=768)
    whole = get_encoder(EmbeddingSettings(model=str(folder)))
    short = get_encoder(EmbeddingSettings(model=str(folder), dim=256))
    for text in ("ice tea", "tea"):
        [long], [cut] = whole.encode([text]), short.encode([text])
        assert (long.shape, cut.shape, cut.dtype) == ((768,), (256,), np.float32)
        assert cut == pytest.approx(long[:256] / np.linalg.norm(long[:256]))
    assert (whole.dim, short.dim) == (768, 256)
    assert short.fingerprint != whole.fingerprint
    same = EmbeddingSettings(model=str(folder), dim=768)
    assert get_encoder(same).fingerprint == whole.fingerprint


@table("name, dim, allowed")
def test_another_length_is_refused_with_those_allowed(tmp_path, name, dim, allowed):
    folder = make_onnx_model(tmp_path / name, dim=profile_of(name).dim or 8)
    with pytest.raises(ConfigError, match=allowed):
        get_model(EmbeddingSettings(model=str(folder), dim=dim)).embed(["ice"])


def test_vectors_of_a_server_are_cut_too(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_server() as server:
        server.dim = 768
        model = get_model(server.settings(model=ARCTIC, dim=256))
        whole = get_model(server.settings(model=ARCTIC, dim=None))
        [cut], [long] = model.embed(["walrus"]).vectors, whole.embed(["walrus"]).vectors
    assert cut == pytest.approx(long[:256] / np.linalg.norm(long[:256]))
    assert model.encoder.fingerprint != whole.encoder.fingerprint
    with pytest.raises(ConfigError, match="768 or 256"):
        _ = get_encoder(server.settings(model=ARCTIC, dim=512)).dim


def test_nomics_numbers_lose_their_mean_before_they_are_cut():
    [cut] = profile_of("nomic-embed-text").cut([np.array([3.0, 1.0, -1.0])], 2)
    assert cut == pytest.approx([1, 0])  # 3 - 1, 1 - 1


def test_the_vectors_of_fastembeds_own_exports_have_length_one():
    encoder = FastEmbedEncoder(EmbeddingSettings(model="nomic-ai/nomic-embed-text-v1.5"))
    encoder._files = SimpleNamespace(known=None, export="nomic-ai/nomic-embed-text-v1.5")
    long = np.arange(1, 769, dtype=np.float32)
    encoder._loaded = SimpleNamespace(embed=lambda texts, **_: [long for _ in texts])
    [vector] = encoder.encode(["walrus"])
    assert vector == pytest.approx(long / np.linalg.norm(long))


@pytest.mark.slow
def test_a_model_that_needs_its_own_code_is_refused_under_torch(tmp_path):
    pytest.importorskip("sentence_transformers")
    for name, content in (("model.safetensors", b""), ("tokenizer.json", b"{}")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "config.json").write_text(json.dumps({"num_experts": 8}))
    settings = EmbeddingSettings(provider="huggingface", model=str(tmp_path))
    with pytest.raises(ModelUnavailableError, match="Ollama"):
        get_encoder(settings).encode(["walrus"])
