"""Nothing outside the folder that was given is read, whatever the folder holds."""

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from catalog.core.errors import ReadError
from catalog.ingest.discovery import discover
from catalog.ingest.readers import read_file
from catalog.ingest.readers.opening import open_regular

SECRET = "the walrus password is swordfish"
LONG_AGO = (1_000_000, 2_000_000)


@pytest.fixture
def outside(tmp_path):
    """A folder beside the vault whose files nobody gave to be read."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("secret.txt", "secret.md", "page.html", "rules"):
        (folder / name).write_text(SECRET)
    for path in folder.iterdir():
        os.utime(path, LONG_AGO)  # reading moves the time of access
    return folder


@pytest.fixture
def vault(tmp_path, outside):
    """A folder that tries every way out."""
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "plain.md").write_text("# Plain\n\nAn ordinary note.\n")
    (folder / "absolute.txt").symlink_to(outside / "secret.txt")
    (folder / "relative.txt").symlink_to("../outside/secret.txt")
    (folder / "chain.txt").symlink_to("relative.txt")
    (folder / "folder").symlink_to(outside)
    (folder / "device.txt").symlink_to("/dev/zero")
    (folder / "around").symlink_to(".")
    (folder / ".gitignore").symlink_to(outside / "rules")
    (folder / "inside.md").symlink_to("plain.md")
    (folder / "..%2f..%2foutside%2fsecret.txt").write_text("a name is only a name")
    (folder / "..\\outside\\secret.txt").write_text("a name is only a name")
    os.mkfifo(folder / "pipe.txt")
    (folder / "names.md").write_text(
        f"---\nvideo_source: {outside}/secret.txt\nsource: file://{outside}/secret.txt\n---\n"
        "![[../outside/secret.md]] ![](../outside/secret.md)\n"
        "{% include ../outside/secret.md %}\n"
    )
    (folder / "names.rst").write_text(
        f".. include:: {outside}/secret.txt\n.. literalinclude:: ../outside/secret.txt\n"
    )
    (folder / "page.html").write_text(
        f'<base href="file://{outside}/"><iframe src="page.html"></iframe>'
        f'<object data="file://{outside}/secret.txt"></object><p>Visible.</p>'
    )
    (folder / "entity.html").write_text(
        f'<!DOCTYPE html [<!ENTITY x SYSTEM "file://{outside}/secret.txt">]><p>Entity &x; here</p>'
    )
    (folder / "entity.svg").write_text(
        f'<!DOCTYPE svg [<!ENTITY x SYSTEM "file://{outside}/secret.txt">]><svg>&x;</svg>'
    )
    record = {"_id": "../outside/secret.txt", "title": "t", "text": "a record"}
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    with zipfile.ZipFile(folder / "book.epub", "w") as archive:
        _write_book(archive, outside)
    return folder


def _write_book(archive, outside):
    archive.writestr("mimetype", "application/epub+zip")
    archive.writestr(
        "META-INF/container.xml",
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf"/></rootfiles></container>',
    )
    archive.writestr(
        "book.opf",
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
        '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
        f'<item id="b" href="file://{outside}/page.html" media-type="application/xhtml+xml"/>'
        '<item id="c" href="../outside/page.html" media-type="application/xhtml+xml"/>'
        '</manifest><spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine>'
        "</package>",
    )
    archive.writestr("a.xhtml", "<html><body><p>A chapter of the book.</p></body></html>")
    archive.writestr("../outside/page.html", "<p>An entry that climbs.</p>")


def watched_build(folder, home, outside):
    """What a build of the folder stored, refused, and opened outside."""
    script = Path(__file__).with_name("watched_build.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(home), str(outside)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_build_stores_nothing_from_outside_and_opens_nothing_there(tmp_path, vault, outside):
    report = watched_build(vault, tmp_path / "home", outside)
    assert report["opened_outside"] == []
    assert {"plain.md", "inside.md", "book.epub", "../outside/secret.txt"} <= set(report["texts"])
    assert not [path for path, text in report["texts"].items() if SECRET in text]
    assert [path.name for path in outside.iterdir() if path.stat().st_atime != LONG_AGO[0]] == []
    assert {"absolute.txt", "relative.txt", "chain.txt", "folder", "device.txt", "pipe.txt"} <= set(
        report["failed"]
    )


@pytest.mark.slow
def test_the_watch_itself_sees_what_is_read(tmp_path, outside):
    report = watched_build(outside, tmp_path / "home", outside)
    assert SECRET in report["texts"]["secret.txt"]
    assert str(outside) in report["opened_outside"]
    if Path("/proc/self/fd").exists():
        assert str(outside / "secret.txt") in report["opened_outside"]
    assert (outside / "secret.txt").stat().st_atime != LONG_AGO[0]


def test_a_folder_that_became_a_symlink_after_the_listing_is_not_followed(tmp_path, outside):
    vault = tmp_path / "vault"
    (vault / "notes").mkdir(parents=True)
    (vault / "notes/secret.txt").write_text("mine")
    (listed,) = discover(vault).files
    (vault / "notes").rename(tmp_path / "moved")
    (vault / "notes").symlink_to(outside)
    with pytest.raises(ReadError, match="cannot be read"):
        list(read_file(listed.absolute, listed.path, root=vault))
    (document,) = read_file(listed.absolute, listed.path)  # without a root nothing is promised
    assert document.text == SECRET


def test_a_file_that_became_a_symlink_after_the_listing_is_not_followed(tmp_path, outside):
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "a.txt").write_text("mine")
    (listed,) = discover(vault).files
    (vault / "a.txt").unlink()
    (vault / "a.txt").symlink_to(outside / "secret.txt")
    with pytest.raises(ReadError, match="symlink"):
        list(read_file(listed.absolute, listed.path, root=vault))


@pytest.mark.parametrize("name", ["../outside/secret.txt", "a/../../outside/secret.txt"])
def test_a_path_that_climbs_is_refused_when_opened_beneath_a_root(tmp_path, outside, name):
    vault = tmp_path / "vault"
    (vault / "a").mkdir(parents=True)
    with pytest.raises(ReadError, match="not below"), open_regular(vault / name, root=vault):
        pass


def test_a_path_elsewhere_is_refused_when_opened_beneath_a_root(tmp_path, outside):
    vault = tmp_path / "vault"
    vault.mkdir()
    with (
        pytest.raises(ReadError, match="not below"),
        open_regular(outside / "secret.txt", root=vault),
    ):
        pass


def test_devices_are_named_and_not_opened(tmp_path):
    try:
        os.mknod(tmp_path / "null.txt", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs a right this user has not")
    listing = discover(tmp_path)
    assert listing.files == ()
    assert [one.reason for one in listing.skipped] == ["not a regular file (character device)"]
    with pytest.raises(ReadError, match="character device"):
        list(read_file(tmp_path / "null.txt", "null.txt", root=tmp_path))
