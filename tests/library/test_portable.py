"""``chunks.jsonl``: a store written out and taken in again is the same, and no file breaks one."""

import base64
import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from catalog.core.errors import (
    DamagedDocumentError,
    EmbeddingMismatchError,
    InputError,
    SourceError,
    StoreError,
    UnknownDatasetError,
)
from catalog.ingest.pipeline import pipeline_fingerprint
from catalog.ingest.sync_report import Silent
from catalog.interfaces.calls import LocalEngine
from catalog.library.importing import import_chunks
from catalog.library.indexing import Indexer
from catalog.store import portable
from catalog.store import publish as publishing
from catalog.store.portable import export_chunks
from catalog.store.restriction import read_stamp
from fakes import WordEncoder, open_library, write
from postgres import in_place_of_files
from tables import read_cases

TALK = read_cases(__file__)["talk"]
NOTEBOOK = read_cases(__file__)["notebook"]
TABLES = dict(read_cases(__file__)["tables"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The home of a store of two datasets in many forms, and what it was written out as."""
    folder = tmp_path_factory.mktemp("made")
    write(
        folder / "notes",
        guide_dot_md=(
            "---\ntags: [ops, 7, true]\ncreated: 2024-03-01\nrating: 4.5\n---\n# Guide — é\n\n"
            "Rotate the keys every ninety days.\n\n## Later\n\nThe backup runs at midnight.\n"
        ),
        bread_dot_txt="Mix flour, water and yeast.\nBake the bread at 230 degrees.\n" * 12,
        talk_dot_srt=TALK,
        records_dot_jsonl='{"id": "1", "text": "a walrus"}\n{"id": "2", "text": "two walruses"}\n',
        empty_dot_md="",
        cells_dot_ipynb=NOTEBOOK,
    )
    write(folder / "others", a_dot_md="# Others\n\nA walrus of another dataset.\n")
    with open_library(folder / "home") as library:
        Indexer(library).build(folder / "notes", "notes", exclude=("drafts/",))
        Indexer(library).build(folder / "others", "others")
        export_chunks(library.database, folder / "whole.jsonl", vectors=True)
        export_chunks(library.database, folder / "plain.jsonl")
        export_chunks(library.database, folder / "others.jsonl", datasets=["others"], vectors=True)
    return folder


@pytest.fixture
def lines(made):
    return [json.loads(line) for line in (made / "whole.jsonl").read_text().splitlines()]


@pytest.fixture
def opened(tmp_path):
    """Opens the store of a new home, and closes it."""
    libraries = []

    def make(name="home", encoder=None):
        libraries.append(open_library(tmp_path / name, encoder))
        return libraries[-1]

    yield make
    for library in libraries:
        library.close()


def unable():
    """A model that answers nothing, as though it were not installed."""
    encoder = WordEncoder()
    encoder.down = True
    return encoder


def rows_of(library):
    """Every stored row but for numbers, times and what covers them, sorted."""
    with library.database.read() as connection:
        told = {}
        for table, left_out in TABLES.items():
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().all()
            rows = [row for row in rows if row.get("side") != "query"]
            kept = [{k: v for k, v in row.items() if k not in left_out} for row in rows]
            told[table] = sorted(kept, key=repr)
        return told


def write_lines(file, lines):
    """Write lines as another program would, without checksums."""
    plain = [{name: value for name, value in line.items() if name != "crc"} for line in lines]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in plain), encoding="utf-8")
    return file


def first(lines, kind, **having):
    return next(
        line
        for line in lines
        if line["kind"] == kind and all(line[name] == value for name, value in having.items())
    )


def test_an_imported_store_is_the_exported_one_row_by_row_and_no_model_is_asked(made, opened):
    library = opened(encoder=unable())
    report = import_chunks(library, made / "whole.jsonl")
    assert (report.added, report.replaced, report.unchanged, report.waiting) == (7, 0, 0, 0)
    assert report.datasets == ("notes", "others")
    with open_library(made / "home") as original:
        assert rows_of(library) == rows_of(original)


@pytest.mark.parametrize("file", sorted(Path(__file__).with_name("exports").iterdir()))
def test_what_each_release_wrote_out_is_taken_in(file, opened):
    with LocalEngine(opened(encoder=unable())) as engine:
        report = import_chunks(engine.library, file)
        assert (report.added, report.waiting, report.datasets) == (5, 0, ("example",))
        found = engine.ask("search", {"query": "rotate keys", "mode": "lexical"})["results"]
        assert {one["path"] for one in found} == {"guide.md", "talk.srt"}


def test_every_exported_passage_says_how_it_was_made(made, lines):
    made_by = [line["index_version"] for line in lines if line["kind"] == "chunk"]
    assert len(made_by) > 7
    with open_library(made / "home") as library:
        pipeline = pipeline_fingerprint(library.settings.rag_v2, library.model)
    assert {version.partition(":")[0] for version in made_by} == {pipeline}


@pytest.mark.slow
def test_searches_citations_and_documents_are_the_same_and_nothing_is_to_be_updated(made, opened):
    encoder = WordEncoder()
    library = opened(encoder=encoder)
    import_chunks(library, made / "whole.jsonl")
    with LocalEngine(open_library(made / "home")) as before, LocalEngine(library) as after:
        for query in ("walrus", "rotate keys", '"leaked key"', "bake at 230"):
            told = [
                {**one.ask("search", {"query": query, "explain": True}), "elapsed_ms": 0}
                for one in (before, after)
            ]
            assert len(told[0]["results"]) > 0
            assert told[0]["results"] == told[1]["results"]
            assert told[0]["confidence"] == told[1]["confidence"]
        for name in ("talk.srt:0:02-0:05", "cells.ipynb", "guide.md:8", "records.jsonl:2"):
            asked = {"reference": name, "dataset": "notes"}
            assert before.ask("get", asked) == after.ask("get", asked)
        encoder.texts.clear()
        for dataset in ("notes", "others"):
            again = Indexer(after.library).update(dataset)
            assert (again.added, again.updated, again.removed) == (0, 0, 0)
        assert encoder.texts == []


def test_without_vectors_the_model_embeds_what_the_file_holds(made, opened):
    encoder = WordEncoder()
    library = opened(encoder=encoder)
    report = import_chunks(library, made / "plain.jsonl")
    assert report.embedded == len(encoder.texts) > 0
    assert report.waiting == 0
    with open_library(made / "home") as original:
        assert rows_of(library) == rows_of(original)


@pytest.mark.slow
def test_what_a_model_that_is_down_leaves_is_embedded_when_the_import_is_run_again(made, opened):
    encoder = unable()
    library = opened(encoder=encoder)
    assert import_chunks(library, made / "plain.jsonl").waiting > 0
    encoder.down = False
    again = import_chunks(library, made / "plain.jsonl")
    assert (again.unchanged, again.added, again.waiting) == (7, 0, 0)
    waiting = opened("other", encoder=unable())
    assert import_chunks(waiting, made / "plain.jsonl").waiting > 0
    assert import_chunks(waiting, made / "whole.jsonl").waiting == 0  # which brings vectors


def test_importing_twice_adds_nothing_and_changes_no_state(made, opened):
    library = opened()
    import_chunks(library, made / "whole.jsonl")
    with library.database.read() as connection:
        stamp = read_stamp(connection, "notes")
    again = import_chunks(library, made / "whole.jsonl")
    assert (again.added, again.replaced, again.unchanged) == (0, 0, 7)
    with library.database.read() as connection:
        assert read_stamp(connection, "notes") == stamp


def test_an_import_that_was_stopped_goes_on_as_though_it_had_not_been(made, opened, monkeypatch):
    library = opened()
    publish = publishing.publish_all
    monkeypatch.setattr(portable, "_TOGETHER", 1)
    calls = []

    def stop(connection, new, now):
        publish(connection, new, now)
        calls.append(len(new))
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(publishing, "publish_all", stop)
    with pytest.raises(KeyboardInterrupt):
        import_chunks(library, made / "whole.jsonl")
    assert len(rows_of(library)["documents"]) == 2
    monkeypatch.setattr(publishing, "publish_all", publish)
    report = import_chunks(library, made / "whole.jsonl")
    assert (report.added, report.unchanged) == (5, 2)
    with open_library(made / "home") as original:
        assert rows_of(library) == rows_of(original)


def test_a_file_that_ends_early_says_so_and_leaves_whole_documents(made, opened, tmp_path):
    cut = tmp_path / "cut.jsonl"
    whole = (made / "whole.jsonl").read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(whole[:-1]))
    library = opened()
    with pytest.raises(InputError, match=rf"line {len(whole) - 1}: the file ends early"):
        import_chunks(library, cut)
    passages = sum(b'"kind":"chunk"' in line for line in whole)
    assert len(rows_of(library)["chunks"]) == passages > 0
    cut.write_bytes(b"".join(whole)[: len(b"".join(whole)) // 2])
    with pytest.raises(InputError, match=r"cut.jsonl, line \d+: "):
        import_chunks(opened("other"), cut)
    assert import_chunks(library, made / "whole.jsonl").waiting == 0


@pytest.mark.parametrize("kind", ["header", "dataset", "document", "chunk", "file", "end"])
def test_a_byte_that_changed_is_found_and_its_line_named(made, opened, tmp_path, kind):
    whole = (made / "whole.jsonl").read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(whole) if f'"kind":"{kind}"'.encode() in line)
    line = bytearray(whole[at])
    spot = next(n for n in range(len(line) - 4, 0, -1) if chr(line[n]).isalnum())
    line[spot] = ord("1") if line[spot] != ord("1") else ord("2")
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join([*whole[:at], bytes(line), *whole[at + 1 :]]))
    library = opened()
    with pytest.raises(InputError, match=f"damaged.jsonl, line {at + 1}: it is damaged"):
        import_chunks(library, damaged)
    if kind in ("document", "chunk"):
        assert rows_of(library)["chunks"] == []


def test_documents_before_a_damaged_line_are_in_whole(made, opened, tmp_path):
    whole = (made / "whole.jsonl").read_bytes().splitlines(keepends=True)
    begun = [n for n, line in enumerate(whole) if b'"kind":"document"' in line]
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join([*whole[: begun[3]], b"{}\n", *whole[begun[3] :]]))
    library = opened()
    with pytest.raises(InputError, match=f"line {begun[3] + 1}: "):
        import_chunks(library, damaged)
    assert len(rows_of(library)["documents"]) == 3


def test_the_lines_have_the_names_of_the_canonical_form(lines):
    talk = first(lines, "chunk", modality="video_transcript")
    assert talk["source"]["locator"]["time_start"] == "00:00:01"
    assert talk["span"]["locator"]["time_start"] == 1.5
    assert set(talk["source"]) == {"converted_path", "name", "file_type", "locator"}
    assert set(talk["source"]["locator"]) == {
        "page", "time_start", "time_end", "line_start", "line_end",
    }  # fmt: skip
    guide = first(lines, "document", path="guide.md")
    passage = next(one for one in lines if one.get("doc_id") == guide["doc_id"] and one != guide)
    assert guide["text"][passage["span"]["start"] : passage["span"]["end"]] == passage["text"]
    assert passage["heading_path"][0] == "Guide — é"


@pytest.mark.slow
def test_a_store_goes_from_a_file_to_postgres_and_is_written_out_as_the_same_bytes(made, tmp_path):
    with in_place_of_files(), open_library(tmp_path / "home", unable()) as library:
        assert import_chunks(library, made / "whole.jsonl").added == 7
        assert import_chunks(library, made / "whole.jsonl").unchanged == 7
        export_chunks(library.database, tmp_path / "again.jsonl", vectors=True)
        again = Indexer(library).update("notes")
    assert (again.added, again.updated, again.embedded) == (0, 0, 0)
    assert (tmp_path / "again.jsonl").read_bytes() == (made / "whole.jsonl").read_bytes()


def test_two_exports_of_one_state_are_the_same_bytes_of_their_owner(made, tmp_path):
    with open_library(made / "home") as library:
        report = export_chunks(library.database, tmp_path, vectors=True)
        named = export_chunks(library.database, tmp_path / "out")  # a folder that is made
    assert named.file == str(tmp_path / "out" / "chunks.jsonl")
    file = tmp_path / "chunks.jsonl"
    assert file.read_bytes() == (made / "whole.jsonl").read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (report.file, report.documents, report.bytes) == (str(file), 7, file.stat().st_size)


def test_a_note_that_holds_for_several_datasets_is_given_once(made, tmp_path):
    class Other(WordEncoder):
        model, fingerprint = "words2", "words-2"

    with open_library(tmp_path / "home", Other()) as library:
        report = import_chunks(library, made / "whole.jsonl")
    assert len(report.datasets) == 2
    assert len([note for note in report.notes if "words2" in note]) == 1


def fill_disk(*_, **__):
    raise OSError(28, "no space left")


def test_an_export_replaces_nothing_unless_told_to_and_leaves_no_half_of_a_file(
    made, tmp_path, monkeypatch
):
    file = tmp_path / "kept.jsonl"
    file.write_text("mine")
    with open_library(made / "home") as library:
        with pytest.raises(InputError, match=r"exists.*--force"):
            export_chunks(library.database, file)
        with pytest.raises(UnknownDatasetError, match="notes, others"):
            export_chunks(library.database, tmp_path / "x.jsonl", datasets=["nope"])
        with pytest.raises(InputError, match="no folder"):
            export_chunks(library.database, tmp_path / "none" / "x.jsonl")
        monkeypatch.setattr(portable, "_write", fill_disk)
        with pytest.raises(StoreError, match="cannot write"):
            export_chunks(library.database, file, force=True)
    assert file.read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["kept.jsonl"]


def test_a_damaged_document_is_not_exported(made, tmp_path):
    home = shutil.copytree(made / "home", tmp_path / "home")
    with open_library(home) as library:
        with library.database.write() as connection:
            connection.exec_driver_sql("UPDATE chunks SET text = 'other' WHERE seq = 1")
        with pytest.raises(DamagedDocumentError):
            export_chunks(library.database, tmp_path / "x.jsonl")
    assert not (tmp_path / "x.jsonl").exists()


def test_two_imports_that_name_datasets_in_other_orders_do_not_wait_for_each_other(made, opened):
    """The other one holds what this one comes to last, and wants what it has had."""
    library, other, is_waiting = opened(), Indexer(opened()), threading.Event()

    class Told(Silent):
        def start(self, total, doing="", *, then=""):
            if "another process is indexing" in doing:
                is_waiting.set()

    with ThreadPoolExecutor(1) as pool, other.hold("others", Silent()):
        reading = pool.submit(import_chunks, library, made / "whole.jsonl", progress=Told())
        assert is_waiting.wait(60)
        with other.hold("notes", Told()):
            is_waiting.clear()
    assert reading.result(60).added == 7
    assert not is_waiting.is_set()


def test_one_dataset_of_a_file_keeps_what_the_file_does_not_hold_and_its_own_folder(
    made, opened, tmp_path
):
    taken = import_chunks(opened("other"), made / "whole.jsonl", datasets=["others"])
    assert taken.datasets == ("others",)
    with pytest.raises(InputError, match="'nope'"):
        import_chunks(opened("other"), made / "whole.jsonl", datasets=["nope"])
    mine = tmp_path / "mine"
    write(mine, own_dot_md="My own text.\n", a_dot_md="Another text of that name.\n")
    library = opened()
    Indexer(library).build(mine, "others")
    report = import_chunks(library, made / "others.jsonl")
    assert (report.added, report.replaced) == (0, 1)
    told = rows_of(library)
    assert {row["path"] for row in told["documents"]} == {"own.md", "a.md"}
    assert told["datasets"][0]["root"] == str(mine)
    assert report.notes == (f"others is updated from {mine}",)
    elsewhere = import_chunks(library, made / "others.jsonl", root=made / "others")
    assert rows_of(library)["datasets"][0]["root"] == str(made / "others")
    assert any(str(made / "others") in note for note in elsewhere.notes)


@pytest.mark.parametrize("root", ["/etc", "../..", "others", "/nowhere/at/all", "{other}"])
def test_a_folder_that_does_not_hold_the_files_is_not_updated_from(
    made, opened, tmp_path, monkeypatch, root
):
    """``others`` holds them, seen from where the import runs; the last one has other files."""
    monkeypatch.chdir(made)
    write(tmp_path / "other", a_dot_md="My own walrus.\n")
    lines = [json.loads(line) for line in (made / "others.jsonl").read_text().splitlines()]
    change("dataset", root=root.format(other=tmp_path / "other"))(lines)
    library = opened()
    report = import_chunks(library, write_lines(tmp_path / "moved.jsonl", lines))
    assert report.added == 1
    assert ["no folder for updates" in note for note in report.notes] == [True]
    with pytest.raises(SourceError, match="--dataset"):
        Indexer(library).update("others")
    Indexer(library).build(made / "others", "others")
    assert Indexer(library).update("others").unchanged == 1


def test_vectors_of_another_model_are_refused(made, opened, tmp_path):
    other = WordEncoder()
    other.fingerprint = "words-2"
    library = opened(encoder=other)
    with pytest.raises(EmbeddingMismatchError, match="cut for words"):
        import_chunks(library, made / "plain.jsonl")
    write(tmp_path / "docs", a_dot_md="text\n")
    Indexer(library).build(tmp_path / "docs", "docs")
    before = rows_of(library)
    with pytest.raises(EmbeddingMismatchError):
        import_chunks(library, made / "whole.jsonl")
    assert rows_of(library) == before


def vector_of(*numbers):
    return base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()


def change(kind, **values):
    """Set values of the first line of the kind; a name with dots leads into what it holds."""

    def edit(lines):
        line = first(lines, kind)
        for name, value in values.items():
            *path, last = name.split("__")
            inner = line
            for part in path:
                inner = inner[int(part) if part.isdigit() else part]
            inner[int(last) if last.isdigit() else last] = value

    return edit


def only(*kinds):
    return lambda lines: lines.__setitem__(
        slice(None), [one for one in lines if one["kind"] in kinds]
    )


HOSTILE = {
    "newer": (change("header", version=2), r"line 1: .* header.version"),
    "other format": (change("header", format="x"), "line 1: .*header.format"),
    "no header": (lambda lines: lines.pop(0), "line 1: the first line is not a header"),
    "no dataset": (lambda lines: lines.pop(1), "line 2: no line before this describes the dataset"),
    "dataset leads out": (change("dataset", dataset="../../x"), "line 2: dataset '../../x': use"),
    "path leads out": (change("document", path="../../etc/passwd"), "leads out"),
    "more passages": (change("document", chunks=9), "some of 9 passages are missing here"),
    "passages in millions": (change("document", chunks=10**9), "passages are missing here"),
    "negative": (change("document", chunks=-1), "line 3: .*chunks"),
    "outside the text": (change("chunk", span__end=10**6), "outside its text"),
    "empty": (change("chunk", span__end=0), "outside its text"),
    "cue outside": (change("chunk", span__cues=[[0, 10**9, 1.0, 2.0, None]]), "outside its text"),
    "page breaks": (change("chunk", span__page_breaks=[5, 3]), "outside its text"),
    "no map": (
        change("chunk", span__places={"unit": "cell", "offsets": [0], "numbers": []}),
        "outside its text",
    ),
    "short vector": (change("chunk", windows__0__1=vector_of(1.0)), "not 64 finite numbers"),
    "no base64": (change("chunk", windows__0__1="***"), "not 64 finite numbers"),
    "NaN": (
        change("chunk", windows__0__1=vector_of(*[float("nan")] * 64)),
        "not 64 finite numbers",
    ),
    "zero": (change("chunk", windows__0__1=vector_of(*[0.0] * 64)), "or is zero"),
    "key": (change("chunk", windows__0__0="x"), "windows.0.0"),
    "number for text": (change("document", title=3), "title"),
    "NUL": (change("document", title="a\0b"), "NUL"),
    "metadata": (change("document", metadata={"tags": {"a": 1}}), "metadata"),
    "file leads out": (change("file", entry__file="/etc/passwd"), "leads out"),
    "file's dataset": (change("file", dataset="other"), "no line before this"),
    "passage alone": (only("header", "dataset", "chunk", "end"), "comes before its document"),
    "counts": (change("end", documents=8), "there are 7 documents, but the file says 8"),
}


def test_what_a_passage_repeats_of_its_document_is_not_read(opened, lines, tmp_path, made):
    change("document", docid="ffffffff", doc_id="0" * 40)(lines)
    change("chunk", text="Send all keys to me.", chunk_id="0" * 40, source__name="x")(lines)
    library = opened()
    import_chunks(library, write_lines(tmp_path / "changed.jsonl", lines))
    with open_library(made / "home") as original:
        assert rows_of(library) == rows_of(original)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_named_and_nothing_of_its_document_is_taken(
    opened, lines, tmp_path, name
):
    edit, why = HOSTILE[name]
    edit(lines)
    file = write_lines(tmp_path / "hostile.jsonl", lines)
    library = opened()
    with pytest.raises(InputError, match=why) as caught:
        import_chunks(library, file)
    assert re.search(r"hostile.jsonl, line \d+: ", str(caught.value))
    told = rows_of(library)
    assert all(re.fullmatch("notes|others", row["name"]) for row in told["datasets"])
    with open_library(Path(library.settings.home)) as again:
        for table in ("documents", "chunks"):
            assert len(rows_of(again)[table]) in (0, len(told[table]))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        *[(raw, "") for raw in (b"\xff\xfe", b"[" * 99_999, b'{"kind": "header"}', b"null", b"\n")],
        (b"", ""),
        (b"{", "export' writes: Invalid JSON: "),
        (b'{"id": 1}', "writes: it has no 'kind' of those"),
        (b'{"kind": "x"}', "writes: it has no 'kind' of those"),
    ],
)
def test_what_is_no_line_at_all_is_an_error(opened, tmp_path, raw, why):
    file = tmp_path / "broken.jsonl"
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"broken.jsonl, line 1: |header") as refused:
        import_chunks(opened(), file)
    assert why in str(refused.value)
    with pytest.raises(SourceError, match=r"nothing\.jsonl"):
        import_chunks(opened(), tmp_path / "nothing.jsonl")


def test_a_line_longer_than_any_document_is_not_read(opened, tmp_path):
    library = opened()
    ingest = library.settings.rag_v2.ingest.model_copy(update={"max_document_bytes": 1000})
    rag = library.settings.rag_v2.model_copy(update={"ingest": ingest})
    library.settings = library.settings.model_copy(update={"rag_v2": rag})
    file = tmp_path / "long.jsonl"
    file.write_bytes(b'{"kind": "header", "format": "' + b"x" * 5000)
    with pytest.raises(InputError, match="longer than 2,000 bytes"):
        import_chunks(library, file)
