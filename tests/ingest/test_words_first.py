"""Words first, meaning as it comes: what is found when, and what a run that ends costs."""

import os
from dataclasses import replace

import pytest
from sqlalchemy import delete, event, select

from catalog.core.errors import CatalogError
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.schema import embeddings
from fakes import WordEncoder, open_library, write

NAMES = [f"{letter}.md" for letter in "abcdefgh"]


class Watched(WordEncoder):
    """Calls ``before`` with the number of the batch, from 1, before it embeds that."""

    def __init__(self, before):
        super().__init__()
        self.before, self.calls = before, 0

    def encode(self, texts):
        self.calls += 1
        self.before(self.calls)
        return super().encode(texts)


def search(home, query, dataset="notes", **more):
    """Answer as another process would, while a run is going on."""
    with open_library(home) as library:
        return SearchServiceV2(library).search(query, dataset=dataset, **more)


def found(results):
    return {result.path for result in results}


@pytest.fixture
def folder(tmp_path):
    """Eight documents, a day between each and the next."""
    root = tmp_path / "notes"
    for day, name in enumerate(NAMES):
        write(root, **{name.replace(".", "_dot_"): f"# {name}\n\nwalrus of {name} number{day}."})
        os.utime(root / name, (1_600_000_000 + day * 86_400,) * 2)
    return root


def small_batches(library, size=2):
    library.model = replace(library.model, batch_size=size)
    return library


def test_every_text_is_found_by_its_words_before_the_model_is_asked(tmp_path, folder):
    answers = []

    def ask(call):
        if call == 1:
            answers.extend(
                search(tmp_path / "home", "walrus", mode=mode, top_k=20, strict=True)
                for mode in ("lexical", "hybrid", "vector")
            )

    with open_library(tmp_path / "home", Watched(ask)) as library:
        Indexer(library).build(folder, "notes")
    lexical, hybrid, vector = answers
    assert found(lexical) == found(hybrid) == set(NAMES)
    assert found(vector) == set()
    assert lexical.notes == ()
    note = "by meaning: 0 % of the passages so far; "
    assert hybrid.notes[0] == hybrid.to_dict()["notes"][0] == f"{note}by words: all"
    assert vector.notes[0] == f"{note}no other passages were searched"
    whole = search(tmp_path / "home", "walrus", mode="vector", top_k=20)
    assert (found(whole), whole.notes) == (set(NAMES), ())


def test_a_search_finds_by_meaning_what_is_embedded_and_says_what_share_that_is(tmp_path, folder):
    shares = []

    def ask(call):
        results = search(tmp_path / "home", "walrus", mode="vector", top_k=20)
        shares.append((len(found(results)), results.notes[0].partition(" of")[0]))

    with small_batches(open_library(tmp_path / "home", Watched(ask))) as library:
        Indexer(library).build(folder, "notes")
    assert shares == [
        (0, "by meaning: 0 %"),
        (2, "by meaning: 25 %"),
        (4, "by meaning: 50 %"),
        (6, "by meaning: 75 %"),
    ]


@pytest.mark.parametrize("engine", ["qdrant", "flat"])
def test_a_library_that_stays_open_finds_each_vector_as_it_comes(tmp_path, folder, engine):
    counts = []
    with open_library(tmp_path / "home", vector_engine=engine) as reader:
        service = SearchServiceV2(reader)

        def ask(call):
            results = service.search("walrus", dataset="notes", mode="vector", top_k=20)
            counts.append(len(found(results)))

        with small_batches(open_library(tmp_path / "home", Watched(ask))) as library:
            Indexer(library).build(folder, "notes")
    assert counts == [0, 2, 4, 6]


def test_the_changed_are_embedded_first_and_of_all_others_the_newest(tmp_path, folder):
    encoder = WordEncoder()
    with small_batches(open_library(tmp_path / "home", encoder), 1) as library:
        encoder.down = True
        Indexer(library).build(folder, "notes")
        assert Indexer(library).stats("notes").vectors == 0
        encoder.down = False
        stamp = (folder / "c.md").stat().st_mtime_ns
        (folder / "c.md").write_text("# c.md\n\nwalrus of c.md, changed.")
        os.utime(folder / "c.md", ns=(stamp, stamp))
        Indexer(library).update("notes")
    assert [text[2:6] for text in encoder.texts] == ["c.md", *reversed([*NAMES[:2], *NAMES[3:]])]


