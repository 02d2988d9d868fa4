"""Word documents: paragraphs, headings, lists and tables straight from the XML of the parts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import BinaryIO

from catalog.core.documents import Heading, MetadataValue
from catalog.core.errors import ReadError
from catalog.core.places import PlacesBuilder
from catalog.ingest.readers import tables
from catalog.ingest.readers.archive import Element, local_name
from catalog.ingest.readers.base import MAX_TITLE, Items, JoinedText, ReadLimits, one_line
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.formulas import LOWERED, RAISED, formula_text
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, one_level
from catalog.ingest.readers.office import Package, R, join_runs

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DROPPED = frozenset((
    "del", "moveFrom", "rPr", "pPr", "sectPr", "sdtPr", "sdtEndPr", "rubyPr", "rt", "instrText",
    "delText", "annotationRef",
))  # fmt: skip
_SIGNS = {"tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_SCRIPTS = {"superscript": RAISED, "subscript": LOWERED}
# Letters of the font Symbol, which Word writes as a code of their own.
_LETTERS = enumerate("αβχδεφγηιϕκλμνοπθρστυϖωξψζ", 97)
_SYMBOLS = {("Symbol", f"F0{code:X}"): letter for code, letter in _LETTERS}
_OFF = ("0", "false", "off")
_MAX_ANCESTORS = 20  # of a style; Word allows eleven
_HEADING = re.compile(r"heading ?([1-9])")
_TITLES = ("title", "titel", "titre", "título", "titolo", "titulo")
# What a header or footer has if it is more than a page number.
_NO_PAGE_NUMBER = re.compile(r"\b(?!(?:page|seite|of|von)\b)[^\W\d_]{2}", re.IGNORECASE)
_DEEPEST_HEADING, _MOST_COLUMNS, _LONGEST_NUMBER = 6, 100, 60
_PLACE, _PLACES = re.compile(r"%([1-9])"), frozenset("012345678")
_ROMAN = "1000m 900cm 500d 400cd 100c 90xc 50l 40xl 10x 9ix 5v 4iv 1i"


class DocxReader:
    """Read a document with its headings, lists and tables; notes and comments come at its end."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the one document of the file, and a remark on what is left out."""
        package = Package(handle, limits, "word/document.xml")
        metadata, story = package.metadata(), _Story(package)
        metadata |= one_level(metadata.get(LEVEL), *story.levels)
        joined, numbers = JoinedText(limits, "paragraph"), count(1)
        for block in story.blocks:
            places, offset, text = PlacesBuilder("paragraph"), 0, "\n".join(block.lines)
            for line in block.lines:
                places.add(offset, next(numbers))
                offset += len(line) + 1
            headings = [Heading(0, len(text), block.level, one_line(text))] if block.level else []
            named = tables.make_table(0, len(text), block.names) if block.names else []
            atomic = [(0, len(text))] if block.kind == "table" else []
            joined.add(text, headings, atomic, places=places.places(), tables=named)
        yield joined.document(path, file_type="docx", metadata=metadata)
        yield from package.left_out(path)


@dataclass(slots=True)
class _Block:
    """A paragraph, the items of a list, or the rows of a table with the names of its columns."""

    lines: list[str]
    level: int = 0
    kind: str = ""
    names: list[list[str]] = field(default_factory=list)


