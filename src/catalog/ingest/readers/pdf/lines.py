"""Read the lines of PDF pages in PDFium's order, join them to one text, and find their tables.

Running titles and page numbers are left out. All letters of a text object have one font, size and
baseline: a line of one object takes few calls.
"""

import ctypes
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, pairwise
from statistics import median

import pypdfium2.raw as pdfium
from pypdfium2 import PdfPage, PdfTextPage

from catalog.core.documents import Table
from catalog.core.text import storable
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.pdf import right_to_left as rtl
from catalog.ingest.readers.tables import make_table, names_columns

_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200B, 0x200E, 0x200F, 0x2060)),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xFFFF)),
    **dict.fromkeys((0x02, 0xFFFE), "-"),  # PDFium's marks for a hyphen at the end of a line
    **dict(zip(range(0xFB00, 0xFB07), ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True)),
}
# Ligatures as TeX numbers them, in fonts that do not say so; a tab parts cells here.
_UNNAMED = str.maketrans("\x1b\x1c\x1d\x1e\x1f\t", "\ufb00\ufb01\ufb02\ufb03\ufb04 ")
_ACCENTS = str.maketrans("´¨ˆ˜¯˘˙˚ˇ", "\u0301\u0308\u0302\u0303\u0304\u0306\u0307\u030a\u030c")
_ACCENTED = re.compile(r"([´¨ˆ˜¯˘˙˚ˇ])([^\W\d_])")  # TeX draws an accent, then the letter under it
_LINE, _WORD = re.compile("(?=\\S)[^\r\n\x02\ufffe]+[\x02\ufffe]?"), re.compile(r"\S+")
_BOLD = re.compile(rb"bold|black|heavy|demi|cmbx|sfbx|sfbi|-bd|medi(?!um|a)", re.IGNORECASE)
_SKEW = 0.09  # quarter turns by which text may lean and still count as straight
# In sizes of letters: white space that parts words, and cells; the width of a usual letter, above
# which gaps inside an object are looked for; the largest size and smallest move of raised letters.
_GAP, _CELL_GAP, _WIDTH, _SMALL, _MOVED = 0.18, 1.0, 0.5, 0.85, 0.08
_MAY_BE_MARKED = re.compile(r"[^\W_](?:[^\W_]|[+−-])|[.,;:!?)”\"][^\W_]")
_SPACED_OUT = re.compile(r"(?:[^\W\d_] ){4,}[^\W\d_]")
_NUMBERED = re.compile(r"\A(\d{1,4})(?:\s+|$)")
_MARGIN = 0.1  # part of a page's height at its top and bottom in which running titles stand
_FEWEST_ROWS, _FEWEST_COLUMNS = 4, 3  # of a table
_LONGEST_NAME = 40  # of a column
_MOST_BETWEEN = 3  # lines between the parts of a table on two pages


@dataclass(slots=True, eq=False)
class TextLine:
    """A line of a page, measured in points; ``base`` and ``x0`` in the direction of reading.

    ``first`` and ``stop`` delimit its characters in PDFium's numbering, ``start`` and ``end`` in
    the document. ``starts``: a paragraph begins with it. ``cells`` have wide gaps between.
    """

    text: str
    base: float = 0.0  # distance of its baseline from the page's top
    size: float = 0.0
    bold: bool = False
    turn: int | None = 0  # its direction in quarter turns
    is_mirrored: bool = False
    y: float = 0.0  # height above the page's origin
    x0: float = 0.0
    x1: float = 0.0
    first: int = 0
    stop: int = 0
    start: int = 0
    end: int = 0
    starts: bool = True
    margin: str = ""  # "top", "bottom", or "aside" for text in another direction
    cells: tuple[str, ...] = ()


