"""Leaves out what repeats at the top and bottom of PDF pages: running titles and page numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from catalog.ingest.readers.pdf.lines import PageLine, unmarked

_FEWEST_PAGES = 4
_SAME_HEIGHT = 4.0
"""Points by which the height of a running title may differ from page to page."""
_NUMBERS = re.compile(r"\d+|\b[ivxlcdm]{1,8}\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(
    r"[-–—•|\s]*(?:(?:page|seite|p\.)\s*)?(?:\d{1,5}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von)\s*\d{1,5})?[-–—•|\s.]*",
    re.IGNORECASE,
)


def without_running_lines(pages: Sequence[list[PageLine]]) -> list[list[PageLine]]:
    """The pages without running titles and page numbers.

    A line in the top or bottom tenth of its page is left out if the same line, numbers ignored,
    stands at the same height on at least four pages and on at least half of the pages from the
    first to the last that has it; so is a bare page number that is outermost there. Text at an
    angle is left out by the same count, wherever it stands. A page that has nothing else keeps
    its running titles.
    """
    seen: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for number, lines in enumerate(pages):
        for line in lines:
            if line.margin:
                seen[_key(line)].append((number, line.base))
    running = {key: heights for key, places in seen.items() if (heights := _running(places))}
    return [_kept(lines, running) for lines in pages]


def _key(line: PageLine) -> tuple[str, str]:
    text = _NUMBERS.sub("#", line.text.casefold())
    return line.margin, " ".join(text.split())


def _running(places: list[tuple[int, float]]) -> list[float]:
    """The heights at which a line repeats often enough."""
    heights: list[float] = []
    rest = sorted(places, key=lambda place: (place[1], place[0]))
    while len(rest) >= _FEWEST_PAGES:
        height = rest[0][1]
        level = [place for place in rest if place[1] <= height + _SAME_HEIGHT]
        numbers = sorted({number for number, _ in level})
        span = numbers[-1] - numbers[0] + 1
        if len(numbers) >= _FEWEST_PAGES and 2 * len(numbers) >= span:
            heights.append(height)
        rest = rest[len(level) :]
    return heights


def _kept(lines: list[PageLine], running: dict[tuple[str, str], list[float]]) -> list[PageLine]:
    dropped = {
        index
        for index, line in enumerate(lines)
        if line.margin
        and any(0 <= line.base - height <= _SAME_HEIGHT for height in running.get(_key(line), ()))
    }
    if len(dropped) == len(lines):
        return lines
    for margin, outermost in (("top", min), ("bottom", max)):
        bases = [
            line.base
            for index, line in enumerate(lines)
            if line.margin in ("top", "bottom") and index not in dropped
        ]
        edge = outermost(bases, default=None)
        for index, line in enumerate(lines):
            is_outermost = line.margin == margin and line.base == edge
            if is_outermost and _PAGE_NUMBER.fullmatch(line.text):
                dropped.add(index)
    kept: list[PageLine] = []
    starts = False
    for index, line in enumerate(lines):
        starts = starts or line.starts
        if index not in dropped:
            kept.append(unmarked(line, starts=starts))
            starts = False
    return kept
