"""Headings of a PDF: from its bookmarks, else by their letters."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from catalog.core.text import storable
from catalog.ingest.readers.base import MAX_TITLE, one_line
from catalog.ingest.readers.pdf.layout import PageLine

if TYPE_CHECKING:
    from pypdfium2 import PdfBookmark, PdfDocument


_MOST_BOOKMARKS = 20_000
_DEEPEST = 9
_MOST_LINES = 3
"""Lines of a heading."""
_NUMBER = re.compile(
    r"\A(?:(?:chapter|appendix|section|part|kapitel|anhang)\s+)?"
    r"(?:\d+|[A-Z]|[IVXLC]+)(?:\.\d+)*(?:[.:)]\s*|\s+)(?=\S)",
    re.IGNORECASE,
)
_NO_LETTER = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class _Bookmark:
    """An entry of the outline. ``page`` counts from 0; ``y`` is in the page's own coordinates."""

    title: str
    level: int
    page: int
    y: float | None


@dataclass(frozen=True, slots=True)
class HeadingLines:
    """A heading: lines ``first`` to ``last`` (inclusive) of a page, all counted from 0."""

    page: int
    first: int
    last: int
    level: int
    title: str


def outline_headings(
    document: PdfDocument,
    pages: Sequence[Sequence[PageLine]],
    tops: Sequence[float | None],
) -> list[HeadingLines]:
    """Return the bookmarks that stand as lines on their page, in the order of the text.

    At most 20,000 entries are read, at most nine levels deep. Case, punctuation and a number in
    front do not count. Where several lines match, the nearest to the bookmark's place is taken;
    a line is the heading of one bookmark only.
    """
    entries = (_read_bookmark(mark) for mark in islice(document.get_toc(_DEEPEST), _MOST_BOOKMARKS))
    bookmarks = [entry for entry in entries if entry is not None]
    bookmarks.sort(key=lambda bookmark: bookmark.page)
    headings: list[HeadingLines] = []
    for page, group in groupby(bookmarks, key=lambda bookmark: bookmark.page):
        if 0 <= page < len(pages):
            headings += _page_headings(list(group), page, pages[page], tops[page])
    return headings


def _page_headings(
    bookmarks: Sequence[_Bookmark], page: int, lines: Sequence[PageLine], top: float | None
) -> list[HeadingLines]:
    places = _line_places(lines)
    taken: set[int] = set()
    headings: list[HeadingLines] = []
    for bookmark in bookmarks:
        whole, bare = _keys(bookmark.title)
        spans = [
            span
            for span in dict.fromkeys([*places.get(whole, ()), *places.get(bare, ())])
            if taken.isdisjoint(range(span[0], span[1] + 1))
        ]
        if not spans:
            continue
        base = None if top is None or bookmark.y is None else top - bookmark.y
        first, last = min(
            spans, key=lambda span: 0.0 if base is None else abs(lines[span[0]].base - base)
        )
        taken.update(range(first, last + 1))
        headings.append(HeadingLines(page, first, last, bookmark.level, one_line(bookmark.title)))
    return sorted(headings, key=lambda heading: heading.first)


def _line_places(lines: Sequence[PageLine]) -> dict[str, list[tuple[int, int]]]:
    """Return the lines, up to three together, by their letters with and without a number."""
    keys = [_keys(line.text) for line in lines]
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for first, (whole, bare) in enumerate(keys):
        after = ""
        for last in range(first, min(first + _MOST_LINES, len(keys))):
            after += keys[last][0] if last > first else ""
            for key in {whole + after, bare + after}:
                if 0 < len(key) <= MAX_TITLE:
                    places[key].append((first, last))
    return places


def _read_bookmark(mark: PdfBookmark) -> _Bookmark | None:
    import pypdfium2.raw as pdfium

    title = read_string(pdfium.FPDFBookmark_GetTitle, mark, max_bytes=4096).strip()
    destination = mark.get_dest()
    page = destination.get_index() if destination is not None else None
    if not title or destination is None or page is None:
        return None
    return _Bookmark(title, mark.level + 1, page, _height(destination.raw))


