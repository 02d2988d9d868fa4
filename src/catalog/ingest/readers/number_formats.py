"""The number formats of Excel workbooks: ``1234.5`` as ``1,234.50 €``, ``0.25`` as ``25%``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache, reduce
from itertools import groupby

from catalog.ingest.readers.archive import Archive, named, read_part

_STYLED = re.compile(
    rb"<(?:\w{1,20}:)?c (?=[^>]{0,200}?\br=\"([A-Z]{1,3})(\d{1,7})\")[^>]{0,200}?\bs=\"(\d{1,6})\""
)
_BUILT_IN = {
    "1": "0", "2": "0.00", "3": "#,##0", "4": "#,##0.00", "9": "0%", "10": "0.00%",
    "37": "#,##0", "38": "#,##0", "39": "#,##0.00", "40": "#,##0.00",
}  # fmt: skip
_LONGEST_FORMAT, _LARGEST = 255, 1e15  # characters, as in Excel; numbers that are exact
_Section = tuple[str, str, str, bool]
"""The text before the digits, the digits, the text after them; and whether it is a percentage."""
_TOKEN = re.compile(
    r"""
    "(?P<quoted>[^"]{0,255}+)" | \\(?P<escaped>.)
    | \[\$(?P<currency>[^\]-]{0,255}+)[^\]]{0,255}+\]
    | (?P<unshown>\[[^\]]{0,255}+\] | [_*].)
    | (?P<digits>[0\#?][0\#?,]*+(?:\.[0\#?]++)? | \.[0\#?]++)
    | (?P<end>;) | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NO_NUMBER = re.compile(r"[A-Za-z@/,_*\[\\\"]")


def read_formats(archive: Archive, styles: str) -> list[str]:
    """Return the number format of each style of cells, "" for those of dates and texts."""
    root = read_part(archive, styles)
    own = {one.get("numFmtId", ""): one.get("formatCode", "") for one in named(root, "numFmt")}
    known = _BUILT_IN | own
    return [known.get(xf.get("numFmtId", ""), "") for xfs in named(root, "cellXfs") for xf in xfs]


def formats_of_rows(sheet: bytes, formats: Sequence[str]) -> Iterator[tuple[int, dict[int, str]]]:
    """Yield the number of each row of a sheet's XML, and the formats of its cells by column."""
    known = {str(style).encode(): code for style, code in enumerate(formats) if code}
    cells = (cell for cell in _STYLED.finditer(sheet) if cell[3] in known)
    for row, styled in groupby(cells, key=lambda cell: int(cell[2])):
        yield row, {column_number(cell[1]): known[cell[3]] for cell in styled}


@lru_cache(1000)
def column_number(letters: bytes) -> int:
    """Return the number of a column, from 1: ``AB`` is 28."""
    return reduce(lambda number, letter: 26 * number + letter - 64, letters.upper(), 0)


def format_number(value: float, code: str) -> str | None:
    """Return a number as Excel shows it; ``None`` for a format of dates, fractions or texts.

    >>> format_number(-1234.5, '#,##0.00 "€"'), format_number(0.255, "0%")
    ('-1,234.50 €', '26%')
    """
    sections = _read_sections(code[:_LONGEST_FORMAT])
    has_own_sign = value < 0 and len(sections) > 1
    section = sections[has_own_sign]
    if section is None or not abs(value) < _LARGEST:
        return None
    before, digits, after, is_percent = section
    whole, _, decimals = digits.partition(".")
    exact = Decimal(f"{value:.15g}") * (100 if is_percent else 1)
    rounded = exact.quantize(Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP)
    shown, _, rest = f"{abs(rounded):{',' * (',' in whole)}f}".partition(".")
    needed = len(decimals.rstrip("#?"))
    rest = rest[:needed] + rest[needed:].rstrip("0")
    sign = "-" * (rounded < 0 and not has_own_sign)
    return f"{sign}{before}{shown.zfill(whole.count('0'))}{'.' * bool(rest)}{rest}{after}"


@lru_cache(512)
def _read_sections(code: str) -> list[_Section | None]:
    """Return the parts of a format, for positive and for negative numbers, then others.

    ``None`` stands for one that is not a number's, or depends on its value.
    """
    sections: list[_Section | None] = []
    parts, is_number, is_percent = ["", "", ""], True, False
    for token in _TOKEN.finditer(f"{code};"):
        kind, text = token.lastgroup, token[token.lastgroup or 0]
        if kind == "end":
            is_number &= bool(parts[1]) and not parts[1].partition(".")[0].endswith(",")
            sections.append((parts[0], parts[1], parts[2], is_percent) if is_number else None)
            parts, is_number, is_percent = ["", "", ""], True, False
        elif kind == "digits":
            is_number &= not parts[1]
            parts[1] = text
        elif kind == "unshown":
            is_number &= text[1] not in "<>="
        else:
            is_number &= kind != "other" or not _NO_NUMBER.match(text)
            is_percent |= kind == "other" and text == "%"
            parts[2 if parts[1] else 0] += text
    return sections
