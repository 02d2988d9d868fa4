"""PDF: one document for each file, and one for each file attached to it.

Headings come from the bookmarks, or else from larger or bold letters.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, groupby, islice, pairwise, takewhile
from posixpath import splitext
from typing import BinaryIO

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from pypdfium2 import PdfDocument

from catalog.core.documents import Heading, MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import WITHIN, Places
from catalog.core.text import clean
from catalog.ingest.readers import base
from catalog.ingest.readers.base import Items, ReadFailure, ReadLimits, choose_title, one_line
from catalog.ingest.readers.mail.message import number_name, read_attached
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.pdf import lines as layout
from catalog.ingest.readers.pdf.annotations import read_annotations, read_string
from catalog.ingest.readers.pdf.lines import TextLine, body_size, read_lines
from catalog.ingest.readers.pdf.tables import find_tables

_MOST_BOOKMARKS, _DEEPEST, _MOST_NAMED = 20_000, 9, 20
_MOST_PLACES = 50  # of a page that are compared with a bookmark
_MOST_ATTACHED, _DEEPEST_FILE = 1000, 3
_MOST_LINES, _LONGEST, _MOST_SIZES = 3, 150, 5  # of a heading; levels told apart by size
# A heading's size in sizes of the body, and the share of all letters that headings may be.
_LARGER, _LARGEST_SHARE = 1.15, 0.25
_MAX_DRAWN = 4  # times the characters allowed: white space and what is left out is drawn, too
_NO_STRUCTURE = "broken PDF: it has no readable structure"
_REFUSED = {
    raw.FPDF_ERR_PASSWORD: "protected by a password",
    raw.FPDF_ERR_SECURITY: "its protection is not supported",
}
_BROKEN = "broken page"
_PICTURES = "no text on {}, only pictures; run OCR first"
_GARBLED = "the text layer of {} has no letters; run OCR first"
_NUMBER = re.compile(
    r"\A(?:(?:chapter|appendix|section|part|kapitel|anhang)\s+)?"
    r"(?:\d+|[A-Z]|[IVXLC]+)(?:\.\d+)*(?:[.:)]\s*|\s+)(?=\S)",
    re.IGNORECASE,
)
_NO_LETTER = re.compile(r"[\W_]+")
_NUMBERED = re.compile(r"((?:\d{1,3}|[A-Z])(?:\.\d{1,3})*)\.?\s+[^\W\d_]")
_UNREADABLE = re.compile("[\ufffd\ue000-\uf8ff]")
_DATE = re.compile(r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?((?:\d\d){1,3})?\s*(Z|[+-]\d\d'?(?:\d\d)?)?")
_NO_TITLE = re.compile(
    r"[\W\d_]*|(?:untitled|unbenannt|sans titre|title|titel|slide|folie|document|dokument|"
    r"presentation)[\s\d.-]*|powerpoint[ -]pr.sentation|microsoft (?:word|powerpoint|excel) - .*|"
    r"none|null|\S*\.(?:docx?|odt|rtf|txt|pdf|tex|dvi|ps|indd|qxd|pptx?|xlsx?|html?|md|fm|p65|pmd|cdr|ai)",
    re.IGNORECASE,
)
_LABEL = re.compile(rb"/([\w.-]{0,20}confidentiality[\w.-]{0,20})", re.IGNORECASE)
# Names that are asked for, besides those in the file, which may be packed.
_LABELS = ("Confidentiality", "confidentiality", "CONFIDENTIALITY", "ConfidentialityLevel")
_Pages = Sequence[Sequence[TextLine]]


class PdfReader:
    """Read the text of a PDF with PDFium, and the files attached to it.

    Filled form fields and comments follow the text of their page. Headings are the bookmarks found
    on their pages, or else lines in larger or bold numbered letters.
    """

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the document, the attached files, and failures for pages that cannot be read.

        Raises ``ReadError`` if the file is broken, protected by a password or over a limit,
        ``EmptyDocumentError`` if it has no text.
        """
        if path.count(WITHIN) > _DEEPEST_FILE:
            raise ReadError("attached too deep: save it as a file")
        data = base.read_bytes(handle, limits.document_bytes)
        try:
            opened = PdfDocument(data)
        except pdfium.PdfiumError as error:
            raise ReadError(_REFUSED.get(error.err_code, _NO_STRUCTURE)) from error
        with opened as document:
            count = len(document)
            if count > limits.pages:
                raise ReadError(f"too many pages: {count:,}, over {limits.pages:,}")
            if document.get_formtype():
                document.init_forms()
            pages, unread = _read_pages(document, limits)
            broken = [page for page, why in unread.items() if why == _BROKEN]
            if len(broken) == count:
                raise ReadError("broken PDF: none of its pages can be read")
            layout.drop_running_lines(pages)
            fields = _read_metadata(document, data)
            if any(pages):
                text, page_starts = layout.join_pages(pages)
                headings = _outline_headings(document, pages)
                if len(headings) < 2:  # the letters say more than such an outline, if anything
                    headings = _font_headings(pages) or headings
                title = one_line(_property(document, "Title"))
                title = "" if _NO_TITLE.fullmatch(title) else title
                yield ParsedDocument(
                    path=path,
                    text=text,
                    title=choose_title(path, title, _largest_text(pages)),
                    file_type="pdf",
                    metadata=fields,
                    headings=tuple(heading for heading in headings if heading.end > heading.start),
                    tables=tuple(find_tables(pages)),
                    pages=page_starts,
                    places=Places("page"),
                )
            yield from _read_attached(document, path, fields, limits)
        if not any(pages):
            size = "1 page" if count == 1 else f"{count:,} pages"
            kind = "with an unreadable text layer" if _GARBLED in unread.values() else "of images"
            raise EmptyDocumentError(f"no text in {size} {kind}; run OCR first")
        failures = [ReadFailure(f"{path}#page={page}", _BROKEN) for page in broken]
        yield from base.cap_failures(failures)
        for why in (_PICTURES, _GARBLED):
            if those := [page for page, one in unread.items() if one == why]:
                yield ReadFailure(path, why.format(_name_pages(those)))


