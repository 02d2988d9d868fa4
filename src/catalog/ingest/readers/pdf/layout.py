"""Read the words of a PDF page with their places; join them to lines, blocks and paragraphs.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from catalog.core.text import storable

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0))),
    **dict.fromkeys((0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF, 0xFFFF)),
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
    """A word as drawn: its begin, end and direction (in quarter turns)."""

    text: str
    start: tuple[float, float]
    end: tuple[float, float]
    size: float
    turn: int | None
    bold: bool
    spaced: bool


@dataclass(slots=True)
class _TextObject:
    """Properties that all letters of one text object of the page share."""

    turn: int | None
    origin: tuple[float, float]
    size: float
    bold: bool


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
        for match in _RUN.finditer(self._text):
            first, stop = match.span()
            gap = range(end, first)
            for start, after in self._split_at_jumps(first, stop):
                text = self._text[start:after]
                if not (text.isascii() and text.isprintable()):
                    text = _clean(text)
                if text:
                    yield self._run(text, start, after - 1, gap)
                gap = range(0)
            end = stop

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
        turn = _quarter_turns(matrix.a, matrix.b)
        if not _SIZES[0] <= size <= _SIZES[1]:
            left, bottom, right, top = self._box(index)
            size = (right - left if turn in (1, 3) else top - bottom) or 1.0
        return _TextObject(turn, (matrix.e, matrix.f), size, self._is_bold(index))

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
    or its text. ``spaced``: white space was drawn or seen before it.
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
    """The words in the page's main direction, and lines in other directions.

    ``aside`` is text at an angle (a stamp in the margin, a watermark, an upright axis title) as
    plain lines. ``height`` is the page's in the main direction, in points. ``top`` is the upper
    edge of its visible box in the page's own coordinates, or ``None`` if its text is turned.
    """

    words: list[Word]
    aside: list[str]
    height: float
    top: float | None


def read_words(page: PdfPage, textpage: PdfTextPage) -> PageWords:
    """Return the words of an open page that are inside its visible box."""
    left, bottom, right, top = box = page.get_bbox()
    runs = list(_PageScan(textpage).runs())
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
        x0, base = _turn_point(run.start, main, box)
        x1, _ = _turn_point(run.end, main, box)
        words.append(
            Word(run.text, min(x0, x1), max(x0, x1), base, run.size, run.bold, run.spaced, order)
        )
    height = right - left if main % 2 else top - bottom
    return PageWords(words, aside, height, top if main == 0 else None)


def _turn_point(
    point: tuple[float, float], turn: int, box: tuple[float, float, float, float]
) -> tuple[float, float]:
    """Return a point as (right, down) from the top left corner in reading direction."""
    (x, y), (left, bottom, right, top) = point, box
    return (
        (x - left, top - y),
        (y - bottom, x - left),
        (right - x, y - bottom),
        (top - y, right - x),
    )[turn]


@dataclass(slots=True)
class Piece:
    """Words on one baseline without a wide gap; ``first`` and ``last`` in drawing order."""

    words: list[Word]
    x0: float
    x1: float
    base: float
    size: float
    first: int
    last: int
    letters: int

    def add(self, other: Piece) -> None:
        """Add the words of an adjacent piece."""
        if other.letters > self.letters:
            self.base, self.size = other.base, other.size
        self.words += other.words
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.letters += other.letters

    @property
    def top(self) -> float:
        """Estimate the upper edge of its letters."""
        return self.base - 0.75 * self.size

    @property
    def bottom(self) -> float:
        """Estimate the lower edge of its letters."""
        return self.base + 0.2 * self.size


def share_line(piece: Piece, other: Piece) -> bool:
    """Return whether two pieces overlap vertically by at least half of the smaller height."""
    if piece.base == other.base:
        return True
    # Edges as above, written out: a page asks this for each pair of neighbours.
    bottom = min(piece.base + 0.2 * piece.size, other.base + 0.2 * other.size)
    shared = bottom - max(piece.base - 0.75 * piece.size, other.base - 0.75 * other.size)
    return shared >= 0.475 * min(piece.size, other.size)


def join_words(words: Iterable[Word]) -> list[Piece]:
    """Join consecutive words that are close together on a line, then pieces by place only."""
    drawn = _join_neighbours(map(_new_piece, words), _is_next_word)
    return [piece for row in _rows(drawn) for piece in _join_neighbours(row, _touches)]


def join_as_drawn(words: Iterable[Word]) -> list[Piece]:
    """Join words to lines by drawing order only."""
    return _join_neighbours(
        map(_new_piece, words), lambda line, word: share_line(line, word) and word.x0 >= line.x0
    )


def _new_piece(word: Word) -> Piece:
    return Piece(
        [word], word.x0, word.x1, word.base, word.size, word.order, word.order, len(word.text)
    )


def _join_neighbours(
    pieces: Iterable[Piece], belong: Callable[[Piece, Piece], bool]
) -> list[Piece]:
    """Join each piece to the previous one if the two ``belong`` together."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and belong(joined[-1], piece):
            joined[-1].add(piece)
        else:
            joined.append(piece)
    return joined


