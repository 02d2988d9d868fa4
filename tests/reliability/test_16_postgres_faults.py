"""A Postgres that fails in the middle of a build: nothing lost, nothing doubled, run it again."""

import json
import os
import random

import pytest
from sqlalchemy import event, text

import postgres
from catalog.core.errors import StoreBusyError, StoreError, StoreUnreachableError
from catalog.ingest.sync import SyncRun
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.database import Database
from embedding_server import running_server
from fakes import open_qdrant_library
from postgres_faults import node, standby, way_to
from processes import forking
from reliability.chaos import seeds, some
from reliability.killed_build import build, open_small_steps
from reliability.whole_store import state_of, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """What a build gives that nothing befell; its store is a file."""
    with open_small_steps(tmp_path_factory.mktemp("whole")) as library:
        Indexer(library).build(corpus, "notes")
        return state_of(library)


@pytest.fixture
def server():
    """The server of the tests, which keeps what it has committed when it crashes."""
    with postgres.removed_after(postgres.stores()):
        yield postgres.stores()


@pytest.fixture
def url(server):
    made = server.new_url(empty=False)
    server.run(f"ALTER DATABASE {made.database} SET synchronous_commit = on")
    return made


@pytest.fixture
def way(server):
    with way_to(server) as made:
        yield made


def address(url):
    return url.render_as_string(hide_password=False)


def after(library, what, count, act):
    """Act before the statement (or commit, or call of the model) of that number, from 1."""
    seen = 0

    def counted(*_):
        nonlocal seen
        seen += 1
        if seen == count:
            act()

    if what == "encode":
        encode = library.model.encoder.encode
        library.model.encoder.encode = lambda texts: (counted(), encode(texts))[1]
    else:
        event.listen(library.database.engine, what, counted)


def build_again(corpus, home, url):
    with open_small_steps(home, address(url)) as library:
        report = Indexer(library).build(corpus, "notes")
        assert (report.failed, report.incomplete) == ((), 0)
        return state_of(library)


@pytest.mark.slow
def test_a_build_killed_at_random_statements_ends_as_if_nothing_had_happened(
    corpus, uninterrupted, url, tmp_path
):
    for number in seeds():
        chance, home = random.Random(number), tmp_path / f"home{number}"
        ends = []
        for _ in range(1 if os.environ.get("IDX_TEST_CHAOS_SECONDS") is None else 2):
            count = chance.randrange(20, 250)
            told = (corpus, home, "statement", count, "", address(url))
            process = forking().Process(target=build, args=told)
            process.start()
            process.join(120)
            ends.append(process.exitcode)
        assert -9 in ends, f"{ends}; IDX_TEST_SEED={number}"
        assert set(ends) <= {-9, 0}, f"{ends}; IDX_TEST_SEED={number}"
        assert build_again(corpus, home, url) == uninterrupted, f"IDX_TEST_SEED={number}"


@pytest.mark.slow
@pytest.mark.parametrize("is_delivered", [False, True], ids=["before", "after"])
def test_a_commit_whose_connection_breaks_is_settled_by_running_again(
    corpus, uninterrupted, url, way, tmp_path, is_delivered
):
    """Whether it was committed nobody can know: its answer is lost."""
    way.is_delivered = is_delivered
    for number in seeds():
        chance = random.Random(number)
        with open_small_steps(tmp_path / "home", address(way.url_of(url))) as library:
            way.fatal, way.mercy = b"COMMIT", chance.randrange(12)
            with pytest.raises(StoreUnreachableError, match="cannot be reached"):
                Indexer(library).build(corpus, "notes")
        assert way.cuts == 1
        assert build_again(corpus, tmp_path / "home", url) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "count"), some(("encode", 3), ("before_cursor_execute", 90), count=1)
)
def test_a_server_that_crashes_and_comes_back_ends_the_run_and_the_next_one_ends_well(
    corpus, uninterrupted, server, url, tmp_path, what, count
):
    primary = node(server)

    def crash():
        primary.crash()
        primary.start()

    with open_small_steps(tmp_path / "home", address(url)) as library:
        after(library, what, count, crash)
        with pytest.raises(StoreUnreachableError):
            Indexer(library).build(corpus, "notes")
        assert len(SearchServiceV2(library).search("alpha", dataset="notes", mode="lexical")) > 0
        report = Indexer(library).build(corpus, "notes")
        assert (report.failed, report.incomplete) == ((), 0)
        assert state_of(library) == uninterrupted


@pytest.mark.slow
def test_a_run_that_lost_the_lock_of_its_dataset_writes_no_more(
    corpus, uninterrupted, server, url, tmp_path, monkeypatch
):
    """Only the connection that holds it is ended, as a server's administrator may."""
    ended = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON oid = database "
        f"WHERE locktype = 'advisory' AND datname = '{url.database}'"
    )
    publish = SyncRun.publish_group
    with (
        open_small_steps(tmp_path / "home", address(url)) as library,
        monkeypatch.context() as patch,
    ):
        patch.setattr(SyncRun, "publish_group", lambda run: (server.run(ended), publish(run)))
        with pytest.raises(StoreUnreachableError, match="this run's lock was lost"):
            Indexer(library).build(corpus, "notes")
    assert build_again(corpus, tmp_path / "home", url) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("is_behind", some(True, False, count=1))
