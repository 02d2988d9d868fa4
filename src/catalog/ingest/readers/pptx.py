"""PowerPoint presentations: slide by slide, with titles as headings and the speaker's notes."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from lxml import etree

from catalog.core.documents import Heading, ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import (
    Archive,
    Element,
    graphic_texts,
    inside,
    named,
    open_archive,
    parse_xml,
    read_part,
    read_properties,
    replace,
    resolve_alternates,
)
from catalog.ingest.readers.base import JoinedText, ReadFailure, ReadLimits, cap_failures, one_line
from catalog.ingest.readers.metadata import normalise, take_title

if TYPE_CHECKING:
    from pptx.presentation import Presentation
    from pptx.shapes.autoshape import Shape
    from pptx.shapes.base import BaseShape
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.slide import Slide


_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_R_ID = f"{_R}id"
"""The attribute by which an element names a relationship."""
_READ_PARTS = re.compile(
    r"(?!customXml/|ppt/(?:theme|tags|comments|embeddings)/).*\.xml", re.IGNORECASE
)
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"
_ROW_FRACTION = 30
"""Shapes whose tops differ by less than this part of a slide's height stand in one row."""


class PptxReader:
    """Read presentations: a slide is a page, its title a heading, its shapes in reading order."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file, after a failure for each slide that is broken.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        metadata = normalise(read_properties(archive))
        title = take_title(metadata)
        try:
            presentation = _open(archive)
            joined, pages, broken = JoinedText(limits, "slide"), [], []
            for number, blocks in enumerate(_slides(presentation, limits), 1):
                pages.append(joined.following)
                if blocks is None:
                    broken.append(ReadFailure(f"{path}:slide {number}", "a broken slide"))
                else:
                    _add_slide(joined, blocks)
        except RecursionError as error:
            raise ReadError("nested too deeply") from error
        yield from cap_failures(broken)
        yield joined.document(path, title=title, file_type="pptx", metadata=metadata, pages=pages)


def _add_slide(joined: JoinedText, blocks: list[_Block]) -> None:
    for block in blocks:
        whole = (0, len(block.text))
        heading = Heading(*whole, 1, one_line(block.text))
        joined.add(
            block.text,
            headings=[heading] if block.is_title else [],
            atomic=[whole] if block.is_table and block.text else [],
        )


def _open(archive: Archive) -> Presentation:
    from pptx.package import Package

    try:
        package = Package.open(_copy_checked(archive))
        return cast("Presentation", package.presentation_part.presentation)
    except (*_damage_errors(), etree.XMLSyntaxError) as error:
        raise ReadError("a broken presentation") from error


def _slides(presentation: Presentation, limits: ReadLimits) -> Iterator[list[_Block] | None]:
    """Yield the blocks of each slide; ``None`` for one that is broken."""
    try:
        tolerance = (presentation.slide_height or 0) // _ROW_FRACTION
        identifiers = [slide.get(_R_ID) for slide in named(presentation.element, "sldId")]
    except _damage_errors() as error:
        raise ReadError("a broken presentation") from error
    identifiers = [identifier for identifier in identifiers if identifier]
    if len(identifiers) > limits.pages:
        raise ReadError(f"too many slides: over {limits.pages:,}")
    for identifier in identifiers:
        try:
            yield list(_slide_blocks(presentation.part.related_slide(identifier), tolerance))
        except _damage_errors():
            yield None


def _damage_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that python-pptx raises for damage: any error of a look-up."""
    from pptx.exc import PythonPptxError

    return (PythonPptxError, LookupError, ValueError, AttributeError, TypeError, AssertionError)


@dataclass(frozen=True, slots=True)
class _Block:
    """The text of one shape."""

    text: str
    is_title: bool = False
    is_table: bool = False


