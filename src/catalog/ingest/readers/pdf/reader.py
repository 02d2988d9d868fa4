"""PDF: one document a file, its pages in reading order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.models import Heading, ParsedDocument
from catalog.ingest.readers.base import ReadFailure, first_of, title_or_stem
from catalog.ingest.readers.limits import ReadLimits
from catalog.ingest.readers.pdf.fonts import body_size, font_headings
from catalog.ingest.readers.pdf.info import given_title, largest_text, metadata
from catalog.ingest.readers.pdf.lines import PageLine, page_lines
from catalog.ingest.readers.pdf.margins import without_running_lines
from catalog.ingest.readers.pdf.outline import HeadingLines, bookmarks, outline_headings
from catalog.ingest.readers.pdf.text import PdfText, join
from catalog.ingest.readers.pdf.words import page_words

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

_FEWEST_BOOKMARKS = 2
"""An outline with fewer entries found says less than the letters do, if they say anything."""
_GENEROUS = 4
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
        """The document, then each page that cannot be read (``path#page=n``).

        Raises ``ReadError`` if the file is broken, protected by a password or over a limit,
        ``EmptyDocumentError`` if it has no text.
        """
        data = handle.read(limits.document_bytes + 1)
        if len(data) > limits.document_bytes:
            raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
        with _opened(data) as document:
            count = len(document)
            if count == 0:
                raise ReadError("broken PDF: it has no pages")
            if count > limits.pages:
                raise ReadError(f"too many pages: {count:,}, over {limits.pages:,}")
            pages, tops, failed = _read_pages(document, limits)
            if len(failed) == count:
                raise ReadError("broken PDF: none of its pages can be read")
            pages = without_running_lines(pages)
            if not any(pages):
                told = "1 page" if count == 1 else f"{count:,} pages"
                raise EmptyDocumentError(f"no text in it: {told} of images; OCR it first")
            yield _document(document, path, pages, tops)
        yield from first_of([ReadFailure(f"{path}#page={page}", "broken page") for page in failed])


def _opened(data: bytes) -> PdfDocument:
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
    """The lines and upper edges of all pages, and the numbers of those that cannot be read."""
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


def _read_page(document: PdfDocument, index: int, most: int) -> tuple[list[PageLine], float | None]:
    with closing(document[index]) as page, closing(page.get_textpage()) as textpage:
        if textpage.count_chars() > _GENEROUS * most + 10_000:
            raise ReadError(f"too much text: page {index + 1:,} alone is over the limit")
        words = page_words(page, textpage)
    return page_lines(words), words.top


def _document(
    document: PdfDocument,
    path: str,
    pages: Sequence[Sequence[PageLine]],
    tops: Sequence[float | None],
) -> ParsedDocument:
    joined = join(pages)
    title = given_title(document) or largest_text(pages[0], body_size(pages))
    outlined = outline_headings(bookmarks(document), pages, tops)
    found = outlined if len(outlined) >= _FEWEST_BOOKMARKS else font_headings(pages) or outlined
    return ParsedDocument(
        path=path,
        text=joined.text,
        title=title_or_stem(title, path),
        file_type="pdf",
        metadata=metadata(document),
        headings=tuple(_headings(found, joined)),
        pages=joined.pages,
    )


def _headings(found: Sequence[HeadingLines], joined: PdfText) -> Iterator[Heading]:
    for heading in found:
        start = joined.starts[heading.page][heading.first]
        end = joined.ends[heading.page][heading.last]
        if end > start:
            yield Heading(start, end, heading.level, heading.title)
