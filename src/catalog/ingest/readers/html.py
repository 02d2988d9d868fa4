"""HTML: the visible text, block by block, with its headings, tables and source lines."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import ClassVar

from lxml import etree

from catalog.core.documents import Heading, ParsedDocument, Table
from catalog.core.errors import EmptyDocumentError
from catalog.core.places import PlacesBuilder, Unit
from catalog.core.text import storable
from catalog.ingest.readers import base
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, formula_text, write_scripts
from catalog.ingest.readers.metadata import UNREADABLE, normalise, stated_levels
from catalog.ingest.readers.tables import COMPARED_ROWS, make_table, names_columns

_DROPPED_TAGS = """
    script style noscript template svg canvas iframe rp rt select textarea datalist audio video
    button"""
_PARAGRAPH_TAGS = """
    address article aside blockquote body details div dl fieldset figure footer form h1 h2 h3 h4
    h5 h6 header hr main ol p pre section table ul ac:parameter ac:plain-text-body"""
_LINE_TAGS = "caption dd dt figcaption legend li summary tr"
_LEFT_OUT = {**dict.fromkeys(_DROPPED_TAGS.split(), "dropped"), "nav": "navigation"}
# Line breaks before and after an element.
_BREAKS = dict.fromkeys(_PARAGRAPH_TAGS.split(), 2) | dict.fromkeys(_LINE_TAGS.split(), 1)
_SOFT = frozenset(["div", "p"])  # set the text of a cell, and do not part it from the next one
_HEADINGS = frozenset(["h1", "h2", "h3", "h4", "h5", "h6"])
_SCRIPTS, _LONGEST_SCRIPT = {"sup": RAISED, "sub": LOWERED}, 60
_MARKED = frozenset(["pre", "table", *_SCRIPTS])
_TELLING = frozenset(["id", "class", "role", "hidden", "style"])
# Names of what stands on each page of a site, and of signs beside headings and formulas.
_FURNITURE = re.compile(
    r"(?<!\S)(?:role=(?:navigation|dialog|contentinfo)|cookie-notice|site-title|colophon|"
    r"widget-area|sharedaddy|headerlink|katex-html)(?!\S)"
)
# Soft hyphens and spaces without width, which would part words, and our own signs.
_INVISIBLE = re.compile(f"[\u00ad\u200b\u2060\ufeff{RAISED}{LOWERED}{CLOSED}]")
_SUBSET = re.compile(r"(?i)\A([^<]*+(?:<\?[^>]*+>\s*+)?<!doctype[^<>\[\]]*+)\[([^\]]*+)\]")
_CDATA = re.compile(r"<!\[CDATA\[((?:(?!<!\[CDATA\[|\]\]>).)*+)\]\]>", re.DOTALL)
_SHEET = {  # of Excel 2003, as pages have it
    r"<(/?)Row\b": r"<\1tr",
    r"<(/?)Cell\b": r"<\1td",
    r'<Worksheet\b[^<>]*?Name="([^"]*)"': r"<h1>\1</h1><p",
}
_FORMULA = re.compile(r"<math\b[^<>]*+>((?:(?!</?math\b).)*+)</math\s*+>", re.DOTALL)
# For each field of a document, the names in a page's head; the first one counts.
_FIRST_OF = {
    "created": "article:published_time datepublished dcterms.created dc.date dcterms.date",
    "modified": "article:modified_time datemodified dcterms.modified last-modified",
    "source_url": "canonical og:url", "source_type": "source_type source-type",
    "agent_hint": "agent_hint agent-hint", "page_title": "page_title page-title",
    **{name: name for name in ("description", "author", "keywords", "tags", "date", "language")},
}  # fmt: skip


class HtmlReader(base.WholeFileReader):
    """Read the visible text of a page; its places are source lines.

    Navigation and what a site shows on each page are left out, unless there is nothing else. So is
    hidden text, unless there is more of it than of the rest.
    """

    declares_encoding = True
    unit: ClassVar[Unit] = "line"

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; raise ``ReadError`` without visible text."""
        page = extract(text, unit=self.unit)
        if not page.text:
            raise EmptyDocumentError("empty: no visible text")
        title = base.choose_title(path, page.title, *(one.title for one in page.headings[:1]))
        return replace(page, path=path, title=title, file_type=base.file_type(path))


@dataclass(slots=True)
class _Mark:
    """An open element, with the pieces and characters before its text, once it has any."""

    tag: str
    piece: int = -1
    start: int = -1
    header: int = 0  # rows of a table
    is_header: bool = True  # no cell other than th up to here


