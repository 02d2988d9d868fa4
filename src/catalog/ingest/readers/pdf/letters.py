"""The characters of a PDF page, and what becomes of odd ones."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from typing import TYPE_CHECKING

from catalog.core.text import storable

if TYPE_CHECKING:
    from pypdfium2 import PdfTextPage

_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0))),
    **dict.fromkeys((0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF, 0xFFFF)),
    **dict.fromkeys((0x02, 0xFFFE), "-"),  # PDFium's marks for a hyphen at the end of a line
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
    0xFB03: "ffi",
    0xFB04: "ffl",
    0xFB05: "st",
    0xFB06: "st",
    0xF0B7: "•",
}
_ACCENTS = dict(
    zip(
        "´¨ˆ˜¯˘˙˚ˇ",
        "\u0301\u0308\u0302\u0303\u0304\u0306\u0307\u030a\u030c",
        strict=True,
    )
)
_ACCENTED = re.compile(f"([{''.join(_ACCENTS)}])([^\\W\\d_])")
_LETTERS = {"ı": "i", "ȷ": "j"}


def clean(text: str) -> str:
    """Without control characters and ligatures, accents joined with their letters."""
    text = _ACCENTED.sub(_composed, text.translate(_REPLACED))
    return storable(text)


def _composed(match: re.Match[str]) -> str:
    """TeX draws an accent and then the letter under it."""
    whole = unicodedata.normalize("NFC", _LETTERS.get(match[2], match[2]) + _ACCENTS[match[1]])
    return whole if len(whole) == 1 else match[0]


def characters(textpage: PdfTextPage) -> str:
    """The page's characters, one each; asked for one by one only where PDFium leaves some out."""
    import pypdfium2.raw as pdfium

    count = textpage.count_chars()
    buffer = (ctypes.c_ushort * (2 * count + 2))()
    written = pdfium.FPDFText_GetText(textpage.raw, 0, count, buffer)
    units = memoryview(buffer)[: max(0, written - 1)]
    text = bytes(units).decode("utf-16-le", "replace")
    if len(text) == count and "\ufffd" not in text:
        return text
    codes = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
    return "".join(chr(code) if code < 0x110000 else "\ufffd" for code in codes)
