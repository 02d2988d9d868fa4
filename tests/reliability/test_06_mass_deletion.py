"""What a run could not look at has not gone: its documents stay, and the run says so."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from catalog.core.errors import MassDeletionError, SourceError
from catalog.ingest import discovery
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library

FOLDERS = ("d1", "d2", "d2/deep", "d3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four folders of three documents; ``d2`` has rules that leave a draft out."""
    root = tmp_path / "notes"
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
        for number in range(3):
            (root / name / f"{number}.md").write_text(f"walrus {name} {number}")
    (root / "d2/.gitignore").write_text("draft*\n!0.md\n")
    (root / "d2/draft.md").write_text("a secret draft")
    return root


@pytest.fixture
def library(tmp_path: Path, folder: Path):
    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(folder, "notes").documents == 12
        yield library


def paths(library) -> set[str]:
    with library.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT path FROM documents")
        return {row[0] for row in rows}


def answers(library, query: str) -> set[str]:
    results = SearchServiceV2(library).search(query, dataset="notes", mode="lexical", top_k=50)
    return {result.path for result in results}


def refuse(monkeypatch, name: str, *, which: str = "scandir") -> None:
    """Let every look into the folder (or, ``stat``, at the entry) of that name fail."""
    real = os.scandir

    class Entry:
        def __init__(self, entry):
            self._entry = entry

        def __getattr__(self, attribute):
            return getattr(self._entry, attribute)

        def stat(self, **options):
            if self._entry.name == name:
                raise OSError(5, "Input/output error")
            return self._entry.stat(**options)

    class Entries:
        def __init__(self, path):
            with real(path) as entries:
                self._entries = [Entry(entry) for entry in entries]

        def __enter__(self):
            return iter(self._entries)

        def __exit__(self, *_):
            pass

    def scandir(path):
        if isinstance(path, int):  # pytest removes folders by their handles
            return real(path)
        if which == "scandir" and Path(path).name == name:
            raise PermissionError(13, "Permission denied")
        return Entries(path)

    monkeypatch.setattr(os, "scandir", scandir)


def is_named(report, place: str, count: int) -> bool:
    return any(note.startswith(f"kept {count} documents below {place},") for note in report.notes)


@pytest.mark.parametrize("which", ["scandir", "stat"])
@pytest.mark.parametrize(("name", "count"), [("d3", 3), ("d2", 6), ("deep", 3)])
def test_a_folder_that_cannot_be_looked_at_loses_nothing(
    library, folder, monkeypatch, name, count, which
):
    (folder / "d1/0.md").unlink()  # what is really gone still goes
    refuse(monkeypatch, name, which=which)
    report = Indexer(library).update("notes")
    assert (report.removed, report.kept, report.documents) == (1, count, 11)
    assert is_named(report, "d2/deep" if name == "deep" else name, count)
    assert len(answers(library, "walrus")) == 11
    monkeypatch.undo()
    again = Indexer(library).update("notes")
    assert (again.removed, again.kept, again.notes) == (0, 0, ())


def test_a_folder_named_in_two_parts_loses_nothing_when_it_cannot_be_looked_at(
    tmp_path, monkeypatch
):
    """On disk its name is in Unicode NFD, in the store in NFC."""
    root = tmp_path / "vault"
    name = "cafe\u0301"
    (root / name).mkdir(parents=True)
    (root / name / "a.md").write_text("walrus")
    (root / "b.md").write_text("walrus")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(root, "notes")
        refuse(monkeypatch, name)
        assert Indexer(library).update("notes").kept == 1
        assert answers(library, "walrus") == {"caf\u00e9/a.md", "b.md"}


def test_a_folder_that_became_a_symlink_loses_nothing(library, folder, tmp_path):
    (folder / "d3").rename(tmp_path / "elsewhere")
    (folder / "d3").symlink_to(tmp_path / "elsewhere")
    report = Indexer(library).update("notes")
    assert (report.removed, report.kept, report.documents) == (0, 3, 12)


def test_a_drive_that_went_away_loses_nothing(library, folder, tmp_path):
    folder.rename(tmp_path / "away")
    with pytest.raises(SourceError):
        Indexer(library).update("notes")
    folder.mkdir()
    with pytest.raises(MassDeletionError, match="12 of 12"):
        Indexer(library).update("notes")
    assert len(paths(library)) == 12


