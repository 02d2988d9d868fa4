"""The lines of a PDF page in reading order, and where paragraphs begin among them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.ingest.readers.pdf.blocks import Placed, blocks_of, lines_by_height, placed
from catalog.ingest.readers.pdf.columns import in_columns
from catalog.ingest.readers.pdf.paragraphs import paragraphs
from catalog.ingest.readers.pdf.pieces import Piece, pieces, pieces_as_drawn
from catalog.ingest.readers.pdf.words import PageWords

_MOST_PIECES = 10_000
"""Pieces of lines that are put in order; a page with more keeps the order it was drawn in."""
_MARGIN = 0.1
"""The part of a page's height at its top and bottom in which running titles stand."""
_NOTE_MARK = re.compile(r"[\d*∗†‡§¶a-z]{1,3}[\s)]|[*∗†‡§¶]|\d{1,2}(?=[A-Z])")
_NOTE_SIZE = 0.93
"""Of the commonest size of the page: letters of a footnote are no larger."""


@dataclass(frozen=True, slots=True)
class PageLine:
    """One line of a page.

    ``base`` is its baseline, in points from the top; ``size`` the size of most of its letters.
    ``starts``: a paragraph begins with it. ``margin`` is "top" or "bottom" where running titles
    and page numbers stand, "aside" for text that runs in another direction, else empty.
    """

    text: str
    base: float
    size: float
    bold: bool
    starts: bool
    margin: str = ""


def page_lines(page: PageWords) -> list[PageLine]:
    """The lines of a page as they are read: columns one after the other, footnotes last."""
    found_pieces = pieces(page.words)
    if len(found_pieces) > _MOST_PIECES:
        regions = [[placed(piece.words) for piece in pieces_as_drawn(page.words)]]
    else:
        regions = _regions(found_pieces)
    lines: list[PageLine] = []
    for region in regions:
        for found, starts in paragraphs(region):
            margin = _margin(found, page.height)
            size = round(found.size, 1)
            line = PageLine(found.text, found.base, size, found.bold, starts, margin)
            if lines and starts and _goes_on(lines[-1], line):
                line = unmarked(line, starts=False)
            lines.append(line)
    aside = [PageLine(text, 0.0, 0.0, False, True, "aside") for text in page.aside]
    return lines + aside


def _regions(found: list[Piece]) -> list[list[Placed]]:
    columns = [
        block for region in in_columns(found) for block in blocks_of(list(lines_by_height(region)))
    ]
    sizes = Counter[float]()
    for block in columns:
        for line in block:
            sizes[round(line.size, 1)] += len(line.text)
    commonest = max(sorted(sizes), key=lambda size: sizes[size], default=0.0)
    notes: list[list[Placed]] = []
    body: list[list[Placed]] = []
    for block in columns[:-1]:
        at = _notes_begin(block, commonest)
        body.append(block[:at])
        notes.append(block[at:])
    return [region for region in [*body, *columns[-1:], *notes] if region]


def _goes_on(above: PageLine, line: PageLine) -> bool:
    """Whether a sentence goes on at the top of the next column."""
    is_higher = line.base < above.base and abs(line.size - above.size) < 0.05 * line.size
    ends_inside = above.text[-1].islower() or above.text[-1] in ",;-‐\u00ad"
    return is_higher and ends_inside and line.text[0].islower()


def _notes_begin(block: Sequence[Placed], commonest: float) -> int:
    """Where the footnotes at the end of a column begin; its length if there are none."""
    at = len(block)
    while at > 0 and block[at - 1].size <= _NOTE_SIZE * commonest:
        at -= 1
    for start in range(max(at, 1), len(block)):
        if _NOTE_MARK.match(block[start].text):
            return start
    return len(block)


def _margin(line: Placed, height: float) -> str:
    if line.base <= _MARGIN * height:
        return "top"
    return "bottom" if line.base >= (1 - _MARGIN) * height else ""


def unmarked(line: PageLine, *, starts: bool) -> PageLine:
    """The line with another say on whether a paragraph begins with it."""
    return line if line.starts == starts else replace(line, starts=starts)
