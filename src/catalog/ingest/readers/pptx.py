"""PowerPoint presentations: slide by slide, with titles as headings and the speaker's notes."""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from catalog.core.documents import Heading
from catalog.core.errors import ReadError
from catalog.ingest.readers import base
from catalog.ingest.readers.archive import BrokenPartError, Element, local_name, named, text_of
from catalog.ingest.readers.base import Items, JoinedText, ReadFailure, ReadLimits, one_line
from catalog.ingest.readers.office import A, Package, R, drawn_lines

_FURNITURE = ("sldNum", "dt", "ftr")
_ROW_FRACTION = 30
"""Shapes whose tops differ by less than this part of a slide's height stand in one row."""
_Places = dict[str, tuple[int, int]]
"""Distances from the top and from the left, in EMU, of placeholders by number and by kind."""


class PptxReader:
    """Read presentations: a slide is a page, its title a heading, its shapes in reading order."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the one document, after a failure for each slide that is missing or damaged."""
        package = Package(handle, limits, "ppt/presentation.xml")
        metadata = package.metadata()
        root = package.root(package.main)
        entries = named(root, "sldId")
        if len(entries) > limits.pages:
            raise ReadError(f"too many slides: over {limits.pages:,}")
        slides = _Slides(package, sum(_number(one, "cy") for one in named(root, "sldSz")[:1]))
        joined, pages, broken = JoinedText(limits, "slide"), list[int](), list[ReadFailure]()
        for number, entry in enumerate(entries, 1):
            pages.append(joined.following)
            try:
                linked = package.related(package.main, entry.get(f"{R}id", ""))
                unread = (part for part in linked if part not in package.read)
                blocks = list(slides.read(next(unread, "")))
            except BrokenPartError:
                broken.append(ReadFailure(f"{path}:slide {number}", "a broken slide"))
                continue
            for text, kind in blocks:
                headings = [Heading(0, len(text), 1, one_line(text))] if kind == "title" else []
                joined.add(text, headings, [(0, len(text))] if kind == "table" else [])
        yield from base.cap_failures(broken)
        yield joined.document(path, file_type="pptx", metadata=metadata, pages=pages)
        yield from package.left_out(path)


class _Slides:
    """Read the slides of a presentation of this height, in EMU.

    Shapes go from top to bottom; those whose upper edges are close go from left to right. Slide
    numbers, dates, footers and pictures are left out.
    """

    def __init__(self, package: Package, height: int) -> None:
        self._package = package
        self._tolerance = height // _ROW_FRACTION
        self._places: dict[str, _Places] = {}
        authors = package.elements(package.main, "commentAuthors authors", "cmAuthor", "author")
        self._authors = {one.get("id", ""): one.get("name", "") for one in authors}

    def read(self, part: str) -> Iterator[tuple[str, str]]:
        """Yield text and kind of the blocks of a slide: its title, shapes, notes and comments."""
        tree = next(iter(named(self._package.root(part), "spTree")), ())
        titles = [one for one in tree if _placeholder(one)[0] in ("title", "ctrTitle")][:1]
        for title in titles:
            yield " ".join(" ".join(drawn_lines(title)).split()), "title"
        shapes = [one for one in tree if one not in titles]
        yield from self._blocks(shapes, part, self._inherited(part, "slideLayout", "slideMaster"))
        notes = self._package.elements(part, "notesSlide", "sp")
        bodies = (one for one in notes if _placeholder(one)[0] == "body")
        if lines := [line for body in bodies for line in drawn_lines(body)]:
            yield "\n".join(["Notes:", *lines]), "notes"
        for comment in self._package.elements(part, "comments", "cm", "reply"):
            said = " ".join(map(text_of, comment.iterchildren("{*}text", "{*}txBody")))
            author = self._authors.get(comment.get("authorId", ""), "")
            yield ": ".join(filter(None, (author, said))), "comment"

    def _inherited(self, part: str, *outer: str) -> _Places:
        """Return the places of the placeholders on the layout of a slide and on its master."""
        found: _Places = {}
        for target in self._package.related(part, *outer[:1]):
            if target not in self._places:
                self._places[target] = self._inherited(target, *outer[1:])
                for shape in self._package.elements(part, outer[0], "sp"):
                    if (place := _place(shape, {})) is not None:
                        keys = filter(None, _placeholder(shape))
                        self._places[target] |= dict.fromkeys(keys, place)
            found |= self._places[target]
        return found

    def _blocks(
        self, shapes: Iterable[Element], part: str, places: _Places
    ) -> Iterator[tuple[str, str]]:
        rows: list[list[tuple[int, Element]]] = []
        first = 0
        placed = [(_place(shape, places) or (0, 0), shape) for shape in shapes]
        for (top, left), shape in sorted(placed, key=lambda one: one[0][0]):
            if not rows or top - first > self._tolerance:
                rows.append([])
                first = top
            rows[-1].append((left, shape))
        for _, shape in (one for row in rows for one in sorted(row, key=lambda one: one[0])):
            match local_name(shape):
                case "grpSp":
                    yield from self._blocks(shape, part, {})
                case "sp" if _placeholder(shape)[0] not in _FURNITURE:
                    yield "\n".join(drawn_lines(shape)), "text"
                case "graphicFrame":
                    yield "\n".join(_rows(shape)), "table"
                    for element in named(shape, "chart", "relIds"):
                        yield "\n".join(self._package.graphic_lines(part, element)), "text"


def _rows(frame: Element) -> Iterator[str]:
    """Yield the rows of a table; cells that another one reaches over are left out."""
    for row in (one for table in named(frame, "tbl")[:1] for one in table.iterchildren("{*}tr")):
        cells = (
            " ".join(" ".join(drawn_lines(cell)).split())
            for cell in row.iterchildren("{*}tc")
            if not {cell.get("hMerge", "0"), cell.get("vMerge", "0")} & {"1", "true"}
        )
        if (line := " | ".join(cells)).strip(" |"):
            yield line


def _placeholder(shape: Element) -> tuple[str, str]:
    """Return the kind and the number of a placeholder; "" for another shape."""
    found = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    return ("", "") if found is None else (found.get("type", "body"), found.get("idx", ""))


def _place(shape: Element, places: _Places) -> tuple[int, int] | None:
    """Return the distances of a shape from the top and from the left, in EMU."""
    offset = next(shape.iter(f"{A}off"), None)
    if offset is None:
        kind, number = _placeholder(shape)
        return places.get(number) or places.get(kind)
    return _number(offset, "y"), _number(offset, "x")


def _number(element: Element, name: str) -> int:
    value = element.get(name, "")
    return int(value) if re.fullmatch(r"-?\d{1,12}", value) else 0
