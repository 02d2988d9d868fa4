"""Headings of a PDF without bookmarks, told by their letters: larger, or bold and numbered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from catalog.ingest.readers.base import one_line
from catalog.ingest.readers.pdf.lines import PageLine
from catalog.ingest.readers.pdf.outline import HeadingLines

_LARGER = 1.15
"""Times the body's size from which on a line may be a heading."""
_LONGEST = 150
"""Letters of a heading."""
_MOST_LINES = 3
_MOST_SIZES = 5
"""Levels told apart by size."""
_LARGEST_SHARE = 0.25
"""Of all letters: where more look like headings, nothing is one."""
_NUMBERED = re.compile(r"((?:\d{1,3}|[A-Z])(?:\.\d{1,3})*)\.?\s+[^\W\d_]")


def body_size(pages: Sequence[Sequence[PageLine]]) -> float:
    """The commonest size of letters, in points; 0 if there are none."""
    sizes = Counter[float]()
    for lines in pages:
        for line in lines:
            if line.margin != "aside":
                sizes[line.size] += len(line.text)
    return max(sorted(sizes), key=lambda size: sizes[size], default=0.0)


def font_headings(pages: Sequence[Sequence[PageLine]]) -> list[HeadingLines]:
    """Short lines in larger letters than the body's, and bold lines with a number in front.

    Neither ends like a sentence, and both begin a paragraph. The largest size is level 1, and so
    on; bold numbered lines come below, the deeper the more parts their number has.
    """
    body = body_size(pages)
    found = [
        candidate for page in range(len(pages)) for candidate in _candidates(pages, page, body)
    ]
    letters = sum(len(line.text) for lines in pages for line in lines)
    if sum(len(candidate.title) for candidate in found) > _LARGEST_SHARE * letters:
        return []
    sizes = {candidate: pages[candidate.page][candidate.first].size for candidate in found}
    ranks = _ranks([size for candidate, size in sizes.items() if candidate.level == 0])
    deepest = max(ranks.values(), default=0)
    numbered = [candidate.level for candidate in found if candidate.level > 0]
    highest = min(numbered, default=1)
    return [
        HeadingLines(
            candidate.page,
            candidate.first,
            candidate.last,
            ranks[sizes[candidate]]
            if candidate.level == 0
            else deepest + 1 + candidate.level - highest,
            candidate.title,
        )
        for candidate in found
    ]


def _ranks(sizes: Sequence[float]) -> dict[float, int]:
    """Sizes by rank, from 1 for the largest; sizes within a twentieth share one."""
    ranks: dict[float, int] = {}
    rank, top = 0, float("inf")
    for size in sorted(set(sizes), reverse=True):
        if size < 0.95 * top:
            rank, top = min(rank + 1, _MOST_SIZES), size
        ranks[size] = rank
    return ranks


def _candidates(
    pages: Sequence[Sequence[PageLine]], page: int, body: float
) -> Iterator[HeadingLines]:
    """Headings of a page. ``level`` is 0 for large ones, else the parts of the number."""
    lines = pages[page]
    index = 0
    while index < len(lines):
        line = lines[index]
        end = index + 1
        if line.starts and line.margin != "aside":
            while end < len(lines) and not lines[end].starts and end - index <= _MOST_LINES:
                end += 1
            level = _kind(lines[index:end], body)
            if level is not None:
                title = one_line(" ".join(part.text for part in lines[index:end]))
                yield HeadingLines(page, index, end - 1, level, title)
        index = end


def _kind(lines: Sequence[PageLine], body: float) -> int | None:
    text = " ".join(line.text for line in lines)
    is_short = len(lines) <= _MOST_LINES and len(text) <= _LONGEST
    if not is_short or text[-1] in ".,;:" or sum(letter.isalpha() for letter in text) < 2:
        return None
    if 2 * sum(letter.isalnum() or letter.isspace() for letter in text) < len(text):
        return None
    if all(line.size >= _LARGER * body for line in lines):
        return 0
    number = _NUMBERED.match(text)
    if number is not None and all(line.bold and line.size >= 0.97 * body for line in lines):
        return number.group(1).count(".") + 1
    return None
