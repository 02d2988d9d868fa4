"""Where the files of a model are found, in which order, and what is said when they are not."""

import os
import shutil
import socket
import sys
from threading import Event

import pytest
from huggingface_hub import constants

from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.embedding import get_model
from catalog.models import hub
from catalog.models.model_files import ModelFiles, hash_weights
from model_folders import NAME, install_package, make_folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FASTEMBED_CACHE_PATH", raising=False)
    return tmp_path / "cache"


def put_in_cache(cache, repository, weights="model.safetensors"):
    """Write a model into the cache as the hub's client keeps it."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    return make_folder(folder / "snapshots" / "abc123", weights)


def embedding(name, provider="huggingface"):
    return ModelFiles("embedding", provider, name, offline=True)


def test_a_folder_wins_over_a_package_and_a_package_over_the_cache(tmp_path, cache, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    cached = put_in_cache(cache, NAME)
    assert embedding(NAME).found == ("hub cache", cached)
    weights = "model.safetensors"
    install_package(tmp_path / "site", monkeypatch, provider="huggingface", weights=weights)
    carried = make_folder(tmp_path / "site" / "made_up_package" / "data", weights)
    assert embedding(NAME).found == ("package", carried)
    make_folder(tmp_path / "work" / NAME, weights)
    origin, folder = embedding(NAME).found
    assert (origin, str(folder)) == ("folder", NAME)


def test_a_wrong_byte_in_a_package_is_found_when_the_model_is_loaded(tmp_path, monkeypatch):
    model = install_package(tmp_path, monkeypatch)
    files = embedding(NAME, "fastembed")
    files.verify()
    weights = files.folder / model.weights
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(ModelUnavailableError, match=r"differs from the file .*--force-reinstall"):
        get_model(EmbeddingSettings(model=NAME)).embed_query("hello")
    assert model.module not in sys.modules


@pytest.mark.parametrize("provider", ["fastembed", "huggingface", "static"])
def test_a_folder_without_a_tokenizer_is_told_of_that(tmp_path, provider):
    folder = make_folder(tmp_path / "mine", "model.onnx")
    make_folder(folder, "model.safetensors")
    embedding(str(folder), provider).require()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailableError, match="tokenizer"):
        embedding(str(folder), provider).require()


def test_a_folder_without_weights_is_told_of_that(tmp_path):
    folder = make_folder(tmp_path / "mine", "model.onnx")
    with pytest.raises(ModelUnavailableError, match=r"holds no \*\.safetensors"):
        embedding(str(folder)).require()


def test_a_folder_that_may_not_be_read_is_reported_with_what_helps(tmp_path, monkeypatch):
    folder, scandir = make_folder(tmp_path / "mine"), os.scandir

    def refuse(path="."):
        if path == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ModelUnavailableError, match="Permission"):
        embedding(str(folder), "fastembed").require()


def test_a_file_in_place_of_a_folder_is_no_model(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelUnavailableError, match=r"no folder .*file"):
        embedding(str(tmp_path / "file")).require()


def test_a_linked_folder_is_a_folder_and_a_link_to_nowhere_a_missing_file(tmp_path):
    folder = make_folder(tmp_path / "mine")
    (tmp_path / "link").symlink_to(folder)
    assert embedding(str(tmp_path / "link"), "fastembed").folder == tmp_path / "link"
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to(tmp_path / "gone")
    with pytest.raises(ModelUnavailableError, match=r"holds no model\.onnx"):
        embedding(str(folder), "fastembed").require()
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    with pytest.raises(ModelUnavailableError, match="symbolic links"):
        embedding(str(folder), "fastembed").require()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["../secret", "a/../../secret", "..--secret/x", "a--b/c", "~/x", "a/b/c", "", "x\0y"]
)
def test_a_name_leads_to_no_folder_outside_the_cache(cache, name):
    make_folder(cache.parent / "secret" / "snapshots" / "abc123", "model.safetensors")
    put_in_cache(cache, "a--b/c")
    with pytest.raises(ModelUnavailableError):
        embedding(name).require()


def test_a_reference_in_the_cache_leads_to_no_folder_outside_it(cache):
    folder = put_in_cache(cache, NAME)
    (folder.parents[1] / "refs" / "main").write_text("../../../../elsewhere")
    shutil.move(folder, cache.parent / "elsewhere")
    assert embedding(NAME).found is None


def test_a_partly_fetched_model_is_not_used(cache):
    folder = put_in_cache(cache, NAME)
    assert embedding(NAME).found
    (folder / "tokenizer.json").unlink()
    assert embedding(NAME).found is None
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").unlink()
    assert embedding(NAME).found is None


def test_a_model_that_is_nowhere_is_told_with_the_command_that_brings_it(tmp_path, monkeypatch):
    install_package(tmp_path, monkeypatch)
    shutil.rmtree(tmp_path / "made_up_package")
    with pytest.raises(ModelUnavailableError, match="made-up"):
        embedding(NAME, "fastembed").require()
    with pytest.raises(ModelUnavailableError, match="foo/bar"):
        embedding("foo/bar", "fastembed").require()
    with pytest.raises(ModelUnavailableError, match="catalog models list"):
        embedding("foo/bar", "static").require()


def test_a_model_that_fastembed_does_not_know_is_told_where_there_is_a_network(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "is_reachable", lambda: True)
    with pytest.raises(ModelUnavailableError, match="foo/bar"):
        _ = ModelFiles("embedding", "fastembed", "foo/bar").folder


def test_weights_in_several_files_are_distinguished_by_each_of_them(tmp_path):
    seen = set()
    (tmp_path / "2_Dense").mkdir()
    for name in ("model-2-of-2.safetensors", "2_Dense/model.safetensors"):
        for content in (b"a", b"b"):
            (tmp_path / "model-1-of-2.safetensors").write_bytes(b"first")
            (tmp_path / name).write_bytes(content)
            seen.add(hash_weights(tmp_path / "model-1-of-2.safetensors"))
    assert len(seen) == 4


def test_the_least_deep_weights_are_the_models(tmp_path):
    folder = make_folder(tmp_path / "mine", "model.safetensors")
    make_folder(folder / "2_Dense", "model.safetensors")
    assert embedding(str(folder)).weights_file == folder / "model.safetensors"


@pytest.fixture
def listening():
    """A socket that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_hub_is_reachable_if_it_or_the_proxy_before_it_takes_connections(
    listening, monkeypatch
):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{listening}")
    assert hub.is_reachable()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert not hub.is_reachable()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listening}")
    assert hub.is_reachable()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert not hub.is_reachable()


def test_a_name_lookup_that_never_ends_does_not_keep_a_search_waiting(monkeypatch):
    end = Event()

    def hang(*_):
        end.wait(60)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hang)
    assert not hub.is_reachable(0.01)
    end.set()
