"""The names of a table's columns: which row has them, and the line that goes with its passages."""

import re
from collections.abc import Sequence
from statistics import median

from catalog.core.documents import Table

_DATE = re.compile(r"(?:19|20)\d\d(?:-\d\d-\d\d)?(?: \d\d:\d\d)?")
_COUNTED = re.compile(
    r"[-+(]?[$€£¥]?(?=[.,' ]*+\d)[\d.,' ]++(?:[%$€£¥]|[A-Z]{3})?\)?|" + _DATE.pattern
)
_SIGN_OF_VALUE = re.compile(r"[^\d@]*+[\d@]|.{41}|.*:\Z", re.DOTALL)
_USUAL_NAMES = """
    address amount author category city code country date description email id language name
    notes number phone price quantity status title total type unit url value year"""
_USUAL = frozenset(_USUAL_NAMES.split())
_LONGER, _FEWEST_ROWS = 4, 4  # times as long as the name of the column; rows of a table
_LONGEST_LINE = 600  # characters of the columns' names, which stand above each part of a table
COMPARED_ROWS, LONGEST_REPEATED = 50, 80  # rows; characters of a cell over several, in each


def names_columns(rows: Sequence[Sequence[str]], *, may_be_form: bool = True) -> bool:
    """Return whether the first row names the columns of the rows under it.

    The values under it are numbers, dates, longer or written in another way, or a name is a usual
    one. Two columns of words may be a form, with a name in the first cell of each row.
    """
    row, below = list(rows[0]) if rows else [], rows[1:COMPARED_ROWS]
    over = [(name, [one[at] for one in below if one[at:] and one[at]])
            for at, name in enumerate(row) if name]  # fmt: skip
    if not below or len(over) < 2 or over[0][0].endswith(":"):
        return False
    is_unlike = False
    for name, under in over:
        is_dated = 2 * sum(map(bool, map(_DATE.fullmatch, under))) > len(under)
        if _COUNTED.fullmatch(name) and (is_dated or not _DATE.fullmatch(name)):  # 2023 is a name
            return False
        is_counted = 2 * sum(map(bool, map(_COUNTED.fullmatch, under))) > len(under)
        is_unlike |= is_counted or median(map(len, under or [""])) > _LONGER * len(name)
    if is_unlike or (len(row) == 2 and may_be_form and _is_form([row, *below])):
        return is_unlike
    is_usual = any(name.casefold() in _USUAL for name in row)
    return is_usual or any(_is_written_apart(name, under) for name, under in over)


def _is_form(rows: Sequence[Sequence[str]]) -> bool:
    # A form has a colon after a name, a long text or a number in its first row, or few numbers.
    numbered = sum(any(map(str.isdigit, "".join(row[1:2]))) for row in rows)
    is_named = any(row and row[0].endswith(":") for row in rows)
    is_first = any(map(_SIGN_OF_VALUE.match, rows[0]))
    return len(rows) < _FEWEST_ROWS or is_named or is_first or 0 < 2 * numbered <= len(rows)


def _is_written_apart(name: str, under: Sequence[str]) -> bool:
    own, *shapes = [
        (min(len(text.split()), 3), text[:1].isupper(), any(map(str.isdigit, text)))
        for text in (name, *under)
    ]
    return own not in shapes[:1] and 10 * shapes.count(own) < len(shapes)


def make_table(start: int, end: int, names: Sequence[Sequence[str]]) -> list[Table]:
    """Return the table ``text[start:end]`` with the names in these rows; none without a name.

    Of several rows, the names over one column are joined.

    >>> make_table(0, 99, [["Reign", "Name", "Name"], ["Reign", "Latin", "Norse"]])[0].columns
    '| Reign | Name Latin | Name Norse |'
    """
    is_even = len({len(row) for row in names}) < 2
    stacked = zip(*names, strict=True) if is_even else ([cell] for row in names for cell in row)
    columns = [" ".join(" ".join(dict.fromkeys(column)).split()) for column in stacked]
    line = " | ".join(columns)
    if len(line) > _LONGEST_LINE:
        line = line[:_LONGEST_LINE].rpartition(" | ")[0] + " | …"
    return [Table(start, end, f"| {line} |")] if len(columns) > 1 and any(columns) else []
