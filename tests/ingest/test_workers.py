"""A build with several workers: the same store, and one bad file or batch costs only itself."""

from pathlib import Path

import pytest
from sqlalchemy import select

from catalog.core.settings import IngestSettings
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.store.schema import chunk_windows, chunks, documents, embeddings, manifest
from fakes import open_library, write
from lethal import FATAL, LethalEncoder
from processes import fork_workers

WORKERS = {"ingest": IngestSettings(workers=2, group_chars=500)}


def rows_of(home, encoder, **rag):
    """All that is stored, but when that was, and checksums of rows with that in them."""
    tables = (documents, chunks, chunk_windows, manifest, embeddings)
    clocks = {"indexed_at", "seen_at", "created_at", "checksum"}
    with open_library(home, encoder, **rag) as library, library.database.read() as connection:
        return {
            table.name: sorted(
                repr([row[column] for column in table.c if column.name not in clocks])
                for row in connection.execute(select(table)).mappings()
            )
            for table in tables
        }


@pytest.fixture(autouse=True)
def _forked(monkeypatch):
    fork_workers(monkeypatch)


class Counted(Silent):
    def __init__(self):
        self.total = self.done = 0.0
        self.shares = []

    def start(self, total, doing="", *, then=""):
        self.total, self.done = total, 0.0

    def advance(self, amount, label, counts=""):
        self.done += amount
        self.shares.append(self.done / self.total if self.total else 0.0)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    for number in range(9):
        text = f"# Topic {number}\n\n" + f"Words of topic {number} and more. " * (20 * number)
        write(folder, **{f"doc{number}_dot_md": text})
    write(
        folder,
        records_dot_jsonl='{"id": "1", "text": "Otters."}\n{"id": "2", "text": "Owls."}\n',
        empty_dot_md="\n",
    )
    write(folder, doc1_dot_md_dot_meta_dot_yaml="author: Ada\n")
    return folder


def test_two_workers_store_what_one_does(folder, tmp_path):
    mark = tmp_path / "mark"
    mark.touch()
    progress = Counted()
    with open_library(tmp_path / "one", LethalEncoder(mark)) as library:
        one = Indexer(library).build(folder, "notes")
    with open_library(tmp_path / "two", LethalEncoder(mark), **WORKERS) as library:
        two = Indexer(library).build(folder, "notes", progress=progress)
    assert (two.added, two.chunks, two.embedded) == (one.added, one.chunks, one.embedded)
    assert two.failed == one.failed
    assert rows_of(tmp_path / "two", None) == rows_of(tmp_path / "one", None)
    assert progress.done == pytest.approx(progress.total)
    assert max(progress.shares) <= 1.0 + 1e-9


def test_what_ends_a_process_costs_only_itself_and_is_named(folder, tmp_path):
    write(folder, poison_dot_md=f"# Bad\n\nThis is {FATAL} cut at once.")
    write(folder, unread_dot_md=f"# Odd\n\nThis is {FATAL} embedded, with others in its batch.")
    write(folder, twice_dot_md="# Twice\n\nThis ends its process once, and not again.")
    mark = tmp_path / "mark"
    with open_library(tmp_path / "home", LethalEncoder(mark), **WORKERS) as library:
        report = Indexer(library).build(folder, "notes")
        assert Indexer(library).update("notes").added == 0
    assert mark.exists()
    reasons = {failure.path: failure.reason for failure in report.failed}
    assert reasons.keys() == {"poison.md", "unread.md", "empty.md"}
    assert reasons["poison.md"].startswith("the process that worked on it ended (exit -9)")
    assert reasons["unread.md"].startswith(
        "1 passage not embedded: the process that worked on it ended"
    )
    assert report.embedded_chunks == report.chunks - 1
    assert report.incomplete == 1


@pytest.mark.parametrize("workers", ["0", "-1", "257", "two"])
def test_an_invalid_number_of_workers_is_refused_first(
    workers, notes, command, monkeypatch, tmp_path
):
    code, _, err = command("index", "build", notes, "-d", "notes", "--workers", workers)
    assert (code, "--workers" in err) == (2, True)
    monkeypatch.setenv("IDX_RAG_V2__INGEST__WORKERS", workers)
    code, _, err = command("index", "build", notes, "-d", "notes")
    assert code
    assert "workers" in err.lower()
    assert not Path(tmp_path / "home").exists()
