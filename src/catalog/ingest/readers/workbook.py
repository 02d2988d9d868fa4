"""Workbooks (Excel, OpenDocument): a line for each row, cells with the names of their columns.

A sheet has no tables, only cells: rows that follow one another without a blank one are a block, and
blank columns part a block whose sides begin or end in different rows.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.documents import Heading, MetadataValue, ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.places import PlacesBuilder, format_count
from catalog.core.text import clean, storable
from catalog.ingest.readers.archive import local_name, named, text_of
from catalog.ingest.readers.base import (
    JoinedText,
    ReadFailure,
    ReadLimits,
    cap_failures,
    file_type,
    one_line,
)  # fmt: skip
from catalog.ingest.readers.metadata import normalise, take_title
from catalog.ingest.readers.office import Package, drawn_lines
from catalog.ingest.readers.opendocument import read_opendocument_properties
from catalog.ingest.readers.tables import LONGEST_REPEATED, names_columns

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

_Row = tuple[int, dict[int, str]]
"""The number of a row, from 1, and its texts by column, from 0."""
_NAMED_SIMPLY = re.compile(r"[\w.]+")
_LONGEST_NAME = 80
"""Characters of a column's name: every row repeats it."""
_LOOKED_AT = 50
"""Rows from which the names of the columns are told."""
_LARGEST_AREA, _SPARSE = 2_500_000, 50
"""Cells that a sheet may span, and how many times those that it has: the library allocates all."""
_MOST_REPEATED = 200_000
"""Cells of a sheet that repeat others; merged cells overlap in some broken files."""
_TOO_FAR = "not read: its cells are too far apart; delete the one that is astray"
_CELL = re.compile(rb"r=\"([A-Za-z]{1,20})(\d{1,20})\"[^<>/]*+>")
_NO_VALUE = re.compile(  # a formula, as saved by programs that do not calculate
    rb"<((?:\w{1,20}:)?+)c((?:\s(?!t=)[^<>\s]++)*+)(?:\st=\"\w*+\")?+((?:\s[^<>\s]++)*+)>\s*+"
    rb"<\1f\b[^<>]*+>([^<]++)</\1f>\s*+(?:<\1v\s*+/>|<\1v>\s*+</\1v>)?+\s*+</\1c>"
)
_AS_TEXT = rb'<\1c\2\3 t="str"><\1v>=\4</\1v></\1c>'
_INDENTED = re.compile(rb"(<(?:\w{1,20}:)?+v>)\s*+([^<\s]++)\s*+(?=</)")
_UNTYPED = re.compile(
    rb"(<(?:\w{1,20}:)?+table-cell\b(?:(?!value-type=)[^<>])*+)>(?=\s*+<(?:\w{1,20}:)?+p\b)"
)
_OPEN_PIECE = re.compile(rb"<(?:\w{1,20}:)?+(?:covered-)?+(table(?:-row|-cell)?+)(\s[^<>]*+)?+>")
_REPEATED = re.compile(rb":number-(?:rows|columns)-repeated=\"0*+(\d{1,7})\"")


