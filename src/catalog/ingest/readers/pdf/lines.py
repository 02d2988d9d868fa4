"""Read the lines of PDF pages in the order of PDFium, drop what repeats, and join them to one text.

PDFium gives the letters of a page one by one, and their text objects: all letters of an object have
one font, size and baseline. So a line of one object takes few calls, whatever its length.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.text import storable
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.pdf import right_to_left as rtl

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200B, 0x200E, 0x200F, 0x2060)),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xFFFF)),
    **dict.fromkeys((0x02, 0xFFFE), "-"),  # PDFium's marks for a hyphen at the end of a line
    **dict(zip(range(0xFB00, 0xFB07), ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True)),
    0xF0B7: "•",
}
_ACCENTS = str.maketrans("´¨ˆ˜¯˘˙˚ˇ", "\u0301\u0308\u0302\u0303\u0304\u0306\u0307\u030a\u030c")
_ACCENTED = re.compile(r"([´¨ˆ˜¯˘˙˚ˇ])([^\W\d_])")  # TeX draws an accent, then the letter under it
_LINE, _WORD = re.compile("[^\r\n\x02\ufffe]+[\x02\ufffe]?"), re.compile(r"\S+")
_BOLD = re.compile(rb"bold|black|heavy|demi|cmbx|sfbx|sfbi|-bd|medi(?!um|a)", re.IGNORECASE)
_FORCE_BOLD = 1 << 18
_SKEW = 0.09
"""Quarter turns by which text may lean and still count as straight."""
_SIZES = (0.5, 1000.0)
"""Font sizes in points that are believed; outside them the height of the letters decides."""
_GAP, _CELL_GAP, _JUMP = 0.18, 1.0, 0.2
"""White space, in sizes of letters, that parts words, cells, and words within one object."""
_WIDTH = 0.5
"""Width of a letter of running text, in sizes; gaps inside an object are looked for above it."""
_SMALL, _MOVED = 0.85, 0.08
"""Size of raised and lowered letters, at most, and how far they are moved, at least."""
_MAY_BE_MARKED = re.compile(r"[^\W_](?:[^\W_]|[+−-])|[.,;:!?)”\"][^\W_]")
_SPACED_OUT = re.compile(r"(?:[^\W\d_] ){4,}[^\W\d_]")
_FEWEST_NUMBERS, _NUMBERED = 4, re.compile(r"(\d{1,4})(?:\s+|$)")
_MARGIN = 0.1
"""The part of a page's height at its top and bottom in which running titles stand."""


class _Style(NamedTuple):
    """What the letters of a text object share; ``turn`` is its direction in quarter turns."""

    base: float
    size: float
    bold: bool
    turn: int | None
    is_mirrored: bool = False


@dataclass(slots=True)
class Line:
    """A line of a page.

    ``base`` is its baseline, measured downwards from the page's top in the direction of reading,
    ``x0`` and ``x1`` its edges, ``y`` its height above the page's origin, ``size`` that of most
    letters, all in points. ``first`` and ``stop`` delimit its characters in PDFium's numbering,
    ``start`` and ``end`` in the text of the document. ``starts``: a paragraph begins with it.
    ``margin`` is "top" or "bottom" where running titles stand, "aside" for text in another
    direction, else "". ``cells`` have wide gaps between.
    """

    text: str
    base: float = 0.0
    size: float = 0.0
    bold: bool = False
    turn: int | None = 0
    y: float = 0.0
    x0: float = 0.0
    x1: float = 0.0
    first: int = 0
    stop: int = 0
    start: int = 0
    end: int = 0
    starts: bool = True
    margin: str = "aside"
    cells: tuple[str, ...] = ()


