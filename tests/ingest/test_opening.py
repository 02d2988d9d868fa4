"""Files that vanish, that may not be opened, or that are no files."""

import errno
import os
from pathlib import Path

import pytest

from catalog.core.errors import ReadError
from catalog.ingest.readers import ReadLimits, read_file
from catalog.ingest.readers.opening import open_regular


def test_a_vanished_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="disappeared"):
        list(read_file(tmp_path / "gone.txt", "gone.txt"))


def test_a_file_that_may_not_be_opened_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadError, match="Permission denied"), open_regular(tmp_path / "a.txt"):
        pass


def test_what_is_no_regular_file_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "target.txt").write_text("secret")
    (tmp_path / "link.txt").symlink_to("target.txt")
    for path, kind in (
        (tmp_path / "pipe.txt", "FIFO"),
        (tmp_path, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "link.txt", "not a regular file"),
    ):
        with pytest.raises(ReadError, match=kind):
            list(read_file(path, path.name))


@pytest.mark.slow
def test_json_lines_are_streamed_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f'{{"_id": "{number}", "text": "x"}}\n' for number in range(2000)))
    assert len(list(read_file(path, path.name, limits=ReadLimits(text_bytes=100)))) == 2000