class _Page:
    """Receive a parser's events, and write text with white space as in a browser."""

    def __init__(self, unit: Unit, shown: str) -> None:
        self.line, self.length = 1, 0  # that is being parsed, and of the text
        self.left_out: dict[str, list[str]] = defaultdict(list)  # by the reason
        self._shown = shown  # the reason that does not count
        self._skipped, self._why, self._is_raw = 0, "", False  # open elements left out
        self._data, self._data_line = list[str](), 1  # on which the data ends
        self._pieces = list[str]()
        self._places = PlacesBuilder(unit)
        self._breaks, self._space = [0, 0, 0], ""  # before the next text: of blocks, soft, of <br>
        self._paragraph = self._preformatted = 0
        self._cell_start = self._table_end = -1  # in the row; of the last table
        self._marks, self._waiting = list[_Mark](), list[_Mark]()  # waiting for their text
        self._heading: _Mark | None = None
        self._headings, self._tables = list[Heading](), list[Table]()
        self._atomic, self._meta = list[tuple[int, int]](), dict[str, str]()

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._flush()
        self._is_raw = tag in ("script", "style")
        if tag == "meta":  # a label counts wherever it is
            self._read_meta(attributes)
        if not self._skipped:
            self._why = self._why_left_out(tag, attributes).replace(self._shown, "")
        self._skipped += bool(self._why)
        if not self._why:
            self._start_visible(tag, attributes)

    def end(self, tag: str) -> None:
        self._flush()
        self._is_raw = False
        if self._skipped:
            self._skipped -= 1
        else:
            self._end_visible(tag)

    def data(self, data: str) -> None:
        if not self._skipped:
            self._data.append(data)
            self._data_line = self.line
        elif not self._is_raw:
            self.left_out[self._why].append(data)

    def document(self) -> ParsedDocument:
        fields = {
            name: next((self._meta[key] for key in keys.split() if self._meta.get(key)), None)
            for name, keys in _FIRST_OF.items()
        }
        text, title = "".join(self._pieces), "".join(self.left_out["title"])
        metadata = normalise(fields | stated_levels(self._meta))
        parts = tuple(self._headings), tuple(self._atomic), tuple(self._tables)
        document = ParsedDocument("", text, title, "html", "file", metadata, *parts)
        return replace(document, places=self._places.places())

    def _why_left_out(self, tag: str, attributes: Mapping[str, str]) -> str:
        if tag in _LEFT_OUT and not (tag == "button" and self._heading):
            return _LEFT_OUT[tag]
        if tag == "title":
            return "dropped" if self.left_out["title"] else "title"
        if tag == "dialog" and "open" not in attributes:
            return "hidden"
        if not attributes or _TELLING.isdisjoint(attributes):  # asking for each takes long
            return ""
        names = " ".join((attributes.get("id", ""), attributes.get("class", "")))
        if _FURNITURE.search(f"{names} role={attributes.get('role')}"):
            return "navigation"
        style = attributes.get("style", "").replace(" ", "").casefold()
        is_hidden = "display:none" in style and "mwe-math" not in names  # a formula of Wikipedia
        is_hidden |= attributes.get("hidden", "until-found") != "until-found"
        return "hidden" if is_hidden else ""

    def _start_visible(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in ("td", "th"):
            if self._cell_start >= 0 and self.length and not max(self._breaks):
                self._space = " "
                self._write("|", self.line)
            self._space, self._cell_start = " ", self.length
            if self._marks:
                self._marks[-1].is_header &= tag == "th"
        elif tag == "br":
            self._breaks[2] = min(2, max(self._breaks) + 1)
        elif tag not in _SOFT or self.length != self._cell_start:
            self._break(tag)
        if tag in _HEADINGS:
            self._end_heading()  # one that was left open
            self._heading = _Mark(tag)
            self._waiting.append(self._heading)
        elif tag in _MARKED:
            self._marks.append(_Mark(tag))
            self._waiting.append(self._marks[-1])
            if tag == "pre":
                self._preformatted, self._space = self._preformatted + 1, ""
        elif tag == "tr":
            self._cell_start = -1
        elif tag == "link" and "canonical" in attributes.get("rel", "").casefold().split():
            self._meta.setdefault("canonical", attributes.get("href", ""))
        elif tag == "html":
            self._meta["language"] = attributes.get("lang", "")

    def _end_visible(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._end_heading()
        elif tag in ("td", "th"):
            self._breaks[1:] = [0, 0]
        elif tag == "tr" and self._marks:
            self._marks[-1].header += self._marks[-1].is_header
        elif tag in _MARKED:
            self._preformatted -= tag == "pre"
            mark = self._marks.pop()
            if tag in _SCRIPTS:
                self._rewrite(mark)
            elif tag == "pre" and mark.start >= 0:
                self._atomic.append((mark.start, self.length))
            elif mark.start >= max(0, self._table_end):  # a table around others arranges a page
                self._end_table(mark)
        self._break(tag)

    def _end_table(self, mark: _Mark) -> None:
        self._atomic.append((mark.start, self.length))
        self._table_end = self.length
        text = "".join(self._pieces[mark.piece :])
        rows = [row.split(" | ") for row in text.split("\n", COMPARED_ROWS)]
        named = rows[: mark.header or names_columns(rows)] if len(rows) > 1 else []
        if {*map(len, named)} != {*map(len, rows[len(named) :][:1])}:  # cells span columns
            named = [[name for row in named for name in row]]
        self._tables += make_table(mark.start, self.length, named)

    def _flush(self, _comment: str = "") -> None:
        if not self._data:
            return
        data = _INVISIBLE.sub("", "".join(self._data))
        self._data.clear()
        line = self._data_line - data.count("\n")
        is_pre = self._preformatted > 0
        for number, part in enumerate(data.split("\n"), line):
            if number > line and is_pre:  # not right behind the tag
                self._breaks[0] += self._marks[-1].start >= 0
            if number > line or (part[:1].isspace() and not is_pre):
                self._space = "" if is_pre else " "
            if text := part.rstrip() if is_pre else " ".join(part.split()):
                self._write(text, number)
                self._space = part[len(text) :] if is_pre else " " * part[-1].isspace()
            elif is_pre:
                self._space += part

    comment = close = _flush  # the lines of a comment are not among those of the text

    def _break(self, tag: str) -> None:
        at = tag in _SOFT
        self._breaks[at] = max(self._breaks[at], _BREAKS.get(tag, 0))

    def _write(self, piece: str, line: int) -> None:
        breaks = max(self._breaks)
        gap = "\n" * breaks + (self._space if self._preformatted or not breaks else "")
        if self._pieces and gap:
            self._pieces.append(gap)
            self.length += len(gap)
        self._paragraph += not self._pieces or max(self._breaks[:2]) > 0
        self._breaks, self._space = [0, 0, 0], ""
        for mark in self._waiting:
            mark.piece, mark.start = len(self._pieces), self.length
        self._waiting.clear()
        self._places.add(self.length, line if self._places.unit == "line" else self._paragraph)
        self._pieces.append(piece)
        self.length += len(piece)

    def _end_heading(self) -> None:
        mark, self._heading = self._heading, None
        if mark is not None and mark.start >= 0:
            title = base.one_line("".join(self._pieces[mark.piece :]))
            self._headings.append(Heading(mark.start, self.length, int(mark.tag[1]), title))

    def _rewrite(self, mark: _Mark) -> None:
        is_short = 0 <= mark.start >= self.length - _LONGEST_SCRIPT
        text = "".join(self._pieces[mark.piece :]) if is_short else "\n"
        if "\n" not in text:
            before = "".join(self._pieces[max(0, mark.piece - 5) : mark.piece])[-40:]
            written = write_scripts(f"{before}{_SCRIPTS[mark.tag]}{text}{CLOSED}")[len(before) :]
            self._pieces[mark.piece :] = [written]
            self.length = mark.start + len(written)
            if before[-1:] in ("", "\n"):  # the mark of a note itself
                self._space = " "

    def _read_meta(self, attributes: Mapping[str, str]) -> None:
        content = attributes.get("content", "").strip()
        for key in ("name", "property", "itemprop", "http-equiv"):
            name = attributes.get(key, "").strip().casefold()
            if self._meta.setdefault(name, content) != content and stated_levels({name: content}):
                self._meta[name] = UNREADABLE


def extract(source: str, *, unit: Unit = "paragraph") -> ParsedDocument:
    """Return the visible text of a page or a fragment, as a document without a path.

    A row of a table is one line and one paragraph, even if its cells hold paragraphs.
    """
    page = _read(source, unit, "")
    if sum(len(text.strip()) for text in page.left_out["hidden"]) > page.length:
        page = _read(source, unit, "hidden")  # a script shows it
    if not page.length and page.left_out["navigation"]:
        page = _read(source, unit, "navigation")
    return page.document()


def _read(source: str, unit: Unit, shown: str) -> _Page:
    page = _Page(unit, shown)
    source = storable(source).replace("\r\n", "\n").replace("\r", "\n")
    # The parser takes entities and CDATA for text; formulas have no lines of their own.
    source = _SUBSET.sub(lambda found: found[1] + "\n" * found[2].count("\n"), source)
    source = _CDATA.sub(lambda found: escape(found[1], quote=False), source)
    source = _FORMULA.sub(_write_formula, source)
    for pattern, tag in _SHEET.items() if "<Workbook" in source[:1000] else ():
        source = re.sub(pattern, tag, source)
    parser = etree.HTMLParser(target=page, encoding="utf-8", huge_tree=True)
    for page.line, piece in enumerate(source.encode().split(b"\n"), 1):
        parser.feed(piece + b"\n")  # one by one, so that the line of an event is known
    page.line += 1
    parser.close()
    return page


def _write_formula(found: re.Match[str]) -> str:
    root = etree.fromstring(f"<math>{found[1]}</math>", etree.HTMLParser())
    formula = escape(formula_text(root.find(".//math")))
    return formula + "<wbr" + "\n" * found[0].count("\n") + ">"
