"""Word documents: paragraphs, headings, lists and tables straight from the XML of the parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from catalog.core.documents import Heading, ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.places import PlacesBuilder
from catalog.ingest.readers.archive import Element, local_name
from catalog.ingest.readers.base import MAX_TITLE, JoinedText, ReadFailure, ReadLimits, one_line
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.formulas import LOWERED, RAISED, formula_text
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import take_title
from catalog.ingest.readers.office import Package, join_runs
from catalog.ingest.readers.tables import LONGEST_REPEATED, make_table, names_columns

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DROPPED = frozenset((
    "del", "moveFrom", "rPr", "pPr", "sectPr", "sdtPr", "sdtEndPr", "rubyPr", "rt", "instrText",
    "delText", "annotationRef",
))  # fmt: skip
_SIGNS = {"tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_SCRIPTS = {"superscript": RAISED, "subscript": LOWERED}
_SYMBOLS = dict(zip(range(97, 123), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True))
"""Letters of the font Symbol, which Word writes as a code of their own."""
_OFF = ("0", "false", "off")
_DEEPEST_HEADING = 6
_MAX_ANCESTORS = 20
"""Styles that one may be based on by way of the others; Word allows eleven."""
_HEADING = re.compile(r"heading ?([1-9])")
_TITLES = ("title", "titel", "titre", "título", "titolo", "titulo")
_NO_PAGE_NUMBER = re.compile(r"\b(?!(?:page|seite|of|von)\b)[^\W\d_]{2}", re.IGNORECASE)
"""What a header or footer has if it is more than a page number."""
_ROWS_COMPARED, _MOST_COLUMNS = 50, 100
_PLACE = re.compile(r"%([1-9])")
_LONGEST_NUMBER = 60
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
    (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


class DocxReader:
    """Read a document with its headings, lists and tables; notes and comments come at its end.

    Headers and footers come last, once each, without page numbers. Numbers of lists and headings
    are text. Tracked deletions are left out; pictures and embedded objects are named.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file, and a remark on what is left out.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        package = Package(handle, limits, "word/document.xml")
        metadata = package.metadata()
        title = take_title(metadata)
        joined, number = JoinedText(limits, "paragraph"), 0
        for block in _Story(package).blocks:
            places, offset, text = PlacesBuilder("paragraph"), 0, "\n".join(block.lines)
            for line in block.lines:
                number += 1
                places.add(offset, number)
                offset += len(line) + 1
            headings = [Heading(0, len(text), block.level, one_line(text))] if block.level else []
            tables = make_table(0, len(text), block.names) if block.names else []
            atomic = [(0, len(text))] if block.kind == "table" else []
            joined.add(text, headings, atomic, places=places.places(), tables=tables)
        yield joined.document(path, title=title, file_type="docx", metadata=metadata)
        yield from package.left_out(path)


@dataclass(slots=True)
class _Block:
    """A paragraph, the items of a list, or the rows of a table with the names of its columns."""

    lines: list[str]
    level: int = 0
    kind: str = ""
    names: list[list[str]] = field(default_factory=list)


