"""Shared by Word and PowerPoint files: parts, relationships, properties, alternate content."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from catalog.ingest.readers.containers.archive import (
    Archive,
    Element,
    inside,
    local_name,
    named,
    parse_xml,
    text_of,
)
from catalog.ingest.readers.metadata import is_level_name

_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_PROPERTIES = {
    "title": "title",
    "creator": "author",
    "keywords": "keywords",
    "subject": "subject",
    "description": "description",
    "category": "category",
    "language": "language",
    "created": "created",
    "modified": "modified",
}
_MADE_BY_THE_PROGRAM = re.compile(r"presentation|(\S+\s)?powerpoint([ -]\S+)?", re.IGNORECASE)
"""Titles of PowerPoint's own making: ``PowerPoint Presentation``, ``Présentation PowerPoint``."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A reference from a part: ``kind`` is the last word of its type, ``target`` a part's name."""

    kind: str
    target: str


def read_part(archive: Archive, name: str) -> Element:
    """Return the root of a part, in the namespaces of the transitional format.

    Raises ``ReadError`` if it is missing, broken, too deep, or declares entities.
    """
    return parse_xml(_STRICT.sub(_TRANSITIONAL, archive.read(name)))


def read_relations(archive: Archive, part: str) -> Mapping[str, Relation]:
    """Return the references of a part inside the file, by id; ``""`` is the file as a whole."""
    folder, base = posixpath.split(part)
    name = posixpath.join(folder, "_rels", base + ".rels")
    if name not in archive:
        return {}
    relations = {}
    for element in named(read_part(archive, name), "Relationship"):
        target = inside(part, element.get("Target", ""))
        if element.get("TargetMode") != "External" and target is not None and target in archive:
            kind = posixpath.basename(element.get("Type", ""))
            relations[element.get("Id", "")] = Relation(kind, target)
    return relations


def find_related(relations: Mapping[str, Relation], kind: str) -> str | None:
    """Return the first part that is referred to as ``kind``."""
    return next((link.target for link in relations.values() if link.kind == kind), None)


def read_properties(archive: Archive) -> dict[str, object]:
    """Return title, author, keywords and dates as ``docProps/core.xml`` has them.

    Of the custom properties (``docProps/custom.xml``) only a confidentiality is read.
    """
    relations = read_relations(archive, "")
    fields: dict[str, object] = {}
    part = find_related(relations, "custom-properties") or "docProps/custom.xml"
    for element in read_part(archive, part) if part in archive else ():
        if is_level_name(name := element.get("name", "")):
            fields[name] = text_of(element)
    part = find_related(relations, "core-properties") or "docProps/core.xml"
    for element in read_part(archive, part) if part in archive else ():
        field = _PROPERTIES.get(local_name(element))
        value = text_of(element)
        if field is not None and value:
            fields.setdefault(field, value)
    if "keywords" in fields:
        fields["keywords"] = str(fields["keywords"]).replace(";", ",")
    if _MADE_BY_THE_PROGRAM.fullmatch(str(fields.get("title", ""))):
        del fields["title"]
    return fields


def resolve_alternates(root: Element) -> None:
    """Replace alternate content by what a current program shows, or else the fallback."""
    for element in reversed(named(root, "AlternateContent")):
        chosen = next(iter(named_children(element, "Choice")), None)
        fallback = next(iter(named_children(element, "Fallback")), None)
        if chosen is None or (fallback is not None and _is_blank(chosen)):
            chosen = fallback
        replace(element, [] if chosen is None else list(chosen))


def named_children(element: Element, *names: str) -> list[Element]:
    """Return the children of those local names."""
    return [child for child in element if local_name(child) in names]


def replace(element: Element, others: list[Element]) -> None:
    """Replace ``element`` by ``others``, in time that does not grow with its siblings."""
    parent = element.getparent()
    if parent is None:
        return
    for other in others:
        element.addprevious(other)
    parent.remove(element)


def graphic_texts(root: Element) -> Iterator[str]:
    """Yield lines of a chart (titles, series, categories) or of a SmartArt diagram."""
    if named(root, "plotArea"):
        yield from filter(None, map(_join_runs, named(root, "title")))
        for group in ("tx", "cat"):
            values = dict.fromkeys(
                text_of(value) for holder in named(root, group) for value in named(holder, "v")
            )
            if line := ", ".join(filter(None, values)):
                yield line
    else:
        for paragraph in named(root, "p"):
            if line := _join_runs(paragraph):
                yield line


def _join_runs(element: Element) -> str:
    return " ".join("".join(run.text or "" for run in named(element, "t")).split())


def _is_blank(element: Element) -> bool:
    if any((run.text or "").strip() for run in named(element, "t")):
        return False
    return not named(element, "relIds", "chart")
