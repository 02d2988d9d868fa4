"""Workbooks (Excel, OpenDocument): a line for each row, cells with the names of their columns.

Rows without a blank one between them are a block; blank columns part one with uneven sides.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO
from xml.parsers import expat

from catalog.core.documents import Heading, MetadataValue
from catalog.core.errors import ReadError
from catalog.core.places import PlacesBuilder, format_count
from catalog.core.text import clean, storable
from catalog.ingest.readers import base
from catalog.ingest.readers.archive import local_name, named, text_of
from catalog.ingest.readers.base import Items, JoinedText, ReadFailure, ReadLimits
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.metadata import normalise, take_title
from catalog.ingest.readers.office import Package, R, drawn_lines
from catalog.ingest.readers.opendocument import read_opendocument_properties
from catalog.ingest.readers.tables import COMPARED_ROWS, LONGEST_REPEATED, names_columns

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

_Row = tuple[int, dict[int, str]]  # number, from 1, and texts by column, from 0
# Numbers and texts of lines, and the first and last column to which they belong.
_Block = tuple[Iterable[tuple[int, str]], int, int]
_NAMED_SIMPLY = re.compile(r"[\w.]+")
_LONGEST_NAME = 80  # every row repeats it
# Cells that a sheet may span, or for each byte of its file: the library allocates all.
_LARGEST_AREA, _AREA_OF_BYTE = 2_500_000, 20
_MOST_REPEATED = 200_000  # merged cells overlap in some broken files
_TOO_FAR = "not read: its cells are too far apart; delete the one that is astray"
_CELL = re.compile(rb"r=\"([A-Za-z]{1,20})(\d{1,20})\"[^<>/]{0,200}+>")
_NO_VALUE = re.compile(  # a formula, as saved by programs that do not calculate
    rb"<((?:\w{1,20}:)?+)c((?:\s(?!t=)[^<>\s]++)*+)(?:\st=\"\w*+\")?+((?:\s[^<>\s]++)*+)>\s*+"
    rb"<\1f\b[^<>]*+>([^<]++)</\1f>\s*+(?:<\1v\s*+/>|<\1v>\s*+</\1v>)?+\s*+</\1c>"
)
_AS_TEXT = rb'<\1c\2\3 t="str"><\1v>=\4</\1v></\1c>'
_SCRIPT = re.compile(  # the text of a run of raised or lowered letters
    rb"(<(?:\w{1,20}:)?+vertAlign val=\"su(per|b)script\"[^<>]*+>"
    rb"(?:\s*+<(?!(?:\w{1,20}:)?+t\b)[^<>]*+>){0,20}+\s*+<[^<>]*+>)([^<]*+)"
)
_INDENTED = re.compile(rb"(<(?:\w{1,20}:)?+v>)\s*+([^<\s]++)\s*+(?=</)")
_UNTYPED = re.compile(
    rb"(<(?:\w{1,20}:)?+table-cell\b(?:(?!value-type=)[^<>])*+)>(?=\s*+<(?:\w{1,20}:)?+p\b)"
)
_OPEN_PIECE = re.compile(rb"<(?:\w{1,20}:)?+(?:covered-)?+table-(row|cell)(\s[^<>]*+)?+>")
_REPEATED = re.compile(rb":number-(?:rows|columns)-repeated=\"0*+(\d{1,7})\"")


class WorkbookReader:
    """Read the sheets that a person sees, each with its comments and text boxes at its end."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the one document of the file, after failures for sheets that are not read."""
        import python_calamine as calamine

        most = max(_LARGEST_AREA, _AREA_OF_BYTE * handle.seek(0, os.SEEK_END))
        handle.seek(0)
        package = _Workbook(handle, limits, most) if handle.read(2) == b"PK" else None
        handle = package.mended(handle) if package else handle
        handle.seek(0)
        joined, left_out = JoinedText(limits, "row"), []
        try:
            book = calamine.CalamineWorkbook.from_filelike(handle)
        except calamine.CalamineError as error:
            is_locked = isinstance(error, calamine.PasswordError)
            reason = f"a broken workbook: {base.one_line(error)}"
            raise ReadError("protected by a password" if is_locked else reason) from error
        for sheet in book.sheets_metadata:
            try:
                if sheet.typ != calamine.SheetTypeEnum.WorkSheet:
                    reason = "a sheet without cells"
                elif sheet.visible != calamine.SheetVisibleEnum.Visible:
                    reason = "a hidden sheet is not read"
                elif package and sheet.name in package.sparse:
                    reason = _TOO_FAR
                else:
                    cells = book.get_sheet_by_name(sheet.name)
                    is_near = cells.height * cells.width <= most
                    blocks = _read_blocks(cells, package.notes(sheet.name) if package else ())
                    reason = _add_sheet(joined, sheet.name, blocks) if is_near else _TOO_FAR
            except calamine.CalamineError as error:
                reason = f"a broken sheet: {base.one_line(error)}"
            if reason:
                left_out.append(ReadFailure(f"{path} › {sheet.name}", reason))
        lost = [one.reason for one in left_out if one.reason.startswith(("a broken", "not read"))]
        if lost and not joined.following:
            raise ReadError(lost[0])
        yield from base.cap_failures(left_out)
        metadata = package.metadata() if package else {}
        title = take_title(metadata) or PurePosixPath(path).stem
        yield joined.document(path, title=title, file_type=base.file_type(path), metadata=metadata)
        yield from package.left_out(path) if package else ()


