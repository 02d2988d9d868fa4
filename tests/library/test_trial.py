"""Another embedding model tried beside the store's, adopted in its place, or dropped."""

import contextlib
import random
import shutil
import threading

import pytest
from sqlalchemy import true

from catalog.core.errors import (
    EmbeddingMismatchError,
    InputError,
    ModelUnavailableError,
    StoreBusyError,
)
from catalog.embedding import profiles
from catalog.embedding.profiles import EmbeddingProfile
from catalog.embedding.static import StaticEncoder
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.library.trial import _alone, adopt_tried, drop_tried, try_model
from catalog.search_v2.service import SearchServiceV2
from catalog.store.checksums import seal_rows
from catalog.store.engine_types import read_stamps
from catalog.store.schema import datasets, embeddings, trial_windows
from catalog.store.trial import count_trial
from fakes import write
from processes import forking
from reliability.killed_trial import NEW, open_static, try_and_adopt
from static_models import WORDS, make_random_model

KILLED = {
    "between windows and their vectors": ("catalog.store.trial:keep_windows", "after"),
    "before the vectors are kept": ("catalog.store.embedding_cache:save", "before"),
    "while the index is filled": (
        "catalog.store.vectors.edge:EdgeIndex.upsert", "before",
    ),
    "before the swap": ("catalog.store.trial:put_in_place", "before"),
    "in the swap, before its commit": ("catalog.store.trial:put_in_place", "after"),
    "after the swap": ("catalog.store.trial:drop_unused", "before"),
}  # fmt: skip
ICE = {"embedding.model": "old", "rag_v2.embed_prefix_doc": "ice "}  # of the same weights
QUERIES = ("tea and snow", "bread oven", "boat sea wind", "moon star")


def write_documents(folder, numbers=range(12)):
    for number in numbers:
        chance = random.Random(number)
        words = " ".join(chance.choices(WORDS, k=60))
        write(folder, **{f"doc{number:02}_dot_md": f"# Page {number}\n\n{words}."})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two models, and a store of two datasets built with the first; nobody writes here."""
    folder = tmp_path_factory.mktemp("made")
    make_random_model(folder / "old", 16, seed=1)
    make_random_model(folder / "new", 24, seed=2)
    write_documents(folder / "notes")
    write_documents(folder / "more", range(20, 23))
    with contextlib.chdir(folder), open_static(folder, "old") as library:
        for name in ("notes", "more"):
            Indexer(library).build(folder / name, name)
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A copy of that, which a test may change; models are named by their folders in it."""
    place = tmp_path / "place"
    shutil.copytree(made, place)
    monkeypatch.chdir(place)
    with open_static(place, "old") as library, library.database.write() as connection:
        connection.exec_driver_sql("UPDATE datasets SET root = ? || '/' || name", (str(place),))
        seal_rows(connection, datasets, true())
    return place


def answers(library, service=None):
    """Return all that searches by meaning answer; the model's path in no way enters it."""
    service = service or SearchServiceV2(library)
    return [
        [(it.chunk_id, it.score) for it in service.search(query, dataset=name, mode="vector")]
        for query in QUERIES
        for name in ("notes", "more")
    ]


def adopt(place, **options):
    with open_static(place, "old", **options) as library:
        assert try_model(library, NEW).counts.missing == 0
        return adopt_tried(library)


def rebuilt(place, tmp_path, model="new", **rag):
    """Return the answers of a store that the other model made from the start."""
    with open_static(place, model, home="another", **rag) as library:
        for name in ("notes", "more"):
            Indexer(library).build(place / name, name)
        return answers(library)


def count_embedded(monkeypatch):
    """Count the passages that a static model embeds from now on."""
    texts, encode = [], StaticEncoder.encode

    def counting(encoder, some):
        texts.extend(some)
        return encode(encoder, some)

    monkeypatch.setattr(StaticEncoder, "encode", counting)
    return texts


def test_a_try_changes_nothing_that_is_searched_and_is_shown_as_waiting(place):
    with open_static(place, "old") as library:
        before = answers(library)
        report = try_model(library, NEW)
        assert report.embedded == report.counts.vectors == report.counts.passages == 15
        assert report.counts.bytes == 15 * 24 * 4
        assert answers(library) == before
        assert all(check.ok for check in diagnose(library))