class _Story:
    """The blocks of a document, then its notes as they are referred to, comments, and margins.

    The walk may call itself, because XML is at most 256 elements deep.
    """

    def __init__(self, package: Package) -> None:
        self.blocks: list[_Block] = []
        self._package, self._main = package, package.main
        root = package.root(self._main)
        body = root.find(f"{_W}body")
        if local_name(root) != "document" or body is None:
            raise ReadError("not a Word document")
        styles = package.elements(self._main, "styles", "style")
        lists = package.elements(self._main, "numbering", "abstractNum", "num")
        self._numbering = Numbering(styles, list(lists))
        self._notes = {
            (kind, note.get(f"{_W}id", "")): note
            for kind in ("footnote", "endnote")
            for note in package.elements(self._main, f"{kind}s", kind)
        }
        self._marked: dict[tuple[str, str], int] = {}
        self._order: list[Element] = []
        self._add(body, self.blocks)
        for number, note in enumerate(self._order, 1):  # a note may refer to another: it grows
            self.blocks.append(_Block([f"[{number}] {self._text(note, self.blocks)}"]))
        for comment in package.elements(self._main, "comments", "comment"):
            author, text = comment.get(f"{_W}author", ""), self._text(comment, self.blocks)
            self.blocks.append(_Block([f"{author}: {text}" if author and text else text]))
        margins: list[_Block] = []
        for part in package.related(self._main, "header", "footer"):
            with suppress(ReadError):
                self._add(package.root(part), margins)
        lines = dict.fromkeys(line for block in margins for line in block.lines)
        self.blocks += [_Block([line]) for line in lines if _NO_PAGE_NUMBER.search(line)]

    def _text(self, holder: Element, out: list[_Block]) -> str:
        """Return the text of a cell or a note on one line; tables in it are added to ``out``."""
        blocks: list[_Block] = []
        self._add(holder, blocks)
        out += [one for one in blocks if one.kind == "table"]
        lines = (line for one in blocks if one.kind != "table" for line in one.lines)
        return " ".join(" ".join(lines).split())

    def _add(self, holder: Element, out: list[_Block]) -> None:
        for child in holder:
            match local_name(child):
                case "p":
                    self._add_paragraph(child, out)
                case "tbl":
                    self._add_table(child, out)
                case "altChunk":
                    self._add_embedded(self._package.linked(self._main, child), out)
                case name if name not in _DROPPED and not _is_prompt(child):
                    self._add(child, out)

    def _add_paragraph(self, paragraph: Element, out: list[_Block]) -> None:
        runs: list[tuple[str, str]] = []
        anchored: list[Element] = []
        self._collect(paragraph, "", runs, anchored)
        text = join_runs(runs)
        level, number = self._numbering.describe(paragraph)
        if text:
            text = f"{number} {text}" if number else text
            if level and len(text) <= MAX_TITLE:  # a longer one only looks like a heading
                out.append(_Block([text], level))
            elif number is not None and out and out[-1].kind == "list":
                out[-1].lines.append(text)
            else:
                out.append(_Block([text], kind="" if number is None else "list"))
        for element in anchored:
            if local_name(element) == "txbxContent":
                self._add(element, out)
            else:
                lines = self._package.graphic_lines(self._main, element)
                out += [_Block([line]) for line in lines]

    def _collect(
        self, holder: Element, mark: str, runs: list[tuple[str, str]], anchored: list[Element]
    ) -> None:
        """Collect the runs of a paragraph, and the boxes, charts and diagrams anchored to it."""
        for child in holder:
            name = local_name(child)
            if name == "t":
                runs.append((mark, child.text or ""))
            elif name in _SIGNS:
                runs.append((mark, _SIGNS[name]))
            elif name == "oMath":
                runs.append(("", formula_text(child)))
            elif name in ("footnoteReference", "endnoteReference"):
                runs.append(("", self._mark(name[:-9], child.get(f"{_W}id", ""))))
            elif name in ("sym", "fldChar"):
                runs.append((mark, _symbol(child) if name == "sym" else _check_box(child)))
            elif name in ("txbxContent", "chart", "relIds"):
                anchored.append(child)
            elif name == "r" and _value(child, "rPr/vanish", "off") not in _OFF:
                continue  # hidden
            elif name not in _DROPPED and not _is_prompt(child):
                own = _SCRIPTS.get(_value(child, "rPr/vertAlign"), "") if name == "r" else mark
                self._collect(child, own, runs, anchored)

    def _mark(self, *key: str) -> str:
        """Return the number of a note, which is added in the order of the marks."""
        if key in self._notes and key not in self._marked:
            self._order.append(self._notes[key])
            self._marked[key] = len(self._order)
        return f"[{self._marked[key]}]" if key in self._marked else ""

    def _add_table(self, table: Element, out: list[_Block]) -> None:
        """Add a table: short cells over several rows in each of them, inner tables after it."""
        rows = [list(_parts_of(row, "tc")) for row in _parts_of(table, "tr")]
        if len(rows) == 1 and len(rows[0]) == 1:  # a box
            self._add(rows[0][0], out)
            return
        block, seen, carried = _Block([], kind="table"), list[list[str]](), dict[int, str]()
        out.append(block)
        for row in rows:
            cells, columns = list[str](), list[str]()
            for cell in row:
                text, merged = self._text(cell, out), _value(cell, "tcPr/vMerge", "none")
                if merged in ("", "continue"):
                    text = text or carried.get(len(columns), "")
                is_carried = merged != "none" and len(text) <= LONGEST_REPEATED
                carried[len(columns)] = text if is_carried else ""
                span = _value(cell, "tcPr/gridSpan", "1")[:6]
                columns += [text] * min(int(span) if span.isdecimal() else 1, _MOST_COLUMNS)
                cells.append(text)
            if any(cells):
                block.lines.append(" | ".join(cells).rstrip(" |"))
                settings = row[0].find(f"../{_W}trPr/{_W}tblHeader")
                if settings is not None and len(block.names) == len(seen):
                    block.names.append(columns[:_MOST_COLUMNS])
                seen += [columns[:_MOST_COLUMNS]] if len(seen) < _ROWS_COMPARED else []
        if not block.names and names_columns(seen):
            block.names = seen[:1]

    def _add_embedded(self, part: str, out: list[_Block]) -> None:
        """Add a web page that stands for a part of the document (``altChunk``)."""
        if part.casefold().endswith((".html", ".htm", ".xhtml")):
            self._package.read.add(part)
            source = decode(self._package.archive.read(part), declared=True)
            page = extract(source, keep_navigation=True)
            levels = {one.title: one.level for one in page.headings}
            blocks = page.text.split("\n\n")
            out += [_Block(one.split("\n"), levels.get(one, 0), "page") for one in blocks]


