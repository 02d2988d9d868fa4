"""HTML: the visible text, block by block, with its headings; one pass, no tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from email import message_from_bytes, policy
from io import BytesIO
from typing import BinaryIO, ClassVar, Literal, cast

from lxml import etree

from catalog.core.documents import Heading, ParsedDocument, Table
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable
from catalog.ingest.readers.base import (
    MAX_TITLE,
    ReadFailure,
    ReadLimits,
    WholeFileReader,
    choose_title,
    file_type,
    one_line,
    read_bytes,
)
from catalog.ingest.readers.metadata import UNREADABLE, normalise, stated_levels
from catalog.ingest.readers.source_lines import RAW_TEXT, SourceLines
from catalog.ingest.readers.tables import (
    LONGEST_REPEATED,
    MOST_COLUMNS,
    MOST_ROWS,
    OpenTable,
    find_table,
    to_span,
)


@dataclass(slots=True)
class Mark:
    """An open element whose place in the text matters; its first character sets ``start``."""

    tag: str
    piece: int
    start: int = -1


@dataclass(slots=True)
class FlowingText:
    """Pieces of text, with white space as in a browser."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0
    breaks: int = 0
    is_soft: bool = False
    """Whether the breaks requested are only those of paragraphs and line breaks."""
    has_space: bool = False
    marks: list[Mark] = field(default_factory=list)
    unplaced: int = 0
    visible_end: int = 0
    is_paragraph: bool = True
    """Whether the next text begins a paragraph."""

    def break_lines(self, count: int, *, soft: bool = False, is_paragraph: bool = True) -> None:
        """Request at least ``count`` line breaks before the next text."""
        self.is_paragraph |= is_paragraph
        self.is_soft = soft and (self.is_soft or not self.breaks)
        self.breaks = max(self.breaks, count)

    def drop_soft_breaks(self) -> None:
        """Cancel the requested breaks if all of them are soft."""
        if self.is_soft:
            self.breaks, self.is_soft, self.is_paragraph = 0, False, not self.length

    def write(self, piece: str) -> None:
        """Add visible text, after the line breaks or the space that were requested."""
        if self.length and self.breaks:
            self._append("\n" * self.breaks)
        elif self.length and self.has_space:
            self._append(" ")
        self.breaks, self.is_soft, self.has_space = 0, False, False
        while self.unplaced:
            mark = self.marks[-self.unplaced]
            mark.start, mark.piece = self.length, len(self.pieces)
            self.unplaced -= 1
        self._append(piece)

    def open(self, tag: str) -> None:
        """Open a mark, which is placed at the next text."""
        self.marks.append(Mark(tag, len(self.pieces)))
        self.unplaced += 1

    def close(self, tag: str) -> Mark | None:
        """Close and return the innermost mark if it has this tag and contains text."""
        if not self.marks or self.marks[-1].tag != tag:
            return None
        mark = self.marks.pop()
        if mark.start < 0:
            self.unplaced -= 1
            return None
        return mark

    def beginning(self, mark: Mark) -> str:
        """Return enough text since ``mark`` for a title; the whole could be a page."""
        text = ""
        for at in range(mark.piece, len(self.pieces)):
            if len(text) > 2 * MAX_TITLE:
                break
            text += self.pieces[at]
        return text

    def _append(self, piece: str) -> None:
        self.pieces.append(piece)
        if visible := len(piece.rstrip()):
            self.visible_end = self.length + visible
        self.length += len(piece)


_DROPPED_TAGS = """
    script style noscript template svg canvas iframe annotation annotation-xml rt rp
    select textarea datalist audio video"""
_PARAGRAPH_TAGS = """
    address article aside blockquote body details div dl fieldset figure footer form
    h1 h2 h3 h4 h5 h6 header hr main ol p pre section table ul"""
