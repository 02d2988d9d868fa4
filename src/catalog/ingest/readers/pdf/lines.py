"""Read the lines of PDF pages in the order of PDFium, drop what repeats, and join them to one text.

All letters of a text object have one font, size and baseline. So a line of one object takes few
calls, whatever its length.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from statistics import median
from typing import NamedTuple

import pypdfium2.raw as pdfium
from pypdfium2 import PdfPage, PdfTextPage

from catalog.core.text import storable
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.pdf import right_to_left as rtl

_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200B, 0x200E, 0x200F, 0x2060)),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xFFFF)),
    **dict.fromkeys((0x02, 0xFFFE), "-"),  # PDFium's marks for a hyphen at the end of a line
    **dict(zip(range(0xFB00, 0xFB07), ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True)),
}
_ACCENTS = str.maketrans("´¨ˆ˜¯˘˙˚ˇ", "\u0301\u0308\u0302\u0303\u0304\u0306\u0307\u030a\u030c")
_ACCENTED = re.compile(r"([´¨ˆ˜¯˘˙˚ˇ])([^\W\d_])")  # TeX draws an accent, then the letter under it
_LINE, _WORD = re.compile("(?=\\S)[^\r\n\x02\ufffe]+[\x02\ufffe]?"), re.compile(r"\S+")
_BOLD = re.compile(rb"bold|black|heavy|demi|cmbx|sfbx|sfbi|-bd|medi(?!um|a)", re.IGNORECASE)
_SKEW = 0.09  # quarter turns by which text may lean and still count as straight
# In sizes of letters: white space that parts words, cells, and pieces of a word; the width of a
# usual letter, above which gaps inside an object are looked for.
_GAP, _CELL_GAP, _JUMP, _WIDTH = 0.18, 1.0, 0.2, 0.5
_SMALL, _MOVED = 0.85, 0.08  # raised and lowered letters: largest size, smallest move
_MAY_BE_MARKED = re.compile(r"[^\W_](?:[^\W_]|[+−-])|[.,;:!?)”\"][^\W_]")
_SPACED_OUT = re.compile(r"(?:[^\W\d_] ){4,}[^\W\d_]")
_FEWEST_NUMBERS, _NUMBERED = 4, re.compile(r"\A(\d{1,4})(?:\s+|$)")
_MARGIN = 0.1  # part of a page's height at its top and bottom in which running titles stand


class _Style(NamedTuple):
    """What the letters of a text object share; ``turn`` is its direction in quarter turns."""

    base: float
    size: float
    bold: bool
    turn: int | None
    is_mirrored: bool = False


@dataclass(slots=True)
class TextLine:
    """A line of a page, measured in points; ``base`` and ``x0`` in the direction of reading.

    ``first`` and ``stop`` delimit its characters in PDFium's numbering, ``start`` and ``end`` in
    the document. ``starts``: a paragraph begins with it. ``cells`` have wide gaps between.
    """

    text: str
    base: float = 0.0  # distance of its baseline from the page's top
    size: float = 0.0
    bold: bool = False
    turn: int | None = 0
    y: float = 0.0  # height above the page's origin
    x0: float = 0.0
    x1: float = 0.0
    first: int = 0
    stop: int = 0
    start: int = 0
    end: int = 0
    starts: bool = True
    margin: str = "aside"  # text in another direction; or "top", "bottom" or ""
    cells: tuple[str, ...] = ()


class _Scan:
    def __init__(self, page: PdfPage, textpage: PdfTextPage) -> None:
        address, self._raw = ctypes.c_void_p, textpage.raw
        self.text = _read_characters(textpage)
        self.bounds = page.get_bbox()
        left, bottom, right, top = self.bounds
        self.sizes = (right - left, top - bottom)
        # Addresses as numbers take half the time; an object that PDFium made up has none.
        place = ctypes.cast(pdfium.FPDFText_GetTextObject, address).value or 0
        get_object = ctypes.CFUNCTYPE(address, address, ctypes.c_int)(place)
        self._object = partial(get_object, ctypes.cast(textpage.raw, address).value)
        self._styles: dict[int | None, _Style] = {}
        from_right, from_left = rtl.count_directions("" if self.text.isascii() else self.text)
        self.is_mirrored = from_right > from_left

    def _style(self, index: int) -> _Style:
        drawn = self._object(index)
        if drawn in self._styles:
            return self._styles[drawn]
        at, name, flags = pdfium.FS_MATRIX(), ctypes.create_string_buffer(256), ctypes.c_int()
        pdfium.FPDFText_GetMatrix(self._raw, index, at)
        is_mirrored = at.a * at.d < at.b * at.c  # as OCR draws Hebrew
        sign = -1 if is_mirrored else 1
        quarters = math.atan2(sign * at.b, sign * at.a) / (math.pi / 2)
        turn = round(quarters) % 4 if abs(quarters - round(quarters)) <= _SKEW else None
        size = pdfium.FPDFText_GetFontSize(self._raw, index) * math.hypot(at.c, at.d) or 1.0
        pdfium.FPDFText_GetFontInfo(self._raw, index, name, 256, flags)
        is_bold = bool(flags.value >> 18 & 1 or _BOLD.search(name.value))
        base = round(self._turned(at.e, at.f, turn)[1], 1)
        self._styles[drawn] = _Style(base, round(size, 1), is_bold, turn, is_mirrored)
        return self._styles[drawn]

    def _turned(self, x: float, y: float, turn: int | None) -> tuple[float, float]:
        """Return a point as (right, down) from the top left corner in the direction of reading."""
        left, bottom, right, top = self.bounds
        upright = (x - left, top - y), (y - bottom, x - left)
        return (*upright, (right - x, y - bottom), (top - y, right - x))[turn or 0]

    def edges(self, index: int, turn: int | None) -> tuple[float, float]:
        """Return where a character begins and ends in the direction of reading."""
        box = pdfium.FS_RECTF()
        pdfium.FPDFText_GetLooseCharBox(self._raw, index, box)
        ends = [self._turned(*at, turn)[0] for at in ((box.left, box.bottom), (box.right, box.top))]
        return min(ends), max(ends)

    def lines(self) -> Iterator[TextLine]:
        """Yield the lines as PDFium breaks them, but join those it broke at a raised letter."""
        pieces = [line for at in _LINE.finditer(self.text) if (line := self._find(*at.span()))]
        first = -1
        for piece, after in zip(pieces, [*pieces, None][1:], strict=True):
            first = piece.first if first < 0 else first
            if after is None or not _is_one(piece, after, in_any_order=self.is_by_place(after)):
                line = (self._find(first, piece.stop) if first < piece.first else None) or piece
                (self._spell_places if self.is_by_place(line) else self._spell)(line)
                first = -1
                if line.text:
                    yield line

    def is_by_place(self, line: TextLine) -> bool:
        """Return whether the places of a line's letters tell their order, not PDFium."""
        text = rtl.RIGHT_TO_LEFT.search(self.text, line.first, line.stop)
        return self.is_mirrored or text is not None

    def _find(self, first: int, stop: int) -> TextLine | None:
        """Return the line of these characters, without its text; ``None`` if nothing is visible."""
        stop = first + len(self.text[first:stop].rstrip())
        style = self._style(first)
        if style is not self._style(stop - 1):
            letters = Counter[_Style]()
            for word in _WORD.finditer(self.text, first, stop):
                letters[self._style(word.start())] += len(word[0])
            style = letters.most_common(1)[0][0]
        ends = (*self.edges(first, style.turn), *self.edges(stop - 1, style.turn))
        width, height = self.sizes if style.turn in (0, 2, None) else self.sizes[::-1]
        if min(ends) > width or max(ends) < 0 or not 0 <= style.base <= height:
            return None
        y = self.bounds[3] - style.base  # if the page is upright
        return TextLine("", *style[:4], y, min(ends), max(ends), first, stop)

    def _spell(self, line: TextLine) -> None:
        words = [match.span() for match in _WORD.finditer(self.text, line.first, line.stop)]
        is_wide = line.x1 - line.x0 > _WIDTH * line.size * (line.stop - line.first)
        if not is_wide and self._object(line.first) == self._object(line.stop - 1):
            words = [(line.first, line.stop)]
        cells, last = [""], line.first
        for start, end in words:
            gap = 0.0
            if last > line.first and (is_wide or self._object(start) != self._object(last - 1)):
                gap = self.edges(start, line.turn)[0] - self.edges(last - 1, line.turn)[1]
            if gap > _CELL_GAP * line.size:
                cells.append("")
            elif gap > _GAP * line.size or self.text[last:start].strip("\r\n"):
                cells[-1] += " "
            cells[-1] += self._mark(start, end, line)
            last = end
        if not cells[1:] and _SPACED_OUT.fullmatch(cells[0]):
            places = (at for at in range(line.first, line.stop) if not self.text[at].isspace())
            letters = [(self.text[at], *self.edges(at, line.turn)) for at in places]
            usual = median(after[1] - before[2] for before, after in pairwise(letters))
            cells = [rtl.join_letters(letters, 1.5 * usual)]
        cells = [text for cell in cells if (text := _clean(cell))]
        line.text, line.cells = " ".join(cells), tuple(cells) if cells[1:] else ()

    def _mark(self, start: int, end: int, line: TextLine) -> str:
        """Return a word with marks around what is raised or lowered, and parted where it jumps."""
        if self._object(start) == self._object(end - 1):
            return self.text[start:end]
        word, mark, last = "", "", math.inf
        for at in range(start, end):
            style, (x0, x1) = self._style(at), self.edges(at, line.turn)
            moved, found = line.base - style.base, ""
            may_be = mark or (at > start and _MAY_BE_MARKED.match(self.text, at - 1))
            is_small = style.size <= _SMALL * line.size
            if may_be and is_small and abs(moved) >= _MOVED * line.size:
                found = RAISED if moved > 0 else LOWERED
            if found != mark:
                word += (CLOSED if mark else "") + found
            elif x0 - last > _JUMP * line.size:  # Ghostscript joins an end and the next start
                word += " "
            word, mark, last = word + self.text[at], found, x1
        return word + (CLOSED if mark else "")

    def _spell_places(self, line: TextLine) -> None:
        """Set the text of a line to its letters from left to right."""
        letters, pen = list[tuple[str, float, float]](), ctypes.c_double()
        for match in _WORD.finditer(self.text, line.first, line.stop):
            edges = [self.edges(at, line.turn) for at in range(*match.span())]
            both = min(edges)[0] + max(edge for _, edge in edges)
            is_latin = rtl.RIGHT_TO_LEFT.search(match[0]) is None
            for at, (x0, x1) in enumerate(edges, match.start()):
                letter = _clean(self.text[at]) or rtl.STRETCH  # without a meaning
                if is_latin and self._style(at).is_mirrored:  # OCR draws numbers like the Hebrew
                    x0, x1 = both - x1, both - x0
                elif line.turn == 0 and not unicodedata.combining(letter[0]):
                    # The pen stood here; the box may only be that of the ink.
                    pdfium.FPDFText_GetCharOrigin(self._raw, at, pen, ctypes.c_double())
                    x0 = min(pen.value, x0)
                letters.append((letter, x0, x1))
        line.x0, line.x1 = min(x0 for _, x0, _ in letters), max(x1 for *_, x1 in letters)
        line.text = rtl.join_letters(letters, _GAP * line.size)


