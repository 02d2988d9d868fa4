"""Joins the lines of PDF pages into one text, without what repeats at top and bottom."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from catalog.ingest.readers.pdf.layout import PageLine

_FEWEST_PAGES = 4
_SAME_HEIGHT = 4.0
"""Points by which the height of a running title may differ from page to page."""
_NUMBERS = re.compile(r"\d+|\b[ivxlcdm]{1,8}\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(
    r"[-–—•|\s]*(?:(?:page|seite|p\.)\s*)?(?:\d{1,5}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von)\s*\d{1,5})?[-–—•|\s.]*",
    re.IGNORECASE,
)


def drop_running_lines(pages: Sequence[list[PageLine]]) -> list[list[PageLine]]:
    """Return the pages without running titles and page numbers.

    A line in the top or bottom tenth of its page is left out if the same line, numbers ignored,
    stands at the same height on at least four pages and on at least half of the pages from the
    first to the last that has it; so is a bare page number that is outermost there. Text at an
    angle is left out by the same count, wherever it stands. A page that has nothing else keeps
    its running titles.
    """
    seen: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for number, lines in enumerate(pages):
        for line in lines:
            if line.margin:
                seen[_key(line)].append((number, line.base))
    running = {
        key: heights for key, places in seen.items() if (heights := _running_heights(places))
    }
    return [_drop_from_page(lines, running) for lines in pages]


def _key(line: PageLine) -> tuple[str, str]:
    text = _NUMBERS.sub("#", line.text.casefold())
    return line.margin, " ".join(text.split())


def _running_heights(places: list[tuple[int, float]]) -> list[float]:
    """Return the heights at which a line repeats often enough."""
    heights: list[float] = []
    rest = sorted(places, key=lambda place: (place[1], place[0]))
    while len(rest) >= _FEWEST_PAGES:
        height = rest[0][1]
        level = [place for place in rest if place[1] <= height + _SAME_HEIGHT]
        numbers = sorted({number for number, _ in level})
        span = numbers[-1] - numbers[0] + 1
        if len(numbers) >= _FEWEST_PAGES and 2 * len(numbers) >= span:
            heights.append(height)
        rest = rest[len(level) :]
    return heights


def _drop_from_page(
    lines: list[PageLine], running: dict[tuple[str, str], list[float]]
) -> list[PageLine]:
    dropped = {
        index
        for index, line in enumerate(lines)
        if line.margin
        and any(0 <= line.base - height <= _SAME_HEIGHT for height in running.get(_key(line), ()))
    }
    if len(dropped) == len(lines):
        return lines
    for margin, outermost in (("top", min), ("bottom", max)):
        bases = [
            line.base
            for index, line in enumerate(lines)
            if line.margin in ("top", "bottom") and index not in dropped
        ]
        edge = outermost(bases, default=None)
        for index, line in enumerate(lines):
            is_outermost = line.margin == margin and line.base == edge
            if is_outermost and _PAGE_NUMBER.fullmatch(line.text):
                dropped.add(index)
    rest: list[PageLine] = []
    starts = False
    for index, line in enumerate(lines):
        starts = starts or line.starts
        if index not in dropped:
            rest.append(line if line.starts == starts else replace(line, starts=starts))
            starts = False
    return rest


_HYPHENS = "-‐\u00ad"
_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?:[-‐][^\W\d_]++)++")
_BROKEN = re.compile(r"(?:^|(?<=[\s(\[\"'“‘„«/–—]))((?:[^\W\d_]+[-‐])*)([^\W\d_]{2,})([-‐\u00ad])$")
_LETTERS = re.compile(r"[^\W\d_]+")


def join_pages(
    pages: Sequence[Sequence[PageLine]],
) -> tuple[str, tuple[int, ...], list[array[int]], list[array[int]]]:
    """Return the text of all pages, where each begins, and where each of its lines does and ends.

    Line ``i`` of page ``n`` (both from 0) is ``text[starts[n][i]:ends[n][i]]``; the third and
    fourth value are ``starts`` and ``ends``. Lines end with a line feed, paragraphs and pages
    with a blank line. A word broken at the end of a line is put together there, and the line
    ends after it. Its hyphen stays if the word has others, if it is written with one elsewhere
    in the document, or if only its halves are words there. A page without text begins where the
    next one does.
    """
    words, compounds = _vocabulary(pages)
    parts: list[str] = []
    length = 0
    offsets: list[int | None] = []
    all_starts: list[array[int]] = []
    all_ends: list[array[int]] = []
    for lines in pages:
        starts, ends = array("Q"), array("Q")
        offsets.append(None)
        for line, text in zip(lines, _join_broken_words(lines, words, compounds), strict=True):
            if text and parts:
                parts.append("\n" if not line.starts and offsets[-1] is not None else "\n\n")
                length += len(parts[-1])
            if text and offsets[-1] is None:
                offsets[-1] = length
            starts.append(length)
            parts.append(text)
            length += len(text)
            ends.append(length)
        all_starts.append(starts)
        all_ends.append(ends)
    return "".join(parts), _fill_blank_pages(offsets, length), all_starts, all_ends


def _fill_blank_pages(offsets: Sequence[int | None], length: int) -> tuple[int, ...]:
    filled: list[int] = []
    following = length
    for offset in reversed(offsets):
        following = following if offset is None else offset
        filled.append(following)
    return tuple(reversed(filled))


def _vocabulary(pages: Sequence[Sequence[PageLine]]) -> tuple[set[str], set[str]]:
    """Return words and hyphenated words within lines, in lower case; no word broken at an end."""
    words: set[str] = set()
    compounds: set[str] = set()
    is_broken = False
    for lines in pages:
        for line in lines:
            inner = line.text.casefold()
            if is_broken:
                inner = inner.partition(" ")[2]
            is_broken = line.text[-1:] in _HYPHENS
            if is_broken:
                inner = inner.rpartition(" ")[0]
            words.update(_LETTERS.findall(inner))
            if "-" in inner or "‐" in inner:
                compounds.update(word.replace("‐", "-") for word in _COMPOUND.findall(inner))
    return words, compounds


def _join_broken_words(
    lines: Sequence[PageLine], words: set[str], compounds: set[str]
) -> list[str]:
    texts = [line.text for line in lines]
    for index in range(len(texts) - 1):
        if texts[index][-1:] not in _HYPHENS or lines[index + 1].starts:
            continue
        head, _, rest = texts[index + 1].partition(" ")
        whole = _join_word(texts[index], head, words, compounds)
        if whole is not None:
            texts[index], texts[index + 1] = whole, rest
    return [text.removesuffix("\u00ad") for text in texts]


def _join_word(text: str, head: str, words: set[str], compounds: set[str]) -> str | None:
    """Return the line with the rest of its last word, ``None`` if that is not broken there."""
    broken = _BROKEN.search(text)
    following = _LETTERS.match(head)
    if broken is None or following is None or not (head[0].islower() and text[-2].islower()):
        return None
    before, fragment, hyphen = broken.groups()
    first, second = fragment.casefold(), following[0].casefold()
    is_compound = hyphen != "\u00ad" and (
        bool(before)
        or f"{first}-{second}" in compounds
        or (first + second not in words and {first, second} <= words)
    )
    return (text if is_compound else text[:-1]) + head
