"""Tables: the names of their columns go with every passage, and the passages stay exact."""

import io

import docx
import pytest
from reportlab.pdfgen.canvas import Canvas

from catalog.core.documents import ChunkSpan, ParsedDocument, find_columns
from catalog.core.tokens import CharTokenCounter
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.registry import load_reader, sniff
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library

MARKDOWN = (
    "# Depots\n\nAll of them.\n\n| Depot | Manager \\| deputy | Opened |\n|---|:-:|--:|\n"
    + "".join(f"| Depot {at} | Keeper{at} | {1900 + at} |\n" for at in range(90))
    + "\n# Afterwards\n\n"
    + "Nothing more is said here about any of them. " * 40
)
CSV = "\ufeffName;Region;Units\r\n" + "".join(
    f'Widget{at};"EU\r\n{at % 7}";{3 * at}\r\n' for at in range(150)
)
HTML = (
    "<html><body>\n<h1>Kings</h1>\n<table>\n<thead><tr><th rowspan=2>Reign</th>"
    "<th colspan=2>Name</th></tr>\n<tr><th>Latin</th><th>Norse</th></tr></thead>\n"
    + "".join(
        f"<tr><td rowspan=2>{970 + at}</td><td>Haraldus{at}</td><td>Haraldr{at}</td></tr>\n"
        f"<tr><td>Sveno{at}</td><td>Sveinn{at}</td></tr>\n"
        for at in range(90)
    )
    + "</table></body></html>"
)


def word() -> bytes:
    document = docx.Document()
    table = document.add_table(rows=120, cols=3)
    cells = [cell for row in table.rows for cell in row.cells]
    for at, cell in enumerate(cells):
        row, column = divmod(at, 3)
        cell.text = ("Depot", "Manager", "Opened")[column] if row == 0 else f"{at} of Keeper"
    packed = io.BytesIO()
    document.save(packed)
    return packed.getvalue()


def pdf() -> bytes:
    packed = io.BytesIO()
    canvas = Canvas(packed)
    for page in range(3):
        canvas.drawString(72, 780, "Depots of the county, as they stand today, with all of them.")
        for row in range(40):
            cells = f"Depot {page} {row}", f"Keeper {row}", str(1900 + row)
            if page == row == 0:
                cells = "Depot", "Manager", "Opened"
            for column, cell in enumerate(cells):
                canvas.drawString(72 + 130 * column, 740 - 15 * row, cell)
        canvas.showPage()
    canvas.save()
    return packed.getvalue()


def read(path: str, data: bytes) -> ParsedDocument:
    name, _ = sniff(path, data[:8192], data[-2048:])
    items = load_reader(name).read(io.BytesIO(data), path, limits=DEFAULT_LIMITS)
    (document,) = (item for item in items if isinstance(item, ParsedDocument))
    return document


def passages(document: ParsedDocument) -> list[ChunkSpan]:
    chunker = DocumentChunker(CharTokenCounter(), chunk_size=300, chunk_overlap=40, min_size=50)
    return list(chunker.cut(document).spans)


@pytest.mark.parametrize(
    ("path", "data", "columns"),
    [
        ("depots.md", MARKDOWN.encode(), "| Depot | Manager \\| deputy | Opened |"),
        ("widgets.csv", CSV.encode(), "| Name | Region | Units |"),
        ("widgets.tsv", CSV[1:].replace(";", "\t").encode("utf-16"), "| Name | Region | Units |"),
        ("kings.html", HTML.encode(), "| Reign | Name | Latin | Norse |"),
        ("depots.docx", word(), "| Depot | Manager | Opened |"),
        ("depots.pdf", pdf(), "| Depot | Manager | Opened |"),
    ],
)
def test_every_passage_of_a_long_table_has_the_names_of_its_columns(path, data, columns):
    document = read(path, data)
    within = [
        span
        for span in passages(document)
        if any(table.start < span.start < table.end for table in document.tables)
    ]
    assert len(within) > 1
    assert {find_columns(span.context) for span in within} == {(columns,)}
    assert all(columns not in document.text[span.start : span.end] for span in within)


def test_text_after_a_table_has_no_columns():
    document = read("depots.md", MARKDOWN.encode())
    (table,) = document.tables
    after = [span for span in passages(document) if span.start > table.end]
    assert after
    assert not any(span.context for span in after)


def test_rows_of_several_lines_are_cited_by_all_of_them():
    document = read("widgets.csv", CSV.encode())
    lines = document.text.splitlines()
    for span in passages(document):
        first, last = span.locator.line_start, span.locator.line_end
        assert first is not None
        assert document.text[span.start : span.end].splitlines() == lines[first - 1 : last]
        assert document.text[span.start : span.end].count('"') % 2 == 0


def test_a_search_shows_the_names_of_the_columns_of_what_it_finds(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "widgets.csv").write_bytes(CSV.encode())
    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(tmp_path / "docs", "d").failed == ()
        with LocalEngine(library) as engine:
            asked = {"query": "Widget140 units", "dataset": "d", "mode": "lexical"}
            best, *_ = engine.ask("search", asked)["results"]
    assert best["sections"] == ["| Name | Region | Units |"]
    assert best["heading_path"] == []
    assert "| Name" not in best["text"]
    lines = CSV.splitlines()[best["locator"]["line_start"] - 1 : best["locator"]["line_end"]]
    assert best["text"].splitlines() == lines
