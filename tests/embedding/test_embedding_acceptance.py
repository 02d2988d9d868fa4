"""The table of what embedding promises, one test a row, over a server that fails now and then.

Vector coverage, dimension, normalisation, idempotence, and partial failure.
"""

import json
import shutil

import numpy as np
import pytest
from sqlalchemy import select

from catalog.core.settings import RAGv2Settings, Settings
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.store.embedding_cache import decode, read_stored_model
from catalog.store.schema import chunk_windows, chunks, embeddings
from embedding_server import cut, running_server, status

DIMENSIONS = 768
SHARE_NORMALISED = 0.999
NOMIC = {"model": "hf:nomic-ai/nomic-embed-text-v1.5", "dim": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("notes")
    for number in range(60):
        heading = f"# Note {number}\n\n## Herd\n\n"
        text = " ".join(f"walrus{number}of{at} on the ice." for at in range(5 + number % 7 * 12))
        (made / f"note{number:02}.md").write_text(heading + text + "\n")
    return made


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        with running_server() as running:
            running.dim = DIMENSIONS
            yield running


def open_remote(home, server):
    rag = RAGv2Settings(
        chunk_size=100,
        chunk_overlap=10,
        chunk_min_size=8,
        vector_engine="flat",
        embed_context_form="labels",
    )
    embedding = server.settings(**NOMIC, retry_seconds=0.0)
    return Library(Settings(home=home, rag_v2=rag, embedding=embedding))


@pytest.fixture(scope="module")
def library(tmp_path_factory, server, folder):
    """A library built in as many runs as it takes with a server that fails at times."""
    server.faults = [None, status(500), None, None, cut, None, status(429)]
    with open_remote(tmp_path_factory.mktemp("home"), server) as opened:
        while Indexer(opened).build(folder, "notes").incomplete:
            pass
        yield opened


def stored_vectors(library):
    """Return the id of the chunk and the vector, ``None`` where there is none, of every window."""
    windows = chunks.outerjoin(chunk_windows, chunk_windows.c.seq == chunks.c.seq)
    windows = windows.outerjoin(embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key)
    with library.database.read() as connection:
        rows = connection.execute(
            select(chunks.c.chunk_id, embeddings.c.vector).select_from(windows)
        ).all()
    return [(row[0], None if row[1] is None else decode(row[1])) for row in rows]


def test_every_chunk_has_its_vector(library):
    rows = stored_vectors(library)
    assert len(rows) > 100
    assert [chunk_id for chunk_id, vector in rows if vector is None] == []


def test_every_vector_has_768_numbers(library):
    assert {vector.shape for _, vector in stored_vectors(library)} == {(DIMENSIONS,)}
    stored = read_stored_model(library.database)
    assert (stored.model, stored.dim) == (NOMIC["model"], DIMENSIONS)


def test_vectors_are_of_length_one(library):
    norms = np.array([np.linalg.norm(vector) for _, vector in stored_vectors(library)])
    assert np.mean((norms >= 0.99) & (norms <= 1.01)) >= SHARE_NORMALISED


def test_a_second_run_embeds_nothing(library, server, folder):
    before, asked = stored_vectors(library), len(server.requests)
    report = Indexer(library).update("notes")
    assert (report.embedded, report.unchanged) == (0, 60)
    assert len(server.requests) == asked
    after = stored_vectors(library)
    assert [chunk_id for chunk_id, _ in after] == [chunk_id for chunk_id, _ in before]
    with library.database.read() as connection:
        keys = connection.scalars(select(embeddings.c.embed_key)).all()
    assert len(keys) == len(set(keys))


@pytest.mark.slow
def test_a_run_goes_on_past_what_fails_and_names_the_failed_chunks(
    tmp_path, server, folder, command, monkeypatch
):
    notes = tmp_path / "notes"
    shutil.copytree(folder, notes)
    for name in ("note90.md", "note91.md"):
        (notes / name).write_text(f"A POISON walrus of {name}.\n")
    settings = server.settings(**NOMIC)
    for name in ("provider", "model", "url", "api_key"):
        monkeypatch.setenv(f"IDX_EMBEDDING__{name.upper()}", getattr(settings, name))
    monkeypatch.setenv("IDX_RAG_V2__EMBED_CONTEXT_FORM", "labels")
    home = tmp_path / "home"
    build = ("index", "build", notes, "--dataset", "notes", "--home", home)
    code, out, _ = command(*build, "--json")
    report = json.loads(out)
    assert code == 1
    assert report["embedded_chunks"] == report["chunks"] - 2
    with open_remote(home, server) as library:
        missing = sorted(it for it, vector in stored_vectors(library) if vector is None)
        assert len(missing) == 2
        assert sorted(report["failed_chunks"]) == missing
    code, _, err = command(*build)
    assert code == 1
    (line,) = [line for line in err.splitlines() if "failed chunk ids" in line]
    assert all(chunk_id in line for chunk_id in missing)


def test_what_the_model_is_sent_has_its_prefix_and_the_labels(library, server):
    texts = [text for sent in server.texts() for text in sent]
    ours = [text for text in texts if "walrus3of0 " in text]
    assert ours
    for text in ours:
        assert text.startswith("search_document: [doc: Note 3] [type: md] [section: ")
