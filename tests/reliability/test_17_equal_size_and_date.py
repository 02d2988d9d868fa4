"""Files whose text changed while size and date stayed: an update finds them."""

import os
import shutil
from pathlib import Path

import pytest

import catalog.ingest.changes
import catalog.ingest.reading
from catalog.library.browse import DocumentCatalog
from catalog.library.get import find_document
from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library, write

OLD = 1_600_000_000  # seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(
        tmp_path / "notes", one_dot_md="# One\n\nThe walrus.\n", two_dot_md="# Two\n\nAn otter!!\n"
    )
    for path in (tmp_path / "notes").iterdir():
        os.utime(path, (OLD, OLD))
    return tmp_path / "notes"


def swap(folder):
    (folder / "one.md").rename(folder / "spare")
    (folder / "two.md").rename(folder / "one.md")
    (folder / "spare").rename(folder / "two.md")


def rewrite(folder):
    texts = {name: (folder / name).read_text() for name in ("one.md", "two.md")}
    (folder / "one.md").write_text(texts["two.md"])
    (folder / "two.md").write_text(texts["one.md"])
    for name in texts:
        os.utime(folder / name, (OLD, OLD))


def restore(folder):
    """Put a copy of the folder in its place, which keeps the dates."""
    copy = shutil.copytree(folder, folder.with_name("copy"))
    rewrite(copy)
    shutil.rmtree(folder)
    copy.rename(folder)


@pytest.mark.parametrize("change", [swap, rewrite, restore])
def test_files_that_changed_texts_are_read_and_cited_as_they_are_now(tmp_path, folder, change):
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "notes")
        change(folder)
        assert Indexer(library).update("notes").updated == 2
        assert "otter" in find_document(library.database, "one.md").text
        [first] = SearchServiceV2(library).search("otter", dataset="notes", top_k=1)
        assert (first.path, first.text) == ("one.md", (folder / "one.md").read_text().strip())
        assert first.citation == "[source: Two, lines 1-3]"


def test_a_copied_folder_is_hashed_once_and_neither_read_nor_embedded(
    tmp_path, folder, monkeypatch
):
    encoder, hashed = WordEncoder(), []
    real = catalog.ingest.changes.digest_file

    def digest(path, *, root):
        hashed.append(path.name)
        return real(path, root=root)

    with open_library(tmp_path / "home", encoder) as library:
        indexer = Indexer(library)
        indexer.build(folder, "notes")
        texts = list(encoder.texts)
        shutil.copytree(folder, folder.with_name("copy"))
        shutil.rmtree(folder)
        folder.with_name("copy").rename(folder)
        monkeypatch.setattr(catalog.ingest.reading, "read_file", None)
        monkeypatch.setattr(catalog.ingest.changes, "digest_file", digest)
        monkeypatch.setattr(catalog.ingest.changes, "RACY_SECONDS", -60.0)
        for _ in range(2):
            report = indexer.update("notes")
            assert (report.unchanged, report.updated, report.failed) == (2, 0, ())
        assert sorted(hashed) == ["one.md", "two.md"]
        assert encoder.texts == texts


def test_a_touched_file_gives_its_document_the_new_date_and_embeds_nothing(tmp_path, folder):
    encoder = WordEncoder()
    write(folder, own_dot_md="---\nmodified: 2001-02-03\n---\nA mole.\n")
    with open_library(tmp_path / "home", encoder) as library:
        indexer, service = Indexer(library), SearchServiceV2(library)
        indexer.build(folder, "notes")
        texts = list(encoder.texts)
        for name in ("one.md", "own.md"):
            os.utime(folder / name, (1_700_000_000, 1_700_000_000))
        assert indexer.update("notes").unchanged == 3
        assert encoder.texts == texts
        later = service.search("walrus otter mole", dataset="notes", after="2023-11-01")
        assert [(one.path, one.modified) for one in later] == [("one.md", "2023-11-14T22:13:20Z")]
        page = DocumentCatalog(library).query(dataset="notes", sort="modified")
        assert [one.path for one in page.entries] == ["one.md", "two.md", "own.md"]
        assert [check for check in diagnose(library) if not check.ok] == []
