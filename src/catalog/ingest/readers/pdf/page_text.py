"""Put the lines of PDF pages in reading order and join them to one text.

Repeated headers and footers are left out. The reading order is found by a recursive cut into
columns and paragraphs.

This is an XY-cut (Nagy and Seth, 1984) that looks for columns first, and cuts only if text really
runs in columns, because a table cut into columns is worse than an uncut page. A region is cut at a
gutter: a left edge that several pieces of lines share and that nearly no other piece crosses.
Pieces that extend over the gutter (a title, a wide figure's caption) divide the region into bands;
in each band the left column is read before the right one. A band has columns if one side was drawn
after the other, or if both sides look like filled lines of running text. A region without columns
is read from top to bottom.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from catalog.ingest.readers.pdf.layout import (
    PageLine,
    Piece,
    build_line,
    build_rows,
    find_paragraphs,
    group_blocks,
    join_as_drawn,
    join_words,
    share_line,
)
from catalog.ingest.readers.pdf.words import PageWords

_DEEPEST = 8
_FEWEST_PIECES = 5
"""A region with fewer pieces than this is not looked at for columns."""
_MOST_GUTTERS = 6
"""Edges that are tried in one region."""
_EDGE = 4.0
"""Points within which left edges are the same edge."""
_REACH = 0.2
"""Of the width of a column: what reaches less into it does not belong to both columns."""
_NARROWEST = 0.6
"""Of the size of the letters: the narrowest gutter."""
_LINE_OF_TEXT = 20
"""Letters of a line that looks like running text, at least."""


def _split_columns(region: list[Piece], depth: int = 0) -> Iterator[list[Piece]]:
    """Yield the regions of a page that have no further columns, in reading order."""
    if depth < _DEEPEST and len(region) >= _FEWEST_PIECES:
        for edge in _edges(region):
            parts = _split_at(edge, region)
            if len(parts) > 1:
                for part in parts:
                    yield from _split_columns(part, depth + 1)
                return
    yield region


def _split_at(edge: float, region: Sequence[Piece]) -> list[list[Piece]]:
    """Return the columns on both sides of a gutter; bands without columns are joined."""
    parts: list[list[Piece]] = []
    is_after_columns = True
    for band in _bands(region, edge):
        if band.has_columns():
            parts += [band.left, band.right]
            is_after_columns = True
            continue
        if is_after_columns:
            parts.append([])
            is_after_columns = False
        parts[-1] += band.over + band.left + band.right
    return parts


def _edges(region: Sequence[Piece]) -> list[float]:
    """Return left edges that several pieces share, most frequent first, without the outermost."""
    outermost = min(piece.x0 for piece in region)
    counts = Counter(round(piece.x0 / _EDGE) for piece in region if piece.x0 > outermost + _EDGE)
    common = sorted(counts, key=lambda edge: (-counts[edge], edge))
    return [(edge - 0.5) * _EDGE for edge in common[:_MOST_GUTTERS] if counts[edge] > 1]


@dataclass(slots=True)
class _Band:
    """A strip of a region: pieces over the gutter, or pieces left and right of it."""

    over: list[Piece] = field(default_factory=list)
    left: list[Piece] = field(default_factory=list)
    right: list[Piece] = field(default_factory=list)

    def has_columns(self) -> bool:
        """Return whether the two sides must be read one after the other."""
        fewer, more = sorted((len(self.left), len(self.right)))
        return (
            fewer >= 2
            and more >= 3
            and self._is_side_by_side()
            and (self._is_drawn_apart(fewer) or self._looks_like_text())
        )

    def _is_side_by_side(self) -> bool:
        """Return whether at least half of the shorter side is next to the other."""
        (top, bottom), (other_top, other_bottom) = _extent(self.left), _extent(self.right)
        shared = min(bottom, other_bottom) - max(top, other_top)
        return shared >= 0.5 * min(bottom - top, other_bottom - other_top)

    def _is_drawn_apart(self, fewer: int) -> bool:
        """Return whether the drawing rarely changed sides."""
        drawn = self._in_drawing_order()
        changes = sum(before != after for (before, _), (after, _) in pairwise(drawn))
        return changes <= max(1, fewer // 5)

    def _in_drawing_order(self) -> list[tuple[bool, Piece]]:
        """Return all pieces in drawing order, each with whether it is on the right."""
        drawn = [(False, piece) for piece in self.left] + [(True, piece) for piece in self.right]
        return sorted(drawn, key=lambda entry: entry[1].first)

    def _looks_like_text(self) -> bool:
        return (
            min(len(self.left), len(self.right)) >= 4
            and _is_text(self.left)
            and _is_text(self.right)
            and not self._is_drawn_by_rows()
        )

    def _is_drawn_by_rows(self) -> bool:
        """Return whether cells of several lines, side by side, were drawn in turn: a table."""
        drawn = self._in_drawing_order()
        starts = [drawn[0]]
        starts += [after for before, after in pairwise(drawn) if before[0] != after[0]]
        if len(drawn) < 1.3 * len(starts):
            return False
        pairs = [(left, right) for (is_right, left), (_, right) in pairwise(starts) if not is_right]
        level = sum(share_line(left, right) for left, right in pairs)
        return bool(pairs) and level >= 0.8 * len(pairs)


def _extent(side: Sequence[Piece]) -> tuple[float, float]:
    return min(piece.top for piece in side), max(piece.bottom for piece in side)


def _is_text(side: Sequence[Piece]) -> bool:
    """Return whether most lines are long and fill most of the column."""
    width = max(piece.x1 for piece in side) - min(piece.x0 for piece in side)
    filled = sum(piece.x1 - piece.x0 >= 0.3 * width for piece in side)
    return median(piece.letters for piece in side) >= _LINE_OF_TEXT and filled >= 0.6 * len(side)


def _bands(region: Sequence[Piece], edge: float) -> Iterator[_Band]:
    """Yield the region from top to bottom, divided by the pieces that extend over ``edge``."""
    leftmost = min(piece.x0 for piece in region)
    rightmost = max(piece.x1 for piece in region)
    gutter = _NARROWEST * median(piece.size for piece in region)
    into_left, into_right = edge - _REACH * (edge - leftmost), edge + _REACH * (rightmost - edge)
    band = _Band()
    for piece in sorted(region, key=lambda piece: (piece.base, piece.x0)):
        is_right = piece.x0 >= edge or (piece.x0 > into_left and piece.x1 > into_right)
        is_left = piece.x1 <= edge - gutter or piece.x1 <= into_right
        if is_right or is_left:
            if band.over:
                yield band
                band = _Band()
            (band.right if is_right else band.left).append(piece)
        else:
            if band.left or band.right:
                yield band
                band = _Band()
            band.over.append(piece)
    yield band


_MOST_PIECES = 10_000
"""Pieces of lines that are put in order; a page with more keeps the order it was drawn in."""
_MARGIN = 0.1
"""The part of a page's height at its top and bottom in which running titles stand."""
_NOTE_MARK = re.compile(r"[\d*∗†‡§¶a-z]{1,3}[\s)]|[*∗†‡§¶]|\d{1,2}(?=[A-Z])")
_NOTE_SIZE = 0.93
"""Of the commonest size of the page: letters of a footnote are no larger."""


