"""OpenDocument texts and presentations, zipped or flat: renamed to HTML, and read like it."""

from typing import BinaryIO

from lxml import etree

from catalog.core.errors import ReadError
from catalog.ingest.readers import archive as zipped
from catalog.ingest.readers.archive import Archive, Element, local_name, named, parse_xml, text_of
from catalog.ingest.readers.base import Items, JoinedText, ReadLimits, file_type, read_bytes
from catalog.ingest.readers.formulas import formula_text
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise

_TAGS = dict.fromkeys(["body", "page", "text-box", "g", "frame", "notes", "note-body"], "div")
_TAGS |= {"list": "ul", "list-item": "li", "list-header": "li", "line-break": "br", "p": "p"}
_TAGS |= {"table": "table", "table-row": "tr", "table-cell": "td"}
_DROPPED = """tracked-changes annotation forms ruby-text covered-table-cell binary-data title desc
    table-of-content-source image object-ole math page-number date-time footer header"""
_TAGS |= dict.fromkeys(_DROPPED.split(), "template")  # elements, and classes of frames
_FIELDS = dict.fromkeys(["initial-creator", "creator"], "author") | {"creation-date": "created"}
_FIELDS |= {"date": "modified", **{it: it for it in ("title", "description", "language")}}


class OpenDocumentReader:
    """Read a text with its footnotes at the end, or the slides of a presentation with notes."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the one document; raise ``ReadError`` if broken, protected, too large or empty."""
        data, archive = read_bytes(handle, limits.document_bytes), None
        if data[:2] == b"PK":
            data, archive = b"<none/>", zipped.open_archive(handle, limits)
        metadata = normalise(read_opendocument_properties(archive, data))
        root = parse_xml(archive.read("content.xml") if archive else data)
        slides = named(root, "page")
        if not (parts := slides or named(root, "body")) or len(slides) > limits.pages:
            raise ReadError(f"over {limits.pages:,} slides" if parts else "not a document")
        joined, pages = JoinedText(limits, "slide" if slides else "paragraph"), list[int]()
        _rename(root, parts[-1], archive)
        for part in parts:
            pages += [joined.following] if slides else []
            one = extract(etree.tostring(part, encoding="unicode", method="html", with_tail=False))
            joined.add(one.text, one.headings, one.atomic, places=one.places, tables=one.tables)
        yield joined.document(path, file_type=file_type(path), metadata=metadata, pages=pages)


def read_opendocument_properties(archive: Archive | None, flat: bytes) -> dict[str, object]:
    """Return the fields of ``meta.xml``, else of a flat file; raise ``ReadError`` if encrypted."""
    manifest = "META-INF/manifest.xml"
    if archive and manifest in archive and b":encryption-data" in archive.read(manifest):
        raise ReadError("protected by a password")
    root = parse_xml(archive.read("meta.xml") if archive and "meta.xml" in archive else flat)
    fields: dict[str, object] = {"keywords": [text_of(one) for one in named(root, "keyword")]}
    for element in (one for meta in named(root, "meta") for one in meta):
        name, own = _FIELDS.get(local_name(element), ""), _attribute(element, "name")
        if LEVEL in own.casefold():
            text = text_of(element)
            fields[own] = text if fields.get(own, text) == text else UNREADABLE
        elif name:
            fields.setdefault(name, text_of(element))
    return fields


def _attribute(element: Element, name: str) -> str:
    return next((text for key, text in element.items() if key.endswith(f"}}{name}")), "")


def _rename(root: Element, last: Element, archive: Archive | None) -> None:
    moved = {_attribute(one.getparent(), "name"): _attribute(one, "text-position")
             for one in named(root, "text-properties")}  # fmt: skip
    for element in list(root.iter("*")):
        name, kind = local_name(element), _attribute(element, "class")
        element.tag = _TAGS.get(kind) or _TAGS.get(name, "span")
        if name == "h" or (name in ("p", "frame") and kind == "title"):
            level = _attribute(element, "outline-level")
            element.tag = f"h{level}" if level in [*"23456"] else "h1"
        elif name == "span" and (at := moved.get(_attribute(element, "style-name"))):
            element.tag = {"s": at[:3], "-": "sub", "0": "span"}.get(at[0], "sup")  # -33% 58%
        elif name in ("s", "tab"):
            element.text = " "
        elif name == "note":
            mark = f"[{''.join(map(text_of, named(element, 'note-citation')))}]"
            for first in element.iterfind("{*}note-body/{*}p[1]"):
                first.text = f"{mark} {first.text or ''}"
            last.extend(named(element, "note-body"))  # notes stand at the end
            element.clear(keep_tail=True)
            element.tag, element.text = "span", mark
        elif name == "object":
            part = zipped.inside("content.xml", f"{_attribute(element, 'href')}/content.xml") or ""
            whole = parse_xml(archive.read(part)) if archive and part in archive else element
            element.text = "".join(map(formula_text, named(whole, "math")[:1]))
