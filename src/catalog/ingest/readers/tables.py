"""The names of a table's columns: which row has them, and the line that goes with its passages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from catalog.core.documents import Table

_NUMBER = re.compile(r"[-+(]?[$€£¥]?(?=[.,' ]*+\d)[\d.,' ]++(?:[%$€£¥]|[A-Z]{3})?\)?")
_DATE = re.compile(r"(?:19|20)\d\d(?:-\d\d-\d\d)?(?: \d\d:\d\d)?")
_LONGER = 3
"""How many times as long as their name the texts of a table of two columns are."""
_ROWS_COMPARED = 50
_FEWEST_ROWS, _LONGEST_NAME = 4, 40
"""Rows, and characters of a name, of a table that has two columns of words."""
_DIGIT_OR_AT = re.compile(r"[\d@]")
_LONGEST_LINE = 600
LONGEST_REPEATED = 80
"""Characters of a cell over several rows or columns that is repeated in each."""
MOST_ROWS, MOST_COLUMNS = 1000, 100
"""Into how many rows and columns a cell of a web page may reach."""


def names_columns(rows: Sequence[Sequence[str]], *, may_be_form: bool = True) -> bool:
    """Return whether the first row names the columns of the rows under it.

    It has words, or years and dates next to words. Two columns of words may be a form, with a name
    in the first cell of each row.
    """
    if len(rows) < 2:
        return False
    row, below = rows[0], list(islice(rows, 1, _ROWS_COMPARED))
    texts = [text for text in row if text]
    words = [text for text in texts if not _is_counted(text)]
    dates = [text for text in texts if _DATE.fullmatch(text)]
    if len(texts) < 2 or len(words) + len(dates) < len(texts) or texts[0].endswith(":"):
        return False
    if not words and (row[0] or not below[0][0]):
        return False
    if any(_DATE.fullmatch(name) and _is_of_dates(at, below) for at, name in enumerate(row)):
        return False
    return (
        len(row) > 2
        or not may_be_form
        or any(
            _is_unlike(name, [one[at] for one in below if at < len(one)])
            for at, name in enumerate(row)
        )
        or not _is_form(list(islice(rows, _ROWS_COMPARED)))
    )


def _is_form(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether two columns of words look like a form, as any of under four rows does.

    Signs of a form are a colon after a name, a long text or a number in the first row, and numbers
    in some of the values but not in most.
    """
    names, values = ([text for row in rows for text in row[at : at + 1] if text] for at in (0, 1))
    numbered = sum(_DIGIT_OR_AT.search(value) is not None for value in values)
    return (
        len(rows) < _FEWEST_ROWS
        or any(name.endswith(":") for name in names)
        or any(len(text) > _LONGEST_NAME or _DIGIT_OR_AT.search(text) for text in rows[0])
        or 0 < 2 * numbered <= len(values)
    )


def _is_of_dates(column: int, rows: Sequence[Sequence[str]]) -> bool:
    texts = [row[column] for row in rows if column < len(row) and row[column]]
    return 2 * sum(bool(_DATE.fullmatch(text)) for text in texts) > len(texts)


def _is_counted(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text) or _DATE.fullmatch(text))


def _is_unlike(name: str, texts: Sequence[str]) -> bool:
    """Return whether most texts are numbers or dates, or much longer than the name over them."""
    texts = [text for text in texts if text]
    length = median(map(len, texts)) if texts else 0
    is_counted = 2 * sum(map(_is_counted, texts)) > len(texts)
    return bool(name) and (is_counted or length > _LONGER * len(name))


def make_table(start: int, end: int, names: Sequence[Sequence[str]]) -> list[Table]:
    """Return the table ``text[start:end]`` with the names in these rows; none without a name.

    Of several rows, the names over one column are joined.

    >>> make_table(0, 99, [["Reign", "Name", "Name"], ["Reign", "Latin", "Norse"]])[0].columns
    '| Reign | Name Latin | Name Norse |'
    """
    if len({len(row) for row in names}) > 1:
        columns = [" ".join(cell.split()) for row in names for cell in row]
    else:
        stacked = zip(*names, strict=True)
        columns = [" ".join(" ".join(dict.fromkeys(column)).split()) for column in stacked]
    line = " | ".join(columns)
    if len(line) > _LONGEST_LINE:
        line = line[:_LONGEST_LINE].rpartition(" | ")[0] + " | …"
    return [Table(start, end, f"| {line} |")] if len(columns) > 1 and any(columns) else []


@dataclass(slots=True)
class OpenTable:
    """A table that is being read; the rows of its ``header`` are the first ones of ``th`` alone."""

    ends: list[int] = field(default_factory=list)
    """Where the text of each row ends."""
    header: list[list[int]] = field(default_factory=list)
    """For each row of the header, the columns over which each cell reaches."""
    row: list[int] = field(default_factory=list)
    """The same for the cells of the open row."""
    column: int = 0
    """The next one."""
    is_header: bool = True
    cell: tuple[int, int] = 0, 1
    """Where the open cell begins among the pieces of text, and its ``rowspan``."""
    reaching: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    """By column, the cells that reach into further rows: how many rows, columns, and the text."""

    def end_row(self, end: int) -> None:
        """Close the open row, whose text ends there."""
        if self.is_header and self.row and len(self.header) == len(self.ends):
            self.header.append(self.row)
        if not self.ends or end > self.ends[-1]:
            self.ends.append(end)
        self.row, self.column, self.is_header = [], 0, True

    def add_cell(self, columns: int) -> None:
        """Open a cell over so many columns."""
        self.row.append(columns)
        self.column += columns


def to_span(value: str | None, most: int, zero: int = 1) -> int:
    """Return how many rows or columns a cell says it takes, from 1 to ``most``; ``zero`` for 0."""
    value = (value or "")[:6]
    return min(int(value) or zero, most) if value.isdecimal() else 1


def find_table(text: str, start: int, table: OpenTable) -> list[Table]:
    """Return the table with the names in its header, or in a first row that has names."""
    if len(table.ends) < 2:
        return []
    end = table.ends[-1]
    rows = [row.split(" | ") for row in text[start:end].split("\n", _ROWS_COMPARED)]
    if not table.header:
        return make_table(start, end, rows[:1]) if names_columns(rows) else []
    names = [
        [cell for cell, columns in zip(row, spans, strict=False) for _ in range(columns)]
        for row, spans in zip(rows, table.header, strict=False)
    ]
    return make_table(start, end, names)