class _Workbook(Package):
    """The archive of a workbook, and what the library does not read: ``sparse`` has such sheets."""

    def __init__(self, handle: BinaryIO, limits: ReadLimits, most: int) -> None:
        super().__init__(handle, limits)
        self.sparse: set[str] = set()
        self._mended: dict[str, bytes] = {}
        self._sheets: dict[str, str] = {}
        if "content.xml" in self.archive:
            xml = self.archive.read("content.xml")
            try:  # calamine never ends where a tag is left open
                expat.ParserCreate().Parse(xml, True)
            except (expat.ExpatError, LookupError) as error:  # also of its encoding
                raise ReadError(f"a broken workbook: {error}") from error
            mended = _UNTYPED.sub(rb'\1 office:value-type="string">', xml)
            if _count_repeats(mended) > max(_MOST_REPEATED, len(xml)):
                raise ReadError(_TOO_FAR)
            self._mended |= {"content.xml": mended} if mended != xml else {}
        for sheet in named(self.root(self.main), "sheet") if ".xml" in self.main else ():
            name, linked = sheet.get("name", ""), self.related(self.main, sheet.get(f"{R}id", ""))
            self._sheets[name] = part = next(iter(linked), "")
            xml = self.archive.read(part) if part else b""
            places = [(_column(letters), int(row)) for letters, row in _CELL.findall(xml)]
            spans = [max(numbers) - min(numbers) + 1 for numbers in zip(*places, strict=True)]
            if places and spans[0] * spans[1] > most:
                self.sparse.add(name)
            mended = _SCRIPT.sub(_mark, _INDENTED.sub(rb"\1\2", _NO_VALUE.sub(_AS_TEXT, xml)))
            self._mended |= {part: mended} if mended != xml else {}
        for part in self.related(self.main, "sharedStrings"):
            mended = _SCRIPT.sub(_mark, xml := self.archive.read(part))
            self._mended |= {part: mended} if mended != xml else {}

    def metadata(self) -> dict[str, MetadataValue]:
        """Return the properties of either kind of workbook."""
        if "content.xml" in self.archive:
            return normalise(read_opendocument_properties(self.archive, b"<none/>"))
        return super().metadata()

    def mended(self, handle: BinaryIO) -> BinaryIO:
        """Return a copy in which the library finds all cells, or the file if it finds them."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as copy:
            for name in self.archive.names if self._mended else ():
                if name.casefold().endswith((".xml", ".rels", "mimetype")):
                    copy.writestr(name, self._mended.get(name) or self.archive.read(name))
        return packed if self._mended else handle

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
            self.related(part)  # so that its pictures are named
        for anchor in (one for root in self.elements(sheet, "drawing", "wsDr") for one in root):
            corner = [text_of(one)[:7] for one in named(anchor, "col", "row")[:2]]
            is_placed = [*map(str.isdecimal, corner)] == [True, True]
            column, row = map(int, corner if is_placed else "00")
            yield from ((row + 1, column, line) for line in drawn_lines(anchor))


def _mark(run: re.Match[bytes]) -> bytes:
    return run[1] + (RAISED if run[2] == b"per" else LOWERED).encode() + run[3] + CLOSED.encode()


def _count_repeats(xml: bytes) -> int:
    """Return how many cells the repeated ones of an OpenDocument workbook fill."""
    rows = filled = 0
    for name, attributes in _OPEN_PIECE.findall(xml):
        count = int((_REPEATED.findall(attributes) or [1])[0])
        rows = count if name == b"row" else rows
        filled += count * rows * (name == b"cell" and b"value-type=" in attributes)
    return filled


def _read_rows(sheet: CalamineSheet) -> Iterator[_Row]:
    """Yield the rows with text, with short texts of merged cells in all their rows and columns."""
    first, (last_row, last_column) = (sheet.start or (0, 0))[1], sheet.end or (0, 0)
    merged, spare = sorted(sheet.merged_cell_ranges or ()), _MOST_REPEATED
    begun = {top: list(some) for top, some in groupby(merged, lambda one: one[0][0])}
    carried: dict[int, list[tuple[int, int, str]]] = {}
    for number, values in enumerate(sheet.iter_rows()):
        filled = ((at, show(value)) for at, value in enumerate(values, first) if value != "")
        cells = {at: text for at, text in filled if text}
        for (_, left), (bottom, right) in begun.get(number, ()):
            rows, last = range(number, min(bottom, last_row) + 1), min(right, last_column)
            text, size = cells.get(left, ""), len(rows) * (last - left + 1)
            if 0 < len(text) <= LONGEST_REPEATED and size <= spare:
                spare -= size
                for row in rows:
                    carried.setdefault(row, []).append((left, last, text))
        for left, last, text in carried.pop(number, ()):
            cells.setdefault(left, text)
            for column in range(left + 1, last + 1):
                cells.setdefault(column, _Spanned(text))
        if cells:
            yield number + 1, dict(sorted(cells.items())) if merged else cells


class _Spanned(str):
    """The text of a merged cell, repeated in the columns after its first."""


def show(value: object) -> str:
    """Return a value as a person sees it: 12.5, 2024-03-05, 2024-03-05 09:30, 7:45, TRUE."""
    match value:
        case str():
            return " ".join(write_scripts(storable(value.replace("\0", ""))).split())
        case bool():
            return str(value).upper()
        case float():
            shown = f"{value or 0.0:.15g}"  # as many digits as Excel has
            is_plain = "e" not in shown or not 1e-7 < abs(value) < 1e21
            return shown if is_plain else f"{Decimal(shown):f}"
        case datetime():
            return f"{value.date()} {_clock(value.time())}".removesuffix(" 00:00")
        case time():
            return _clock(value).removeprefix("0")
        case timedelta():
            hours, rest = divmod(abs(value), timedelta(hours=1))
            sign = "-" if value < timedelta() else ""
            return f"{sign}{hours}{_clock((datetime.min + rest).time())[2:]}"
    return str(value)


def _clock(value: time) -> str:
    if value.microsecond:
        return value.isoformat().rstrip("0")
    return value.isoformat("seconds" if value.second else "minutes")


def _read_blocks(sheet: CalamineSheet, notes: Iterable[tuple[int, int, str]]) -> Iterator[_Block]:
    """Yield the tables of a sheet, then its notes."""
    names: dict[tuple[int, int], dict[int, str]] = {}
    # Rows that follow one another without a blank row differ equally from their place.
    for _, block in groupby(enumerate(_read_rows(sheet)), lambda one: one[1][0] - one[0]):
        for rows, columns in _split_columns([row for _, row in block]):
            yield _read_table(rows, columns, names), columns[0], columns[-1]
    for row, column, text in notes:
        yield [(row, text)], column, column


def _add_sheet(joined: JoinedText, name: str, blocks: Iterable[_Block]) -> str:
    """Add the text of a sheet, with its name over it; return which rows were left out, if any."""
    name = base.one_line(clean(name)) or "-"
    quoted = name if _NAMED_SIMPLY.fullmatch(name) else "'" + name.replace("'", "''") + "'"
    left_out, begin, limit = list[int](), joined.following, joined.limits.text_bytes
    for lines, left, right in blocks:
        places, kept, size = PlacesBuilder("row"), list[str](), 0
        top = len(name) if joined.following == begin else 0
        for number, line in lines:
            text = f"{name}\n{line}" if top and not kept else line
            if left_out or joined.following + size + len(text) > limit:
                left_out.append(number)
                continue
            places.add(size, number, None, f"{quoted}!{_letters(left)}:{_letters(right)}")
            size += len(text) + 1
            kept.append(text)
        headings = [Heading(0, top, 1, name)] if top else []
        joined.add("\n".join(kept), headings, [(top, size)], places=places.places())
    told = format_count("row", min(left_out), max(left_out)) if left_out else ""
    return told and f"{told} left out: over {limit:,} characters; save them as another file"


def _split_columns(block: Sequence[_Row]) -> Iterator[tuple[list[_Row], list[int]]]:
    """Yield the tables of a block from left to right: their rows, and their columns with text."""
    extents: dict[int, tuple[int, int]] = {}
    for number, cells in block:
        for column in cells:
            top, bottom = extents.get(column, (number, number))
            if len(cells) == 1:  # a title or a remark: not a row of the table
                top, bottom = max(top, block[-1][0]), min(bottom, block[0][0])
            extents[column] = min(top, number), max(bottom, number)
    tables: list[tuple[tuple[int, int], list[int], list[_Row]]] = []
    table_of: dict[int, list[_Row]] = {}
    for _, run in groupby(enumerate(sorted(extents)), lambda one: one[1] - one[0]):
        group = [column for _, column in run]
        extent = min(extents[at][0] for at in group), max(extents[at][1] for at in group)
        if not tables or tables[-1][0] != extent:
            tables.append((extent, [], []))
        tables[-1][1].extend(group)
        table_of |= dict.fromkeys(group, tables[-1][2])
    for number, cells in block:
        for _, some in groupby(cells.items(), lambda cell: id(table_of[cell[0]])):
            part = dict(some)
            table_of[next(iter(part))].append((number, part))
    yield from ((rows, columns) for _, columns, rows in tables)


def _read_table(
    rows: Sequence[_Row], columns: Sequence[int], known: dict[tuple[int, int], dict[int, str]]
) -> Iterator[tuple[int, str]]:
    """Yield number and text of each row; ``known`` has the names of columns above a table."""
    body, sides = 0, (columns[0], columns[-1])
    shown = [[cell for cell in row[1].items() if type(cell[1]) is not _Spanned] for row in rows]
    while body < len(rows) and len(columns) > 1 and len(shown[body]) == 1:
        body += 1
    top = [[row[1].get(at, "") for at in columns] for row in rows[body : body + COMPARED_ROWS + 1]]
    if names_columns(top[:COMPARED_ROWS]):
        body, names = body + 1, top[0]
        if any(isinstance(text, _Spanned) for text in names) and names_columns(top[1:]):
            pairs = zip(names, top[1], strict=True)
            names = [over if over == own else f"{over} {own}".strip() for over, own in pairs]
            body += 1
        known[sides] = {at: name[:_LONGEST_NAME] for at, name in zip(columns, names, strict=True)}
    told = known.get(sides, {})
    for at, cells in enumerate(shown):
        glue = " | "
        if told and at >= body and [column for column, _ in cells] != [columns[0]]:
            cells = [(one, ": ".join(filter(None, (told.get(one), text)))) for one, text in cells]
            glue = "; "
        yield rows[at][0], glue.join(text for _, text in cells)


def _column(letters: bytes) -> int:
    return reduce(lambda number, letter: 26 * number + letter - 64, letters.upper(), 0) - 1


def _letters(column: int) -> str:
    before, rest = divmod(column, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + rest)
