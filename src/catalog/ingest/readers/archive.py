"""ZIP containers of XML (Office files, e-books): checked, unpacked in memory, parsed safely.

The content of an archive decides its format, not its name. The second half of the module is shared
by Word and PowerPoint files: parts, relationships, properties, alternate content.
"""

from __future__ import annotations

import os
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote

from lxml import etree

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.base import ReadFailure, ReadLimits
from catalog.ingest.readers.metadata import LEVEL
from catalog.ingest.readers.registry import FORMATS, load_reader

Element = Any
"""An ``lxml.etree._Element``; lxml has no types."""


def parse_xml(data: bytes, *, is_lenient: bool = False) -> Element:
    """Return the root element, without comments and processing instructions.

    With ``is_lenient``, XML that is not well-formed is repaired and a document type ignored;
    otherwise both raise ``ReadError``. So does nesting over 256 deep.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        recover=is_lenient,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        deep = "depth" in str(error)
        raise ReadError("nested too deeply" if deep else "its XML is broken") from error
    if root is None:
        raise ReadError("its XML is broken")
    document = root.getroottree().docinfo
    if not is_lenient and (document.doctype or document.internalDTD is not None):
        raise ReadError("its XML declares entities")
    return root


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(etree.QName(element).localname) if isinstance(element.tag, str) else ""


def named(root: Element, *names: str) -> list[Element]:
    """Return the elements in ``root`` with these local names, in any namespace, in order."""
    return list(root.iter(*(f"{{*}}{name}" for name in names)))


def text_of(element: Element) -> str:
    """Return all text of an element on one line."""
    return " ".join("".join(element.itertext()).split())


_MAX_ENTRIES = 20_000

_LARGE = 50_000_000
_HIGHEST_RATIO = 200
"""What unpacks to more than ``_LARGE`` bytes and to more times its size than this is a bomb."""
_LOCAL_HEADER = 30
_PIECE = 1 << 20
_ENCRYPTED_BIT = 0x1
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_SPREADSHEET = b"application/vnd.oasis.opendocument.spreadsheet"
# Damaged headers make zipfile raise nearly anything.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, LookupError, OSError,
    ArithmeticError, NotImplementedError, RuntimeError,
)  # fmt: skip


class ArchiveReader:
    """Read any ZIP archive that is a document of a known format."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document; raise ``ReadError`` for any other archive."""
        name = _format_of(open_archive(handle, limits))
        handle.seek(0)
        yield from load_reader(name).read(handle, path, limits=limits)


def _format_of(archive: Archive) -> str:
    is_open = "mimetype" in archive and archive.read("mimetype").startswith(_SPREADSHEET)
    if is_open or "xl/workbook.bin" in archive:
        return "workbook"
    main = find_related(read_relations(archive, ""), "officeDocument") or ""
    for entry in FORMATS:
        # Word Online calls the main part word/document2.xml.
        is_main = bool(main) and posixpath.dirname(main) == posixpath.dirname(entry.part)
        if entry.part and (is_main or entry.part in archive):
            return entry.name
    raise ReadError("binary (zip)")


class BrokenPartError(ReadError):
    """One entry of an archive is missing or damaged; the rest may be fine."""


class Archive:
    """The entries of a checked ZIP file by name; ``..`` and ``/`` in a name have no meaning."""

    def __init__(self, opened: zipfile.ZipFile, limits: ReadLimits) -> None:
        self._zip = opened
        self._limit = limits.unpacked_bytes
        self._left = limits.unpacked_bytes
        self._entries = {_name(info): info for info in opened.infolist() if not info.is_dir()}
        self._folded = {name.casefold(): name for name in self._entries}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all entries that are files, in the archive's order."""
        return tuple(self._entries)

    def __contains__(self, name: str) -> bool:
        return self.spelling(name) is not None

    def spelling(self, name: str) -> str | None:
        """Return the entry's name as spelled in the archive.

        Case matters only if two entries differ in nothing else.
        """
        return name if name in self._entries else self._folded.get(name.casefold())

    def size(self, name: str) -> int:
        """Return the number of bytes that the headers state of an entry, 0 for a missing one."""
        known = self.spelling(name)
        return 0 if known is None else self._entries[known].file_size

    def read(self, name: str) -> bytes:
        """Return the bytes of an entry.

        Raises ``BrokenPartError`` if it is missing or damaged, and ``ReadError`` if all bytes read
        exceed ``limits.unpacked_bytes``, whatever the headers say.
        """
        known = self.spelling(name)
        if known is None:
            raise BrokenPartError("broken archive: a part is missing")
        pieces = []
        try:
            with self._zip.open(self._entries[known]) as handle:
                while piece := handle.read(_PIECE):
                    self._left -= len(piece)
                    if self._left < 0:
                        raise _too_large(self._limit)
                    pieces.append(piece)
        except _DAMAGE as error:
            raise BrokenPartError(f"broken archive: {_reason(error)}") from error
        return b"".join(pieces)


