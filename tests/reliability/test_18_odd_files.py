"""No name, content or kind of one file ends a run: it is indexed, left out, or reported."""

import os
import random
import socket
import sys
from pathlib import Path

import pytest

from catalog.core.errors import InputError
from catalog.ingest import discovery, pipeline, reading
from catalog.ingest.pipeline import Pipeline
from catalog.ingest.readers.timed.frames import find_medium, possible_originals
from catalog.ingest.sidecars import is_metadata, is_rightly_named
from catalog.library.indexing import Indexer
from fakes import open_library, write
from reliability.chaos import seeds

PARTS = (
    *(
        b".converted", b".json", b".", b"..", b" ", b"\n", b"\r", b"\t", b"\\", b"*", b"[", b"]",
        b"?",
    ),
    *(b"~", b"#", b"-", b"_frames", b"frame_1", b".meta", b".yaml", b".catalog", b".gitignore"),
    *(b".en", b".auto", b".mp4", b".srt", b".md", b".txt", b".jsonl", b".csv", b".rst", b"\xff"),
    *(b"\xed\xa0\x80", b"\xcc\x81", b"e", b"\xc3\xa9", b"\xe2\x80\xae", b"\x1b[31m", b"x" * 120),
)  # fmt: skip
TEXTS = (
    *(
        b"", b"\0", b"walrus", b"# T\n\nwalrus\n", b"---\na: [\n---\nx", b"{", b"[]",
        b"walrus\xed\xa0\x80",
    ),
    *(
        b"1\n00:00:01,000 --> 00:00:00,000\nx\n",
        b"*.zip\n!a\n[\n\\\n",
        b"confidentiality: secret\n",
    ),
    *(
        b'{"_id": "\\ud800", "text": "x"}\n{"_id": "a\\u0000b", "text": "y"}\n{"_id": "", "text": "z"}',  # noqa: E501
    ),
    *(
        b"created: 9999-99-99\ntags: {a: b}\n",
        b"---\nsource_file: .mp4\nduration: 1e400\n---\nwalrus",
    ),
)  # fmt: skip


def odd_name(chance: random.Random) -> bytes:
    return b"".join(chance.choices(PARTS, k=chance.randrange(1, 4)))[:250]


def fill(chance: random.Random, folder: Path, depth: int = 0) -> None:
    """Write files, folders, links, pipes and sockets of odd names that the system takes."""
    for _ in range(chance.randrange(4, 10)):
        path = folder / os.fsdecode(odd_name(chance))
        if os.path.lexists(path):  # a pipe, maybe
            continue
        try:
            match chance.randrange(12):
                case 0 | 1 if depth < 2:
                    path.mkdir()
                    fill(chance, path, depth + 1)
                case 2:
                    path.symlink_to(chance.choice([path.name, ".", "gone", "/"]))
                case 3:
                    os.mkfifo(path)
                case 4:
                    with socket.socket(socket.AF_UNIX) as server:
                        server.bind(os.fsencode(path))
                case _:
                    path.write_bytes(chance.choice(TEXTS))
        except (OSError, ValueError):
            continue


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="names and kinds of files of POSIX")
def test_a_folder_of_odd_files_is_built_updated_and_previewed(tmp_path):
    for number, seed in enumerate(seeds(4)):
        chance, base = random.Random(seed), tmp_path / str(number)
        (base / "notes").mkdir(parents=True)
        write(base / "notes", plain_dot_txt="A walrus.")
        fill(chance, base / "notes")
        try:
            with open_library(base / "home") as library:
                indexer = Indexer(library)
                indexer.build(base / "notes", "notes")
                for path in list((base / "notes").iterdir())[:3]:
                    if path.name != "plain.txt" and not path.is_dir():
                        path.unlink()
                fill(chance, base / "notes")
                indexer.preview("notes")
                report = indexer.update("notes", allow_deletions=True)
                unread = [failure.path for failure in report.failed]  # beside a .catalog.yaml
                assert report.documents >= 1 or "plain.txt" in unread
        except BaseException as error:
            error.add_note(f"replay with IDX_TEST_SEED={seed}")
            raise