class _Story:
    """The blocks of a document, then its notes as they are referred to, comments, and margins."""

    # The walk may call itself, because XML is at most 256 elements deep.

    def __init__(self, package: Package) -> None:
        self.blocks: list[_Block] = []
        self.levels: list[MetadataValue | None] = []  # of web pages in the document
        self._package, self._main = package, package.main
        root = package.root(self._main)
        body = root.find(f"{_W}body")
        if local_name(root) != "document" or body is None:
            raise ReadError("not a Word document")
        styles = package.elements(self._main, "styles", "style")
        lists = package.elements(self._main, "numbering", "abstractNum", "num")
        self._numbering = Numbering(styles, list(lists))
        notes = package.elements(self._main, "footnotes endnotes", "footnote", "endnote")
        self._notes = {(local_name(note), note.get(f"{_W}id")): note for note in notes}
        self._marked: dict[Element, str] = {}
        self._order: list[Element] = []
        self._add(body, self.blocks)
        for note in self._order:  # a note may refer to another: it grows
            self.blocks.append(_Block([f"{self._marked[note]} {self._text(note, self.blocks)}"]))
        for comment in package.elements(self._main, "comments", "comment"):
            author, text = comment.get(f"{_W}author", ""), self._text(comment, self.blocks)
            self.blocks.append(_Block([f"{author}: {text}" if author and text else text]))
        margins: list[_Block] = []
        for margin in package.elements(self._main, "header footer", "hdr", "ftr"):
            self._add(margin, margins)
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
                    self._add_embedded(child, out)
                case _ if _is_shown(child):
                    self._add(child, out)

    def _add_paragraph(self, paragraph: Element, out: list[_Block]) -> None:
        anchored: list[Element] = []
        text = join_runs(self._runs(paragraph, "", anchored))
        level, number = self._numbering.describe(paragraph)
        line = f"{number} {text}" if number else text
        level = level if len(line) <= MAX_TITLE else 0  # a longer one only looks like a heading
        if text and number is not None and not level and out and out[-1].kind == "list":
            out[-1].lines.append(line)
        elif text:
            out.append(_Block([line], level, "" if level or number is None else "list"))
        for element in anchored:
            if local_name(element) == "txbxContent":
                self._add(element, out)
            else:
                out += [_Block([it]) for it in self._package.graphic_lines(self._main, element)]

    def _runs(
        self, holder: Element, mark: str, anchored: list[Element]
    ) -> Iterator[tuple[str, str]]:
        """Yield the runs of a paragraph; boxes, charts and diagrams in it are ``anchored``."""
        for child in holder:
            name = local_name(child)
            if name == "t" or name in _SIGNS:
                yield mark, _SIGNS.get(name, child.text or "")
            elif name == "oMath":
                yield "", formula_text(child)
            elif name in ("footnoteReference", "endnoteReference"):
                yield "", self._mark(name[:-9], child.get(f"{_W}id"))
            elif name == "sym":
                yield mark, _SYMBOLS.get((child.get(f"{_W}font"), child.get(f"{_W}char")), "")
            elif name == "checkBox":  # of an old form, whose field has no text
                is_off = _value(child, "checked", _value(child, "default", "0")) in _OFF
                yield mark, "☐" if is_off else "☒"
            elif name in ("txbxContent", "chart", "relIds"):
                anchored.append(child)
            elif _is_shown(child):
                own = _SCRIPTS.get(_value(child, "rPr/vertAlign"), "") if name == "r" else mark
                yield from self._runs(child, own, anchored)

    def _mark(self, kind: str, number: str | None) -> str:
        """Return the number of a note, which is added in the order of the marks."""
        note = self._notes.get((kind, number))
        if note is not None and note not in self._marked:
            self._order.append(note)
            self._marked[note] = f"[{len(self._order)}]"
        return self._marked.get(note, "")

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
                if not text and merged in ("", "continue"):
                    text = carried.get(len(columns), "")
                is_carried = merged != "none" and len(text) <= tables.LONGEST_REPEATED
                carried[len(columns)] = text if is_carried else ""
                columns += [text] * min(_integer(cell, "tcPr/gridSpan", 1), _MOST_COLUMNS)
                cells.append(text)
            if any(cells):
                block.lines.append(" | ".join(cells).rstrip(" |"))
                is_head = row[0].find(f"../{_W}trPr/{_W}tblHeader") is not None
                if is_head and len(block.names) == len(seen):
                    block.names.append(columns[:_MOST_COLUMNS])
                seen += [columns[:_MOST_COLUMNS]] if len(seen) < tables.COMPARED_ROWS else []
        if not block.names and tables.names_columns(seen):
            block.names = seen[:1]

    def _add_embedded(self, chunk: Element, out: list[_Block]) -> None:
        """Add a web page that stands for a part of the document."""
        for part in self._package.related(self._main, chunk.get(f"{R}id", "")):
            is_page = part.casefold().endswith((".html", ".htm", ".xhtml"))
            if is_page and part not in self._package.read:
                self._package.read.add(part)
                page = extract(decode(self._package.archive.read(part), declared=True))
                self.levels.append(page.metadata.get(LEVEL))
                levels = {one.title: one.level for one in page.headings}
                texts = page.text.split("\n\n")
                out += [_Block(one.split("\n"), levels.get(one, 0), "page") for one in texts]


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