def test_a_failover_in_the_middle_of_a_build(
    corpus, uninterrupted, server, url, way, tmp_path, is_behind
):
    """What had been committed may be missing then; indexes that know it follow the truth back."""
    with (
        standby(server) as second,
        open_small_steps(tmp_path / "home", address(way.url_of(url))) as library,
        open_qdrant_library(tmp_path / "other", database_url=address(way.url_of(url))) as reader,
    ):
        primary = node(server)

        def fail_over():
            assert len(SearchServiceV2(reader).search("alpha", dataset="notes", strict=True)) > 0
            primary.crash()
            way.socket_folder = second.folder
            if is_behind:
                second.start()
            second.run("pg_ctl", "-w", "promote")

        if is_behind:
            after(library, "encode", 1, second.crash)
        after(library, "encode", 5, fail_over)
        try:
            with pytest.raises(StoreUnreachableError):
                Indexer(library).build(corpus, "notes")
            report = Indexer(library).build(corpus, "notes")
            assert (report.failed, report.incomplete) == ((), 0)
            assert state_of(library) == uninterrupted
            assert state_of(reader) == uninterrupted
        finally:
            primary.start()


@pytest.mark.slow
def test_a_standby_answers_searches_and_refuses_a_build_in_one_sentence(
    corpus, server, url, way, tmp_path
):
    with open_small_steps(tmp_path / "home", address(url)) as library:
        Indexer(library).build(corpus, "notes")
        expected = state_of(library)["answers"]
    with standby(server) as second:
        way.socket_folder = second.folder
        there = address(way.url_of(url))
        with open_small_steps(tmp_path / "other", there) as library:
            assert state_of(library)["answers"] == expected
            with pytest.raises(StoreError, match="read-only"):
                Indexer(library).build(corpus, "notes")


TROUBLES = {
    "53100": ("disk of the database server is full", StoreError),
    "53200": ("out of memory", StoreError),
    "57014": ("longer than statement_timeout", StoreError),
    "40P01": ("try again", StoreBusyError),
}


@pytest.mark.slow
@pytest.mark.parametrize("state", some(*TROUBLES, count=1))
def test_a_refusal_midway_is_one_sentence_and_the_next_run_succeeds(
    corpus, uninterrupted, url, tmp_path, state
):
    """A trigger says what a server without room, memory or time says, with its SQLSTATE."""
    says, kind = TROUBLES[state]
    refusing = f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF (SELECT count(*) FROM chunks) > 10 THEN
                RAISE EXCEPTION 'no more of it' USING ERRCODE = '{state}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER refusing BEFORE INSERT ON chunks FOR EACH ROW EXECUTE FUNCTION refuse()
    """
    with open_small_steps(tmp_path / "home", address(url)) as library:
        with library.database.write() as connection:
            connection.exec_driver_sql(refusing)
        with pytest.raises(kind, match=says):
            Indexer(library).build(corpus, "notes")
        assert len(SearchServiceV2(library).search("alpha", dataset="notes", mode="lexical")) > 0
        with library.database.write() as connection:
            connection.execute(text("DROP TRIGGER refusing ON chunks"))
    assert build_again(corpus, tmp_path / "home", url) == uninterrupted


def test_a_server_with_no_connection_left_says_so(server, url, tmp_path):
    role = f"guest_{url.database}"
    server.run(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")
    try:
        with pytest.raises(StoreBusyError, match="connections"):
            Database(url.set(username=role), tmp_path)
    finally:
        server.run(f"DROP ROLE {role}")


@pytest.mark.slow
def test_the_command_ends_with_one_sentence_and_goes_on_when_it_is_run_again(
    corpus, server, url, way, tmp_path, command, monkeypatch
):
    with running_server() as model:
        told = model.settings()
        for name in ("provider", "url", "model", "api_key", "dim"):
            monkeypatch.setenv(f"IDX_EMBEDDING__{name.upper()}", str(getattr(told, name)))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("IDX_RAG_V2__VECTOR_ENGINE", "flat")
        monkeypatch.setenv("IDX_DATABASE_URL", address(way.url_of(url)))
        build_it = ("index", "build", corpus, "--dataset", "notes", "--json")
        way.fatal, way.mercy, way.is_delivered = b"COMMIT", 4, True
        code, _, err = command(*build_it)
        assert code == 1
        assert "cannot be reached" in err
        assert "finished work is kept: run the same command to continue" in err
        code, out, err = command(*build_it)
        assert code == 0, err
        assert json.loads(out)["documents"] == 12
        primary = node(server)
        primary.run("pg_ctl", "stop", "-m", "fast")
        try:
            code, _, err = command("search", "alpha", "--dataset", "notes")
            assert (code, "cannot be reached" in err) == (1, True)
        finally:
            primary.start()