def _parts_of(holder: Element, name: str) -> Iterator[Element]:
    """Yield the rows of a table or the cells of a row, also those in content controls."""
    for child in holder:
        is_deleted = child.find(f"{_W}trPr/{_W}del") is not None
        if local_name(child) == name and not is_deleted:
            yield child
        elif local_name(child) in ("sdt", "sdtContent", "customXml", "smartTag", "ins"):
            yield from _parts_of(child, name)


def _value(holder: Element, path: str, default: str = "") -> str:
    """Return the value of a setting; "" for one without a value, ``default`` without it."""
    found = holder.find("/".join(f"{_W}{name}" for name in path.split("/")))
    return default if found is None else str(found.get(f"{_W}val", ""))


def _is_prompt(element: Element) -> bool:
    """Return whether a content control shows only "Click here to enter text"."""
    return _value(element, "sdtPr/showingPlcHdr", "off") not in _OFF


def _check_box(field: Element) -> str:
    """Return the state of a check box of an old form, whose field has no text."""
    box = field.find(f"{_W}ffData/{_W}checkBox")
    if box is None:
        return ""
    return "☐" if _value(box, "checked", _value(box, "default", "0")) in _OFF else "☒"


def _symbol(element: Element) -> str:
    code = element.get(f"{_W}char", "")
    is_known = element.get(f"{_W}font", "") == "Symbol" and re.fullmatch("F0[0-9A-F]{2}", code)
    return _SYMBOLS.get(int(code[2:], 16), "") if is_known else ""


_Settings = tuple[int | None, str, str, str]
"""Level of a heading, list, level in the list, and the style from which the rest comes."""
_Level = tuple[int, str, str, bool, str]
"""First number, kind, text such as ``%1.%2``, whether all its numbers are digits, and style."""


