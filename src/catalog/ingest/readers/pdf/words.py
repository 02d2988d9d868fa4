"""Read the words of a PDF page with their places.

PDFium returns the characters of a page in drawing order, with white space where it sees a gap.
Drawing order is not taken for reading order here; only the characters between two gaps are taken
for a word. A page is read in few calls, because calls are slow.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from catalog.core.text import storable
from catalog.ingest.readers.pdf.right_to_left import (
    RIGHT_TO_LEFT,
    STRETCH,
    count_directions,
    is_logical,
)

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0))),
    **dict.fromkeys((0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060)),
    **dict.fromkeys((*range(0x2066, 0x206A), 0xFEFF, 0xFFFF)),
    **dict.fromkeys((0x02, 0xFFFE), "-"),  # PDFium's marks for a hyphen at the end of a line
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
    0xFB03: "ffi",
    0xFB04: "ffl",
    0xFB05: "st",
    0xFB06: "st",
    0xF0B7: "•",
}
_ACCENTS = dict(
    zip(
        "´¨ˆ˜¯˘˙˚ˇ",
        "\u0301\u0308\u0302\u0303\u0304\u0306\u0307\u030a\u030c",
        strict=True,
    )
)
_ACCENTED = re.compile(f"([{''.join(_ACCENTS)}])([^\\W\\d_])")
_LETTERS = {"ı": "i", "ȷ": "j"}


def _clean(text: str) -> str:
    """Remove control characters and ligatures, and join accents with letters."""
    return storable(_ACCENTED.sub(_compose, text.translate(_REPLACED)))


def _compose(match: re.Match[str]) -> str:
    # TeX draws an accent and then the letter under it.
    whole = unicodedata.normalize("NFC", _LETTERS.get(match[2], match[2]) + _ACCENTS[match[1]])
    return whole if len(whole) == 1 else match[0]


def _read_characters(textpage: PdfTextPage) -> str:
    """Return the page's characters; read them one by one only if PDFium leaves some out."""
    import pypdfium2.raw as pdfium

    count = textpage.count_chars()
    buffer = (ctypes.c_ushort * (2 * count + 2))()
    written = pdfium.FPDFText_GetText(textpage.raw, 0, count, buffer)
    units = memoryview(buffer)[: max(0, written - 1)]
    text = bytes(units).decode("utf-16-le", "replace")
    if len(text) == count and "\ufffd" not in text:
        return text
    codes = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
    return "".join(chr(code) if code < 0x110000 else "\ufffd" for code in codes)


_RUN = re.compile(r"\S+")
_LINE = re.compile(r"[^\n]+")
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
class _Run:
    """A word as drawn: its begin, end and direction (in quarter turns).

    ``letters`` are the numbers of its characters and of the white space before it, if its line has
    right-to-left letters.
    """

    text: str
    start: tuple[float, float]
    end: tuple[float, float]
    size: float
    turn: int | None
    bold: bool
    spaced: bool
    letters: range = range(0)


@dataclass(slots=True)
class _TextObject:
    """Properties that all letters of one text object of the page share."""

    turn: int | None
    origin: tuple[float, float]
    size: float
    bold: bool
    is_mirrored: bool


