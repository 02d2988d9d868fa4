"""HTML: the visible text, block by block, with its headings, tables and source lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email import message_from_bytes
from email.message import Message
from html import escape
from io import BytesIO
from typing import Any, BinaryIO, ClassVar, Literal, cast

from lxml import etree

from catalog.core.documents import Heading, ParsedDocument, Table
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import PlacesBuilder
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
_DROPPED = frozenset(_DROPPED_TAGS.split())
_BREAKS = dict.fromkeys(_PARAGRAPH_TAGS.split(), 2) | dict.fromkeys(
    ("caption", "dd", "dt", "figcaption", "legend", "li", "summary", "tr"), 1
)
"""Line breaks before and after an element."""
_SOFT = frozenset(["div", "p"])
"""Blocks that set the text of a cell rather than part it from the next cell."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_CELLS, _SPANS = frozenset(["td", "th"]), frozenset(["colspan", "rowspan"])
_SCRIPTS = {"sup": RAISED, "sub": LOWERED}
_LONGEST_SCRIPT = 60
_ROLES = frozenset(["navigation", "dialog", "alertdialog", "contentinfo"])
_FURNITURE_NAMES = """
    cookie-notice cookie-law-info-bar cookie-banner cookie-consent onetrust-consent-sdk
    CybotCookiebotDialog site-title site-description colophon widget-area sharedaddy share-buttons
    social-share"""
_FURNITURE = frozenset(_FURNITURE_NAMES.split())
"""Names that WordPress and cookie notices give to what stands on each page of a site."""
_SIGNS = frozenset(["headerlink", "katex-html"])
"""The sign beside a heading that links to it, and a formula drawn beside its MathML."""
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
"""Soft hyphens and spaces without width, which would part words."""
_SUBSET = re.compile(r"([^<]*+(?:<\?[^>]*+>\s*+)?<!doctype[^<>\[\]]*+)\[([^\]]*+)\]", re.IGNORECASE)
_FIRST_OF = {
    "created": "article:published_time datepublished dcterms.created dc.date dcterms.date",
    "modified": "article:modified_time datemodified dcterms.modified last-modified",
    "source_url": "canonical og:url", "description": "description", "author": "author",
    "keywords": "keywords", "tags": "tags", "date": "date", "language": "language",
    "source_type": "source_type source-type", "agent_hint": "agent_hint agent-hint",
    "page_title": "page_title page-title",
}  # fmt: skip
"""For each field of a document, the names in a page's head; the first one counts."""


