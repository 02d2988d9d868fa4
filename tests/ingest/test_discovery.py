"""Listing a folder: what is indexed, what is left out silently, and what is named as skipped."""

import os
import random
import shutil
import socket
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.core.errors import SourceError
from catalog.ingest.discovery import discover
from catalog.ingest.readers import ReadLimits


def make(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def listed(root: Path, **options: object) -> list[str]:
    return [file.path for file in discover(root, **options).files]  # type: ignore[arg-type]


def reasons(root: Path) -> dict[str, str]:
    return {skipped.path: skipped.reason for skipped in discover(root).skipped}


def test_files_are_listed_by_path_with_size_and_time(tmp_path: Path) -> None:
    make(tmp_path, "b.md", "a/z.txt", "a.md", "picture.png")
    listing = discover(tmp_path)
    assert [file.path for file in listing.files] == ["a.md", "a/z.txt", "b.md", "picture.png"]
    assert listing.skipped == ()
    first = listing.files[0]
    assert first.absolute.read_text() == "x"
    assert (first.size, first.mtime_ns) == (1, (tmp_path / "a.md").stat().st_mtime_ns)


def test_hidden_and_generated_folders_are_left_out_silently(tmp_path: Path) -> None:
    make(tmp_path, "a.md", ".env", ".git/x", ".venv/x", "node_modules/x", "s/__pycache__/x")
    assert listed(tmp_path) == ["a.md"]
    assert discover(tmp_path).skipped == ()


def test_a_root_below_a_hidden_folder_is_listed(tmp_path: Path) -> None:
    make(tmp_path, ".notes/a.md")
    assert listed(tmp_path / ".notes") == ["a.md"]


def test_ignore_files_are_honoured_in_every_folder_and_the_nearest_decides(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "keep.md", "sub/b.log", "sub/c.md", "build/x", "sub/build/y", "top.md")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n/top.md\n[\n!\n")
    (tmp_path / "sub/.gitignore").write_text("!b.log\n")
    (tmp_path / "sub/.catalogignore").write_text("c.md\n")
    assert listed(tmp_path) == ["keep.md", "sub/b.log"]


def test_a_file_may_be_kept_in_a_folder_whose_contents_are_ignored(tmp_path: Path) -> None:
    make(tmp_path, "out/a", "out/keep")
    (tmp_path / ".gitignore").write_text("out/**\n!out/keep\n")
    assert listed(tmp_path) == ["out/keep"]


def test_include_and_exclude_are_patterns_relative_to_the_root(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "a.txt", "guides/b.md", "guides/old/c.md", "d.py")
    assert listed(tmp_path, include=["*.md"]) == ["a.md", "guides/b.md", "guides/old/c.md"]
    assert listed(tmp_path, include=["*.md"], exclude=["old/"]) == ["a.md", "guides/b.md"]
    assert listed(tmp_path, include=["guides/*.md"]) == ["guides/b.md"]


def test_too_large_files_are_named_but_json_lines_are_streamed(tmp_path: Path) -> None:
    make(tmp_path, "big.txt", "big.jsonl", text="x" * 200)
    listing = discover(tmp_path, limits=ReadLimits(text_bytes=100))
    assert [file.path for file in listing.files] == ["big.jsonl"]
    assert [(file.path, "200" in file.reason) for file in listing.skipped] == [("big.txt", True)]


def test_symlinks_lead_neither_out_of_the_root_nor_round_in_circles(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "root/a.md", "root/sub/b.md", "secret.md", "root-twin/c.md")
    (root / "inside.md").symlink_to("a.md")
    (root / "outside.md").symlink_to(tmp_path / "secret.md")
    (root / "twin.md").symlink_to(tmp_path / "root-twin/c.md")
    (root / "away").symlink_to(tmp_path)
    (root / "sub/loop").symlink_to(root)
    (root / "dangling.md").symlink_to("nowhere")
    (root / "self.md").symlink_to("self.md")
    assert listed(root) == ["a.md", "inside.md", "sub/b.md"]
    skipped = reasons(root)
    assert sorted(skipped) == [
        "away", "dangling.md", "outside.md", "self.md", "sub/loop", "twin.md",
    ]  # fmt: skip
    assert "out of the folder" in skipped["outside.md"]
    assert "folder" in skipped["sub/loop"]


def test_a_listed_symlink_can_be_opened_by_the_reader(tmp_path: Path) -> None:
    from catalog.ingest.readers import read_file

    make(tmp_path, "real/a.md")
    (tmp_path / "link.md").symlink_to("real/a.md")
    (file,) = (file for file in discover(tmp_path).files if file.path == "link.md")
    assert len(list(read_file(file.absolute, file.path))) == 1


def test_fifos_and_sockets_are_named_and_not_opened(tmp_path: Path) -> None:
    make(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / ".gitignore")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        assert listed(tmp_path) == ["a.md"]
        skipped = reasons(tmp_path)
    assert ("FIFO" in skipped["pipe"], "socket" in skipped["sock"]) == (True, True)


def test_names_that_are_not_utf8_are_named_in_printable_form(tmp_path: Path) -> None:
    make(tmp_path, "a.md")
    for name in (b"caf\xe9.md", b"d\xff"):
        path = os.fsencode(tmp_path) + b"/" + name
        if name.endswith(b"md"):
            Path(os.fsdecode(path)).write_text("x")
        else:
            Path(os.fsdecode(path)).mkdir()
    assert listed(tmp_path) == ["a.md"]
    skipped = reasons(tmp_path)
    assert len(skipped) == 2
    for printable, reason in skipped.items():
        (printable + reason).encode("utf-8")
        assert "UTF-8" in reason


def test_paths_are_nfc_and_open_the_file_whatever_its_form_on_disk(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "é.md")
    (tmp_path / decomposed).write_text("decomposed")
    (file,) = discover(tmp_path).files
    assert file.path == "é.md"
    assert file.absolute.read_text() == "decomposed"


def test_two_names_that_differ_in_unicode_form_only_are_both_listed(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "é.md")
    (tmp_path / decomposed).write_text("decomposed")
    (tmp_path / "é.md").write_text("composed")
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("the file system does not tell them apart")
    texts = {file.path: file.absolute.read_text() for file in discover(tmp_path).files}
    assert texts == {"é.md": "composed", decomposed: "decomposed"}


def test_a_folder_that_cannot_be_listed_is_named_and_the_rest_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.md", "locked/b.md")
    real = os.scandir

    def scandir(path: Path) -> object:
        if isinstance(path, str | Path) and Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    listing = discover(tmp_path)
    assert [file.path for file in listing.files] == ["a.md"]
    assert [(file.path, file.reason) for file in listing.skipped] == [
        ("locked", "folder cannot be listed: Permission denied")
    ]


def test_a_root_that_is_a_file_is_listed_by_its_name(tmp_path: Path) -> None:
    make(tmp_path, ".corpus.jsonl")
    assert listed(tmp_path / ".corpus.jsonl") == [".corpus.jsonl"]


def test_a_root_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for root, named in [(tmp_path / "gone", "does not exist"), (tmp_path / "pipe", "FIFO")]:
        with pytest.raises(SourceError, match=named):
            discover(root)
    with pytest.raises(SourceError):
        discover(Path("nul\x00byte"))


@pytest.fixture
def deep_folder(tmp_path: Path) -> Iterator[Path]:
    """1,200 folders in one another; taken down here, for ``shutil.rmtree`` recurses."""
    handles = [os.open(tmp_path, os.O_RDONLY)]
    try:
        for _ in range(1200):
            os.mkdir("d", dir_fd=handles[-1])
            below = os.open("d", os.O_RDONLY, dir_fd=handles[-1])
            handles.append(below)
            if len(handles) > 2:
                os.close(handles.pop(0))
        yield tmp_path
    finally:
        for handle in handles:
            os.close(handle)
        _take_down(tmp_path)


def _take_down(folder: Path) -> None:
    """Moves each level up beside the first and removes what is empty, so no path grows long."""
    while (top := folder / "d").exists():
        if (below := top / "d").exists():
            below.rename(folder / "next")
        top.rmdir()
        if (folder / "next").exists():
            (folder / "next").rename(top)


@pytest.mark.slow
def test_folders_may_be_nested_deeper_than_the_python_stack(deep_folder: Path) -> None:
    make(deep_folder, "a.md")
    assert listed(deep_folder) == ["a.md"]


RULES = ["a", "a/", "/a", "*.md", "!b.md", "!a/", "a/**", "!a/b", "**/b", "a/*", "!*", "b/", "!b"]
NAMES = ["a", "b", "c", "a.md", "b.md"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(6))
def test_files_that_git_ignores_are_left_out(tmp_path: Path, seed: int) -> None:
    """Random trees with random rules at the top and in folders; git is asked what it would add."""
    chance = random.Random(seed)
    for _ in range(12):
        folder = tmp_path.joinpath(*chance.choices(["a", "b", "c"], k=chance.randrange(3)))
        if any(above.is_file() for above in (folder, *folder.parents)):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for name in chance.sample(NAMES, 3):
            if not (folder / name).exists():
                (folder / name).write_text("x")
        if chance.random() < 0.5:
            (folder / ".gitignore").write_text("\n".join(chance.choices(RULES, k=3)))
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/"}
    listing = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(listing, cwd=tmp_path, env=environment, check=True, capture_output=True)
    expected = [name for name in done.stdout.decode().split("\0") if name]
    assert listed(tmp_path) == sorted(n for n in expected if not n.endswith(".gitignore"))


def test_rules_made_to_take_for_ever_come_to_an_end(tmp_path: Path) -> None:
    make(tmp_path, "a" * 200, "b.md", "sub/" + "a" * 200)
    (tmp_path / ".gitignore").write_text("*a" * 60 + "*b\n" + "**/a*" * 20 + "b\nb.md\n")
    bad = ["*a" * 60 + "*b"]
    assert len(listed(tmp_path)) == 2
    assert len(listed(tmp_path, exclude=bad)) == 2
    assert listed(tmp_path, include=bad) == []
