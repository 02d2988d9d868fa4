"""Workbooks: which cells become text, with which names and places, and what is left out."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from datetime import date, datetime, time, timedelta

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.archive import ArchiveReader
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.ingest.readers.workbook import show
from catalog.library.indexing import Indexer
from fakes import open_library
from growth import assert_linear
from workbooks import LINKS, MAIN, Rows, sheet_xml, workbook


def read(
    data: bytes, path: str = "a/budget.xlsx", limits: ReadLimits = DEFAULT_LIMITS
) -> tuple[ParsedDocument, list[ReadFailure]]:
    *failures, document = ArchiveReader().read(io.BytesIO(data), path, limits=limits)
    assert isinstance(document, ParsedDocument)
    return document, [one for one in failures if isinstance(one, ReadFailure)]


def lines_and_cells(document: ParsedDocument) -> list[tuple[str, str | None]]:
    found, at = [], 0
    for line in document.text.split("\n"):
        if line:
            found.append((line, document.places.cells_of(at, at + len(line))))
        at += len(line) + 1
    return found


COSTS: Rows = [
    ["Item", "Ordered", "Amount", "Paid"],
    ["Oak planks", date(2024, 3, 5), 12.5, True],
    ["Hemp rope", datetime(2024, 3, 6, 9, 30), 40.0, False],
    ["Total", None, "=SUM(C2:C3)→52.5"],
]


def test_each_row_has_the_names_of_its_columns_and_its_cells_as_place():
    document, failures = read(workbook({"Costs": COSTS}))
    assert (document.title, document.file_type, failures) == ("budget", "xlsx", [])
    assert [heading.title for heading in document.headings] == ["Costs"]
    assert lines_and_cells(document) == [
        ("Costs", "Costs!A1:D1"),
        ("Item | Ordered | Amount | Paid", "Costs!A1:D1"),
        ("Item: Oak planks; Ordered: 2024-03-05; Amount: 12.5; Paid: TRUE", "Costs!A2:D2"),
        ("Item: Hemp rope; Ordered: 2024-03-06 09:30; Amount: 40; Paid: FALSE", "Costs!A3:D3"),
        ("Item: Total; Amount: 52.5", "Costs!A4:D4"),
    ]


def test_a_title_above_and_remarks_beside_a_table_are_not_parts_of_it():
    rows: Rows = [
        ["Budget of the museum"],
        ["Item", "Supplier", "Amount", None, "Note"],
        ["Oak planks", "Tidewater", 12.5, None, "Prices are fixed until June."],
        ["Hemp rope", "Ropewalk", 40],
        [],
        ["Brass lamp", "Lumen", 7],
    ]
    document, _ = read(workbook({"Q1 Costs": rows}))
    assert lines_and_cells(document)[1:] == [
        ("Budget of the museum", "'Q1 Costs'!A1:C1"),
        ("Item | Supplier | Amount", "'Q1 Costs'!A2:C2"),
        ("Item: Oak planks; Supplier: Tidewater; Amount: 12.5", "'Q1 Costs'!A3:C3"),
        ("Item: Hemp rope; Supplier: Ropewalk; Amount: 40", "'Q1 Costs'!A4:C4"),
        ("Note", "'Q1 Costs'!E2"),
        ("Prices are fixed until June.", "'Q1 Costs'!E3"),
        ("Item: Brass lamp; Supplier: Lumen; Amount: 7", "'Q1 Costs'!A6:C6"),
    ]


def test_merged_cells_name_all_columns_and_rows_under_them():
    rows: Rows = [
        ["Reign", "Name", None],
        [None, "Latin", "Norse"],
        [970, "Haraldus", "Haraldr"],
        [None, "Sveno", "Sveinn"],
    ]
    document, _ = read(workbook({"Kings": sheet_xml(rows, ["A1:A2", "B1:C1", "A3:A4"])}))
    assert [line for line, _ in lines_and_cells(document)][1:] == [
        "Reign | Name",
        "Reign | Latin | Norse",
        "Reign: 970; Name Latin: Haraldus; Name Norse: Haraldr",
        "Reign: 970; Name Latin: Sveno; Name Norse: Sveinn",
    ]


def test_a_long_text_of_a_merged_cell_is_there_once():
    long = "The roof was mended in spring. " * 4
    rows: Rows = [["Note", "Item", "Price"], [long, "Oak", 1], [None, "Elm", 2]]
    document, _ = read(workbook({"S": sheet_xml(rows, ["A2:A3"])}))
    assert document.text.count("mended") == 4
    assert document.text.endswith("Item: Elm; Price: 2")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([["Name:", "Anna Vale"], ["Town:", "Harwich"]], "Name: | Anna Vale\nTown: | Harwich"),
        ([["Name", "Anna Vale"], ["Town", "Harwich"]], "Name | Anna Vale\nTown | Harwich"),
        ([["Oak", 1], ["Elm", 2]], "Oak | 1\nElm | 2"),
        ([["Oak", "Size"], ["Elm", 2]], "Oak | Size\nOak: Elm; Size: 2"),
        ([[None, 2023, 2024], ["Rent", 10, 12]], "2023 | 2024\nRent; 2023: 10; 2024: 12"),
        ([[1, 2, 3], [4, 5, 6]], "1 | 2 | 3\n4 | 5 | 6"),
        ([["a\nb  c"]], "a b c"),
        ([[1e-7, 0.1 + 0.2, 12345678901.0]], "1e-07 | 0.3 | 12345678901"),
    ],
)
def test_names_are_taken_from_a_row_of_words_over_values(rows, text):
    document, _ = read(workbook({"S": rows}))
    assert document.text.split("\n", 1)[1] == text


def test_numbers_are_bare_and_a_formula_without_a_value_is_shown():
    rows = sheet_xml([["Item", "Share", "Sum"], ["Oak", 0.25, "=SUM(B2:B9)→"], ["Elm", 7, 1]])
    rows = rows.replace('<c r="C2">', '<c r="C2" t="str">')
    rows = rows.replace('<c r="C3"><v>1</v>', '<c r="C3" t="n"><v>\n 1\n</v>')
    document, _ = read(workbook({"S": rows}))
    assert document.text.endswith(
        "Item: Oak; Share: 0.25; Sum: =SUM(B2:B9)\nItem: Elm; Share: 7; Sum: 1"
    )


def test_raised_and_lowered_letters_within_a_cell_are_shown():
    run = '<r><rPr><vertAlign val="{}"/><sz val="9"/></rPr><t>{}</t></r>'
    between = '<r><t xml:space="preserve"> of H</t></r>'
    runs = f"{run.format('superscript', 6)}{between}{run.format('subscript', 2)}"
    cell = f'<c r="A1" t="inlineStr"><is><r><t>10</t></r>{runs}</is></c>'
    rows = sheet_xml([["x"]]).replace('<c r="A1" t="inlineStr"><is><t>x</t></is></c>', cell)
    assert read(workbook({"S": rows}))[0].text == "S\n10^6 of H_2"


def test_comments_and_text_boxes_stand_after_the_rows_of_their_sheet():
    links = "".join(
        f'<Relationship Id="{kind}" Type="{LINKS}/{kind}" Target="{kind}.xml"/>'
        for kind in ("comments", "drawing")
    )
    comments = (
        f'<comments xmlns="{MAIN}"><authors><author>Ann</author><author>tc=9</author></authors>'
        '<commentList><comment ref="C2" authorId="0"><text><t>Ann: Paid twice.</t></text></comment>'
        '<comment ref="A4" authorId="1"><text><t>[Threaded comment] Not here. Comment: Check.</t>'
        "</text></comment></commentList></comments>"
    )
    drawing = (
        '<x:wsDr xmlns:x="x" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">'
        "<x:anchor><x:from><x:col>1</x:col><x:row>8</x:row></x:from><x:sp><a:p><a:r><a:t>Without "
        "the annex</a:t></a:r></a:p></x:sp></x:anchor></x:wsDr>"
    )
    parts = {
        "xl___rels__s1_dot_xml_dot_rels": f"<Relationships>{links}</Relationships>",
        "xl__comments_dot_xml": comments,
        "xl__drawing_dot_xml": drawing,
    }
    document, _ = read(workbook({"Costs": COSTS}, **parts))
    assert lines_and_cells(document)[-3:] == [
        ("Ann: Paid twice.", "Costs!C2"),
        ("Check.", "Costs!A4"),
        ("Without the annex", "Costs!B9"),
    ]


def open_sheet(*rows: str) -> bytes:
    """An OpenDocument workbook with these rows."""
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    content = (
        f"<office:document-content{spaces}><office:body><office:spreadsheet>"
        f'<table:table table:name="Catch">{"".join(rows)}</table:table></office:spreadsheet>'
        "</office:body></office:document-content>"
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr("content.xml", content)
    return packed.getvalue()


def open_row(*texts: str, cell: str = "", row: str = "") -> str:
    cells = "".join(
        f"<table:table-cell {cell}><text:p>{text}</text:p></table:table-cell>" for text in texts
    )
    return f"<table:table-row {row}>{cells}</table:table-row>"


def test_cells_of_an_opendocument_sheet_need_no_type():
    typed = open_row("Port", "Landed", "Buyer", cell='office:value-type="string"')
    document, _ = read(open_sheet(typed, open_row("Portrush", "150 kg", "Magilligan")), "a.ods")
    assert document.text.endswith("Port: Portrush; Landed: 150 kg; Buyer: Magilligan")


@pytest.mark.parametrize("count", [10, 1_000_000])
def test_repeated_cells_are_read_unless_they_fill_far_more_than_the_file(count):
    repeated = open_row(
        "word",
        cell='office:value-type="string" table:number-columns-repeated="20"',
        row=f'table:number-rows-repeated="{count}"',
    )
    if count == 10:
        assert read(open_sheet(repeated), "a.ods")[0].text.count("\n") == 10
    else:
        with pytest.raises(ReadError, match="too far apart"):
            read(open_sheet(repeated), "a.ods")


def test_an_opendocument_sheet_that_is_cut_short_is_refused():
    row = open_row("Portrush", cell='office:value-type="string"')
    with pytest.raises(ReadError, match="a broken workbook"):
        read(open_sheet(row + "<table:table-row>"), "a.ods")


def test_an_opendocument_sheet_with_a_stray_cell_far_away_is_named():
    gap = '<table:table-row table:number-rows-repeated="3000"><table:table-cell/></table:table-row>'
    typed = 'office:value-type="string"'
    far = open_row("", cell='table:number-columns-repeated="1000"') + open_row("far", cell=typed)
    far = far.replace("</table:table-row><table:table-row >", "").replace("<text:p></text:p>", "")
    with pytest.raises(ReadError, match="too far apart"):
        read(open_sheet(open_row("near", cell=typed), gap, far), "a.ods")


def test_merged_cells_that_overlap_and_columns_far_apart_cost_little():
    def read_both(size: int) -> None:
        merged = [f"A{at % 3 + 1}:GR{2000 - at}" for at in range(size)]
        rows: Rows = [["x"] * 200] * 3 + [[]] * 1996 + [["x"] * 200]
        stairs = [[None] * (2 * at) + [at] for at in range(size)]
        document, _ = read(workbook({"S": sheet_xml(rows, merged), "T": stairs}))
        assert document.text.endswith(str(size - 1))

    assert_linear(read_both, 600)


def test_hidden_and_empty_sheets_are_left_out_and_hidden_ones_named():
    data = workbook({"Costs": COSTS, "Lists": [["secret"]], "Empty": []}, hidden=["Lists"])
    document, failures = read(data)
    assert "secret" not in document.text
    assert failures == [ReadFailure("a/budget.xlsx › Lists", "a hidden sheet is not read")]
    with pytest.raises(EmptyDocumentError):
        read(workbook({"Empty": []}))


def test_rows_over_the_limit_are_left_out_and_named():
    rows = [["Number", "Word", "Half"], *([at, "word", at / 2] for at in range(1, 500))]
    data = workbook({"Data": rows, "More": [["later"]]})
    document, failures = read(data, limits=replace(DEFAULT_LIMITS, text_bytes=2000))
    last = int(document.text.rsplit("Number: ", 1)[1].split(";")[0]) + 1
    assert [one.path for one in failures] == ["a/budget.xlsx › Data"]
    assert f"rows {last + 1}-500 left out: over 2,000 characters" in failures[0].reason
    assert len(document.text) < 2100
    assert document.text.endswith("More\nlater")


def test_a_confidentiality_in_the_properties_counts():
    custom = (
        '<Properties xmlns:vt="v"><property name="confidentiality"><vt:lpwstr>secret</vt:lpwstr>'
        "</property></Properties>"
    )
    document, _ = read(workbook({"Costs": COSTS}, docProps__custom_dot_xml=custom))
    assert document.metadata["confidentiality"] == "secret"


def test_a_broken_workbook_is_refused():
    cells = '<row r="1"><c r="A1" t="n"><v>seven</v></c></row>'
    broken = f"<worksheet><sheetData>{cells}</sheetData></worksheet>"
    with pytest.raises(ReadError, match="broken sheet"):
        read(workbook({"Costs": broken}))
    document, failures = read(workbook({"Costs": COSTS, "Rest": broken}))
    assert "Oak planks" in document.text
    assert [one.path for one in failures] == ["a/budget.xlsx › Rest"]


@pytest.mark.slow
def test_a_bomb_and_a_sheet_of_a_million_rows_end_within_the_limits():
    with pytest.raises(ReadError, match="over 200 times its size"):
        read(workbook({"Costs": COSTS}, xl__media_dot_bin=b"\0" * 60_000_000))
    corners = (
        f'<row r="{at[1:]}"><c r="{at}"><v>{at[1:]}</v></c></row>' for at in ("A1", "B1048576")
    )
    xml = f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(corners)}</sheetData></worksheet>'
    document, failures = read(workbook({"Data": xml}))
    assert (document.text, failures) == ("Data\n1\n\n1048576", [])
    assert document.places.cells_of(0, len(document.text)) == "Data!A1:B1048576"


def test_a_sheet_with_a_stray_cell_far_away_is_named_and_the_others_are_read():
    corners = (
        f'<row r="{row}"><c r="{at}{row}"><v>1</v></c></row>'
        for at, row in (("A", 1), ("XFD", 1048576))
    )
    xml = f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(corners)}</sheetData></worksheet>'
    document, failures = read(workbook({"Stray": xml, "Costs": COSTS}))
    assert "Costs" in document.text
    assert [one.path for one in failures] == ["a/budget.xlsx › Stray"]
    assert "too far apart" in failures[0].reason
    with pytest.raises(ReadError, match="too far apart"):
        read(workbook({"Stray": xml}))


def test_a_sheet_with_an_impossible_cell_is_named_and_the_others_are_read():
    xml = (
        f'<worksheet xmlns="{MAIN}"><sheetData><row r="1"><c r="ZZZZZ99999999"><v>1</v></c>'
        '<c r="A1"><v>2</v></c></row></sheetData></worksheet>'
    )
    document, failures = read(workbook({"Odd": xml, "Costs": COSTS}))
    assert "Costs" in document.text
    assert ["too far apart" in one.reason for one in failures] == [True]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (99999999999.99, "99999999999.99"),
        (1234567890123.5, "1234567890123.5"),
        (47.123456789012, "47.123456789012"),
        (0.1 + 0.2, "0.3"),
        (-0.0, "0"),
        (5e17, "500000000000000000"),
        (timedelta(minutes=12, seconds=34), "0:12:34"),
        (timedelta(hours=2, minutes=5, seconds=9.25), "2:05:09.25"),
        (timedelta(hours=30, minutes=5), "30:05"),
        (time(7, 45), "7:45"),
        (datetime(2024, 3, 5, 9, 30), "2024-03-05 09:30"),
        (datetime(2024, 3, 5, 9, 30, 15), "2024-03-05 09:30:15"),
    ],
)
def test_no_digit_that_a_person_sees_is_rounded_away(value, shown):
    assert show(value) == shown


def test_a_hidden_sheet_is_named_in_later_runs_too(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "b.xlsx").write_bytes(workbook({"Costs": COSTS, "L": [["x"]]}, hidden=["L"]))
    with open_library(tmp_path) as library:
        Indexer(library).build(folder, "books")
        failures = Indexer(library).update("books").failed
        assert [(one.path, one.reason) for one in failures] == [
            ("b.xlsx", "a hidden sheet is not read (L)")
        ]
