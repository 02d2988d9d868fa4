"""E-books: chapters in reading order, metadata, and which are refused."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.ingest.readers.epub import EpubReader, FictionBookReader

CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'
METADATA = """<dc:title>On Locks</dc:title><dc:creator>Ann</dc:creator><dc:creator>Bo</dc:creator>
<dc:language>en</dc:language><dc:date>2024-01-05</dc:date><dc:subject>ops</dc:subject>
<dc:subject>keys</dc:subject><dc:identifier>urn:isbn:1</dc:identifier>
<dc:source>https://example.org/locks</dc:source><dc:publisher>unknown</dc:publisher>
<dc:description>&lt;p&gt;About &lt;b&gt;locks&lt;/b&gt;.&lt;/p&gt;</dc:description>
<meta property="dcterms:modified">2024-02-01T00:00:00Z</meta>"""


def item(name: str, href: str, more: str = "") -> str:
    return f'<item id="{name}" href="{href}" media-type="application/xhtml+xml" {more}/>'


def package(items: str, spine: str, *, metadata: str = "", guide: str = "") -> str:
    references = "".join(f'<itemref idref="{name}"/>' for name in spine.split())
    return (
        f'<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf"><metadata {DC}>'
        f"{metadata}</metadata><manifest>{items}</manifest><spine>{references}</spine>"
        f"<guide>{guide}</guide></package>"
    )


def chapter(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head><title/><script src='x.js'/></head><body>{body}</body></html>"
    )


def book(opf: str, container: str = CONTAINER, **files: str) -> bytes:
    """An e-book whose chapters are in ``OEBPS/text/NAME.xhtml``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("OEBPS/book.opf", opf)
        for name, body in files.items():
            archive.writestr(f"OEBPS/text/{name}.xhtml", chapter(body))
    return packed.getvalue()


def with_entry(data: bytes, name: str, content: str) -> bytes:
    packed = io.BytesIO(data)
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def read(
    data: bytes, limits: ReadLimits = DEFAULT_LIMITS
) -> tuple[ParsedDocument, list[ReadFailure]]:
    parsed = list(EpubReader().read(io.BytesIO(data), "a/book.epub", limits=limits))
    assert isinstance(parsed[-1], ParsedDocument)
    return parsed[-1], [failure for failure in parsed[:-1] if isinstance(failure, ReadFailure)]


ITEMS = item("a", "text/a.xhtml") + item("b", "text/b%2E.xhtml") + item("c", "./x/../text/c.xhtml")


def test_chapters_are_joined_in_the_order_of_the_spine() -> None:
    cells = "<table><tr><td><p>k</p></td><td><p>v</p></td></tr></table>"
    files = {"a": f"<h2>First</h2><p>one&nbsp;&amp; two</p>{cells}", "c": "<h1>Zero</h1><p>x</p>"}
    doc, failures = read(book(package(ITEMS, "c a"), **files))
    assert doc.text == "Zero\n\nx\n\nFirst\n\none & two\n\nk | v"
    parsed = [(h.level, h.title, doc.text[h.start : h.end]) for h in doc.headings]
    assert parsed == [(1, "Zero", "Zero"), (2, "First", "First")]
    assert [doc.text[start:end] for start, end in doc.atomic] == ["k | v"]
    assert (doc.title, doc.file_type, doc.pages, failures) == ("Zero", "epub", (), [])


def test_the_package_gives_title_and_metadata() -> None:
    doc, _ = read(book(package(ITEMS, "a", metadata=METADATA), a="<p>x</p>"))
    assert doc.title == "On Locks"
    assert dict(doc.metadata) == {
        "author": ("Ann", "Bo"),
        "language": "en",
        "created": "2024-01-05",
        "modified": "2024-02-01T00:00:00Z",
        "tags": ("ops", "keys"),
        "identifier": "urn:isbn:1",
        "source_url": "https://example.org/locks",
        "description": "About locks.",
    }


def test_navigation_contents_and_a_cover_without_text_are_left_out() -> None:
    items = (
        item("nav", "text/nav.xhtml", 'properties="nav"')
        + item("toc", "text/toc.xhtml")
        + item("cover", "text/cover.xhtml")
        + item("a", "text/a.xhtml")
    )
    guide = (
        '<reference type="toc" href="text/toc.xhtml"/>'
        '<reference type="toc" href="text/a.xhtml#here"/>'
    )
    files = {
        "nav": "Contents",
        "toc": "<p>a</p>",
        "cover": "<img src='c.png'/>",
        "a": "<p>text</p>",
    }
    doc, _ = read(book(package(items, "cover nav toc a", guide=guide), **files))
    assert doc.text == "text"


