"""Opens regular files and nothing else, and tells what a file is by its bytes and its name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from catalog.core.errors import ReadError, TransientReadError
from catalog.ingest.readers.base import binary_kind, decode, file_type

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@contextmanager
def open_regular(path: Path, *, root: Path | None = None) -> Iterator[BinaryIO]:
    """Opens a file to read bytes.

    Raises ``ReadError`` with the reason if it vanished, may not be read, or is not a regular
    file (a symlink as last part of the path included: discovery hands out resolved paths). With
    ``root``, a folder above the file, no folder between may be a symlink either: one that took
    a folder's place since the listing leads nowhere. Errors of the file system while it is read
    become ``ReadError`` too.
    """
    with _opened(path, root) as handle:
        try:
            yield handle
        except OSError as error:
            raise TransientReadError(f"cannot be read: {error.strerror or error}") from error


def _opened(path: Path, root: Path | None) -> BinaryIO:
    try:
        if root is None or root == path or os.open not in os.supports_dir_fd:
            handle = os.fdopen(_open(path, None), "rb")
        else:
            handle = os.fdopen(_open_beneath(root, path.relative_to(root).parts), "rb")
    except FileNotFoundError as error:
        raise TransientReadError("vanished since it was listed") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise TransientReadError(f"cannot be read: {reason or error}") from error
    try:
        _refuse_irregular(os.fstat(handle.fileno()).st_mode)
    except ReadError:
        handle.close()
        raise
    return handle


def _open(path: str | Path, folder: int | None) -> int:
    # A look first: merely opening some devices has effects.
    _refuse_irregular(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode)
    return os.open(path, _FLAGS, dir_fd=folder)


def _open_beneath(root: Path, parts: tuple[str, ...]) -> int:
    """Opens one folder after the other, each by its name in the one before."""
    if any(part in ("", ".", "..") for part in parts):
        raise ReadError("not beneath the folder")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in parts[:-1]:
            above, folder = folder, os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(above)
        return _open(parts[-1], folder)
    finally:
        os.close(folder)


def _refuse_irregular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ReadError(f"not a regular file ({kind_of(mode)})")


def kind_of(mode: int) -> str:
    """What a file is, by its ``st_mode``, in one word or two."""
    kinds = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "symlink",
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return kinds.get(stat.S_IFMT(mode), "special file")


HEAD = 8192
TAIL = 2048
"""Bytes looked at."""

_BY_READER = {
    "markdown": "md markdown mdown mkd mdx",
    "rst": "rst rest",
    "html": "html htm xhtml",
    "jsonl": "jsonl ndjson",
    "json": "json json3",
    "notebook": "ipynb",
    "subtitles": "srt vtt sbv",
    "code": (
        "bash bat c cc cfg clj conf cpp cs css cxx dart el erl ex exs go gradle h hpp hs ini java "
        "jl js jsx kt less lisp lua mjs ml php pl proto ps1 py pyi r rb rs scala scss sh sql "
        "svelte svg swift tex toml ts tsx vb vue xml xsd xsl yaml yml zig"
    ),
}
_BY_EXTENSION = {
    extension: reader
    for reader, extensions in _BY_READER.items()
    for extension in extensions.split()
}
DOCUMENTS = frozenset(
    ["pdf", "docx", "docm", "dotx", "dotm", "pptx", "pptm", "potx", "ppsx", "epub", "ipynb"]
)
"""Extensions of formats that are read in a process of their own, and may be larger than text."""

_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?xml[^>]*+>|<!--(?:(?!-->).)*+-->)*+(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)
_NOTEBOOK = re.compile(rb'"nbformat"\s*:')
_NOT_READ = {
    "ole": "an old Office file, or one with a password: save it as .docx or .pptx without",
    "rtf": "rich text: save it as .docx",
    "postscript": "PostScript: convert it to PDF",
    "mp4": "a recording (mp4): its transcript can be indexed (.srt, .vtt, .json)",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """The reader's name; and what the file is called a file of, where its extension is wrong."""

    reader: str
    file_type: str | None = None


def sniff(path: str, head: bytes, tail: bytes) -> Kind:
    """What reads a file of that name with these ends.

    Raises ``ReadError`` for binary content that nothing reads. A name decides only among texts,
    and there, too, web pages, subtitles and notebooks under another name are told by content.
    """
    extension = file_type(path)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"%PDF-") or (
        extension == "pdf" and b"%PDF-" in head
    ):
        return Kind("pdf", None if extension == "pdf" else "pdf")
    binary = binary_kind(head)
    if binary == "zip":
        return Kind("archive")
    if binary is not None:
        raise ReadError(_NOT_READ.get(binary, f"binary ({binary})"))
    return _text(extension, head, tail)


def _text(extension: str, head: bytes, tail: bytes) -> Kind:
    from catalog.ingest.readers.timed.subtitles import looks_like_subtitles

    named = _BY_EXTENSION.get(extension)
    if extension == "json" and _NOTEBOOK.search(tail):
        return Kind("notebook", "ipynb")
    if named is not None:
        return Kind(named)
    is_foreign = extension in DOCUMENTS
    if _HTML.match(head):
        return Kind("html", "html")
    if looks_like_subtitles(decode(head)):
        return Kind("subtitles")
    return Kind("plain", "txt" if is_foreign else None)