def _name_pages(numbers: Sequence[int]) -> str:
    parts = groupby(enumerate(numbers), lambda one: one[1] - one[0])
    runs = [[number for _, number in part] for _, part in parts]
    names = [f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs]
    rest = f" and {len(names) - _MOST_NAMED:,} more" if names[_MOST_NAMED:] else ""
    return f"page{'s' * (len(numbers) > 1)} {', '.join(names[:_MOST_NAMED])}{rest}"


def _read_pages(
    document: PdfDocument, limits: ReadLimits
) -> tuple[list[list[TextLine]], dict[int, str]]:
    """Return the lines of all pages, and why pages, counted from 1, have no text."""
    pages, unread, left = list[list[TextLine]](), dict[int, str](), limits.characters
    for number in range(1, len(document) + 1):
        lines: list[TextLine] = []
        try:
            with closing(document[number - 1]) as page, closing(page.get_textpage()) as textpage:
                if textpage.count_chars() > _MAX_DRAWN * left + 10_000:
                    raise ReadError(f"too much text: page {number:,} alone exceeds the limit")
                lines = read_lines(page, textpage)
                bad = [3 * len(_UNREADABLE.findall(line.text)) - len(line.text) for line in lines]
                if lines and sum(bad) >= 0:
                    unread[number] = _GARBLED
                    lines = [line for line, rest in zip(lines, bad, strict=True) if rest < 0]
                lines += [TextLine(text) for text in read_annotations(page)]
                if not lines and raw.FPDFPage_CountObjects(page.raw) > 0:
                    unread.setdefault(number, _PICTURES)
        except pdfium.PdfiumError:
            unread[number] = _BROKEN
        left -= sum(len(line.text) + 1 for line in lines)
        if left < 0:
            raise ReadError(f"too much text: over {limits.characters:,} characters")
        pages.append(lines)
    return pages, unread


