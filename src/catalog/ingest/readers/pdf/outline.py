"""Headings from a PDF's bookmarks: each is looked for among the lines of its page."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from catalog.core.text import storable
from catalog.ingest.readers.base import MAX_TITLE, one_line
from catalog.ingest.readers.pdf.lines import PageLine

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
class Bookmark:
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


def bookmarks(document: PdfDocument) -> list[Bookmark]:
    """The outline in order: at most 20,000 entries with a page, at most nine levels deep."""
    entries = (_entry(mark) for mark in islice(document.get_toc(_DEEPEST), _MOST_BOOKMARKS))
    return [entry for entry in entries if entry is not None]


def outline_headings(
    marks: Sequence[Bookmark],
    pages: Sequence[Sequence[PageLine]],
    tops: Sequence[float | None],
) -> list[HeadingLines]:
    """The bookmarks that are found as lines of their page, in the order of the text.

    Case, punctuation and a number in front do not count. Where several lines match, the nearest
    to the bookmark's place is taken; a line is the heading of one bookmark only.
    """
    found: list[HeadingLines] = []
    by_page = sorted(marks, key=lambda mark: mark.page)
    for page, group in groupby(by_page, key=lambda mark: mark.page):
        if 0 <= page < len(pages):
            found += _on_page(list(group), page, pages[page], tops[page])
    return found


def _on_page(
    marks: Sequence[Bookmark], page: int, lines: Sequence[PageLine], top: float | None
) -> list[HeadingLines]:
    places = _places(lines)
    taken: set[int] = set()
    found: list[HeadingLines] = []
    for mark in marks:
        whole, bare = _keys(mark.title)
        spans = [
            span
            for span in dict.fromkeys([*places.get(whole, ()), *places.get(bare, ())])
            if taken.isdisjoint(range(span[0], span[1] + 1))
        ]
        if not spans:
            continue
        base = None if top is None or mark.y is None else top - mark.y
        first, last = min(
            spans, key=lambda span: 0.0 if base is None else abs(lines[span[0]].base - base)
        )
        taken.update(range(first, last + 1))
        found.append(HeadingLines(page, first, last, mark.level, one_line(mark.title)))
    return sorted(found, key=lambda heading: heading.first)


def _places(lines: Sequence[PageLine]) -> dict[str, list[tuple[int, int]]]:
    """Which lines, up to three together, have which letters, with and without a number."""
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


def _entry(mark: PdfBookmark) -> Bookmark | None:
    import pypdfium2.raw as pdfium

    size = min(4096, pdfium.FPDFBookmark_GetTitle(mark, None, 0))
    buffer = ctypes.create_string_buffer(size + 2)
    pdfium.FPDFBookmark_GetTitle(mark, buffer, size)
    title = storable(buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace")).strip()
    destination = mark.get_dest()
    page = destination.get_index() if destination is not None else None
    if not title or destination is None or page is None:
        return None
    return Bookmark(title, mark.level + 1, page, _height(destination.raw))


def _height(destination: object) -> float | None:
    import pypdfium2.raw as pdfium

    has_x, has_y, has_zoom = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    x, y, zoom = ctypes.c_float(), ctypes.c_float(), ctypes.c_float()
    known = pdfium.FPDFDest_GetLocationInPage(destination, has_x, has_y, has_zoom, x, y, zoom)
    return y.value if known and has_y.value else None


def _keys(text: str) -> tuple[str, str]:
    """What is compared of a title: all its letters, and those after its number."""
    folded = unicodedata.normalize("NFKC", text).strip()
    whole, bare = folded, _NUMBER.sub("", folded, count=1)
    return _NO_LETTER.sub("", whole.casefold()), _NO_LETTER.sub("", bare.casefold())