class _Scan:
    """The characters of a page, with their styles and edges."""

    def __init__(self, page: PdfPage, textpage: PdfTextPage) -> None:
        import pypdfium2.raw as pdfium

        self._pdfium: Any = pdfium
        self.text = _read_characters(textpage)
        self.bounds = page.get_bbox()
        self._raw, self._page = textpage.raw, ctypes.cast(textpage.raw, ctypes.c_void_p).value
        self._rect, self._matrix = pdfium.FS_RECTF(), pdfium.FS_MATRIX()
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._get_box = _direct("FPDFText_GetLooseCharBox", number, pointer, number, pointer)
        self._get_matrix = _direct("FPDFText_GetMatrix", number, pointer, number, pointer)
        self._get_size = _direct("FPDFText_GetFontSize", ctypes.c_double, pointer, number)
        self._get_object = _direct("FPDFText_GetTextObject", pointer, pointer, number)
        self._get_font = _direct("FPDFTextObj_GetFont", pointer, pointer)
        self._styles: dict[int | None, _Style] = {}
        self._is_bold: dict[int | None, bool] = {}
        self._is_mixed = rtl.RIGHT_TO_LEFT.search(self.text) is not None
        from_right, from_left = rtl.count_directions(self.text if self._is_mixed else "")
        self.is_mirrored = from_right > from_left

    def object(self, index: int) -> int | None:
        """Return the address of a character's text object; ``None`` if PDFium made it up."""
        drawn: int | None = self._get_object(self._page, index)
        return drawn

    def style(self, index: int) -> _Style:
        """Return the style of a character's text object."""
        drawn = self.object(index)
        if drawn in self._styles:
            return self._styles[drawn]
        self._get_matrix(self._page, index, ctypes.byref(self._matrix))
        a, b, c, d = self._matrix.a, self._matrix.b, self._matrix.c, self._matrix.d
        is_mirrored = a * d < b * c  # as OCR draws Hebrew
        quarters = (math.atan2(-b, -a) if is_mirrored else math.atan2(b, a)) / (math.pi / 2)
        turn = round(quarters) % 4 if abs(quarters - round(quarters)) <= _SKEW else None
        size = self._get_size(self._page, index) * math.hypot(c, d)
        if not _SIZES[0] <= size <= _SIZES[1]:
            left, bottom, right, top = self._box(index)
            size = (right - left if turn in (1, 3) else top - bottom) or 1.0
        font = self._get_font(drawn) if drawn else None
        if font not in self._is_bold:
            name, flags = ctypes.create_string_buffer(256), ctypes.c_int()
            self._pdfium.FPDFText_GetFontInfo(self._raw, index, name, 256, flags)
            self._is_bold[font] = bool(flags.value & _FORCE_BOLD or _BOLD.search(name.value))
        base = round(self._turned(self._matrix.e, self._matrix.f, turn)[1], 1)
        style = _Style(base, round(size, 1), self._is_bold[font], turn, is_mirrored)
        self._styles[drawn] = style
        return style

    def _box(self, index: int) -> tuple[float, float, float, float]:
        self._get_box(self._page, index, ctypes.byref(self._rect))
        return self._rect.left, self._rect.bottom, self._rect.right, self._rect.top

    def _turned(self, x: float, y: float, turn: int | None) -> tuple[float, float]:
        """Return a point as (right, down) from the top left corner in the direction of reading."""
        left, bottom, right, top = self.bounds
        upright = (x - left, top - y), (y - bottom, x - left)
        return (*upright, (right - x, y - bottom), (top - y, right - x))[turn or 0]

    def edges(self, index: int, turn: int | None) -> tuple[float, float]:
        """Return where a character begins and ends in the direction of reading."""
        left, bottom, right, top = self._box(index)
        if not turn:
            return left - self.bounds[0], right - self.bounds[0]
        ends = self._turned(left, bottom, turn)[0], self._turned(right, top, turn)[0]
        return min(ends), max(ends)

    def extent(self, turn: int | None) -> tuple[float, float]:
        """Return width and height of the page in the direction of reading."""
        left, bottom, right, top = self.bounds
        return (top - bottom, right - left) if turn in (1, 3) else (right - left, top - bottom)

    def lines(self) -> Iterator[Line]:
        """Yield the lines as PDFium breaks them, but join those it broke at a raised letter."""
        pieces = [line for at in _LINE.finditer(self.text) if (line := self._find(*at.span()))]
        first = -1
        for at, piece in enumerate(pieces):
            first = piece.first if first < 0 else first
            after = pieces[at + 1] if at + 1 < len(pieces) else None
            if after is None or not _is_one(piece, after, in_any_order=self.is_by_place(after)):
                line = (self._find(first, piece.stop) if first < piece.first else None) or piece
                (self._spell_places if self.is_by_place(line) else self._spell)(line)
                first = -1
                if line.text:
                    yield line

    def is_by_place(self, line: Line) -> bool:
        """Return whether the places of a line's letters tell their order, not PDFium."""
        if self.is_mirrored or not self._is_mixed:
            return self.is_mirrored
        return rtl.RIGHT_TO_LEFT.search(self.text, line.first, line.stop) is not None

    def _find(self, first: int, stop: int) -> Line | None:
        """Return the line of these characters, without its text; ``None`` if nothing is visible."""
        text = self.text[first:stop]
        first, stop = stop - len(text.lstrip()), first + len(text.rstrip())
        if first >= stop:
            return None
        style = self.style(first)
        if style is not self.style(stop - 1):
            letters = Counter[_Style]()
            for word in _WORD.finditer(self.text, first, stop):
                letters[self.style(word.start())] += len(word[0])
            style = max(letters, key=lambda one: letters[one])
        ends = (*self.edges(first, style.turn), *self.edges(stop - 1, style.turn))
        width, height = self.extent(style.turn)
        if min(ends) > width or max(ends) < 0 or not 0 <= style.base <= height:
            return None
        y = self.bounds[3] - style.base  # if the page is upright
        return Line("", *style[:4], y, min(ends), max(ends), first, stop)

    def _spell(self, line: Line) -> None:
        """Set the text and the cells of a line."""
        words = [match.span() for match in _WORD.finditer(self.text, line.first, line.stop)]
        is_wide = line.x1 - line.x0 > _WIDTH * line.size * (line.stop - line.first)
        cells, last, before = [""], 0, self.object(line.first)
        if not is_wide and before == self.object(line.stop - 1):
            cells, words = [self.text[line.first : line.stop]], []
        for start, end in words:
            drawn, gap = self.object(start), 0.0
            if last and (is_wide or drawn != before):
                gap = self.edges(start, line.turn)[0] - self.edges(last - 1, line.turn)[1]
            if gap > _CELL_GAP * line.size:
                cells.append("")
            elif last and (gap > _GAP * line.size or self.text[last:start].strip("\r\n")):
                cells[-1] += " "
            last, before = end, self.object(end - 1)
            is_one = drawn == before
            cells[-1] += self.text[start:end] if is_one else self._mark(start, end, line)
        if not cells[1:] and _SPACED_OUT.fullmatch(cells[0]):
            cells = [self._close_up(line)]
        cells = [text for cell in cells if (text := _clean(cell))]
        line.text, line.cells = " ".join(cells), tuple(cells) if cells[1:] else ()

    def _mark(self, start: int, end: int, line: Line) -> str:
        """Return a word with marks around what is raised or lowered, and parted where it jumps.

        Ghostscript writes the end of one word and the start of the next as one object, stretched.
        """
        word, mark, last = "", "", math.inf
        for at in range(start, end):
            style, (x0, x1) = self.style(at), self.edges(at, line.turn)
            moved, found = line.base - style.base, ""
            may_be = mark or (at > start and _MAY_BE_MARKED.match(self.text, at - 1))
            is_small = style.size <= _SMALL * line.size
            if may_be and is_small and abs(moved) >= _MOVED * line.size:
                found = RAISED if moved > 0 else LOWERED
            if found != mark:
                word += (CLOSED if mark else "") + found
            elif x0 - last > _JUMP * line.size:
                word += " "
            word, mark, last = word + self.text[at], found, x1
        return word + (CLOSED if mark else "")

    def _close_up(self, line: Line) -> str:
        """Return the single letters of a line as words: wider gaps are between words."""
        letters = [at for at in range(line.first, line.stop) if not self.text[at].isspace()]
        edges = [self.edges(at, line.turn) for at in letters]
        gaps = [0.0, *(after[0] - before[1] for before, after in pairwise(edges))]
        wide = 1.5 * median(gaps[1:])
        pairs = zip(gaps, letters, strict=True)
        return "".join(" " * (gap > wide) + self.text[at] for gap, at in pairs)

    def _spell_places(self, line: Line) -> None:
        """Set the text of a line: its letters from left to right, as they are seen."""
        letters, pen = list[tuple[str, float, float]](), ctypes.c_double()
        for match in _WORD.finditer(self.text, line.first, line.stop):
            edges = [self.edges(at, line.turn) for at in range(*match.span())]
            both = min(edges)[0] + max(edge for _, edge in edges)
            is_latin = rtl.RIGHT_TO_LEFT.search(match[0]) is None
            for at, (x0, x1) in enumerate(edges, match.start()):
                letter = _clean(self.text[at]) or rtl.STRETCH  # without a meaning
                if is_latin and self.style(at).is_mirrored:  # OCR draws numbers like the Hebrew
                    x0, x1 = both - x1, both - x0
                elif line.turn == 0 and not unicodedata.combining(letter[0]):
                    # The pen stood here; the box may only be that of the ink.
                    self._pdfium.FPDFText_GetCharOrigin(self._raw, at, pen, ctypes.c_double())
                    x0 = min(pen.value, x0)
                letters.append((letter, x0, x1))
        line.x0, line.x1 = min(x0 for _, x0, _ in letters), max(x1 for *_, x1 in letters)
        line.text = rtl.join_letters(letters, _GAP * line.size)


