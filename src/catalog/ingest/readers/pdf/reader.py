"""PDF: one document for each file, pages in reading order, with title and metadata.

Headings come from its bookmarks, or else from larger or bold letters.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.documents import Heading, MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places
from catalog.ingest.readers.base import (
    MAX_TITLE,
    ReadFailure,
    ReadLimits,
    cap_failures,
    choose_title,
    one_line,
    read_bytes,
)
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.pdf.annotations import read_annotations, read_string
from catalog.ingest.readers.pdf.layout import PageLine
from catalog.ingest.readers.pdf.page_text import (
    body_size,
    drop_running_lines,
    join_pages,
    order_lines,
)
from catalog.ingest.readers.pdf.tables import find_tables
from catalog.ingest.readers.pdf.words import read_words

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
    """Return the bookmarks that occur as lines on their page, in the order of the text.

    At most 20,000 entries are read, at most nine levels deep. Case, punctuation and a leading
    number do not count. If several lines match, the one nearest to the bookmark's place is taken; a
    line is the heading of one bookmark only.
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
    """Return runs of up to three lines by their letters, with and without a number."""
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


def _height(destination: object) -> float | None:
    import pypdfium2.raw as pdfium

    has_x, has_y, has_zoom = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    x, y, zoom = ctypes.c_float(), ctypes.c_float(), ctypes.c_float()
    known = pdfium.FPDFDest_GetLocationInPage(destination, has_x, has_y, has_zoom, x, y, zoom)
    return y.value if known and has_y.value else None


def _keys(text: str) -> tuple[str, str]:
    """Return the letters by which a title is compared: all, and those after its number."""
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


def font_headings(pages: Sequence[Sequence[PageLine]]) -> list[HeadingLines]:
    """Return short lines in larger letters than the body's, and bold lines with a number.

    Neither ends like a sentence, and both begin a paragraph. The largest size is level 1, and so
    on. Bold numbered lines come below; the more parts their number has, the deeper they are.
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
    """Yield headings of a page; ``level`` is 0 for large ones, else the number's parts."""
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


_FEWEST_BOOKMARKS = 2
"""An outline with fewer entries found says less than the letters do, if they say anything."""
_MAX_DRAWN = 4
"""Times the characters allowed that a page may draw, for white space and what is left out."""


class PdfReader:
    """Read the text layer of a PDF with PDFium, without pictures.

    Columns are read one after the other, with footnotes last; text at an angle comes at the end of
    its page, followed by filled form fields and comments. Page numbers in the top and bottom tenth
    of the pages are left out, and running titles there stay once. Words broken at the end of a line
    are joined. Headings are the bookmarks found on their pages, or else lines in larger or bold
    numbered letters.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the document, then a failure for each unreadable page (``path#page=n``), and one
        that names the pages that only have pictures.

        Raises ``ReadError`` if the file is broken, protected by a password or over a limit,
        ``EmptyDocumentError`` if it has no text.
        """
        with _open(read_bytes(handle, limits.document_bytes)) as document:
            count = len(document)
            if count == 0:
                raise ReadError("broken PDF: it has no pages")
            if count > limits.pages:
                raise ReadError(f"too many pages: {count:,}, over {limits.pages:,}")
            if document.get_formtype():
                document.init_forms()
            pages, tops, failed, pictures = _read_pages(document, limits)
            if len(failed) == count:
                raise ReadError("broken PDF: none of its pages can be read")
            pages = drop_running_lines(pages)
            if not any(pages):
                size = "1 page" if count == 1 else f"{count:,} pages"
                raise EmptyDocumentError(f"no text in {size} of images; run OCR first")
            yield _build_document(document, path, pages, tops)
        yield from cap_failures(
            [ReadFailure(f"{path}#page={page}", "broken page") for page in failed]
        )
        if pictures:
            those = f"page{'s' * (len(pictures) > 1)} {_name_pages(pictures)}"
            yield ReadFailure(path, f"no text on {those}, only pictures; run OCR first")


_MOST_NAMED = 20
"""Runs of pages that are named one by one."""