def _integer(holder: Element, path: str, default: int) -> int:
    value = _value(holder, path)[:6]
    return int(value) if value.isdecimal() else default


def _is_shown(element: Element) -> bool:
    """Return whether an element is no setting, deletion, hidden run, or prompt to enter text."""
    hidden = "rPr/vanish" if local_name(element) == "r" else "sdtPr/showingPlcHdr"
    return local_name(element) not in _DROPPED and _value(element, hidden, "off") in _OFF


# Level of a heading, list, level in the list, and the style from which the rest comes.
_Settings = tuple[int | None, str, int | None, str]
# First number, kind, text such as ``%1.%2``, whether all its numbers are digits, and style.
_Level = tuple[int, str, str, bool, str]


class Numbering:
    """Levels of headings, and numbers such as ``(b)``, which are counted: no paragraph has them."""

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
            levels, restarts = dict(shared.get(name, {})), dict[int, int]()
            for override in one.iterchildren(f"{_W}lvlOverride"):
                levels |= _read_levels(override)
                start = _integer(override, "startOverride", -1)
                if (place := override.get(f"{_W}ilvl", "")) in _PLACES and start >= 0:
                    restarts[int(place)] = start
            self._lists[number], self._restarts[number] = (name, levels), restarts

    def describe(self, paragraph: Element) -> tuple[int, str | None]:
        """Return the level of a heading, or 0; the number, "" for a bullet, ``None`` in no list."""
        chain = [_settings(paragraph, "pPr/pStyle")]
        while len(chain) <= _MAX_ANCESTORS and chain[-1][3] in self._styles:
            chain.append(self._styles[chain[-1][3]])
        by_name = _level(chain[-1][3].casefold())
        level = next((one[0] for one in chain if one[0] is not None), by_name) or 0
        at = next((at for at, one in enumerate(chain) if one[1]), 0)
        listed, style = chain[at][1], chain[at - 1][3] if at else ""
        levels = self._lists.get(listed, ("", {}))[1]
        places = [one[2] for one in chain[: at + 1] if one[2] is not None]
        places += [place for place, one in levels.items() if style and one[4] == style]
        place = next(iter(places), 0)
        return level, self._count(listed, place) if place in levels else None

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
        shown = {
            str(at + 1): _format(count, "decimal" if is_legal else levels.get(at, levels[place])[1])
            for at, count in counts.items()
        }
        text = "" if own_kind in ("bullet", "none") else text
        return _PLACE.sub(lambda match: shown.get(match[1], "1"), text).strip()[:_LONGEST_NUMBER]


def _level(name: str) -> int | None:
    told = _HEADING.fullmatch(name)
    return min(int(told[1]), _DEEPEST_HEADING) if told else None


def _settings(holder: Element, parent: str) -> _Settings:
    outline, place = (_integer(holder, f"pPr/{name}", -1) for name in ("outlineLvl", "numPr/ilvl"))
    level = min(outline + 1, _DEEPEST_HEADING) if outline < 9 else 0
    listed, style = _value(holder, "pPr/numPr/numId"), _value(holder, parent)
    return None if outline < 0 else level, listed, None if place < 0 else place, style


def _read_levels(holder: Element) -> dict[int, _Level]:
    levels = {}
    for element in holder.iterchildren(f"{_W}lvl"):
        kind, text = _value(element, "numFmt", "decimal"), _value(element, "lvlText")
        is_legal, style = element.find(f"{_W}isLgl") is not None, _value(element, "pStyle")
        if (place := element.get(f"{_W}ilvl", "")) in _PLACES:
            start = _integer(element, "start", 0)
            levels[int(place)] = start, kind, text[:_LONGEST_NUMBER], is_legal, style
    return levels


def _format(number: int, kind: str) -> str:
    text = "" if kind in ("bullet", "none") else str(number).zfill(1 + (kind == "decimalZero"))
    if kind.endswith("Letter") and number > 0:  # after z comes aa, then bb
        text = chr(97 + (number - 1) % 26) * min(1 + (number - 1) // 26, _LONGEST_NUMBER)
    elif kind.endswith("Roman") and number < 10_000:
        text = ""
        for value, letters in re.findall(r"(\d+)(\w+)", _ROMAN):
            text += letters * (number // int(value))
            number %= int(value)
    return text.upper() if kind.startswith("upper") else text
