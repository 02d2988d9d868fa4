"""E-books: the chapters in reading order, each read like HTML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import BinaryIO

from lxml import etree

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers import base
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
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, normalise, one_level, stated_levels, take_title

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_CONTENTS_TYPES = ("toc", "other.loi", "other.lot")
_METADATA = {
    "title": "title", "creator": "author", "language": "language", "date": "created",
    "subject": "tags", "publisher": "publisher", "description": "description",
}  # fmt: skip


class EpubReader:
    """Read a book as one document; headings keep the levels of their chapters."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: base.ReadLimits
    ) -> Iterator[ParsedDocument | base.ReadFailure]:
        """Yield the one document of the file, after a failure for each chapter that is missing.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        chapters, fields = _read_package(archive)
        if len(chapters) > limits.pages:
            raise ReadError(f"too many chapters: over {limits.pages:,}")
        metadata = normalise(fields)
        title = take_title(metadata)
        joined, missing, paragraphs = base.JoinedText(limits, "paragraph"), [], 0
        for chapter in chapters:
            try:
                source = decode(archive.read(chapter), declared=True)
            except BrokenPartError as error:
                missing.append(base.ReadFailure(f"{path}:{chapter}", str(error)))
                continue
            page = extract(source)
            places = page.places.moved(paragraphs)
            paragraphs = max((paragraphs, *places.numbers))
            joined.add(page.text, page.headings, page.atomic, places=places, tables=page.tables)
            metadata |= one_level(metadata.get(LEVEL), page.metadata.get(LEVEL))
        yield from base.cap_failures(missing)
        yield joined.document(path, title=title, file_type="epub", metadata=metadata)


def _read_package(archive: Archive) -> tuple[list[str], dict[str, object]]:
    """Return the entries of the spine, else of the manifest, without contents; and the metadata."""
    files: list[str | None] = []
    if _CONTAINER in archive:
        roots = named(parse_xml(archive.read(_CONTAINER), is_lenient=True), "rootfile")
        files = [inside("", one.get("full-path", "")) for one in roots]
    files += [name for name in archive.names if name.casefold().endswith(".opf")]
    name = next((one for one in files if one is not None and one in archive), None)
    if name is None:
        raise ReadError("not an e-book: no package document")
    root = parse_xml(archive.read(name), is_lenient=True)
    skipped = {  # a page with a fragment has more than a table of contents
        inside(name, one.get("href", ""))
        for one in named(root, "reference")
        if one.get("type") in _CONTENTS_TYPES and "#" not in one.get("href", "")
    }
    pages: dict[str, str] = {}
    for item in named(root, "item"):
        target = inside(name, item.get("href", ""))
        if target is None or item.get("media-type", "") not in _PAGES:
            continue
        pages.setdefault(item.get("id", ""), target)
        if "nav" in item.get("properties", "").split():
            skipped.add(target)
    spine = [pages.get(item.get("idref", "")) for item in named(root, "itemref")]
    chapters = dict.fromkeys(filter(None, spine)) or dict.fromkeys(pages.values())
    if _ENCRYPTION in archive:
        for entry in named(parse_xml(archive.read(_ENCRYPTION), is_lenient=True), "EncryptedData"):
            method = next((one.get("Algorithm") for one in named(entry, "EncryptionMethod")), None)
            targets = {inside("", one.get("URI", "")) for one in named(entry, "CipherReference")}
            if method not in _FONT_SCRAMBLING and targets & chapters.keys():
                raise ReadError("protected: DRM")
    return [page for page in chapters if page not in skipped], _read_metadata(root)


def _read_metadata(root: Element) -> dict[str, object]:
    values: dict[str, list[str]] = defaultdict(list)
    for element in (one for holder in named(root, "metadata") for one in holder.iter("*")):
        name, value = local_name(element), text_of(element)
        if name == "meta":
            keys = (element.get("name", ""), element.get("property", ""))
            value = element.get("content") or value
            if "dcterms:modified" in keys:
                values["modified"].append(value)
            for key in keys:
                if LEVEL in key.casefold():
                    values[key].append(value)
        elif not value or value.casefold() == "unknown":
            continue  # what Sphinx and others write where the author said nothing
        elif name in ("source", "identifier"):
            is_web = value.startswith(("http://", "https://"))
            values["source_url" if is_web else "identifier"].append(value)
        elif name in _METADATA:
            values[_METADATA[name]].append(value)
    if "description" in values:
        values["description"] = [extract(values["description"][0]).text]
    listed = {"tags", *stated_levels(values)} | ({"author"} if values["author"][1:] else set())
    return {key: all_ if key in listed else all_[0] for key, all_ in values.items() if all_}


_BOOK_TAGS = {name: name for name in ("table", "tr", "td", "th", "sup", "sub")}
_BOOK_TAGS |= dict.fromkeys(("emphasis", "strong", "strikethrough", "a", "style", "code"), "span")
_BOOK_TAGS |= dict.fromkeys(("binary", "description", "stylesheet", "image"), "template")


class FictionBookReader:
    """Read a FictionBook (.fb2) as one document, with the titles of its sections as headings."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: base.ReadLimits
    ) -> Iterator[ParsedDocument | base.ReadFailure]:
        """Yield the one document of the file; raise ``ReadError`` if it is broken or too large."""
        root = parse_xml(base.read_bytes(handle, limits.document_bytes), is_lenient=True)
        about = next(iter(named(root, "title-info")), root)
        authors = [" ".join(map(text_of, one)) for one in named(about, "author")]
        language = next(map(text_of, named(about, "lang")), None)
        title = next(map(text_of, named(about, "book-title")), None)
        for element in reversed(list(root.iter("*"))):  # so that sections still have their names
            name = local_name(element)
            level = sum(1 for _ in element.iterancestors("{*}section")) if name == "title" else 0
            heading = f"h{min(max(level, 1), 6)}"
            element.tag = heading if name == "title" else _BOOK_TAGS.get(name, "div")
        page = extract(etree.tostring(root, encoding="unicode", method="html"))
        joined = base.JoinedText(limits, "paragraph")
        joined.add(page.text, page.headings, page.atomic, places=page.places, tables=page.tables)
        metadata = normalise({"author": authors, "language": language})
        yield joined.document(path, title=title, file_type="fb2", metadata=metadata)