@pytest.mark.parametrize("engine", ["qdrant", "sqlite-vec", "exact"])
def test_an_adopted_model_answers_as_in_a_store_that_it_made_from_the_start(
    place, tmp_path, engine
):
    adopt(place, vector_engine=engine)
    with open_static(place, "new", vector_engine=engine) as library:
        expected = rebuilt(place, tmp_path, vector_engine=engine)
        assert answers(library) == expected
        assert all(check.ok for check in diagnose(library))


def test_a_store_on_postgres_adopts_as_one_in_a_file(
    made, adopted, on_postgres, tmp_path, monkeypatch
):
    monkeypatch.chdir(made)
    with open_static(made, "old", home=tmp_path) as library:
        for name in ("notes", "more"):
            Indexer(library).build(made / name, name)
        try_model(library, ICE)
        assert drop_tried(library) == ("old", 15)
        report = try_model(library, NEW, ["notes"], sample=5)
        assert (report.counts.embedded, report.counts.passages) == (5, 12)
        assert try_model(library, NEW).counts.missing == 0
        adopt_tried(library)
        assert answers(library) == adopted
        assert Indexer(library).update("notes").unchanged == 12
        assert all(check.ok for check in diagnose(library))


def test_other_windows_and_prefixes_are_adopted_as_well(place, tmp_path, monkeypatch):
    profile = EmbeddingProfile("query: ", "snow tea ", max_tokens=40)
    monkeypatch.setitem(profiles.PROFILES, "new", profile)
    report = adopt(place)
    assert report.counts.vectors > report.counts.passages == 15  # two windows each
    with open_static(place, "new") as library:
        assert answers(library) == rebuilt(place, tmp_path)
        texts = count_embedded(monkeypatch)
        assert Indexer(library).update("notes").unchanged == 12
        assert texts == []


def test_adopting_a_model_again_tells_the_settings_that_make_it(place):
    adopt(place)
    with open_static(place, "old") as library:
        with pytest.raises(InputError, match="no model is on trial") as raised:
            adopt_tried(library)
        assert "IDX_EMBEDDING__MODEL=new and IDX_EMBEDDING__PROVIDER=static" in str(raised.value)


