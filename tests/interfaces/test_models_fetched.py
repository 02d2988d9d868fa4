"""Models of the hub: fetched from a server of this machine that speaks as the hub does."""

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants

NAME, REVISION = "made/up", "a" * 40
FILES = {
    "config.json": b'{"hidden_size": 12}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights of a made-up model",
    "pytorch_model.bin": b"a pickle, which nobody wants",
}


class _Hub(http.server.BaseHTTPRequestHandler):
    """Answers what the hub's client asks for one model; any other is not there."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        name = path.removeprefix(f"/{NAME}/resolve/{REVISION}/")
        if path == f"/api/models/{NAME}/revision/main":
            siblings = [{"rfilename": name} for name in FILES]
            self._answer(json.dumps({"id": NAME, "sha": REVISION, "siblings": siblings}).encode())
        elif path == f"/api/models/{NAME}/tree/{REVISION}":
            self._answer(json.dumps([_tree_entry(name) for name in FILES]).encode())
        elif name in FILES:
            self.server.served.append(name)
            self._answer(FILES[name], **{"ETag": f'"{_etag(name)}"', "X-Repo-Commit": REVISION})
        else:
            self.send_error(404)

    def _answer(self, content, **headers):
        self.send_response(200)
        for header, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


def _etag(name):
    content = FILES[name]
    if name == "model.safetensors":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _tree_entry(name):
    entry = {"type": "file", "path": name, "size": len(FILES[name]), "oid": _etag(name)}
    if len(_etag(name)) == 64:
        entry["lfs"] = {"oid": _etag(name), "size": entry["size"], "pointerSize": 1}
    return entry


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """What ``catalog models path made/up --fetch`` gave: the run, the cache, the files served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.served = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tmp_path_factory.mktemp("hub")
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(folder),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
        "IDX_EMBEDDING__PROVIDER": "huggingface",
        "IDX_HOME": str(folder / "home"),
    }

    def fetch(name):
        command = [sys.executable, "-m", "catalog", "models", "path", name, "--fetch"]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120
        )

    yield fetch, folder / "hub", server.served
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(served, monkeypatch):
    """The cache, with the model, as the settings of this process name it."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(served[1]))
    monkeypatch.setenv("IDX_EMBEDDING__PROVIDER", "huggingface")
    monkeypatch.setenv("IDX_EMBEDDING__MODEL", NAME)
    monkeypatch.setenv("IDX_EMBEDDING__OFFLINE", "1")
    return served[1]


@pytest.mark.slow
def test_a_model_is_fetched_into_the_cache_without_unneeded_files(served):
    fetch, cache, names = served
    run = fetch(NAME)
    folder = cache / "models--made--up" / "snapshots" / REVISION
    assert (run.returncode, Path(run.stdout.strip())) == (0, folder)
    assert {file.name for file in folder.iterdir()} == set(FILES) - {"pytorch_model.bin"}
    assert "pytorch_model.bin" not in names
    names.clear()
    assert fetch(NAME).stdout == run.stdout
    assert names == []


@pytest.mark.slow
def test_a_model_missing_from_the_hub_is_reported_in_a_sentence(served):
    run = served[0]("made/nothing")
    assert run.returncode == 1
    assert run.stdout == ""
    assert "catalog: made/nothing cannot be fetched from the model hub: " in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_a_fetched_file_that_changed_is_found_by_its_hash(served, catalog, cache):
    if not (cache / "models--made--up").exists():
        served[0](NAME)
    code, out, _ = catalog("models", "check", NAME, "--json")
    (entry,) = json.loads(out)
    assert (code, entry["origin"], entry["hashes"]) == (0, "hub cache", "sound")
    assert entry["dim"] == 12
    folder = Path(entry["path"])
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).write_bytes(FILES[name][:-1] + b"!")
        code, out, _ = catalog("models", "check", NAME)
        assert code == 1
        assert (
            f"made/up: these files differ from the published ones: {name}; delete {folder}, then:"
            in out
        )
        (folder / name).write_bytes(FILES[name])
    assert catalog("models", "check", NAME)[0] == 0


@pytest.mark.slow
def test_a_cache_without_links_vouches_for_nothing(served, catalog, cache, tmp_path, monkeypatch):
    served[0](NAME)
    shutil.copytree(cache, tmp_path / "copied", symlinks=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "copied"))
    code, out, _ = catalog("models", "check", NAME, "--json")
    (entry,) = json.loads(out)
    digest = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    assert (code, entry["hashes"], entry["sha256"]) == (0, "unknown", digest)
