"""PDF: reading order, paragraphs, running titles, headings, and files that cannot be read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from pypdf import PdfReader as PypdfReader
from pypdf import PdfWriter
from pypdf.generic import (
    BooleanObject,
    NameObject,
    NumberObject,
    PdfObject,
    TextStringObject,
)
from reportlab.pdfgen.canvas import Canvas

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.ingest.readers.metadata import settle_level
from catalog.ingest.readers.pdf.reader import PdfReader, iso_date

WIDTH, HEIGHT = 600, 800

BODY = (
    "Ranking passages well needs more",
    "than one signal, and the cheapest",
    "of them is the order of the words",
    "in the question as it was asked.",
)


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


def both(*parts: Callable[[Canvas], object]) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        for part in parts:
            part(canvas)

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


def test_pages_begin_where_their_offsets_say() -> None:
    document = read(
        drawn(lines(["First page."]), lambda canvas: None, lines(["Third page."]), lines([]))
    )
    # "First page." is 11 characters, the blank line between pages 2.
    assert document.text == "First page.\n\nThird page."
    assert document.pages == (0, 13, 13, 24)
    assert document.file_type == "pdf"
    assert document.body_start == 0


def test_columns_are_read_in_the_order_in_which_they_are_drawn() -> None:
    left = [f"Left {number} keeps the reader in the column" for number in range(8)]
    right = [f"Right {number} keeps the reader in the column" for number in range(8)]
    data = drawn(both(lines(left, x=60), lines(right, x=330)))
    assert read(data).text.replace("\n\n", "\n").split("\n") == [*left, *right]


def test_a_date_is_on_its_own_page() -> None:
    dates = [f"2024-03-0{day}" for day in range(1, 7)]
    document = read(drawn(*[both(lines(["The log of"]), lines([day], top=400)) for day in dates]))
    pages = zip(document.pages, [*document.pages[1:], len(document.text)], strict=True)
    assert [document.text[start:end].split()[-1] for start, end in pages] == dates


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


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("and 10", 10, 0), ("6", 7, 4), (" stitches", 10, 0)], "and 10^6 stitches"),
        ([("some H", 10, 0), ("2", 7, -2), ("O, and more", 10, 0)], "some H_2O, and more"),
        ([("of catechu", 10, 0), ("18", 6, 4), (". Tanning", 10, 0)], "of catechu [18]. Tanning"),
        ([("a length of 10", 10, 0), ("\u22123", 7, 4), (" m", 10, 0)], "a length of 10^−3 m"),
        ([("T", 30, 0), ("HE ROPE is long and old", 10, 0)], "THE ROPE is long and old"),
        ([("S", 10, 0), ("MALL ", 7, 0), ("and large letters", 10, 0)], "SMALL and large letters"),
    ],
)
def test_raised_and_lowered_letters_are_marked(
    parts: list[tuple[str, float, float]], expected: str
) -> None:
    assert read(drawn(runs(*parts))).text == expected


def test_letters_that_are_spaced_out_are_words() -> None:
    title = "  ".join(" ".join(word) for word in ("ANNOTATED", "CHARTS"))
    page = both(heading(title, 700), lines(BODY), heading("A n c h o r a g e s", 500, size=10))
    text = read(drawn(page)).text
    assert text == "\n".join(["ANNOTATED CHARTS", "", *BODY, "", "Anchorages"])
    row = drawn(lambda canvas: [canvas.drawString(60 + 40 * x, 600, "ABCDEF"[x]) for x in range(6)])
    assert read(row).text == "A B C D E F"


COURT = (
    "Plaintiff leased the barge to the",
    "defendant for the winter of the",
    "year. The defendant, a man of",
    "Cramond, returned the barge with no",
    "windlass and refused to pay the sum.",
)


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


def test_numbers_of_rows_and_of_chapters_stay() -> None:
    rows = [f"{at}" for at in range(1, 11)]
    names = ["Introduction", "Methods", "The results of it", "Discussion", "Thanks"] * 2
    text = read(drawn(both(lines(rows, x=45), lines(names, x=60)))).text
    assert set(rows) <= set(text.split())
    assert "1984 was cold" in read(drawn(lines(["1984 was cold", *BODY]))).text


def test_tables_are_read_row_by_row() -> None:
    def draw(canvas: Canvas) -> None:
        for row in range(6):
            for column, x in enumerate((60, 200, 340)):
                canvas.drawString(x, 600 - 14 * row, f"r{row}c{column}")

    assert read(drawn(draw)).text.split("\n") == [f"r{row}c0 r{row}c1 r{row}c2" for row in range(6)]


def test_paragraphs_are_told_by_a_gap_and_by_an_indent() -> None:
    def draw(canvas: Canvas) -> None:
        lines(BODY)(canvas)
        canvas.drawString(75, 552, "An indented line begins another")
        lines(["paragraph without a gap above it."], top=540)(canvas)
        lines(["This one stands apart."], top=510)(canvas)

    assert read(drawn(draw)).text.split("\n\n") == [
        "\n".join(BODY),
        "An indented line begins another\nparagraph without a gap above it.",
        "This one stands apart.",
    ]


def test_words_broken_at_the_end_of_a_line_are_put_together() -> None:
    text = read(
        drawn(
            lines(
                [
                    "The algo-",
                    "rithm is state-of-the-",
                    "art and well-known, as we use a well-",
                    "known corpus of the years 1990-",
                    "1995 and see A-",
                    "B.",
                ]
            )
        )
    ).text
    assert text.split("\n") == [
        "The algorithm",
        "is state-of-the-art",
        "and well-known, as we use a well-known",
        "corpus of the years 1990-",
        "1995 and see A-",
        "B.",
    ]


def test_words_of_which_one_object_holds_the_end_and_the_start_are_parted() -> None:
    # As Ghostscript writes it: Helvetica's N, e and w are 7.22, 5.56 and 7.22 wide at 10 points.
    drawing = b"BT /F1 10 Tf 60 600 Td (Ne) Tj 2.5 Tc 12.78 0 Td (we) Tj "
    drawing += b"0 Tc 15.28 0 Td (mpty) Tj ET"
    data = raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font"
            b"<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
            b"<</Length %d>>stream\n%s\nendstream" % (len(drawing), drawing),
        ]
    )
    assert read(data).text == "New empty"


def test_well_known_halves_keep_their_hyphen() -> None:
    text = read(drawn(lines(["The well-", "known skipper knows infor-", "mation."]))).text
    assert text.split() == ["The", "well-known", "skipper", "knows", "information."]


def test_two_halves_that_are_words_keep_their_hyphen() -> None:
    text = read(
        drawn(lines(["Of big and endian, big-", "endian wins; in-", "formation is information."]))
    ).text
    assert text == "Of big and endian, big-endian\nwins; information\nis information."


def test_ligatures_and_odd_spaces_become_plain_letters(ligature_pdf: bytes) -> None:
    assert read(ligature_pdf).text == "efficient flow and a space"


@pytest.fixture
def ligature_pdf() -> bytes:
    """Letters a to d of the font stand for ﬃ, ﬂ, no-break space and soft hyphen."""
    unicode_map = b"""/CIDInit /ProcSet findresource begin 12 dict begin begincmap