class WorkbookReader:
    """Read the sheets that a person sees, each with its comments and text boxes at its end.

    Numbers are bare, such as 0.25. Formulas have the values that were saved with them, else they
    are shown themselves. Rows after the first ``text_bytes`` characters are left out, and named.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file, after failures for sheets that are not read.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        import python_calamine as calamine

        is_archive = handle.read(2) == b"PK"
        handle.seek(0)
        package = _Workbook(handle, limits) if is_archive else None
        handle = (package.mended() if package else None) or handle
        handle.seek(0)
        joined, left_out = JoinedText(limits, "row"), []
        try:
            book = calamine.CalamineWorkbook.from_filelike(handle)
        except calamine.CalamineError as error:
            is_locked = isinstance(error, calamine.PasswordError)
            reason = f"a broken workbook: {one_line(error)}"
            raise ReadError("protected by a password" if is_locked else reason) from error
        for sheet in book.sheets_metadata:
            reason = ""
            if sheet.typ != calamine.SheetTypeEnum.WorkSheet:
                reason = "a sheet without cells"
            elif sheet.visible != calamine.SheetVisibleEnum.Visible:
                reason = "a hidden sheet is not read"
            elif package and sheet.name in package.sparse:
                reason = _TOO_FAR
            else:
                try:
                    rows = _read_rows(book.get_sheet_by_name(sheet.name))
                    notes = package.notes(sheet.name) if package else ()
                    name = one_line(clean(sheet.name)) or "-"
                    reason = _add_sheet(joined, name, rows, notes, limits.text_bytes)
                except calamine.CalamineError as error:
                    reason = f"a broken sheet: {one_line(error)}"
            if reason:
                left_out.append(ReadFailure(f"{path} › {sheet.name}", reason))
        lost = [one.reason for one in left_out if one.reason.startswith(("a broken", "not read"))]
        if lost and not joined.following:
            raise ReadError(lost[0])
        yield from cap_failures(left_out)
        metadata = package.metadata() if package else {}
        title = take_title(metadata) or PurePosixPath(path).stem
        yield joined.document(path, title=title, file_type=file_type(path), metadata=metadata)
        yield from package.left_out(path, "chart") if package else ()


class _Workbook(Package):
    """The archive of a workbook, and what the library does not read of it.

    ``sparse`` has the sheets with few cells far apart.
    """

    def __init__(self, handle: BinaryIO, limits: ReadLimits) -> None:
        super().__init__(handle, limits)
        self.sparse: set[str] = set()
        self._mended: dict[str, bytes] = {}
        self._sheets: dict[str, str] = {}
        if "content.xml" in self.archive:
            xml = self.archive.read("content.xml")
            mended = _UNTYPED.sub(rb'\1 office:value-type="string">', xml)
            _check_repeats(mended)
            self._mended |= {"content.xml": mended} if mended != xml else {}
        for sheet in named(self.root(self.main), "sheet") if ".xml" in self.main else ():
            name, part = sheet.get("name", ""), self.linked(self.main, sheet)
            self._sheets[name] = part
            xml = self.archive.read(part) if part else b""
            places = [(_column(letters), int(row)) for letters, row in _CELL.findall(xml)]
            spans = [max(numbers) - min(numbers) + 1 for numbers in zip(*places, strict=True)]
            if places and spans[0] * spans[1] > max(_LARGEST_AREA, _SPARSE * len(places)):
                self.sparse.add(name)
            mended = _INDENTED.sub(rb"\1\2", _NO_VALUE.sub(_AS_TEXT, xml))
            self._mended |= {part: mended} if mended != xml else {}

    def metadata(self) -> dict[str, MetadataValue]:
        """Return title, author, dates and so on of either kind of workbook."""
        if "content.xml" in self.archive:
            return normalise(read_opendocument_properties(self.archive))
        return super().metadata()

    def mended(self) -> BinaryIO | None:
        """Return a copy in which the library finds all cells; ``None`` if it finds them anyway."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as copy:
            for name in self.archive.names if self._mended else ():
                if name.casefold().endswith((".xml", ".rels", "mimetype")):
                    copy.writestr(name, self._mended.get(name) or self.archive.read(name))
        return packed if self._mended else None

    def notes(self, name: str) -> Iterator[tuple[int, int, str]]:
        """Yield row, column and text of the comments and text boxes of a sheet."""
        sheet = self._sheets.get(name, "-")
        authors: dict[str, str] = {}
        for element in self.elements(sheet, "comments", "author", "comment"):
            text, author = text_of(element), authors.get(element.get("authorId", ""), "")
            if local_name(element) == "author":
                authors[str(len(authors))] = text
            if author.startswith("tc="):  # a thread, after words on old versions of Excel
                author, text = "", text.partition("Comment: ")[2]
            said = filter(None, (author, text.removeprefix(f"{author}:").strip()))
            for letters, row in _CELL.findall(f'r="{element.get("ref", "")}">'.encode()):
                yield int(row), _column(letters), ": ".join(said)
        for part in self.related(sheet, "drawing"):
            self.links(part)
            for anchor in self.root(part):
                corner = [text_of(one)[:7] for one in named(anchor, "col", "row")[:2]]
                is_placed = list(map(str.isdecimal, corner)) == [True, True]
                column, row = map(int, corner if is_placed else "00")
                yield from ((row + 1, column, line) for line in drawn_lines(anchor))


