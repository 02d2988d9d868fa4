"""Word documents: cleaned, converted by mammoth, and read like HTML."""

from __future__ import annotations

import copy
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO

from lxml import etree

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import (
    Archive,
    Element,
    Relation,
    find_related,
    graphic_texts,
    local_name,
    named,
    named_children,
    open_archive,
    read_part,
    read_properties,
    read_relations,
    replace,
    resolve_alternates,
)
from catalog.ingest.readers.base import MAX_TITLE, JoinedText, ReadFailure, ReadLimits
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import normalise, take_title
from catalog.ingest.readers.numbering import Numbering

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_UNWRAPPED = (
    "fldSimple", "smartTag", "customXml", "dir", "bdo", "hyperlink", "oMathPara",
    "sdt", "sdtContent", "ruby", "rubyBase",
)  # fmt: skip
_DROPPED = (
    "sdtPr", "sdtEndPr", "rubyPr", "rt", "smartTagPr", "customXmlPr", "moveFrom", "fldChar",
    "instrText", "softHyphen", "commentReference", "annotationRef", "altChunk",
)  # fmt: skip
_RENAMED = {"cr": "br", "ptab": "tab"}
_OFF = ("0", "false", "off")
_DEEPEST_HEADING = 6
_NO_PAGE_NUMBER = re.compile(r"\b(?!(?:page|seite|of|von)\b)[^\W\d_]{2}", re.IGNORECASE)
"""What a header or footer has if it is more than a page number."""
_MAX_ANCESTORS = 20
"""Styles that one may be based on by way of the others; Word allows eleven."""
_TITLES = frozenset(["title", "titel", "titre", "título", "titolo", "titulo"])
_SEPARATORS = ("separator", "continuationSeparator", "continuationNotice")


