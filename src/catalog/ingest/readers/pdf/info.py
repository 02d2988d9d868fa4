"""What a PDF says about itself: title, author, dates, keywords, language."""

from __future__ import annotations

import ctypes
import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog.core.models import MetadataValue
from catalog.core.text import storable
from catalog.ingest.readers.base import one_line
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.pdf.lines import PageLine

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

_DATE = re.compile(
    r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?(?:(\d\d)(\d\d)?(\d\d)?)?\s*(?:(Z|[+-])(?:(\d\d)'?(\d\d)?'?)?)?"
)
_NO_TITLE = re.compile(
    r"(?:untitled|unbenannt|sans titre|title|titel|slide|folie|document|dokument|presentation)"
    r"[\s\d.-]*|powerpoint[ -]pr.sentation|microsoft (?:word|powerpoint|excel) - .*|none|null|"
    r"\S*\.(?:docx?|odt|rtf|txt|pdf|tex|dvi|ps|indd|qxd|pptx?|xlsx?|html?|md|fm|p65|pmd|cdr|ai)",
    re.IGNORECASE,
)


def metadata(document: PdfDocument) -> dict[str, MetadataValue]:
    """Author, subject, dates, tags and language under their first-class names, if given."""
    keywords = _value(document, "Keywords").replace(";", ",")
    return normalise(
        {
            "author": _value(document, "Author"),
            "subject": _value(document, "Subject"),
            "keywords": keywords,
            "created": iso_date(_value(document, "CreationDate")),
            "modified": iso_date(_value(document, "ModDate")),
            "language": _language(document),
        }
    )


def given_title(document: PdfDocument) -> str:
    """The title in the document's properties, or "" if that is a file name or says nothing."""
    title = one_line(_value(document, "Title"))
    if _NO_TITLE.fullmatch(title) or not any(letter.isalpha() for letter in title):
        return ""
    return title


def largest_text(lines: Sequence[PageLine], body: float) -> str:
    """The lines of a first page in its largest letters, or "" if they are no title.

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
    """A PDF date (``D:20240131093000+01'00'``, ISO 32000-1, 7.9.4) as ISO 8601.

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


def _value(document: PdfDocument, key: str) -> str:
    import pypdfium2.raw as pdfium

    name = key.encode()
    size = min(65536, pdfium.FPDF_GetMetaText(document, name, None, 0))
    buffer = ctypes.create_string_buffer(size + 2)
    pdfium.FPDF_GetMetaText(document, name, buffer, size)
    return storable(buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace")).strip(
        "\ufffd \t\r\n"
    )


def _language(document: PdfDocument) -> str:
    import pypdfium2.raw as pdfium

    size = min(256, pdfium.FPDFCatalog_GetLanguage(document, None, 0))
    buffer = (ctypes.c_ushort * (size + 1))()
    pdfium.FPDFCatalog_GetLanguage(document, buffer, size)
    text = bytes(memoryview(buffer)[: max(0, size // 2 - 1)]).decode("utf-16-le", "replace")
    return text if re.fullmatch(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*", text) else ""