def open_archive(handle: BinaryIO, limits: ReadLimits) -> Archive:
    """Open a ZIP file, which must stay open while the archive is used.

    Raises ``ReadError`` if it is broken, over ``limits.document_bytes``, protected by a password,
    or has more than 20,000 entries. A ZIP bomb is refused, too: entries that share bytes, sizes
    that add up to more than ``limits.unpacked_bytes``, or an absurd ratio.
    """
    size = handle.seek(0, os.SEEK_END)
    handle.seek(0)
    if size > limits.document_bytes:
        raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
    _refuse_ole(handle)
    try:
        opened = zipfile.ZipFile(handle)
    except _DAMAGE as error:
        raise ReadError(f"broken archive: {_reason(error)}") from error
    _check(opened.infolist(), size, limits)
    return Archive(opened, limits)


def inside(base: str, reference: str) -> str | None:
    """Return the entry to which ``reference`` leads from the entry ``base``.

    ``None`` for an address elsewhere, or outside the archive.
    """
    target = re.split(r"[?#]", reference, maxsplit=1)[0]
    if not target or _ADDRESS.match(target):
        return None
    joined = posixpath.join("/", posixpath.dirname(base), unquote(target))
    depth = 0
    for step in joined.split("/"):
        depth += -1 if step == ".." else step not in ("", ".")
        if depth < 0:
            return None
    return posixpath.normpath(joined).lstrip("/")


def _check(entries: Sequence[zipfile.ZipInfo], size: int, limits: ReadLimits) -> None:
    if len(entries) > _MAX_ENTRIES:
        raise ReadError(f"too many parts: over {_MAX_ENTRIES:,}")
    if any(info.flag_bits & _ENCRYPTED_BIT for info in entries):
        raise ReadError("protected by a password")
    unpacked = sum(info.file_size for info in entries)
    if unpacked > limits.unpacked_bytes:
        raise _too_large(limits.unpacked_bytes)
    packed = sum(info.compress_size for info in entries)
    if unpacked > _LARGE and unpacked > _HIGHEST_RATIO * packed:
        raise ReadError(f"over {_HIGHEST_RATIO} times its size when unpacked")
    ordered = sorted(entries, key=lambda info: info.header_offset)
    ends = [info.header_offset + _LOCAL_HEADER + info.compress_size for info in ordered]
    starts = [*(info.header_offset for info in ordered), size]
    if any(end > start for end, start in zip(ends, starts[1:], strict=True)):
        raise ReadError("broken archive: its parts overlap")


def _refuse_ole(handle: BinaryIO) -> None:
    """Refuse the container of old Office formats, which also wraps encrypted new files."""
    start = handle.read(len(_OLE))
    handle.seek(0)
    if start != _OLE:
        return
    last = b""
    while piece := handle.read(_PIECE):
        if _OLE_ENCRYPTED in last + piece:
            raise ReadError("protected by a password")
        last = piece[-len(_OLE_ENCRYPTED) :]
    raise ReadError("an old Word or PowerPoint format (before 2007)")


def _too_large(limit: int) -> ReadError:
    return ReadError(f"too large: over {limit:,} bytes when unpacked")


def _name(info: zipfile.ZipInfo) -> str:
    return info.filename.replace("\\", "/").lstrip("/")


def _reason(error: Exception) -> str:
    # zipfile's own words quote names and bytes of the file; these do not.
    if isinstance(error, NotImplementedError):
        return "the compression method is not supported"
    return "not a ZIP file" if "not a zip" in str(error) else "damaged"