class HtmlReader(base.WholeFileReader):
    """Read the visible text of a page, to which offsets refer; its places are source lines.

    Scripts, styles, navigation, form controls and what a site shows on each page are left out,
    unless there is nothing else. So is hidden text, unless there is more of it than of the rest.
    """

    declares_encoding = True
    unit: ClassVar[Literal["line", "paragraph"]] = "line"

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its title is ``<title>``, the first heading or the stem.

        Raises ``ReadError`` if there is no visible text at all.
        """
        page = extract(text, unit=self.unit)
        if not page.text:
            raise EmptyDocumentError("empty: no visible text")
        first = page.headings[0].title if page.headings else None
        title = base.choose_title(path, page.title, first)
        return replace(page, path=path, title=title, file_type=base.file_type(path))


class MhtmlReader(HtmlReader):
    """Read the page of a web archive, as browsers save it; its places are paragraphs."""

    unit = "paragraph"

    def read(
        self, handle: BinaryIO, path: str, *, limits: base.ReadLimits
    ) -> Iterator[ParsedDocument | base.ReadFailure]:
        """Yield the document of the first HTML part, with its address.

        Raises ``ReadError`` if there is no such part.
        """
        data = base.read_bytes(handle, limits.text_bytes)
        page = _find_page(data)
        if page is None:
            raise ReadError("a web archive without a page")
        charset = page.get_content_charset("").encode()
        content = cast(bytes, page.get_payload(decode=True))
        source = b'<meta charset="%b">%b' % (charset, content)
        top = message_from_bytes(data[:_HEADER_BYTES])
        address = page["Content-Location"] or top["Snapshot-Content-Location"]
        fields = normalise({"source_url": str(address).strip()})
        for item in super().read(BytesIO(source), path, limits=limits):
            if isinstance(item, ParsedDocument):
                item = replace(item, metadata={**fields, **item.metadata})
            yield item


_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_HEADER_BYTES, _DEEPEST_PART = 16_384, 3


def _find_page(data: bytes, depth: int = 0) -> Message | None:
    """Return the first HTML part; a part with longer headers or nested deeper is none."""
    end = _BLANK_LINE.search(data[:_HEADER_BYTES])
    headers = message_from_bytes(data[: end.start()] if end else b"")
    if headers.get_content_type() == "text/html":
        return message_from_bytes(data)
    boundary = headers.get_boundary("") if depth < _DEEPEST_PART else ""
    parts = data.split(b"--" + boundary.encode("ascii", "replace"))[1:] if boundary else ()
    pages = (_find_page(part.lstrip(b"\r\n"), depth + 1) for part in parts)
    return next((page for page in pages if page is not None), None)


@dataclass(slots=True)
class _Mark:
    """An open element, with the pieces and characters of text before it.

    ``header`` counts the rows of a table up to the first that has other cells than ``th``.
    """

    tag: str
    piece: int
    start: int
    header: int = 0
    is_header: bool = True
    has_spans: bool = False


class _Page:
    """Receive a parser's events, and write text with white space as in a browser."""

    def __init__(self, unit: Literal["line", "paragraph"], shown: frozenset[str]) -> None:
        self.line = 1  # that is being parsed
        self.length = 0
        self.left_out: dict[str, list[str]] = defaultdict(list)  # by the reason
        self._shown = shown
        self._skipped, self._why = 0, ""  # open elements that are left out
        self._opened: set[str] = set()  # ids of panels that buttons open
        self._data: list[str] = []
        self._data_line = 1  # on which the data ends
        self._is_raw = self._has_cell = False
        self._pieces: list[str] = []
        self._places = PlacesBuilder(unit)
        self._end = 0  # of the visible text
        self._breaks, self._space = [0, 0, 0], ""  # before the next text: of blocks, soft, of <br>
        self._written = 0  # of the breaks
        self._is_new = True  # whether the next text begins a paragraph
        self._cell_start = -1
        self._paragraph = self._preformatted = 0
        self._formula: Any = None
        self._inside = 0  # open elements of the formula
        self._heading: _Mark | None = None
        self._marks: list[_Mark] = []
        self._headings: list[Heading] = []
        self._atomic: list[tuple[int, int]] = []
        self._tables: list[tuple[_Mark, int]] = []
        self._meta: dict[str, str] = {}

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._flush()
        self._is_raw = tag in ("script", "style")
        if tag == "meta":  # a label counts wherever it is
            self._read_meta(attributes)
        if not self._skipped and self._formula is None:
            self._why = self._why_left_out(tag, attributes)
        if self._skipped or (self._why and self._why not in self._shown):
            self._skipped += 1
        elif self._formula is not None or tag == "math":
            self._formula = etree.TreeBuilder() if self._formula is None else self._formula
            self._formula.start(_element_name(tag), {})
            self._inside += 1
        else:
            self._start_visible(tag, attributes)

    def end(self, tag: str) -> None:
        self._flush()
        self._is_raw = False
        if self._skipped:
            self._skipped -= 1
        elif self._formula is None:
            self._end_visible(tag)
        else:
            self._formula.end(_element_name(tag))
            self._inside -= 1
            if not self._inside:
                text, self._formula = formula_text(self._formula.close()), None
                self._write(text, self.line)

    def data(self, data: str) -> None:
        if not self._skipped:
            self._data.append(data)
            self._data_line = self.line
        elif not self._is_raw:
            self.left_out[self._why].append(data)

    def comment(self, _text: str) -> None:
        self._flush()  # whose lines are not among those of the text

    def close(self) -> _Page:
        self._flush()
        return self

    def document(self) -> ParsedDocument:
        text = "".join(self._pieces).rstrip()
        fields = {
            name: next((self._meta[key] for key in keys.split() if self._meta.get(key)), None)
            for name, keys in _FIRST_OF.items()
        }
        return ParsedDocument(
            path="",
            text=text,
            title="".join(self.left_out["title"]),
            file_type="html",
            metadata=normalise(fields | stated_levels(self._meta)),
            headings=tuple(self._headings),
            atomic=tuple(self._atomic),
            tables=tuple(one for table in self._tables for one in _name_columns(text, *table)),
            places=self._places.places(),
        )

    def _why_left_out(self, tag: str, attributes: Mapping[str, str]) -> str:
        if tag == "button":
            self._opened.add(attributes.get("aria-controls", ""))
        if tag in _DROPPED and not (tag == "button" and self._heading):
            return "dropped"
        if tag == "title":
            return "dropped" if self.left_out["title"] else "title"
        if not attributes:  # most elements have none, and asking an empty one takes long
            return {"nav": "navigation", "dialog": "hidden"}.get(tag, "")
        names = {attributes.get("id", ""), *attributes.get("class", "").split()}
        if names & _SIGNS:
            return "dropped"
        if tag == "nav" or names & _FURNITURE or attributes.get("role") in _ROLES:
            return "navigation"
        is_hidden = attributes.get("hidden", "until-found") != "until-found"
        if "display:none" in attributes.get("style", "").replace(" ", "").casefold():
            is_hidden = not any("mwe-math" in name for name in names)  # a formula of Wikipedia
        is_closed = tag == "dialog" and "open" not in attributes
        return "hidden" if is_closed or (is_hidden and not names & self._opened) else ""

    def _start_visible(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _CELLS:
            is_next = self._has_cell and self.length and not max(self._breaks)
            self._space = " "
            if is_next:
                self._write("|", self.line)
            self._space, self._has_cell = " ", True
            self._cell_start = self.length
            if self._marks and (table := self._marks[-1]).tag == "table":
                table.is_header &= tag == "th"
                table.has_spans |= table.is_header and bool(_SPANS & attributes.keys())
        elif tag == "br":
            self._breaks[2] = min(2, max(self._breaks) + 1)
        elif tag not in _SOFT or self.length != self._cell_start:
            self._break(tag)
        if tag in _HEADINGS:
            self._end_heading()  # one that was left open
            self._heading = self._mark(tag)
        elif tag in ("pre", "table") or tag in _SCRIPTS:
            self._marks.append(self._mark(tag))
            self._preformatted += tag == "pre"
        elif tag == "tr":
            self._has_cell = False
        elif tag == "link" and "canonical" in attributes.get("rel", "").casefold().split():
            self._meta.setdefault("canonical", attributes.get("href", ""))
        elif tag == "html":
            self._meta["language"] = attributes.get("lang", "")

    def _end_visible(self, tag: str) -> None:
        mark = self._marks[-1] if self._marks else None
        if tag in _HEADINGS:
            self._end_heading()
        elif tag in _CELLS:
            self._breaks[1:] = [0, 0]
        elif mark and mark.tag == tag:
            self._marks.pop()
            self._preformatted -= tag == "pre"
            if tag in _SCRIPTS:
                self._rewrite(mark)
            elif self._end > mark.start:
                self._atomic.append((mark.start, self._end))
                if tag == "table":
                    self._tables.append((mark, self._end))
        elif mark and mark.tag == "table" and tag == "tr":
            mark.header += mark.is_header
        self._break(tag)

    def _flush(self) -> None:
        if not self._data:
            return
        data = "".join(self._data)
        self._data.clear()
        line = self._data_line - data.count("\n")
        if not data.isascii():
            data = _INVISIBLE.sub("", data)
        if self._formula is not None:
            self._formula.data(re.sub("[\x00-\x1f\ufffe\uffff]", " ", data))
            return
        is_pre = self._preformatted > 0
        for number, part in enumerate(data.split("\n"), line):
            if number > line and is_pre:
                is_inside = not self._marks or self._marks[-1].piece < len(self._pieces)
                self._breaks[0] += is_inside
            indent = part[: len(part) - len(part.lstrip())]
            if indent or number > line:
                self._space = indent if is_pre else " "
            if text := part.strip() if is_pre else " ".join(part.split()):
                self._write(text, number)
                self._space = part[len(part.rstrip()) :] if is_pre else " " * part[-1].isspace()

    def _break(self, tag: str) -> None:
        at = tag in _SOFT
        self._breaks[at] = max(self._breaks[at], _BREAKS.get(tag, 0))

    def _mark(self, tag: str) -> _Mark:
        self._write_gap()
        return _Mark(tag, len(self._pieces), self.length)

    def _write_gap(self) -> None:
        breaks = max(self._breaks)
        gap = "\n" * (breaks - self._written)
        if self._preformatted or not (breaks or self._written):
            gap += self._space
        if self.length and gap:
            self._pieces.append(gap)
            self.length += len(gap)
        self._is_new |= self._breaks[0] > 0 or self._breaks[1] > 0
        self._written = max(self._written, breaks)
        self._breaks, self._space = [0, 0, 0], ""

    def _write(self, piece: str, line: int) -> None:
        """Add visible text, after the line breaks or the space that were requested."""
        self._write_gap()
        self._paragraph += self._is_new
        self._is_new, self._written = False, 0
        self._places.add(self.length, line if self._places.unit == "line" else self._paragraph)
        self._pieces.append(piece)
        self.length += len(piece)
        self._end = self.length - len(piece) + len(piece.rstrip())

    def _end_heading(self) -> None:
        mark, self._heading = self._heading, None
        if mark is not None and (title := base.one_line("".join(self._pieces[mark.piece :]))):
            self._headings.append(Heading(mark.start, self._end, _HEADINGS[mark.tag], title))

    def _rewrite(self, mark: _Mark) -> None:
        """Write the raised or lowered text since a mark, unless it is long, as plain text."""
        is_short = 0 < self.length - mark.start <= _LONGEST_SCRIPT
        text = "".join(self._pieces[mark.piece :]) if is_short else ""
        if text and "\n" not in text:
            before = "".join(self._pieces[max(0, mark.piece - 5) : mark.piece])[-40:]
            before = before.replace(RAISED, "\n").replace(LOWERED, "\n")  # of the page's own
            written = write_scripts(f"{before}{_SCRIPTS[mark.tag]}{text}{CLOSED}")[len(before) :]
            self._pieces[mark.piece :] = [written]
            self.length = self._end = mark.start + len(written)
            if before[-1:] in ("", "\n"):  # the mark of a note itself
                self._space = " "

    def _read_meta(self, attributes: Mapping[str, str]) -> None:
        content = attributes.get("content", "").strip()
        for key in ("name", "property", "itemprop", "http-equiv"):
            name = attributes.get(key, "").strip().casefold()
            if self._meta.setdefault(name, content) != content and stated_levels({name: content}):
                self._meta[name] = UNREADABLE


def _element_name(tag: str) -> str:
    """Return a name that is allowed in XML for an element of a formula."""
    name = tag.rpartition(":")[2]
    return name if name.isascii() and name.replace("-", "").isidentifier() else "mrow"


def _name_columns(text: str, table: _Mark, end: int) -> list[Table]:
    """Return the table with the names in its header, or in a first row that has names."""
    rows = [row.split(" | ") for row in text[table.start : end].split("\n", COMPARED_ROWS)]
    named = rows[: table.header or names_columns(rows)] if len(rows) > 1 else []
    if table.has_spans:
        named = [[name for row in named for name in row]]
    return make_table(table.start, end, named) if named else []


def extract(
    source: Any, *, keep_navigation: bool = False, unit: Literal["line", "paragraph"] = "paragraph"
) -> ParsedDocument:
    """Return the visible text of a page, a fragment or an element of lxml with names of HTML.

    Navigation counts only if there is nothing else, and hidden text only if it is the longer one.
    Blocks are separated by line breaks. Cells of a table row are on one line, even if their text
    is in paragraphs. A row is one paragraph; so is everything that begins on a new line, except
    after ``<br>``. The document has no path.
    """
    page = _read(source, unit, frozenset(["navigation"] if keep_navigation else []))
    if (
        sum(len(text.strip()) for text in page.left_out["hidden"]) > page.length
    ):  # a script shows it
        page = _read(source, unit, frozenset(["hidden"]))
    if not page.length and page.left_out["navigation"]:
        page = _read(source, unit, frozenset(["navigation"]))
    return page.document()


def _read(source: Any, unit: Literal["line", "paragraph"], shown: frozenset[str]) -> _Page:
    page = _Page(unit, shown)
    if isinstance(source, str):
        parser = etree.HTMLParser(target=page, encoding="utf-8", huge_tree=True)
        data = _prepare(source).encode()
        pieces = data.split(b"\n") if unit == "line" else [data]
        for page.line, piece in enumerate(pieces, 1):  # so that the line of an event is known
            parser.feed(piece + b"\n")
        page.line += 1
        return cast(_Page, parser.close())
    for event, element in etree.iterwalk(source, events=("start", "end")):
        if event == "start":
            page.start(etree.QName(element).localname, dict(element.attrib))
        else:
            page.end(etree.QName(element).localname)
        text = element.text if event == "start" else element is not source and element.tail
        page.data(text or "")
    return page.close()


def _prepare(source: str) -> str:
    """Return a page without what the parser would take for text, on the same lines."""
    source = storable(source).replace("\r\n", "\n").replace("\r", "\n")
    if (subset := _SUBSET.match(source)) is not None:
        source = subset[1] + "\n" * subset[2].count("\n") + source[subset.end() :]
    first, *others = source.split("<![CDATA[")
    for other in others:
        text, end, rest = other.partition("]]>")
        first += escape(text, quote=False) + rest if end else "<![CDATA[" + text
    return first