def test_any_name_is_one_of_a_medium_and_of_a_sidecar_or_not():
    for seed in seeds(20):
        chance = random.Random(seed)
        for _ in range(50):
            path = "/".join(os.fsdecode(odd_name(chance)) for _ in range(chance.randrange(1, 4)))
            find_medium(path)
            list(possible_originals(path))
            is_rightly_named(path.rpartition("/")[2], (), ())
            is_metadata(path)


@pytest.mark.parametrize("place", [".converted", "b/.converted"])
def test_a_hidden_file_is_left_out_though_a_folder_of_that_name_is_not(tmp_path, place):
    write(tmp_path / "notes", a_dot_md="A walrus.", b__c_dot_md="An otter.")
    (tmp_path / "notes" / place).write_text("A mole.")
    write(tmp_path / "notes/d", _dot_converted__e_dot_md="A heron.")
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        assert (report.documents, report.failed) == (3, ())


class OddError(Exception):
    """Stand for what no one foresees."""


def raise_for(path):
    if "odd" in str(path):
        raise OddError("unforeseen")


def fail_listing(monkeypatch):
    real = discovery._Walk._visit_entry

    def visit(self, path, *more, **named):
        raise_for(path)
        return real(self, path, *more, **named)

    monkeypatch.setattr(discovery._Walk, "_visit_entry", visit)


def fail_reading(monkeypatch):
    real = reading.read_file

    def read(absolute, path, **options):
        raise_for(path)
        return real(absolute, path, **options)

    monkeypatch.setattr(reading, "read_file", read)


def fail_cutting(monkeypatch):
    real = Pipeline.prepare

    def prepare(self, source):
        raise_for(source.file)
        return real(self, source)

    monkeypatch.setattr(Pipeline, "prepare", prepare)


@pytest.mark.parametrize("fail", [fail_listing, fail_reading, fail_cutting])
def test_an_unforeseen_error_of_one_file_is_its_entry_in_the_report(tmp_path, monkeypatch, fail):
    write(tmp_path / "notes", a_dot_md="A walrus.", odd_dot_md="An otter.")
    with open_library(tmp_path / "home") as library:
        indexer = Indexer(library)
        indexer.build(tmp_path / "notes", "notes")
        write(tmp_path / "notes", odd_dot_md="Another otter.", b_dot_md="A mole.")
        fail(monkeypatch)
        report = indexer.update("notes")
        assert (report.documents, report.added) == (3, 1)
        assert [failure.path for failure in report.failed] == ["odd.md"]
        assert "OddError: unforeseen" in report.failed[0].reason
        monkeypatch.undo()
        assert indexer.update("notes").updated == 1


def test_a_text_that_cannot_be_summarised_ends_no_run(tmp_path, monkeypatch):
    def summarise(text):
        raise_for(text)
        return text

    monkeypatch.setattr(pipeline, "summarise", summarise)
    write(tmp_path / "notes", a_dot_md="A walrus.", b_dot_md="An odd otter.")
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        assert (report.documents, [failure.path for failure in report.failed]) == (1, ["b.md"])


def test_a_single_file_that_vanishes_is_an_error_of_the_call(tmp_path):
    with open_library(tmp_path / "home") as library, pytest.raises(InputError, match="not exist"):
        Indexer(library).build(tmp_path / "a.md", "notes")


@pytest.mark.parametrize("block", ["a." * 5_000 + "b = 1", "a = " + "[" * 5_000 + "]" * 5_000])
def test_the_text_below_deeply_nested_front_matter_is_found(tmp_path, block):
    write(tmp_path / "notes", a_dot_md=f"+++\n{block}\n+++\nA walrus.")
    with open_library(tmp_path / "home") as library:
        report = Indexer(library).build(tmp_path / "notes", "notes")
        assert report.documents == 1
        assert "the front matter is not read" in report.failed[0].reason
