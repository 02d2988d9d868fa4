"""Read what people added to a PDF page: filled form fields and comments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from catalog.core.text import storable

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

_MOST_ANNOTATIONS = 5_000
"""Annotations that are looked at on one page."""
_MAX_BYTES = 65_536
"""Bytes of one comment or field."""
_COMMENTS = (
    "TEXT", "FREETEXT", "HIGHLIGHT", "UNDERLINE", "SQUIGGLY", "STRIKEOUT", "STAMP", "CARET", "INK",
    "LINE", "SQUARE", "CIRCLE", "POLYGON", "POLYLINE",
)  # fmt: skip


def read_annotations(page: PdfPage) -> Iterator[str]:
    """Yield a line for each filled field (``Name: Ada``) and comment (``Ada: Too long.``)."""
    import pypdfium2.raw as pdfium

    comments = {getattr(pdfium, f"FPDF_ANNOT_{name}") for name in _COMMENTS}
    count = pdfium.FPDFPage_GetAnnotCount(page.raw)
    for index in range(min(count, _MOST_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, index)
        if not annotation:
            continue
        try:
            kind = pdfium.FPDFAnnot_GetSubtype(annotation)
            name = text = ""
            if kind in comments:
                name = _read_value(annotation, b"T")
                text = _read_value(annotation, b"Contents")
            elif kind == pdfium.FPDF_ANNOT_WIDGET and page.formenv is not None:
                name, text = _read_field(page.formenv.raw, annotation)
            if text:
                yield f"{name}: {text}" if name else text
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _read_field(form: Any, annotation: Any) -> tuple[str, str]:
    """Return the label and the value of a form field; both are "" for one that is not filled."""
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    boxes = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
    written = (
        pdfium.FPDF_FORMFIELD_TEXTFIELD,
        pdfium.FPDF_FORMFIELD_COMBOBOX,
        pdfium.FPDF_FORMFIELD_LISTBOX,
    )
    value = ""
    if kind in written:
        value = read_string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
    elif kind in boxes and pdfium.FPDFAnnot_IsChecked(form, annotation):
        value = read_string(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation) or "yes"
    label = read_string(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    label = label or read_string(pdfium.FPDFAnnot_GetFormFieldName, form, annotation)
    return " ".join(label.split()), " ".join(value.split())


def _read_value(annotation: Any, key: bytes) -> str:
    import pypdfium2.raw as pdfium

    return " ".join(read_string(pdfium.FPDFAnnot_GetStringValue, annotation, key).split())


def read_string(
    function: Callable[..., int], *arguments: object, max_bytes: int = _MAX_BYTES
) -> str:
    """Call a PDFium function that writes UTF-16 into a buffer, and return the text."""
    size = min(max_bytes, function(*arguments, None, 0))
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    function(*arguments, buffer, size)
    return storable(bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace"))