class _PageScan:
    """Read one text page with two boxes for a word instead of one for a letter, to save calls."""

    def __init__(self, textpage: PdfTextPage) -> None:
        import pypdfium2.raw as pdfium

        self._pdfium: Any = pdfium
        self._text = _read_characters(textpage)
        self._raw = textpage.raw
        self._page = ctypes.cast(textpage.raw, ctypes.c_void_p).value
        self._rect = pdfium.FS_RECTF()
        self._to_rect = ctypes.byref(self._rect)
        self._get_box = _direct("FPDFText_GetLooseCharBox", 3)
        self._get_object = _direct("FPDFText_GetTextObject", 2)
        self._objects: dict[int | None, _TextObject] = {}
        self._fonts: dict[int, bool] = {}

    def runs(self) -> Iterator[_Run]:
        """Yield the words as drawn, also split where the pen jumps without visible white space."""
        end = 0
        from_right, from_left = count_directions(self._text)
        for line in _LINE.finditer(self._text):
            by_place = from_right > from_left or RIGHT_TO_LEFT.search(line[0]) is not None
            for match in _RUN.finditer(self._text, line.start(), line.end()):
                first, stop = match.span()
                gap = range(end, first)
                for start, after in self._split_at_jumps(first, stop):
                    text = self._text[start:after]
                    if not (text.isascii() and text.isprintable()):
                        text = _clean(text) or STRETCH * by_place
                    if text:
                        run = self._run(text, start, after - 1, gap)
                        if by_place:
                            run.letters = range(gap.start if gap else start, after)
                        yield run
                    gap = range(0)
                end = stop

    def letters(self, run: _Run) -> list[_Run]:
        """Return the letters of a run one by one, after spaces for the white space before it.

        A letter without a meaning becomes a stretched line, as in justified Arabic.
        """
        x = ctypes.c_double()
        letters: list[_Run] = []
        for index in run.letters:
            is_space = self._text[index].isspace()
            letter = self._run(_clean(self._text[index]) or STRETCH, index, index, range(0))
            if is_space and letter.start == letter.end:
                continue
            letter.text = " " if is_space else letter.text
            if letter.turn == 0 and not unicodedata.combining(letter.text[0]):
                # The pen stood here; the box may only be that of the ink.
                self._pdfium.FPDFText_GetCharOrigin(self._raw, index, x, ctypes.c_double())
                letter.start = min(x.value, letter.start[0]), letter.start[1]
            letters.append(letter)
        is_mirrored = self._objects[self._get_object(self._page, run.letters[-1])].is_mirrored
        if is_mirrored and RIGHT_TO_LEFT.search(run.text) is None:
            # OCR draws numbers like the Hebrew around them: from right to left.
            drawn = [letter for letter in letters if letter.text != " "]
            ends = [letter.start[0] for letter in drawn] + [letter.end[0] for letter in drawn]
            edges = min(ends) + max(ends)
            for letter in drawn:
                (x0, y), (x1, _) = letter.start, letter.end
                letter.start, letter.end = (edges - x1, y), (edges - x0, y)
        return letters

    def _split_at_jumps(self, start: int, stop: int) -> list[tuple[int, int]]:
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

    def _run(self, text: str, start: int, last: int, gap: range) -> _Run:
        address = self._get_object(self._page, start)
        shared = self._objects.get(address)
        if shared is None:
            shared = self._objects[address] = self._read_object(start)
        left, bottom, right, top = box = self._box(start)
        left1, bottom1, right1, top1 = self._box(last) if last > start else box
        x, y = shared.origin
        turn = shared.turn
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
        return _Run(text, *ends, shared.size, turn, shared.bold, spaced)

    def _read_object(self, index: int) -> _TextObject:
        pdfium = self._pdfium
        matrix = pdfium.FS_MATRIX()
        pdfium.FPDFText_GetMatrix(self._raw, index, matrix)
        size = pdfium.FPDFText_GetFontSize(self._raw, index) * math.hypot(matrix.c, matrix.d)
        is_mirrored = matrix.a * matrix.d < matrix.b * matrix.c  # as OCR draws Hebrew
        turn = _quarter_turns(*((-matrix.a, -matrix.b) if is_mirrored else (matrix.a, matrix.b)))
        if not _SIZES[0] <= size <= _SIZES[1]:
            left, bottom, right, top = self._box(index)
            size = (right - left if turn in (1, 3) else top - bottom) or 1.0
        return _TextObject(turn, (matrix.e, matrix.f), size, self._is_bold(index), is_mirrored)

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
            is_bold_name = _BOLD_NAME.search(name.value.decode("latin-1")) is not None
            self._fonts[address] = is_bold_name or bool(flags & _FORCE_BOLD)
        return self._fonts[address]


@cache
def _direct(name: str, parameters: int) -> Callable[..., int]:
    """Return a PDFium function that takes and returns addresses as numbers; twice as fast."""
    import pypdfium2.raw as pdfium

    types = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p][:parameters]
    address = ctypes.cast(getattr(pdfium, name), ctypes.c_void_p).value
    result = ctypes.c_void_p if parameters == 2 else ctypes.c_int
    return cast("Callable[..., int]", ctypes.CFUNCTYPE(result, *types)(address or 0))


def _quarter_turns(a: float, b: float) -> int | None:
    angle = math.atan2(b, a)
    turns = round(angle / (math.pi / 2))
    return turns % 4 if abs(angle - turns * math.pi / 2) <= _SKEW else None


@dataclass(frozen=True, slots=True)
class Word:
    """A run of letters; ``order`` is its number in drawing order on the page.

    ``x0`` and ``x1`` are its left and right edge, ``base`` its baseline measured downwards from the
    top, ``size`` the font's size, all in points and in reading direction, so rotated with the page
    or its text. ``spaced``: white space was drawn or seen before it. ``is_mirrored``: the page is
    read from right to left, and edges are measured from its right. ``is_visual``: it is one letter,
    or a space, of a line with right-to-left letters.
    """

    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool
    spaced: bool
    order: int
    is_mirrored: bool = False
    is_visual: bool = False