def _clean(text: str) -> str:
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
    count, text = textpage.count_chars(), textpage.get_text_range(errors="replace")
    if len(text) != count or "\ufffd" in text:
        codes = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
        text = "".join(chr(code) if code < 0x110000 else "\ufffd" for code in codes)
    return re.sub(f"[{RAISED}-{CLOSED}]", "\ufffd", text)


def _is_one(line: TextLine, after: TextLine, *, in_any_order: bool) -> bool:
    """Return whether PDFium broke a line only because letters are raised or lowered there."""
    size, small = max(line.size, after.size), min(line.size, after.size)
    moved, gap = abs(line.base - after.base), (after.x0 - line.x1) / size
    is_level = moved <= 0.1 * size and (in_any_order or -0.3 <= gap <= 1.0)
    is_moved = small <= _SMALL * size and moved < 0.6 * size and -0.3 <= gap <= 0.3
    return line.turn == after.turn and (is_level or is_moved)


def read_lines(page: PdfPage, textpage: PdfTextPage) -> list[TextLine]:
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
    turns = Counter(line.turn for line in lines for _ in line.text if line.turn is not None)
    main = max(turns, key=turns.__getitem__, default=0)
    top, bottom = (part * scan.sizes[main % 2 == 0] for part in (_MARGIN, 1 - _MARGIN))
    for line in lines:
        if line.turn == main:
            line.margin = "bottom" if line.base >= bottom else "top" if line.base <= top else ""
    lines = _drop_line_numbers(lines)
    _find_paragraphs([line for line in lines if line.margin != "aside"])
    return lines


