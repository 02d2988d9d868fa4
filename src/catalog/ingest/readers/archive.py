"""ZIP containers of XML (Office files, e-books): checked, unpacked in memory, parsed safely."""

from __future__ import annotations

import os
import posixpath
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, BinaryIO
from urllib.parse import unquote

from lxml import etree

from catalog.core.errors import ReadError
from catalog.ingest.readers.base import Items, ReadLimits
from catalog.ingest.readers.registry import FORMATS, Format, load_reader

Element = Any
"""An ``lxml.etree._Element``; lxml has no types."""


def parse_xml(data: bytes, *, is_lenient: bool = False) -> Element:
    """Return the root element; raise ``ReadError`` if it is nested over 256 deep.

    Broken XML and entities raise it, too, unless ``is_lenient``, which repairs and ignores them.
    """
    safe = {"resolve_entities": False, "no_network": True, "load_dtd": False}
    parser = etree.XMLParser(**safe, remove_comments=True, remove_pis=True, recover=is_lenient)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        is_deep = "depth" in str(error)
        raise ReadError("nested too deeply" if is_deep else "its XML is broken") from error
    if root is None:
        raise ReadError("its XML is broken")
    if not is_lenient and root.getroottree().docinfo.internalDTD is not None:
        raise ReadError("its XML declares entities")
    return root


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def named(root: Element, *names: str) -> list[Element]:
    """Return the elements in ``root`` with these local names, in any namespace, in order."""
    return list(root.iter(*(f"{{*}}{name}" for name in names)))


def text_of(element: Element) -> str:
    """Return all text of an element on one line."""
    return " ".join("".join(element.itertext()).split())


_MAX_ENTRIES = 20_000
# What unpacks to over 50 MB and 200 times its size is a bomb; XML shrinks to 5 %.
_LARGE, _HIGHEST_RATIO = 50_000_000, 200
_LOCAL_HEADER, _PIECE, _ENCRYPTED_BIT = 30, 1 << 20, 0x1
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_SPREADSHEET = b"application/vnd.oasis.opendocument.spreadsheet"
_IWORK = "a file of Pages, Numbers or Keynote: export it as PDF or Word"


class ArchiveReader:
    """Read any ZIP archive that is a document of a known format."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the document; raise ``ReadError`` for any other archive."""
        archive = open_archive(handle, limits)
        is_sheet = "mimetype" in archive and archive.read("mimetype").startswith(_SPREADSHEET)
        names = ["workbook"] if is_sheet else [one.name for one in FORMATS if _has(archive, one)]
        if not names:
            is_iwork = "Index/Document.iwa" in archive or "Index.zip" in archive
            raise ReadError(_IWORK if is_iwork else "a ZIP archive: unpack it")
        yield from load_reader(names[0]).read(handle, path, limits=limits)


def _has(archive: Archive, one: Format) -> bool:
    # Word Online calls the main part word/document2.xml; .xlsb has xl/workbook.bin.
    begin = one.part.removesuffix(".xml").casefold()
    named_so = (name.casefold().startswith(begin) for name in archive.names)
    return one.part in archive or ("/" in begin and any(named_so))


class BrokenPartError(ReadError):
    """One entry of an archive is missing or damaged; the rest may be fine."""


class Archive:
    """The entries of a checked ZIP file by name; ``..`` and ``/`` in a name have no meaning."""

    def __init__(self, opened: zipfile.ZipFile, limits: ReadLimits) -> None:
        self._zip = opened
        self._limit = self._left = limits.unpacked_bytes
        files = (info for info in opened.infolist() if info.filename and not info.is_dir())
        self._entries = {info.filename.replace("\\", "/").lstrip("/"): info for info in files}
        self._folded = {name.casefold(): name for name in self._entries}
        self.names = tuple(self._entries)
        """The names of all entries that are files, in the archive's order."""

    def __contains__(self, name: str) -> bool:
        return name in self._entries or name.casefold() in self._folded

    def read(self, name: str) -> bytes:
        """Return the bytes of an entry; case matters only if two names differ in nothing else.

        Raises ``BrokenPartError`` if it is missing or damaged, ``ReadError`` over the limit.
        """
        if name not in self:
            raise BrokenPartError("broken archive: a part is missing")
        known = name if name in self._entries else self._folded[name.casefold()]
        pieces = []
        with _naming_damage(), self._zip.open(self._entries[known]) as handle:
            while self._left >= 0 and (piece := handle.read(_PIECE)):
                self._left -= len(piece)
                pieces.append(piece)
        if self._left < 0:
            raise ReadError(f"too large: over {self._limit:,} bytes when unpacked")
        return b"".join(pieces)


def open_archive(handle: BinaryIO, limits: ReadLimits) -> Archive:
    """Open a ZIP file, which must stay open while the archive is used.

    Raises ``ReadError`` if it is broken, over a limit, protected by a password, or a bomb: over
    20,000 entries, entries that share bytes, or an absurd ratio.
    """
    size = handle.seek(0, os.SEEK_END)
    handle.seek(0)
    if size > limits.document_bytes:
        raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
    with _naming_damage():
        opened = zipfile.ZipFile(handle)
    entries = opened.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise ReadError(f"too many parts: over {_MAX_ENTRIES:,}")
    if any(info.flag_bits & _ENCRYPTED_BIT for info in entries):
        raise ReadError("protected by a password")
    unpacked = sum(info.file_size for info in entries)
    if unpacked > limits.unpacked_bytes:
        raise ReadError(f"too large: over {limits.unpacked_bytes:,} bytes when unpacked")
    if unpacked > max(_LARGE, _HIGHEST_RATIO * sum(info.compress_size for info in entries)):
        raise ReadError(f"over {_HIGHEST_RATIO} times its size when unpacked")
    places = sorted((info.header_offset, info.compress_size) for info in entries)
    for (start, length), (following, _) in pairwise([*places, (size, 0)]):
        if start + _LOCAL_HEADER + length > following:
            raise ReadError("broken archive: its parts overlap")
    return Archive(opened, limits)


def inside(base: str, reference: str) -> str | None:
    """Return the entry to which ``reference`` leads from ``base``; ``None`` outside the archive."""
    target = re.split(r"[?#]", reference, maxsplit=1)[0]
    if not target or _ADDRESS.match(target):
        return None
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(target)))
    return None if joined.startswith("..") else joined.lstrip("/")


@contextmanager
def _naming_damage() -> Iterator[None]:
    """Raise ``BrokenPartError`` for nearly anything that zipfile raises at damaged headers."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # whose own words quote names and bytes of the file
        reason = "not a ZIP file" if "not a zip" in str(error) else "damaged"
        raise BrokenPartError(f"broken archive: {reason}") from error