def _slide_blocks(slide: Slide, tolerance: int) -> Iterator[_Block]:
    """Yield the title, the other shapes, then the speaker's notes.

    Shapes go from top to bottom; those whose upper edges differ by at most ``tolerance`` (EMU) go
    from left to right. Slide numbers, dates, footers and pictures are left out.
    """
    title = slide.shapes.title
    if title is not None and (text := _break_lines(title.text_frame.text)):
        yield _Block(" ".join(text.split()), is_title=True)
    shapes = [shape for shape in slide.shapes if title is None or shape != title]
    yield from _blocks(shapes, tolerance)
    if slide.has_notes_slide:
        frame = slide.notes_slide.notes_text_frame
        if frame is not None and (notes := _break_lines(frame.text)):
            yield _Block(f"Notes:\n{notes}")


def _blocks(shapes: Iterable[BaseShape], tolerance: int) -> Iterator[_Block]:
    for shape in _in_reading_order(shapes, tolerance):
        members = getattr(shape, "shapes", None)
        if members is not None:
            yield from _blocks(members, tolerance)
        elif not _is_furniture(shape):
            yield from _shape_blocks(shape)


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


def _shape_blocks(shape: BaseShape) -> Iterator[_Block]:
    if shape.has_text_frame:
        yield _Block(_break_lines(cast("Shape", shape).text_frame.text))
    elif hasattr(shape, "has_table"):
        frame = cast("GraphicFrame", shape)
        lines = _rows(frame) if frame.has_table else _graphic_lines(frame)
        yield _Block("\n".join(lines), is_table=frame.has_table)


def _rows(frame: GraphicFrame) -> Iterator[str]:
    for row in frame.table.rows:
        cells = [
            " ".join(cell.text_frame.text.split()) for cell in row.cells if not cell.is_spanned
        ]
        if any(cells):
            yield " | ".join(cells)


def _graphic_lines(frame: GraphicFrame) -> Iterator[str]:
    """Yield lines of a chart or diagram; none if its part is missing or broken."""
    for element in named(frame.element, "chart", "relIds"):
        identifier = element.get(_R_ID) or element.get(f"{_R}dm", "")
        try:
            yield from graphic_texts(parse_xml(frame.part.related_part(identifier).blob))
        except (KeyError, ReadError):
            continue


def _break_lines(text: str) -> str:
    """Return text with PowerPoint's line breaks as line feeds, without blank lines."""
    lines = (" ".join(line.split()) for line in text.replace("\v", "\n").split("\n"))
    return "\n".join(filter(None, lines))


def _copy_checked(archive: Archive) -> io.BytesIO:
    """Copy the parts with text after a check; empty the rest, and remove external links."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as copy:
        for name in archive.names:
            copy.writestr(name, _check_part(archive, name))
    packed.seek(0)
    return packed


def _check_part(archive: Archive, name: str) -> bytes:
    if name.casefold().endswith(".rels"):
        root = read_part(archive, name)
        source = name.replace("_rels/", "").removesuffix(".rels")
        for link in named(root, "Relationship"):
            target = inside(source, link.get("Target", ""))
            known = None if target is None else archive.spelling(target)
            if link.get("TargetMode") == "External" or known is None:
                replace(link, [])
            else:
                link.set("Target", f"/{known}")
    elif _READ_PARTS.fullmatch(name):
        root = read_part(archive, name)
        resolve_alternates(root)
        _write_out_equations(root)
    else:
        return b""
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=True))


def _write_out_equations(root: Element) -> None:
    for equation in named(root, "oMath"):
        run = root.makeelement(f"{{{_A}}}r")
        text = root.makeelement(f"{{{_A}}}t")
        text.text = "".join(part.text or "" for part in named(equation, "t"))
        run.append(text)
        holder = next(equation.iterancestors("{*}m", "{*}oMathPara"), equation)
        holder = next(holder.iterancestors("{*}m"), holder)
        holder.addprevious(run)
    for holder in named(root, "m", "oMathPara", "oMath"):
        replace(holder, [])