class _Scan:
    def __init__(self, page: PdfPage, textpage: PdfTextPage) -> None:
        address, self._raw, self.text = ctypes.c_void_p, textpage.raw, _read_characters(textpage)
        # Addresses as numbers take half the time; an object that PDFium made up has none.
        place = ctypes.cast(pdfium.FPDFText_GetTextObject, address).value or 0
        get_object = ctypes.CFUNCTYPE(address, address, ctypes.c_int)(place)
        self._object = partial(get_object, ctypes.cast(textpage.raw, address).value)
        self._bounds = page.get_bbox()
        self._styles: dict[int | None, TextLine] = {}
        from_right, from_left = rtl.count_directions("" if self.text.isascii() else self.text)
        self.is_mirrored = from_right > from_left

    def _style(self, index: int) -> TextLine:
        """Return what the letters of a text object share, as a line without text."""
        drawn = self._object(index)
        if drawn not in self._styles:
            at, name, flags = pdfium.FS_MATRIX(), ctypes.create_string_buffer(256), ctypes.c_int()
            pdfium.FPDFText_GetMatrix(self._raw, index, at)
            is_mirrored = at.a * at.d < at.b * at.c  # as OCR draws Hebrew
            sign = -1 if is_mirrored else 1
            quarters = math.atan2(sign * at.b, sign * at.a) / (math.pi / 2)
            turn = round(quarters) % 4 if abs(quarters - round(quarters)) <= _SKEW else None
            size = pdfium.FPDFText_GetFontSize(self._raw, index) * math.hypot(at.c, at.d) or 1.0
            pdfium.FPDFText_GetFontInfo(self._raw, index, name, 256, flags)
            is_bold = bool(flags.value >> 18 & 1 or _BOLD.search(name.value))
            left, bottom, right, top = self._bounds
            base = round((top - at.f, at.e - left, at.f - bottom, right - at.e)[turn or 0], 1)
            y = top - base  # if the page is upright
            self._styles[drawn] = TextLine("", base, round(size, 1), is_bold, turn, is_mirrored, y)
        return self._styles[drawn]

    def edges(self, index: int, turn: int | None) -> tuple[float, float]:
        """Return where a character begins and ends in the direction of reading."""
        box, (left, bottom, right, top) = pdfium.FS_RECTF(), self._bounds
        pdfium.FPDFText_GetLooseCharBox(self._raw, index, box)
        across, along = (box.left - left, box.right - left), (box.bottom - bottom, box.top - bottom)
        back, down = (right - box.right, right - box.left), (top - box.top, top - box.bottom)
        return (across, along, back, down)[turn or 0]

    def lines(self) -> Iterator[TextLine]:
        """Yield the lines as PDFium breaks them, but join those it broke at a raised letter."""
        runs = list[list[TextLine]]()
        for at in _LINE.finditer(self.text):
            if piece := self._find(*at.span()):
                if not runs or not _is_one(
                    runs[-1][-1], piece, in_any_order=self.is_by_place(piece)
                ):
                    runs.append([])
                runs[-1].append(piece)
        for first, *rest in runs:
            line = (self._find(first.first, rest[-1].stop) if rest else None) or first
            (self._spell_places if self.is_by_place(line) else self._spell)(line)
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
            letters = Counter[TextLine]()
            for word in _WORD.finditer(self.text, first, stop):
                letters[self._style(word.start())] += len(word[0])
            style = letters.most_common(1)[0][0]
        ends = (*self.edges(first, style.turn), *self.edges(stop - 1, style.turn))
        left, bottom, right, top = self._bounds
        width, height = (right - left, top - bottom)[:: -1 if style.turn in (1, 3) else 1]
        if min(ends) > width or max(ends) < 0 or not 0 <= style.base <= height:
            return None
        line = replace(style, x0=min(ends), x1=max(ends), first=first, stop=stop)
        if abs(part := 0.5 - style.base / height) >= 0.5 - _MARGIN:
            line.margin = "top" if part > 0 else "bottom"
        return line

    def _spell(self, line: TextLine) -> None:
        """Set text and cells; words of several objects are read letter by letter."""
        is_wide = line.x1 - line.x0 > _WIDTH * line.size * (line.stop - line.first)
        words = [match.span() for match in _WORD.finditer(self.text, line.first, line.stop)]
        if not is_wide and self._object(line.first) == self._object(line.stop - 1):
            words = [(line.first, line.stop)]
        parts, mark, last = list[str](), "", line.first
        for start, end in words:
            is_whole = self._object(start) == self._object(end - 1)
            for at in [start] if is_whole else range(start, end):
                stop, found, gap = end if is_whole else at + 1, "", 0.0
                is_apart = is_wide or at == last or self._object(at) != self._object(last - 1)
                if is_apart and at > line.first:
                    gap = self.edges(at, line.turn)[0] - self.edges(last - 1, line.turn)[1]
                if at > start and (mark or _MAY_BE_MARKED.match(self.text, at - 1)):
                    style = self._style(at)
                    moved = (line.base - style.base) / line.size
                    if style.size <= _SMALL * line.size and abs(moved) >= _MOVED:
                        found = RAISED if moved > 0 else LOWERED
                parts += [(CLOSED if mark else "") + found] if found != mark else []
                if gap > _CELL_GAP * line.size:
                    parts.append("\t")
                elif self.text[last:at].strip("\r\n") or (not found and gap > _GAP * line.size):
                    parts.append(" ")
                parts.append(self.text[at:stop])
                mark, last = found, stop
        text = "".join(parts) + (CLOSED if mark else "")
        if _SPACED_OUT.fullmatch(text):
            places = (at for at in range(line.first, line.stop) if not self.text[at].isspace())
            letters = [(self.text[at], *self.edges(at, line.turn)) for at in places]
            usual = median(after[1] - before[2] for before, after in pairwise(letters))
            text = rtl.join_letters(letters, 1.5 * usual)
        cells = tuple(cell for part in text.split("\t") if (cell := _clean(part)))
        line.text, line.cells = " ".join(cells), cells if cells[1:] else ()

    def _spell_places(self, line: TextLine) -> None:
        """Set the text of a line to its letters from left to right."""
        letters = list[tuple[str, float, float]]()
        for match in _WORD.finditer(self.text, line.first, line.stop):
            edges = [self.edges(at, line.turn) for at in range(*match.span())]
            both = min(edges)[0] + max(edge for _, edge in edges)
            is_latin = rtl.RIGHT_TO_LEFT.search(match[0]) is None
            for at, (x0, x1) in enumerate(edges, match.start()):
                letter = _clean(self.text[at]) or rtl.STRETCH  # without a meaning
                if is_latin and self._style(at).is_mirrored:  # OCR draws numbers like the Hebrew
                    x0, x1 = both - x1, both - x0
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
    return re.sub(f"[{RAISED}-{CLOSED}]", "\ufffd", text.translate(_UNNAMED))


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
        is_in_latin = not scan.is_mirrored and from_left > from_right
        text = line.text if is_logical else rtl.to_logical(line.text, is_in_latin=is_in_latin)
        line.text = rtl.mend_brackets(text)
    turns = Counter(line.turn for line in lines for _ in line.text if line.turn is not None)
    main = turns.most_common(1)[0][0] if turns else 0
    for line in lines:
        line.margin = line.margin if line.turn == main else "aside"
    lines = _drop_line_numbers(lines)
    _find_paragraphs([line for line in lines if line.margin != "aside"])
    return lines


