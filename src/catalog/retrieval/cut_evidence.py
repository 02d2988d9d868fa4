"""Cutting the lines of evidence to a number of characters, around the best sentences."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from operator import itemgetter

from catalog.core.results import EvidenceLine

_LEAST_CHARS = 20
"""Characters of a line that is cut at least."""
_Window = tuple[float, float]  # first and last second


def cut_lines(
    lines: Sequence[EvidenceLine], max_chars: int, *, anchors: Container[str] = ()
) -> tuple[EvidenceLine, ...]:
    """Return the best sentences, and as much around them as ``max_chars`` characters let stay.

    Nearer lines come first, those of the passages found (``anchors``, by chunk id) before any
    other; the last that has room is cut, with an ellipsis where it was. Where there is no best
    sentence the lines of ``anchors`` are whole instead.
    """
    if sum(len(line.text) for line in lines) <= max_chars:
        return tuple(lines)
    kept = {number: line for number, line in enumerate(lines) if line.is_best}
    if not kept:
        kept = {number: line for number, line in enumerate(lines) if line.chunk_id in anchors}
    middles = list(kept)
    times = ((line.time_start, line.time_end) for line in kept.values())
    windows = _merge(times)
    room = max_chars - sum(len(line.text) for line in kept.values())

    def side(number: int) -> tuple[int, bool]:
        place = bisect_left(middles, number)
        nearest = middles[max(0, place - 1) : place + 1]
        middle = min(nearest, key=lambda middle: abs(number - middle), default=0)
        return middle, number < middle

    def distance(number: int) -> tuple[bool, float, int]:
        line = lines[number]
        return line.chunk_id not in anchors, _gap(line, windows), abs(number - side(number)[0])

    further = sorted((number for number in range(len(lines)) if number not in kept), key=distance)
    waiting = Counter(map(side, further))  # lines of each side that still has room
    for number in further:
        line, where = lines[number], side(number)
        if where not in waiting:
            continue
        waiting[where] -= 1
        if not waiting[where] or len(line.text) > room:
            del waiting[where]
        if len(line.text) > room:
            text = _cut_text(line.text, room // 2 if waiting else room, at_end=where[1])
            if not text or line.chunk_id not in anchors:
                continue
            line = line.model_copy(update={"text": text})
        kept[number], room = line, room - len(line.text)
    return tuple(kept[number] for number in sorted(kept))


def _cut_text(text: str, max_chars: int, *, at_end: bool) -> str:
    """Return the words at one end of a text, within ``max_chars``; nothing if that is too few."""
    if max_chars < _LEAST_CHARS:
        return ""
    if at_end:
        _, _, rest = text[len(text) - max_chars + 2 :].partition(" ")
        return f"… {rest}" if rest else ""
    rest, _, _ = text[: max_chars - 2].rpartition(" ")
    return f"{rest} …" if rest else ""


def _merge(windows: Iterable[_Window]) -> list[_Window]:
    """Return the windows' union as disjoint ones, by time."""
    merged: list[_Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _gap(line: EvidenceLine, windows: Sequence[_Window]) -> float:
    """Return the seconds between a line and the nearest of disjoint, sorted windows."""
    place = bisect_right(windows, line.time_end, key=itemgetter(0))
    gaps = [
        max(0.0, line.time_start - end, start - line.time_end)
        for start, end in windows[max(0, place - 1) : place + 1]
    ]
    return min(gaps, default=0.0)
