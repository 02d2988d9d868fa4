"""Workbooks (Excel, OpenDocument): a line for each row, cells with the names of their columns.

A sheet has no tables, only cells: rows that follow one another without a blank one are a block, and
blank columns part a block whose sides begin or end in different rows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.documents import Heading, ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.places import PlacesBuilder, format_count
from catalog.core.text import clean, storable
from catalog.ingest.readers.archive import (
    Archive,
    find_related,
    named,
    open_archive,
    read_part,
    read_properties,
    read_relations,
)
from catalog.ingest.readers.base import (
    JoinedText,
    ReadFailure,
    ReadLimits,
    cap_failures,
    file_type,
    one_line,
)
from catalog.ingest.readers.metadata import normalise, take_title
from catalog.ingest.readers.number_formats import (
    column_number,
    format_number,
    formats_of_rows,
    read_formats,
)
from catalog.ingest.readers.opendocument import read_opendocument_properties
from catalog.ingest.readers.tables import LONGEST_REPEATED, names_columns

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

_NAMED_SIMPLY = re.compile(r"[\w.]+")
_LONGEST_NAME = 80
"""Characters of a column's name: every row repeats it."""
_CELL = re.compile(rb"<(?:\w{1,20}:)?c [^>]{0,200}?\br=\"([A-Za-z]{1,20})(\d{1,20})\"")
_SMALL = 4_000_000
"""Bytes of a sheet that may have few cells far apart: the library allocates all between them."""
_LARGEST_AREA, _SPARSE = 5_000_000, 200
"""Cells that a sheet may span, and how many times those that it has."""
_AFTER_ALL = 1 << 60
"""The number of a row that no sheet has."""
_PANIC = "PanicException"
_LOOKED_AT = 50
"""Rows from which the names of the columns are told."""


class WorkbookReader:
    """Read the sheets that a person sees, with dates and numbers as displayed.

    Formulas have the values that were saved with them. Outside .xlsx, numbers have no currency,
    percent sign and thousands separators, because the library returns bare values. A workbook has
    up to ``text_bytes`` characters; rows after them are left out, and named.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file, after failures for sheets that are not read.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        from python_calamine import (
            CalamineError,
            CalamineWorkbook,
            PasswordError,
            SheetTypeEnum,
            SheetVisibleEnum,
        )

        is_archive = handle.read(2) == b"PK"
        handle.seek(0)
        archive = open_archive(handle, limits) if is_archive else None
        is_open = archive is not None and "content.xml" in archive
        read_fields = read_opendocument_properties if is_open else read_properties
        metadata = normalise(read_fields(archive) if archive else {})
        parts, styles = _find_parts(archive) if archive else ({}, None)
        sparse = {name for name, part in parts.items() if archive and _is_sparse(archive, part)}
        formats = read_formats(archive, styles) if archive and styles is not None else []
        handle.seek(0)
        joined, left_out = JoinedText(limits, "row"), []
        try:
            book = CalamineWorkbook.from_filelike(handle)
        except PasswordError as error:
            raise ReadError("protected by a password") from error
        except CalamineError as error:
            raise ReadError(f"a broken workbook: {one_line(error)}") from error
        for sheet in book.sheets_metadata:
            reason = ""
            if sheet.typ != SheetTypeEnum.WorkSheet:
                reason = "a sheet without cells"
            elif sheet.visible != SheetVisibleEnum.Visible:
                reason = "a hidden sheet is not read"
            elif sheet.name in sparse:
                reason = "not read: its cells are too far apart; delete the one that is astray"
            else:
                try:
                    part = parts.get(sheet.name) if any(formats) else None
                    xml = archive.read(part) if archive and part is not None else b""
                    styled = formats_of_rows(xml, formats)
                    cells = book.get_sheet_by_name(sheet.name)
                    first = (cells.start or (0, 0))[1]
                    rows = _read_rows(cells, first, styled)
                    name = one_line(clean(sheet.name)) or "-"
                    reason = _add_sheet(joined, name, rows, first, limits.text_bytes)
                except BaseException as error:
                    # A panic of the library, as at a cell that no sheet has, is no Exception.
                    is_known = isinstance(error, CalamineError | ReadError)
                    if not is_known and type(error).__name__ != _PANIC:
                        raise
                    reason = f"a broken sheet: {one_line(error)}"
            if reason:
                left_out.append(ReadFailure(f"{path} › {sheet.name}", reason))
        lost = [one.reason for one in left_out if one.reason.startswith(("a broken", "not read"))]
        if lost and not joined.following:
            raise ReadError(lost[0])
        yield from cap_failures(left_out)
        title = take_title(metadata) or PurePosixPath(path).stem
        yield joined.document(path, title=title, file_type=file_type(path), metadata=metadata)


def _find_parts(archive: Archive) -> tuple[dict[str, str], str | None]:
    """Return the parts of an Excel archive that have its sheets, by name, and its styles."""
    main = find_related(read_relations(archive, ""), "officeDocument")
    if main is None or not main.endswith(".xml"):
        return {}, None
    links, parts = read_relations(archive, main), {}
    for sheet in named(read_part(archive, main), "sheet"):
        ids = [value for key, value in sheet.items() if key.endswith("}id")]
        if ids and ids[0] in links:
            parts[sheet.get("name", "")] = links[ids[0]].target
    return parts, find_related(links, "styles")


def _is_sparse(archive: Archive, part: str) -> bool:
    """Return whether a sheet spans millions of cells and has few."""
    if archive.size(part) > _SMALL:
        return False
    places = _CELL.findall(archive.read(part))
    columns = [column_number(letters) for letters, _ in places]
    rows = [int(row) for _, row in places]
    if not places:
        return False
    area = (max(columns) - min(columns) + 1) * (max(rows) - min(rows) + 1)
    return area > max(_LARGEST_AREA, _SPARSE * len(places))


@dataclass(slots=True)
class _Row:
    """The texts of one row, from the sheet's first column with text on."""

    number: int
    cells: list[str]

    def filled(self) -> list[int]:
        return [at for at, text in enumerate(self.cells) if text]