def read_string(function: Callable[..., int], *arguments: object, max_bytes: int) -> str:
    """Call a PDFium function that writes UTF-16 into a buffer, and return what it wrote."""
    size = min(max_bytes, function(*arguments, None, 0))
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    function(*arguments, buffer, size)
    return storable(bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace"))


def _height(destination: object) -> float | None:
    import pypdfium2.raw as pdfium

    has_x, has_y, has_zoom = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    x, y, zoom = ctypes.c_float(), ctypes.c_float(), ctypes.c_float()
    known = pdfium.FPDFDest_GetLocationInPage(destination, has_x, has_y, has_zoom, x, y, zoom)
    return y.value if known and has_y.value else None


def _keys(text: str) -> tuple[str, str]:
    """Return the letters of a title by which it is compared: all, and those after its number."""
    folded = unicodedata.normalize("NFKC", text).strip()
    whole, bare = folded, _NUMBER.sub("", folded, count=1)
    return _NO_LETTER.sub("", whole.casefold()), _NO_LETTER.sub("", bare.casefold())


_LARGER = 1.15
"""Times the body's size from which on a line may be a heading."""
_LONGEST = 150
"""Letters of a heading."""
_MOST_SIZES = 5
"""Levels told apart by size."""
_LARGEST_SHARE = 0.25
"""Of all letters: where more look like headings, nothing is one."""
_NUMBERED = re.compile(r"((?:\d{1,3}|[A-Z])(?:\.\d{1,3})*)\.?\s+[^\W\d_]")


def body_size(pages: Sequence[Sequence[PageLine]]) -> float:
    """Return the commonest size of letters, in points; 0 if there are none."""
    sizes = Counter[float]()
    for lines in pages:
        for line in lines:
            if line.margin != "aside":
                sizes[line.size] += len(line.text)
    return max(sorted(sizes), key=lambda size: sizes[size], default=0.0)


def font_headings(pages: Sequence[Sequence[PageLine]]) -> list[HeadingLines]:
    """Return short lines in larger letters than the body's, and bold lines with a number.

    Neither ends like a sentence, and both begin a paragraph. The largest size is level 1, and so
    on; bold numbered lines come below, the deeper the more parts their number has.
    """
    body = body_size(pages)
    candidates = [
        candidate for page in range(len(pages)) for candidate in _candidates(pages, page, body)
    ]
    letters = sum(len(line.text) for lines in pages for line in lines)
    if sum(len(candidate.title) for candidate in candidates) > _LARGEST_SHARE * letters:
        return []
    sizes = {candidate: pages[candidate.page][candidate.first].size for candidate in candidates}
    ranks = _ranks([size for candidate, size in sizes.items() if candidate.level == 0])
    deepest = max(ranks.values(), default=0)
    numbered = [candidate.level for candidate in candidates if candidate.level > 0]
    highest = min(numbered, default=1)
    return [
        HeadingLines(
            candidate.page,
            candidate.first,
            candidate.last,
            ranks[sizes[candidate]]
            if candidate.level == 0
            else deepest + 1 + candidate.level - highest,
            candidate.title,
        )
        for candidate in candidates
    ]


def _ranks(sizes: Sequence[float]) -> dict[float, int]:
    """Rank sizes, from 1 for the largest; sizes within a twentieth share a rank."""
    ranks: dict[float, int] = {}
    rank, top = 0, float("inf")
    for size in sorted(set(sizes), reverse=True):
        if size < 0.95 * top:
            rank, top = min(rank + 1, _MOST_SIZES), size
        ranks[size] = rank
    return ranks


def _candidates(
    pages: Sequence[Sequence[PageLine]], page: int, body: float
) -> Iterator[HeadingLines]:
    """Yield headings of a page; ``level`` is 0 for large ones, else the parts of the number."""
    lines = pages[page]
    index = 0
    while index < len(lines):
        line = lines[index]
        end = index + 1
        if line.starts and line.margin != "aside":
            while end < len(lines) and not lines[end].starts and end - index <= _MOST_LINES:
                end += 1
            level = _heading_level(lines[index:end], body)
            if level is not None:
                title = one_line(" ".join(part.text for part in lines[index:end]))
                yield HeadingLines(page, index, end - 1, level, title)
        index = end


def _heading_level(lines: Sequence[PageLine], body: float) -> int | None:
    text = " ".join(line.text for line in lines)
    is_short = len(lines) <= _MOST_LINES and len(text) <= _LONGEST
    if not is_short or text[-1] in ".,;:" or sum(letter.isalpha() for letter in text) < 2:
        return None
    if 2 * sum(letter.isalnum() or letter.isspace() for letter in text) < len(text):
        return None
    if all(line.size >= _LARGER * body for line in lines):
        return 0
    number = _NUMBERED.match(text)
    if number is not None and all(line.bold and line.size >= 0.97 * body for line in lines):
        return number.group(1).count(".") + 1
    return None