def test_passages_embedded_before_ctrl_c_are_not_embedded_again(tmp_path):
    """In the midst of one long document: the next run goes on behind it."""
    folder = tmp_path / "notes"
    write(folder, long_dot_md="\n\n".join(f"# H{n}\n\n{f'word{n} ' * 60}" for n in range(12)))

    def stop(call):
        if call == 4:
            raise KeyboardInterrupt

    encoder = Watched(stop)
    with small_batches(open_library(tmp_path / "home", encoder)) as library:
        with pytest.raises(KeyboardInterrupt):
            Indexer(library).build(folder, "notes")
        stats = Indexer(library).stats("notes")
        assert stats.vectors == len(encoder.texts) == 6
        assert stats.windows >= 12
        encoder.before = lambda call: None
        report = Indexer(library).update("notes")
        assert (report.updated, report.incomplete) == (0, 0)
        assert len(encoder.texts) == len(set(encoder.texts)) == stats.windows
        assert SearchServiceV2(library).search("word3", dataset="notes").notes == ()


@pytest.mark.slow
def test_a_vector_reaches_every_dataset_that_waits_for_it(tmp_path, folder):
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        encoder.down = True
        for name in ("notes", "twin"):
            Indexer(library).build(folder, name)
        encoder.down = False
        assert found(SearchServiceV2(library).search("x", dataset="twin", mode="vector")) == set()
        Indexer(library).update("notes")
        twin = SearchServiceV2(library).search("walrus", dataset="twin", mode="vector", top_k=20)
        assert found(twin) == set(NAMES)
        Indexer(library).update("twin")
        embedded = [text for text in encoder.texts if "walrus of" in text]
        assert len(embedded) == len(set(embedded)) == 8
        assert [check for check in diagnose(library) if not check.ok] == []


def test_two_runs_that_wait_for_the_same_texts_ask_the_model_once_for_each(tmp_path, folder):
    encoder = WordEncoder()
    with small_batches(open_library(tmp_path / "home", encoder)) as library:
        encoder.down = True
        for name in ("notes", "twin"):
            Indexer(library).build(folder, name)
        encoder.down = False
        others = []

        def pause():
            if not others:  # after the first batch of this run another one begins, and ends
                others.append(Indexer(library).update("twin"))
            return False

        report = Indexer(library).update("notes", pause=pause)
        assert len(encoder.texts) == len(set(encoder.texts)) == 8
        assert (report.embedded, others[0].embedded, report.incomplete) == (2, 6, 0)


def test_vectors_that_were_lost_are_made_again_by_an_update_that_has_nothing_to_read(
    tmp_path, folder
):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "notes")
        with library.database.write() as connection:
            lost = connection.scalars(select(embeddings.c.embed_key).limit(3)).all()
            connection.execute(delete(embeddings).where(embeddings.c.embed_key.in_(lost)))
        report = Indexer(library).update("notes")
        assert (report.embedded, report.reused, report.embedded_chunks) == (3, 5, 8)
        report = Indexer(library).update("notes")
        assert (report.embedded, report.reused, report.embedded_chunks) == (0, 8, 8)


def test_a_search_counts_what_has_no_vector_among_what_may_answer_only(tmp_path, folder):
    encoder = WordEncoder()
    encoder.poison = "number2"  # in c.md
    with open_library(tmp_path / "home", encoder) as library:
        Indexer(library).build(folder, "notes")
        service = SearchServiceV2(library)

        def notes(**within):
            return service.search("walrus", dataset="notes", **within).notes

        assert notes()[0].startswith("by meaning: 87 %")
        assert notes(doc_ids=["c.md", "d.md"])[0].startswith("by meaning: 50 %")
        assert notes(filters="path=c.md")[0].startswith("by meaning: 0 %")
        assert notes(doc_ids=["d.md"]) == notes(filters="path=d.md") == notes(doc_ids=[]) == ()