@pytest.fixture
def pictured(tmp_path: Path):
    """A folder of twelve documents and twenty pictures, which hold none; and its library."""
    root = tmp_path / "pictured"
    root.mkdir()
    for number in range(20):
        (root / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes([number]) * 40)
        if number < 12:
            (root / f"{number}.md").write_text(f"walrus {number}")
    with open_library(tmp_path / "pictured-home") as library:
        assert Indexer(library).build(root, "notes").documents == 12
        yield library, root


def test_files_without_documents_do_not_hide_that_all_documents_went(pictured):
    library, root = pictured
    for number in range(12):
        (root / f"{number}.md").unlink()
    with pytest.raises(MassDeletionError, match="12 of 12"):
        Indexer(library).update("notes")
    assert len(paths(library)) == 12


def test_however_few_they_are_all_documents_gone_stop_a_run(pictured, tmp_path):
    library, root = pictured
    few = tmp_path / "few"
    few.mkdir()
    for file in ("1.md", "2.md", "1.png", "2.png"):
        shutil.copy(root / file, few)
    Indexer(library).build(few, "few")
    (few / "1.md").unlink()
    (few / "2.md").unlink()
    with pytest.raises(MassDeletionError, match="2 of 2"):
        Indexer(library).update("few")


def test_files_without_documents_may_go(pictured):
    library, root = pictured
    for picture in root.glob("*.png"):
        picture.unlink()
    assert Indexer(library).update("notes").documents == 12


@pytest.fixture
def mounted(monkeypatch) -> set[Path]:
    """Folders at which another drive counts as mounted, with all below them."""
    mounts: set[Path] = set()
    real = discovery.device_of

    def device_of(path: Path) -> int:
        above = [mount for mount in mounts if path.is_relative_to(mount)]
        return real(path) + 1000 * len(above)

    monkeypatch.setattr(discovery, "device_of", device_of)
    return mounts


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize("point", ["left", "removed"])
@pytest.mark.parametrize(("place", "count"), [("d2", 6), ("d2/deep", 3)])
def test_a_drive_in_a_subfolder_that_went_away_loses_nothing(
    library, folder, mounted, place, count, point
):
    mounted.add(folder / place)
    learned = Indexer(library).update("notes")  # rows of a store from before learn it so
    assert (learned.unchanged, learned.updated) == (12, 0)
    empty(folder / place)
    empty(folder / "d3")  # a plain folder that was emptied
    mounted.clear()
    if point == "removed":
        (folder / place).rmdir()
    for _ in range(2):
        report = Indexer(library).update("notes")
        assert (report.kept, report.documents) == (count, 9)
        assert is_named(report, place, count)
        assert "the drive is not mounted" in report.notes[0]
    assert len(answers(library, "walrus")) == 9
    report = Indexer(library).update("notes", allow_deletions=True)
    assert (report.kept, report.removed, report.documents) == (0, count, 9 - count)


def test_files_deleted_from_a_drive_that_is_mounted_are_gone(library, folder, mounted):
    mounted.update([folder, folder / "d2", folder / "d2/deep"])
    Indexer(library).update("notes")
    empty(folder / "d2/deep")
    (folder / "d2/1.md").unlink()
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed, report.notes) == (0, 4, ())


def test_a_drive_in_a_drive_is_distinguished(library, folder, mounted):
    mounted.update([folder / "d2", folder / "d2/deep"])
    Indexer(library).update("notes")
    mounted.remove(folder / "d2/deep")
    empty(folder / "d2/deep")
    (folder / "d2/1.md").unlink()
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed) == (3, 1)
    assert is_named(report, "d2/deep", 3)


def test_what_was_copied_from_a_drive_to_its_folder_may_be_deleted(library, folder, mounted):
    mounted.add(folder / "d2")
    Indexer(library).update("notes")
    mounted.clear()
    assert Indexer(library).update("notes").kept == 0
    empty(folder / "d2")
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed) == (0, 6)


def test_what_is_left_out_or_of_another_folder_is_gone_mounted_or_not(
    library, folder, mounted, tmp_path
):
    mounted.add(folder / "d2")
    Indexer(library).update("notes")
    report = Indexer(library).build(folder, "notes", exclude=("d2",))
    assert (report.kept, report.removed) == (0, 6)
    Indexer(library).build(folder, "notes", exclude=())
    mounted.clear()
    shutil.copytree(folder, tmp_path / "other")
    shutil.rmtree(tmp_path / "other/d2")
    report = Indexer(library).build(tmp_path / "other", "notes", allow_deletions=True)
    assert (report.kept, report.removed) == (0, 6)