def order_lines(page: PageWords) -> list[PageLine]:
    """Return the lines of a page in reading order: column after column, footnotes last."""
    pieces = [piece for piece in join_words(page.words) if piece.letters]
    if len(pieces) > _MOST_PIECES:
        drawn = [piece for piece in join_as_drawn(page.words) if piece.letters]
        regions = [[build_line(piece.words) for piece in drawn]]
    else:
        regions = _regions(pieces)
    lines: list[PageLine] = []
    for region in regions:
        for line, starts in find_paragraphs(region):
            margin = _margin(line, page.height)
            line = replace(line, size=round(line.size, 1), starts=starts, margin=margin)
            if lines and starts and _goes_on(lines[-1], line):
                line = replace(line, starts=False)
            lines.append(line)
    return lines + [PageLine(text, starts=True, margin="aside") for text in page.aside]


def _regions(pieces: list[Piece]) -> list[list[PageLine]]:
    """Return the blocks of a page in reading order; the footnotes of a column come last."""
    blocks = [
        block for region in _split_columns(pieces) for block in group_blocks(build_rows(region))
    ]
    sizes = Counter[float]()
    for block in blocks:
        for line in block:
            sizes[round(line.size, 1)] += len(line.text)
    commonest = max(sorted(sizes), key=lambda size: sizes[size], default=0.0)
    body: list[list[PageLine]] = []
    notes: list[list[PageLine]] = []
    for block in blocks[:-1]:
        at = _find_notes(block, commonest)
        body.append(block[:at])
        notes.append(block[at:])
    return [region for region in [*body, *blocks[-1:], *notes] if region]