def _is_next_word(piece: Piece, word: Piece) -> bool:
    return share_line(piece, word) and -0.3 <= _gap(piece, word) <= 1.0


def _touches(piece: Piece, other: Piece) -> bool:
    return -0.3 <= _gap(piece, other) <= (1.0 if other.first == piece.last + 1 else 0.5)


def _gap(piece: Piece, other: Piece) -> float:
    """Return the white space between two pieces, in letter sizes."""
    return (other.x0 - piece.x1) / max(piece.size, other.size)


def _rows(region: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield the lines from top to bottom, each as its pieces from left to right."""
    row: list[Piece] = []
    tallest: Piece | None = None
    for piece in sorted(region, key=lambda piece: (piece.base, piece.x0)):
        if tallest is not None and not share_line(tallest, piece):
            yield sorted(row, key=lambda piece: piece.x0)
            row, tallest = [], None
        row.append(piece)
        if tallest is None or piece.size > tallest.size:
            tallest = piece
    if row:
        yield sorted(row, key=lambda piece: piece.x0)


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of a page, or the part of it that belongs to a block.

    ``base`` is its baseline, in points from the top; ``x0`` and ``x1`` are its edges, ``size`` the
    size of most of its letters, ``first`` the number of its first word in drawing order.
    ``starts``: a paragraph begins with it. ``margin`` is "top" or "bottom" at the place of running
    titles and page numbers, "aside" for text in another direction, else "". ``cells`` are the parts
    with wide gaps between, from left to right.
    """

    text: str
    base: float = 0.0
    size: float = 0.0
    bold: bool = False
    x0: float = 0.0
    x1: float = 0.0
    first: int = 0
    starts: bool = False
    margin: str = ""
    cells: tuple[str, ...] = ()


_MOST_BLOCKS = 50
"""Blocks side by side."""
_SOFT_HYPHEN = "\u00ad"
_CELL_GAP = 1.0
"""White space, in letter sizes, that parts the cells of a table."""


def build_rows(region: Iterable[Piece]) -> list[list[PageLine]]:
    """Return the lines at each height; consecutively drawn pieces are joined, as in tables."""
    return [
        [build_line(piece.words) for piece in _join_neighbours(row, _is_next_cell)]
        for row in _rows(region)
    ]


def _is_next_cell(piece: Piece, other: Piece) -> bool:
    return other.first == piece.last + 1 or _gap(piece, other) <= 1.0


def build_line(words: list[Word]) -> PageLine:
    """Build the line of these words, from right to left if its script requires it."""
    words = sorted(words, key=lambda word: word.x0)
    if _is_right_to_left(words):
        words.reverse()
    letters = Counter[float]()
    for word in words:
        letters[word.size] += len(word.text)
    size = max(sorted(letters), key=lambda size: letters[size])
    text = words[0].text
    for before, word in pairwise(words):
        text += (" " if _is_space(before, word) else "") + word.text
    return PageLine(
        text=text[:-1].replace(_SOFT_HYPHEN, "") + text[-1],
        base=median(word.base for word in words if word.size == size),
        size=size,
        bold=2 * sum(len(word.text) for word in words if word.bold) > letters.total(),
        x0=min(word.x0 for word in words),
        x1=max(word.x1 for word in words),
        first=min(word.order for word in words),
        cells=_split_cells(words, size),
    )


def _split_cells(words: Sequence[Word], size: float) -> tuple[str, ...]:
    words = sorted(words, key=lambda word: word.x0)
    cells = [words[0].text]
    for before, word in pairwise(words):
        if word.x0 - before.x1 > _CELL_GAP * size:
            cells.append(word.text)
        else:
            cells[-1] += (" " if _is_space(before, word) else "") + word.text
    return tuple(cells) if len(cells) > 1 else ()


def _is_space(before: Word, word: Word) -> bool:
    if word.order == before.order + 1 and word.spaced:
        return True
    gap = max(word.x0 - before.x1, before.x0 - word.x1)
    return gap > 0.18 * max(before.size, word.size)


def _is_right_to_left(words: Sequence[Word]) -> bool:
    if all(word.text.isascii() for word in words):
        return False
    text = "".join(word.text for word in words)
    directions = Counter(unicodedata.bidirectional(letter) for letter in text)
    return directions["R"] + directions["AL"] > directions["L"]


def group_blocks(rows: Sequence[Sequence[PageLine]]) -> list[list[PageLine]]:
    """Group lines that are below each other; without lines side by side this is one group.

    Blocks follow drawing order, unless the drawing went back and forth. They are read by their
    first line: the cells of a table row from left to right, a note in the margin after the text
    that begins above it.
    """
    lines = [line for row in rows for line in row]
    if len(lines) == len(rows):
        return [lines]
    blocks: list[list[PageLine]] = []
    for line in sorted(lines, key=lambda line: line.first):
        if blocks and _is_under(line, blocks[-1][-1]):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    if 2 * len(blocks) > len(lines) + 2:
        blocks = _blocks_by_place(lines)
    return _order_blocks(blocks)


def _blocks_by_place(lines: Sequence[PageLine]) -> list[list[PageLine]]:
    blocks: list[list[PageLine]] = []
    current: list[list[PageLine]] = []
    for line in lines:
        current = [block for block in current if line.base - block[-1].base < 3 * line.size]
        current = current[-_MOST_BLOCKS:]
        above = next((block for block in current if _is_under(line, block[-1])), None)
        if above is None:
            above = []
            blocks.append(above)
            current.append(above)
        above.append(line)
    return blocks


def _is_under(line: PageLine, above: PageLine) -> bool:
    is_near = 0 < line.base - above.base <= 1.8 * max(above.size, line.size)
    return is_near and line.x0 < above.x1 and above.x0 < line.x1


def _order_blocks(blocks: Iterable[list[PageLine]]) -> list[list[PageLine]]:
    """Sort blocks from top to bottom; those that begin at the same height from left to right."""
    levels: list[list[list[PageLine]]] = []
    for block in sorted(blocks, key=lambda block: block[0].base):
        head = block[0]
        if not levels or head.base - levels[-1][0][0].base > 0.3 * head.size:
            levels.append([])
        levels[-1].append(block)
    return [block for level in levels for block in sorted(level, key=lambda block: block[0].x0)]


def find_paragraphs(lines: Sequence[PageLine]) -> Iterator[tuple[PageLine, bool]]:
    """Yield each line, and whether a paragraph begins with it.

    A paragraph begins after more white space than between most lines, where the size of letters
    changes, and at an indented line after a line at the edge, unless the indent continues.
    """
    steps = [
        round(line.base - above.base, 1)
        for above, line in pairwise(lines)
        if 0 < line.base - above.base <= 2.5 * line.size
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
        is_apart = step > 1.25 * usual_here or step < -0.5 * line.size
        is_resized = abs(line.size - above.size) > 0.12 * max(line.size, above.size)
        below = lines[index + 1] if index + 1 < len(lines) else None
        yield line, is_apart or is_resized or _is_indented(above, line, below, edge)


def _is_indented(above: PageLine, line: PageLine, below: PageLine | None, edge: float) -> bool:
    indent = (line.x0 - above.x0) / line.size
    if not 0.8 <= indent <= 4.0 or above.x0 > edge + 0.5 * line.size:
        return False
    return below is not None and below.x0 < line.x0 - 0.5 * line.size and above.text[-1] in ".!?:…"