_DROPPED = frozenset(_DROPPED_TAGS.split())
_NAVIGATION = frozenset(["nav"])
_PARAGRAPHS = frozenset(_PARAGRAPH_TAGS.split())
_LINES = frozenset(["caption", "dd", "dt", "figcaption", "legend", "li", "summary", "tr"])
_HEADING_LEVELS = {f"h{level}": level for level in range(1, 7)}
_ATOMIC = frozenset(["pre", "table"])
_CELLS = frozenset(["td", "th"])
_SOFT = frozenset(["div", "p"])
"""Blocks that set the text of a cell rather than part it from the next cell."""
_CONTROLS = re.compile(r"aria-controls\s{0,9}=\s{0,9}[\"']?([^\"'\s>]{1,200})", re.IGNORECASE)
"""The panel that a button opens: its text counts although it is hidden at first."""
_LABEL_WORDS = 4
"""Words of a button from which on it is text, such as a question that opens its answer."""
_OPENS_TEXT = re.compile(r"accordion|collaps|expand|faq|question|toggle", re.IGNORECASE)
_MATH_SIGNS = {
    "msup": "^",
    "mover": "^",
    "msub": "_",
    "munder": "_",
    "msubsup": "_^",
    "munderover": "_^",
    "mfrac": "/",
    "mroot": ("^(1/",),
}
"""What stands in plain text before the second and the third part of a formula's element."""
_INVISIBLE = re.compile(
    "[\u00ad\u200b\u2060\ufeff]"
    "|&(?:shy|ZeroWidthSpace|NoBreak|#0{0,9}(?:173|8203|8288|65279)"
    "|#[xX]0{0,9}(?:[aA][dD]|200[bB]|2060|[fF][eE][fF][fF]));?"
)
"""Soft hyphens and spaces without width, which would part words."""
_SURROGATE_REFERENCE = re.compile(r"&#(?:0+|x0+|x0*d[89a-f][0-9a-f]{2});?", re.IGNORECASE)
_DOCTYPE_SUBSET = re.compile(
    r"(\s*+(?:<\?xml[^>]*+>\s*+)?<!doctype[^<>\[\]]*+)\[[^\]]*+\]", re.IGNORECASE
)
_CREATED = ("article:published_time", "datepublished", "dcterms.created", "dc.date", "dcterms.date")
_MODIFIED = ("article:modified_time", "datemodified", "dcterms.modified", "last-modified")
_OTHER_FIELDS = (
    "description", "author", "keywords", "tags", "date", "language",
    "source_type", "agent_hint", "page_title",
)  # fmt: skip
_UNDERLINED = frozenset(["source-type", "agent-hint", "page-title"])


class HtmlReader(WholeFileReader):
    """Read the visible text of a page, to which offsets refer; its places are source lines.

    Scripts, styles, navigation and form controls are left out, unless there is nothing else. Of
    buttons those that open text stay. Formulas become plain text (``a^3``), and a table cell over
    several rows is repeated in each.
    """

    declares_encoding = True
    unit: ClassVar[Literal["line", "paragraph"]] = "line"

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its title is ``<title>``, the first heading or the stem.

        Raises ``ReadError`` if there is no visible text at all.
        """
        page = extract_visible(text, self.unit)
        if not page.text:
            raise EmptyDocumentError("empty: no visible text")
        first = page.headings[0].title if page.headings else None
        return ParsedDocument(
            path=path,
            text=storable(page.text),
            title=choose_title(path, page.title, first),
            file_type=file_type(path),
            metadata=normalise(_fields_of(page)),
            headings=page.headings,
            atomic=page.atomic,
            tables=page.tables,
            places=page.places,
        )


class MhtmlReader(HtmlReader):
    """Read the page of a web archive, as browsers save it; its places are paragraphs."""

    unit = "paragraph"

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the document of the first HTML part, with its address.

        Raises ``ReadError`` if there is no such part.
        """
        data = read_bytes(handle, limits.text_bytes)
        try:
            message = message_from_bytes(data, policy=policy.default)
            parts = (part for part in message.walk() if part.get_content_type() == "text/html")
            part = next(parts, None)
            source = "" if part is None else part.get_content()
        except (RecursionError, LookupError, ValueError) as error:
            raise ReadError("a broken web archive") from error
        if part is None:
            raise ReadError("a web archive without a page")
        address = part["Content-Location"] or message["Snapshot-Content-Location"]
        for item in super().read(BytesIO(source.encode()), path, limits=limits):
            if isinstance(item, ParsedDocument):
                metadata = {**normalise({"source_url": address}), **item.metadata}
                yield replace(item, metadata=metadata)
            else:
                yield item


