"""E-books: the chapters in reading order, each read like HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO

from lxml import etree

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import (
    Archive,
    BrokenPartError,
    Element,
    inside,
    local_name,
    named,
    open_archive,
    parse_xml,
    text_of,
)
from catalog.ingest.readers.base import (
    JoinedText,
    ReadFailure,
    ReadLimits,
    cap_failures,
    read_bytes,
)
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import (
    LEVEL,
    normalise,
    one_level,
    stated_levels,
    take_title,
)

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_CONTENTS_TYPES = ("toc", "other.loi", "other.lot")
_UNKNOWN = "unknown"
"""What Sphinx and others write where the author said nothing."""
_METADATA = {
    "title": "title",
    "creator": "author",
    "language": "language",
    "date": "created",
    "subject": "tags",
    "publisher": "publisher",
    "description": "description",
}


class EpubReader:
    """Read a book as one document; headings keep the levels of their chapters."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file, after a failure for each chapter that is missing.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        chapters, fields = _read_package(archive)
        if len(chapters) > limits.pages:
            raise ReadError(f"too many chapters: over {limits.pages:,}")
        metadata = normalise(fields)
        title = take_title(metadata)
        joined, missing, paragraphs = JoinedText(limits, "paragraph"), [], 0
        for chapter in chapters:
            try:
                source = decode(archive.read(chapter), declared=True)
            except BrokenPartError as error:
                missing.append(ReadFailure(f"{path}:{chapter}", str(error)))
                continue
            page = extract(source)
            places = page.places.moved(paragraphs)
            paragraphs = max((paragraphs, *places.numbers))
            joined.add(page.text, page.headings, page.atomic, places=places, tables=page.tables)
            metadata |= one_level(metadata.get(LEVEL), page.metadata.get(LEVEL))
        yield from cap_failures(missing)
        yield joined.document(path, title=title, file_type="epub", metadata=metadata)


def _read_package(archive: Archive) -> tuple[list[str], dict[str, object]]:
    """Return the names of the chapters' entries, which may be missing, and the metadata.

    Chapters are those of the spine, without the navigation document, a separate table of contents,
    and entries that are not text. Without a spine they are all pages of the manifest. Raises
    ``ReadError`` if there is no package document or if content is encrypted.
    """
    name = _find_package(archive)
    root = parse_xml(archive.read(name), is_lenient=True)
    pages: dict[str, str] = {}
    skipped = _contents_pages(root, name)
    for item in named(root, "item"):
        target = inside(name, item.get("href", ""))
        if target is None or item.get("media-type", "") not in _PAGES:
            continue
        pages.setdefault(item.get("id", ""), target)
        if "nav" in item.get("properties", "").split():
            skipped.add(target)
    spine = [pages.get(item.get("idref", "")) for item in named(root, "itemref")]
    ordered = dict.fromkeys(page for page in spine if page is not None) or dict.fromkeys(
        pages.values()
    )
    _refuse_encrypted(archive, ordered)
    return [page for page in ordered if page not in skipped], _read_metadata(root)


def _find_package(archive: Archive) -> str:
    if _CONTAINER in archive:
        root = parse_xml(archive.read(_CONTAINER), is_lenient=True)
        for element in named(root, "rootfile"):
            name = inside("", element.get("full-path", ""))
            if name is not None and name in archive:
                return name
    packages = [name for name in archive.names if name.casefold().endswith(".opf")]
    if not packages:
        raise ReadError("not an e-book: no package document")
    return packages[0]


def _contents_pages(root: Element, name: str) -> set[str]:
    """Return pages that are only a table of contents; a page with a fragment has more."""
    pages = set()
    for reference in named(root, "reference"):
        href = reference.get("href", "")
        target = inside(name, href)
        if reference.get("type") in _CONTENTS_TYPES and "#" not in href and target is not None:
            pages.add(target)
    return pages


def _refuse_encrypted(archive: Archive, chapters: Mapping[str, None]) -> None:
    if _ENCRYPTION not in archive:
        return
    for entry in named(parse_xml(archive.read(_ENCRYPTION), is_lenient=True), "EncryptedData"):
        methods = [method.get("Algorithm") for method in named(entry, "EncryptionMethod")]
        if methods and methods[0] in _FONT_SCRAMBLING:
            continue
        for reference in named(entry, "CipherReference"):
            if inside("", reference.get("URI", "")) in chapters:
                raise ReadError("protected: DRM")


def _read_metadata(root: Element) -> dict[str, object]:
    values: dict[str, list[str]] = {}
    identifiers: list[str] = []
    for holder in named(root, "metadata"):
        for element in named(holder, *_METADATA):
            field_name = _METADATA[element.tag.rpartition("}")[2]]
            value = text_of(element)
            if value and value.casefold() != _UNKNOWN:
                values.setdefault(field_name, []).append(value)
        for element in named(holder, "meta"):
            if element.get("property") == "dcterms:modified":
                values.setdefault("modified", []).append(text_of(element))
            for name in (element.get("name", ""), element.get("property", "")):
                if LEVEL in name.casefold():
                    values.setdefault(name, []).append(element.get("content") or text_of(element))
        sources = map(text_of, named(holder, "source", "identifier"))
        identifiers += [value for value in sources if value and value.casefold() != _UNKNOWN]
    listed = {"tags", *stated_levels(values)}
    fields: dict[str, object] = {
        key: entries if key in listed or (key == "author" and entries[1:]) else entries[0]
        for key, entries in values.items()
    }
    web = [value for value in identifiers if value.startswith(("http://", "https://"))]
    others = [value for value in identifiers if value not in web]
    fields |= {"source_url": web[0]} if web else {}
    fields |= {"identifier": others[0]} if others else {}
    if "description" in fields:
        fields["description"] = extract(str(fields["description"]), keep_navigation=True).text
    return fields


_BOOK_TAGS = {name: name for name in ("p", "table", "tr", "td", "th", "sup", "sub")}
_BOOK_TAGS |= dict.fromkeys(("v", "subtitle", "text-author"), "p")
_BOOK_TAGS |= dict.fromkeys(("emphasis", "strong", "strikethrough", "a", "style", "code"), "span")
_BOOK_TAGS |= dict.fromkeys(("binary", "description", "stylesheet", "image"), "template")


class FictionBookReader:
    """Read a FictionBook (.fb2) as one document, with the titles of its sections as headings."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file; raise ``ReadError`` if it is broken or too large."""
        root, depth = parse_xml(read_bytes(handle, limits.document_bytes), is_lenient=True), 0
        about = next(iter(named(root, "title-info")), root)
        fields = {
            "author": [" ".join(map(text_of, one)) for one in named(about, "author")],
            "language": next(map(text_of, named(about, "lang")), None),
        }
        title = next(map(text_of, named(about, "book-title")), None)
        for event, element in etree.iterwalk(root, events=("start", "end")):
            name = local_name(element)
            depth += (name == "section") * (1 if event == "start" else -1)
            if event == "end":
                heading = f"h{min(max(depth, 1), 6)}"
                element.tag = heading if name == "title" else _BOOK_TAGS.get(name, "div")
        page, joined = extract(root), JoinedText(limits, "paragraph")
        joined.add(page.text, page.headings, page.atomic, places=page.places, tables=page.tables)
        metadata = normalise(fields)
        yield joined.document(path, title=title, file_type="fb2", metadata=metadata)