def _read_attached(
    document: PdfDocument, path: str, fields: Mapping[str, MetadataValue], limits: ReadLimits
) -> Items:
    names = Counter[str]()
    for index in range(min(document.count_attachments(), _MOST_ATTACHED)):
        handle = raw.FPDFDoc_GetAttachment(document, index)
        name = one_line(clean(read_string(raw.FPDFAttachment_GetName, handle)))
        stem, suffix = splitext(re.split(r"[/\\]", name)[-1].replace(WITHIN.strip(), "-") or "file")
        where = f"{path}{WITHIN}{number_name(names, stem, suffix)}"
        try:
            data = bytes(pdfium.PdfAttachment(handle, document).get_data())
        except pdfium.PdfiumError as error:
            yield ReadFailure(where, str(error), where)
        else:
            yield from read_attached(data, where, fields, limits)


def _outline_headings(document: PdfDocument, pages: _Pages) -> list[Heading]:
    """Return the bookmarks that occur as up to three lines of their page, in the text's order.

    Case, punctuation and a leading number do not count. If several lines match, the one nearest to
    the bookmark's place is taken; a line is the heading of one bookmark only.
    """
    marks: dict[int, list[tuple[str, int, float]]] = defaultdict(list)
    for mark in islice(document.get_toc(_DEEPEST), _MOST_BOOKMARKS):
        title = one_line(read_string(raw.FPDFBookmark_GetTitle, mark, max_bytes=4096))
        place = mark.get_dest()
        page = place.get_index() if place is not None else None
        if title and place is not None and page is not None and page < len(pages):
            top = (*place.get_view()[1], None, None)[1]  # of left, top and zoom
            marks[page].append((title, mark.level + 1, top or math.inf))
    headings: list[Heading] = []
    for page, on_page in marks.items():
        lines, taken = pages[page], set[int]()
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for first, stop in ((at, at + many) for at in range(len(lines)) for many in (1, 2, 3)):
            for key in set(_keys(" ".join(line.text for line in lines[first:stop]))):
                places[key] += [(first, stop)] if len(places[key]) < _MOST_PLACES else []
        for title, level, top in on_page:
            spans = [
                (abs(lines[first].y - top), first, min(stop, len(lines)))
                for key in filter(None, dict.fromkeys(_keys(title)))
                for first, stop in places.get(key, ())
                if taken.isdisjoint(range(first, stop))
            ]
            if spans:
                _, first, stop = min(spans)
                taken.update(range(first, stop))
                headings.append(Heading(lines[first].start, lines[stop - 1].end, level, title))
    return sorted(headings, key=lambda heading: heading.start)


def _keys(text: str) -> tuple[str, str]:
    folded = unicodedata.normalize("NFKC", text).strip()
    bare = _NUMBER.sub("", folded, count=1)
    return _NO_LETTER.sub("", folded.casefold()), _NO_LETTER.sub("", bare.casefold())


def _font_headings(pages: _Pages) -> list[Heading]:
    """Return short lines in larger letters than the body's, and bold lines with a number.

    The largest size is level 1, and so on. Bold lines come below, by the parts of their number.
    """
    body = body_size(pages)
    found: list[tuple[float, Heading]] = []
    for lines in pages:
        begins = [at for at, line in enumerate(lines) if line.starts]
        for first, end in pairwise([*begins, len(lines)]):
            level = _heading_level(lines[first:end], body)
            if level is not None:
                title = one_line(" ".join(line.text for line in lines[first:end]))
                heading = Heading(lines[first].start, lines[end - 1].end, level, title)
                found.append((0.0 if level else lines[first].size, heading))
    letters = sum(len(line.text) for line in chain.from_iterable(pages))
    if sum(len(heading.title) for _, heading in found) > _LARGEST_SHARE * letters:
        return []
    ranks, rank, top = dict[float, int](), 0, math.inf
    for size in sorted({size for size, _ in found if size}, reverse=True):
        if size < 0.95 * top:  # sizes within a twentieth share a rank
            rank, top = min(rank + 1, _MOST_SIZES), size
        ranks[size] = rank
    above = rank + 1 - min((one.level for size, one in found if not size), default=1)
    return [replace(one, level=ranks.get(size, above + one.level)) for size, one in found]