1 begincodespacerange <00> <ff> endcodespacerange
5 beginbfchar <41> <FB03> <42> <FB02> <43> <00A0> <44> <00AD> <45> <0007> endbfchar
endcmap end end"""
    content = b"BT /F1 10 Tf 60 600 Td (eAciDEent Bow and aCspace) Tj ET"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(unicode_map), unicode_map),
    ]
    return raw_pdf(objects)


def raw_pdf(objects: list[bytes]) -> bytes:
    """A file of these objects, numbered from 1, the first being the catalog."""
    out = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(out)


def test_running_titles_stay_once_and_page_numbers_are_left_out() -> None:
    def page(number: int) -> Callable[[Canvas], None]:
        return both(
            lines([f"Annual report, part {number}"], top=770),
            lines([f"Only page {number} says word{number * 'x'} here."]),
            lines([f"- {number} -"], x=290, top=30),
        )

    document = read(drawn(*[page(number) for number in range(1, 6)]))
    assert document.text.split("\n\n") == [
        "Annual report, part 1",
        *(f"Only page {number} says word{number * 'x'} here." for number in range(1, 6)),
    ]


@pytest.mark.parametrize("size", [10, 20])
@pytest.mark.parametrize(
    "heads",
    [
        ["Invoice 70411", "Invoice 70448", "Invoice 70485", "Invoice 70522", "Invoice 70559"],
        ["Week 1", "Week 2", "Week 3", "Week 4", "Week 5"],
        ["Minutes of 3 March", "Minutes of 10 March", "Minutes of 17 March", "Minutes of 24 March"],
        ["1984", "1917", "2666", "300", "8"],
        ["§ 12", "§ 14", "§ 20", "§ 21", "§ 33"],
    ],
)
def test_headings_that_differ_in_a_number_stay(heads: list[str], size: int) -> None:
    def page(head: str) -> Callable[[Canvas], None]:
        return both(heading(head, 750, size=size), lines(BODY))

    document = read(drawn(*[page(head) for head in heads]))
    assert [text.split("\n")[0] for text in document.text.split("\n\n")[::2]] == heads


def test_page_numbers_count_from_anywhere_and_are_set_apart() -> None:
    def page(number: int) -> Callable[[Canvas], None]:
        return both(
            lines(["Results"], top=770),
            lines([str(number)], x=520, top=770),
            lines([f"Page {number - 1132} of 5"], top=30),
            lines(BODY),
        )

    document = read(drawn(*[page(number) for number in range(1133, 1138)]))
    assert document.text.split("\n\n") == ["Results 1133", *["\n".join(BODY)] * 5]


def test_a_title_on_every_slide_stays_once() -> None:
    def slide(text: str) -> Callable[[Canvas], None]:
        return both(heading("Migration of the cluster", 760, size=20), lines([text]))

    texts = ["Freeze all writes.", "Copy by night.", "Compare.", "Thaw the writes."]
    document = read(drawn(*map(slide, texts)))
    assert document.text.split("\n\n") == ["Migration of the cluster", *texts]
    assert document.title == "Migration of the cluster"


def test_what_repeats_on_three_pages_only_stays() -> None:
    pages = [both(lines(["Annual report"], top=770), lines([f"Body {n}."])) for n in range(3)]
    assert read(drawn(*pages)).text.count("Annual report") == 3


def test_what_repeats_lower_than_the_top_tenth_stays() -> None:
    pages = [both(lines(["Annual report"], top=700), lines([f"Body {n}."])) for n in range(5)]
    assert read(drawn(*pages)).text.count("Annual report") == 5


def test_pages_with_nothing_but_a_repeated_line_keep_it() -> None:
    pages = [lines([f"Sheet {number}"], top=770) for number in range(5)]
    assert read(drawn(*pages)).text == "Sheet 0\n\nSheet 1\n\nSheet 2\n\nSheet 3\n\nSheet 4"


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


def test_without_bookmarks_large_letters_and_bold_numbers_make_headings() -> None:
    page = both(
        heading("A Study of Ranking", 740, size=20),
        heading("Introduction", 700, size=14),
        lines(BODY, top=670),
        heading("1.1 Earlier Work", 600, size=10, font="Times-Bold"),
        lines(BODY * 3, top=580),
        heading("This is large but a sentence.", 400, size=14),
        heading("Conclusion", 360, size=14),
        lines(BODY * 3, top=330),
    )
    document = read(drawn(page))
    assert document.title == "A Study of Ranking"
    assert [(heading.level, heading.title) for heading in document.headings] == [
        (1, "A Study of Ranking"),
        (2, "Introduction"),
        (3, "1.1 Earlier Work"),
        (2, "Conclusion"),
    ]
    for line in document.headings:
        assert document.text[line.start : line.end] == line.title


def test_bookmarks_in_a_circle_are_walked_once() -> None:
    data = raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R/Outlines 5 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font"
            b"<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
            b"<</Length 85>>stream\nBT /F1 10 Tf 60 600 Td (Alpha) Tj 0 -30 Td (Beta) Tj "
            b"0 -30 Td (and some text.) Tj ET   \nendstream",
            b"<</First 6 0 R/Last 7 0 R>>",
            b"<</Title(Alpha)/Parent 5 0 R/Next 7 0 R/First 6 0 R/Dest[3 0 R/XYZ 0 610 0]>>",
            b"<</Title(Beta)/Parent 5 0 R/Next 6 0 R/Dest[3 0 R/XYZ 0 580 0]>>",
        ]
    )
    assert [heading.title for heading in read(data).headings] == ["Alpha", "Beta"]


def test_the_properties_become_metadata() -> None:
    def change(writer: PdfWriter) -> None:
        writer.add_metadata(
            {
                "/Title": "Ranking for Everyone",
                "/Author": "Ann Author",
                "/Keywords": "ranking; search, passages",
                "/CreationDate": "D:20240131093005+01'00'",
                "/ModDate": "D:20240201",
            }
        )

    document = read(rewritten(drawn(lines(BODY)), change))
    assert document.title == "Ranking for Everyone"
    assert document.metadata == {
        "author": "Ann Author",
        "tags": ("ranking", "search", "passages"),
        "created": "2024-01-31T09:30:05+01:00",
        "modified": "2024-02-01",
    }


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("Confidentiality", "secret"),
        ("CONFIDENTIALITY", "secret"),
        ("ConfidentialityLevel", "unreadable"),
        ("Doc-Confidentiality", "unreadable"),
    ],
)
def test_a_stated_confidentiality_is_handed_on(name: str, level: str) -> None:
    data = rewritten(drawn(lines(BODY)), lambda writer: writer.add_metadata({f"/{name}": "secret"}))
    assert settle_level(read(data).metadata)["confidentiality"] == level


@pytest.mark.parametrize("value", [TextStringObject(""), NumberObject(5), BooleanObject(True)])
def test_a_confidentiality_that_is_no_text_is_unreadable(value: PdfObject) -> None:
    def change(writer: PdfWriter) -> None:
        assert writer._info is not None
        writer._info[NameObject("/Confidentiality")] = value

    data = rewritten(drawn(lines(BODY)), change)
    assert read(data).metadata["confidentiality"] == "unreadable"


def test_what_a_program_writes_for_nothing_is_no_author() -> None:
    nothing = {"/Author": "(anonymous)", "/Subject": "(unspecified)"}
    data = rewritten(drawn(lines(BODY)), lambda writer: writer.add_metadata(nothing))
    assert {"author", "subject"}.isdisjoint(read(data).metadata)


@pytest.mark.parametrize(
    "title",
    ["untitled", "Microsoft Word - plan.doc", "final_v2.pdf", "Slide 1", "...", "(anonymous)"],
)
def test_titles_that_say_nothing_give_way_to_the_stem(title: str) -> None:
    data = rewritten(drawn(lines(BODY)), lambda writer: writer.add_metadata({"/Title": title}))
    assert read(data, path="folder/plan.pdf").title == "plan"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("D:20240131093005Z", "2024-01-31T09:30:05+00:00"),
        ("D:20240131093005-05'30'", "2024-01-31T09:30:05-05:30"),
        ("D:202401310930", "2024-01-31T09:30:00"),
        ("20240131", "2024-01-31"),
        ("D:2024", "2024-01-01"),
        ("D:20241331", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates_become_iso_8601(value: str, expected: str | None) -> None:
    assert iso_date(value) == expected


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


def encrypted(user: str) -> bytes:
    return rewritten(
        drawn(lines(BODY)),
        lambda writer: writer.encrypt(user, "owner", algorithm="RC4-128"),
    )


def test_a_password_is_named() -> None:
    with pytest.raises(ReadError, match=r"^protected by a password$"):
        read(encrypted("secret"))


def test_a_password_of_the_owner_alone_does_not_hinder_reading() -> None:
    assert read(encrypted("")).text == "\n".join(BODY)


def test_a_file_cut_off_is_read_as_far_as_possible_or_refused() -> None:
    data = drawn(*[lines(BODY) for _ in range(5)])
    with pytest.raises(ReadError, match=r"^broken PDF: "):
        read(data[:200])
    for part in (3, 2):
        cut = data[: len(data) * part // 4]
        try:
            items = read_all(cut)
        except ReadError:
            continue
        assert all(isinstance(item, ParsedDocument | ReadFailure) for item in items)


def test_a_broken_table_of_contents_of_the_file_is_mended() -> None:
    data = drawn(lines(BODY))
    at = data.rindex(b"startxref")
    table = data.rindex(b"xref", 0, at)
    broken = data[:table] + b"xref\n0 3\ngarbage garbage\n" + data[data.rindex(b"trailer") :]
    assert read(broken).text == "\n".join(BODY)


def test_garbage_is_a_broken_pdf() -> None:
    with pytest.raises(ReadError, match=r"^broken PDF: "):
        read(b"%PDF-1.7\n" + bytes(range(256)) * 20)


def test_a_page_that_cannot_be_read_is_named_and_the_other_pages_stay() -> None:
    data = raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R 9 0 R 3 0 R]/Count 3>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font"
            b"<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
            b"<</Length 44>>stream\nBT /F1 10 Tf 60 600 Td (Some text here.) Tj ET\nendstream",
        ]
    )
    document, failure = read_all(data)
    assert isinstance(document, ParsedDocument)
    assert document.text == "Some text here.\n\nSome text here."
    assert document.pages == (0, 17, 17)
    assert failure == ReadFailure("a.pdf#page=2", "broken page")


def test_pictures_without_text_are_empty() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.rect(10, 10, 500, 500, fill=1)

    with pytest.raises(EmptyDocumentError, match="images"):
        read(drawn(draw, draw))


def test_a_partly_scanned_file_is_read_as_far_as_there_is_text() -> None:
    scan = drawn(lambda canvas: canvas.rect(10, 10, 500, 500, fill=1), lines(["Text."]))
    document, _ = read_all(scan)
    assert isinstance(document, ParsedDocument)
    assert document.text == "Text."
    assert document.pages == (0, 0)


def test_limits_are_named() -> None:
    data = drawn(*[lines(BODY) for _ in range(3)])
    with pytest.raises(ReadError, match=r"^too many pages: 3, over 2$"):
        read(data, limits=replace(DEFAULT_LIMITS, pages=2))
    with pytest.raises(ReadError, match="200"):
        read(data, limits=replace(DEFAULT_LIMITS, characters=200))
    with pytest.raises(ReadError, match=r"^too large: over 1,000 bytes$"):
        read(data, limits=replace(DEFAULT_LIMITS, document_bytes=1000))
    assert read(data, limits=replace(DEFAULT_LIMITS, pages=3)).pages


def test_reading_twice_gives_the_same() -> None:
    page = both(heading("A Study of Ranking", 740, size=20), lines(BODY), lines(BODY, x=330))
    data = drawn(page, page)
    assert read(data) == read(data)


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
        "Application for a mooring",
        "Name of the owner: Grace Hopper",
        "Winter berth: Yes",
        "pier: North",
        "Ada: The berth is too short.",
        "Approved.",
    ]


def test_pages_of_pictures_are_named_and_empty_ones_are_not() -> None:
    def picture(canvas: Canvas) -> None:
        canvas.rect(60, 60, 300, 300, fill=1)

    text = lines(["A letter."])
    data = drawn(text, picture, picture, lambda canvas: None, text, picture)
    document, failure = read_all(data)
    assert isinstance(document, ParsedDocument)
    assert failure == ReadFailure("a.pdf", "no text on pages 2-3, 6, only pictures; run OCR first")
    assert read_all(drawn(text, picture))[1].reason.startswith("no text on page 2, ")


def garbled_pdf() -> bytes:
    """Two lines whose letters stand for U+FFFD."""
    unicode_map = b"""/CIDInit /ProcSet findresource begin 12 dict begin begincmap
