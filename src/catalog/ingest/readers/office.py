"""Shared by Word, PowerPoint and Excel files: parts, relations, properties, drawings, charts."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import BinaryIO

from catalog.core.documents import MetadataValue
from catalog.core.errors import ReadError
from catalog.ingest.readers.archive import Element, inside, named, open_archive, parse_xml, text_of
from catalog.ingest.readers.base import ReadFailure, ReadLimits
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, formula_text, write_scripts
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise

R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_PROPERTIES = "title author keywords subject description category language created modified"
_NO_TITLE = re.compile(r"presentation|(\S+\s)?powerpoint([ -]\S+)?", re.IGNORECASE)
_LONG = re.compile(r"^-?\d+\.(?:\d{12,}|0+)$")  # Excel saves 4.4 as 4.4000000000000004
_LEFT_OUT = {"image": "picture", "oleObject": "embedded object", "package": "embedded object"}
_LEFT_OUT |= {"video": "recording", "audio": "recording", "chart": "chart"}
_LEFT_OUT |= {"aFChunk": "embedded document", "vbaProject": "macro project"}


class Package:
    """The parts of an Office file, each of which is read once, however often it is referred to."""

    def __init__(self, handle: BinaryIO, limits: ReadLimits, main: str = "") -> None:
        self.archive = open_archive(handle, limits)
        self._links: dict[str, dict[str, list[str]]] = {}
        self.read, self._lost = set[str](), Counter[str]()
        self.main = next(iter(self.related("", "officeDocument")), main)

    def related(self, part: str, *keys: str) -> list[str]:
        """Return the targets of a part's references of these kinds or ids, each once."""
        if part not in self._links:
            self._links[part] = defaultdict(list)
            name = re.sub(r"[^/]*\Z", r"_rels/\g<0>.rels", part, count=1)
            for one in self.root(name) if name in self.archive else ():
                target = inside(part, one.get("Target", "")) or ""
                if target in self.archive and one.get("TargetMode") != "External":
                    for key in (one.get("Id", ""), one.get("Type", "").rpartition("/")[2]):
                        self._links[part][key].append(target)
        return list(dict.fromkeys(one for key in keys for one in self._links[part].get(key, ())))

    def root(self, name: str) -> Element:
        """Return the root of a part, with the first choice of alternate content that has text."""
        self.read.add(name)
        root = parse_xml(_STRICT.sub(_TRANSITIONAL, self.archive.read(name)))
        for element in reversed(named(root, "AlternateContent")):
            chosen = [one for one in element if named(one, "t", "relIds", "chart")][:1]
            for child in [child for one in chosen for child in one]:
                element.addprevious(child)
            element.getparent().remove(element)
        return root

    def elements(self, part: str, keys: str, *names: str) -> Iterator[Element]:
        """Yield the elements with these names in related parts that are whole and not yet read."""
        for target in (one for one in self.related(part, *keys.split()) if one not in self.read):
            try:
                yield from named(self.root(target), *names)
            except ReadError:
                self._lost["broken part"] += 1

    def metadata(self) -> dict[str, MetadataValue]:
        """Return title, author, keywords, dates, and of custom properties a confidentiality."""
        fields: dict[str, object] = {}
        linked = self.related("", "core-properties", "custom-properties")
        for part in [*linked, "docProps/core.xml", "docProps/custom.xml"]:
            for element in self.root(part) if part in self.archive else ():
                own, text = element.get("name", ""), text_of(element)
                name = element.tag.rpartition("}")[2].replace("creator", "author")
                if LEVEL in own.casefold():
                    fields[own] = text if fields.get(own, text) == text else UNREADABLE
                elif name in _PROPERTIES.split() and text and not _NO_TITLE.fullmatch(text):
                    fields.setdefault(name, text.replace(";", ",") if name == "keywords" else text)
        return normalise(fields)

    def graphic_lines(self, part: str, element: Element) -> list[str]:
        """Return the lines of a diagram, or the titles and series: ``Sales: North 12, South 9``."""
        lines: list[str] = []
        key = element.get(f"{R}id") or element.get(f"{R}dm", "")
        for root in self.elements(part, key, "chartSpace", "dataModel"):
            if not named(root, "plotArea"):
                return drawn_lines(root)
            for one in named(root, "title"):
                lines += [" ".join(drawn_lines(one) or map(text_of, named(one, "v")))]
            for series in root.iterfind(".//{*}plotArea/*/{*}ser"):
                told: dict[str, list[str]] = defaultdict(list)
                for holder in series.iterchildren("{*}cat", "{*}xVal", "{*}val", "{*}yVal"):
                    for point in named(holder, "pt"):
                        text = _LONG.sub(lambda at: f"{float(at[0]):.15g}", text_of(point))
                        told[point.get("idx", "")].append(text)
                name = " ".join(map(text_of, series.iterfind("{*}tx//{*}v")))
                lines.append(f"{name}: {', '.join(map(' '.join, told.values()))}".strip(": "))
        return list(filter(None, lines))

    def left_out(self, path: str) -> Iterator[ReadFailure]:
        """Yield one remark on broken parts, and on unread ones such as pictures and macros."""
        for kind, name in _LEFT_OUT.items():
            parts = {part for links in self._links.values() for part in links.get(kind, ())}
            self._lost[name] += len(parts - self.read)
        lost = sorted((+self._lost).items())
        if told := ", ".join(f"{count:,} {one}{'s' * (count > 1)}" for one, count in lost):
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
    """Return the lines of a shape, a diagram or a title (``a:p``) that have text."""
    lines: list[list[tuple[str, str]]] = [[]]
    for element in root.iter(f"{A}p", f"{A}br", f"{A}t", "{*}oMath"):
        lines += [[]] if element.tag in (f"{A}p", f"{A}br") else []
        shift = next(element.itersiblings(preceding=True), element).get("baseline", "")
        mark = LOWERED if shift.startswith("-") else RAISED if shift.strip("0%") else ""
        text = formula_text(element) if element.tag.endswith("oMath") else element.text or ""
        lines[-1].append((mark, text))
    return list(filter(None, map(join_runs, lines)))