class DocxReader:
    """Read a document with its headings, lists and tables; notes come at its end.

    Headers and footers come last, once each, without page numbers. Numbers of lists and headings
    are text. Pictures, comments and tracked deletions are left out; tracked insertions are text.
    Only the document's own parts are read.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        metadata = normalise(read_properties(archive))
        title = take_title(metadata)
        page = extract(_to_html(archive), keep_navigation=True)
        joined = JoinedText(limits, "paragraph")
        joined.add(page.text, page.headings, page.atomic, places=page.places, tables=page.tables)
        yield joined.document(path, title=title, file_type="docx", metadata=metadata)


def _to_html(archive: Archive) -> str:
    main = find_related(read_relations(archive, ""), "officeDocument") or "word/document.xml"
    document = read_part(archive, main)
    if local_name(document) != "document" or not named(document, "body"):
        raise ReadError("not a Word document")
    links = read_relations(archive, main)
    styles, numbering = (
        None if (name := find_related(links, kind)) is None else read_part(archive, name)
        for kind in ("styles", "numbering")
    )

    def read_graphic(identifier: str) -> Iterator[str]:
        link = links.get(identifier)
        return iter(()) if link is None else graphic_texts(read_part(archive, link.target))

    numbers = Numbering(numbering, styles)
    cleaner = _Cleaner(_outline_levels(styles), numbers, _read_notes(archive, links), read_graphic)
    cleaner.clean(document, _read_margins(archive, links))
    return _convert(document, styles, numbering)


def _read_margins(archive: Archive, links: Mapping[str, Relation]) -> list[Element]:
    """Return the headers, then the footers, that are whole."""
    margins = []
    for kind in ("header", "footer"):
        for link in links.values():
            if link.kind == kind:
                with suppress(ReadError):
                    margins.append(read_part(archive, link.target))
    return margins


def _read_notes(archive: Archive, links: Mapping[str, Relation]) -> dict[tuple[str, str], Element]:
    """Return the footnotes and endnotes by kind and id."""
    bodies = {}
    for kind in ("footnote", "endnote"):
        part = find_related(links, f"{kind}s")
        for note in [] if part is None else named(read_part(archive, part), kind):
            if note.get(f"{{{_W}}}type") not in _SEPARATORS:
                bodies[kind, note.get(f"{{{_W}}}id", "")] = note
    return bodies


def _convert(document: Element, styles: Element | None, numbering: Element | None) -> str:
    """Convert to HTML; without styles and lists if these cannot be converted."""
    try:
        return _run_mammoth({"document": document, "styles": styles, "numbering": numbering})
    except RecursionError as error:
        raise ReadError("nested too deeply") from error
    except (ValueError, LookupError, AttributeError, TypeError):
        pass
    try:
        return _run_mammoth({"document": document})
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise ReadError("a broken document") from error


def _run_mammoth(parts: Mapping[str, Element | None]) -> str:
    """Convert only these parts, so that mammoth finds nothing to follow or embed."""
    import mammoth

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, root in parts.items():
            if root is not None:
                archive.writestr(f"word/{name}.xml", etree.tostring(root, encoding="utf-8"))
    result = mammoth.convert_to_html(packed, convert_image=lambda _: [], external_file_access=False)
    return str(result.value)


class _Cleaner:
    """Rewrite a document in place, so that mammoth converts it without losing text.

    Content controls, fields, hyperlinks, alternate content, equations and tables of one cell become
    their content. Text boxes, charts and diagrams become paragraphs after the one to which they are
    anchored. Styles with an outline level become ``HeadingN``, notes ``[n]`` and paragraphs at the
    end. Deleted text, hidden text and pictures are removed. ``read_graphic`` returns the lines of
    the chart or diagram with a relationship id.
    """

    def __init__(
        self,
        levels: Mapping[str, int],
        numbering: Numbering,
        notes: Mapping[tuple[str, str], Element],
        read_graphic: Callable[[str], Iterable[str]],
    ) -> None:
        self._levels = levels
        self._numbering = numbering
        self._notes = notes
        self._read_graphic = read_graphic
        self._numbers: dict[tuple[str, str], int] = {}
        self._note_order: list[tuple[str, str]] = []

    def clean(self, document: Element, margins: Sequence[Element]) -> None:
        self._clean_story(document)
        body = next(iter(named_children(document, "body")), document)
        for number, key in enumerate(self._note_order, 1):  # a note may refer to another: it grows
            note = copy.deepcopy(self._notes[key])
            self._clean_story(note)
            paragraph = next(iter(named(note, "p")), None)
            if paragraph is not None:
                at = 1 if len(paragraph) and local_name(paragraph[0]) == "pPr" else 0
                paragraph.insert(at, _run(note, f"[{number}] "))
            body.extend(list(note))
        shown: set[str] = set()
        for margin in margins:
            self._clean_story(margin)
            for paragraph in named(margin, "p"):
                text = " ".join("".join(run.text or "" for run in named(paragraph, "t")).split())
                if text not in shown and _NO_PAGE_NUMBER.search(text):
                    shown.add(text)
                    body.append(_paragraph(body, text))

    def _clean_story(self, root: Element) -> None:
        resolve_alternates(root)
        for element in named(root, "del"):
            if local_name(element.getparent()) not in ("rPr", "trPr"):
                replace(element, [])
        for control in named(root, "sdt"):
            if named(control, "showingPlcHdr"):  # "Click here to enter text"
                replace(control, [])
        for field in named(root, "ffData"):
            _show_choice(field)
        for element in named(root, *_DROPPED):
            replace(element, [])
        for element in named(root, *_RENAMED):
            element.tag = f"{{{_W}}}{_RENAMED[local_name(element)]}"
        for element in named(root, "oMath"):
            text = "".join(run.text or "" for run in named(element, "t"))
            replace(element, [_run(root, text)])
        for element in named(root, "r"):
            if _is_hidden(element):
                replace(element, [])
        self._number_references(root)
        self._hoist_graphics(root)
        for element in named(root, *_UNWRAPPED):
            replace(element, list(element))
        for table in reversed(named(root, "tbl")):
            rows = named_children(table, "tr")
            cells = [cell for row in rows for cell in named_children(row, "tc")]
            if len(cells) == len(rows) == 1:
                replace(table, [child for child in cells[0] if local_name(child) != "tcPr"])
        for paragraph in named(root, "p"):
            number = self._numbering.number(paragraph)
            _mark_heading(paragraph, self._levels)
            if number and any((run.text or "").strip() for run in named(paragraph, "t")):
                at = 1 if local_name(paragraph[0]) == "pPr" else 0
                paragraph.insert(at, _run(root, f"{number} "))

    def _number_references(self, root: Element) -> None:
        """Replace references to notes by numbers in order of reference."""
        for element in named(root, "footnoteReference", "endnoteReference"):
            key = local_name(element).removesuffix("Reference"), element.get(f"{{{_W}}}id", "")
            if key not in self._notes:
                replace(element, [])
                continue
            if key not in self._numbers:
                self._note_order.append(key)
                self._numbers[key] = len(self._note_order)
            replace(element, [_text(root, f"[{self._numbers[key]}]")])

    def _hoist_graphics(self, root: Element) -> None:
        """Move the text of boxes, charts and diagrams after the paragraph of their anchor."""
        for element in reversed(named(root, "relIds", "chart", "txbxContent")):
            anchor = next(element.iterancestors(f"{{{_W}}}p"), None)
            if anchor is None:
                continue
            if local_name(element) == "txbxContent":
                blocks = list(element)
            else:
                name = "dm" if local_name(element) == "relIds" else "id"
                lines = self._read_graphic(element.get(f"{{{_R}}}{name}", ""))
                blocks = [_paragraph(root, line) for line in lines]
            for block in reversed(blocks):
                anchor.addnext(block)
        for element in named(root, "drawing", "pict", "object"):
            replace(element, [])


def _show_choice(field: Element) -> None:
    """Replace a check box or a list of an old form by its state; its field has no text."""
    text = ""
    for box in named_children(field, "checkBox"):
        states = [*named_children(box, "checked"), *named_children(box, "default")]
        text = "☒" if states and _value(states[0]) not in _OFF else "☐"
    for choice in named_children(field, "ddList"):
        entries = [_value(entry) for entry in named_children(choice, "listEntry")]
        at = next(map(_value, named_children(choice, "result")), "0")
        text = "".join(entries[int(at[:4]) :][:1]) if at.isdecimal() else ""
    if text:
        replace(field.getparent(), [_text(field, text)])


def _is_hidden(run: Element) -> bool:
    for settings in named_children(run, "rPr"):
        for hidden in named_children(settings, "vanish"):
            return _value(hidden) not in _OFF
    return False


def _outline_levels(styles: Element | None) -> dict[str, int]:
    """Return the heading levels, from 1, of paragraph styles by id, with inherited ones."""
    own: dict[str, int | None] = {}
    parents: dict[str, str] = {}
    for style in [] if styles is None else named(styles, "style"):
        name = style.get(f"{{{_W}}}styleId", "")
        if style.get(f"{{{_W}}}type") != "paragraph" or name in own:
            continue
        own[name] = _own_level(style)
        for child in named_children(style, "name"):
            if _value(child).casefold() in _TITLES:
                own[name] = 1
        parents[name] = next(map(_value, named_children(style, "basedOn")), "")
    levels = {}
    for name in own:
        at = name
        for _ in range(_MAX_ANCESTORS):
            if own.get(at) is None:
                at = parents.get(at, "")
        level = own.get(at)
        if level:
            levels[name] = level
    return levels


def _own_level(holder: Element) -> int | None:
    """Return the level of a style or paragraph itself; 0 is body text, ``None`` if not given."""
    for settings in named_children(holder, "pPr"):
        for outline in named_children(settings, "outlineLvl"):
            value = _value(outline)
            if value.isdecimal():
                level = int(value[:2]) + 1
                return 0 if level > 9 else min(level, _DEEPEST_HEADING)
    return None


def _mark_heading(paragraph: Element, levels: Mapping[str, int]) -> None:
    settings = next(iter(named_children(paragraph, "pPr")), None)
    if settings is None:
        return
    style = next(iter(named_children(settings, "pStyle")), None)
    level = _own_level(paragraph)
    if level is None and style is not None:
        level = levels.get(_value(style))
    if not level:
        return
    length = sum(len(run.text or "") for run in named(paragraph, "t"))
    if length > MAX_TITLE:  # a paragraph that only looks like a heading
        if style is not None:
            replace(style, [])
        return
    if style is None:
        style = settings.makeelement(f"{{{_W}}}pStyle")
        settings.insert(0, style)
    style.set(f"{{{_W}}}val", f"Heading{level}")


def _value(element: Element) -> str:
    return str(element.get(f"{{{_W}}}val", ""))


def _text(root: Element, text: str) -> Element:
    element = root.makeelement(f"{{{_W}}}t")
    element.text = text
    return element


def _run(root: Element, text: str) -> Element:
    run = root.makeelement(f"{{{_W}}}r")
    run.append(_text(root, text))
    return run


def _paragraph(root: Element, text: str) -> Element:
    paragraph = root.makeelement(f"{{{_W}}}p")
    paragraph.append(_run(root, text))
    return paragraph