class Numbering:
    """The styles and lists of a document: levels of headings, and numbers that Word shows.

    ``4.2``, ``(b)`` and ``Article IV`` are stated in no paragraph: they are counted in order.
    """

    def __init__(self, styles: Iterable[Element], lists: Sequence[Element]) -> None:
        self._styles: dict[str, _Settings] = {}
        self._lists: dict[str, tuple[str, dict[int, _Level]]] = {}
        self._restarts: dict[str, dict[int, int]] = {}
        self._counts: dict[str, dict[int, int]] = {}
        for style in styles:
            name, own = _value(style, "name").casefold(), _settings(style, "basedOn")
            level = 1 if name in _TITLES else _level(name) if own[0] is None else own[0]
            self._styles.setdefault(style.get(f"{_W}styleId", ""), (level, *own[1:]))
        shared = {one.get(f"{_W}abstractNumId"): _read_levels(one) for one in lists}
        for one in lists:  # of one definition, which goes to its counters
            name, number = _value(one, "abstractNumId"), one.get(f"{_W}numId", "")
            self._lists[number] = name, dict(shared.get(name, {}))
            self._restarts[number] = {}
            for override in one.iterchildren(f"{_W}lvlOverride"):
                self._lists[number][1].update(_read_levels(override))
                start, place = _value(override, "startOverride"), override.get(f"{_W}ilvl", "")
                if (start + place).isdecimal() and start and place:
                    self._restarts[number][int(place[:2])] = int(start[:6])

    def describe(self, paragraph: Element) -> tuple[int, str | None]:
        """Return the level of a heading, 0 for none, and the number that Word shows before it.

        The number is "" for a bullet and ``None`` outside a list.
        """
        level, listed, at, parent = _settings(paragraph, "pPr/pStyle")
        style = ""
        if level is None and parent not in self._styles:
            level = _level(parent.casefold())
        for _ in range(_MAX_ANCESTORS):
            if parent not in self._styles or (level is not None and listed):
                break
            inherited = self._styles[parent]
            level = inherited[0] if level is None else level
            if not listed:
                listed, at, style = inherited[1], at or inherited[2], parent
            parent = inherited[3]
        levels = self._lists.get(listed, ("", {}))[1]
        tied = (place for place, one in levels.items() if style and one[4] == style)
        place = int(at[:2]) if at.isdecimal() else next(tied, 0)
        return level or 0, self._count(listed, place) if place in levels else None

    def _count(self, listed: str, place: int) -> str:
        name, levels = self._lists[listed]
        counts = self._counts.setdefault(name, {})
        counts |= {at: first - 1 for at, first in self._restarts.pop(listed, {}).items()}
        for above in range(place):
            counts.setdefault(above, levels[above][0] if above in levels else 1)
        first, own_kind, text, is_legal, _ = levels[place]
        counts[place] = counts.get(place, first - 1) + 1
        for below in range(place + 1, 9):
            counts.pop(below, None)

        def show(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            kind = levels[at][1] if at in levels else own_kind
            return _format(counts.get(at, 1), "decimal" if is_legal else kind)

        text = "" if own_kind in ("bullet", "none") else text
        return _PLACE.sub(show, text).strip()[:_LONGEST_NUMBER]


def _level(name: str) -> int | None:
    told = _HEADING.fullmatch(name)
    return min(int(told[1]), _DEEPEST_HEADING) if told else None


def _settings(holder: Element, parent: str) -> _Settings:
    outline, level = _value(holder, "pPr/outlineLvl")[:2], None
    if outline.isdecimal():
        level = min(int(outline) + 1, _DEEPEST_HEADING) if int(outline) < 9 else 0
    listed, at = (_value(holder, f"pPr/numPr/{name}") for name in ("numId", "ilvl"))
    return level, listed, at, _value(holder, parent)


def _read_levels(holder: Element) -> dict[int, _Level]:
    levels = {}
    for element in holder.iterchildren(f"{_W}lvl"):
        place, start = element.get(f"{_W}ilvl", ""), _value(element, "start")[:6]
        kind, text = _value(element, "numFmt", "decimal"), _value(element, "lvlText")
        is_legal = element.find(f"{_W}isLgl") is not None
        style, first = _value(element, "pStyle"), int(start) if start.isdecimal() else 0
        if place.isdecimal() and len(place) == 1:
            levels[int(place)] = first, kind, text[:_LONGEST_NUMBER], is_legal, style
    return levels


def _format(number: int, kind: str) -> str:
    text = str(number) if kind not in ("bullet", "none") else ""
    if kind == "decimalZero":
        text = text.zfill(2)
    elif kind in ("lowerLetter", "upperLetter") and number > 0:  # after z comes aa, then bb
        text = chr(97 + (number - 1) % 26) * min(1 + (number - 1) // 26, _LONGEST_NUMBER)
    elif kind in ("lowerRoman", "upperRoman") and number < 10_000:
        text = ""
        for value, letters in _ROMAN:
            text += letters * (number // value)
            number %= value
    return text.upper() if kind.startswith("upper") else text
