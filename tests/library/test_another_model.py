"""A store whose embedding model changes while it is open, being built, or half rebuilt."""

import contextlib

import pytest

from catalog.core.errors import EmbeddingMismatchError, StageFailedError
from catalog.ingest import sync as sync_module
from catalog.library import indexing
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.backup import back_up, restore
from catalog.store.embedding_cache import StoredModel, adopt_model
from catalog.store.schema import embeddings
from fakes import DIM, WordEncoder, open_library, open_qdrant_library, write
from stores import open_store

OTHER = StoredModel("words2", "words-2", DIM)


class OtherEncoder(WordEncoder):
    """Vectors of the same length in another space."""

    model, fingerprint = OTHER.model, OTHER.fingerprint

    def encode(self, texts):
        return [-vector for vector in super().encode(texts)]


@pytest.fixture
def home(tmp_path):
    files = {
        f"{name}/a{n}.md": f"# {name} {n}\n\nFlour and salt."
        for name in ("bread", "soup")
        for n in "12"
    }
    open_store(files, tmp_path).close()
    return tmp_path / "home"


def rebuild_with_other(home):
    with open_library(home, OtherEncoder()) as library:
        Indexer(library).rebuild()


def put_back_a_copy_of_other(home):
    other, copy = home.with_name("other"), home.with_name("copy.db")
    with open_library(other, OtherEncoder()) as library:
        Indexer(library).build(home.with_name("bread"), "bread")
    back_up(other / "catalog.db", copy)
    restore(copy, home / "catalog.db", locks=home / "locks")


def fingerprints(library):
    with library.database.read() as connection:
        return set(
            connection.scalars(embeddings.select().with_only_columns(embeddings.c.fingerprint))
        )


def check(library, name):
    return next(check for check in diagnose(library) if check.name == name)


def test_a_store_of_the_model_of_a_preset_names_that_preset(home):
    fast = StoredModel("wordllama-l2-supercat-256", "wordllama", DIM)
    with open_library(home) as library:
        library.indexes.vector("bread")
        adopt_model(library.database, fast)
        with pytest.raises(EmbeddingMismatchError, match=r"--preset fast \(IDX_PRESET=fast\)"):
            Indexer(library).update("soup")
        model = check(library, "model")
        assert (model.ok, "--preset fast" in model.detail) == (False, True)
        assert "models check" not in model.fix
        adopt_model(library.database, OTHER)
        with pytest.raises(EmbeddingMismatchError):
            library.indexes.vector("bread")
        with pytest.raises(EmbeddingMismatchError) as of_no_preset:
            Indexer(library).update("soup")
        assert "--preset" not in str(of_no_preset.value)
        assert "IDX_EMBEDDING__MODEL" in check(library, "model").fix


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["qdrant", "flat"])
@pytest.mark.parametrize("change", [rebuild_with_other, put_back_a_copy_of_other])
def test_an_open_service_answers_with_no_vector_of_another_model(home, engine, change):
    with open_library(home, vector_engine=engine) as library:
        service = SearchServiceV2(library)
        assert service.search("flour", dataset="bread", mode="vector")
        library.indexes.close()  # the lock of the index only
        assert service.search("salt", dataset="bread", mode="vector")
        change(home)
        for query in ("salt", "bread"):  # known to the caches, and not
            with pytest.raises(EmbeddingMismatchError, match="words2"):
                service.search(query, dataset="bread", mode="vector")
            results = service.search(query, dataset="bread")
            assert len(results) > 0
            assert [stage.status for stage in results.stages if stage.name == "vector"] == [
                "failed"
            ]
            with pytest.raises(StageFailedError, match="words2"):
                service.search(query, dataset="bread", strict=True)


def change_model_after(monkeypatch, engine, step, home):
    do = getattr(engine, step)

    def do_and_change(*given):
        answer = do(*given)
        monkeypatch.undo()
        rebuild_with_other(home)
        return answer

    monkeypatch.setattr(engine, step, do_and_change)


def test_a_search_is_whole_though_the_model_changes_and_the_next_one_is_refused(home, monkeypatch):
    with open_library(home, vector_engine="flat") as library:
        service, words = SearchServiceV2(library), library.indexes.lexical("bread")
        before = [(one.path, one.score) for one in service.search("flour", dataset="bread")]
        change_model_after(monkeypatch, words, "search", home)
        beside = service.search("flour", dataset="bread", strict=True)
        assert [(one.path, one.score) for one in beside] == before
        with pytest.raises(EmbeddingMismatchError):
            service.search("flour", dataset="bread", mode="vector")


@pytest.mark.parametrize("step", ["at", "follow"])
def test_an_index_that_follows_another_model_during_a_search_gives_no_hits(home, monkeypatch, step):
    with open_qdrant_library(home) as library:
        service, engine = SearchServiceV2(library), library.indexes.vector("bread")
        change_model_after(monkeypatch, engine, step, home)
        with pytest.raises(EmbeddingMismatchError):
            service.search("flour", dataset="bread", mode="vector")


def test_a_build_that_waited_while_the_model_changed_writes_nothing(home, monkeypatch):
    hold_lock = indexing.hold_lock

    @contextlib.contextmanager
    def hold_after_a_rebuild(*given, **more):
        monkeypatch.setattr(indexing, "hold_lock", hold_lock)
        rebuild_with_other(home)
        with hold_lock(*given, **more):
            yield

    write(home.with_name("bread"), new_dot_md="# New\n\nYeast.")
    monkeypatch.setattr(indexing, "hold_lock", hold_after_a_rebuild)
    with open_library(home) as library:
        with pytest.raises(EmbeddingMismatchError):
            Indexer(library).update("bread")
        assert fingerprints(library) == {"words-2"}
    with open_library(home, OtherEncoder()) as library:
        assert all(check.ok for check in diagnose(library))


@pytest.mark.parametrize("step", ["publish", "encode"])
def test_a_build_under_way_stops_when_the_model_changes(home, monkeypatch, step):
    encoder = WordEncoder()
    with open_library(home, encoder) as library:
        owner = sync_module if step == "publish" else encoder
        do = getattr(owner, step)

        def do_meanwhile(*given):
            adopt_model(library.database, OTHER)
            return do(*given)

        monkeypatch.setattr(owner, step, do_meanwhile)
        write(home.with_name("bread"), new_dot_md="# New\n\nYeast.")
        with pytest.raises(EmbeddingMismatchError):
            Indexer(library).update("bread")
        assert fingerprints(library) == set()


def test_after_a_rebuild_that_was_stopped_every_passage_is_said_to_wait(home, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with open_library(home, OtherEncoder()) as library:
        with monkeypatch.context() as stopped:
            stopped.setattr(Indexer, "build", stop)
            with pytest.raises(KeyboardInterrupt):
                Indexer(library).rebuild()
        service = SearchServiceV2(library)
        for mode in ("hybrid", "vector"):
            notes = service.search("flour", dataset="bread", mode=mode).notes
            assert any(note.startswith("by meaning: 0 % of the passages so far") for note in notes)
        assert Indexer(library).stats("bread").windows == 2
        found = check(library, "bread: embedded")
        assert not found.ok
        assert found.detail == "0 of 2 windows have a vector"
        assert found.fix == "catalog index update --dataset bread"
        for name in ("bread", "soup"):
            Indexer(library).update(name)
        assert all(check.ok for check in diagnose(library))
        assert service.search("flour", dataset="bread").notes == ()