def _goes_on(above: PageLine, line: PageLine) -> bool:
    """Return whether a sentence continues at the top of the next column."""
    is_higher = line.base < above.base and abs(line.size - above.size) < 0.05 * line.size
    ends_inside = above.text[-1].islower() or above.text[-1] in ",;-‐\u00ad"
    return is_higher and ends_inside and line.text[0].islower()


def _find_notes(block: Sequence[PageLine], commonest: float) -> int:
    """Return where the footnotes at the end of a column begin; its length if there are none."""
    at = len(block)
    while at > 0 and block[at - 1].size <= _NOTE_SIZE * commonest:
        at -= 1
    for start in range(max(at, 1), len(block)):
        if _NOTE_MARK.match(block[start].text):
            return start
    return len(block)


def _margin(line: PageLine, height: float) -> str:
    if line.base <= _MARGIN * height:
        return "top"
    return "bottom" if line.base >= (1 - _MARGIN) * height else ""


_FEWEST_PAGES = 4
_SAME_HEIGHT = 4.0
"""Points by which the height of a running title may differ from page to page."""
_LARGER = 1.15
"""Times the body's size from which on a line with a number is a heading."""
_LONGEST = 200
"""Letters of a line in which a page number is looked for."""
_PAGE = r"(?:(?:page|p[áa]gina|seite|p\.)\s*)?"
_OF = r"(?:\s*(?:/|of|de|von)\s*\d{1,5})?"
_PAGE_NUMBER = re.compile(
    rf"[-–—•|\s]*{_PAGE}(?:\d{{1,5}}|[ivxlc]{{1,7}}){_OF}[-–—•|\s.]*", re.IGNORECASE
)
_FIRST_NUMBER = re.compile(rf"[-–—•|\s]*{_PAGE}(\d{{1,5}}){_OF}(?![^\s|])", re.IGNORECASE)
_LAST_NUMBER = re.compile(rf"(?<![^\s|]){_PAGE}(\d{{1,5}}){_OF}[-–—•|\s.]*$", re.IGNORECASE)


def body_size(pages: Sequence[Sequence[PageLine]]) -> float:
    """Return the most frequent size of letters, in points; 0 without letters."""
    sizes = Counter[float]()
    for lines in pages:
        for line in lines:
            if line.margin != "aside":
                sizes[line.size] += len(line.text)
    return max(sorted(sizes), key=lambda size: sizes[size], default=0.0)


_Key = tuple[str, str, int | None]
"""Margin and text of a line; with a page number, the text around it and the number's lead."""


