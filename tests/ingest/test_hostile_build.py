"""A folder of files made to harm is indexed to its end, and every file is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from hostile import archives as zips
from hostile import pdf, texts

pytestmark = pytest.mark.slow


def read_files() -> dict[str, bytes]:
    return {
        "actions.pdf": pdf.with_actions(),
        "bad.docx": pdf.plain("A file with the name of another format."),
        "breaks.txt": b"x" + b"\n" * 200_000 + b"y",
        "chapters.epub": zips.packed(zips.book({"a.xhtml": zips.xhtml("<p>A chapter.</p>")})),
        "frames.md": b"".join(
            b"## Frame at 00:00:%02d\n\nslide\n\n" % (at % 60) for at in range(500)
        ),
        "line.txt": b"a" * 200_000,
        "pages.pdf": pdf.many_pages(500),
        "version.ipynb": texts.notebook([texts.prose("# Walrus")], nbformat=99),
        "word.srt": texts.srt([("00:00:01,000", "00:00:02,000", "word " * 40_000)]),
    }


def skipped_files() -> dict[str, tuple[bytes, str]]:
    return {
        "bomb.docx": (zips.blanks(60_000_000), "over 200 times its size when unpacked"),
        "broken.pdf": (b"%PDF-1.7\n" + b"junk " * 99, "broken PDF: it has no readable structure"),
        "deep.ipynb": (b'{"cells": ' + b"[" * 99_999, "nested too deeply"),
        "locked.docx": (zips.encrypted(zips.word(zips.paragraph("x"))), "protected by a password"),
        "locked.pdf": (pdf.locked("secret"), "protected by a password"),
        "picture.txt": (b"\x89PNG\r\n\x1a\n" + bytes(99), "binary (png)"),
        "silent.srt": (texts.srt([("00:00:01,000", "00:00:02,000", "")]), "no text in its cues"),
    }


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vault")
    for name, data in read_files().items():
        (folder / name).write_bytes(data)
    for name, (data, _) in skipped_files().items():
        (folder / name).write_bytes(data)
    return folder


def test_every_file_is_indexed_or_named_with_its_reason(tmp_path, vault):
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(vault, "vault")
        assert {failure.path: failure.reason for failure in report.failed} == {
            name: reason for name, (_, reason) in skipped_files().items()
        }
        assert report.documents == len(read_files()) + 1  # and the file attached to actions.pdf
        assert report.incomplete == 0
        found = SearchServiceV2(library).search("walrus dives", dataset="vault")
        assert "pages.pdf" in {hit.path for hit in found.results}


def test_two_builds_give_the_same_passages(tmp_path, vault):
    reports = []
    for home in ("one", "two"):
        with open_library(tmp_path / home) as library:
            Indexer(library).build(vault, "vault")
            found = SearchServiceV2(library).search("slide word page", dataset="vault", top_k=50)
            reports.append([(hit.chunk_id, hit.score) for hit in found.results])
    assert reports[0] == reports[1] != []
