"""Reads the words of a PDF page as they are drawn, through PDFium in few calls."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from catalog.ingest.readers.pdf.letters import characters, clean

if TYPE_CHECKING:
    from pypdfium2 import PdfTextPage

_RUN = re.compile(r"\S+")
_BOLD_NAME = re.compile(r"bold|black|heavy|demi|cmbx|sfbx|sfbi|-bd|medi(?!um|a)", re.IGNORECASE)
_FORCE_BOLD = 1 << 18
_SKEW = math.radians(8)
"""Text may lean this much off a right angle and still count as straight."""
_SIZES = (0.5, 1000.0)
"""Font sizes in points that are believed; outside them the height of the letters decides."""
_JUMP = 0.3
_STRETCH = 0.2
"""White space, in letter heights, that parts words between text objects and within one.

Ghostscript writes the end of one word and the start of the next as one object, stretched.
"""


@dataclass(slots=True)
class Run:
    """One word as drawn: where it begins and ends, and which way it runs (quarter turns)."""

    text: str
    start: tuple[float, float]
    end: tuple[float, float]
    size: float
    turn: int | None
    bold: bool
    spaced: bool


@dataclass(slots=True)
class _Drawn:
    """What all letters of one text object of the page share."""

    turn: int | None
    across: tuple[float, float]
    size: float
    bold: bool


class Scan:
    """Reads one text page. Two boxes a word are asked for, not one a letter: calls are dear."""

    def __init__(self, textpage: PdfTextPage) -> None:
        import pypdfium2.raw as pdfium

        self._pdfium: Any = pdfium
        self._text = characters(textpage)
        self._raw = textpage.raw
        self._page = ctypes.cast(textpage.raw, ctypes.c_void_p).value
        self._rect = pdfium.FS_RECTF()
        self._to_rect = ctypes.byref(self._rect)
        self._get_box = _direct("FPDFText_GetLooseCharBox", 3)
        self._get_object = _direct("FPDFText_GetTextObject", 2)
        self._drawn: dict[int | None, _Drawn] = {}
        self._fonts: dict[int, bool] = {}

    def runs(self) -> Iterator[Run]:
        """The words as drawn, split where the pen jumps though no white space was seen."""
        end = 0
        for match in _RUN.finditer(self._text):
            first, stop = match.span()
            gap = range(end, first)
            for start, after in self._unbroken(first, stop):
                text = self._text[start:after]
                if not (text.isascii() and text.isprintable()):
                    text = clean(text)
                if text:
                    yield self._run(text, start, after - 1, gap)
                gap = range(0)
            end = stop

    def _unbroken(self, start: int, stop: int) -> list[tuple[int, int]]:
        page, get_object = self._page, self._get_object
        before = get_object(page, start)
        if stop - start == 1 or before == get_object(page, stop - 1):
            return [(start, stop)]
        parts = [start]
        for index in range(start + 1, stop):
            here = get_object(page, index)
            if self._jumps(index, _JUMP if here != before else _STRETCH):
                parts.append(index)
            before = here
        return list(zip(parts, [*parts[1:], stop], strict=True))

    def _jumps(self, index: int, least: float) -> bool:
        left0, bottom0, right0, top0 = self._box(index - 1)
        left1, bottom1, right1, top1 = self._box(index)
        size = max(top0 - bottom0, top1 - bottom1, right0 - left0, right1 - left1)
        across = max(left1 - right0, left0 - right1)
        along = max(bottom1 - top0, bottom0 - top1)
        return max(across, along) > least * size

    def _run(self, text: str, start: int, last: int, gap: range) -> Run:
        address = self._get_object(self._page, start)
        drawn = self._drawn.get(address)
        if drawn is None:
            drawn = self._drawn[address] = self._look(start)
        left, bottom, right, top = box = self._box(start)
        left1, bottom1, right1, top1 = self._box(last) if last > start else box
        x, y = drawn.across
        turn = drawn.turn
        if turn == 0:
            ends = (left, y), (right1, y)
        elif turn == 1:
            ends = (x, bottom), (x, top1)
        elif turn == 2:
            ends = (right, y), (left1, y)
        elif turn == 3:
            ends = (x, top), (x, bottom1)
        else:
            ends = (left, bottom), (right1, top1)
        # In upright text PDFium sees gaps where there are none: only drawn spaces count there.
        is_generated = self._pdfium.FPDFText_IsGenerated
        spaced = bool(gap) and (not turn or not all(is_generated(self._raw, at) for at in gap))
        return Run(text, *ends, drawn.size, turn, drawn.bold, spaced)

    def _look(self, index: int) -> _Drawn:
        pdfium = self._pdfium
        matrix = pdfium.FS_MATRIX()
        pdfium.FPDFText_GetMatrix(self._raw, index, matrix)
        size = pdfium.FPDFText_GetFontSize(self._raw, index) * math.hypot(matrix.c, matrix.d)
        turn = _quarter_turns(matrix.a, matrix.b)
        if not _SIZES[0] <= size <= _SIZES[1]:
            left, bottom, right, top = self._box(index)
            size = (right - left if turn in (1, 3) else top - bottom) or 1.0
        return _Drawn(turn, (matrix.e, matrix.f), size, self._is_bold(index))

    def _box(self, index: int) -> tuple[float, float, float, float]:
        rect = self._rect
        self._get_box(self._page, index, self._to_rect)
        return rect.left, rect.bottom, rect.right, rect.top

    def _is_bold(self, index: int) -> bool:
        pdfium = self._pdfium
        drawn = pdfium.FPDFText_GetTextObject(self._raw, index)
        font = pdfium.FPDFTextObj_GetFont(drawn) if drawn else None
        if not font:
            return False
        address = ctypes.addressof(font.contents)
        if address not in self._fonts:
            name = ctypes.create_string_buffer(256)
            pdfium.FPDFFont_GetBaseFontName(font, name, 256)
            flags = max(0, pdfium.FPDFFont_GetFlags(font))
            named = _BOLD_NAME.search(name.value.decode("latin-1")) is not None
            self._fonts[address] = named or bool(flags & _FORCE_BOLD)
        return self._fonts[address]


@cache
def _direct(name: str, arguments: int) -> Callable[..., int]:
    """A PDFium function that takes and answers addresses as numbers: half the cost of a call."""
    import pypdfium2.raw as pdfium

    kinds = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p][:arguments]
    address = ctypes.cast(getattr(pdfium, name), ctypes.c_void_p).value
    result = ctypes.c_void_p if arguments == 2 else ctypes.c_int
    return cast("Callable[..., int]", ctypes.CFUNCTYPE(result, *kinds)(address or 0))


def _quarter_turns(a: float, b: float) -> int | None:
    angle = math.atan2(b, a)
    turns = round(angle / (math.pi / 2))
    return turns % 4 if abs(angle - turns * math.pi / 2) <= _SKEW else None
