"""A level that a document states is its level in every form, or ``unreadable``."""

import io
import zipfile

import pytest

from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.registry import read_open

MAIL = b"X-Confidentiality: secret\nFrom: a@b.c\nSubject: Rope\nMessage-ID: <1@x>\n\nA rope.\n"
CUE = b"\n00:01.000 --> 00:02.000\nA rope.\n"
FRONT = b"""---
title: Plan
abstract: We show that ropes
hold.

More.

confidentiality: secret
---
# T
"""
RECORDS = b'[{"title":"a","text":"A rope","author":"x"},{"title":"b","text":"A wherry"}]'
PDF = b"""%%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents 4 0 R
/Resources<</Font<</F1 6 0 R>>>>>>endobj
4 0 obj<</Length 41>>stream
BT /F1 20 Tf 50 200 Td (The rope) Tj ET
endstream endobj
5 0 obj<</%s (secret)>>endobj
6 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R/Info 5 0 R>>
"""


OF_WORD = b"""<html xmlns:o="urn:schemas-microsoft-com:office:office"><head>
<!--[if gte mso 9]><xml><o:CustomDocumentProperties>
<o:Confidentiality dt:dt="string">secret</o:Confidentiality></o:CustomDocumentProperties></xml>
<![endif]--></head><body><p>A rope.</p></body></html>"""
ARCHIVE = b"""Content-Type: multipart/related; boundary=x

--x
Content-Type: text/html

<p>A rope.</p>
--x--
"""


def packed(**parts):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return data.getvalue()


def book(metadata):
    package = b"""<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>%s</metadata>
        <manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>
        <spine><itemref idref="a"/></spine></package>"""
    container = b'<container><rootfile full-path="b.opf"/></container>'
    files = {"META-INF/container.xml": container, "b.opf": package % metadata}
    return packed(**files, **{"a.xhtml": b"<html><body><p>A rope.</p></body></html>"})


def flat_text(*stated):
    office, meta, text = (
        f"urn:oasis:names:tc:opendocument:xmlns:{it}:1.0" for it in ("office", "meta", "text")
    )
    fields = "".join(
        f'<m:user-defined m:name="Confidentiality">{it}</m:user-defined>' for it in stated
    )
    return (
        f'<o:document xmlns:o="{office}" xmlns:m="{meta}" xmlns:t="{text}">'
        f"<o:meta>{fields}</o:meta><o:body><o:text><t:p>A rope.</t:p></o:text></o:body>"
        "</o:document>"
    ).encode()


def word(page):
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    link = '<Relationship Id="{}" Type="{}/{}" Target="{}"/>'
    links = "<Relationships>{}</Relationships>"
    body = (
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
        f'xmlns:r="{kinds}"><w:body><w:altChunk r:id="a"/></w:body></w:document>'
    )
    return packed(
        **{
            "_rels/.rels": links.format(
                link.format("d", kinds, "officeDocument", "word/document.xml")
            ),
            "word/document.xml": body,
            "word/_rels/document.xml.rels": links.format(
                link.format("a", kinds, "aFChunk", "a.html")
            ),
            "word/a.html": page,
        }
    )


def levels(path, data):
    documents = list(read_open(io.BytesIO(data), path, limits=DEFAULT_LIMITS))[1:]
    return [one.metadata.get("confidentiality") for one in documents if hasattr(one, "metadata")]


@pytest.mark.parametrize(
    ("path", "data", "level"),
    [
        ("a.eml", MAIL, "secret"),
        ("a.eml", b"\xef\xbb\xbf" + MAIL, "secret"),
        ("a.eml", b"\r\n\n" + MAIL, "secret"),
        ("a.eml", MAIL.decode().encode("utf-16"), "secret"),
        ("a.vtt", b"WEBVTT\n\nNOTE confidentiality: secret\n" + CUE, "unreadable"),
        ("a.vtt", b"WEBVTT - x confidentiality: secret\n" + CUE, "unreadable"),
        ("a.vtt", b"WEBVTT\n\nSTYLE\n::cue {}\n\nNOTE\nconfidentiality: a\n" + CUE, "unreadable"),
        ("a.vtt", b"WEBVTT\n" + CUE, None),
        ("a.md", FRONT, "unreadable"),
        ("a.md", b"---\ntitle: x\n---\nA rope.\n\nconfidentiality: a word\n---\n", None),
        ("a.pdf", PDF % b"Confidentiality#20Level", "unreadable"),
        ("a.pdf", PDF % b"Document#20Confidentiality", "unreadable"),
        ("a.pdf", PDF % b"Subject", None),
        ("a.txt", "Confidentiality： secret\n\nA rope.\n".encode(), "unreadable"),
        ("a.html", OF_WORD, "unreadable"),
        ("a.doc", OF_WORD, "unreadable"),
        ("a.mht", ARCHIVE.replace(b"<p>", OF_WORD + b"<p>"), "unreadable"),
        ("a.docx", b"---\nconfidentiality: secret\n---\nA rope.\n", "secret"),
        ("a.mhtml", b"X-Confidentiality: secret\n" + ARCHIVE, "secret"),
        ("a.mhtml", ARCHIVE.replace(b"html\n", b"html\nConfidentiality: secret\n"), "secret"),
        ("a.mhtml", ARCHIVE, None),
        ("a.epub", book(b"<dc:confidentiality>secret</dc:confidentiality>"), "secret"),
        (
            "a.epub",
            book(b"<x-metadata><confidentiality>secret</confidentiality></x-metadata>"),
            "secret",
        ),
        ("a.epub", book(b""), None),
        ("a.fodt", flat_text("secret"), "secret"),
        ("a.fodt", flat_text("secret", "secret"), "secret"),
        ("a.fodt", flat_text("public", "secret"), "unreadable"),
        (
            "a.docx",
            word(b'<html><meta name="confidentiality" content="secret"><p>A rope.'),
            "secret",
        ),
        ("a.docx", word(b"<html><p>A rope."), None),
    ],
)
def test_a_level_counts_however_the_file_begins(path, data, level):
    assert levels(path, data) == [level]


def test_the_level_of_an_export_is_that_of_each_record():
    assert (
        levels("a.json", b'{"confidentiality": "secret", "items": %s}' % RECORDS) == ["secret"] * 2
    )
    assert (
        levels("a.json", b'{"confidentiality": {"a": 1}, "items": %s}' % RECORDS)
        == ["unreadable"] * 2
    )
    assert levels("a.json", RECORDS) == [None, None]