def _drop_line_numbers(lines: list[TextLine]) -> list[TextLine]:
    """Leave out numbers at the start of running text that count its lines, or each fifth."""
    counted = [(line, at) for line in lines if (at := _NUMBERED.match(line.text))]
    steps = {int(after[1]) - int(at[1]) for (_, at), (_, after) in pairwise(counted)}
    rests = [text for line in lines if (text := _NUMBERED.sub("", line.text, count=1))]
    is_prose = 3 * sum(text[0].islower() for text in rests) >= len(rests)
    is_counted = len(counted) > 3 and steps in ({1}, {5}) and is_prose
    if is_counted and max(steps) * len(counted) >= 0.6 * len(rests):
        for line, at in counted:
            line.text, line.cells, line.x0 = line.text[at.end() :], (), math.nan  # no indent
    return [line for line in lines if line.text]


def _find_paragraphs(lines: Sequence[TextLine]) -> None:
    """Mark lines after more white space than usual, in another size, or indented after a stop."""
    steps = [line.base - above.base for above, line in pairwise(lines)]
    near = [step for step, line in zip(steps, lines, strict=False) if 0 < step <= 2.5 * line.size]
    usual = median(near) if near else 0.0
    for step, (above, line) in zip(steps, pairwise(lines), strict=True):
        size, ends_with = line.size, above.text[-1]
        is_indented = ends_with in ".!?:…" and 0.8 <= (line.x0 - above.x0) / size <= 4.0
        is_open = line.text[0].islower() and (ends_with.islower() or ends_with in ",;-‐\u00ad")
        is_apart = is_indented or step > 1.25 * max(usual, size)
        line.starts = not is_open if step < -0.5 * size else is_apart  # in the next column
        line.starts |= abs(size - above.size) > 0.12 * max(size, above.size)


