"""Shared by Word, PowerPoint and Excel files: parts, relations, properties, drawings, charts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import BinaryIO

from catalog.core.documents import MetadataValue
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import Element, inside, named, open_archive, parse_xml, text_of
from catalog.ingest.readers.base import ReadFailure, ReadLimits
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, formula_text, write_scripts
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise

_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_WITH_TEXT = ("t", "relIds", "chart")
_PROPERTIES = "title author keywords subject description category language created modified"
_DEFAULT = re.compile(r"presentation|(\S+\s)?powerpoint([ -]\S+)?", re.IGNORECASE)
"""Titles of PowerPoint's own making: ``PowerPoint Presentation``, ``Présentation PowerPoint``."""
_LEFT_OUT = {
    "image": "picture", "oleObject": "embedded object", "package": "embedded object",
    "aFChunk": "embedded document", "video": "recording", "audio": "recording", "chart": "chart",
    "vbaProject": "macro project",
}  # fmt: skip


class Package:
    """The parts of an Office file, each of which is read once, however often it is referred to."""

    def __init__(self, handle: BinaryIO, limits: ReadLimits, main: str = "") -> None:
        self.archive = open_archive(handle, limits)
        self.read: set[str] = set()
        self._links: dict[str, dict[str, tuple[str, str]]] = {}
        self._lost = Counter[str]()
        self.main = next(iter(self.related("", "officeDocument")), main)

    def _linked_from(self, part: str) -> dict[str, tuple[str, str]]:
        """Return a part's references inside the file by id: last word of the type, and target."""
        if part not in self._links:
            links = self._links[part] = {}
            folder, slash, base = part.rpartition("/")
            name = f"{folder}{slash}_rels/{base}.rels"
            for element in self.root(name) if name in self.archive else ():
                target = inside(part, element.get("Target", "")) or ""
                if target in self.archive and element.get("TargetMode") != "External":
                    kind = element.get("Type", "").rpartition("/")[2]
                    links[element.get("Id", "")] = kind, target
        return self._links[part]

    def related(self, part: str, *kinds: str) -> list[str]:
        """Return the targets of a part's references of these kinds, each once."""
        links = self._linked_from(part).values()
        return list(dict.fromkeys(target for one in kinds for kind, target in links if kind == one))

    def linked(self, part: str, element: Element) -> str:
        """Return the part to which an element of ``part`` refers, "" for none or a read one."""
        key = element.get(f"{_R}id") or element.get(f"{_R}dm", "")
        target = self._linked_from(part).get(key, ("", ""))[1]
        return "" if target in self.read else target

    def root(self, name: str) -> Element:
        """Return the root of a part, with the first choice of alternate content that has text."""
        self.read.add(name)
        root = parse_xml(_STRICT.sub(_TRANSITIONAL, self.archive.read(name)))
        for element in reversed(named(root, "AlternateContent")):
            for child in list(next((one for one in element if named(one, *_WITH_TEXT)), ())):
                element.addprevious(child)
            element.getparent().remove(element)
        return root

    def elements(self, part: str, kinds: str, *names: str) -> Iterator[Element]:
        """Yield the elements with these names in the parts to which ``part`` refers, if whole."""
        for target in self.related(part, *kinds.split()):
            yield from (one for root in self._whole(target) for one in named(root, *names))

    def _whole(self, part: str) -> list[Element]:
        """Return the root of a part that is not read yet; none if it is broken, which is named."""
        try:
            return [self.root(part)] if part and part not in self.read else []
        except ReadError:
            self._lost["broken part"] += 1
            return []

    def metadata(self) -> dict[str, MetadataValue]:
        """Return title, author, keywords, dates, and of custom properties a confidentiality."""
        fields: dict[str, object] = {}
        for kind in ("core", "custom"):
            part = next(iter(self.related("", f"{kind}-properties")), f"docProps/{kind}.xml")
            for element in self.root(part) if part in self.archive else ():
                own, value = element.get("name", ""), text_of(element)
                name = element.tag.rpartition("}")[2].replace("creator", "author")
                if LEVEL in own.casefold():
                    fields[own] = value if fields.get(own, value) == value else UNREADABLE
                elif value and name in _PROPERTIES.split() and not _DEFAULT.fullmatch(value):
                    is_list = name == "keywords"
                    fields.setdefault(name, value.replace(";", ",") if is_list else value)
        return normalise(fields)

    def graphic_lines(self, part: str, element: Element) -> list[str]:
        """Return the lines of a diagram, or the titles and series: ``Sales: North 12, South 9``."""
        lines: list[str] = []
        for root in self._whole(self.linked(part, element)):
            if not named(root, "plotArea"):
                return drawn_lines(root)
            for one in named(root, "title"):
                lines += [" ".join(drawn_lines(one) or map(text_of, named(one, "v")))]
            for series in root.iterfind(".//{*}plotArea/*/{*}ser"):
                told: dict[str, list[str]] = {}
                for holder in series.iterchildren("{*}cat", "{*}xVal", "{*}val", "{*}yVal"):
                    for point in named(holder, "pt"):
                        text = text_of(point)
                        with suppress(ValueError):  # Excel saves 4.4 as 4.4000000000000004
                            text = f"{float(text):.15g}" if holder.tag.endswith("al") else text
                        told.setdefault(point.get("idx", ""), []).append(text)
                name = " ".join(map(text_of, series.iterfind("{*}tx//{*}v")))
                points = ", ".join(map(" ".join, told.values()))
                lines.append(": ".join(filter(None, (name, points))))
        return list(filter(None, lines))

    def left_out(self, path: str) -> Iterator[ReadFailure]:
        """Yield one remark on broken parts, and on unread ones such as pictures and macros."""
        links = {link for one in self._links.values() for link in one.values()}
        unread = (kind for kind, part in links if kind in _LEFT_OUT and part not in self.read)
        counts = sorted((self._lost + Counter(map(_LEFT_OUT.__getitem__, unread))).items())
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
        if element.tag == f"{A}p":
            paragraphs.append([])
            continue
        settings = element.getparent().find(f"{A}rPr")
        shift = "" if settings is None else settings.get("baseline", "")
        mark = LOWERED if shift.startswith("-") else RAISED if shift.strip("0%") else ""
        text = formula_text(element) if element.tag.endswith("oMath") else element.text or ""
        paragraphs[-1].append((mark, "\n" if element.tag == f"{A}br" else text))
    return list(filter(None, map(join_runs, paragraphs)))