def test_doctor_and_a_dry_run_say_what_waits(tmp_path, folder):
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        encoder.down = True
        Indexer(library).build(folder, "notes")
        encoder.down = False
        preview = Indexer(library).preview("notes")
        assert preview.changed == ()
        assert preview.notes == ("8 passages of 8 documents wait to be embedded, and would be",)
        (check,) = [check for check in diagnose(library) if not check.ok]
        assert (check.name, check.fix) == (
            "notes: embedded",
            "catalog index update --dataset notes",
        )


VTT = "WEBVTT\n\n" + "".join(
    f"00:0{n // 6}:{n % 6}0.000 --> 00:0{n // 6}:{n % 6}9.000\n<v Ann>Sentence {n} of speech.\n\n"
    for n in range(18)
)


def test_the_texts_to_embed_are_made_of_stored_passages_as_they_were_at_first(tmp_path):
    """Speech in parts, passages of several windows, headings, tables, records, pages of HTML."""
    folder = tmp_path / "notes"
    write(
        folder,
        talk_dot_vtt=VTT,
        guide__to_the__walrus_dot_md="# One\n\nText.\n\n## Two\n\n" + "many words here. " * 90,
        page_dot_html="<title>T</title><h1>Alpha</h1><p>A walrus.</p><h2>B</h2><p>More.</p>",
        rows_dot_jsonl='{"_id": "1", "title": "One", "text": "A walrus."}\n',
        table_dot_csv="name,size\nwalrus,3\notter,1\n",
    )
    with open_library(tmp_path / "home", max_chunks_per_doc=0) as library:
        report = Indexer(library).build(folder, "notes")
        stats = Indexer(library).stats("notes")
        assert (report.incomplete, report.notes) == (0, ())
        assert stats.vectors == stats.windows > stats.chunks


def test_an_index_that_cannot_be_used_still_raises_in_strict_mode(tmp_path, folder):
    """``strict`` is about steps that fail; vectors that are still to come are no failure."""
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        encoder.down = True
        Indexer(library).build(folder, "notes")
        service = SearchServiceV2(library)
        with pytest.raises(CatalogError):
            service.search("walrus", dataset="notes", strict=True)
        encoder.down = False
        results = service.search("walrus", dataset="notes", strict=True)
        assert results.notes[0].startswith("by meaning: 0 %")


def test_a_run_that_pauses_leaves_the_rest_to_the_next_and_a_change_comes_before_it(
    tmp_path, folder
):
    encoder = WordEncoder()
    with small_batches(open_library(tmp_path / "home", encoder)) as library:
        report = Indexer(library).build(folder, "notes", pause=lambda: len(encoder.texts) >= 4)
        assert (report.added, report.embedded, report.incomplete, report.failed) == (8, 4, 4, ())
        (folder / "a.md").write_text("# a.md\n\nwalrus of a.md, changed in between.")
        report = Indexer(library).update("notes")
        assert (report.updated, report.embedded, report.incomplete) == (1, 4, 0)
        assert "changed in between" in encoder.texts[4] + encoder.texts[5]
        assert len(encoder.texts) == len(set(encoder.texts)) == 8


@pytest.mark.slow
def test_short_documents_share_their_statements(tmp_path):
    """Statements, not the model, were most of the cost of a document of twenty words."""
    for number in range(90):
        write(tmp_path / "notes", **{f"n{number}_dot_md": f"walrus number{number}"})
    with open_library(tmp_path / "home") as library:
        statements = []
        event.listen(
            library.database.engine,
            "before_cursor_execute",
            lambda _connection, _cursor, statement, *_: statements.append(statement),
        )
        report = Indexer(library).build(tmp_path / "notes", "notes")
    assert report.documents == report.embedded == 90
    assert len(statements) < 6 * 90


def test_equal_texts_are_embedded_once_over_all_datasets(tmp_path, folder):
    seen = []

    class Listed(WordEncoder):
        def encode(self, texts):
            seen.extend(texts)
            return super().encode(texts)

    (folder / "twin.md").write_text((folder / "a.md").read_text())
    with open_library(tmp_path / "home", Listed()) as library:
        first = Indexer(library).build(folder, "notes")
        second = Indexer(library).build(folder, "again")
    assert (first.embedded, first.reused) == (8, 1)
    assert (second.embedded, second.reused) == (0, 9)
    assert sorted(seen) == sorted(set(seen))
    assert first.embedded_chunks == second.embedded_chunks == 9
