"""Datasets embedded by a server that fails: nothing lost, nothing doubled, the next run goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest
from sqlalchemy import select

from catalog.core.errors import ConfigError
from catalog.core.settings import RAGv2Settings, Settings
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.search_v2.service import SearchServiceV2
from catalog.store.schema import chunks, embedded_windows, embeddings
from embedding_server import FEWER, WRONG_DIMENSION, cut, running_server, status

RAG = RAGv2Settings(chunk_size=100, chunk_overlap=10, chunk_min_size=8, vector_engine="flat")
COUNT = 40
IMPATIENT = {"retry_seconds": 0.0, "batch_size": 8}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_server() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "notes"
    made.mkdir()
    for number in range(COUNT):
        words = " ".join(f"{word}{number:02}" for word in ("number", "seal", "ice", "kettle"))
        (made / f"note{number:02}.md").write_text(f"A walrus of the herd {words}.\n")
    return made


def open_remote(home, server, provider="openai", **embedding):
    return Library(
        Settings(home=home, rag_v2=RAG, embedding=server.settings(provider, **embedding))
    )


def sent_as_document(server):
    """Return the texts of documents whose vectors were sent."""
    return [text for text in server.embedded if "number" in text]


def assert_whole(library, server, folder):
    with library.database.read() as connection:
        stored = connection.scalars(select(chunks.c.chunk_id)).all()
        of_chunks = select(chunks.c.chunk_id).select_from(embedded_windows).distinct()
        with_vector = connection.scalars(of_chunks).all()
        keys = select(embeddings.c.embed_key).where(embeddings.c.side == "document")
        assert len(connection.scalars(keys).all()) == COUNT
    assert len(stored) == COUNT
    assert sorted(stored) == sorted(with_vector)
    again = Indexer(library).build(folder, "notes")
    assert (again.embedded, again.usage, again.failed_chunks) == (0, None, ())
    assert len(sent_as_document(server)) == COUNT  # each once, over all runs


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai", "cohere"])
def test_a_dataset_is_built_and_searched_through_a_server(tmp_path, server, folder, provider):
    with open_remote(tmp_path / "home", server, provider, price=2.0) as library:
        report = Indexer(library).build(folder, "notes")
        assert (report.embedded, report.failed, report.failed_chunks) == (COUNT, (), ())
        assert report.usage.tokens == 2 * COUNT  # of each text two, says the server
        assert report.usage.cost == pytest.approx(2.0 * 2 * COUNT / 1_000_000)
        assert any("estimates" in note for note in report.notes)
        assert_whole(library, server, folder)
        query = "number07 seal07 ice07 kettle07"
        results = SearchServiceV2(library).search(query, dataset="notes", mode="vector")
        assert results[0].path == "note07.md"


FAULTS = {"500": status(500), "429": status(429), "cut": cut, "dim": WRONG_DIMENSION, "few": FEWER}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_now_and_then_costs_at_most_a_batch_until_the_next_run(
    tmp_path, server, folder, fault
):
    server.faults = [None, None, fault, None, fault, fault, None, None]
    with open_remote(tmp_path / "home", server, **IMPATIENT) as library:
        report = Indexer(library).build(folder, "notes")
        assert report.embedded + len(report.failed_chunks) == COUNT
        if report.failed_chunks:
            assert Indexer(library).build(folder, "notes").embedded == len(report.failed_chunks)
        assert_whole(library, server, folder)


@pytest.mark.slow
def test_a_server_that_dies_costs_few_requests_and_the_next_run_does_the_rest(
    tmp_path, server, folder
):
    server.faults = [None, None]
    server.dead = status(500)
    with open_remote(tmp_path / "home", server, **IMPATIENT) as library:
        report = Indexer(library).build(folder, "notes")
        done = report.embedded
        assert 0 < done < COUNT
        assert report.incomplete == COUNT - done
        assert len(server.requests) == 2 + 3 * 2  # three batches, each with a probe after it
        assert any("until the next run" in note for note in report.notes)
        results = SearchServiceV2(library).search("number39", dataset="notes", mode="lexical")
        assert results[0].path == "note39.md"
        server.dead = None
        assert Indexer(library).build(folder, "notes").embedded == COUNT - done
        assert_whole(library, server, folder)


def test_chunks_that_failed_before_a_server_was_given_up_are_named(tmp_path, server, folder):
    server.dead = status(500)
    with open_remote(tmp_path / "home", server, **IMPATIENT) as library:
        report = Indexer(library).build(folder, "notes")
        assert len(report.failed_chunks) == 2 + 2 + 2  # the first batches are small
        assert report.incomplete == COUNT


@pytest.mark.slow
def test_words_are_searched_though_only_a_server_that_is_down_knows_the_dimension(
    tmp_path, server, folder
):
    with open_remote(tmp_path / "home", server, dim=None) as library:
        Indexer(library).build(folder, "notes")
    server.dead = status(500)
    with open_remote(tmp_path / "home", server, dim=None) as library:
        results = SearchServiceV2(library).search("number07", dataset="notes")
        assert results[0].path == "note07.md"
        assert library.wanted_model.dim == server.dim


@pytest.mark.slow
def test_a_poisoned_text_is_named_by_its_chunk_each_run_and_the_rest_is_embedded(
    tmp_path, server, folder
):
    (folder / "note13.md").write_text("A POISON walrus.\n")
    (folder / "note14.md").write_text("A POISON walrus.\n")  # the same text twice
    with open_remote(tmp_path / "home", server) as library:
        for embedded in (COUNT - 2, 0):
            report = Indexer(library).build(folder, "notes")
            assert report.embedded == embedded
            assert len(report.failed_chunks) == 2
        with library.database.read() as connection:
            named = select(chunks.c.chunk_id).where(chunks.c.text.contains("POISON"))
            assert sorted(connection.scalars(named)) == sorted(report.failed_chunks)
        assert len(sent_as_document(server)) == COUNT - 2


@pytest.mark.slow
def test_a_key_that_is_revoked_midway_stops_the_run_and_loses_nothing(tmp_path, server, folder):
    def revoke(number):
        if number == 3:
            server.key = "another"

    server.on_request = revoke
    with open_remote(tmp_path / "home", server, **IMPATIENT) as library:
        with pytest.raises(ConfigError, match="refused the key"):
            Indexer(library).build(folder, "notes")
        assert len(server.requests) == 3
        done = len(sent_as_document(server))
        server.key = server.settings().api_key
        assert Indexer(library).build(folder, "notes").embedded == COUNT - done
        assert_whole(library, server, folder)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"turn": 5}, {"dim": 32}], ids=["vectors", "dimension"])
def test_a_failover_to_another_model_midway_stops_the_run_without_its_vectors(
    tmp_path, server, folder, change
):
    def fail_over(number):
        if number == 3:
            for name, value in {"name": "model-b", **change}.items():
                setattr(server, name, value)

    server.name, server.on_request = "model-a", fail_over
    with open_remote(tmp_path / "home", server, **IMPATIENT) as library:
        dim = server.dim
        with pytest.raises(ConfigError, match="another model than at the start"):
            Indexer(library).build(folder, "notes")
        done = sum(map(len, server.texts()[:2]))
        server.on_request = lambda number: None
        server.name, server.turn, server.dim = "model-a", 0, dim
        assert Indexer(library).build(folder, "notes").embedded == COUNT - done
        with library.database.read() as connection:
            stored = connection.scalars(select(embeddings.c.vector)).all()
    assert len(stored) == COUNT


@pytest.mark.slow
def test_the_same_model_under_another_name_is_gone_on_with(tmp_path, server, folder):
    def rename(number):
        if number == 3:
            server.name = "model-a-replica-2"

    server.name, server.on_request = "model-a", rename
    with open_remote(tmp_path / "home", server, **IMPATIENT) as library:
        assert Indexer(library).build(folder, "notes").embedded == COUNT


@pytest.mark.slow
def test_a_hybrid_search_goes_by_words_while_the_server_is_down(tmp_path, server, folder):
    with open_remote(tmp_path / "home", server) as library:
        Indexer(library).build(folder, "notes")
        server.dead = status(401)
        results = SearchServiceV2(library).search("number07", dataset="notes")
        assert results[0].path == "note07.md"
        assert [stage.status for stage in results.stages if stage.name == "vector"] == ["failed"]
        with pytest.raises(ConfigError, match="refused the key"):  # there is no other leg
            SearchServiceV2(library).search("number07", dataset="notes", mode="vector")


def run_catalog(home, server, *arguments, **options):
    settings = server.settings()
    told = {
        "IDX_HOME": str(home), "IDX_RAG_V2__VECTOR_ENGINE": "flat",
        "IDX_EMBEDDING__PROVIDER": "openai", "IDX_EMBEDDING__URL": settings.url,
        "IDX_EMBEDDING__MODEL": settings.model, "IDX_EMBEDDING__API_KEY": settings.api_key,
        "IDX_EMBEDDING__DIM": str(settings.dim), "IDX_EMBEDDING__BATCH_SIZE": "8",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "catalog", *map(str, arguments)],
        env=os.environ | told,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_is_ended_midway_goes_on_where_it_was(tmp_path, server, folder, ending):
    begun = []

    def end_midway(number):
        if number == 3 and begun:
            begun.pop().send_signal(ending)
            server.released.wait(20)  # so that its answer never comes

    server.on_request = end_midway
    command = ("index", "build", folder, "--dataset", "notes", "--json")
    process = run_catalog(tmp_path / "home", server, *command)
    begun.append(process)
    out, err = process.communicate(timeout=60)
    server.released.set()
    assert process.returncode != 0
    if ending == signal.SIGINT:
        assert "run the same command to continue" in err
    assert "SECRET" not in out + err
    done = len(set(sent_as_document(server)))
    process = run_catalog(tmp_path / "home", server, *command)
    out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 0
    assert report["embedded_chunks"] == report["chunks"] == COUNT
    assert report["failed_chunks"] == []
    assert report["usage"]["requests"] > 0
    assert COUNT - done <= report["embedded"] < COUNT  # the batch that was under way is asked anew