def _clean(text: str) -> str:
    """Return text without control characters, ligatures, accents of their own, and marks."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    text = _ACCENTED.sub(_compose, text.translate(_REPLACED))
    text = " ".join(storable(write_scripts(text)).split())
    return text[:-1].replace("\u00ad", "") + text[-1:]


def _compose(match: re.Match[str]) -> str:
    letter = {"ı": "i", "ȷ": "j"}.get(match[2], match[2])
    whole = unicodedata.normalize("NFC", letter + match[1].translate(_ACCENTS))
    return whole if len(whole) == 1 else match[0]


def _read_characters(textpage: PdfTextPage) -> str:
    """Return the page's characters; read them one by one only if PDFium leaves some out."""
    import pypdfium2.raw as pdfium

    count, text = textpage.count_chars(), textpage.get_text_range(errors="replace")
    if len(text) != count or "\ufffd" in text:
        codes = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
        text = "".join(chr(code) if code < 0x110000 else "\ufffd" for code in codes)
    return re.sub(f"[{RAISED}-{CLOSED}]", "\ufffd", text)


@cache
def _direct(name: str, result: type, *parameters: type) -> Callable[..., Any]:
    """Return a PDFium function that takes and returns addresses as numbers; twice as fast."""
    import pypdfium2.raw as pdfium

    address = ctypes.cast(getattr(pdfium, name), ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(result, *parameters)(address or 0)


def _is_one(line: Line, after: Line, *, in_any_order: bool) -> bool:
    """Return whether PDFium broke a line only because letters are raised or lowered there."""
    size, small = max(line.size, after.size), min(line.size, after.size)
    moved, gap = abs(line.base - after.base), (after.x0 - line.x1) / size
    if line.turn != after.turn:
        return False
    if moved <= 0.1 * size:
        return in_any_order or -0.3 <= gap <= 1.0
    return small <= _SMALL * size and moved < 0.6 * size and -0.3 <= gap <= 0.3


def read_lines(page: PdfPage, textpage: PdfTextPage) -> list[Line]:
    """Return the lines of a page in PDFium's order, without what is outside its visible box."""
    scan = _Scan(page, textpage)
    lines = list(scan.lines())
    visual = [line for line in lines if scan.is_by_place(line)]
    is_logical = rtl.is_logical(word for line in visual for word in line.text.split())
    for line in visual:
        from_right, from_left = rtl.count_directions(line.text)
        if not is_logical:
            is_in_latin = not scan.is_mirrored and from_left > from_right
            line.text = rtl.to_logical(line.text, is_in_latin=is_in_latin)
        line.text = rtl.mend_brackets(line.text)
    turns = Counter[int]()
    for line in lines:
        turns[line.turn or 0] += len(line.text) if line.turn is not None else 0
    main = max(turns, key=lambda turn: turns[turn], default=0)
    height = scan.extent(main)[1]
    for line in lines:
        if line.turn == main:
            line.margin = "top" if line.base <= _MARGIN * height else ""
            line.margin = "bottom" if line.base >= (1 - _MARGIN) * height else line.margin
    lines = _drop_line_numbers(lines, scan)
    _find_paragraphs([line for line in lines if line.margin != "aside"])
    return lines


def _drop_line_numbers(lines: list[Line], scan: _Scan) -> list[Line]:
    """Leave out numbers beside running text that count its lines, or each fifth of them."""
    rests = [(0, 0.0, line.x0, line.text) for line in lines]  # number, its end, what follows
    for at, line in enumerate(lines):
        if match := _NUMBERED.match(line.text):
            stop = line.first + len(match[1])
            after = _WORD.search(scan.text, stop, line.stop)
            edge = scan.edges(after.start(), line.turn)[0] if after else math.inf
            end = scan.edges(stop - 1, line.turn)[1]
            rests[at] = int(match[1]), end, edge, line.text[match.end() :]
    texts = [(edge, text) for _, _, edge, text in rests if text]
    block = median(edge for edge, _ in texts) if texts else 0.0
    beside = [at for at, (number, end, *_) in enumerate(rests) if number and end <= block]
    steps = {rests[after][0] - rests[at][0] for at, after in pairwise(beside)}
    in_prose = 3 * sum(text[0].islower() for _, text in texts) >= len(texts)
    if len(beside) < _FEWEST_NUMBERS or steps not in ({1}, {5}) or not in_prose:
        return lines
    if max(steps) * len(beside) < 0.6 * len(texts):
        return lines
    for at in beside:
        lines[at].x0, lines[at].text = rests[at][2:]
        lines[at].cells = ()
    return [line for line in lines if line.text]


def _find_paragraphs(lines: Sequence[Line]) -> None:
    """Mark the lines with which a paragraph begins.

    It begins after more white space than between most lines, where the size of letters changes, and
    at an indented line after the end of a sentence, unless the indent continues.
    """
    steps = [line.base - above.base for above, line in pairwise(lines)]
    near = [step for step, line in zip(steps, lines, strict=False) if 0 < step <= 2.5 * line.size]
    is_prose = 3 * sum(line.text[0].islower() for line in lines) >= len(lines)
    widest = 2.5 if is_prose else 1.6  # manuscripts have wide lines; so have lists
    usual = median(near) if near else 0.0
    for at, (above, line) in enumerate(pairwise(lines), start=1):
        step, size, ends_with = steps[at - 1], line.size, above.text[-1]
        least = min(max(usual, size), widest * size)
        is_resized = abs(size - above.size) > 0.12 * max(size, above.size)
        is_indented = ends_with in ".!?:…" and 0.8 <= (line.x0 - above.x0) / size <= 4.0
        is_first = is_indented and any(
            one.x0 < line.x0 - 0.5 * size for one in lines[at + 1 : at + 2]
        )
        line.starts = is_resized or is_first or step > 1.25 * least
        if step < -0.5 * size and not is_resized:  # a sentence may go on in the next column
            is_open = ends_with.islower() or ends_with in ",;-‐\u00ad"
            line.starts = not (is_open and line.text[0].islower())


_FEWEST_PAGES, _LARGER = 4, 1.15
"""Pages on which a line repeats; a number above this share of the body's size is a heading."""
_PAGE, _OF = r"(?:(?:page|p[áa]gina|seite|p\.)\s*)?", r"(?:\s*(?:/|of|de|von)\s*\d{1,5})?"
_PAGE_NUMBER = re.compile(
    rf"[-–—•|\s]*{_PAGE}(?:\d{{1,5}}|[ivxlc]{{1,7}}){_OF}[-–—•|\s.]*", re.IGNORECASE
)
_COUNTED = re.compile(  # at the beginning or the end of a line
    rf"^[-–—•|\s]*{_PAGE}(\d{{1,5}}){_OF}(?![^\s|])|(?<![^\s|]){_PAGE}(\d{{1,5}}){_OF}[-–—•|\s.]*$"
)
_LETTERS = re.compile(r"[^\W\d_]+")
_Key = tuple[str, str, int | None, int]
"""Margin and text of a line; with a page number, the text around it and its lead; the height."""


def body_size(pages: Sequence[Sequence[Line]]) -> float:
    """Return the most frequent size of letters, in points; 0 without letters."""
    sizes = Counter[float]()
    for line in chain.from_iterable(pages):
        sizes[line.size] += len(line.text) if line.margin != "aside" else 0
    return max(sorted(sizes), key=lambda size: sizes[size], default=0.0)


def drop_running_lines(pages: Sequence[list[Line]]) -> None:
    """Take page numbers from the pages, and all but one copy of each running title.

    A line in the top or bottom tenth of its page repeats if the same line is at the same height on
    at least four pages, and on at least half of the pages from the first to the last one with it.
    A number in it may differ only if it counts the pages, like one that stands alone. Text at an
    angle is compared wherever it is. A page with nothing else keeps its lines.
    """
    body = body_size(pages)
    keys = [[list(_keys(line, page, body)) for line in on] for page, on in enumerate(pages)]
    seen: dict[_Key, set[int]] = defaultdict(set)
    for page, own in enumerate(keys):
        for key in chain.from_iterable(own):
            seen[key].add(page)
    spread = {key: on for key, on in seen.items() if len(on) >= _FEWEST_PAGES}
    running = {key for key, on in spread.items() if 2 * len(on) > max(on) - min(on)}
    kept: set[tuple[str, str]] = set()
    for lines, own in zip(pages, keys, strict=True):
        repeats = [next((key for key in all_ if key in running), None) for all_ in own]
        if all(repeats):
            continue
        inner = [line for line, key in zip(lines, repeats, strict=True) if key is None]
        tops = [line.base for line in inner if line.margin == "top"]
        bottoms = [line.base for line in inner if line.margin == "bottom"]
        outermost = min(tops, default=None), max(bottoms, default=None)
        rest, starts = list[Line](), False
        for line, all_, repeat in zip(lines, own, repeats, strict=True):
            is_number = _PAGE_NUMBER.fullmatch(line.text) is not None
            counts = any(one[2] == 1 or len(seen[one]) > 1 for one in all_ if one[2] is not None)
            is_lone = is_number and line.base in outermost and (counts or line.text.isalpha())
            starts |= line.starts
            is_new = repeat is not None and repeat[:2] not in kept and not is_number
            if is_new or (repeat is None and not is_lone):
                rest.append(line)
                line.starts, starts = starts, False
            kept |= {repeat[:2]} if repeat is not None else set()
        lines[:] = rest


def _keys(line: Line, page: int, body: float) -> Iterator[_Key]:
    """Yield the keys by which repeated lines are found: the text, and the text without a number.

    A line outside the margins has none; a number counts only if it may be a page number.
    """
    text, height = " ".join(line.text.casefold().split()), round(line.base / 4)
    if line.margin:
        yield line.margin, text, None, height
    if not line.margin or len(text) > 200 or line.size > _LARGER * body:
        return
    for match in _COUNTED.finditer(text):
        rest = f"{text[: match.start()]}#{text[match.end() :]}"
        label = _LETTERS.findall(rest)
        # "Week 3" is a heading; a title and a page number are at two ends of a line.
        if len(label) != 1 or line.x1 - line.x0 > line.size * len(text):
            number = int(match[1] or match[2]) - page
            yield line.margin, rest if label else "#", number, height


_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?:[-‐][^\W\d_]++)++")
_BROKEN = re.compile(r"(?:^|(?<=[\s(\[\"'“‘„«/–—]))((?:[^\W\d_]+[-‐])*)([^\W\d_]{2,})([-‐\u00ad])$")
_BROKEN_PAIR = re.compile(r"(?<!\S)\S++(?<=[-‐\u00ad])\n\S++")
_ALWAYS = frozenset(["well", "self", "half", "quasi", "vice"])
"""First halves that keep their hyphen."""