class _Spanned(str):
    """The text of a merged cell, repeated in the columns after its first."""


def _read_rows(
    sheet: CalamineSheet, first: int, formats: Iterator[tuple[int, dict[int, str]]]
) -> Iterator[_Row]:
    """Yield the rows with text, with short texts of merged cells in all of their rows and columns.

    ``first`` is the number of the first column, from 0. ``formats`` has the number formats of rows,
    which are counted from 1, by column from 1.
    """
    merged = sorted(sheet.merged_cell_ranges or ())
    at, active = 0, list[tuple[int, int, int, str]]()
    styled, codes = 0, dict[int, str]()
    for number, values in enumerate(sheet.iter_rows()):
        while styled <= number:
            styled, codes = next(formats, (_AFTER_ALL, {}))
        own = codes if styled == number + 1 else {}
        numbered = enumerate(values, first + 1)
        cells = [show(value, own.get(column, "")) for column, value in numbered]
        active = [one for one in active if one[0] >= number]
        while at < len(merged) and merged[at][0][0] <= number:
            (top, left), (bottom, right) = merged[at]
            at += 1
            left, right = left - first, min(right - first, len(cells) - 1)
            is_repeated = 0 <= left < len(cells) and 0 < len(cells[left]) <= LONGEST_REPEATED
            if top == number and is_repeated:
                active.append((bottom, left, right, cells[left]))
        for _, left, right, text in active:
            if not cells[left]:
                cells[left] = text
            for column in range(left + 1, right + 1):
                cells[column] = cells[column] or _Spanned(text)
        if any(cells):
            yield _Row(number + 1, cells)