def test_a_root_whose_drive_went_away_loses_nothing_though_a_file_lies_below_it(
    library, folder, mounted
):
    mounted.add(folder)
    Indexer(library).update("notes")
    empty(folder)
    mounted.clear()
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed, report.documents) == (12, 0, 12)
    (folder / "no drive.md").write_text("mount it")
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed, report.documents) == (12, 0, 13)
    assert is_named(report, ".", 12)


def test_a_drive_that_is_unmounted_loses_nothing(library, folder):
    """For real, where this process may mount."""
    drive = folder / "drive"
    drive.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "none", drive]
    if mount is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this process may not mount a file system")
    try:
        (drive / "a.md").write_text("walrus")
        assert Indexer(library).update("notes").added == 1
    finally:
        subprocess.run(["umount", drive], check=True)
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed) == (1, 0)
    assert "drive/a.md" in answers(library, "walrus")


@pytest.mark.parametrize("trouble", ["unreadable", "too long"])
def test_a_folder_whose_rules_cannot_be_read_is_skipped(library, folder, monkeypatch, trouble):
    rules = folder / "d2/.gitignore"
    if trouble == "too long":
        rules.write_text("#" * 1_000_001)
    else:
        real = os.open

        def refuse_rules(path, *arguments, **options):
            if str(path).endswith(".gitignore"):
                raise PermissionError(13, "Permission denied")
            return real(path, *arguments, **options)

        monkeypatch.setattr(os, "open", refuse_rules)
    (folder / "d2/1.md").unlink()
    report = Indexer(library).update("notes")
    assert (report.removed, report.kept) == (0, 6)
    assert answers(library, "secret draft") == set()
    assert any("d2/.gitignore" in failure.path for failure in report.failed)


@pytest.mark.parametrize("kind", ["folder", "fifo", "symlink"])
def test_rules_that_are_no_file_any_more_make_nothing_go(library, folder, kind):
    """The rules of the root ignore a file that those of ``d2`` bring back."""
    (folder / ".gitignore").write_text("0.md\n!d1/0.md\n!d3/0.md\n!deep/0.md\n")
    Indexer(library).update("notes")
    assert "d2/0.md" in paths(library)
    rules = folder / "d2/.gitignore"
    rules.unlink()
    {
        "folder": rules.mkdir,
        "fifo": lambda: os.mkfifo(rules),
        "symlink": lambda: rules.symlink_to("../.gitignore"),
    }[kind]()
    Indexer(library).update("notes")
    assert "d2/0.md" in paths(library)


def test_a_file_that_grew_too_large_keeps_its_document(tmp_path):
    root = tmp_path / "notes"
    root.mkdir()
    (root / "a.md").write_text("walrus")
    (root / "b.md").write_text("otter")
    with open_library(tmp_path / "home", ingest={"max_file_bytes": 1000}) as library:
        Indexer(library).build(root, "notes")
        (root / "a.md").write_text("seal " * 1000)
        report = Indexer(library).update("notes")
        assert (report.removed, report.kept) == (0, 1)
        assert any("kept 1 document below a.md" in note for note in report.notes)
        assert answers(library, "walrus") == {"a.md"}


def test_a_record_of_an_unseen_file_is_not_taken_over_by_another_file(tmp_path, monkeypatch):
    root = tmp_path / "notes"
    for name, text in (("b/z.jsonl", "walrus"), ("a.md", "otter")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps({"_id": "7", "text": text}))
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(root, "notes")
        refuse(monkeypatch, "b")
        (root / "a.jsonl").write_text(json.dumps({"_id": "7", "text": "seal"}))
        report = Indexer(library).update("notes")
        assert any("a document of b/z.jsonl has this path" in f.reason for f in report.failed)
        assert answers(library, "walrus") == {"7"}


def ends_with_one(report) -> bool:
    """Tell whether the command that made this report ends with code 1."""
    from catalog.interfaces.cli import index

    return index._printed(report).code == 1


def test_an_update_that_kept_documents_unseen_ends_with_code_one(library, monkeypatch):
    refuse(monkeypatch, "d3")
    assert ends_with_one(Indexer(library).update("notes"))


def records(count: int) -> list[str]:
    return [
        json.dumps({"_id": f"r{number}", "text": f"walrus {number}"}) for number in range(count)
    ]


