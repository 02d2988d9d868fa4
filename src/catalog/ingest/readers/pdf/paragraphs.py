"""Where paragraphs begin among the lines of a PDF page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from catalog.ingest.readers.pdf.blocks import Placed


def paragraphs(lines: Sequence[Placed]) -> Iterator[tuple[Placed, bool]]:
    """Each line, and whether a paragraph begins with it.

    One does after more white space than lies between most lines, where the size of the letters
    changes, and at an indented line after a line at the edge, unless it stays indented.
    """
    steps = [
        round(two.base - one.base, 1)
        for one, two in pairwise(lines)
        if 0 < two.base - one.base <= 2.5 * two.size
    ]
    usual = median(steps) if steps else 0.0
    edge = min((line.x0 for line in lines), default=0.0)
    for index, line in enumerate(lines):
        if index == 0:
            yield line, True
            continue
        above = lines[index - 1]
        step = line.base - above.base
        usual_here = min(max(usual, line.size), 1.6 * line.size) if usual else 1.25 * line.size
        apart = step > 1.25 * usual_here or step < -0.5 * line.size
        resized = abs(line.size - above.size) > 0.12 * max(line.size, above.size)
        below = lines[index + 1] if index + 1 < len(lines) else None
        yield line, apart or resized or _is_indented(above, line, below, edge)


def _is_indented(above: Placed, line: Placed, below: Placed | None, edge: float) -> bool:
    indent = (line.x0 - above.x0) / line.size
    if not 0.8 <= indent <= 4.0 or above.x0 > edge + 0.5 * line.size:
        return False
    return below is not None and below.x0 < line.x0 - 0.5 * line.size and above.text[-1] in ".!?:…"
