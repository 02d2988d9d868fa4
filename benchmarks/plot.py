"""A small plot of growth as SVG, both axes logarithmic, with nothing but strings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#ca8a04")
WIDTH, HEIGHT, EDGE = 520, 300, 50
LINE = 11  # of text


def draw_growth(
    file: Path, sizes: Sequence[int], rows: Mapping[str, Sequence[float]], caption: str
) -> None:
    """Write a line for each row, named at its end, with the value at every size.

    ``caption`` says under them where and when the values were measured.
    """
    every = [value for values in rows.values() for value in values]
    low, high = math.log(min(every)), math.log(max(every))
    first, last = math.log(sizes[0]), math.log(sizes[-1])

    def place(size: int, value: float) -> tuple[float, float]:
        across = (math.log(size) - first) / (last - first)
        up = (math.log(value) - low) / (high - low)
        return EDGE + across * (WIDTH - 4 * EDGE), HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE)

    parts = []
    for size in sizes:
        x, _ = place(size, min(every))
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - 30}" text-anchor="middle">{size:,}</text>')
    taken: set[tuple[int, int]] = set()  # where labels stand
    for colour, (name, values) in zip(COLOURS, rows.items(), strict=False):
        points = [place(size, value) for size, value in zip(sizes, values, strict=True)]
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), value in zip(points, values, strict=True):
            label = f"{value:.3g} {name}" if x == points[-1][0] else f"{value:.3g}"
            up = _free(round(x), round(y) - 5, taken)
            parts.append(f'<text x="{x:.0f}" y="{up}" fill="{colour}">{label}</text>')
    below = f'x="{EDGE - 20}" y="{HEIGHT - 8}" font-size="9"'
    parts.append(f"<text {below}>{escape(caption)}</text>")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11" style="background:#fff"'
    file.write_text(f"{head} {style}>\n" + "\n".join(parts) + "\n</svg>\n", encoding="utf-8")


def _free(x: int, y: int, taken: set[tuple[int, int]]) -> int:
    """Return the height at or above ``y`` where a label does not cover another, and take it."""
    while any(x == other and abs(y - height) < LINE for other, height in taken):
        y -= 1
    taken.add((x, y))
    return y