def _check_repeats(xml: bytes) -> None:
    """Refuse an OpenDocument workbook whose repeated cells fill much more than the file holds."""
    top = rows = column = width = area = filled = cells = 0
    for name, attributes in _OPEN_PIECE.findall(xml):
        repeated = _REPEATED.search(attributes)
        count = int(repeated[1]) if repeated else 1
        if name == b"table":
            top = rows = width = 0
        elif name == b"table-row":
            top, rows, column = top + rows, count, 0
        else:
            column += count
            if b"value-type=" in attributes:
                cells, filled, width = cells + 1, filled + count * rows, max(width, column)
                area = max(area, width * (top + rows))
    if filled > max(_MOST_REPEATED, _SPARSE * cells) or area > max(_LARGEST_AREA, _SPARSE * cells):
        raise ReadError(_TOO_FAR)


def _read_rows(sheet: CalamineSheet) -> Iterator[_Row]:
    """Yield the rows with text, with short texts of merged cells in all their rows and columns."""
    first, (last_row, last_column) = (sheet.start or (0, 0))[1], sheet.end or (0, 0)
    merged, spare = sorted(sheet.merged_cell_ranges or (), reverse=True), _MOST_REPEATED
    active: list[tuple[int, int, int, str]] = []
    for number, values in enumerate(sheet.iter_rows()):
        filled = ((at, show(value)) for at, value in enumerate(values, first) if value != "")
        cells = {at: text for at, text in filled if text}
        active = [one for one in active if one[0] >= number]
        while merged and merged[-1][0][0] <= number:
            (top, left), (bottom, right) = merged.pop()
            text, bottom, right = (
                cells.get(left, ""),
                min(bottom, last_row),
                min(right, last_column),
            )
            size = (bottom - top + 1) * (right - left + 1)
            if top == number and 0 < len(text) <= LONGEST_REPEATED and size <= spare:
                spare -= size
                active.append((bottom, left, right, text))
        for _, left, right, text in active:
            cells.setdefault(left, text)
            for column in range(left + 1, right + 1):
                cells.setdefault(column, _Spanned(text))
        if cells:
            yield number + 1, dict(sorted(cells.items())) if active else cells


class _Spanned(str):
    """The text of a merged cell, repeated in the columns after its first."""


def show(value: object) -> str:
    """Return a value as a person sees it: 12.5, 2024-03-05, 2024-03-05 09:30, 7:45, TRUE.

    Numbers have up to 15 digits, as in Excel. Seconds are shown unless they are 0.
    """
    match value:
        case str():
            return " ".join(storable(value.replace("\0", "")).split())
        case bool():
            return str(value).upper()
        case float():
            shown = f"{value or 0.0:.15g}"
            is_plain = "e" not in shown or not 1e-7 < abs(value) < 1e21
            return shown if is_plain else f"{Decimal(shown):f}"
        case datetime():
            is_day = value.time() == time()
            return str(value.date()) if is_day else f"{value.date()} {_clock(value.time())}"
        case time():
            return _clock(value).removeprefix("0")
        case timedelta():
            rest = abs(value)
            minutes, seconds = divmod(rest.seconds, 60)
            clock = _clock(time(0, minutes % 60, seconds, rest.microseconds))[2:]
            return f"{'-' * (value < timedelta())}{rest.days * 24 + minutes // 60}{clock}"
    return str(value)


def _clock(value: time) -> str:
    """Return ``07:45``, ``07:45:09`` or ``07:45:09.25``."""
    if value.microsecond:
        return value.isoformat().rstrip("0")
    return value.isoformat("seconds" if value.second else "minutes")


def _add_sheet(
    joined: JoinedText,
    name: str,
    sheet_rows: Iterable[_Row],
    notes: Iterable[tuple[int, int, str]],
    limit: int,
) -> str:
    """Add the text of a sheet and its notes; return which rows were left out, if any."""
    quoted = name if _NAMED_SIMPLY.fullmatch(name) else "'" + name.replace("'", "''") + "'"
    names: dict[tuple[int, int], dict[int, str]] = {}
    left_out: list[int] = []
    begin = joined.following

    def add(lines: Iterable[tuple[int, str]], left: int, right: int) -> None:
        """Add a block with a line for each row; over the first one stands the name."""
        places, kept, size = PlacesBuilder("row"), list[str](), 0
        area = f"{quoted}!{_letters(left)}:{_letters(right)}"
        is_first = joined.following == begin
        for number, line in lines:
            for text in [name, line] if is_first and not kept else [line]:
                if left_out or joined.following + size + len(text) > limit:
                    left_out.append(number)
                    break
                places.add(size, number, None, area)
                size += len(text) + 1
                kept.append(text)
        top = len(name) * is_first
        headings = [Heading(0, top, 1, name)] if is_first else []
        joined.add("\n".join(kept), headings, [(top, size)], places=places.places())

    # Rows that follow one another without a blank row differ equally from their place.
    for _, block in groupby(enumerate(sheet_rows), lambda one: one[1][0] - one[0]):
        for rows, columns in _split_columns([row for _, row in block]):
            add(_read_table(rows, columns, names), columns[0], columns[-1])
    for row, column, text in notes:
        add([(row, text)], column, column)
    if not left_out:
        return ""
    told = format_count("row", min(left_out), max(left_out))
    return f"{told} left out: over {limit:,} characters; save them as another file"


