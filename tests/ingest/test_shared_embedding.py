"""Several runs at once on one store in Postgres share what there is to embed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from catalog.core.settings import RAGv2Settings, Settings
from catalog.embedding.model import EmbeddingModel
from catalog.ingest import embedding
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.store.database import Database
from fakes import WordEncoder, write


class Meeting(WordEncoder):
    """A model that is at its first batch until the other run is at one, too."""

    def __init__(self, barrier):
        super().__init__()
        self.barrier, self.has_met = barrier, False

    def encode(self, texts):
        if not self.has_met:
            self.has_met = True
            self.barrier.wait(60)
        return super().encode(texts)


@pytest.fixture
def url(on_postgres):
    return on_postgres.new_url(empty=False)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    write(folder, **{f"doc{n}_dot_md": f"# Topic {n}\n\nWords of topic {n}." for n in range(40)})
    return folder


def open_on(url, home, encoder):
    rag = RAGv2Settings(chunk_size=100, chunk_overlap=10, chunk_min_size=8, vector_engine="exact")
    address = url.render_as_string(hide_password=False)
    settings = Settings(home=home, database_url=address, rag_v2=rag)
    return Library(settings, model=EmbeddingModel(encoder, batch_size=4))


def test_two_builds_at_once_embed_each_text_once(url, folder, tmp_path):
    barrier = threading.Barrier(2)
    encoders = [Meeting(barrier), Meeting(barrier)]

    def build(number):
        with open_on(url, tmp_path / f"home{number}", encoders[number]) as library:
            return Indexer(library).build(folder, "notes")

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(build, range(2)))
    texts = [text for encoder in encoders for text in encoder.texts]
    assert len(texts) == len(set(texts)) == 40
    assert all(encoder.texts for encoder in encoders)
    assert sum(report.embedded for report in reports) == 40
    assert [report.incomplete for report in reports] == [0, 0]
    assert sum(report.added for report in reports) == 40
    assert all(report.failed == () for report in reports)


def test_the_claims_of_a_stalled_run_are_left_and_reported(url, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "_MOST_SECONDS", 0.3)
    stopped = Database(url, tmp_path / "stopped")
    claimed = []
    take = Database.claim

    def claim(database, keys):
        if not claimed:
            claimed.append(take(stopped, [min(keys)]))
            claimed[0].__enter__()
        return take(database, keys)

    monkeypatch.setattr(Database, "claim", claim)
    with open_on(url, tmp_path / "home", WordEncoder()) as library:
        report = Indexer(library).build(folder, "notes")
        claimed[0].__exit__(None, None, None)
        again = Indexer(library).update("notes")
    assert (report.embedded, report.incomplete) == (39, 1)
    assert [note for note in report.notes if "another run has claimed 1 texts" in note]
    assert (again.embedded, again.incomplete) == (1, 0)
    stopped.close()


def test_claims_are_released_when_a_run_ends_or_is_killed(url, tmp_path):
    one, two = (Database(url, tmp_path / name) for name in ("one", "two"))
    with one.claim(["a", "b"]) as mine, two.claim(["b", "c"]) as others:
        assert (set(mine), set(others)) == ({"a", "b"}, {"c"})
    with two.claim(["a", "b", "c"]) as all_:
        assert set(all_) == {"a", "b", "c"}
    dying = one.claim(["a"])
    dying.__enter__()
    end = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND pid <> pg_backend_pid()"
    )
    with two.read() as connection:
        connection.execute(end)
    with two.claim(["a"]) as taken:
        assert set(taken) == {"a"}
    with pytest.raises(Exception, match=r"clos|terminat|lost"):
        dying.__exit__(None, None, None)
    one.close()
    two.close()