def _fields_of(page: HtmlPage) -> dict[str, object]:
    fields: dict[str, object] = {name: page.meta.get(name) for name in _OTHER_FIELDS}
    for name, names in (("created", _CREATED), ("modified", _MODIFIED)):
        fields[name] = next((page.meta[key] for key in names if key in page.meta), None)
    fields["source_url"] = page.canonical or page.meta.get("og:url")
    return fields | stated_levels(page.meta)


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """The visible text of a page and the content of its head; ``meta`` has lower-case names.

    ``places`` has the paragraphs of the text, from 1, or the lines of the source.
    ``has_navigation`` says that navigation was left out.
    """

    text: str
    title: str
    headings: tuple[Heading, ...]
    atomic: tuple[tuple[int, int], ...]
    tables: tuple[Table, ...]
    meta: Mapping[str, str]
    canonical: str | None
    places: Places
    has_navigation: bool


class _Extractor:
    """Receive the parser's events; the parser closes tags that the author left open.

    It may deliver a text in many pieces, with each stray ``<`` by itself; these are joined first.
    """

    def __init__(
        self, dropped: frozenset[str], source: SourceLines | None, repeatable: int
    ) -> None:
        self._dropped = dropped
        self._repeatable = repeatable  # characters of repeated cells
        self.opened: frozenset[str] = frozenset()  # ids of panels that buttons open
        self._formula: list[tuple[str, int]] = []  # open elements with their numbers of parts
        self._button: list[str] | None = None
        self._is_label = False
        self._source = source
        self._places = PlacesBuilder("paragraph" if source is None else "line")
        self._paragraph = 0
        self._is_raw = False
        self._data: list[str] = []
        self._cell_start = -1
        self._out = FlowingText()
        self._skipped = 0
        self._preformatted = 0
        self._is_title = False
        self._has_cell = False
        self._title: list[str] = []
        self._headings: list[Heading] = []
        self._atomic: list[tuple[int, int]] = []
        self._open_tables: list[OpenTable] = []
        self._tables: list[tuple[int, OpenTable]] = []
        self._carried: list[int] = []
        self._meta: dict[str, str] = {}
        self._canonical: str | None = None
        self._has_navigation = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._flush()
        self._is_raw = tag in RAW_TEXT
        is_hidden = False
        kind = tag
        if attributes:  # most elements have none, and asking an empty one takes long
            kind = "nav" if attributes.get("role") == "navigation" else tag
            is_hidden = _is_hidden(attributes) and attributes.get("id") not in self.opened
        if self._skipped and tag == "meta":  # a label counts wherever it is
            self._read_meta(attributes, only_level=True)
        if self._skipped or is_hidden or kind in self._dropped:
            self._has_navigation |= kind in _NAVIGATION
            self._skipped += 1
            return
        if self._formula or tag == "math":
            self._open_part(tag)
            return
        if tag == "button":
            self._close_button()
            marks = [attributes.get(name, "") for name in ("class", "id", "data-bs-toggle")]
            self._is_label = "aria-expanded" in attributes or bool(_OPENS_TEXT.search(str(marks)))
            self._button = []
        elif self._button is not None and tag in _HEADING_LEVELS:
            self._is_label = True
            self._close_button()
        self._layout(tag)
        if tag in _CELLS and self._open_tables:
            table = self._open_tables[-1]
            table.is_header &= tag == "th"
            rows = to_span(attributes.get("rowspan"), MOST_ROWS, zero=MOST_ROWS)
            table.cell = len(self._out.pieces), rows
            table.add_cell(to_span(attributes.get("colspan"), MOST_COLUMNS))
        if tag == "title":
            self._is_title = not self._title
        elif tag == "meta":
            self._read_meta(attributes)
        elif tag == "link" and "canonical" in attributes.get("rel", "").casefold().split():
            self._canonical = self._canonical or attributes.get("href")
        elif tag == "html" and attributes.get("lang"):
            self._meta.setdefault("language", attributes["lang"])
        if tag in _HEADING_LEVELS or tag in _ATOMIC:
            self._out.open(tag)
        self._preformatted += tag == "pre"

    def end(self, tag: str) -> None:
        self._flush()
        self._is_raw = False
        if self._skipped:
            self._skipped -= 1
            return
        if self._formula:
            part, inside = self._formula.pop()
            if part == "(" or (part == "mroot" and inside > 1):
                self._write(")", [])
            return
        if tag == "button":
            self._close_button()
        self._is_title = self._is_title and tag != "title"
        self._preformatted -= tag == "pre"
        if tag in _HEADING_LEVELS or tag in _ATOMIC:
            self._close(tag)
        if tag == "tr" and self._open_tables:
            self._carry()
            self._open_tables[-1].end_row(self._out.visible_end)
        if tag in _PARAGRAPHS:
            self._out.break_lines(2, soft=tag in _SOFT)
        elif tag in _LINES:
            self._out.break_lines(1)
        elif tag in _CELLS:
            self._out.drop_soft_breaks()
            self._end_cell()

    def data(self, data: str) -> None:
        if not (self._is_raw or (self._skipped and self._source is None)):
            self._data.append(data)

    def _flush(self) -> None:
        if not self._data:
            return
        data = "".join(self._data)
        self._data.clear()
        if self._skipped or self._is_title:
            self._find_lines(data.split())
        if self._skipped:
            return
        if self._is_title:
            self._title.append(data)
        elif self._button is not None:
            self._button.append(data)
        elif self._formula:
            if words := data.split():
                self._write(" ".join(words), words)
        elif self._preformatted:
            self._write_preformatted(data)
        else:
            self._write_flowing(data)

    def close(self) -> HtmlPage:
        self._flush()
        text = "".join(self._out.pieces).rstrip()
        return HtmlPage(
            text=text,
            title="".join(self._title),
            headings=tuple(self._headings),
            atomic=tuple(self._atomic),
            tables=tuple(one for table in self._tables for one in find_table(text, *table)),
            meta=self._meta,
            canonical=self._canonical,
            places=self._places.places(),
            has_navigation=self._has_navigation,
        )

    def _close_button(self) -> None:
        """Write the label of a button if it is text, on a line of its own."""
        if self._button is None:
            return
        text = "".join(self._button)
        self._button = None
        if self._is_label or len(text.split()) >= _LABEL_WORDS or text.rstrip().endswith("?"):
            self._out.break_lines(2, soft=True)
            self._write_flowing(text)
            self._out.break_lines(2, soft=True)
        else:
            self._find_lines(text.split())

    def _open_part(self, tag: str) -> None:
        """Open a part of a formula, with the sign that stands before it in plain text."""
        holder = ""
        if self._formula:
            holder, parts = self._formula[-1]
            self._formula[-1] = holder, parts + 1
            if 1 <= parts <= len(signs := _MATH_SIGNS.get(holder, "")):
                self._write(signs[parts - 1], [])
        is_group = tag == "mrow" and holder in _MATH_SIGNS
        self._formula.append(("(" if is_group else tag, 0))
        if tag == "msqrt" or is_group:
            self._write("(" if is_group else "√", [])
        elif tag in ("mtr", "mtd"):
            self._out.has_space = True

    def _layout(self, tag: str) -> None:
        out = self._out
        if tag in _SOFT and out.length == self._cell_start:
            return
        if tag in _PARAGRAPHS:
            out.break_lines(2, soft=tag in _SOFT)
        elif tag in _LINES:
            out.break_lines(1)
        elif tag == "br":
            out.break_lines(min(2, out.breaks + 1), soft=True, is_paragraph=False)
        elif tag in _CELLS:
            self._carry()
            self._begin_cell()
        if tag == "tr":
            self._has_cell = False
        elif tag == "table":
            self._open_tables.append(OpenTable())

    def _begin_cell(self) -> None:
        out = self._out
        if self._has_cell and out.length and not out.breaks:
            out.has_space = True
            out.write("|")
        out.has_space = True
        self._has_cell = True
        self._cell_start = out.length

    def _end_cell(self) -> None:
        """Note the text of a cell that reaches into the rows below."""
        if not self._open_tables:
            return
        table = self._open_tables[-1]
        begin, rows = table.cell
        text = "".join(self._out.pieces[begin:]).strip(" |\n") if rows > 1 else ""
        if text and len(text) <= LONGEST_REPEATED:
            columns = table.row[-1]
            table.reaching[table.column - columns] = rows, columns, text

    def _carry(self) -> None:
        """Repeat the cells of rows above that reach into this row, up to the next cell."""
        table = self._open_tables[-1] if self._open_tables else OpenTable()
        while table.column in table.reaching:
            rows, columns, text = table.reaching.pop(table.column)
            self._repeatable -= len(text) + 1
            if self._repeatable < 0:  # a table made to grow without end
                table.reaching.clear()
                return
            if rows > 2:
                table.reaching[table.column] = rows - 1, columns, text
            table.add_cell(columns)
            self._begin_cell()
            self._paragraph += self._out.is_paragraph
            self._out.is_paragraph = False
            self._out.write(text)
            self._carried.append(self._out.length - len(text))

    def _write_flowing(self, data: str) -> None:
        words = data.split()
        if data[:1].isspace():
            self._out.has_space = True
        if words:
            self._write(" ".join(words), words)
            self._out.has_space = data[-1].isspace()

    def _write_preformatted(self, data: str) -> None:
        lines = data.replace("\r\n", "\n").replace("\r", "\n")
        if self._out.unplaced:  # the element has no text yet
            lines = lines.lstrip("\n")
        if lines:
            self._write(lines, data.split())

    def _write(self, text: str, words: list[str]) -> None:
        """Add text, and record the place of the text and of its words."""
        self._paragraph += self._out.is_paragraph
        self._out.is_paragraph = False
        self._out.write(text)
        start = self._out.length - len(text)
        lines = [] if self._source is None else self._find_lines(words)
        for at in self._carried:  # the line of the row, not that of the cell above
            self._places.add(at, next(iter(lines), self._paragraph))
        self._carried.clear()
        if self._source is None:
            self._places.add(start, self._paragraph)
            return
        end = 0
        for word, line in zip(words, lines, strict=False):
            at = text.find(word, end)
            indent = text.rfind("\n", end, at) + 1 if end else 0
            self._places.add(start + (at if end and not indent else indent), line)
            end = at + len(word)

    def _find_lines(self, words: list[str]) -> list[int]:
        return [] if self._source is None else self._source.lines_of(words)

    def _close(self, tag: str) -> None:
        mark = self._out.close(tag)
        table = self._open_tables.pop() if tag == "table" and self._open_tables else None
        if mark is None:
            return
        if table is not None:
            self._tables.append((mark.start, table))
        if tag in _ATOMIC:
            self._atomic.append((mark.start, self._out.visible_end))
        elif title := one_line(self._out.beginning(mark)):
            self._headings.append(
                Heading(mark.start, self._out.visible_end, _HEADING_LEVELS[tag], title)
            )

    def _read_meta(self, attributes: Mapping[str, str], *, only_level: bool = False) -> None:
        keys = ("name", "property", "itemprop", "http-equiv")
        name = next((attributes[key] for key in keys if attributes.get(key)), None)
        content = attributes.get("content", "").strip()
        name = (name or "").strip().casefold()
        name = name if name not in _UNDERLINED else name.replace("-", "_")
        for level in stated_levels(dict.fromkeys(attributes.get(key, "") for key in keys)):
            level = level.strip().casefold()
            if self._meta.setdefault(level, content) != content:
                self._meta[level] = UNREADABLE
        if name and content and not only_level:
            self._meta.setdefault(name, content)