def _drop_line_numbers(lines: list[TextLine]) -> list[TextLine]:
    """Leave out numbers at the start of running text that count its lines, or each fifth."""
    counted = [(line, at) for line in lines if (at := _NUMBERED.match(line.text))]
    steps = {int(after[1]) - int(at[1]) for (_, at), (_, after) in pairwise(counted)}
    rests = [text for line in lines if (text := _NUMBERED.sub("", line.text, count=1))]
    is_prose = 3 * sum(text[0].islower() for text in rests) >= len(rests)
    is_counted = len(counted) >= _FEWEST_NUMBERS and steps in ({1}, {5}) and is_prose
    if is_counted and max(steps) * len(counted) >= 0.6 * len(rests):
        for line, at in counted:
            line.text, line.cells = line.text[at.end() :], ()
    return [line for line in lines if line.text]


def _find_paragraphs(lines: Sequence[TextLine]) -> None:
    """Mark lines after more white space than usual, in another size, or indented after a stop."""
    steps = [line.base - above.base for above, line in pairwise(lines)]
    near = [step for step, line in zip(steps, lines, strict=False) if 0 < step <= 2.5 * line.size]
    is_prose = 3 * sum(line.text[0].islower() for line in lines) >= len(lines)
    widest = 2.5 if is_prose else 1.6  # manuscripts have wide lines; so have lists
    usual = median(near) if near else 0.0
    following = [*lines[2:], *lines[-1:]]
    for step, above, line, after in zip(steps, lines, lines[1:], following, strict=False):
        size, ends_with = line.size, above.text[-1]
        is_indented = ends_with in ".!?:…" and 0.8 <= (line.x0 - above.x0) / size <= 4.0
        is_first = is_indented and after.x0 < line.x0 - 0.5 * size
        is_next_column = step < -0.5 * size
        is_open = line.text[0].islower() and (ends_with.islower() or ends_with in ",;-‐\u00ad")
        is_apart = is_first or step > 1.25 * min(max(usual, size), widest * size)
        line.starts = not is_open if is_next_column else is_apart
        line.starts |= abs(size - above.size) > 0.12 * max(size, above.size)