_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_PROPERTIES = {
    "title": "title",
    "creator": "author",
    "keywords": "keywords",
    "subject": "subject",
    "description": "description",
    "category": "category",
    "language": "language",
    "created": "created",
    "modified": "modified",
}
_MADE_BY_THE_PROGRAM = re.compile(r"presentation|(\S+\s)?powerpoint([ -]\S+)?", re.IGNORECASE)
"""Titles of PowerPoint's own making: ``PowerPoint Presentation``, ``Présentation PowerPoint``."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A reference from a part: the last word of its type, and the target part's name."""

    kind: str
    target: str


def read_part(archive: Archive, name: str) -> Element:
    """Return the root of a part, in the namespaces of the transitional format.

    Raises ``ReadError`` if it is missing, broken, too deep, or declares entities.
    """
    return parse_xml(_STRICT.sub(_TRANSITIONAL, archive.read(name)))


def read_relations(archive: Archive, part: str) -> Mapping[str, Relation]:
    """Return a part's references inside the file, by id; ``""`` is the file as a whole."""
    folder, base = posixpath.split(part)
    name = posixpath.join(folder, "_rels", base + ".rels")
    if name not in archive:
        return {}
    relations = {}
    for element in named(read_part(archive, name), "Relationship"):
        target = inside(part, element.get("Target", ""))
        if element.get("TargetMode") != "External" and target is not None and target in archive:
            kind = posixpath.basename(element.get("Type", ""))
            relations[element.get("Id", "")] = Relation(kind, target)
    return relations


def find_related(relations: Mapping[str, Relation], kind: str) -> str | None:
    """Return the first part that is referenced as ``kind``."""
    return next((link.target for link in relations.values() if link.kind == kind), None)


def read_properties(archive: Archive) -> dict[str, object]:
    """Return title, author, keywords and dates from ``docProps/core.xml``.

    Of the custom properties (``docProps/custom.xml``) only a confidentiality is read.
    """
    relations = read_relations(archive, "")
    fields: dict[str, object] = {}
    part = find_related(relations, "custom-properties") or "docProps/custom.xml"
    for element in read_part(archive, part) if part in archive else ():
        if LEVEL in (name := element.get("name", "")).casefold():
            fields[name] = text_of(element)
    part = find_related(relations, "core-properties") or "docProps/core.xml"
    for element in read_part(archive, part) if part in archive else ():
        field = _PROPERTIES.get(local_name(element))
        value = text_of(element)
        if field is not None and value:
            fields.setdefault(field, value)
    if "keywords" in fields:
        fields["keywords"] = str(fields["keywords"]).replace(";", ",")
    if _MADE_BY_THE_PROGRAM.fullmatch(str(fields.get("title", ""))):
        del fields["title"]
    return fields


def resolve_alternates(root: Element) -> None:
    """Replace alternate content by its first choice, or by the fallback if that is blank."""
    for element in reversed(named(root, "AlternateContent")):
        chosen = next(iter(named_children(element, "Choice")), None)
        fallback = next(iter(named_children(element, "Fallback")), None)
        if chosen is None or (fallback is not None and _is_blank(chosen)):
            chosen = fallback
        replace(element, [] if chosen is None else list(chosen))


def named_children(element: Element, *names: str) -> list[Element]:
    """Return the children with these local names."""
    return [child for child in element if local_name(child) in names]


def replace(element: Element, others: list[Element]) -> None:
    """Replace ``element`` by these elements, in time independent of its siblings' number."""
    parent = element.getparent()
    if parent is None:
        return
    for other in others:
        element.addprevious(other)
    parent.remove(element)


def graphic_texts(root: Element) -> Iterator[str]:
    """Yield lines of a chart (titles, series, categories) or of a SmartArt diagram."""
    if named(root, "plotArea"):
        yield from filter(None, map(_join_runs, named(root, "title")))
        for group in ("tx", "cat"):
            values = dict.fromkeys(
                text_of(value) for holder in named(root, group) for value in named(holder, "v")
            )
            if line := ", ".join(filter(None, values)):
                yield line
    else:
        for paragraph in named(root, "p"):
            if line := _join_runs(paragraph):
                yield line


def _join_runs(element: Element) -> str:
    return " ".join("".join(run.text or "" for run in named(element, "t")).split())


def _is_blank(element: Element) -> bool:
    if any((run.text or "").strip() for run in named(element, "t")):
        return False
    return not named(element, "relIds", "chart")
