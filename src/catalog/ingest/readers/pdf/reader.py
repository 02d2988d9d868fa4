"""PDF: one document for each file, and one for each file attached to it."""

import datetime as dt
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import chain, dropwhile, groupby, islice, pairwise, product, takewhile
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
from catalog.ingest.readers.metadata import UNREADABLE, normalise
from catalog.ingest.readers.pdf import lines as layout
from catalog.ingest.readers.pdf.annotations import read_annotations, read_string
from catalog.ingest.readers.pdf.lines import TextLine, body_size, read_lines

_MOST_BOOKMARKS, _DEEPEST, _MOST_NAMED, _MOST_ATTACHED, _DEEPEST_FILE = 20_000, 9, 20, 1000, 3
_MOST_PLACES = 50  # of a page that are compared with a bookmark
_MOST_LINES, _LONGEST, _MOST_SIZES = 3, 150, 5  # of a heading; levels told apart by size
# A heading's size in sizes of the body, and the share of all letters that headings may be.
_LARGER, _LARGEST_SHARE = 1.15, 0.25
_MAX_DRAWN = 4  # times the characters allowed: white space and what is left out is drawn, too
_REFUSED = {raw.FPDF_ERR_PASSWORD: "protected by a password"}
_REFUSED[raw.FPDF_ERR_SECURITY] = "its protection is not supported"
_BROKEN = "broken page"
_PICTURES = "no text on {}, only pictures; run OCR first"
_GARBLED = "the text layer of {} has no letters; run OCR first"
_NUMBER = re.compile(
    r"(?i)\A(?:(?:chapter|appendix|section|part|kapitel|anhang)\s+)?"
    r"(?:\d+|[A-Z]|[IVXLC]+)(?:\.\d+)*(?:[.:)]\s*|\s+)(?=\S)"
)
_NO_LETTER = re.compile(r"[\W_]+")
_NUMBERED = re.compile(r"((?:\d{1,3}|[A-Z])(?:\.\d{1,3})*)\.?\s+[^\W\d_]")
_UNREADABLE = re.compile("[\ufffd\ue000-\uf8ff]")
_DATE = re.compile(r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?((?:\d\d){1,3})?\s*(Z|[+-]\d\d'?(?:\d\d)?)?")
_NO_TITLE = re.compile(
    r"(?i)\A(?:[\W\d_]*|(?:untitled|unbenannt|sans titre|title|titel|slide|folie|document|dokument|"
    r"presentation)[\s\d.-]*|powerpoint[ -]pr.sentation|microsoft (?:word|powerpoint|excel) - .*|"
    r"none|null|\S*\.(?:docx?|od[tp]|rtf|txt|pdf|tex|dvi|ps|indd|qxd|pptx?|xlsx?|html?|md))\Z"
)
_LABEL = re.compile(  # and whether it has a value of its own, read or not
    rb"/([\w.#-]{0,30}confidentiality[\w.#-]{0,30})(\s*+(?:[(\[]|<(?!<)|(?:\d++|true)\s*+[/>]))?",
    re.IGNORECASE,
)
# Names that are asked for, besides those in the file, which may be packed.
_LABELS = ["confidentiality", "CONFIDENTIALITY", "X-Confidentiality"]
_LABELS += [f"{of}Confidentiality{it}" for of in ("", "Document") for it in ("", "Level", " Level")]
_Pages = Sequence[Sequence[TextLine]]


class PdfReader:
    """Read the text of a PDF with PDFium, and the files attached to it.

    Filled form fields and comments follow the text of their page. Headings are the bookmarks, or
    else lines in larger or bold numbered letters.
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
            reason = _REFUSED.get(error.err_code, "broken PDF: it has no readable structure")
            raise ReadError(reason) from error
        with opened as document:
            count = len(document)
            if count > limits.pages:
                raise ReadError(f"too many pages: {count:,}, over {limits.pages:,}")
            fields = _read_metadata(document, data)
            if limits.labels_only:
                yield ParsedDocument(path, "", path, "pdf", metadata=fields)
                return
            if document.get_formtype():
                document.init_forms()
            pages, unread = _read_pages(document, limits)
            broken = [page for page, why in unread.items() if why == _BROKEN]
            if len(broken) == count:
                raise ReadError("broken PDF: none of its pages can be read")
            layout.drop_running_lines(pages)
            if any(pages):
                text, page_starts = layout.join_pages(pages)
                headings = _outline_headings(document, pages)
                if len(headings) < 2:  # the letters say more than such an outline, if anything
                    headings = _font_headings(pages) or headings
                title = _NO_TITLE.sub("", one_line(_property(document, "Title")))
                title = choose_title(path, title, _largest_text(pages))
                yield replace(
                    ParsedDocument(path, text, title, "pdf", "file", fields, pages=page_starts),
                    headings=tuple(heading for heading in headings if heading.end > heading.start),
                    tables=tuple(layout.find_tables(pages)),
                    places=Places("page"),
                )
            yield from _read_attached(document, path, fields, limits)
        if not any(pages):
            kind = "with an unreadable text layer" if _GARBLED in unread.values() else "of images"
            size = f"{count:,} page{'s' * (count > 1)}"
            raise EmptyDocumentError(f"no text in {size} {kind}; run OCR first")
        yield from base.cap_failures([ReadFailure(f"{path}#page={one}", _BROKEN) for one in broken])
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
                lines += [TextLine(text, margin="aside") for text in read_annotations(page)]
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

    Case, punctuation and a leading number do not count. The place nearest to the bookmark's counts.
    """
    headings, taken = list[Heading](), set[tuple[int, int]]()
    find = cache(lambda page: _find_places(pages[page]))
    for mark in islice(document.get_toc(_DEEPEST), _MOST_BOOKMARKS):
        title = one_line(read_string(raw.FPDFBookmark_GetTitle, mark, max_bytes=4096))
        place = mark.get_dest()
        page = place.get_index() if place else None
        if place and page is not None and page < len(pages):
            lines, top = pages[page], (*place.get_view()[1], None, None)[1] or math.inf
            spans = {span for key in _keys(title) for span in find(page).get(key, ())}
            if free := [span for span in sorted(spans) if (page, span[0]) not in taken]:
                first, stop = min(free, key=lambda span: abs(lines[span[0]].y - top))
                taken.add((page, first))
                end = lines[stop - 1].end
                headings.append(Heading(lines[first].start, end, mark.level + 1, title))
    return sorted(headings, key=lambda heading: heading.start)


def _find_places(lines: Sequence[TextLine]) -> dict[str, list[tuple[int, int]]]:
    places = defaultdict[str, list[tuple[int, int]]](list)
    for first, many in product(range(len(lines)), (1, 2, 3)):
        stop = min(first + many, len(lines))
        for key in _keys(" ".join(line.text for line in lines[first:stop])):
            places[key] += [(first, stop)] if len(places[key]) < _MOST_PLACES else []
    return places


def _keys(text: str) -> set[str]:
    """Return the letters of a text, with and without a number at its beginning."""
    folded = unicodedata.normalize("NFKC", text).strip()
    both = (folded, _NUMBER.sub("", folded, count=1))
    return {_NO_LETTER.sub("", one.casefold()) for one in both} - {""}


def _font_headings(pages: _Pages) -> list[Heading]:
    """Return short lines in larger letters than the body's, and bold lines with a number.

    The largest size is level 1, and so on. Bold lines come below, by the parts of their number.
    """
    body, found = body_size(pages), list[tuple[float, Heading]]()
    for lines in pages:
        begins = [at for at, line in enumerate(lines) if line.starts or at == 0]
        for part in (lines[first:end] for first, end in pairwise([*begins, len(lines)])):
            level = _heading_level(part, body)
            if level is not None:
                title = one_line(" ".join(line.text for line in part))
                heading = Heading(part[0].start, part[-1].end, level, title)
                found.append((0.0 if level else part[0].size, heading))
    letters = sum(len(line.text) for line in chain.from_iterable(pages))
    if sum(len(heading.title) for _, heading in found) > _LARGEST_SHARE * letters:
        return []
    ranks, rank, top = {0.0: 0}, 0, math.inf
    for size in sorted({size for size, _ in found if size}, reverse=True):
        if size < 0.95 * top:  # sizes within a twentieth share a rank
            rank, top = min(rank + 1, _MOST_SIZES), size
        ranks[size] = rank
    below = rank + 1 - min((one.level for size, one in found if not size), default=1)
    return [replace(one, level=ranks[size] or below + one.level) for size, one in found]


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
    coded = {one[1].decode().replace("#20", " "): one[2] for one in _LABEL.finditer(data)}
    found = islice(coded.items(), 20)
    fields: dict[str, object] = {name: _property(document, name) for name in _LABELS}
    fields |= {name: _property(document, name) or (its and UNREADABLE) for name, its in found}
    fields |= {name.lower(): _property(document, name) for name in ("Author", "Subject")}
    fields["keywords"] = _property(document, "Keywords").replace(";", ",")
    fields["created"] = iso_date(_property(document, "CreationDate"))
    fields["modified"] = iso_date(_property(document, "ModDate"))
    fields["language"] = language if is_language else ""
    return normalise({name: value for name, value in fields.items() if value})


def _property(document: PdfDocument, key: str) -> str:
    value = read_string(raw.FPDF_GetMetaText, document, key.encode(), max_bytes=65536)
    value = value.strip("\ufffd \t\r\n")
    return "" if value in ("(anonymous)", "(unspecified)") else value  # as ReportLab writes nothing


def _largest_text(pages: _Pages) -> str:
    """Return the first page's lines in its largest letters, or "" if they are no title."""
    upright = [line for line in pages[0] if line.margin != "aside"]
    largest = max((line.size for line in upright), default=0.0)
    rest = dropwhile(lambda line: line.size < 0.97 * largest, upright)
    parts = takewhile(lambda line: line.size >= 0.97 * largest, islice(rest, 4))
    title = one_line(" ".join(line.text for line in parts))
    is_title = 4 <= len(title) <= 200 and sum(map(str.isalpha, title)) >= 3
    return title if is_title and largest >= 1.2 * body_size(pages) else ""


def iso_date(value: str) -> str | None:
    """Return a PDF date (``D:20240131093000+01'00'``, ISO 32000-1, 7.9.4) as ISO 8601.

    A missing month or day becomes 1, a missing time is left out. ``None`` if it is not a date.
    """
    match = _DATE.match(value)
    year, month, day, time, zone = match.groups(default="") if match else [""] * 5
    date = f"{year}{month or '01'}{day or '01'}"
    try:
        if not time:
            return dt.date.fromisoformat(date).isoformat()
        return dt.datetime.fromisoformat(f"{date}T{time}{zone}".replace("'", "")).isoformat()
    except ValueError:
        return None
