"""Word and PowerPoint files: what of them becomes text, and which are refused."""

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace

import docx
import pytest
from docx.document import Document as WordDocument
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.presentation import Presentation as Deck
from pptx.util import Inches

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import Archive, ArchiveReader, open_archive
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.ingest.readers.docx import DocxReader
from catalog.ingest.readers.pptx import PptxReader
from ingest.made_files import W, word

SLIDE = "ppt/slides/slide1.xml"


def saved(document: WordDocument | Deck) -> bytes:
    packed = io.BytesIO()
    document.save(packed)
    return packed.getvalue()


def changed(data: bytes, edit: Callable[[str, bytes], bytes | None]) -> bytes:
    """The same archive with every entry edited; ``None`` leaves it out."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            content = edit(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return packed.getvalue()


def read_word(data: bytes, limits: ReadLimits = DEFAULT_LIMITS) -> ParsedDocument:
    (document,) = DocxReader().read(io.BytesIO(data), "a/notes.docx", limits=limits)
    assert isinstance(document, ParsedDocument)
    return document


def read_deck(data: bytes, limits: ReadLimits = DEFAULT_LIMITS) -> ParsedDocument:
    (document,) = PptxReader().read(io.BytesIO(data), "a/talk.pptx", limits=limits)
    assert isinstance(document, ParsedDocument)
    return document


def test_a_word_file_keeps_headings_lists_tables_and_properties() -> None:
    document = docx.Document()
    document.core_properties.title = "Key handling"
    document.core_properties.author = "Ann"
    document.core_properties.keywords = "ops; keys"
    document.add_heading("Rotation", 1)
    document.add_paragraph("Rotate every year.")
    document.add_paragraph("first", "List Bullet")
    document.add_paragraph("second", "List Bullet")
    document.add_heading("Costs", 2)
    table = document.add_table(2, 2)
    for at, text in enumerate(["part", "price", "lock", "5"]):
        table.cell(at // 2, at % 2).text = text
    doc = read_word(saved(document))
    assert doc.text == (
        "Rotation\n\nRotate every year.\n\nfirst\nsecond\n\nCosts\n\npart | price\nlock | 5"
    )
    headings = [(h.level, h.title, doc.text[h.start : h.end]) for h in doc.headings]
    assert headings == [(1, "Rotation", "Rotation"), (2, "Costs", "Costs")]
    assert [doc.text[start:end] for start, end in doc.atomic] == ["part | price\nlock | 5"]
    assert (doc.title, doc.file_type) == ("Key handling", "docx")
    assert doc.metadata["author"] == "Ann"
    assert doc.metadata["tags"] == ("ops", "keys")
    assert doc.metadata["created"] == "2013-12-23T23:15:00Z"  # of python-docx's template


def test_strict_files_are_read() -> None:
    strict = b"http://purl.oclc.org/ooxml/wordprocessingml/main"
    data = changed(word("[p x]", {}), lambda _, content: content.replace(W.encode(), strict))
    assert read_word(data).text == "x"


def deck(*titles: str) -> Deck:
    """A presentation with a slide of title and body for each title."""
    presentation = Presentation()
    for title in titles:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"About {title}"
    return presentation


def test_a_slide_is_a_page_and_its_title_a_heading() -> None:
    presentation = deck("Intro", "End")
    presentation.slides[0].notes_slide.notes_text_frame.text = "Say hello."
    presentation.slides.add_slide(presentation.slide_layouts[6])
    doc = read_deck(saved(presentation))
    assert doc.text == "Intro\n\nAbout Intro\n\nNotes:\nSay hello.\n\nEnd\n\nAbout End"
    assert doc.pages == (0, doc.text.index("End"), len(doc.text))
    assert [(h.level, doc.text[h.start : h.end]) for h in doc.headings] == [
        (1, "Intro"),
        (1, "End"),
    ]
    assert (doc.title, doc.file_type) == ("Intro", "pptx")


def test_shapes_are_read_from_top_to_bottom_and_left_to_right() -> None:
    presentation = deck("T")
    slide = presentation.slides[0]
    slide.placeholders[1].text = ""
    # Tops 0.1 inch apart stand in one row (the tolerance is 7.5 / 30 = 0.25 inch).
    places = {"low": (0, 6), "right": (5, 3), "left": (1, 3.1), "high": (9, 2)}
    for text, (left, top) in places.items():
        slide.shapes.add_textbox(Inches(left), Inches(top), 9, 9).text_frame.text = text
    group = slide.shapes.add_group_shape()
    for text, top in (("g2", 5.5), ("g1", 4)):
        box = group.shapes.add_textbox(Inches(2), Inches(top), 9, 9)
        box.text_frame.text = text
    assert read_deck(saved(presentation)).text.split() == [
        "T", "high", "left", "right", "g1", "g2", "low",
    ]  # fmt: skip


def test_tables_and_charts_of_a_slide_are_text() -> None:
    presentation = deck("T")
    slide = presentation.slides[0]
    slide.placeholders[1].text = ""
    table = slide.shapes.add_table(2, 2, 0, Inches(3), 99, 99).table
    for at, text in enumerate(["a", "b\nc", "d", "e"]):
        table.cell(at // 2, at % 2).text = text
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("Sales", (1, 2.5))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, 0, Inches(5), 99, 99, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "By region"
    doc = read_deck(saved(presentation))
    assert doc.text == "T\n\na | b c\nd | e\n\nBy region\nSales: North 1, South 2.5"
    assert [doc.text[start:end] for start, end in doc.atomic] == ["a | b c\nd | e"]


def test_a_shape_with_an_equation_is_not_lost() -> None:
    def with_equation(name: str, content: bytes) -> bytes:
        if name != SLIDE:
            return content
        mc = "http://schemas.openxmlformats.org/markup-compatibility/2006"
        math = "http://schemas.openxmlformats.org/officeDocument/2006/math"
        body = re.compile(rb"(<p:sp>(?:(?!<p:sp>).)*About(?:.*?)</p:sp>)", re.DOTALL)
        equation = (
            f'<a14:m xmlns:a14="http://x"><m:oMathPara xmlns:m="{math}"><m:oMath><m:r>'
            "<m:t>a+b</m:t></m:r></m:oMath></m:oMathPara></a14:m>"
        )
        content = content.replace(b"<a:r><a:t>About", equation.encode() + b"<a:r><a:t>About")
        choice = f'<mc:AlternateContent xmlns:mc="{mc}"><mc:Choice Requires="a14">'.encode()
        content, count = body.subn(choice + rb"\1</mc:Choice></mc:AlternateContent>", content)
        assert count == 1
        return content

    assert read_deck(changed(saved(deck("T")), with_equation)).text == "T\n\na+bAbout T"


def test_raised_text_and_comments_of_a_slide_are_text() -> None:
    def edit(name: str, content: bytes) -> bytes:
        if name == SLIDE:
            raised = b'<a:r><a:t>10</a:t></a:r><a:r><a:rPr baseline="30000"/><a:t>6</a:t></a:r>'
            return content.replace(b"<a:r><a:t>About T</a:t></a:r>", raised)
        if name == "ppt/slides/_rels/slide1.xml.rels":
            link = b'<Relationship Id="c1" Type="http://x/comments" Target="../comments/c1.xml"/>'
            return content.replace(b"</Relationships>", link + b"</Relationships>")
        if name == "ppt/_rels/presentation.xml.rels":
            link = b'<Relationship Id="a1" Type="http://x/commentAuthors" Target="authors.xml"/>'
            return content.replace(b"</Relationships>", link + b"</Relationships>")
        return content

    data = io.BytesIO(changed(saved(deck("T")), edit))
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr(
            "ppt/authors.xml", '<p:l xmlns:p="x"><p:cmAuthor id="0" name="Ann"/></p:l>'
        )
        comment = '<p:cm authorId="0"><p:text>Say more.</p:text></p:cm>'
        archive.writestr("ppt/comments/c1.xml", f'<p:l xmlns:p="x">{comment}</p:l>')
    assert read_deck(data.getvalue()).text == "T\n\n10^6\n\nAnn: Say more."


def test_a_placeholder_without_a_place_stands_where_its_layout_has_it() -> None:
    presentation = deck("T")
    box = presentation.slides[0].shapes.add_textbox(0, Inches(1.4), 9, 9)
    box.text_frame.text = "above the body"
    assert read_deck(saved(presentation)).text == "T\n\nabove the body\n\nAbout T"


def test_a_slide_show_is_read_and_a_missing_slide_reported() -> None:
    def edit(name: str, content: bytes) -> bytes | None:
        return None if name == SLIDE else content.replace(b"presentation.main", b"slideshow.main")

    data = changed(saved(deck("A", "B")), edit)
    failure, doc = PptxReader().read(io.BytesIO(data), "t.ppsx", limits=DEFAULT_LIMITS)
    assert failure == ReadFailure("t.ppsx:slide 1", "a broken slide")
    assert isinstance(doc, ParsedDocument)
    assert (doc.text, doc.pages) == ("B\n\nAbout B", (0, 0))


def test_too_many_slides_or_characters_are_refused() -> None:
    data = saved(deck("A", "B"))
    with pytest.raises(ReadError, match="too many slides: over 1"):
        read_deck(data, replace(DEFAULT_LIMITS, pages=1))
    with pytest.raises(ReadError, match="too long: over 5 characters"):
        read_deck(data, replace(DEFAULT_LIMITS, characters=5))


def test_broken_notes_of_a_slide_are_named_and_cost_only_themselves() -> None:
    presentation = deck("T")
    presentation.slides[0].notes_slide.notes_text_frame.text = "Say hello."
    data = changed(
        saved(presentation),
        lambda name, content: b"<p:notes" if "notesSlide1.xml" in name[-15:] else content,
    )
    document, remark = PptxReader().read(io.BytesIO(data), "a.pptx", limits=DEFAULT_LIMITS)
    assert isinstance(document, ParsedDocument)
    assert document.text == "T\n\nAbout T"
    assert remark == ReadFailure("a.pptx", "read as text only: 1 broken part left out")


def test_an_entity_in_a_slide_is_refused() -> None:
    def edit(name: str, content: bytes) -> bytes:
        start = b"<!DOCTYPE p [<!ENTITY e 'x'>]><p:sld "
        return content.replace(b"<p:sld ", start, 1) if name == SLIDE else content

    with pytest.raises(ReadError, match="declares entities"):
        read_deck(changed(saved(deck("A")), edit))


def zipped(entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return packed.getvalue()


def open_bytes(data: bytes, limits: ReadLimits) -> Archive:
    return open_archive(io.BytesIO(data), limits)


@pytest.mark.slow
def test_an_archive_is_refused_by_its_declared_sizes() -> None:
    limits = replace(DEFAULT_LIMITS, unpacked_bytes=1000, document_bytes=5000)
    with pytest.raises(ReadError, match="over 1,000 bytes when unpacked"):
        open_bytes(zipped({"a": bytes(1001)}), limits)
    with pytest.raises(ReadError, match="too large: over 5,000 bytes"):
        open_bytes(zipped({"a": bytes(5000)}, zipfile.ZIP_STORED), limits)
    with pytest.raises(ReadError, match="too many parts"):
        open_bytes(zipped({str(at): b"" for at in range(20_001)}, 0), DEFAULT_LIMITS)


def test_what_is_unpacked_is_counted_whatever_was_declared() -> None:
    archive = open_bytes(zipped({"a": bytes(700)}), replace(DEFAULT_LIMITS, unpacked_bytes=1000))
    assert archive.read("A") == bytes(700)
    with pytest.raises(ReadError, match="over 1,000 bytes when unpacked"):
        archive.read("a")


def test_lists_of_a_real_file_are_numbered() -> None:
    document = docx.Document()
    for text in ("Loosen the bolts.", "Lift the cover."):
        document.add_paragraph(text, "List Number")
    document.add_paragraph("A point.", "List Bullet")
    text = read_word(saved(document)).text
    assert text == "1. Loosen the bolts.\n2. Lift the cover.\nA point."


def test_headers_and_footers_come_last_and_once() -> None:
    document = docx.Document()
    document.add_paragraph("The body.")
    first, second = document.sections[0], document.add_section()
    second.header.is_linked_to_previous = False
    for section in (first, second):
        section.header.paragraphs[0].text = "Harbour board, draft of May"
    first.footer.paragraphs[0].text = "Page 1 of 12"
    second.footer.is_linked_to_previous = False
    second.footer.paragraphs[0].text = "Not for release"
    parsed = read_word(saved(document))
    assert parsed.text == "The body.\n\nHarbour board, draft of May\n\nNot for release"


def test_the_main_part_may_have_another_name() -> None:
    document = docx.Document()
    document.add_paragraph("Written in a browser.")

    def rename(name: str, content: bytes) -> bytes:
        return content.replace(b"word/document.xml", b"word/document2.xml")

    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(document))) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            renamed = name.replace("word/document.xml", "word/document2.xml")
            renamed = renamed.replace("document.xml.rels", "document2.xml.rels")
            new.writestr(renamed, rename(name, old.read(name)))
    (parsed,) = ArchiveReader().read(io.BytesIO(packed.getvalue()), "a.docx", limits=DEFAULT_LIMITS)
    assert isinstance(parsed, ParsedDocument)
    assert (parsed.text, parsed.file_type) == ("Written in a browser.", "docx")