1 begincodespacerange <00> <ff> endcodespacerange
1 beginbfrange <41> <5a> <FFFD> endbfrange endcmap end end"""
    content = b"BT /F1 10 Tf 60 600 Td (AAAA AAA AAAAA) Tj 0 -12 Td (AAAAAAAAA AAA) Tj ET"
    return raw_pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
            b"/Resources<</Font<</F1 5 0 R>>>>>>",
            b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
            b"<</Length %d>>stream\n%s\nendstream" % (len(unicode_map), unicode_map),
        ]
    )


def test_a_text_layer_without_letters_is_named() -> None:
    with pytest.raises(EmptyDocumentError, match="unreadable text layer; run OCR first"):
        read(garbled_pdf())
    writer = PdfWriter()
    for data in (drawn(lines(BODY)), garbled_pdf()):
        writer.append(PypdfReader(io.BytesIO(data)))
    buffer = io.BytesIO()
    writer.write(buffer)
    document, failure = read_all(buffer.getvalue())
    assert isinstance(document, ParsedDocument)
    assert document.text == "\n".join(BODY)
    assert failure == ReadFailure("a.pdf", "the text layer of page 2 has no letters; run OCR first")


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


def test_an_attached_file_has_the_level_of_its_pdf_or_none_that_anybody_may_see() -> None:
    data = attach(
        drawn(lines(BODY)), a_md=b"Text.", b_md=b"---\nconfidentiality: public\n---\nText.\n"
    )
    data = rewritten(data, lambda writer: writer.add_metadata({"/Confidentiality": "secret"}))
    levels = {one.path: one.metadata["confidentiality"] for one in read_all(data)}
    assert levels == {
        "a.pdf": "secret", "a.pdf › a.md": "secret", "a.pdf › b.md": "unreadable",
    }  # fmt: skip


def test_files_of_a_pdf_without_text_are_read() -> None:
    data = attach(drawn(lambda canvas: canvas.rect(9, 9, 99, 99, fill=1)), terms_txt=b"Bosham.")
    reading = PdfReader().read(io.BytesIO(data), "a.pdf", limits=DEFAULT_LIMITS)
    assert next(reading).path == "a.pdf › terms.txt"
    with pytest.raises(EmptyDocumentError):
        next(reading)