def _name_pages(numbers: Iterable[int]) -> str:
    """Return page numbers in words, ``2-5, 8``."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    names = [f"{first}-{last}" if last > first else str(first) for first, last in runs]
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def _open(data: bytes) -> PdfDocument:
    import pypdfium2 as pdfium
    import pypdfium2.raw as raw

    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise ReadError("protected by a password") from error
        if error.err_code == raw.FPDF_ERR_SECURITY:
            raise ReadError("its protection is not supported") from error
        raise ReadError("broken PDF: it has no readable structure") from error


def _read_pages(
    document: PdfDocument, limits: ReadLimits
) -> tuple[list[list[PageLine]], list[float | None], list[int], list[int]]:
    """Return lines and upper edges of all pages, and the numbers of broken and of textless ones."""
    import pypdfium2 as pdfium

    pages: list[list[PageLine]] = []
    tops: list[float | None] = []
    failed: list[int] = []
    pictures: list[int] = []
    left = limits.characters
    for index in range(len(document)):
        lines: list[PageLine] = []
        top: float | None = None
        try:
            lines, top, is_drawn = _read_page(document, index, left)
            if is_drawn and not lines:
                pictures.append(index + 1)
        except pdfium.PdfiumError:
            failed.append(index + 1)
        left -= sum(len(line.text) + 1 for line in lines)
        if left < 0:
            raise ReadError(f"too much text: over {limits.characters:,} characters")
        pages.append(lines)
        tops.append(top)
    return pages, tops, failed, pictures


def _read_page(
    document: PdfDocument, index: int, limit: int
) -> tuple[list[PageLine], float | None, bool]:
    """Return the lines of a page, its upper edge, and whether anything is drawn on it."""
    import pypdfium2.raw as pdfium

    with closing(document[index]) as page, closing(page.get_textpage()) as textpage:
        if textpage.count_chars() > _MAX_DRAWN * limit + 10_000:
            raise ReadError(f"too much text: page {index + 1:,} alone exceeds the limit")
        words = read_words(page, textpage)
        is_drawn = pdfium.FPDFPage_CountObjects(page.raw) > 0
        added = [PageLine(text, starts=True, margin="aside") for text in read_annotations(page)]
    return order_lines(words) + added, words.top, is_drawn


def _build_document(
    document: PdfDocument,
    path: str,
    pages: Sequence[Sequence[PageLine]],
    tops: Sequence[float | None],
) -> ParsedDocument:
    text, page_starts, starts, ends = join_pages(pages)
    title = _stated_title(document) or _largest_text(pages[0], body_size(pages))
    headings = outline_headings(document, pages, tops)
    if len(headings) < _FEWEST_BOOKMARKS:
        headings = font_headings(pages) or headings
    spans = [(starts[line.page][line.first], ends[line.page][line.last], line) for line in headings]
    return ParsedDocument(
        path=path,
        text=text,
        title=choose_title(path, title),
        file_type="pdf",
        metadata=_read_metadata(document),
        headings=tuple(
            Heading(start, end, line.level, line.title) for start, end, line in spans if end > start
        ),
        tables=tuple(find_tables(pages, starts, ends)),
        pages=page_starts,
        places=Places("page"),
    )


_DATE = re.compile(
    r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?(?:(\d\d)(\d\d)?(\d\d)?)?\s*(?:(Z|[+-])(?:(\d\d)'?(\d\d)?'?)?)?"
)
_NO_TITLE = re.compile(
    r"(?:untitled|unbenannt|sans titre|title|titel|slide|folie|document|dokument|presentation)"
    r"[\s\d.-]*|powerpoint[ -]pr.sentation|microsoft (?:word|powerpoint|excel) - .*|none|null|"
    r"\S*\.(?:docx?|odt|rtf|txt|pdf|tex|dvi|ps|indd|qxd|pptx?|xlsx?|html?|md|fm|p65|pmd|cdr|ai)",
    re.IGNORECASE,
)


_NO_PROPERTY = frozenset(["(anonymous)", "(unspecified)"])  # ReportLab's missing properties


def _read_metadata(document: PdfDocument) -> dict[str, MetadataValue]:
    """Return author, subject, dates, tags and language that are given, as first-class fields."""
    keywords = _property(document, "Keywords").replace(";", ",")
    return normalise(
        {
            "author": _property(document, "Author"),
            "subject": _property(document, "Subject"),
            "keywords": keywords,
            "created": iso_date(_property(document, "CreationDate")),
            "modified": iso_date(_property(document, "ModDate")),
            "language": _language(document),
            **{
                name: value
                for name in ("Confidentiality", "confidentiality")
                if (value := _property(document, name))
            },
        }
    )


def _stated_title(document: PdfDocument) -> str:
    """Return the title in the properties, or "" if it is a file name or has no content."""
    title = one_line(_property(document, "Title"))
    if _NO_TITLE.fullmatch(title) or not any(letter.isalpha() for letter in title):
        return ""
    return title


def _largest_text(lines: Sequence[PageLine], body: float) -> str:
    """Return the lines of a first page in its largest letters, or "" if they are not a title.

    They are a title if they are together, at least a fifth larger than the body's letters, and a
    few words.
    """
    upright = [line for line in lines if line.margin != "aside"]
    largest = max((line.size for line in upright), default=0.0)
    first = next((at for at, line in enumerate(upright) if line.size >= 0.97 * largest), 0)
    title = ""
    for line in upright[first : first + 4]:
        if line.size < 0.97 * largest:
            break
        title += " " + line.text
    title = one_line(title)
    is_title = 4 <= len(title) <= 200 and sum(letter.isalpha() for letter in title) >= 3
    return title if is_title and largest >= 1.2 * body else ""


def iso_date(value: str) -> str | None:
    """Return a PDF date (``D:20240131093000+01'00'``, ISO 32000-1, 7.9.4) as ISO 8601.

    A missing month or day becomes 1, a missing time is left out. ``None`` if it is not a date.
    """
    match = _DATE.match(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, sign, off_hours, off_minutes = match.groups()
    try:
        date = dt.date(int(year), int(month or 1), int(day or 1))
        if hour is None:
            return date.isoformat()
        time = dt.time(int(hour), int(minute or 0), int(second or 0))
        zone = None
        if sign is not None:
            offset = dt.timedelta(hours=int(off_hours or 0), minutes=int(off_minutes or 0))
            zone = dt.timezone(-offset if sign == "-" else offset)
        return dt.datetime.combine(date, time, zone).isoformat()
    except ValueError:
        return None


def _property(document: PdfDocument, key: str) -> str:
    import pypdfium2.raw as pdfium

    value = read_string(pdfium.FPDF_GetMetaText, document, key.encode(), max_bytes=65536)
    value = value.strip("\ufffd \t\r\n")
    return "" if value in _NO_PROPERTY else value


def _language(document: PdfDocument) -> str:
    import pypdfium2.raw as pdfium

    text = read_string(pdfium.FPDFCatalog_GetLanguage, document, max_bytes=256)
    return text if re.fullmatch(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*", text) else ""
