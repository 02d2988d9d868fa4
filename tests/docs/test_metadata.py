"""The examples of docs/reference/formats.md on metadata, followed to the letter."""

import re
from pathlib import Path

import pytest

from catalog.core.dates import read_written_date
from catalog.library.browse import DocumentCatalog
from catalog.library.get import find_document
from catalog.library.indexing import Indexer
from fakes import open_library
from tables import table

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "formats.md").read_text()
METADATA = PAGE.partition("## Metadata")[2].partition("\n## ")[0]
EXAMPLE = re.compile(r"```yaml\n# (\S+): [^\n]+\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    """The documents of a folder that has the files of the examples."""
    place = tmp_path_factory.mktemp("metadata")
    folder = place / "folder"
    (folder / "contracts" / "old").mkdir(parents=True)
    for name in ("contracts/report.pdf", "contracts/old/lease.txt", "notes.txt"):
        (folder / name).write_text("The rent is due in May.\n")
    examples = EXAMPLE.findall(METADATA)
    assert [name for name, _ in examples] == [
        "contracts/report.pdf.meta.yaml",
        "contracts/.catalog.yaml",
    ]
    for name, text in examples:
        (folder / name).write_text(text)
    with open_library(place / "home") as library:
        failed = Indexer(library).build(folder, "notes").failed
        assert {one.path for one in failed} <= {"contracts/report.pdf"}  # it is plain text
        yield DocumentCatalog(library)


@table("asked, expected")
def test_the_examples_of_metadata_files_do_what_the_page_says(listing, asked, expected):
    entries = listing.query(dataset="notes", **asked).entries
    assert {entry.path for entry in entries} == set(expected)


def test_the_forms_of_dates_that_the_page_names_are_read_and_the_one_it_excludes_is_not():
    taken, _, excluded = METADATA.partition("A date is ISO 8601")[2].partition("It is kept")
    forms = re.findall(r"`([^`]+)`", taken)
    assert len(forms) >= 9
    assert [form for form in forms if read_written_date(form) is None] == []
    assert read_written_date(re.findall(r"`([^`]+)`", excluded)[0]) is None


def test_front_matter_of_a_plain_text_is_text(tmp_path):
    assert "as in a `.txt`,\nfront matter is text like the rest" in METADATA
    folder, text = tmp_path / "folder", "---\nconfidentiality: secret\ntags: [rent]\n---\nMay.\n"
    folder.mkdir()
    for name in ("a.txt", "b.md"):
        (folder / name).write_text(text)
    with open_library(tmp_path / "home") as library:
        failed = Indexer(library).build(folder, "notes").failed
        assert {one.path for one in failed} <= {"contracts/report.pdf"}  # it is plain text
        for asked, paths in (
            ("confidentiality=secret", ["a.txt", "b.md"]),
            ("tags=rent", ["b.md"]),
        ):
            entries = DocumentCatalog(library).query(filters=[asked]).entries
            assert [entry.path for entry in entries] == paths
        assert find_document(library.database, "a.txt").text == text
