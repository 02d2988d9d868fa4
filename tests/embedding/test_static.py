"""Static models: a table of vectors in a folder, or in the package that the preset `fast` names."""

import json

import pytest

import static_models
from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import load_settings
from catalog.embedding import get_model
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models import packaged
from catalog.search_v2.service import SearchServiceV2
from fakes import write

WORDS = ("[UNK]", "walrus", "ice", "tea")
TABLE = [[0, 0, 1], [3, 0, 0], [0, 4, 0], [1, 1, 1]]


def make_model(folder, dtype="F16"):
    """Write a model of four words and three dimensions."""
    return static_models.make_model(folder, WORDS, TABLE, dtype)


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_a_vector_is_the_mean_of_the_words_at_length_one(tmp_path, dtype):
    model = get_model(make_model(tmp_path / "model", dtype))
    both, unknown, nothing = model.embed(["walrus ice", "zebra", ""]).vectors
    assert both == pytest.approx([0.6, 0.8, 0.0])  # (3, 4, 0) / 2, at length 1
    assert unknown.tolist() == nothing.tolist() == [0, 0, 1]
    assert (model.encoder.dim, len(model.encoder.fingerprint)) == (3, 16)


def test_a_file_that_is_no_table_is_refused(tmp_path):
    model = get_model(make_model(tmp_path / "model"))
    header = json.dumps({"bias": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    (tmp_path / "model" / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelUnavailableError, match="vectors"):
        _ = model.encoder.dim


def test_a_dataset_is_built_and_searched_with_a_static_model(tmp_path):
    embedding = make_model(tmp_path / "model")
    write(tmp_path / "notes", a_dot_md="A walrus on ice.", b_dot_md="Tea.")
    chosen = {"home": tmp_path / "home", "embedding": embedding.model_dump()}
    with Library(load_settings(overrides=chosen).settings) as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        results = SearchServiceV2(library).search("ice walrus", dataset="notes", mode="vector")
    assert (report.documents, report.embedded, report.failed) == (2, 2, ())
    assert results[0].path == "a.md"


def test_the_preset_fast_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr(packaged, "locate", lambda _model: None)
    settings = load_settings(preset="fast").settings.embedding
    with pytest.raises(ModelUnavailableError, match=r"'\.\[fast\]'"):
        get_model(settings).embed_query("walrus")
