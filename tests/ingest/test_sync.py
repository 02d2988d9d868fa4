"""Indexing runs: what changes, what stays, what a failure costs."""

import importlib
import os
import re
from pathlib import Path

import pytest

import catalog.ingest.reading
from catalog.core.errors import (
    EmbeddingMismatchError,
    InputError,
    MassDeletionError,
    ReadError,
    SourceError,
    TransientReadError,
)
from catalog.library.browse import DocumentCatalog
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library, write

both_stores = pytest.mark.both_stores  # of what the store keeps; the rest is the same on each


def paths(library, query, **search):
    results = SearchServiceV2(library).search(query, dataset="notes", **search)
    return [result.path for result in results]


def age(folder: Path) -> None:
    """Make every file old enough that its time stamp can be trusted."""
    for path in folder.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))


@pytest.mark.slow
@both_stores
def test_a_build_indexes_every_document_and_says_what_it_did(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(notes, "notes")
        assert (report.documents, report.added, report.failed) == (3, 3, ())
        assert report.embedded >= 3
        assert report.reused == 0
        assert paths(library, "bake bread")[0] == "bread.txt"


@pytest.mark.slow
@both_stores
def test_a_second_run_over_unchanged_files_reads_and_embeds_nothing(tmp_path, notes, monkeypatch):
    age(notes)
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        first = Indexer(library).build(notes, "notes")
        embedded = len(encoder.texts)
        monkeypatch.setattr("catalog.ingest.reading.read_file", None)
        second = Indexer(library).update("notes")
        assert (second.unchanged, second.embedded, second.reused) == (3, 0, first.embedded)
        assert len(encoder.texts) == embedded
        assert second.embedded_chunks == first.embedded_chunks == first.chunks


@pytest.mark.slow
@both_stores
def test_a_run_that_embeds_nothing_looks_once_for_what_waits_and_counts_once(
    tmp_path, notes, monkeypatch
):
    age(notes)
    asked = []
    for place, name in (
        ("catalog.store.embedding_cache", "list_waiting"),
        ("catalog.library.indexing", "count_totals"),
    ):
        real = getattr(importlib.import_module(place), name)

        def noted(*given, real=real, **named):
            asked.append(real.__name__)
            return real(*given, **named)

        monkeypatch.setattr(f"{place}.{name}", noted)
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        assert asked == ["list_waiting", "count_totals"]
        asked.clear()
        assert Indexer(library).update("notes").incomplete == 0
    assert asked == ["list_waiting", "count_totals"]


def test_a_file_changed_within_the_clock_tick_of_its_reading_is_noticed(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        bread = notes / "bread.txt"
        stamp = bread.stat().st_mtime_ns
        bread.write_text(bread.read_text().replace("yeast", "opium"))
        os.utime(bread, ns=(stamp, stamp))
        report = Indexer(library).update("notes")
        assert report.updated == 1
        assert paths(library, "opium", mode="lexical") == ["bread.txt"]


@both_stores
def test_an_edit_re_embeds_only_the_chunks_whose_text_changed(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    sections = [
        f"# Section {i}\n\n" + f"alpha{i} beta{i} gamma{i} delta{i}. " * 30 for i in range(5)
    ]
    (folder / "long.md").write_text("\n\n".join(sections))
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        first = Indexer(library).build(folder, "notes")
        sections[4] += "omega."
        (folder / "long.md").write_text("\n\n".join(sections))
        second = Indexer(library).update("notes")
        assert first.embedded > 8
        assert 1 <= second.embedded <= 3
        assert paths(library, "omega", mode="lexical") == ["long.md"]


@both_stores
def test_a_deleted_file_is_gone_from_every_leg_and_its_vectors_from_the_store(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        (notes / "bread.txt").unlink()
        report = Indexer(library).update("notes")
        assert report.removed == 1
        for mode in ("lexical", "vector", "hybrid"):
            assert "bread.txt" not in paths(library, "bake bread", mode=mode)
        with library.database.read() as connection:
            cached = connection.exec_driver_sql(
                "SELECT count(*) FROM embeddings WHERE side = 'document'"
            ).scalar()
        assert cached == Indexer(library).stats("notes").windows


def test_a_file_emptied_to_nothing_no_longer_answers(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        (notes / "bread.txt").write_text("")
        report = Indexer(library).update("notes")
        assert [failure.path for failure in report.failed] == ["bread.txt"]
        assert paths(library, "bake bread", mode="lexical") == []


@pytest.mark.parametrize("name", ["a.pdf", "a.epub"])
def test_a_document_cut_to_nothing_keeps_its_text_until_it_is_whole(tmp_path, notes, name):
    # Under any name text is read as text, so the stored document need not be of the format.
    (notes / name).write_text("Turnips are sown in spring.\n")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        (notes / name).write_bytes(b"")
        report = Indexer(library).update("notes")
        assert [failure.reason.split(",")[0] for failure in report.failed] == ["broken: 0 bytes"]
        assert paths(library, "turnips", mode="lexical") == [name]


@both_stores
def test_one_poisoned_passage_is_named_and_the_rest_of_the_run_stored(tmp_path, notes):
    (notes / "bad.md").write_text("# Bad\n\nPOISON is in this passage about turnips.\n")
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        report = Indexer(library).build(notes, "notes")
        assert [failure.path for failure in report.failed] == ["bad.md"]
        assert (report.documents, report.incomplete) == (4, 1)
        assert paths(library, "turnips", mode="lexical") == ["bad.md"]
        assert "bad.md" not in paths(library, "turnips", mode="vector")

        encoder.poison = "nothing any more"
        again = Indexer(library).update("notes")
        assert (again.incomplete, again.failed) == (0, ())
        assert paths(library, "turnips passage", mode="vector")[0] == "bad.md"


@both_stores
def test_a_passage_that_stays_poisoned_changes_nothing_at_the_next_update(tmp_path, notes):
    (notes / "bad.md").write_text("# Bad\n\nPOISON is in this passage about turnips.\n")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        before = generation(library)
        report = Indexer(library).update("notes")
        assert report.incomplete == 1
        assert generation(library) == before


def generation(library):
    with library.database.read() as connection:
        return connection.exec_driver_sql("SELECT generation FROM datasets").scalar()


@pytest.mark.slow
@both_stores
def test_the_new_text_answers_by_words_alone_while_the_embedder_is_down(tmp_path, notes):
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        Indexer(library).build(notes, "notes")
        (notes / "bread.txt").write_text("Boil rice in water.\n")
        encoder.down = True
        report = Indexer(library).update("notes")
        assert (report.updated, report.embedded, report.incomplete) == (1, 0, 1)
        assert "1 passages are found only by their words" in report.notes[0]
        encoder.down = False
        assert paths(library, "rice", mode="lexical") == ["bread.txt"]
        assert paths(library, "flour yeast", mode="lexical") == []
        assert "bread.txt" not in paths(library, "flour yeast", mode="vector")
        report = Indexer(library).update("notes")
        assert (report.updated, report.embedded, report.incomplete) == (0, 1, 0)
        assert paths(library, "boil rice", mode="vector")[0] == "bread.txt"


@both_stores
def test_a_listing_that_lost_everything_stops_the_run(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        for path in [p for p in notes.rglob("*") if p.is_file()]:
            path.unlink()
        with pytest.raises(MassDeletionError, match="3 of 3"):
            Indexer(library).update("notes")
        assert paths(library, "bake bread")[0] == "bread.txt"
        report = Indexer(library).update("notes", allow_deletions=True)
        assert (report.removed, report.documents) == (3, 0)


@pytest.mark.parametrize("option", ["include '*.zzz'", "exclude '*'"])
def test_the_brake_names_the_pattern_that_leaves_the_files_out(tmp_path, notes, option):
    name, pattern = option.replace("'", "").split()
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        with pytest.raises(MassDeletionError, match=re.escape(f"left out by {option}, or gone")):
            Indexer(library).build(notes, "notes", **{name: (pattern,)})


def test_another_folder_does_not_replace_a_dataset_unless_that_is_allowed(tmp_path, notes):
    other = tmp_path / "other"
    write(other, **{f"p{number}_dot_md": "A page of minutes." for number in range(40)})
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        with pytest.raises(MassDeletionError, match="3 of 3") as refused:
            Indexer(library).build(other, "notes")
        assert f"built from {notes}; building it from {other}" in str(refused.value)
        assert paths(library, "bake bread")[0] == "bread.txt"
        report = Indexer(library).build(other, "notes", allow_deletions=True)
        assert (report.added, report.removed) == (40, 3)


def test_a_folder_that_moved_with_its_files_is_followed(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        moved = notes.rename(tmp_path / "moved")
        report = Indexer(library).build(moved, "notes")
        assert (report.unchanged, report.added, report.removed) == (3, 0, 0)


def test_a_folder_that_is_gone_stops_the_run_and_loses_nothing(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        notes.rename(tmp_path / "elsewhere")
        with pytest.raises(SourceError, match="notes"):
            Indexer(library).update("notes")
        assert Indexer(library).stats("notes").documents == 3


def test_one_bad_line_of_json_lines_is_named_and_the_others_indexed(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"_id": "1", "title": "One", "text": "apples"}\nnot json\n{"_id": "3", "text": "pears"}\n'
    )
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(corpus, "notes")
        assert report.documents == 2
        assert [failure.path for failure in report.failed] == ["corpus.jsonl:2"]
        assert paths(library, "pears", mode="lexical") == ["3"]


@both_stores
def test_a_path_too_long_for_the_store_fails_alone_and_is_named(tmp_path):
    deep = tmp_path / "notes" / Path(*["ü" * 100] * 8)
    deep.mkdir(parents=True)
    (deep / "long.md").write_text("# Deep\n\nBuried treasure.\n", encoding="utf-8")
    (tmp_path / "notes" / "near.md").write_text("# Near\n\nShallow water.\n", encoding="utf-8")
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        assert paths(library, "Shallow water")[0] == "near.md"
    said = [failure.reason for failure in report.failed]
    assert ["is too long" in reason for reason in said] == [True]


def test_a_record_taken_out_of_json_lines_is_forgotten(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "1", "text": "apples"}\n{"_id": "2", "text": "pears"}\n')
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(corpus, "notes")
        corpus.write_text('{"_id": "1", "text": "apples"}\n')
        report = Indexer(library).update("notes")
        assert (report.removed, report.documents, report.unchanged) == (1, 1, 1)


@pytest.mark.slow
@both_stores
def test_records_stay_when_their_file_is_renamed(tmp_path):
    (tmp_path / "notes").mkdir()
    corpus = tmp_path / "notes" / "corpus.jsonl"
    corpus.write_text('{"_id": "1", "text": "apples"}\n{"_id": "2", "text": "pears"}\n')
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        corpus.rename(corpus.with_name("renamed.jsonl"))
        report = Indexer(library).update("notes")
        assert (report.documents, report.updated, report.removed) == (2, 2, 0)
        assert paths(library, "pears", mode="lexical") == ["2"]
        (tmp_path / "notes" / "kept.md").write_text("plums")
        (tmp_path / "notes" / "renamed.jsonl").unlink()
        report = Indexer(library).update("notes")
        assert (report.documents, report.added, report.removed) == (1, 1, 2)


@pytest.mark.slow
@both_stores
def test_the_first_record_of_an_id_is_indexed_and_the_second_is_named(tmp_path):
    folder = tmp_path / "notes"
    write(folder, a_dot_jsonl='{"_id": "1", "text": "apples"}')
    write(folder, b_dot_jsonl='{"_id": "1", "text": "pears"}\n{"_id": "2", "text": "plums"}')
    age(folder)
    with open_library(tmp_path / "home") as library:
        first = Indexer(library).build(folder, "notes")
        again = Indexer(library).update("notes")
        assert (first.documents, first.added) == (2, 2)
        assert (again.documents, again.added, again.updated, again.removed) == (2, 0, 0, 0)
        for report in (first, again):
            assert [(failure.path, failure.reason) for failure in report.failed] == [
                ("1", "a document of a.jsonl has this path already")
            ]
        assert paths(library, "apples", mode="lexical") == ["1"]
        assert paths(library, "pears", mode="lexical") == []

        (folder / "a.jsonl").unlink()
        report = Indexer(library).update("notes")
        assert (report.documents, report.failed) == (2, ())
        assert paths(library, "pears", mode="lexical") == ["1"]


def test_a_record_that_moved_to_another_file_is_found_after_the_next_update_at_the_latest(tmp_path):
    folder = tmp_path / "notes"
    one, two = '{"_id": "1", "text": "apples"}\n', '{"_id": "2", "text": "pears"}\n'
    write(folder, a_dot_jsonl=one, b_dot_jsonl=two)
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "notes")
        for of_a, of_b in ((one + two, ""), ("", one + two)):
            write(folder, a_dot_jsonl=of_a or '{"_id": "3", "text": "plums"}', b_dot_jsonl=of_b)
            Indexer(library).update("notes")
            age(folder)
            Indexer(library).update("notes")
            assert paths(library, "apples", mode="lexical") == ["1"]
            assert paths(library, "pears", mode="lexical") == ["2"]


@pytest.mark.slow
@both_stores
def test_two_builds_of_the_same_files_give_the_same_ids_in_the_same_order(tmp_path, notes):
    def ids(home):
        with open_library(tmp_path / home) as library:
            Indexer(library).build(notes, "notes")
            with library.database.read() as connection:
                rows = connection.exec_driver_sql("SELECT chunk_id FROM chunks ORDER BY seq")
                return [row[0] for row in rows]

    assert ids("one") == ids("two")
    assert len(ids("three")) >= 3


@pytest.mark.slow
@both_stores
def test_a_store_refuses_another_models_vectors_and_names_the_way_out(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    other = WordEncoder()
    other.fingerprint = "words-2"
    with open_library(tmp_path / "home", other) as library:
        with pytest.raises(EmbeddingMismatchError, match="catalog index rebuild"):
            Indexer(library).update("notes")
        reports = Indexer(library).rebuild()
        assert reports["notes"].embedded == reports["notes"].reused + reports["notes"].embedded
        assert paths(library, "bake bread", mode="vector")[0] == "bread.txt"


def test_a_dataset_name_that_could_leave_its_folder_is_refused(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        for name in ("", "a/b", "a:b", "../up", ".hidden", "x" * 101):
            with pytest.raises(InputError):
                Indexer(library).build(notes, name)


def test_an_update_keeps_to_the_globs_of_the_build(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes", include=("*.md",), exclude=("guides/*",))
        (notes / "more.txt").write_text("not wanted")
        (notes / "more.md").write_text("wanted")
        report = Indexer(library).update("notes")
        assert (report.added, report.documents, report.removed) == (1, 2, 0)


def test_a_build_keeps_the_patterns_until_new_ones_are_given_and_says_so(tmp_path, notes):
    with open_library(tmp_path / "home") as library:
        indexer = Indexer(library)
        first = indexer.build(notes, "notes", include=("*.md",), exclude=("guides/*",))
        again = indexer.build(notes, "notes")
        assert (again.documents, again.added) == (first.documents, 0)
        assert any("--include '*.md'" in note for note in again.notes)
        assert any("--exclude 'guides/*'" in note for note in again.notes)
        assert not any("--exclude" in note for note in indexer.update("notes").notes)
        without = indexer.build(notes, "notes", include=())
        assert without.added == 1  # bread.txt; the guides stay excluded
        assert indexer.build(notes, "notes", exclude=()).documents == 3


def test_a_pattern_that_matches_nothing_is_named(tmp_path, notes):
    (notes / "node_modules").mkdir()
    patterns = ("*.cvs", "guides/", "!*.md", "node_modules")
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(notes, "notes", include=("*",), exclude=patterns)
        assert report.notes == ("exclude '*.cvs' matched nothing",)
        assert Indexer(library).build(notes, "inside", exclude=("guides/*",)).notes == ()


def test_a_document_whose_content_is_only_text_is_indexed_with_a_remark(tmp_path):
    files = {
        "scan.pdf": ("x", "plain text"),
        "letter.docx": ("Dear Ann, the walrus swims.", "plain text"),
        "report.pdf": ("<!DOCTYPE html><p>Log in first.</p>", "a web page"),
        "ledger.xls": ("<?xml?><Workbook><Row><Cell>Rope</Cell></Row></Workbook>", "XML"),
    }
    for name, (content, _) in files.items():
        write(tmp_path / "notes", **{name.replace(".", "_dot_"): content})
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        assert report.documents == 4
        assert {(one.path, one.outcome) for one in report.failed} == {
            (name, "indexed") for name in files
        }
        for remark in report.failed:
            assert f"not as {remark.path[-4:].lstrip('.')}" in remark.reason
            assert files[remark.path][1] in remark.reason
        assert Indexer(library).update("notes").failed == report.failed


def test_a_folder_without_a_file_to_index_is_named(tmp_path):
    write(tmp_path / "notes", _dot_hidden_dot_md="A walrus.")
    with open_library(tmp_path / "home") as library:
        (note,) = Indexer(library).build(tmp_path / "notes", "notes").notes
        assert f"{tmp_path / 'notes'} has no file to index" in note


@pytest.mark.slow
@both_stores
def test_a_date_in_the_file_name_counts_before_the_files_time_and_after_the_documents_own(tmp_path):
    write(
        tmp_path / "notes",
        **{
            "meetings__2025-02-11-all-hands_dot_md": "A walrus.",
            "2025-02-12-own_dot_md": "---\ndate: 2019-05-01\n---\nAn otter.",
            "mole_dot_md": "A mole.",
            "2025-02-13_dot_jsonl": '{"_id": "r1", "text": "A record."}',
        },
    )
    age(tmp_path / "notes")  # in September 2020
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        listing = DocumentCatalog(library)
        dates = {entry.path: entry.date for entry in listing.query(dataset="notes").entries}
        assert dates == {
            "meetings/2025-02-11-all-hands.md": "2025-02-11T00:00:00Z",
            "2025-02-12-own.md": "2019-05-01T00:00:00Z",
            "mole.md": "2020-09-13T12:26:40Z",
            "r1": None,
        }
        found = listing.query(dataset="notes", after="2025-02", before="2025-03").entries
        assert [entry.path for entry in found] == ["meetings/2025-02-11-all-hands.md"]
        (tmp_path / "notes/mole.md").rename(tmp_path / "notes/2018-07 mole.md")
        Indexer(library).update("notes")
        (moved,) = listing.query(dataset="notes", before="2019").entries
        assert moved.date == "2018-07-01T00:00:00Z"


def test_a_tokenizer_that_fails_is_replaced_by_characters_and_the_report_says_so(tmp_path, notes):
    class Broken:
        name = "broken tokenizer"

        def spans(self, text):
            raise RuntimeError("no vocabulary")

    encoder = WordEncoder()
    encoder.counter = Broken()
    with open_library(tmp_path / "home", encoder) as library:
        report = Indexer(library).build(notes, "notes")
        assert (report.documents, report.failed) == (3, ())
        assert "the size of 3 documents is an estimate, 4 characters per token" in report.notes[0]
        assert "no vocabulary" in report.notes[0]
        assert paths(library, "bake bread", mode="vector")[0] == "bread.txt"


@pytest.mark.parametrize("where", ["reading", "cutting"])
def test_a_defect_on_one_document_is_named_and_the_rest_indexed(
    tmp_path, notes, monkeypatch, where
):
    from catalog.ingest import reading as module
    from catalog.ingest.pipeline import Pipeline

    read, prepare = module.read_file, Pipeline.prepare

    def odd_read(absolute, path, **options):
        if "bread" in path:
            raise IndexError("odd document")
        return read(absolute, path, **options)

    def odd_prepare(self, source):
        if "bread" in source.file:
            raise IndexError("odd document")
        return prepare(self, source)

    if where == "reading":
        monkeypatch.setattr(module, "read_file", odd_read)
    else:
        monkeypatch.setattr(Pipeline, "prepare", odd_prepare)
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(notes, "notes")
        assert [failure.path for failure in report.failed] == ["bread.txt"]
        assert "odd document" in report.failed[0].reason
        assert report.documents == 2
    monkeypatch.undo()
    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(notes, "notes").documents == 3


def test_of_two_failing_passages_the_one_that_recovers_is_found(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    sections = [f"# {name}\n\nPOISON {name} {'filler ' * 50}" for name in ("turnips", "carrots")]
    (folder / "bad.md").write_text("\n\n".join(sections))
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        assert Indexer(library).build(folder, "notes").incomplete == 1
        encoder.poison = "POISON carrots"
        assert Indexer(library).update("notes").incomplete == 1
        results = SearchServiceV2(library).search("turnips", dataset="notes", mode="vector")
        assert [hit.heading_path for hit in results] == [("turnips",)]


@pytest.mark.slow
@both_stores
def test_a_failing_publication_is_not_blamed_on_the_file_being_read(tmp_path, notes, monkeypatch):
    """It ends the run; nothing is noted as done that was not published, so the next run does it."""
    from catalog.ingest import pipeline

    def broken(*_):
        raise ValueError("cannot publish")

    monkeypatch.setattr(pipeline, "publish_all", broken)
    with open_library(tmp_path / "home", ingest={"group_chars": 1}) as library:
        with pytest.raises(ValueError, match="cannot publish"):
            Indexer(library).build(notes, "notes")
        monkeypatch.undo()
        assert Indexer(library).build(notes, "notes").documents == 3


def test_a_file_that_cannot_be_read_is_not_read_again_before_it_or_a_limit_changes(
    tmp_path, monkeypatch
):
    write(tmp_path / "notes", good_dot_md="A walrus.", bad_dot_ps="%!PS rich")
    files_read = []
    real = catalog.ingest.reading.read_file
    monkeypatch.setattr(
        catalog.ingest.reading,
        "read_file",
        lambda absolute, path, **more: (files_read.append(path), real(absolute, path, **more))[1],
    )
    age(tmp_path / "notes")
    with open_library(tmp_path / "home") as library:
        first = Indexer(library).build(tmp_path / "notes", "notes")
        again = Indexer(library).update("notes")
    assert files_read == ["bad.ps", "good.md"]
    assert [failure.reason for failure in again.failed] == [
        failure.reason for failure in first.failed
    ]
    with open_library(tmp_path / "home", ingest={"read_seconds": 5.0}) as library:
        Indexer(library).update("notes")
        assert files_read == ["bad.ps", "good.md", "bad.ps"]
        (tmp_path / "notes/bad.ps").write_text("plain now")
        assert Indexer(library).update("notes").failed == ()


def test_a_file_that_could_not_be_opened_is_tried_again(tmp_path, monkeypatch):
    write(tmp_path / "notes", good_dot_md="A walrus.", bad_dot_md="An otter.")
    real = catalog.ingest.reading.read_file

    def failing(absolute, path, **more):
        if path == "bad.md":
            raise TransientReadError("cannot be read: Input/output error")
        return real(absolute, path, **more)

    age(tmp_path / "notes")
    with open_library(tmp_path / "home") as library:
        with monkeypatch.context() as broken:
            broken.setattr(catalog.ingest.reading, "read_file", failing)
            (failure,) = Indexer(library).build(tmp_path / "notes", "notes").failed
        assert failure.path == "bad.md"
        report = Indexer(library).update("notes")
        assert (report.added, report.failed) == (1, ())


def test_a_document_is_tried_again_though_its_file_could_not_be_read_to_the_end(
    tmp_path, monkeypatch
):
    write(tmp_path / "notes", a_dot_jsonl='{"_id": "1", "text": "A walrus."}')
    real = catalog.ingest.reading.read_file

    def ending_early(absolute, path, **more):
        yield from real(absolute, path, **more)
        raise ReadError("the rest cannot be read")

    monkeypatch.setattr(catalog.ingest.reading, "read_file", ending_early)
    age(tmp_path / "notes")
    encoder = WordEncoder()
    encoder.down = True
    with open_library(tmp_path / "home", encoder, ingest={"group_chars": 1}) as library:
        assert Indexer(library).build(tmp_path / "notes", "notes").incomplete == 1
        encoder.down = False
        assert Indexer(library).update("notes").embedded == 1
        assert Indexer(library).update("notes").embedded == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [ReadError("cut off"), TransientReadError("no answer"), IndexError("odd document")]
)
def test_a_file_that_is_not_read_to_its_end_keeps_its_documents(tmp_path, monkeypatch, error):
    records = '{"_id": "1", "text": "A walrus."}\n{"_id": "2", "text": "An otter."}\n'
    write(tmp_path / "notes", a_dot_jsonl=records)
    real = catalog.ingest.reading.read_file

    def ending_early(absolute, path, **more):
        yield next(real(absolute, path, **more))
        raise error

    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(tmp_path / "notes", "notes").documents == 2
        age(tmp_path / "notes")
        with monkeypatch.context() as broken:
            broken.setattr(catalog.ingest.reading, "read_file", ending_early)
            report = Indexer(library).update("notes")
        assert (report.documents, report.removed) == (2, 0)
        assert [failure.path for failure in report.failed] == ["a.jsonl"]
        assert paths(library, "otter", mode="lexical") == ["2"]


@both_stores
def test_a_file_dated_after_the_year_2262_is_indexed_without_a_date(tmp_path):
    write(tmp_path / "notes", a_dot_md="A walrus.")
    os.utime(tmp_path / "notes/a.md", (10_413_792_000, 10_413_792_000))  # 2300-01-01
    if (tmp_path / "notes/a.md").stat().st_mtime_ns < 2**63:
        pytest.skip("this file system keeps no such date")
    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(tmp_path / "notes", "notes").failed == ()
        assert Indexer(library).update("notes").failed == ()
        (entry,) = DocumentCatalog(library).query(dataset="notes").entries
        assert (entry.path, entry.modified) == ("a.md", None)


@pytest.mark.slow
def test_a_change_of_the_headings_alone_is_noticed(tmp_path):
    page = "<title>T</title><h1>Alpha</h1><p>A walrus.</p>"
    write(tmp_path / "notes", a_dot_html=page)
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        write(tmp_path / "notes", a_dot_html=page.replace("h1", "p"))
        assert Indexer(library).update("notes").updated == 1
        (hit,) = SearchServiceV2(library).search("walrus", dataset="notes")
        assert hit.heading_path == ()


@pytest.mark.slow
@both_stores
def test_a_file_that_an_interrupted_run_published_is_forgotten_when_it_goes(tmp_path):
    class Impatient:
        def start(self, total, doing="", *, then=""):
            pass

        def advance(self, amount, label, counts=""):
            if label == "c.md":
                raise KeyboardInterrupt

        def close(self):
            pass

    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("alpha words. " * 200)
    for name in "bcd":
        (folder / f"{name}.md").write_text(f"{name} has few words")
    with open_library(tmp_path / "home", ingest={"group_chars": 1000}) as library:
        with pytest.raises(KeyboardInterrupt):
            Indexer(library).build(folder, "notes", progress=Impatient())
        assert set(paths(library, "alpha")) == {"a.md"}
        (folder / "a.md").unlink()
        assert Indexer(library).update("notes").removed == 1
        assert "a.md" not in paths(library, "alpha words")
        assert Indexer(library).stats("notes").files.listed == 3
