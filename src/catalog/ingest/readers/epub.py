"""E-books: the chapters in reading order, each read like HTML."""

from collections import defaultdict
from typing import BinaryIO

from lxml import etree

from catalog.core.documents import MetadataValue
from catalog.core.errors import ReadError
from catalog.ingest.readers import archive as zipped
from catalog.ingest.readers import base
from catalog.ingest.readers.archive import Element, inside, local_name, named, parse_xml, text_of
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, is_web_address, normalise, one_level

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_FONT_SCRAMBLING = {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
_CONTENTS_TYPES = ("toc", "other.loi", "other.lot")
_METADATA = {name: name for name in ("title", "language", "publisher", "description")}
_METADATA |= {"creator": "author", "date": "created", "subject": "tags", "source": "source"}
_METADATA |= {"identifier": "identifier", "dcterms:modified": "modified"}


class EpubReader:
    """Read a book as one document; headings keep the levels of their chapters."""

    def read(self, handle: BinaryIO, path: str, *, limits: base.ReadLimits) -> base.Items:
        """Yield the one document of the file, after a failure for each chapter that is missing.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = zipped.open_archive(handle, limits)
        chapters, metadata = _read_package(archive)
        if len(chapters) > limits.pages:
            raise ReadError(f"too many chapters: over {limits.pages:,}")
        joined, missing, paragraphs = base.JoinedText(limits, "paragraph"), [], 0
        for chapter in chapters:
            try:
                page = extract(decode(archive.read(chapter), declared=True))
            except zipped.BrokenPartError as error:
                missing.append(base.ReadFailure(f"{path}:{chapter}", str(error)))
                continue
            places = page.places.moved(paragraphs)
            paragraphs = max((paragraphs, *places.numbers))
            joined.add(page.text, page.headings, page.atomic, places=places, tables=page.tables)
            metadata |= one_level(metadata.get(LEVEL), page.metadata.get(LEVEL))
        yield from base.cap_failures(missing)
        yield joined.document(path, file_type="epub", metadata=metadata)


def _read_package(archive: zipped.Archive) -> tuple[list[str], dict[str, MetadataValue]]:
    """Return the entries of the spine, else of the manifest, without contents; and the metadata."""
    files = [name for name in archive.names if name.casefold().endswith(".opf")]
    if _CONTAINER in archive:
        roots = named(parse_xml(archive.read(_CONTAINER), is_lenient=True), "rootfile")
        files[:0] = [inside("", one.get("full-path", "")) or "" for one in roots]
    name = next((one for one in files if one in archive), None)
    if name is None:
        raise ReadError("not an e-book: no package document")
    if _ENCRYPTION in archive:
        entries = parse_xml(archive.read(_ENCRYPTION), is_lenient=True)
        methods = {one.get("Algorithm") for one in named(entries, "EncryptionMethod")}
        if methods - _FONT_SCRAMBLING:
            raise ReadError("protected: DRM")
    root = parse_xml(archive.read(name), is_lenient=True)
    guide = (one for one in named(root, "reference") if one.get("type") in _CONTENTS_TYPES)
    contents = {one.get("href") for one in guide}  # with a fragment it names more than contents
    pages: dict[str, str] = {}
    for item in named(root, "item"):
        is_contents = item.get("href") in contents or "nav" in item.get("properties", "").split()
        if item.get("media-type") in _PAGES and not is_contents:
            pages.setdefault(item.get("id", ""), inside(name, item.get("href", "")) or "")
    spine = [pages.get(item.get("idref", ""), "") for item in named(root, "itemref")]
    chapters = dict.fromkeys(filter(None, spine)) or dict.fromkeys(filter(None, pages.values()))
    return list(chapters), _read_metadata(root)


def _read_metadata(root: Element) -> dict[str, MetadataValue]:
    values: dict[str, list[str]] = defaultdict(list)
    for element in (one for holder in named(root, "metadata") for one in holder.iter("*")):
        value = element.get("content") or text_of(element)
        known = _METADATA.get(element.get("property", local_name(element)), "")
        known = "source" if known == "identifier" and is_web_address(value) else known
        value = extract(value).text if known == "description" else value
        is_new = known in ("author", "tags") or (known and known not in values)
        keys = [known] if is_new and value.casefold() not in ("", "unknown") else []
        stated = (local_name(element), element.get("name", ""), element.get("property", ""))
        for key in keys + [key for key in stated if LEVEL in key.casefold()]:
            values[key].append(value)
    return normalise({key: it if it[1:] or key == "tags" else it[0] for key, it in values.items()})


_SAME_TAGS = "table tr td th sup sub h1 h2 h3 h4 h5 h6"
_BOOK_TAGS = {name: name for name in _SAME_TAGS.split()}
_BOOK_TAGS |= dict.fromkeys(("emphasis", "strong", "strikethrough", "a", "style", "code"), "span")
_BOOK_TAGS |= dict.fromkeys(("binary", "description", "stylesheet", "image"), "template")


class FictionBookReader:
    """Read a FictionBook (.fb2) as one document, with the titles of its sections as headings."""

    def read(self, handle: BinaryIO, path: str, *, limits: base.ReadLimits) -> base.Items:
        """Yield the one document of the file; raise ``ReadError`` if it is broken or too large."""
        root = parse_xml(base.read_bytes(handle, limits.document_bytes), is_lenient=True)
        about = next(iter(named(root, "title-info")), root)
        fields: dict[str, object] = {
            "author": [" ".join(map(text_of, one)) for one in named(about, "author")]
        }
        for name, key in (("book-title", "title"), ("lang", "language")):
            fields[key] = "".join(map(text_of, named(about, name)[:1]))
        for one in named(root, "title"):
            one.tag = f"h{min(max(1, sum(1 for _ in one.iterancestors('{*}section'))), 6)}"
        for one in root.iter("*"):
            one.tag = _BOOK_TAGS.get(local_name(one), "div")
        page = extract(etree.tostring(root, encoding="unicode", method="html"))
        joined = base.JoinedText(limits, "paragraph")
        joined.add(page.text, page.headings, page.atomic, places=page.places, tables=page.tables)
        yield joined.document(path, file_type="fb2", metadata=normalise(fields))
