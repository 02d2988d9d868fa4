"""Shared by Word, PowerPoint and Excel files: parts, relations, properties, drawings, charts."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import BinaryIO

from catalog.core.documents import MetadataValue
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import (
    Element,
    inside,
    local_name,
    named,
    named_children,
    open_archive,
    parse_xml,
    text_of,
)  # fmt: skip
from catalog.ingest.readers.base import ReadFailure, ReadLimits
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, formula_text, write_scripts
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise

_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_WITH_TEXT = ("{*}t", "{*}relIds", "{*}chart")
_PROPERTIES = "title author keywords subject description category language created modified"
_MADE_BY_THE_PROGRAM = re.compile(r"presentation|(\S+\s)?powerpoint([ -]\S+)?", re.IGNORECASE)
"""Titles of PowerPoint's own making: ``PowerPoint Presentation``, ``Présentation PowerPoint``."""
_LEFT_OUT = {
    "image": "picture", "oleObject": "embedded object", "package": "embedded object",
    "aFChunk": "embedded document", "video": "recording", "audio": "recording",
    "vbaProject": "macro project",
}  # fmt: skip


class Package:
    """The parts of an Office file, each of which is read once, however often it is referred to.

    ``main`` is the name of the part with the document; ``read`` has the names of those read.
    """

    def __init__(self, handle: BinaryIO, limits: ReadLimits, main: str = "") -> None:
        self.archive = open_archive(handle, limits)
        self._links: dict[str, dict[str, tuple[str, str]]] = {}
        self.read: set[str] = set()
        self.main = next(iter(self.related("", "officeDocument")), main)

    def links(self, part: str) -> dict[str, tuple[str, str]]:
        """Return a part's references inside the file by id: last word of the type, and target."""
        folder, base = posixpath.split(part)
        name = posixpath.join(folder, "_rels", f"{base}.rels")
        if part not in self._links:
            links = self._links[part] = {}
            root = self.root(name) if name in self.archive else ()
            for element in (one for one in root if one.get("TargetMode") != "External"):
                target = inside(part, element.get("Target", ""))
                if target is not None and target in self.archive:
                    links[element.get("Id", "")] = (
                        posixpath.basename(element.get("Type", "")),
                        target,
                    )
        return self._links[part]

    def related(self, part: str, *kinds: str) -> list[str]:
        """Return the targets of a part's references of these kinds, each once."""
        links = self.links(part).values()
        return list(dict.fromkeys(target for one in kinds for kind, target in links if kind == one))

    def linked(self, part: str, element: Element, name: str = "id") -> str:
        """Return the part to which an element of ``part`` refers, "" for none or a read one."""
        target = self.links(part).get(element.get(f"{_R}{name}", ""), ("", ""))[1]
        return "" if target in self.read else target

    def root(self, name: str) -> Element:
        """Return the root of a part, in the namespaces of the transitional format.

        Alternate content is replaced by its first choice with text. Raises ``ReadError`` if the
        part is missing, broken, too deep, or declares entities.
        """
        self.read.add(name)
        root = parse_xml(_STRICT.sub(_TRANSITIONAL, self.archive.read(name)))
        for element in reversed(named(root, "AlternateContent")):
            with_text = (one for one in element if next(one.iter(*_WITH_TEXT), None) is not None)
            for child in list(next(with_text, ())):
                element.addprevious(child)
            element.getparent().remove(element)
        return root

    def elements(self, part: str, kind: str, *names: str) -> Iterator[Element]:
        """Yield the elements with these names in the parts to which ``part`` refers."""
        for target in self.related(part, kind):
            if target not in self.read:
                yield from named(self.root(target), *names)

    def graphic_lines(self, part: str, element: Element) -> list[str]:
        """Return the lines of the chart or diagram to which an element refers, if it is whole."""
        target = self.linked(part, element, "dm" if local_name(element) == "relIds" else "id")
        with suppress(ReadError):
            return graphic_lines(self.root(target)) if target else []
        return []

    def metadata(self) -> dict[str, MetadataValue]:
        """Return title, author, keywords, dates, and of custom properties a confidentiality."""
        fields: dict[str, object] = {}
        for kind in ("core", "custom"):
            part = next(iter(self.related("", f"{kind}-properties")), f"docProps/{kind}.xml")
            for element in self.root(part) if part in self.archive else ():
                own, value = element.get("name", ""), text_of(element)
                name = {"creator": "author"}.get(local_name(element), local_name(element))
                if LEVEL in own.casefold():
                    fields[own] = value if fields.get(own, value) == value else UNREADABLE
                elif value and name in _PROPERTIES.split():
                    fields.setdefault(name, value)
        if "keywords" in fields:
            fields["keywords"] = str(fields["keywords"]).replace(";", ",")
        if _MADE_BY_THE_PROGRAM.fullmatch(str(fields.get("title", ""))):
            del fields["title"]
        return normalise(fields)

    def left_out(self, path: str, *more: str) -> Iterator[ReadFailure]:
        """Yield one remark on the pictures, objects and macros to which read parts refer."""
        kinds = _LEFT_OUT | dict(zip(more, more, strict=True))
        links = {link for one in self._links.values() for link in one.values()}
        unread = (kinds[kind] for kind, part in links if kind in kinds and part not in self.read)
        counts = sorted(Counter(unread).items())
        if told := ", ".join(f"{count:,} {one}{'s' * (count > 1)}" for one, count in counts):
            yield ReadFailure(path, f"read as text only: {told} left out")