@pytest.fixture
def corpus(tmp_path: Path, library) -> Path:
    """A file of five records beside the folders, indexed as a dataset of its own."""
    file = tmp_path / "corpus/records.jsonl"
    file.parent.mkdir()
    file.write_text("\n".join(records(5)) + "\n")
    assert Indexer(library).build(file.parent, "corpus").documents == 5
    return file


def found(library) -> set[str]:
    results = SearchServiceV2(library).search("walrus", dataset="corpus", mode="lexical", top_k=50)
    return {result.path for result in results}


@pytest.mark.parametrize("left", [1, 20, 35, 70, 100, 138, 164])
def test_a_file_of_records_that_is_cut_short_loses_no_record(library, corpus, left):
    whole = "\n".join(records(5)) + "\n"
    corpus.write_text(whole)
    Indexer(library).update("corpus")
    corpus.write_text(whole[:left].replace("walrus 0", "walrus zero"))
    for _ in range(2):
        report = Indexer(library).update("corpus")
        assert (report.removed, report.documents, report.unfinished) == (0, 5, 1)
        assert any("is incomplete" in failure.reason for failure in report.failed)
        assert ends_with_one(report)
    assert report.kept == 5 - whole[:left].count("\n")
    assert found(library) == {"r0", "r1", "r2", "r3", "r4"}
    corpus.write_text("\n".join(records(4)))
    report = Indexer(library).update("corpus")
    assert (report.removed, report.kept, report.unfinished, report.failed) == (1, 0, 0, ())
    assert not ends_with_one(report)


def test_a_new_file_that_is_still_being_written_gives_what_it_holds(library, tmp_path):
    root = tmp_path / "new"
    root.mkdir()
    (root / "new.jsonl").write_text("\n".join([*records(3), '{"_id": "r3", "te']))
    report = Indexer(library).build(root, "corpus")
    assert (report.added, report.kept, report.unfinished) == (3, 0, 1)
    assert ends_with_one(report)


def test_a_line_that_was_broken_keeps_the_record_it_was(library, corpus):
    lines = records(5)
    lines[1] = lines[1].replace("walrus", 'wal"rus')  # its _id can be read
    del lines[3]  # really gone
    corpus.write_text("\n".join(lines) + "\n")
    for removed in (1, 0):
        report = Indexer(library).update("corpus")
        assert (report.removed, report.kept, report.documents) == (removed, 1, 4)
        assert ends_with_one(report)
        assert any(failure.path == "records.jsonl:2" for failure in report.failed)
    assert found(library) == {"r0", "r1", "r2", "r4"}
    lines[1] = json.dumps({"_id": "r1", "text": ""})  # what it holds now is known: nothing
    corpus.write_text("\n".join(lines) + "\n")
    report = Indexer(library).update("corpus")
    assert (report.removed, report.kept) == (1, 0)


def test_a_file_that_cannot_be_read_keeps_its_document_and_ends_with_code_one(
    library, folder, monkeypatch
):
    real = os.open

    def refuse_file(path, *arguments, **options):
        if str(path).endswith("1.md"):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    for name in FOLDERS:
        (folder / name / "1.md").write_text("walrus anew")
    monkeypatch.setattr(os, "open", refuse_file)
    for _ in range(2):
        report = Indexer(library).update("notes")
        assert (report.kept, report.removed, report.updated) == (4, 0, 0)
        assert {failure.path for failure in report.failed} == {f"{name}/1.md" for name in FOLDERS}
        assert any(note.startswith("kept 4 documents of 4 files") for note in report.notes)
        assert ends_with_one(report)
    monkeypatch.undo()
    report = Indexer(library).update("notes")
    assert (report.kept, report.updated) == (0, 4)
    assert not ends_with_one(report)


def test_a_file_that_became_no_text_keeps_its_document_and_says_so_until_it_goes(library, folder):
    (folder / "d1/1.md").write_bytes(b"\x7fELF" + bytes(range(256)))
    (folder / "d1/other.bin").write_bytes(b"\x7fELF" + bytes(range(256)))  # was never a text
    for _ in range(2):
        report = Indexer(library).update("notes")
        assert (report.kept, report.removed, report.documents) == (1, 0, 12)
        assert ends_with_one(report)
    (folder / "d1/1.md").unlink()
    report = Indexer(library).update("notes")
    assert (report.kept, report.removed) == (0, 1)
    assert not ends_with_one(report)
