"""Workbooks: which cells become text, with which names and places, and what is left out."""

import io
from datetime import date, datetime

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import ArchiveReader
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.library.indexing import Indexer
from fakes import open_library
from growth import assert_linear
from workbooks import MAIN, Rows, sheet_xml, workbook


def read(
    data: bytes, path: str = "a/budget.xlsx", limits: ReadLimits = DEFAULT_LIMITS
) -> tuple[ParsedDocument, list[ReadFailure]]:
    *failures, document = ArchiveReader().read(io.BytesIO(data), path, limits=limits)
    assert isinstance(document, ParsedDocument)
    return document, [one for one in failures if isinstance(one, ReadFailure)]


COSTS: Rows = [
    ["Item", "Ordered", "Amount", "Paid"],
    ["Oak planks", date(2024, 3, 5), 12.5, True],
    ["Hemp rope", datetime(2024, 3, 6, 9, 30), 40.0, False],
    ["Total", None, "=SUM(C2:C3)→52.5"],
]


def test_merged_cells_that_overlap_and_columns_far_apart_cost_little():
    def read_both(size: int) -> None:
        merged = [f"A{at % 3 + 1}:GR{2000 - at}" for at in range(size)]
        rows: Rows = [["x"] * 200] * 3 + [[]] * 1996 + [["x"] * 200]
        stairs = [[None] * (2 * at) + [at] for at in range(size)]
        document, _ = read(workbook({"S": sheet_xml(rows, merged), "T": stairs}))
        assert document.text.endswith(str(size - 1))

    assert_linear(read_both, 600)


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
