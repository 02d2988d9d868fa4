"""The position of a text in its file: the unit that citations count, and the steps of a map."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from operator import sub
from typing import Any, Literal, get_args

from catalog.core.text import format_timecode

Unit = Literal["line", "cell", "row", "page", "slide", "paragraph", "record", "time"]
"""The units that the citations of a document count."""
WITHIN = " › "
"""Separates the path of a file, in names of documents, from a mail or an attachment in it."""


def enclosing(path: str) -> Iterator[str]:
    """Yield the paths of the documents around the one with this path, from outside, and its own."""
    return accumulate(path.split(WITHIN), lambda outer, name: f"{outer}{WITHIN}{name}")


@dataclass(frozen=True, slots=True)
class Places:
    """A map from the characters of a text to the lines (cells, paragraphs …) of its file.

    From ``offsets[n]`` to the next offset, the text is at number ``numbers[n]`` of the ``unit``,
    and in a notebook in line ``lines[n]`` of that cell. In a workbook ``areas[n]`` names the sheet
    of the row and its columns: ``Costs!A:F``. Offsets ascend; numbers need not.
    """

    unit: Unit = "line"
    offsets: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    lines: tuple[int | None, ...] = ()
    areas: tuple[str, ...] = ()

    def part(self, start: int, end: int) -> Places:
        """Return the map of ``text[start:end]``, with its offsets."""
        first, stop = self._steps(start, end)
        offsets = tuple(max(0, offset - start) for offset in self.offsets[first:stop])
        numbers, lines = self.numbers[first:stop], self.lines[first:stop]
        return Places(self.unit, offsets, numbers, lines, self.areas[first:stop])

    def moved(self, count: int) -> Places:
        """Return the map with ``count`` added to every number."""
        return replace(self, numbers=tuple(number + count for number in self.numbers))

    def numbers_of(self, start: int, end: int) -> tuple[int, int] | None:
        """Return least and greatest number of ``text[start:end]``; ``None`` if not mapped."""
        first, stop = self._steps(start, end)
        numbers = self.numbers[first:stop]
        return (min(numbers), max(numbers)) if numbers else None

    def lines_of(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last line, in the file or in the one cell; ``None`` if unknown."""
        numbers = self.numbers_of(start, end)
        if numbers is None or self.unit == "line":
            return numbers
        first, stop = self._steps(start, end)
        lines = [line for line in self.lines[first:stop] if line is not None]
        is_known = numbers[0] == numbers[1] and len(lines) == stop - first
        return (min(lines), max(lines)) if is_known and lines else None

    def cells_of(self, start: int, end: int) -> str | None:
        """Return the cells of a workbook: ``Costs!A12:F30, Costs!H3:H4``; ``None`` without any."""
        if not self.areas:
            return None
        first, stop = self._steps(start, end)
        boxes: list[tuple[str, list[tuple[int, str, int]]]] = []
        for area, row in zip(self.areas[first:stop], self.numbers[first:stop], strict=True):
            sheet, _, columns = area.rpartition("!")
            if not boxes or boxes[-1][0] != sheet or row < boxes[-1][1][-1][2]:
                boxes.append((sheet, []))
            boxes[-1][1].extend((len(one), one, row) for one in columns.split(":"))
        return ", ".join(_format_box(*box) for box in boxes)

    def number_at(self, offset: int) -> int | None:
        """Return the number of the character at ``offset``, ``None`` if not mapped."""
        return (self.numbers_of(offset, offset + 1) or (None,))[0]

    def steps(self) -> Iterator[tuple[int, int, int | None, str]]:
        """Yield offset, number, line and area of each step."""
        count = len(self.offsets)
        lines: Sequence[int | None] = self.lines or (None,) * count
        yield from zip(self.offsets, self.numbers, lines, self.areas or ("",) * count, strict=True)

    def _steps(self, start: int, end: int) -> tuple[int, int]:
        first = max(0, bisect_right(self.offsets, start) - 1)
        stop = max(first + 1, bisect_left(self.offsets, end, first))
        return first, min(stop, len(self.offsets))

    def to_dict(self) -> dict[str, Any] | None:
        """Return the stored form, with differences between steps; ``None`` if pages suffice."""
        if not self.offsets and self.unit in ("line", "page"):
            return None
        form = {
            "offsets": _differences(self.offsets),
            "numbers": _differences(self.numbers),
            "areas": [(area, len(list(same))) for area, same in groupby(self.areas)],
            "lines": list(self.lines),
        }
        return {"unit": self.unit, **{name: steps for name, steps in form.items() if steps}}

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Places:
        """Return the map of a stored form; raise ``ValueError`` for an invalid form."""
        unit = form["unit"]
        if unit not in get_args(Unit):
            raise ValueError(f"no unit {unit!r}")
        offsets, numbers = (tuple(accumulate(form.get(one, ()))) for one in ("offsets", "numbers"))
        areas = tuple(area for area, count in form.get("areas", ()) for _ in range(count))
        return cls(unit, offsets, numbers, tuple(form.get("lines", ())), areas)


AS_IN_FILE = Places()
"""The lines of the text are those of the file."""


def _differences(values: Sequence[int]) -> list[int]:
    return [*values[:1], *map(sub, values[1:], values)]


def _format_box(sheet: str, corners: Sequence[tuple[int, str, int]]) -> str:
    """Return the cells around all corners: length and letters of the column, and the row."""
    rows = [row for *_, row in corners]
    first, last = f"{min(corners)[1]}{min(rows)}", f"{max(corners)[1]}{max(rows)}"
    return f"{sheet}!{first}" if first == last else f"{sheet}!{first}:{last}"


def format_count(unit: str, first: float | None, last: float | None, *, dash: str = "-") -> str:
    """Return ``page 3`` or ``pages 3-4``; "" without a first number."""
    if first is None:
        return ""
    return f"{unit} {first}" if last in (None, first) else f"{unit}s {first}{dash}{last}"


@dataclass(slots=True)
class PlacesBuilder:
    """Collect the steps of a text in order, without those that the previous step implies."""

    unit: Unit
    _steps: list[tuple[int, int, int | None, str]] = field(default_factory=list)

    def add(self, offset: int, number: int, line: int | None = None, area: str = "") -> None:
        """Add a step: the text has this number from ``offset`` on, which must not decrease."""
        step = offset, number, line, area
        if self._steps and self._steps[-1][1:] == step[1:]:
            return
        if self._steps and self._steps[-1][0] == offset:
            self._steps.pop()
        self._steps.append(step)

    def add_all(self, places: Places, start: int) -> None:
        """Add the steps of a part that begins at ``start``."""
        for offset, number, line, area in places.steps():
            self.add(start + offset, number, line, area)

    def places(self) -> Places:
        """Return the map."""
        offsets, numbers, lines, areas = zip(*self._steps, strict=True) if self._steps else [()] * 4
        lines = lines if any(line is not None for line in lines) else ()
        return Places(self.unit, offsets, numbers, lines, areas if any(areas) else ())


def format_clock(seconds: float) -> str:
    """Return ``12:34``, or ``1:02:03`` from an hour on; fractions of a second are dropped."""
    hours, minute, second = format_timecode(seconds).split(":")
    return f"{int(hours)}:{minute}:{second}" if int(hours) else f"{int(minute)}:{second}"


def whole_second(seconds: float) -> int:
    """Return the second in which a moment falls, never below 0."""
    return max(0, int(seconds))