_FEWEST_PAGES, _LARGER = 4, 1.15  # of a running title; sizes of the body, above is a heading
_PAGE, _OF = r"(?:(?:page|p[áa]gina|seite|p\.)\s*)?", r"(?:\s*(?:/|of|de|von)\s*\d{1,5})?"
_COUNTED = re.compile(  # a page number at the beginning or the end of a line in small letters
    rf"^[-–—•|\s]*{_PAGE}(\d{{1,5}}){_OF}(?![^\s|])|(?<![^\s|]){_PAGE}(\d{{1,5}}){_OF}[-–—•|\s.]*$"
)
_LETTERS = re.compile(r"[^\W\d_]+")
_LONE = "#"
_Key = tuple[str, str, int | None, int]  # margin, text around a number, its lead, height


def body_size(pages: Sequence[Sequence[TextLine]]) -> float:
    """Return the most frequent size of letters, in points; 0 without letters."""
    sizes = Counter[float]()
    for line in chain.from_iterable(pages):
        sizes[line.size] += len(line.text) if line.margin != "aside" else 0
    return max(sorted(sizes), key=lambda size: sizes[size], default=0.0)


def drop_running_lines(pages: Sequence[list[TextLine]]) -> None:
    """Take page numbers from the pages, and all but one copy of each running title.

    A line in a margin or at an angle repeats if it is at the same height on four pages, and on half
    of those from the first to the last one. A number in it may count the pages; a lone one needs
    two. The last line of a page stays.
    """
    body = body_size(pages)
    keys = [[list(_keys(line, page, body)) for line in on] for page, on in enumerate(pages)]
    seen: dict[_Key, set[int]] = defaultdict(set)
    for page, own in enumerate(keys):
        for key in chain.from_iterable(own):
            seen[key].add(page)
    lone = {key for key, on in seen.items() if key[1] == _LONE and len(on) > 1}
    spread = {key: on for key, on in seen.items() if len(on) >= _FEWEST_PAGES}
    running = {key for key, on in spread.items() if 2 * len(on) > max(on) - min(on)} | lone
    kept: set[tuple[str, str]] = {(margin, _LONE) for margin in ("top", "bottom", "aside")}
    for lines, own in zip(pages, keys, strict=True):
        repeats = [next((key[:2] for key in all_ if key in running), None) for all_ in own]
        if all(repeat is not None and repeat[1] != _LONE for repeat in repeats):
            continue
        rest, starts = list[TextLine](), False
        for line, repeat in zip(lines, repeats, strict=True):
            starts |= line.starts
            if repeat not in kept:
                rest.append(line)
                line.starts, starts = starts, False
            kept |= {repeat} if repeat else set()
        lines[:] = rest