def drop_running_lines(pages: Sequence[list[PageLine]]) -> list[list[PageLine]]:
    """Return the pages without page numbers, and with one copy of each running title.

    A line in the top or bottom tenth of its page repeats if the same line is at the same height on
    at least four pages, and on at least half of the pages from the first to the last one with it.
    A number in it may differ only if it counts the pages, like one that stands alone. Text at an
    angle is compared wherever it is. A page with nothing else keeps its lines.
    """
    body = body_size(pages)
    seen: dict[_Key, list[tuple[int, float]]] = defaultdict(list)
    for number, lines in enumerate(pages):
        for line in lines:
            for key in _keys(line, number, body):
                seen[key].append((number, line.base))
    running = {
        key: heights for key, places in seen.items() if (heights := _running_heights(places))
    }
    kept: set[tuple[str, str]] = set()
    return [
        _drop_from_page(lines, [_keys(line, number, body) for line in lines], running, seen, kept)
        for number, lines in enumerate(pages)
    ]


def _keys(line: PageLine, page: int, body: float) -> list[_Key]:
    """Return the keys by which repeated lines are found: the text, and the text without a number.

    A line outside the margins has none; a number counts only if it may be a page number.
    """
    if not line.margin:
        return []
    keys: list[_Key] = [(line.margin, " ".join(line.text.casefold().split()), None)]
    if len(line.text) > _LONGEST or line.size > _LARGER * body:
        return keys
    for match in (_FIRST_NUMBER.match(line.text), _LAST_NUMBER.search(line.text)):
        if match is not None:
            rest = line.text[: match.start()] + "#" + line.text[match.end() :]
            label = _LETTERS.findall(rest)
            # "Week 3" is a heading; a title and a page number are at two ends of a line.
            is_apart = line.x1 - line.x0 > line.size * len(line.text)
            if len(label) != 1 or is_apart:
                rest = " ".join(rest.casefold().split()) if label else "#"
                keys.append((line.margin, rest, int(match[1]) - page))
    return list(dict.fromkeys(keys))


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
    lines: list[PageLine],
    keys: Sequence[list[_Key]],
    running: Mapping[_Key, list[float]],
    seen: Mapping[_Key, list[tuple[int, float]]],
    kept: set[tuple[str, str]],
) -> list[PageLine]:
    repeated: dict[int, _Key] = {}
    for index, line in enumerate(lines):
        for key in keys[index]:
            if any(0 <= line.base - height <= _SAME_HEIGHT for height in running.get(key, ())):
                repeated[index] = key
    if len(repeated) == len(lines):
        return lines
    dropped = {
        index
        for index, key in repeated.items()
        if key[:2] in kept or _PAGE_NUMBER.fullmatch(lines[index].text)
    }
    kept.update(key[:2] for key in repeated.values())
    for margin, outermost in (("top", min), ("bottom", max)):
        bases = [
            line.base
            for index, line in enumerate(lines)
            if line.margin in ("top", "bottom") and index not in repeated
        ]
        edge = outermost(bases, default=None)
        for index, line in enumerate(lines):
            is_outermost = line.margin == margin and line.base == edge
            if is_outermost and _PAGE_NUMBER.fullmatch(line.text):
                leads = [key for key in keys[index] if key[2] is not None]
                is_roman = not any(letter.isdigit() for letter in line.text)
                if is_roman or any(key[2] == 1 or len(seen[key]) > 1 for key in leads):
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
    """Return the text of all pages, the start of each page, and start and end of each line.

    Line ``i`` of page ``n`` (both from 0) is ``text[starts[n][i]:ends[n][i]]``; the third and
    fourth value are ``starts`` and ``ends``. Lines end with a line feed, paragraphs and pages with
    a blank line. A word broken at the end of a line is joined there, and the line ends after it.
    Its hyphen stays if the word has more hyphens, if it is written with one elsewhere in the
    document, or if only its halves are words there. A page without text begins where the next one
    does.
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
    """Return words and hyphenated words within lines, in lower case, without broken ones."""
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
    """Return the line with the rest of its last word, ``None`` if that word is not broken."""
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
