"""Tables of a PDF: lines one below the other that have the same number of cells."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from catalog.core.documents import Table
from catalog.ingest.readers.pdf.lines import TextLine
from catalog.ingest.readers.tables import make_table, names_columns

_FEWEST_ROWS, _FEWEST_COLUMNS = 4, 3
_LONGEST_NAME = 40
_MOST_BETWEEN = 3
"""Lines between the parts of a table on two pages: running titles and page numbers."""


def find_tables(pages: Sequence[Sequence[TextLine]]) -> Iterator[Table]:
    """Yield the tables whose first row names the columns, also over several pages.

    A part on a further page has the names of the part before, if it has as many columns.
    """
    lines = [(line, page) for page, on_page in enumerate(pages) for line in on_page]
    names, after, before = list[str](), 0, -1
    for is_row, block in groupby(lines, lambda one: len(one[0].cells) > 1):
        rows = list(block)
        between, after = after, 0 if is_row else len(rows)
        if not is_row:
            continue
        columns, count = Counter(len(line.cells) for line, _ in rows).most_common(1)[0]
        first = next(at for at, row in enumerate(rows) if len(row[0].cells) == columns)
        cells = [line.cells for line, _ in rows[first:]]
        goes_on = rows[0][1] > before >= 0 and between <= _MOST_BETWEEN and columns == len(names)
        is_table = count >= max(_FEWEST_ROWS, len(cells) / 2) and columns >= _FEWEST_COLUMNS
        before = rows[-1][1] if is_table else -1
        if is_table and not goes_on:
            names = list(cells[0]) if names_columns(cells) and all(map(_is_name, cells[0])) else []
        if is_table and names:
            yield from make_table(rows[first][0].start, rows[-1][0].end, [names])


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and any(map(str.isalnum, text))
