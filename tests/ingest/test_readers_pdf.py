"""PDF: reading order, paragraphs, running titles, headings, and files that cannot be read."""

import io
from collections.abc import Callable, Iterable

import pytest
from pypdf import PdfReader as PypdfReader
from pypdf import PdfWriter
from pypdf.generic import NameObject, TextStringObject
from reportlab.pdfgen.canvas import Canvas

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.ingest.readers.pdf.reader import PdfReader
from tables import read_cases, table

WIDTH, HEIGHT = 600, 800

BODY = read_cases(__file__)["body"]


def drawn(*pages: Callable[[Canvas], object]) -> bytes:
    """A PDF with a page for each function, 600 by 800 points, in Times 10 by default."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=(WIDTH, HEIGHT), invariant=1)
    canvas.setAuthor("")
    canvas.setSubject("")
    canvas.setTitle("untitled")
    for page in pages:
        canvas.setFont("Times-Roman", 10)
        page(canvas)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def lines(
    texts: Iterable[str], *, x: float = 60, top: float = 600, step: float = 12
) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        for number, text in enumerate(texts):
            canvas.drawString(x, top - step * number, text)

    return draw


def heading(text: str, y: float, *, size: float = 16, font: str = "Times-Roman"):
    def draw(canvas: Canvas) -> None:
        canvas.setFont(font, size)
        canvas.drawString(60, y, text)
        canvas.setFont("Times-Roman", 10)

    return draw


def read_all(data: bytes, *, path: str = "a.pdf", limits: ReadLimits = DEFAULT_LIMITS):
    return list(PdfReader().read(io.BytesIO(data), path, limits=limits))


def read(data: bytes, *, path: str = "a.pdf", limits: ReadLimits = DEFAULT_LIMITS):
    (document,) = read_all(data, path=path, limits=limits)
    assert isinstance(document, ParsedDocument)
    return document


def rewritten(data: bytes, change: Callable[[PdfWriter], object]) -> bytes:
    writer = PdfWriter(clone_from=PypdfReader(io.BytesIO(data)))
    change(writer)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def runs(*parts: tuple[str, float, float], x: float = 60, y: float = 600):
    """Draw texts one after the other, each in its own size and moved by so much."""

    def draw(canvas: Canvas) -> None:
        text = canvas.beginText(x, y)
        for part, size, rise in parts:
            text.setFont("Times-Roman", size)
            text.setRise(rise)
            text.textOut(part)
        canvas.drawText(text)

    return draw


@table("parts, expected")
def test_raised_and_lowered_letters_are_marked(
    parts: list[tuple[str, float, float]], expected: str
) -> None:
    assert read(drawn(runs(*parts))).text == expected


COURT = read_cases(__file__)["court"]


@pytest.mark.parametrize("step", [1, 5])
@pytest.mark.parametrize("space", [12, 24])
def test_numbers_of_lines_are_left_out_and_paragraphs_stay_whole(step: int, space: float) -> None:
    text = COURT * 4

    def draw(canvas: Canvas) -> None:
        for at, line in enumerate(text, start=1):
            if at % step == 0:
                canvas.drawRightString(52, 700 - space * at, str(at))
            canvas.drawString(60, 700 - space * at, line)

    assert read(drawn(draw)).text == "\n".join(text)


def test_headings_are_the_bookmarks_found_on_their_pages() -> None:
    def first(canvas: Canvas) -> None:
        canvas.bookmarkHorizontal("one", 0, 600)
        canvas.addOutlineEntry("Methods", "one", level=0)
        canvas.bookmarkHorizontal("two", 0, 500)
        canvas.addOutlineEntry("Data and Splits", "two", level=1)
        canvas.bookmarkHorizontal("none", 0, 400)
        canvas.addOutlineEntry("Nowhere to be found", "none", level=1)
        lines(["Methods", "and other things"], top=700)(canvas)
        lines(["1 Methods"], top=600)(canvas)
        lines(BODY, top=570)(canvas)
        lines(["1.1. Data and", "splits"], top=500)(canvas)

    def second(canvas: Canvas) -> None:
        canvas.bookmarkHorizontal("three", 0, 700)
        canvas.addOutlineEntry("Results", "three", level=0)
        lines(["Results"], top=700)(canvas)
        lines(BODY)(canvas)

    document = read(drawn(first, second))
    assert [(heading.level, heading.title) for heading in document.headings] == [
        (1, "Methods"),
        (2, "Data and Splits"),
        (1, "Results"),
    ]
    assert [document.text[heading.start : heading.end] for heading in document.headings] == [
        "1 Methods",
        "1.1. Data and\nsplits",
        "Results",
    ]


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_turned_pages_read_as_they_are_seen(turn: int) -> None:
    """The page is turned and its text drawn so that it stands upright on the turned page."""

    def draw(canvas: Canvas) -> None:
        canvas.translate(300, 400)
        canvas.rotate(turn)
        canvas.translate(-300, -400)
        lines(BODY)(canvas)

    data = rewritten(drawn(draw), lambda writer: writer.pages[0].rotate(turn))
    assert read(data).text == "\n".join(BODY)


def test_text_at_an_angle_stands_where_it_is_drawn_and_is_no_title() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.saveState()
        canvas.translate(80, 520)
        canvas.rotate(45)
        canvas.setFont("Times-Roman", 40)
        canvas.drawString(0, 0, "DRAFT COPY")
        canvas.restoreState()
        lines(BODY)(canvas)

    document = read(drawn(draw))
    assert document.text == "\n".join(["DRAFT COPY", "", *BODY])
    assert (document.title, document.headings) == ("a", ())


def test_filled_fields_and_comments_follow_the_text_of_their_page() -> None:
    def form(canvas: Canvas) -> None:
        lines(["Application for a mooring"])(canvas)
        fields = canvas.acroForm
        fields.textfield(
            name="owner", tooltip="Name of the owner", value="Grace Hopper", x=60, y=500
        )
        fields.textfield(name="not filled", value="", x=60, y=460)
        fields.checkbox(name="winter", tooltip="Winter berth", checked=True, x=60, y=420)
        fields.checkbox(name="summer", checked=False, x=60, y=400)
        fields.choice(name="pier", value="North", options=["North", "South"], x=60, y=360)
        canvas.textAnnotation("The berth is\ntoo short.", Rect=[100, 100, 120, 120])
        canvas.freeTextAnnotation("Approved.", DA="/Helv 10 Tf", Rect=[200, 100, 400, 120])
        canvas.linkURL("https://example.org/", (60, 590, 100, 610))

    def sign(writer: PdfWriter) -> None:
        (note,) = (
            entry.get_object()
            for entry in writer.pages[0]["/Annots"]
            if entry.get_object()["/Subtype"] == "/Text"
        )
        note[NameObject("/T")] = TextStringObject("Ada")

    document = read(rewritten(drawn(form, lines(["Second page."])), sign))
    first = document.text[: document.pages[1]].split("\n\n")
    assert [text for text in first if text] == [
        "Application for a mooring", "Name of the owner: Grace Hopper", "Winter berth: Yes",
        "pier: North", "Ada: The berth is too short.", "Approved.",
    ]  # fmt: skip


def attach(data: bytes, **files: bytes) -> bytes:
    def change(writer: PdfWriter) -> None:
        writer.add_metadata({"/Author": "Ann"})
        for name, content in files.items():
            writer.add_attachment(name.replace("_", "."), content)

    return rewritten(data, change)


def test_attached_files_are_documents() -> None:
    inner = attach(drawn(lines(["An inner page."])), note_txt=b"An inner note.")
    data = attach(
        drawn(lines(BODY)), terms_txt=b"Payment at Bosham.", plan_pdf=inner, x_bin=b"\0\1"
    )
    items = read_all(data)
    documents = {item.path: item for item in items if isinstance(item, ParsedDocument)}
    assert {path: one.text for path, one in documents.items()} == {
        "a.pdf": "\n".join(BODY),
        "a.pdf › plan.pdf": "An inner page.",
        "a.pdf › plan.pdf › note.txt": "An inner note.",
        "a.pdf › terms.txt": "Payment at Bosham.",
    }
    assert {one.metadata["author"] for one in documents.values()} == {"Ann"}
    assert documents["a.pdf › terms.txt"].source_type == "attachment"
    assert [item.path for item in items if isinstance(item, ReadFailure)] == ["a.pdf › x.bin"]


def test_files_of_a_pdf_without_text_are_read() -> None:
    data = attach(drawn(lambda canvas: canvas.rect(9, 9, 99, 99, fill=1)), terms_txt=b"Bosham.")
    reading = PdfReader().read(io.BytesIO(data), "a.pdf", limits=DEFAULT_LIMITS)
    assert next(reading).path == "a.pdf › terms.txt"
    with pytest.raises(EmptyDocumentError):
        next(reading)
