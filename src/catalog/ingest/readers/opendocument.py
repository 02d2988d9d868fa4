"""OpenDocument texts and presentations: rewritten as HTML, and read like it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.places import Unit
from catalog.ingest.readers.archive import (
    Archive,
    Element,
    local_name,
    named,
    named_children,
    open_archive,
    parse_xml,
    text_of,
)
from catalog.ingest.readers.base import JoinedText, ReadFailure, ReadLimits, file_type
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, normalise, take_title

_BLOCKS = {
    "list": "ul", "list-item": "li", "list-header": "li", "table": "table", "table-row": "tr",
    "table-header-rows": "thead", "text-box": "div", "g": "div", "frame": "div", "notes": "div",
}  # fmt: skip
_DROPPED = frozenset((
    "tracked-changes", "annotation", "forms", "ruby-text", "covered-table-cell", "binary-data",
    "title", "desc", "table-of-content-source", "image", "object", "object-ole", "master-page",
))  # fmt: skip
_FURNITURE = frozenset(["page-number", "date-time", "footer", "header"])
_FIELDS = {
    "title": "title",
    "subject": "subject",
    "description": "description",
    "language": "language",
    "initial-creator": "author",
    "creator": "author",
    "creation-date": "created",
    "date": "modified",
}
_MOST_SPACES = 100


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
        body = next(iter(named(parse_xml(archive.read("content.xml")), "body")), None)
        slides = [] if body is None else named(body, "page")
        if body is None or len(slides) > limits.pages:
            raise ReadError("not a document" if body is None else f"over {limits.pages:,} slides")
        unit: Unit = "slide" if slides else "paragraph"
        joined, pages = JoinedText(limits, unit), list[int]()
        for part in slides or [body]:
            pages.append(joined.following)
            notes = list[str]()
            page = extract("".join([*_to_html(part, notes), *notes]), keep_navigation=True)
            places = None if slides else page.places
            joined.add(page.text, page.headings, page.atomic, places=places, tables=page.tables)
        yield joined.document(
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
    fields: dict[str, object] = {}
    root = parse_xml(archive.read("meta.xml")) if "meta.xml" in archive else ()
    for element in (one for meta in root for one in meta):
        name, value = local_name(element), text_of(element)
        own = next((text for key, text in element.items() if key.endswith("}name")), "")
        if name == "user-defined" and LEVEL in own.casefold():
            fields[own] = value
        elif name == "keyword":
            fields["keywords"] = [*fields.get("keywords", ()), value]  # type: ignore[misc]
        elif name in _FIELDS and value:
            fields.setdefault(_FIELDS[name], value)
    return fields


def _to_html(element: Element, notes: list[str]) -> Iterator[str]:
    """Yield the HTML of an element; notes are added to ``notes`` and leave their mark."""
    name = local_name(element)
    attributes = {key.rpartition("}")[2]: value for key, value in element.items()}
    kind = attributes.get("class", "")
    if name in _DROPPED or kind in _FURNITURE:
        return
    if name == "note":
        mark = "".join(map(text_of, named_children(element, "note-citation")))
        bodies = [
            piece for one in named_children(element, "note-body") for piece in _inside(one, notes)
        ]
        notes.append(f"<p>[{escape(mark)}] {''.join(bodies).removeprefix('<p>')}")
        yield f"[{escape(mark)}]"
        return
    if name in ("s", "tab", "line-break"):
        count = attributes.get("c", "1")
        spaces = min(int(count), _MOST_SPACES) if count.isdecimal() else 1
        yield "<br>" if name == "line-break" else " " * spaces
        return
    tag = _BLOCKS.get(name, "")
    if name == "h":
        level = attributes.get("outline-level", "1")
        tag = f"h{level}" if level in "23456" else "h1"
    elif name == "p":
        tag = "h1" if kind == "title" else "p"
    elif name == "frame" and kind == "title":
        yield f"<h1>{escape(' '.join(map(text_of, named(element, 'p'))))}</h1>"
        return
    elif name == "table-cell":
        header = local_name(element.getparent().getparent()) == "table-header-rows"
        tag = "th" if header else "td"
        spans = (
            attributes.get("number-columns-spanned", "1"),
            attributes.get("number-rows-spanned", "1"),
        )
        yield f'<{tag} colspan="{escape(spans[0])}" rowspan="{escape(spans[1])}">'
    if name == "notes" and text_of(element):
        yield "<p>Notes:</p>"
    if tag and name != "table-cell":
        yield f"<{tag}>"
    yield from _inside(element, notes)
    if tag:
        yield f"</{tag}>"


def _inside(element: Element, notes: list[str]) -> Iterator[str]:
    yield escape(element.text or "")
    for child in element:
        yield from _to_html(child, notes)
        yield escape(child.tail or "")
