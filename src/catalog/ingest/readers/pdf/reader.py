"""PDF: one document a file, its pages in reading order, with its title and metadata."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.documents import Heading, MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places
from catalog.ingest.readers.base import (
    ReadFailure,
    ReadLimits,
    cap_failures,
    choose_title,
    one_line,
    read_bytes,
)
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.pdf.headings import (
    body_size,
    font_headings,
    outline_headings,
    read_string,
)
from catalog.ingest.readers.pdf.layout import PageLine
from catalog.ingest.readers.pdf.page_lines import order_lines
from catalog.ingest.readers.pdf.page_text import drop_running_lines, join_pages
from catalog.ingest.readers.pdf.words import read_words

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

_FEWEST_BOOKMARKS = 2
"""An outline with fewer entries found says less than the letters do, if they say anything."""
_MAX_DRAWN = 4
"""Times the characters allowed that a page may draw, for white space and what is left out."""


class PdfReader:
    """Reads the text layer of a PDF with PDFium; pictures are not looked at.

    Columns are read one after the other and footnotes of columns last; text at an angle comes at
    the end of its page. Running titles and page numbers in the top and bottom tenth of the pages
    are left out. Words broken at the end of a line are put together. Headings are the bookmarks
    found on their pages, or else lines in larger or bold numbered letters.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the document, then each page that cannot be read (``path#page=n``).

        Raises ``ReadError`` if the file is broken, protected by a password or over a limit,
        ``EmptyDocumentError`` if it has no text.
        """
        with _open(read_bytes(handle, limits.document_bytes)) as document:
            count = len(document)
            if count == 0:
                raise ReadError("broken PDF: it has no pages")
            if count > limits.pages:
                raise ReadError(f"too many pages: {count:,}, over {limits.pages:,}")
            pages, tops, failed = _read_pages(document, limits)
            if len(failed) == count:
                raise ReadError("broken PDF: none of its pages can be read")
            pages = drop_running_lines(pages)
            if not any(pages):
                size = "1 page" if count == 1 else f"{count:,} pages"
                raise EmptyDocumentError(f"no text in it: {size} of images; OCR it first")
            yield _build_document(document, path, pages, tops)
        yield from cap_failures(
            [ReadFailure(f"{path}#page={page}", "broken page") for page in failed]
        )


def _open(data: bytes) -> PdfDocument:
    import pypdfium2 as pdfium
    import pypdfium2.raw as raw

    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise ReadError("protected by a password") from error
        if error.err_code == raw.FPDF_ERR_SECURITY:
            raise ReadError("protected in a way that cannot be read") from error
        raise ReadError("broken PDF: it has no readable structure") from error


def _read_pages(
    document: PdfDocument, limits: ReadLimits
) -> tuple[list[list[PageLine]], list[float | None], list[int]]:
    """Return lines and upper edges of all pages, and the numbers of those that are broken."""
    import pypdfium2 as pdfium

    pages: list[list[PageLine]] = []
    tops: list[float | None] = []
    failed: list[int] = []
    left = limits.characters
    for index in range(len(document)):
        lines: list[PageLine] = []
        top: float | None = None
        try:
            lines, top = _read_page(document, index, left)
        except pdfium.PdfiumError:
            failed.append(index + 1)
        left -= sum(len(line.text) + 1 for line in lines)
        if left < 0:
            raise ReadError(f"too much text: over {limits.characters:,} characters")
        pages.append(lines)
        tops.append(top)
    return pages, tops, failed


def _read_page(
    document: PdfDocument, index: int, limit: int
) -> tuple[list[PageLine], float | None]:
    with closing(document[index]) as page, closing(page.get_textpage()) as textpage:
        if textpage.count_chars() > _MAX_DRAWN * limit + 10_000:
            raise ReadError(f"too much text: page {index + 1:,} alone is over the limit")
        words = read_words(page, textpage)
    return order_lines(words), words.top


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


_NO_PROPERTY = frozenset(["(anonymous)", "(unspecified)"])  # what ReportLab writes for nothing


def _read_metadata(document: PdfDocument) -> dict[str, MetadataValue]:
    """Return author, subject, dates, tags and language under their first-class names, if given."""
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
    """Return the title in the properties, or "" if that is a file name or says nothing."""
    title = one_line(_property(document, "Title"))
    if _NO_TITLE.fullmatch(title) or not any(letter.isalpha() for letter in title):
        return ""
    return title


def _largest_text(lines: Sequence[PageLine], body: float) -> str:
    """Return the lines of a first page in its largest letters, or "" if they are no title.

    They are one if they stand together, are at least a fifth larger than the body's letters and
    read like a few words.
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

    Month and day are 1 where they are left out, the time is left out where it is; ``None`` if it
    is no date.
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