def join_runs(runs: Iterable[tuple[str, str]]) -> str:
    """Return pieces of text as one; each comes with its mark, raised, lowered or ""."""
    pieces = []
    for mark, group in groupby(runs, key=lambda run: run[0]):
        text = "".join(piece for _, piece in group)
        pieces.append(f"{mark}{text}{CLOSED}" if mark and text.strip() else text)
    lines = (" ".join(line.split()) for line in write_scripts("".join(pieces)).split("\n"))
    return "\n".join(filter(None, lines))


def drawn_lines(root: Element) -> list[str]:
    """Return the paragraphs of a shape, a diagram or a title (``a:p``) that have text."""
    paragraphs: list[list[tuple[str, str]]] = [[]]
    for element in root.iter(f"{A}p", f"{A}t", f"{A}br", "{*}oMath"):
        settings = element.getparent().find(f"{A}rPr")
        shift = "" if settings is None else settings.get("baseline", "")
        mark = LOWERED if shift.startswith("-") else RAISED if shift.strip("0%") else ""
        match local_name(element):
            case "p":
                paragraphs.append([])
            case "oMath":
                paragraphs[-1].append(("", formula_text(element)))
            case name:
                paragraphs[-1].append((mark, "\n" if name == "br" else element.text or ""))
    return list(filter(None, map(join_runs, paragraphs)))


def graphic_lines(root: Element) -> list[str]:
    """Return the lines of a diagram; of a chart its titles, and a line for each series.

    A series has its numbers beside their categories: ``Sales: North 12, South 9.5``.
    """
    plots = named(root, "plotArea")
    if not plots:
        return drawn_lines(root)
    titles = (drawn_lines(one) or map(text_of, named(one, "v")) for one in named(root, "title"))
    lines = list(map(" ".join, titles))
    for series in (one for kind in plots[0] for one in named_children(kind, "ser")):
        told: dict[str, list[str]] = {}
        name = " ".join(
            text_of(one) for tx in named_children(series, "tx") for one in named(tx, "v")
        )
        for holder in named_children(series, "cat", "xVal", "val", "yVal"):
            for point in named(holder, "pt"):
                text = text_of(point)
                with suppress(ValueError):  # Excel saves 4.4 as 4.4000000000000004
                    text = f"{float(text):.15g}" if "al" in local_name(holder) else text
                told.setdefault(point.get("idx", ""), []).append(text)
        points = ", ".join(map(" ".join, told.values()))
        lines.append(f"{name}: {points}" if name and points else name or points)
    return list(filter(None, lines))