def _keys(line: TextLine, page: int, body: float) -> Iterator[_Key]:
    """Yield the keys by which repeated lines are found: the text without a number, and the text."""
    text, height = " ".join(line.text.casefold().split()), round(line.base / 4)
    if not line.margin:
        return
    for match in _COUNTED.finditer(text if line.size <= _LARGER * body else ""):
        rest = f"{text[: match.start()]}{_LONE}{text[match.end() :]}".strip("-–—•|. ")
        # "Week 3" is a heading; a title and a page number are at two ends of a line.
        is_apart = line.x1 - line.x0 > line.size * len(text)
        if rest == _LONE or is_apart or len(_LETTERS.findall(rest)) != 1:
            yield line.margin, rest, int(match[1] or match[2]) - page, height
    yield line.margin, text, None, height


_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?:[-‐][^\W\d_]++)++")
_BROKEN = re.compile(r"(?:^|(?<=[\s(\[\"'“‘„«/–—]))((?:[^\W\d_]+[-‐])*)([^\W\d_]{2,})([-‐\u00ad])$")
_BROKEN_PAIR = re.compile(r"(?<!\S)\S++(?<=[-‐\u00ad])\n\S++")
_ALWAYS = frozenset(["well", "self", "half", "quasi", "vice"])  # keep their hyphen


def join_pages(pages: Sequence[Sequence[TextLine]]) -> tuple[str, tuple[int, ...]]:
    """Return the text of all pages and the start of each page, and set the places of the lines.

    Lines end with a line feed, paragraphs and pages with a blank line. A word broken at the end of
    a line is joined; its hyphen stays if the word has more hyphens, is written with one elsewhere,
    or if only its halves are words there.
    """
    lines = "\n".join(line.text for line in chain.from_iterable(pages))
    inner = _BROKEN_PAIR.sub(" ", lines.casefold().replace("‐", "-"))
    words, compounds = set(_LETTERS.findall(inner)), set(_COMPOUND.findall(inner))
    for line, after in chain.from_iterable(map(pairwise, pages)):
        head, _, rest = after.text.partition(" ")
        broken, following = _BROKEN.search(line.text), _LETTERS.match(head)
        is_inner = head[:1].islower() and line.text[-2:-1].islower() and not after.starts
        if broken and following and is_inner:
            before, fragment, hyphen = broken.groups()
            first, second = fragment.casefold(), following[0].casefold()
            is_compound = before != "" or first in _ALWAYS or f"{first}-{second}" in compounds
            is_compound |= first + second not in words and {first, second} <= words
            is_kept = is_compound and hyphen != "\u00ad"
            line.text, after.text = (line.text if is_kept else line.text[:-1]) + head, rest
    parts, starts, length = list[str](), list[int](), 0
    for page, line in ((page, line) for page, on_page in enumerate(pages) for line in on_page):
        line.text = line.text.removesuffix("\u00ad")
        gap = "\n\n" if line.starts or len(starts) <= page else "\n"
        line.start = length + len(gap) * bool(line.text and parts)
        line.end = line.start + len(line.text)
        if line.text:
            starts += [line.start] * (page + 1 - len(starts))
            parts += [gap, line.text] if parts else [line.text]
            length = line.end
    return "".join(parts), (*starts, *[length] * (len(pages) - len(starts)))