def extract(
    source: str, *, keep_navigation: bool, unit: Literal["line", "paragraph"] = "paragraph"
) -> HtmlPage:
    """Return the visible text of a page or fragment; blocks are separated by line breaks.

    Cells of a table row are on one line, even if their text is in paragraphs. A row is one
    paragraph; so is everything that begins on a new line, except after ``<br>``.
    """
    dropped = _DROPPED if keep_navigation else _DROPPED | _NAVIGATION
    source = _INVISIBLE.sub("", source)
    lines = SourceLines(source) if unit == "line" else None
    target = _Extractor(dropped, lines, len(source))
    target.opened = frozenset(" ".join(_CONTROLS.findall(source)).split())
    parser = etree.HTMLParser(target=target, encoding="utf-8", huge_tree=True)
    doctype = _DOCTYPE_SUBSET.match(source)  # the parser would take its end for text
    if doctype is not None:
        source = doctype[1] + source[doctype.end() :]
    cleaned = _SURROGATE_REFERENCE.sub("\ufffd", source)
    return cast(HtmlPage, etree.fromstring(cleaned.encode("utf-8"), parser))


def extract_visible(source: str, unit: Literal["line", "paragraph"] = "line") -> HtmlPage:
    """Return the visible text with its places; navigation only if there is nothing else."""
    page = extract(source, keep_navigation=False, unit=unit)
    is_all = page.text or not page.has_navigation
    return page if is_all else extract(source, keep_navigation=True, unit=unit)


def _is_hidden(attributes: Mapping[str, str]) -> bool:
    if "hidden" in attributes:
        return attributes["hidden"].casefold() != "until-found"
    # The signs of links that documentation generators put next to every heading.
    if "headerlink" in attributes.get("class", "").split():
        return True
    style = attributes.get("style", "")
    if "mwe-math" in attributes.get("class", ""):  # Wikipedia's formulas, shown as pictures
        return False
    return "display:none" in style.replace(" ", "").casefold()
