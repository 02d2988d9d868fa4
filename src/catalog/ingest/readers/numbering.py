"""Work out the numbers that Word shows before paragraphs: ``4.2``, ``(b)``, ``Article IV``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from catalog.ingest.readers.archive import Element, named, named_children

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_LEVELS = 9
_MAX_LINKS = 20
"""Styles that one may be based on by way of the others."""
_UNNUMBERED = ("bullet", "none")
_PLACE = re.compile(r"%([1-9])")
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
    (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


@dataclass(slots=True)
class _Level:
    """How a list numbers one of its levels; ``%2`` in ``text`` is the number of the second."""

    start: int = 1
    kind: str = "decimal"
    text: str = ""
    restarts: bool = True
    is_legal: bool = False
    style: str = ""


@dataclass(slots=True)
class _List:
    """The levels of a list, by way of the definition it shares its counters with."""

    shared: str
    levels: dict[int, _Level] = field(default_factory=dict)
    restarted: dict[int, int] = field(default_factory=dict)
    """Levels that begin again with the first paragraph of this list, and their first numbers."""


class Numbering:
    """Count the paragraphs of a document in order."""

    def __init__(self, numbering: Element | None, styles: Element | None) -> None:
        self._styles = {
            _attribute(style, "styleId"): style
            for style in ([] if styles is None else named(styles, "style"))
        }
        self._lists: dict[str, _List] = {}
        self._counts: dict[str, dict[int, int]] = {}
        if numbering is not None:
            definitions = {
                _attribute(each, "abstractNumId"): each for each in named(numbering, "abstractNum")
            }
            for each in named_children(numbering, "num"):
                shared = _child_value(each, "abstractNumId")
                self._lists[_attribute(each, "numId")] = _read_list(each, shared, definitions)

    def number(self, paragraph: Element) -> str:
        """Return the number shown before the next paragraph, "" for none and for a bullet."""
        place = self._place_of(paragraph)
        if place is None:
            return ""
        of_list, level = place
        counts = self._counts.setdefault(of_list.shared, {})
        for restarted, first in list(of_list.restarted.items()):
            counts[restarted] = first - 1
            del of_list.restarted[restarted]
        for above in range(level):
            counts.setdefault(above, of_list.levels.get(above, _Level()).start)
        own = of_list.levels[level]
        counts[level] = counts.get(level, own.start - 1) + 1
        for below in range(level + 1, _LEVELS):
            if of_list.levels.get(below, own).restarts:
                counts.pop(below, None)
        if own.kind in _UNNUMBERED:
            return ""

        def show(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            kind = "decimal" if own.is_legal else of_list.levels.get(at, own).kind
            return _format(counts.get(at, 1), kind)

        return _PLACE.sub(show, own.text).strip()

    def _place_of(self, paragraph: Element) -> tuple[_List, int] | None:
        """Return the list and the level of a paragraph, from its own settings or its style's."""
        identifier = level = ""
        style = ""
        for holder, name in self._settings_of(paragraph):
            for settings in named_children(holder, "numPr"):
                identifier = identifier or _child_value(settings, "numId")
                level = level or _child_value(settings, "ilvl")
                style = style or (name if _child_value(settings, "numId") else "")
            if identifier:
                break
        of_list = self._lists.get(identifier)
        if of_list is None:
            return None
        if not level:
            tied = (at for at, each in of_list.levels.items() if style and each.style == style)
            level = str(next(tied, 0))
        at = int(level) if level.isdecimal() and len(level) == 1 else _LEVELS
        return (of_list, at) if at in of_list.levels else None

    def _settings_of(self, paragraph: Element) -> Iterator[tuple[Element, str]]:
        """Yield the settings of a paragraph and of its styles, each with the style's id."""
        name = ""
        for settings in named_children(paragraph, "pPr"):
            yield settings, ""
            name = _child_value(settings, "pStyle")
        for _ in range(_MAX_LINKS):
            style = self._styles.get(name)
            if style is None:
                return
            for settings in named_children(style, "pPr"):
                yield settings, name
            name = _child_value(style, "basedOn")


def _read_list(element: Element, shared: str, definitions: dict[str, Element]) -> _List:
    of_list = _List(shared)
    if shared in definitions:
        _read_levels(definitions[shared], of_list)
    for override in named_children(element, "lvlOverride"):
        _read_levels(override, of_list)
        level, start = _attribute(override, "ilvl"), _child_value(override, "startOverride")
        if level.isdecimal() and start.isdecimal():
            of_list.restarted[int(level[:2])] = int(start[:6])
    return of_list


def _read_levels(holder: Element, of_list: _List) -> None:
    for element in named_children(holder, "lvl"):
        level, start = _attribute(element, "ilvl"), _child_value(element, "start")
        if level.isdecimal() and int(level[:2]) < _LEVELS:
            of_list.levels[int(level[:2])] = _Level(
                int(start[:6]) if start.isdecimal() else 0,
                _child_value(element, "numFmt") or "decimal",
                _child_value(element, "lvlText")[:100],
                _child_value(element, "lvlRestart") != "0",
                bool(named_children(element, "isLgl")),
                _child_value(element, "pStyle"),
            )


def _format(number: int, kind: str) -> str:
    makers: dict[str, Callable[[int], str]] = {
        "decimalZero": "{:02}".format,
        "lowerLetter": _letters,
        "upperLetter": lambda value: _letters(value).upper(),
        "lowerRoman": _roman,
        "upperRoman": lambda value: _roman(value).upper(),
    }
    return "" if kind in _UNNUMBERED else makers.get(kind, str)(number)


def _letters(number: int) -> str:
    """Return ``a`` to ``z``, then ``aa``, ``bb`` and so on, as Word counts."""
    return chr(97 + (number - 1) % 26) * min(1 + (number - 1) // 26, 30) if number > 0 else ""


def _roman(number: int) -> str:
    if number > 9_999:
        return str(number)
    text = ""
    for value, letters in _ROMAN:
        text += letters * (number // value)
        number %= value
    return text


def _attribute(element: Element, name: str) -> str:
    return str(element.get(f"{{{_W}}}{name}", ""))


def _child_value(element: Element, name: str) -> str:
    return next((_attribute(child, "val") for child in named_children(element, name)), "")