def join_pages(pages: Sequence[Sequence[Line]]) -> tuple[str, tuple[int, ...]]:
    """Return the text of all pages and the start of each page, and set the places of the lines.

    Lines end with a line feed, paragraphs and pages with a blank line. A page without text begins
    where the next one does. A word broken at the end of a line is joined there, and the line ends
    after it. Its hyphen stays if the word has more hyphens, if it is written with one elsewhere in
    the document, or if only its halves are words there.
    """
    lines = "\n".join(line.text for line in chain.from_iterable(pages))
    inner = _BROKEN_PAIR.sub(" ", lines.casefold().replace("‐", "-"))
    words, compounds = set(_LETTERS.findall(inner)), set(_COMPOUND.findall(inner))
    parts, starts, length = list[str](), [-1] * len(pages), 0
    for page, on_page in enumerate(pages):
        texts = [line.text for line in on_page]
        for at, line in enumerate(on_page):
            is_broken = texts[at][-1:] in ("-", "‐", "\u00ad") and at + 1 < len(texts)
            if is_broken and not on_page[at + 1].starts:
                texts[at : at + 2] = _join_word(texts[at], texts[at + 1], words, compounds)
            text = texts[at].removesuffix("\u00ad")
            if text and parts:
                parts.append("\n" if not line.starts and starts[page] >= 0 else "\n\n")
                length += len(parts[-1])
            if text and starts[page] < 0:
                starts[page] = length
            line.start, line.end = length, length + len(text)
            parts.append(text)
            length += len(text)
    following = length
    for page in reversed(range(len(pages))):
        starts[page] = following = starts[page] if starts[page] >= 0 else following
    return "".join(parts), tuple(starts)


def _join_word(line: str, after: str, words: set[str], compounds: set[str]) -> tuple[str, str]:
    """Return two lines, with a word that is broken between them whole at the end of the first."""
    head, _, rest = after.partition(" ")
    broken, following = _BROKEN.search(line), _LETTERS.match(head)
    if broken is None or following is None or not (head[0].islower() and line[-2].islower()):
        return line, after
    before, fragment, hyphen = broken.groups()
    first, second = fragment.casefold(), following[0].casefold()
    is_compound = before or first in _ALWAYS or f"{first}-{second}" in compounds
    is_compound = is_compound or (first + second not in words and {first, second} <= words)
    return (line if is_compound and hyphen != "\u00ad" else line[:-1]) + head, rest