def test_an_adoption_gives_every_dataset_another_state_so_that_no_cache_outlives_it(place):
    with open_static(place, "old") as library:
        try_model(library, NEW)
        with library.database.read() as connection:
            before = read_stamps(connection, ("notes", "more"))
        adopt_tried(library)
        with library.database.read() as connection:
            after = read_stamps(connection, ("notes", "more"))
    assert all(old.state != new.state for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("settings", ["old", "new"])
def test_after_an_adoption_an_update_embeds_nothing_whichever_model_is_set(
    place, monkeypatch, settings
):
    report = adopt(place)
    assert report.settings["embedding.model"] == "new"
    texts = count_embedded(monkeypatch)
    with open_static(place, settings) as library:
        for name in ("notes", "more"):
            updated = Indexer(library).update(name)
            assert (updated.added, updated.updated, updated.embedded) == (0, 0, 0)
            notes = [note for note in updated.notes if "adopted" in note]
            assert len(notes) == (settings == "old")
            assert all("IDX_EMBEDDING__MODEL=new" in note for note in notes)
    assert texts == []


def test_an_update_in_a_process_that_was_open_before_the_adoption_follows_it(place, monkeypatch):
    with open_static(place, "old") as library:
        Indexer(library).update("notes")
        adopt(place)
        texts = count_embedded(monkeypatch)
        write(place / "notes", fresh_dot_md="moon tea")
        report = Indexer(library).update("notes")
        assert (report.added, report.embedded, len(texts)) == (1, 1, 1)
        assert any("adopted new" in note for note in report.notes)
        assert all(check.ok for check in diagnose(library))


def test_a_library_of_a_third_model_is_still_refused(place):
    adopt(place)
    make_random_model(place / "third", 24, seed=3)
    with (
        open_static(place, "third") as library,
        pytest.raises(EmbeddingMismatchError, match="catalog index try-model"),
    ):
        Indexer(library).update("notes")


def test_the_old_model_can_be_tried_and_adopted_again(place):
    with open_static(place, "old") as library:
        before = answers(library)
    adopt(place)
    with open_static(place, "new") as library:
        try_model(library, {"embedding.model": "old"})
        adopt_tried(library)
        assert answers(library) == before
    for settings in ("old", "new"):  # the one is set, the other is followed
        with open_static(place, settings) as library:
            assert answers(library) == before
            assert (library.adoption is not None) == (settings == "new")


@pytest.mark.parametrize("engine", ["qdrant", "exact"])
def test_searches_under_way_see_the_old_model_or_the_new_one(place, tmp_path, engine):
    with open_static(place, "old", vector_engine=engine) as library:
        old = answers(library)
    new, seen, errors, is_over = rebuilt(place, tmp_path), [], [], threading.Event()

    def search():
        try:
            with open_static(place, "old", vector_engine=engine) as library:
                service = SearchServiceV2(library)
                while not is_over.is_set():
                    seen.append(answers(library, service))
                seen.append(answers(library, service))
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    adopt(place, vector_engine=engine)
    is_over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    each = list(zip(old, new, strict=True))
    assert all(one in pair for some in seen for one, pair in zip(some, each, strict=True))
    assert old != new
    assert seen[-1] == new


def test_a_try_that_was_stopped_embeds_only_what_is_missing(place, monkeypatch):
    write_documents(place / "notes", range(100, 200))
    with open_static(place, "old") as library:
        Indexer(library).update("notes")
    texts, encode = count_embedded(monkeypatch), StaticEncoder.encode

    def stopping(encoder, some):
        if len(texts) > 60:
            raise KeyboardInterrupt
        return encode(encoder, some)

    with open_static(place, "old") as library:
        with monkeypatch.context() as stopped:
            stopped.setattr(StaticEncoder, "encode", stopping)
            with pytest.raises(KeyboardInterrupt):
                try_model(library, NEW)
        kept = len(texts)
        assert 60 < kept < 100
        report = try_model(library, NEW)
        passages = [text for text in texts if text != "probe"]
        assert len(passages) == len(set(passages)) == report.counts.passages == 115
        assert report.counts.missing == 0


def test_a_sample_is_of_whole_documents_and_what_it_lacks_is_embedded_to_adopt_it(
    place, tmp_path, monkeypatch
):
    with open_static(place, "old") as library:
        report = try_model(library, NEW, ["notes"], sample=5, first=["doc03.md", "doc07.md"])
        assert (report.counts.embedded, report.counts.missing) == (5, 7)
        with library.database.read() as connection:
            assert count_trial(connection, "more").embedded == 0
        texts = count_embedded(monkeypatch)
        assert adopt_tried(library).counts.missing == 0
        assert len([text for text in texts if text != "probe"]) == 10
    with open_static(place, "new") as library:
        assert answers(library) == rebuilt(place, tmp_path)
        assert all(check.ok for check in diagnose(library))


def test_passages_that_the_model_fails_on_are_adopted_as_waiting(place, monkeypatch):
    encode = StaticEncoder.encode

    def failing(encoder, some):
        if any(text.endswith("moon tea") for text in some):
            raise RuntimeError("no such text")
        return encode(encoder, some)

    with open_static(place, "old") as library:
        try_model(library, NEW)
        write(place / "notes", fresh_dot_md="moon tea")
        Indexer(library).update("notes")
        with monkeypatch.context() as broken:
            broken.setattr(StaticEncoder, "encode", failing)
            report = adopt_tried(library)
        assert report.counts.missing == 1
        assert any(note.startswith("fresh.md: 1 passages not embedded") for note in report.notes)
        assert Indexer(library).update("notes").embedded == 1
        assert all(check.ok for check in diagnose(library))


def test_passages_changed_since_the_trial_are_embedded_by_the_adoption(
    place, tmp_path, monkeypatch
):
    with open_static(place, "old") as library:
        try_model(library, NEW)
        write(place / "notes", doc03_dot_md="# Page\n\nsun and rain", fresh_dot_md="moon tea")
        (place / "notes" / "doc05.md").unlink()
        Indexer(library).update("notes")
        texts = count_embedded(monkeypatch)
        report = adopt_tried(library)
        assert len([text for text in texts if text != "probe"]) == 2
        assert report.counts.passages == report.counts.embedded == 15
        assert answers(library) == rebuilt(place, tmp_path)


def test_an_update_keeps_the_vectors_of_a_try_and_drops_those_of_removed_documents(place):
    with open_static(place, "old") as library:
        report = try_model(library, NEW)
        (place / "notes" / "doc05.md").unlink()
        Indexer(library).update("notes")
        with library.database.read() as connection:
            assert count_trial(connection).vectors == 14
            of_new = embeddings.c.fingerprint == report.trial.model.fingerprint
            kept = connection.execute(embeddings.select().where(of_new)).all()
        assert len([row for row in kept if row.side == "document"]) == 14


def test_dropping_a_trial_keeps_the_live_vectors(place):
    with open_static(place, "old") as library:
        before = answers(library)
        try_model(library, ICE)
        assert drop_tried(library) == ("old", 15)
        library.indexes.close()
        assert answers(library) == before
        with library.database.read() as connection:
            assert connection.execute(trial_windows.select()).all() == []
        assert all(check.ok for check in diagnose(library))
        with pytest.raises(InputError, match="no model is on trial"):
            drop_tried(library)


def test_the_same_weights_with_another_prefix_are_adopted(place, tmp_path):
    with open_static(place, "old") as library:
        try_model(library, ICE)
        report = adopt_tried(library)
        assert report.settings["rag_v2.embed_prefix_doc"] == "ice "
    with open_static(place, "old", embed_prefix_doc="ice ") as library:
        assert library.adoption is None
        assert Indexer(library).update("notes").unchanged == 12
        assert answers(library) == rebuilt(place, tmp_path, "old", embed_prefix_doc="ice ")


def test_what_cannot_be_tried_or_adopted_is_refused(place):
    with open_static(place, "old") as library:
        with pytest.raises(InputError, match="is already the store's model"):
            try_model(library, {"embedding.model": "old"})
        with pytest.raises(ModelUnavailableError, match="nowhere"):
            try_model(library, {"embedding.model": "nowhere"})
        with pytest.raises(InputError, match="log_level"):
            try_model(library, NEW | {"log_level": "INFO"})
        with pytest.raises(InputError, match="no model is on trial"):
            adopt_tried(library)
        try_model(library, NEW)
        with pytest.raises(InputError, match="new is on trial already"):
            try_model(library, ICE)


def test_settings_that_name_the_new_model_too_early_are_told_to_wait(place):
    with open_static(place, "old") as library:
        try_model(library, NEW)
    with open_static(place, "new") as library:
        for act in (lambda: try_model(library, NEW), lambda: adopt_tried(library)):
            with pytest.raises(EmbeddingMismatchError, match="use settings that name old"):
                act()


def test_nothing_is_adopted_or_dropped_while_another_process_tries_a_model(place):
    with open_static(place, "old") as library, open_static(place, "old") as second:
        try_model(library, NEW)
        with _alone(library):
            for act in (adopt_tried, drop_tried):
                with pytest.raises(StoreBusyError, match="another process is trying"):
                    act(second)
        assert drop_tried(second) == ("new", 15)


def test_weights_that_changed_since_the_try_are_refused(place):
    with open_static(place, "old") as library:
        try_model(library, NEW)
        shutil.rmtree(place / "new")
        make_random_model(place / "new", 24, seed=5)
        write(place / "notes", fresh_dot_md="moon tea")
        Indexer(library).update("notes")
        with pytest.raises(InputError, match="new is on trial already"):
            try_model(library, NEW)
        with pytest.raises(InputError, match="the weights of"):
            adopt_tried(library)


@pytest.fixture(scope="module")
def adopted(made, tmp_path_factory):
    """What a store answers once the new model was adopted, with nothing in the way."""
    place = tmp_path_factory.mktemp("adopted") / "place"
    shutil.copytree(made, place)
    try_and_adopt(place, "nowhere", "")
    with contextlib.chdir(place), open_static(place, "new") as library:
        return answers(library)


@pytest.mark.parametrize("moment", KILLED)
def test_a_try_or_an_adoption_that_is_killed_is_finished_by_the_next(place, adopted, moment):
    with open_static(place, "old") as library:
        before = answers(library)
    process = forking().Process(target=try_and_adopt, args=(place, *KILLED[moment]))
    process.start()
    process.join(60)
    assert process.exitcode == -9, "the moment was never reached"
    with open_static(place, "old") as library:
        is_swapped = library.adoption is not None
        assert answers(library) == (adopted if is_swapped else before)
    try_and_adopt(place, "nowhere", "")
    for name in ("notes", "more"):
        with open_static(place, "new", vector_engine="qdrant") as library:
            assert Indexer(library).update(name).embedded == 0
    with open_static(place, "new", vector_engine="qdrant") as library:
        assert answers(library) == adopted
        assert all(check.ok for check in diagnose(library))