_FEWEST_PAGES, _LARGER = 4, 1.15  # of a running title; sizes of the body, above is a heading
_ROMAN = re.compile(r"(?<![^\s|])(?=[ivx])x{0,3}(?:i[vx]|v?i{0,3})(?![^\s|.])")
_NUMBER = re.compile(r"(?<![^\s|])\d{1,5}(?![^\s|.])")
_AROUND = re.compile(
    r"^[-–—•|\s]++|\b(?:page|p[áa]gina|seite|p\.)\s*+(?=\d)|(?<![-–—•|.\s])[-–—•|.\s]++$"
)
_OF = re.compile(r"(?<=\d)\s*(?:/|\b(?:of|de|von)\b)\s*\d{1,5}$")
_LETTERS = re.compile(r"[^\W\d_]+")
_LONE = "#"  # a page number
_Key = tuple[str, str, int]


def body_size(pages: Sequence[Sequence[TextLine]]) -> float:
    """Return the most frequent size of letters, in points; 0 without letters."""
    sizes = Counter[float]()
    for line in chain.from_iterable(pages):
        sizes[line.size] += len(line.text) if line.margin != "aside" else 0
    return max(sizes, key=sizes.__getitem__, default=0.0)


def drop_running_lines(pages: Sequence[list[TextLine]]) -> None:
    """Take page numbers from the pages, and all but one copy of each running title.

    A line in a margin or at an angle repeats if it is at the same height on four pages, and on half
    of those from the first to the last one. Two are enough for numbers that count the pages.
    """
    body, seen, kept = body_size(pages), defaultdict[_Key, list[int]](list), set[_Key]()
    lines = [(page, line) for page, those in enumerate(pages) for line in those if line.margin]
    numbers = ((page, number) for page, line in lines for number in _NUMBER.findall(line.text))
    leads = Counter(int(number) - page for page, number in numbers)
    keys = [_key(line, page, leads, body) for page, line in lines]
    for key, (page, _) in zip(keys, lines, strict=True):
        seen[key] += [page] if seen[key][-1:] != [page] else []
    for key, (_, line) in zip(keys, lines, strict=True):
        on, is_lone = seen[key], key[1] == _LONE
        is_often = len(on) >= _FEWEST_PAGES and 2 * len(on) >= on[-1] - on[0]
        if is_often or (is_lone and len(on) > 1):
            line.text = "" if is_lone or (*key[:2], 0) in kept else line.text
            kept.add((*key[:2], 0))
    for those in pages:
        those[:] = [line for line in those if line.text]