def _split_columns(block: Sequence[_Row]) -> Iterator[tuple[list[_Row], list[int]]]:
    """Yield the tables of a block from left to right: their rows, and their columns with text."""
    extents: dict[int, tuple[int, int]] = {}
    for number, cells in block:
        for column in cells:
            top, bottom = extents.get(column, (number, number))
            if len(cells) == 1:  # a title or a remark: not a row of the table
                top, bottom = max(top, block[-1][0]), min(bottom, block[0][0])
            extents[column] = min(top, number), max(bottom, number)
    tables: list[tuple[tuple[int, int], list[int]]] = []
    for _, run in groupby(enumerate(sorted(extents)), lambda one: one[1] - one[0]):
        group = [column for _, column in run]
        extent = min(extents[at][0] for at in group), max(extents[at][1] for at in group)
        if tables and tables[-1][0] == extent:
            tables[-1][1].extend(group)
        else:
            tables.append((extent, group))
    table_of = {column: at for at, (_, columns) in enumerate(tables) for column in columns}
    rows: list[list[_Row]] = [[] for _ in tables]
    for number, cells in block:
        for at, some in groupby(cells.items(), lambda cell: table_of[cell[0]]):
            rows[at].append((number, dict(some)))
    yield from zip(rows, (columns for _, columns in tables), strict=True)


def _read_table(
    rows: Sequence[_Row], columns: Sequence[int], known: dict[tuple[int, int], dict[int, str]]
) -> Iterator[tuple[int, str]]:
    """Yield number and text of each row of a table in these columns.

    ``known`` has the names of columns of the sheet so far: a table without may have those above it.
    """
    begin, sides = 0, (columns[0], columns[-1])
    while begin < len(rows) and len(columns) > 1 and len(_own(rows[begin])) == 1:
        begin += 1
    found, body = _find_names(rows[begin : begin + _LOOKED_AT + 1], columns)
    names = known[sides] = found or known.get(sides, {})
    for at, row in enumerate(rows):
        cells = _own(row)
        if names and at >= begin + body and [column for column, _ in cells] != [columns[0]]:
            told = (f"{names[one]}: {text}" if names.get(one) else text for one, text in cells)
            yield row[0], "; ".join(told)
        else:
            yield row[0], " | ".join(text for _, text in cells)


def _own(row: _Row) -> list[tuple[int, str]]:
    """Return column and text of the cells, a merged one once."""
    return [(at, text) for at, text in row[1].items() if not isinstance(text, _Spanned)]


def _find_names(rows: Sequence[_Row], columns: Sequence[int]) -> tuple[dict[int, str], int]:
    """Return the names of the columns, none if no row has them, and how many rows have them."""
    table = [[cells.get(at, "") for at in columns] for _, cells in rows]
    if not names_columns(table[:_LOOKED_AT]):
        return {}, 0
    names, count = table[0], 1
    if any(isinstance(text, _Spanned) for text in names) and names_columns(table[1:]):
        pairs = zip(names, table[1], strict=True)
        names = [over if over == own else f"{over} {own}".strip() for over, own in pairs]
        count = 2
    return {at: name[:_LONGEST_NAME] for at, name in zip(columns, names, strict=True)}, count


def _column(letters: bytes) -> int:
    """Return the number of a column, from 0: ``AB`` is 27."""
    return reduce(lambda number, letter: 26 * number + letter - 64, letters.upper(), 0) - 1


def _letters(column: int) -> str:
    """Return the letters of a column: ``AB`` for 27."""
    before, rest = divmod(column, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + rest)
