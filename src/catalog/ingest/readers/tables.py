"""The names of a table's columns: which row has them, and the line that goes with its passages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from statistics import median

from catalog.core.documents import Table

_NUMBER = re.compile(r"[-+(]?(?=[.,' ]*+\d)[\d.,' ]++%?\)?")
_DATE = re.compile(r"(?:19|20)\d\d(?:-\d\d-\d\d)?(?: \d\d:\d\d)?")
_LONGER = 3
"""How many times as long as their name the texts of a table of two columns are."""
_ROWS_COMPARED = 50
_LONGEST_LINE = 600


def names_columns(rows: Sequence[Sequence[str]], *, may_be_form: bool = True) -> bool:
    """Return whether the first row names the columns of the rows under it.

    It has words, or years and dates next to words. Two columns of words alone may be a form, with
    a name in the first cell of each row.
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
