"""The text of one slide, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from catalog.core.errors import ReadError
from catalog.ingest.readers.containers.ooxml import graphic_texts
from catalog.ingest.readers.containers.safe_xml import named, parse_xml

if TYPE_CHECKING:
    from pptx.shapes.autoshape import Shape
    from pptx.shapes.base import BaseShape
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.slide import Slide

_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
R_ID = f"{_R}id"
"""The attribute by which an element names a relationship."""


@dataclass(frozen=True, slots=True)
class SlideBlock:
    """What one shape says."""

    text: str
    is_title: bool = False
    is_table: bool = False


def slide_blocks(slide: Slide, tolerance: int) -> Iterator[SlideBlock]:
    """The title, the other shapes, then the speaker's notes.

    Shapes run from top to bottom; those whose upper edges differ by at most ``tolerance`` (EMU)
    from left to right. Slide numbers, dates and footers are left out, and so are pictures.
    """
    title = slide.shapes.title
    if title is not None and (text := _lines(title.text_frame.text)):
        yield SlideBlock(" ".join(text.split()), is_title=True)
    shapes = [shape for shape in slide.shapes if title is None or shape != title]
    yield from _blocks(shapes, tolerance)
    if slide.has_notes_slide:
        frame = slide.notes_slide.notes_text_frame
        if frame is not None and (notes := _lines(frame.text)):
            yield SlideBlock(f"Notes:\n{notes}")


def _blocks(shapes: Iterable[BaseShape], tolerance: int) -> Iterator[SlideBlock]:
    for shape in _in_reading_order(shapes, tolerance):
        members = getattr(shape, "shapes", None)
        if members is not None:
            yield from _blocks(members, tolerance)
        elif not _is_furniture(shape):
            yield from _own_blocks(shape)


def _in_reading_order(shapes: Iterable[BaseShape], tolerance: int) -> list[BaseShape]:
    rows: list[list[BaseShape]] = []
    top = 0
    for shape in sorted(shapes, key=lambda shape: shape.top or 0):
        if not rows or (shape.top or 0) - top > tolerance:
            rows.append([])
            top = shape.top or 0
        rows[-1].append(shape)
    return [shape for row in rows for shape in sorted(row, key=lambda shape: shape.left or 0)]


def _is_furniture(shape: BaseShape) -> bool:
    from pptx.enum.shapes import PP_PLACEHOLDER

    kinds = (PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER)
    return shape.is_placeholder and shape.placeholder_format.type in kinds


def _own_blocks(shape: BaseShape) -> Iterator[SlideBlock]:
    if shape.has_text_frame:
        yield SlideBlock(_lines(cast("Shape", shape).text_frame.text))
    elif hasattr(shape, "has_table"):
        frame = cast("GraphicFrame", shape)
        lines = _rows(frame) if frame.has_table else _graphic_lines(frame)
        yield SlideBlock("\n".join(lines), is_table=frame.has_table)


def _rows(frame: GraphicFrame) -> Iterator[str]:
    for row in frame.table.rows:
        cells = [
            " ".join(cell.text_frame.text.split()) for cell in row.cells if not cell.is_spanned
        ]
        if any(cells):
            yield " | ".join(cells)


def _graphic_lines(frame: GraphicFrame) -> Iterator[str]:
    """The words of a chart or diagram; none if its part is missing or broken."""
    for element in named(frame.element, "chart", "relIds"):
        identifier = element.get(R_ID) or element.get(f"{_R}dm", "")
        try:
            yield from graphic_texts(parse_xml(frame.part.related_part(identifier).blob))
        except (KeyError, ReadError):
            continue


def _lines(text: str) -> str:
    """Text with PowerPoint's line breaks as such, without blank lines."""
    lines = (" ".join(line.split()) for line in text.replace("\v", "\n").split("\n"))
    return "\n".join(filter(None, lines))