def test_a_missing_chapter_is_reported_and_the_other_chapters_are_read() -> None:
    doc, failures = read(book(package(ITEMS, "b a"), a="<p>x</p>"))
    assert doc.text == "x"
    reason = "broken archive: a part is missing"
    assert failures == [ReadFailure("a/book.epub:OEBPS/text/b..xhtml", reason)]


def test_chapters_outside_the_archive_are_no_chapters() -> None:
    items = item("p", "../../etc/passwd") + item("w", "https://example.org/") + ITEMS
    doc, failures = read(book(package(items, "p w a"), a="<p>x</p>"))
    assert (doc.text, failures) == ("x", [])


def test_without_a_spine_or_a_container_the_pages_are_found_all_the_same() -> None:
    doc, failures = read(book(package(ITEMS, ""), "<container/>", a="<p>x</p>", c="<p>y</p>"))
    assert (doc.text, len(failures)) == ("x\n\ny", 1)


ENCRYPTED = (
    '<encryption><EncryptedData><EncryptionMethod Algorithm="{}"/><CipherData>'
    '<CipherReference URI="{}"/></CipherData></EncryptedData></encryption>'
)


def test_encrypted_chapters_are_refused_but_scrambled_fonts_are_not() -> None:
    data = book(package(ITEMS, "a"), a="<p>x</p>")
    aes = ENCRYPTED.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "OEBPS/text/a.xhtml")
    with pytest.raises(ReadError, match="protected: DRM"):
        read(with_entry(data, "META-INF/encryption.xml", aes))
    fonts = ENCRYPTED.format("http://www.idpf.org/2008/embedding", "OEBPS/text/a.xhtml")
    assert read(with_entry(data, "META-INF/encryption.xml", fonts))[0].text == "x"


def test_entities_of_a_package_are_not_expanded() -> None:
    opf = package(ITEMS, "a", metadata="<dc:title>T&amp;&bomb;</dc:title>")
    declared = '<!DOCTYPE package [<!ENTITY bomb "BOOM"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    doc, _ = read(book(opf.replace("<package", f"{declared}<package", 1), a="<p>x</p>"))
    assert doc.title.startswith("T&")
    assert "BOOM" not in doc.title


def test_a_book_nested_very_deep_is_read() -> None:
    doc, _ = read(book(package(ITEMS, "a"), a="<div>" * 50_000 + "x"))
    assert doc.text == "x"


@pytest.mark.parametrize(
    ("data", "limits", "reason"),
    [
        (book(package(ITEMS, "a c"), a="x", c="y"), {"pages": 1}, "too many chapters: over 1"),
        (book(package(ITEMS, "a"), a="sixsix"), {"characters": 5}, "too long: over 5"),
        (book("<a" * 9), {}, "empty"),
        (b"not a zip file at all", {}, "broken archive: not a ZIP file"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, limits: dict[str, int], reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        read(data, replace(DEFAULT_LIMITS, **limits))


def test_a_zip_that_is_no_book_and_a_book_of_pictures_are_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(ReadError, match="not an e-book"):
        read(packed.getvalue())
    with pytest.raises(EmptyDocumentError):
        read(book(package(ITEMS, "a"), a="<img/>"))


def test_a_chapter_states_the_confidentiality_of_its_book() -> None:
    label = '<meta name="confidentiality" content="{}"/>'
    data = book(package(ITEMS, "a c"), a=label.format("secret") + "x", c="<p>y</p>")
    assert read(data)[0].metadata["confidentiality"] == "secret"
    data = book(package(ITEMS, "a c"), a=label.format("secret") + "x", c=label.format("open") + "y")
    assert read(data)[0].metadata["confidentiality"] == "unreadable"


def test_a_fictionbook_has_its_sections_as_headings() -> None:
    source = (
        '<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><description><title-info>'
        "<author><first-name>Theo</first-name><last-name>Hale</last-name></author>"
        "<book-title>The Salt Road</book-title><lang>en</lang></title-info></description><body>"
        "<section><title><p>One</p></title><section><title><p>Salt</p></title><p>He left "
        "<emphasis>be</emphasis>fore dawn.</p></section></section></body>"
        '<binary id="c">AAAA</binary></FictionBook>'
    )
    items = FictionBookReader().read(io.BytesIO(source.encode()), "a.fb2", limits=DEFAULT_LIMITS)
    (document,) = items
    assert isinstance(document, ParsedDocument)
    assert (document.title, document.text) == (
        "The Salt Road", "One\n\nSalt\n\nHe left before dawn.",
    )  # fmt: skip
    assert [(one.level, one.title) for one in document.headings] == [(1, "One"), (2, "Salt")]
    assert document.metadata["author"] == ("Theo Hale",)