def _heading_level(lines: Sequence[TextLine], body: float) -> int | None:
    """Return 0 for a heading in large letters, the parts of its number for one in bold letters."""
    text = " ".join(line.text for line in lines[: _MOST_LINES + 1]).rstrip()
    shown = sum(letter.isalnum() or letter.isspace() for letter in text)
    is_short = len(lines) <= _MOST_LINES and len(text) <= _LONGEST
    has_words = sum(map(str.isalpha, text)) >= 2 and 2 * shown >= len(text)
    if lines[0].margin == "aside" or not is_short or not has_words or text[-1] in ".,;:":
        return None
    if all(line.size >= _LARGER * body for line in lines):
        return 0
    is_bold = all(line.bold and line.size >= 0.97 * body for line in lines)
    number = _NUMBERED.match(text) if is_bold else None
    return number[1].count(".") + 1 if number else None


def _read_metadata(document: PdfDocument, data: bytes) -> dict[str, MetadataValue]:
    language = read_string(raw.FPDFCatalog_GetLanguage, document, max_bytes=256)
    is_language = re.fullmatch(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*", language)
    labels = islice(dict.fromkeys(match[1].decode() for match in _LABEL.finditer(data)), 20)
    stated = {name: _property(document, name) for name in dict.fromkeys([*_LABELS, *labels])}
    return normalise(
        {
            "author": _property(document, "Author"),
            "subject": _property(document, "Subject"),
            "keywords": _property(document, "Keywords").replace(";", ","),
            "created": iso_date(_property(document, "CreationDate")),
            "modified": iso_date(_property(document, "ModDate")),
            "language": language if is_language else "",
            **{name: value for name, value in stated.items() if value},
        }
    )


def _property(document: PdfDocument, key: str) -> str:
    value = read_string(raw.FPDF_GetMetaText, document, key.encode(), max_bytes=65536)
    value = value.strip("\ufffd \t\r\n")
    return "" if value in ("(anonymous)", "(unspecified)") else value  # as ReportLab writes nothing


def _largest_text(pages: _Pages) -> str:
    """Return the first page's lines in its largest letters, or "" if they are no title."""
    upright = [line for line in pages[0] if line.margin != "aside"]
    largest = max((line.size for line in upright), default=0.0)
    first = next((at for at, line in enumerate(upright) if line.size >= 0.97 * largest), 0)
    parts = takewhile(lambda line: line.size >= 0.97 * largest, upright[first : first + 4])
    title = one_line(" ".join(line.text for line in parts))
    is_title = 4 <= len(title) <= 200 and sum(map(str.isalpha, title)) >= 3
    return title if is_title and largest >= 1.2 * body_size(pages) else ""


def iso_date(value: str) -> str | None:
    """Return a PDF date (``D:20240131093000+01'00'``, ISO 32000-1, 7.9.4) as ISO 8601.

    A missing month or day becomes 1, a missing time is left out. ``None`` if it is not a date.
    """
    match = _DATE.match(value)
    if match is None:
        return None
    year, month, day, time, zone = match.groups(default="")
    date = f"{year}{month or '01'}{day or '01'}"
    try:
        if not time:
            return dt.date.fromisoformat(date).isoformat()
        return dt.datetime.fromisoformat(f"{date}T{time}{zone}".replace("'", "")).isoformat()
    except ValueError:
        return None
