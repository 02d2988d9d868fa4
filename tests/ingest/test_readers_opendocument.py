"""OpenDocument texts and presentations, and rich text: what of them becomes text."""

from __future__ import annotations

import io
import zipfile

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.registry import load_reader, sniff
from growth import assert_linear

NAMES = ["office", "text", "table", "draw", "presentation", "dc", "meta"]
NAMESPACES = " ".join(f'xmlns:{name}="urn:{name}"' for name in NAMES)
KIND = "application/vnd.oasis.opendocument."


def packed(body: str, kind: str = "text", **parts: str) -> bytes:
    """An OpenDocument file with that inside ``office:body``, and other parts by name."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("mimetype", KIND + kind)
        archive.writestr(
            "content.xml",
            f"<office:document-content {NAMESPACES}><office:body><office:{kind}>{body}"
            f"</office:{kind}></office:body></office:document-content>",
        )
        for name, content in parts.items():
            archive.writestr(name.replace("__", "/") + ".xml", content)
    return held.getvalue()


def read(data: bytes, path: str = "a/notes.odt") -> ParsedDocument:
    name, _ = sniff(path, data[:8192], b"")
    items = load_reader(name).read(io.BytesIO(data), path, limits=DEFAULT_LIMITS)
    (document,) = items
    assert isinstance(document, ParsedDocument)
    return document


ROWS = "".join(
    f"<table:table-row><table:table-cell><text:p>{a}</text:p></table:table-cell>"
    f"<table:table-cell><text:p>{b}</text:p></table:table-cell></table:table-row>"
    for a, b in (("Oak &amp; elm", "7"), ("Rope", "9"))
)
HEADER = ROWS.replace("Oak &amp; elm", "Wood").replace("7", "Size").partition("</table:table-row>")


def test_an_opendocument_text_has_headings_lists_tables_and_notes():
    document = read(
        packed(
            "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
            '<text:h text:outline-level="2">Keys</text:h>'
            '<text:p>One<text:s text:c="2"/>key.'
            "<text:note><text:note-citation>1</text:note-citation>"
            "<text:note-body><text:p>Of brass.</text:p></text:note-body></text:note></text:p>"
            "<text:list><text:list-item><text:p>First</text:p></text:list-item></text:list>"
            f"<table:table><table:table-header-rows>{HEADER[0]}{HEADER[1]}"
            f"</table:table-header-rows>{ROWS}</table:table>"
            "<text:p>Last<text:line-break/>line.<office:annotation><text:p>remark</text:p>"
            "</office:annotation></text:p>",
            meta=f"<office:document-meta {NAMESPACES}><office:meta><dc:title>On keys</dc:title>"
            "<meta:keyword>keys</meta:keyword><meta:keyword>brass</meta:keyword>"
            "<dc:date>2024-03-05T10:00:00</dc:date>"
            '<meta:user-defined meta:name="confidentiality">secret</meta:user-defined>'
            "</office:meta></office:document-meta>",
        )
    )
    assert document.text.split("\n\n") == [
        "Keys",
        "One key.[1]",
        "First",
        "Wood | Size\nOak & elm | 7\nRope | 9",
        "Last\nline.",
        "[1] Of brass.",
    ]
    assert (document.title, document.file_type) == ("On keys", "odt")
    assert [(one.level, one.title) for one in document.headings] == [(2, "Keys")]
    assert [table.columns for table in document.tables] == ["| Wood | Size |"]
    assert document.metadata["tags"] == ("keys", "brass")
    assert document.metadata["confidentiality"] == "secret"
    at = document.text.index("Rope")
    assert (document.places.unit, document.places.number_at(at)) == ("paragraph", 6)


MATH = "<math><msup><mi>x</mi><mn>17</mn></msup></math>"


def test_raised_text_and_formulas_of_an_opendocument_text_stay_apart():
    data = packed(
        '<office:automatic-styles xmlns:style="urn:style"><style:style style:name="T1">'
        '<style:text-properties style:text-position="super 58%"/></style:style>'
        '<style:style style:name="T2"><style:text-properties style:text-position="-33% 58%"/>'
        "</style:style></office:automatic-styles>"
        '<text:p>10<text:span text:style-name="T1">6</text:span> of H<text:span '
        'text:style-name="T2">2</text:span>O <draw:object xmlns:xlink="urn:xlink" '
        'xlink:href="./Object 1"/>.</text:p>',
        **{"Object 1__content": MATH},
    )
    assert read(data).text == "10^6 of H_2O x^17."


def test_a_flat_opendocument_text_is_read_like_an_archive():
    flat = (
        f"<office:document {NAMESPACES}><office:meta><dc:title>Cellar</dc:title></office:meta>"
        "<office:body><office:text><text:h>Cider</text:h><text:p>Twelve <text:span>per</text:span>"
        "ry casks.</text:p></office:text></office:body></office:document>"
    )
    document = read(flat.encode(), "a/cellar.fodt")
    assert (document.title, document.text) == ("Cellar", "Cider\n\nTwelve perry casks.")


def test_an_opendocument_presentation_is_read_slide_by_slide():
    slide = (
        "<draw:page>{title}<draw:frame><draw:text-box><text:p>{text}</text:p></draw:text-box>"
        '</draw:frame><draw:frame presentation:class="page-number"><draw:text-box><text:p>9'
        "</text:p></draw:text-box></draw:frame><presentation:notes><draw:frame><draw:text-box>"
        "<text:p>{notes}</text:p></draw:text-box></draw:frame></presentation:notes></draw:page>"
    )
    title = (
        '<draw:frame presentation:class="title"><draw:text-box><text:p>Plan</text:p>'
        "</draw:text-box></draw:frame>"
    )
    slides = slide.format(title=title, text="Ropes", notes="Say it.")
    slides += slide.format(title="", text="Planks", notes="")
    document = read(packed(slides, "presentation"), "a/deck.odp")
    assert document.text.split("\n\n") == ["Plan", "Ropes", "Say it.", "Planks"]
    assert [document.text[at:][:6] for at in document.pages] == ["Plan\n\n", "Planks"]
    assert document.places.unit == "slide"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"META-INF__manifest": "<manifest:encryption-data/>"}, "protected by a password"),
        ({"meta": "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"}, "declares entities"),
    ],
)
def test_an_encrypted_or_hostile_opendocument_file_is_refused(parts, reason):
    with pytest.raises(ReadError, match=reason):
        read(packed("<text:p>a</text:p>", **parts))


def test_an_opendocument_file_without_text_is_empty():
    with pytest.raises(EmptyDocumentError):
        read(packed("<text:p/>"))


RICH = (
    r"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\title Lock plan}}"
    r"\pard Gr\'fc\'dfe {\b fett}.\par Second \u1080? line.\par"
    r"\trowd\cellx1\cellx2\cellx3 Name\cell Town\cell Age\cell\row"
    r"\trowd\cellx1\cellx2\cellx3 Anna\cell Ely\cell 7\cell\row\pard After.\par}"
)


def test_rich_text_is_read_by_paragraphs_and_rows():
    document = read(RICH.encode(), "a/plan.rtf")
    assert document.text.split("\n\n") == [
        "Grüße fett.",
        "Second и line.",
        "Name | Town | Age\nAnna | Ely | 7",
        "After.",
    ]
    assert (document.title, document.file_type) == ("Lock plan", "rtf")
    assert [table.columns for table in document.tables] == ["| Name | Town | Age |"]
    assert document.places.number_at(document.text.index("Anna")) == 4


@pytest.mark.parametrize(
    "source",
    [
        r"{\rtf1{\*\userprops{\propname confidentiality}{\staticval secret}}Text.}",
        r"{\rtf1{\*\userprops{\propname Confidential\'69ty}{\staticval secret}}Text.}",
        r"{\rtf1{\*\userprops{\propname Confident\u105?ality}{\staticval secret}}Text.}",
        "{\\rtf1{\\*\\userprops{\\propname\nConfidentiality}{\\staticval secret}}Text.}",
        r"{\rtf1{\*\userprops{\propname {Confidentiality}}{\staticval secret}}Text.}",
    ],
)
def test_rich_text_that_names_a_confidentiality_is_unreadable(source):
    document = read(source.encode(), "a/plan.rtf")
    assert document.metadata["confidentiality"] == "unreadable"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"catechu{\super 18}, 240 m{\up6 2}, 10\super 6\nosupersub , H{\sub 2}O",
         "catechu [18], 240 m^2, 10^6, H_2O"),
        (r"Tax.\chftn{\footnote\pard\plain\chftn  Decree {\i of} 1702.} It fell.{\*\themedata a}",
         "Tax.[1] It fell.\n\n[1] Decree of 1702."),
        (r"{\headerl Top}{\headerr Top}A.{\*\annotation Why?}{\shp{\*\shpinst{\shptxt Box}}} Two.",
         "A. Two.\n\nTop\n\nWhy?\n\nBox"),
        (r"Seen {\v hidden \'e9\u1080? }and \v gone\v0 here.", "Seen and here."),
        (r'{\field{\*\fldinst{HYPERLINK "https://x.org/"}}{\fldrslt{hut}}} opens.', "hut opens."),
    ],
)  # fmt: skip
def test_rich_text_keeps_raised_text_and_notes_and_leaves_out_what_is_hidden(source, text):
    document = read(f"{{\\rtf1 {source}}}".encode(), "a/plan.rtf")
    assert document.text == text


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        r"\super a",
        r"{\footnote a",
        r"{\header a",
        r"{\fonttbl\f1",
        r"{\field{\*\fldinst{",
        r"\propname a",
    ],
)
def test_rich_text_that_repeats_takes_linear_time(piece):
    assert_linear(
        lambda size: read((r"{\rtf1 word " + piece * size).encode(), "a/plan.rtf"),
        100_000 // len(piece),
    )
