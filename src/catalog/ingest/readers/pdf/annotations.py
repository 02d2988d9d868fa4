"""Read what people added to a PDF page: filled form fields and comments."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2.raw as raw
from pypdfium2 import PdfPage

from catalog.core.text import storable

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
    comments = {getattr(raw, f"FPDF_ANNOT_{name}") for name in _COMMENTS}
    for index in range(min(raw.FPDFPage_GetAnnotCount(page.raw), _MOST_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page.raw, index)
        if not annotation:
            continue
        kind, name, text = raw.FPDFAnnot_GetSubtype(annotation), "", ""
        if kind in comments:
            name = read_string(raw.FPDFAnnot_GetStringValue, annotation, b"T")
            text = read_string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
        elif kind == raw.FPDF_ANNOT_WIDGET and page.formenv is not None:
            name, text = _read_field(page.formenv.raw, annotation)
        raw.FPDFPage_CloseAnnot(annotation)
        if text := " ".join(text.split()):
            yield f"{' '.join(name.split())}: {text}".removeprefix(": ")


def _read_field(form: Any, annotation: Any) -> tuple[str, str]:
    """Return the label and the value of a form field; the value is "" if it is not filled."""
    kind, value = raw.FPDFAnnot_GetFormFieldType(form, annotation), ""
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        if raw.FPDFAnnot_IsChecked(form, annotation):
            value = read_string(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation) or "yes"
    elif kind not in (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE):
        value = read_string(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    label = read_string(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    return label or read_string(raw.FPDFAnnot_GetFormFieldName, form, annotation), value


def read_string(
    function: Callable[..., int], *arguments: object, max_bytes: int = _MAX_BYTES
) -> str:
    """Call a PDFium function that writes UTF-16 into a buffer, and return the text."""
    size = min(max_bytes, function(*arguments, None, 0))
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    function(*arguments, buffer, size)
    return storable(bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace"))
