"""The words of a PDF page with their places, read through PDFium in few calls.

PDFium answers the characters of a page in the order they are drawn, with white space where it
sees a gap. That order is not taken for the reading order here; only what stands between two
gaps is taken for a word.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.ingest.readers.pdf.scan import Scan

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage


@dataclass(frozen=True, slots=True)
class Word:
    """A run of letters; ``order`` counts the words of a page as they are drawn.

    ``x0`` and ``x1`` are its left and right edge, ``base`` its baseline measured downwards from
    the top, ``size`` the font's size, all in points and as the page is read, so turned where the
    page or its text is. ``spaced``: white space was drawn or seen before it.
    """

    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool
    spaced: bool
    order: int


@dataclass(frozen=True, slots=True)
class PageWords:
    """The words that run in the page's main direction, and lines that run in another one.

    ``aside`` is text at an angle (a stamp in the margin, a watermark, an upright axis title) as
    plain lines. ``height`` is the page's in the main direction, in points; ``top`` the upper edge
    of its visible box in the page's own coordinates, or ``None`` if its text is turned.
    """

    words: list[Word]
    aside: list[str]
    height: float
    top: float | None


def page_words(page: PdfPage, textpage: PdfTextPage) -> PageWords:
    """The words of an open page; what stands outside its visible box is left out."""
    left, bottom, right, top = page.get_bbox()
    runs = list(Scan(textpage).runs())
    turns = Counter[int]()
    for run in runs:
        if run.turn is not None:
            turns[run.turn] += len(run.text)
    main = max(sorted(turns), key=lambda turn: turns[turn], default=0)
    words: list[Word] = []
    aside: list[str] = []
    last: tuple[int, int | None] = (-2, None)
    for order, run in enumerate(runs):
        middle_x, middle_y = (run.start[0] + run.end[0]) / 2, (run.start[1] + run.end[1]) / 2
        if not (left <= middle_x <= right and bottom <= middle_y <= top):
            continue
        if run.turn != main:
            if last == (order - 1, run.turn):
                aside[-1] += " " * run.spaced + run.text
            else:
                aside.append(run.text)
            last = order, run.turn
            continue
        x0, base = _turned(run.start, main, (left, bottom, right, top))
        x1, _ = _turned(run.end, main, (left, bottom, right, top))
        words.append(
            Word(run.text, min(x0, x1), max(x0, x1), base, run.size, run.bold, run.spaced, order)
        )
    height = right - left if main % 2 else top - bottom
    return PageWords(words, aside, height, top if main == 0 else None)


def _turned(
    point: tuple[float, float], turn: int, box: tuple[float, float, float, float]
) -> tuple[float, float]:
    """A point as (rightwards, downwards) from the top left corner as the text is read."""
    (x, y), (left, bottom, right, top) = point, box
    return (
        (x - left, top - y),
        (y - bottom, x - left),
        (right - x, y - bottom),
        (top - y, right - x),
    )[turn]
