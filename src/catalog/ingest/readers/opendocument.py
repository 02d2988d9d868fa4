"""OpenDocument texts and presentations, zipped or flat: renamed to HTML, and read like it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from lxml import etree

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
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
    "notes": "div", "line-break": "br", "p": "p", "math": "math",
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


class OpenDocumentReader:
    """Read a text with its footnotes at the end, or the slides of a presentation with notes."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document; raise ``ReadError`` if broken, protected, too large or empty."""
        archive = open_archive(handle, limits) if handle.read(2) == b"PK" else None
        handle.seek(0)
        fields = read_opendocument_properties(archive) if archive else {}
        whole = (
            archive.read("content.xml") if archive else read_bytes(handle, limits.document_bytes)
        )
        root = parse_xml(whole)
        metadata = normalise(fields or _properties(root))
        body = next(iter(named(root, "body")), None)
        slides = [] if body is None else named(body, "page")
        if body is None or len(slides) > limits.pages:
            raise ReadError("not a document" if body is None else f"over {limits.pages:,} slides")
        scripts = _scripts(root)
        joined, pages = JoinedText(limits, "slide" if slides else "paragraph"), list[int]()
        for part in slides or [body]:
            pages.append(joined.following)
            _rename(part, scripts, archive)
            page = extract(etree.tostring(part, encoding="unicode", method="html", with_tail=False))
            places = None if slides else page.places
            joined.add(page.text, page.headings, page.atomic, places=places, tables=page.tables)
        title, form, pages = take_title(metadata), file_type(path), pages if slides else []
        yield joined.document(path, title=title, file_type=form, metadata=metadata, pages=pages)


def read_opendocument_properties(archive: Archive) -> dict[str, object]:
    """Return the fields of ``meta.xml``; raise ``ReadError`` for an encrypted file."""
    manifest = "META-INF/manifest.xml"
    if manifest in archive and b":encryption-data" in archive.read(manifest):
        raise ReadError("protected by a password")
    return _properties(parse_xml(archive.read("meta.xml"))) if "meta.xml" in archive else {}


def _properties(root: Element) -> dict[str, object]:
    fields: dict[str, object] = {}
    for element in (one for meta in named(root, "meta") for one in meta):
        name, value, own = local_name(element), text_of(element), _attribute(element, "name")
        if name == "user-defined" and LEVEL in own.casefold():
            fields[own] = value
        elif name in _FIELDS and value:
            fields.setdefault(_FIELDS[name], value)
    return fields | {"keywords": [text_of(one) for one in named(root, "keyword")]}


def _attribute(element: Element, name: str) -> str:
    return next((text for key, text in element.items() if key.endswith(f"}}{name}")), "")


def _scripts(root: Element) -> dict[str, str]:
    """Return the tag for each style of raised or lowered text."""
    styles = {}
    for style in named(root, "style"):
        for element in named(style, "text-properties"):
            position = _attribute(element, "text-position")  # super 58%, -33% 58%
            if position[:1] not in ("", "0"):
                tag = "sub" if position.startswith(("sub", "-")) else "sup"
                styles[_attribute(style, "name")] = tag
    return styles


def _rename(root: Element, scripts: dict[str, str], archive: Archive | None) -> None:
    """Give the elements the names of HTML; the notes move to the end and leave their mark."""
    for element in list(root.iter("*")):
        name, kind = local_name(element), _attribute(element, "class")
        element.tag = _TAGS.get(name, "span") if element is not root else "div"
        if name in _DROPPED or kind in _DROPPED - {"title"}:
            element.tag = "template"
        elif name == "h" or (name in ("p", "frame") and kind == "title"):
            level = _attribute(element, "outline-level")
            element.tag = f"h{level}" if level in [*"23456"] else "h1"
        elif name == "span":
            element.tag = scripts.get(_attribute(element, "style-name"), "span")
        elif name in ("s", "tab"):
            element.text = " "
        elif name == "table-cell" and element.getparent().getparent().tag == "thead":
            element.tag = "th"
        elif name == "notes" and text_of(element):
            element.insert(0, etree.Element("p"))
            element[0].text = "Notes:"
        elif name == "note":
            mark = "".join(text_of(one) for one in named(element, "note-citation"))
            for at, block in enumerate(b for one in named(element, "note-body") for b in one):
                block.text = f"[{mark}] {block.text or ''}" if at == 0 else block.text
                root.append(block)
            element.clear(keep_tail=True)
            element.tag, element.text = "span", f"[{mark}]"
        elif name == "object" and archive is not None:
            part = inside("content.xml", _attribute(element, "href") + "/content.xml") or ""
            if part in archive and local_name(formula := parse_xml(archive.read(part))) == "math":
                element.append(formula)
                for one in formula.iter("*"):
                    one.tag = local_name(one)