def show(value: object, code: str = "") -> str:
    """Return a value as a person sees it: 12.5, 2024-03-05, 2024-03-05 09:30, 7:45, TRUE.

    ``code`` is its number format, if known. Other numbers have up to 15 digits, as in Excel.
    Seconds are shown unless they are 0.
    """
    match value:
        case str():
            return " ".join(storable(value.replace("\0", "")).split())
        case bool():
            return str(value).upper()
        case float() if code and (formatted := format_number(value, code)) is not None:
            return " ".join(formatted.split())
        case float():
            shown = f"{value or 0.0:.15g}"
            is_plain = "e" not in shown or not 1e-7 < abs(value) < 1e21
            return shown if is_plain else f"{Decimal(shown):f}"
        case datetime():
            is_day = value.time() == time()
            return (
                str(value.date())
                if is_day
                else f"{value.date()} {'0' * (value.hour < 10)}{_clock(value)}"
            )
        case date() | int():
            return str(value)
        case time():
            return _clock(value)
        case timedelta():
            rest = abs(value)
            hours, seconds = divmod(rest.seconds, 3600)
            whole = time(0, seconds // 60, seconds % 60, rest.microseconds)
            sign = "-" if value < timedelta() else ""
            return f"{sign}{rest.days * 24 + hours}{_clock(whole)[1:]}"
    return ""


def _clock(value: time | datetime) -> str:
    """Return ``7:45``, ``7:45:09`` or ``7:45:09.25``."""
    shown = f"{value.hour}:{value.minute:02}"
    if value.second or value.microsecond:
        shown += f":{value.second:02}"
    if value.microsecond:
        shown += f".{value.microsecond:06}".rstrip("0")
    return shown


def _add_sheet(
    joined: JoinedText, name: str, all_rows: Iterator[_Row], first: int, limit: int
) -> str:
    """Add the text of a sheet; return which of its rows were left out, if any."""
    quoted = name if _NAMED_SIMPLY.fullmatch(name) else "'" + name.replace("'", "''") + "'"
    names = dict[tuple[int, int], list[str]]()
    left_out, length, has_heading = list[int](), joined.following, True

    def fitting() -> Iterator[_Row]:
        nonlocal length
        for row in all_rows:
            length += sum(map(len, row.cells))
            if length > limit:
                left_out.append(row.number)
            else:
                yield row

    # Rows that follow one another without a blank row differ equally from their place.
    for _, block in groupby(enumerate(fitting()), lambda one: one[1].number - one[0]):
        for rows, left, right in _split_columns([row for _, row in block]):
            area = f"{quoted}!{_letters(first + left)}:{_letters(first + right)}"
            lines = list(_read_table(rows, left, right, names))
            if has_heading:
                lines.insert(0, (rows[0].number, one_line(name)))
            # With the names of their columns the rows may be longer than they were without.
            size = accumulate((len(line) + 1 for _, line in lines), initial=joined.following)
            fit = bisect_right(list(size), limit) - 1
            left_out += [number for number, _ in lines[max(fit, 0) :]]
            _add_lines(joined, lines[: max(fit, 0)], area, has_heading=has_heading)
            has_heading = False
    if not left_out:
        return ""
    told = format_count("row", min(left_out), max(left_out))
    return f"{told} left out: over {limit:,} characters; save them as another file"


def _add_lines(
    joined: JoinedText, lines: Sequence[tuple[int, str]], area: str, *, has_heading: bool
) -> None:
    """Add a block with a line for each row, all in the columns of one area."""
    places, offset = PlacesBuilder("row"), 0
    for number, line in lines:
        places.add(offset, number, None, area)
        offset += len(line) + 1
    text, headings, begin = "\n".join(line for _, line in lines), [], 0
    if has_heading and lines:
        begin = len(lines[0][1])
        headings = [Heading(0, begin, 1, lines[0][1])]
    joined.add(text, headings, [(begin, len(text))], places=places.places())


def _split_columns(block: Sequence[_Row]) -> Iterator[tuple[list[_Row], int, int]]:
    """Yield the tables of a block from left to right: rows, first column, last column."""
    extents: dict[int, tuple[int, int]] = {}
    for row in block:
        filled = row.filled()
        for column in filled:
            top, bottom = extents.get(column, (row.number, row.number))
            if len(filled) == 1:  # a title or a remark: not a row of the table
                top, bottom = max(top, block[-1].number), min(bottom, block[0].number)
            extents[column] = min(top, row.number), max(bottom, row.number)
    columns = sorted(extents)
    groups: list[list[int]] = []
    for column in columns:
        if groups and column == groups[-1][-1] + 1:
            groups[-1].append(column)
        else:
            groups.append([column])
    joined: list[tuple[tuple[int, int], list[int]]] = []
    for group in groups:
        extent = min(extents[at][0] for at in group), max(extents[at][1] for at in group)
        if joined and joined[-1][0] == extent:
            joined[-1][1].extend(group)
        else:
            joined.append((extent, group))
    for _, group in joined:
        rows = [row for row in block if any(row.cells[at] for at in group)]
        yield rows, group[0], group[-1]


def _read_table(
    rows: Sequence[_Row], left: int, right: int, known: dict[tuple[int, int], list[str]]
) -> Iterator[tuple[int, str]]:
    """Yield number and text of each row of a table in these columns.

    ``known`` has the names of columns of the sheet so far: a table without may have those above it.
    """
    table = [_Row(row.number, row.cells[left : right + 1]) for row in rows]
    begin = 0
    while begin < len(table) and left < right and len(_own(table[begin])) == 1:
        begin += 1
    names, body = _find_names(table, begin)
    if names:
        known[left, right] = names
    names = known.get((left, right), [])
    for at, row in enumerate(table):
        cells = _own(row)
        if names and at >= body and [column for column, _ in cells] != [0]:
            parts = (f"{names[at]}: {text}" if names[at] else text for at, text in cells)
            yield row.number, "; ".join(parts)
        else:
            yield row.number, " | ".join(text for _, text in cells)


def _own(row: _Row) -> list[tuple[int, str]]:
    """Return column and text of the cells, a merged one once."""
    cells = enumerate(row.cells)
    return [(at, text) for at, text in cells if text and not isinstance(text, _Spanned)]


def _find_names(table: Sequence[_Row], begin: int) -> tuple[list[str], int]:
    """Return the names of the columns, none if no row has them, and the first row after these."""
    if not names_columns([row.cells for row in table[begin : begin + _LOOKED_AT]]):
        return [], begin
    names, body = table[begin].cells, begin + 1
    is_grouped = any(isinstance(text, _Spanned) for text in names)
    if is_grouped and names_columns([row.cells for row in table[body : body + _LOOKED_AT]]):
        below = table[body].cells
        pairs = zip(names, below, strict=True)
        names = [over if over == own else f"{over} {own}".strip() for over, own in pairs]
        body += 1
    return [name[:_LONGEST_NAME] for name in names], body


def _letters(column: int) -> str:
    """Return the letters of a column that is counted from 0: A, Z, AA."""
    before, rest = divmod(column, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + rest)