def _key(line: TextLine, page: int, leads: Counter[int], body: float) -> _Key:
    """Return margin, text with a sign for a number that counts the pages, and height."""
    text = _OF.sub("", _AROUND.sub("", line.text.casefold()))
    rest = _ROMAN.sub(_LONE, text)
    rest = _NUMBER.sub(lambda it: _LONE if leads[int(it[0]) - page] > 1 else it[0], rest)
    # "Week 3" is a heading; a title and a page number are at two ends of a line.
    is_apart = line.x1 - line.x0 > line.size * len(line.text)
    is_heading = len(_LETTERS.findall(rest)) == 1 and not is_apart
    is_heading |= line.size > _LARGER * body
    return line.margin, text if is_heading else rest, round(line.base / 4)


_BROKEN = re.compile(r"(?:^|(?<=[\s(\[\"'“‘„«/–—]))((?:[^\W\d_]+[-‐])*)([^\W\d_]{2,})([-‐\u00ad])$")
_BROKEN_PAIR = re.compile(r"(?<!\S)\S++(?<=[-‐\u00ad])\n\S++")
_ALWAYS = frozenset(["well", "self", "half", "quasi", "vice"])  # keep their hyphen


def join_pages(pages: Sequence[Sequence[TextLine]]) -> tuple[str, tuple[int, ...]]:
    """Return the text of all pages and the start of each page, and set the places of the lines.

    Lines end with a line feed, paragraphs and pages with a blank line. A word broken at the end of
    a line is joined; its hyphen stays if the word has more hyphens, or if only its halves are words
    elsewhere.
    """
    lines = "\n".join(line.text for line in chain.from_iterable(pages))
    words = set(_LETTERS.findall(_BROKEN_PAIR.sub(" ", lines.casefold())))
    for line, after in chain.from_iterable(map(pairwise, pages)):
        head, _, rest = after.text.partition(" ")
        broken, following = _BROKEN.search(line.text), _LETTERS.match(head)
        is_inner = head[:1].islower() and line.text[-2:-1].islower() and not after.starts
        if broken and following and is_inner:
            before, *pair = broken[1], broken[2].casefold(), following[0].casefold()
            are_words = "".join(pair) not in words and words.issuperset(pair)
            is_compound = before or pair[0] in _ALWAYS or are_words
            kept = line.text if is_compound and broken[3] != "\u00ad" else line.text[:-1]
            line.text, after.text = kept + head, rest
    parts, starts, length = list[str](), list[int](), 0
    for page in pages:
        starts.append(length + 2 * bool(parts))
        for line in page:
            line.text = line.text.removesuffix("\u00ad")
            gap = "\n\n" if line.starts or length < starts[-1] else "\n"
            line.start = length + len(gap) * bool(line.text and parts)
            line.end = line.start + len(line.text)
            parts += [gap * bool(parts), line.text] if line.text else []
            length = line.end
    return "".join(parts), tuple(min(start, length) for start in starts)


def find_tables(pages: Sequence[Sequence[TextLine]]) -> Iterator[Table]:
    """Yield the tables whose first row names the columns, also over several pages.

    A part on a further page has the names of the part before, if it has as many columns.
    """
    lines = [(line, page) for page, on_page in enumerate(pages) for line in on_page]
    names, after, before = list[str](), 0, -1
    for is_row, block in groupby(lines, lambda one: len(one[0].cells) > 1):
        rows = list(block)
        between, after = after, 0 if is_row else len(rows)
        if not is_row:
            continue
        columns, count = Counter(len(line.cells) for line, _ in rows).most_common(1)[0]
        first = next(at for at, row in enumerate(rows) if len(row[0].cells) == columns)
        cells = [line.cells for line, _ in rows[first:]]
        goes_on = rows[0][1] > before >= 0 and between <= _MOST_BETWEEN and columns == len(names)
        is_table = count >= max(_FEWEST_ROWS, len(cells) / 2) and columns >= _FEWEST_COLUMNS
        before = rows[-1][1] if is_table else -1
        if is_table and not goes_on:
            names = list(cells[0]) if names_columns(cells) and all(map(_is_name, cells[0])) else []
        if is_table and names:
            yield from make_table(rows[first][0].start, rows[-1][0].end, [names])


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and any(map(str.isalnum, text))
