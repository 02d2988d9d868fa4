r"""Lines as an editor counts them: from 1, broken by ``\n``, ``\r\n`` or a lone ``\r``.

``str.splitlines`` also breaks at form feeds and Unicode separators, which would make every
later line number wrong.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from catalog.core.models import Locator

_BREAK = re.compile(r"\r\n?|\n")


class Line(NamedTuple):
    """One line: ``text[start:end]`` without its break; the next one starts at ``next``."""

    start: int
    end: int
    next: int


def iter_lines(text: str, start: int = 0) -> Iterator[Line]:
    """The lines from ``start`` on; the empty line after a final break is left out."""
    for found in _BREAK.finditer(text, start):
        yield Line(start, found.start(), found.end())
        start = found.end()
    if start < len(text):
        yield Line(start, len(text), len(text))


class LineIndex:
    """Finds the line of any offset of one text in logarithmic time."""

    def __init__(self, text: str) -> None:
        self._starts = array("q", [0])
        self._starts.extend(found.end() for found in _BREAK.finditer(text))

    def line_of(self, offset: int) -> int:
        """The line, from 1, that holds the character at ``offset``."""
        return bisect_right(self._starts, offset)

    def locator(self, start: int, end: int) -> Locator:
        """The lines of the first and the last character of ``[start, end)``."""
        return Locator(line_start=self.line_of(start), line_end=self.line_of(max(start, end - 1)))