_PageBox = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class PageWords:
    """The words in the page's main direction, and lines in other directions.

    ``aside`` is text at an angle (a stamp in the margin, a watermark, an upright axis title) as
    plain lines. ``box`` is the visible part of the page: left, bottom, right and top in points, in
    the page's own coordinates; its text is turned by ``turn`` quarters.
    """

    words: list[Word]
    aside: list[str]
    box: _PageBox
    turn: int

    @property
    def height(self) -> float:
        """Return the page's height in the main direction, in points."""
        left, bottom, right, top = self.box
        return right - left if self.turn % 2 else top - bottom

    @property
    def top(self) -> float | None:
        """Return the box's upper edge, or ``None`` if the text is turned."""
        return None if self.turn else self.box[3]

    def to_page(self, x: float, down: float) -> tuple[float, float]:
        """Return a point of a word or a line, with its place in the page's own coordinates."""
        left, bottom, right, top = self.box
        if self.words and self.words[0].is_mirrored:
            x = (top - bottom if self.turn % 2 else right - left) - x
        return (
            (left + x, top - down),
            (left + down, bottom + x),
            (right - x, bottom + down),
            (right - down, top - x),
        )[self.turn]


def read_words(page: PdfPage, textpage: PdfTextPage) -> PageWords:
    """Return the words of an open page that are inside its visible box."""
    left, bottom, right, top = box = page.get_bbox()
    scan = _PageScan(textpage)
    runs = list(scan.runs())
    turns = Counter[int]()
    for run in runs:
        if run.turn is not None:
            turns[run.turn] += len(run.text)
    main = max(sorted(turns), key=lambda turn: turns[turn], default=0)
    words: list[Word] = []
    spelled: list[str] = []
    aside: list[str] = []
    last: tuple[int, int | None] = (-2, None)
    order = -1
    for number, run in enumerate(runs):
        if run.turn != main:
            order += 1
            if _is_inside(run, box):
                if last == (number - 1, run.turn):
                    aside[-1] += " " * run.spaced + run.text
                else:
                    aside.append(run.text)
                last = number, run.turn
            continue
        parts = scan.letters(run) if run.letters else (run,)
        letters: list[Word] = []
        for part in parts:
            order += 1
            if _is_inside(part, box):
                letters.append(_new_word(part, main, box, order, is_visual=bool(run.letters)))
        words += letters
        if run.letters:
            spelled.append("".join(word.text for word in sorted(letters, key=_place)).strip())
    if spelled:
        width = top - bottom if main % 2 else right - left
        words = _set_direction(words, spelled, width)
    return PageWords(words, aside, box, main)


def _is_inside(run: _Run, box: _PageBox) -> bool:
    left, bottom, right, top = box
    x, y = (run.start[0] + run.end[0]) / 2, (run.start[1] + run.end[1]) / 2
    return left <= x <= right and bottom <= y <= top


def _new_word(
    run: _Run,
    turn: int,
    box: _PageBox,
    order: int,
    *,
    is_visual: bool,
) -> Word:
    x0, base = _turn_point(run.start, turn, box)
    x1, _ = _turn_point(run.end, turn, box)
    return Word(
        text=run.text,
        x0=min(x0, x1),
        x1=max(x0, x1),
        base=base,
        size=run.size,
        bold=run.bold,
        spaced=run.spaced,
        order=order,
        is_visual=is_visual,
    )


def _place(word: Word) -> float:
    return word.x0 + word.x1


def _set_direction(words: list[Word], spelled: Sequence[str], width: float) -> list[Word]:
    """Return the words of a page with right-to-left letters, mirrored if most letters are."""
    if is_logical(spelled):
        return [replace(word, is_visual=False) for word in words]
    from_right, from_left = count_directions("".join(word.text for word in words))
    is_mirrored = from_right > from_left
    return [
        replace(
            word,
            x0=width - word.x1 if is_mirrored else word.x0,
            x1=width - word.x0 if is_mirrored else word.x1,
            is_mirrored=is_mirrored,
        )
        for word in words
    ]


def _turn_point(point: tuple[float, float], turn: int, box: _PageBox) -> tuple[float, float]:
    """Return a point as (right, down) from the top left corner in reading direction."""
    (x, y), (left, bottom, right, top) = point, box
    return (
        (x - left, top - y),
        (y - bottom, x - left),
        (right - x, y - bottom),
        (top - y, right - x),
    )[turn]
