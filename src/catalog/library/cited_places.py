"""The places that references, citations, links and the headers of passages tell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import cast
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

from catalog.core.errors import InputError
from catalog.core.places import Unit
from catalog.core.text import storable
from catalog.library.document_parts import Part

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of the start and of the end, as a reference has them."""
CITATION = "[source: "
URI_SCHEME = "catalog://"  # of the resources that the MCP server lists
_MAX_DIGITS = 18  # of a line's number
_MAX_ADDRESS = 8000  # characters, the least that is to be expected: RFC 9110, 4.1
_MAX_PLACE = 2000  # characters of the place at the end of a name
_SECONDS = ("t", "start")  # parameters of an address that say when to begin
_COLONS = re.compile(r":(?:t=)?(\d+(?::\d+){0,2})(?:-(\d+(?::\d+){0,2}))?$")
_DIGITS = re.compile(r"\d+")
_LINKED = re.compile(r"[#?&](page|t|start)=(\d{1,9})s?(?=[&#]|$)")
_CLOCK = r"\d{1,9}(?::\d\d){1,2}"
_SHOWN = (
    rf"(?:t=(?P<clock>{_CLOCK})|(?P<from>{_CLOCK})(?:-(?P<to>{_CLOCK}))?"
    r"|(?P<unit>page|slide|line|cell|paragraph|record)s? "
    r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?"
    r"(?: \((?:page|slide)s (?P<pages>\d{1,9}-\d{1,9})\))?"
    r"(?:, lines? (?P<line>\d{1,9})(?:-(?P<line_end>\d{1,9}))?)?"
    r"(?: of (?P<file>[^\[\]]{1,1000}))?)"
)
_CITED = re.compile(rf", {_SHOWN}\]$")
_HEADED = re.compile(rf" {_SHOWN}$")
_HEADER = re.compile(r"@@ (.*) @@", re.DOTALL)
_RANK = re.compile(r"^\[\d{1,4}\] ")
_AFTER_TITLE, _MAX_TITLES = " — ", 5
_SUFFIX = re.compile(r"\.\w{1,8}$")


@dataclass(frozen=True, slots=True)
class CitedPlace:
    """A place as outputs show it: the unit, which part of it, and what it is a place of.

    ``name`` is a link or a citation itself, of a header what stands before the place. ``file`` is
    that of a record.
    """

    name: str
    unit: Unit
    part: Part
    file: str | None = None


def split_reference(reference: str) -> list[tuple[str, Place]]:
    """Return what may be named before the place at the end, with the place; the longest first.

    A place is ``:12``, ``:12-20``, of a cell's lines ``:3:2-8``, of times ``:1:05-1:18``. Its parts
    are the numbers of its start and its end. Raises :class:`InputError` for a number that no line
    has.
    """
    ranged = _COLONS.search(reference)
    if ranged is None:
        return []
    if any(len(digits) > _MAX_DIGITS for digits in _DIGITS.findall(ranged[0])):
        raise InputError(f"{ranged[0][:_MAX_DIGITS]}… names lines by numbers no document has")
    start, end = (tuple((group or "").split(":")) for group in ranged.groups())
    last = tuple(map(int, filter(None, end)))
    return [
        (":".join((reference[: ranged.start()], *start[:at])), (tuple(map(int, start[at:])), last))
        for at in range(len(start))
    ]


def read_cited_place(name: str) -> CitedPlace | None:
    """Return the place that a link, a citation or the header of a passage tells, if any."""
    linked = _LINKED.search(name)
    if linked is not None and (linked[0].startswith("#") or "://" in name):
        number = int(linked[2])
        at = number, number
        if linked[1] == "page":
            return CitedPlace(name, "page", Part(*at))
        return CitedPlace(name, "time", Part(seconds=at))
    is_citation, end = name.startswith(CITATION), name[-_MAX_PLACE:]
    shown = (_CITED if is_citation else _HEADED).search(end)
    if shown is None:
        return None
    if not is_citation:
        name = name[: shown.start() - len(end)]
    if shown["unit"] is None:
        first, last = shown["clock"] or shown["from"], shown["to"]
        begin = read_clock(map(int, first.split(":")))
        end_second = read_clock(map(int, last.split(":"))) if last else begin
        return CitedPlace(name, "time", Part(seconds=(begin, end_second)))
    numbers = shown["pages"] or f"{shown['first']}-{shown['last'] or shown['first']}"
    line, line_end = shown["line"], shown["line_end"]
    lines = (int(line), int(line_end or line)) if line else None
    begin, end_number = map(int, numbers.split("-"))
    part = Part(begin, end_number, lines=lines)
    return CitedPlace(name, cast(Unit, shown["unit"]), part, shown["file"])


def without_marks(reference: str) -> str:
    """Return the name in a passage's header or in a resource's URI; any other text as it is.

    >>> without_marks("catalog://notes/a%20b.md")
    'notes:a b.md'
    """
    header = _HEADER.fullmatch(reference)
    name = reference if header is None else header[1]
    if not name.startswith(URI_SCHEME):
        return name
    dataset, _, path = name.removeprefix(URI_SCHEME).partition("/")
    try:
        return storable(f"{unquote_uri(dataset)}:{unquote_uri(path)}")
    except UnicodeError:
        return name


def unquote_uri(text: str) -> str:
    """Return a part of a resource's URI as it was; raise ``UnicodeError`` for bytes of no text."""
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass")


def shown_forms(reference: str) -> list[str]:
    """Return what a reference may be, the likeliest first: it, or what ends a passage's first line.

    That is ``[1] Title — scan.pdf — .converted/scan.md:23``, or a part of it.
    """
    bare = without_marks(reference)
    line = _RANK.sub("", bare)
    parts = line.split(_AFTER_TITLE)[:_MAX_TITLES]
    ends = (line.split(_AFTER_TITLE, at)[at] for at in range(len(parts)))
    return list(dict.fromkeys((bare, *ends)))


def shows_place(name: str, title: str, path: str) -> bool:
    """Tell whether a name of the document has more in it than the name."""
    if name.startswith(CITATION):
        return name not in (f"{CITATION}{title}]", f"{CITATION}{path}]")
    bare, _, fragment = name.partition("#")
    return bool(fragment) and ("://" in bare or _SUFFIX.search(bare) is not None)


def without_seconds(address: str) -> str:
    """Return the address without the second it opens at; itself if it is broken or too long."""
    if len(address) > _MAX_ADDRESS:
        return address
    try:
        url = urlsplit(address)
    except ValueError:
        return address
    query = [(name, value) for name, value in parse_qsl(url.query) if name not in _SECONDS]
    return url._replace(query=urlencode(query), fragment="").geturl()


def read_clock(clock: Iterable[int]) -> int:
    """Return the seconds of minutes and seconds, or of hours, minutes and seconds."""
    return reduce(lambda seconds, number: 60 * seconds + number, clock)
