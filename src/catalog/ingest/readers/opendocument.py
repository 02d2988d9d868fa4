"""OpenDocument texts and presentations, zipped or flat: renamed to HTML, and read like it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from lxml import etree

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.places import Unit
from catalog.ingest.readers.archive import (
    Archive,
    Element,
    inside,
    local_name,
    named,
    open_archive,
    parse_xml,
    text_of,
)
from catalog.ingest.readers.base import JoinedText, ReadFailure, ReadLimits, file_type, read_bytes
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, normalise, take_title

_TAGS = {
    "list": "ul", "list-item": "li", "list-header": "li", "table": "table", "table-row": "tr",
    "table-header-rows": "thead", "table-cell": "td", "text-box": "div", "g": "div", "frame": "div",
    "notes": "div", "line-break": "br", "p": "p",
}  # fmt: skip
_DROPPED = frozenset((
    "tracked-changes", "annotation", "forms", "ruby-text", "covered-table-cell", "binary-data",
    "title", "desc", "table-of-content-source", "image", "object-ole", "master-page",
    "page-number", "date-time", "footer", "header",
))  # fmt: skip
"""Elements, and classes of frames, that are left out."""
_FIELDS = {
    "title": "title", "subject": "subject", "description": "description", "language": "language",
    "initial-creator": "author", "creator": "author", "creation-date": "created",
    "date": "modified",
}  # fmt: skip
_SCRIPTS = {"super": "sup", "sub": "sub"}


class OpenDocumentReader:
    """Read paragraphs, lists and tables of a text, or the slides of a presentation with notes.

    Footnotes come at the end. Comments, tracked deletions and pictures are left out.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        metadata = normalise(read_opendocument_properties(archive))
        root = parse_xml(archive.read("content.xml"))
        yield _read(root, archive, metadata, path, limits)


class FlatOpenDocumentReader:
    """Read an OpenDocument file that is a single XML file."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file; raise ``ReadError`` as for a zipped one."""
        root = parse_xml(read_bytes(handle, limits.document_bytes))
        yield _read(root, None, normalise(_properties(named(root, "meta"))), path, limits)


def _read(
    root: Element, archive: Archive | None, metadata: dict[str, Any], path: str, limits: ReadLimits
) -> ParsedDocument:
    body = next(iter(named(root, "body")), None)
    slides = [] if body is None else named(body, "page")
    if body is None or len(slides) > limits.pages:
        raise ReadError("not a document" if body is None else f"over {limits.pages:,} slides")
    scripts = _scripts(root)
    unit: Unit = "slide" if slides else "paragraph"
    joined, pages = JoinedText(limits, unit), list[int]()
    for part in slides or [body]:
        pages.append(joined.following)
        _rename(part, scripts, archive)
        page = extract(part, keep_navigation=True)
        places = None if slides else page.places
        joined.add(page.text, page.headings, page.atomic, places=places, tables=page.tables)
    return joined.document(
        path,
        title=take_title(metadata),
        file_type=file_type(path),
        metadata=metadata,
        pages=pages if slides else (),
    )


def read_opendocument_properties(archive: Archive) -> dict[str, object]:
    """Return title, author, keywords, dates and a confidentiality from ``meta.xml``.

    Raises ``ReadError`` for an encrypted file.
    """
    manifest = "META-INF/manifest.xml"
    if manifest in archive and b":encryption-data" in archive.read(manifest):
        raise ReadError("protected by a password")
    root = parse_xml(archive.read("meta.xml")) if "meta.xml" in archive else ()
    return _properties(list(root))


def _properties(holders: list[Element]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for element in (one for meta in holders for one in meta):
        name, value = local_name(element), text_of(element)
        own = _attribute(element, "name")
        if name == "user-defined" and LEVEL in own.casefold():
            fields[own] = value
        elif name == "keyword":
            fields["keywords"] = [*fields.get("keywords", ()), value]  # type: ignore[misc]
        elif name in _FIELDS and value:
            fields.setdefault(_FIELDS[name], value)
    return fields


def _attribute(element: Element, name: str) -> str:
    return next((text for key, text in element.items() if key.endswith(f"}}{name}")), "")


def _scripts(root: Element) -> dict[str, str]:
    """Return the tag for each style of raised or lowered text."""
    styles = {}
    for element in named(root, "text-properties"):
        position = _attribute(element, "text-position").split(" ")[0]
        sign = "" if position.startswith("0") else position.rstrip("%")
        tag = _SCRIPTS.get(position) or (sign and ("sub" if sign.startswith("-") else "sup"))
        if tag and element.getparent() is not None:
            styles[_attribute(element.getparent(), "name")] = tag
    return styles


def _rename(root: Element, scripts: dict[str, str], archive: Archive | None) -> None:
    """Give the elements the names of HTML; the notes move to the end and leave their mark."""
    notes: list[tuple[str, list[Element]]] = []
    for element in list(root.iter("*")):
        name, kind = local_name(element), _attribute(element, "class")
        element.tag = _TAGS.get(name, "span") if element is not root else "div"
        if name in _DROPPED or kind in _DROPPED - {"title"}:
            element.tag = "template"
        elif name in ("h", "p", "frame") and (name == "h" or kind == "title"):
            level = _attribute(element, "outline-level")
            element.tag = f"h{level}" if name == "h" and level in [*"23456"] else "h1"
        elif name == "span":
            element.tag = scripts.get(_attribute(element, "style-name"), "span")
        elif name in ("s", "tab"):
            element.text = " "
        elif name == "table-cell" and element.getparent().getparent().tag == "thead":
            element.tag = "th"
        elif name == "notes" and text_of(element):
            etree.SubElement(element, "p").text = "Notes:"
            element.insert(0, element[-1])
        elif name == "note":
            mark = "".join(text_of(one) for one in named(element, "note-citation"))
            notes += [(mark, list(one)) for one in named(element, "note-body")]
            element.clear(keep_tail=True)
            element.tag, element.text = "span", f"[{mark}]"
        elif name == "object" and archive is not None:
            part = inside("content.xml", _attribute(element, "href") + "/content.xml") or ""
            formula = parse_xml(archive.read(part)) if part in archive else None
            if formula is not None and local_name(formula) == "math":
                element.append(formula)
        elif name == "math":
            element.tag = "math"
    for mark, blocks in notes:
        for block in blocks[:1]:
            block.text = f"[{mark}] {block.text or ''}"
        root.extend(blocks)


_SHEET_TAGS = {"Worksheet": "section", "Table": "table", "Row": "tr", "Cell": "td", "Data": "p"}


class SpreadsheetXmlReader:
    """Read an Excel workbook of 2003 that is a single XML file, as a table for each sheet."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file; raise ``ReadError`` if it is broken or too large."""
        root = parse_xml(read_bytes(handle, limits.document_bytes))
        for element in list(root.iter("*")):
            name, title = local_name(element), _attribute(element, "Name")
            is_text = element is root or element.getparent().tag != root.tag
            element.tag = _SHEET_TAGS.get(name, "span" if is_text else "template")
            if name == "Worksheet" and title:
                etree.SubElement(element, "h1").text = title
                element.insert(0, element[-1])
        joined, page = JoinedText(limits, "paragraph"), extract(root)
        joined.add(page.text, page.headings, page.atomic, places=page.places, tables=page.tables)
        yield joined.document(path, title=None, file_type="xls", metadata={})
