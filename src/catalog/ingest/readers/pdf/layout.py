"""Join the words of a PDF page to lines, blocks and paragraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from catalog.ingest.readers.pdf.right_to_left import (
    LAM,
    count_directions,
    join_marks,
    mend_brackets,
    to_logical,
)
from catalog.ingest.readers.pdf.words import Word


@dataclass(slots=True)
class Piece:
    """Words on one baseline without a wide gap; ``first`` and ``last`` in drawing order."""

    words: list[Word]
    x0: float
    x1: float
    base: float
    size: float
    first: int
    last: int
    letters: int

    def add(self, other: Piece) -> None:
        """Add the words of an adjacent piece."""
        if other.letters > self.letters:
            self.base, self.size = other.base, other.size
        self.words += other.words
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.letters += other.letters

    @property
    def top(self) -> float:
        """Estimate the upper edge of its letters."""
        return self.base - 0.75 * self.size

    @property
    def bottom(self) -> float:
        """Estimate the lower edge of its letters."""
        return self.base + 0.2 * self.size


def share_line(piece: Piece, other: Piece) -> bool:
    """Return whether two pieces overlap vertically by at least half of the smaller height."""
    if piece.base == other.base:
        return True
    # Edges as above, written out: a page asks this for each pair of neighbours.
    bottom = min(piece.base + 0.2 * piece.size, other.base + 0.2 * other.size)
    shared = bottom - max(piece.base - 0.75 * piece.size, other.base - 0.75 * other.size)
    return shared >= 0.475 * min(piece.size, other.size)


def join_words(words: Iterable[Word]) -> list[Piece]:
    """Join consecutive words that are close together on a line, then pieces by place only."""
    drawn = _join_neighbours(map(_new_piece, words), _is_next_word)
    return [piece for row in _rows(drawn) for piece in _join_neighbours(row, _touches)]


def join_as_drawn(words: Iterable[Word]) -> list[Piece]:
    """Join words to lines by drawing order only."""
    return _join_neighbours(
        map(_new_piece, words), lambda line, word: share_line(line, word) and word.x0 >= line.x0
    )


def _new_piece(word: Word) -> Piece:
    letters = len(word.text.strip())
    return Piece([word], word.x0, word.x1, word.base, word.size, word.order, word.order, letters)


def _join_neighbours(
    pieces: Iterable[Piece], belong: Callable[[Piece, Piece], bool]
) -> list[Piece]:
    """Join each piece to the previous one if the two ``belong`` together."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and belong(joined[-1], piece):
            joined[-1].add(piece)
        else:
            joined.append(piece)
    return joined


def _is_next_word(piece: Piece, word: Piece) -> bool:
    return share_line(piece, word) and -0.3 <= _gap(piece, word) <= 1.0


def _touches(piece: Piece, other: Piece) -> bool:
    return -0.3 <= _gap(piece, other) <= (1.0 if other.first == piece.last + 1 else 0.5)


def _gap(piece: Piece, other: Piece) -> float:
    """Return the white space between two pieces, in letter sizes."""
    return (other.x0 - piece.x1) / max(piece.size, other.size)


def _rows(region: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield the lines from top to bottom, each as its pieces from left to right."""
    row: list[Piece] = []
    tallest: Piece | None = None
    for piece in sorted(region, key=lambda piece: (piece.base, piece.x0)):
        if tallest is not None and not share_line(tallest, piece):
            yield sorted(row, key=lambda piece: piece.x0)
            row, tallest = [], None
        row.append(piece)
        if tallest is None or piece.size > tallest.size:
            tallest = piece
    if row:
        yield sorted(row, key=lambda piece: piece.x0)


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of a page, or the part of it that belongs to a block.

    ``base`` is its baseline, in points from the top; ``x0`` and ``x1`` are its edges, ``size`` the
    size of most of its letters, ``first`` the number of its first word in drawing order.
    ``starts``: a paragraph begins with it. ``margin`` is "top" or "bottom" at the place of running
    titles and page numbers, "aside" for text in another direction, else "". ``cells`` are the parts
    with wide gaps between, from left to right.
    """

    text: str
    base: float = 0.0
    size: float = 0.0
    bold: bool = False
    x0: float = 0.0
    x1: float = 0.0
    first: int = 0
    starts: bool = False
    margin: str = ""
    cells: tuple[str, ...] = ()


_MOST_BLOCKS = 50
"""Blocks side by side."""
_SOFT_HYPHEN = "\u00ad"
_GAP = 0.18
"""White space, in letter sizes, that parts words."""
_CELL_GAP = 1.0
"""White space, in letter sizes, that parts the cells of a table."""


def build_rows(region: Iterable[Piece]) -> list[list[PageLine]]:
    """Return the lines at each height; consecutively drawn pieces are joined, as in tables."""
    return [
        [build_line(piece.words) for piece in _join_neighbours(row, _is_next_cell)]
        for row in _rows(region)
    ]


def _is_next_cell(piece: Piece, other: Piece) -> bool:
    return other.first == piece.last + 1 or _gap(piece, other) <= 1.0


def build_line(words: list[Word]) -> PageLine:
    """Build the line of these words; lines with right-to-left letters get their logical order."""
    direction = -1 if words[0].is_mirrored else 1
    # One glyph of two letters has one place: PDFium gives its letters from left to right, and
    # those of the ligature of lam and alef in either order.
    words = sorted(words, key=lambda word: (direction * (word.x0 + word.x1), word.text == LAM))
    letters = Counter[float]()
    for word in words:
        letters[word.size] += len(word.text)
    size = max(sorted(letters), key=lambda size: letters[size])
    text = _join_visual(words, size) if any(word.is_visual for word in words) else _join(words)
    text = mend_brackets(text)
    return PageLine(
        text=text[:-1].replace(_SOFT_HYPHEN, "") + text[-1],
        base=median(word.base for word in words if word.size == size),
        size=size,
        bold=2 * sum(len(word.text) for word in words if word.bold) > letters.total(),
        x0=min(word.x0 for word in words),
        x1=max(word.x1 for word in words),
        first=min(word.order for word in words),
        cells=_split_cells(words, size),
    )


def _join(words: Sequence[Word]) -> str:
    text = words[0].text
    for before, word in pairwise(words):
        text += (" " if _is_space(before, word) else "") + word.text
    return " ".join(text.split())


def _join_visual(words: Sequence[Word], size: float) -> str:
    """Join letters that are sorted from left to right, and put them in logical order."""
    is_mirrored = words[0].is_mirrored
    letters = [
        (word.text, -word.x1, -word.x0) if is_mirrored else (word.text, word.x0, word.x1)
        for word in words
    ]
    text, end = "", float("inf")
    for letter, x0, x1 in join_marks(letters):
        text += (" " if x0 - end > _GAP * size else "") + letter
        end = x1
    text = " ".join(text.split())
    from_right, from_left = count_directions(text)
    return to_logical(text, is_in_latin=not is_mirrored and from_left > from_right)


def _split_cells(words: Sequence[Word], size: float) -> tuple[str, ...]:
    words = sorted(words, key=lambda word: word.x0)
    cells = [words[0].text]
    for before, word in pairwise(words):
        if word.x0 - before.x1 > _CELL_GAP * size:
            cells.append(word.text)
        else:
            cells[-1] += (" " if _is_space(before, word) else "") + word.text
    return tuple(cells) if len(cells) > 1 else ()


def _is_space(before: Word, word: Word) -> bool:
    if word.order == before.order + 1 and word.spaced:
        return True
    gap = max(word.x0 - before.x1, before.x0 - word.x1)
    return gap > _GAP * max(before.size, word.size)


def group_blocks(rows: Sequence[Sequence[PageLine]]) -> list[list[PageLine]]:
    """Group lines that are below each other; without lines side by side this is one group.

    Blocks follow drawing order, unless the drawing went back and forth. They are read by their
    first line: the cells of a table row from left to right, a note in the margin after the text
    that begins above it.
    """
    lines = [line for row in rows for line in row]
    if len(lines) == len(rows):
        return [lines]
    blocks: list[list[PageLine]] = []
    for line in sorted(lines, key=lambda line: line.first):
        if blocks and _is_under(line, blocks[-1][-1]):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    if 2 * len(blocks) > len(lines) + 2:
        blocks = _blocks_by_place(lines)
    return _order_blocks(blocks)


def _blocks_by_place(lines: Sequence[PageLine]) -> list[list[PageLine]]:
    blocks: list[list[PageLine]] = []
    current: list[list[PageLine]] = []
    for line in lines:
        current = [block for block in current if line.base - block[-1].base < 3 * line.size]
        current = current[-_MOST_BLOCKS:]
        above = next((block for block in current if _is_under(line, block[-1])), None)
        if above is None:
            above = []
            blocks.append(above)
            current.append(above)
        above.append(line)
    return blocks


def _is_under(line: PageLine, above: PageLine) -> bool:
    is_near = 0 < line.base - above.base <= 1.8 * max(above.size, line.size)
    return is_near and line.x0 < above.x1 and above.x0 < line.x1


def _order_blocks(blocks: Iterable[list[PageLine]]) -> list[list[PageLine]]:
    """Sort blocks from top to bottom; those that begin at the same height from left to right."""
    levels: list[list[list[PageLine]]] = []
    for block in sorted(blocks, key=lambda block: block[0].base):
        head = block[0]
        if not levels or head.base - levels[-1][0][0].base > 0.3 * head.size:
            levels.append([])
        levels[-1].append(block)
    return [block for level in levels for block in sorted(level, key=lambda block: block[0].x0)]


def find_paragraphs(lines: Sequence[PageLine]) -> Iterator[tuple[PageLine, bool]]:
    """Yield each line, and whether a paragraph begins with it.

    A paragraph begins after more white space than between most lines, where the size of letters
    changes, and at an indented line after a line at the edge, unless the indent continues.
    """
    steps = [
        round(line.base - above.base, 1)
        for above, line in pairwise(lines)
        if 0 < line.base - above.base <= 2.5 * line.size
    ]
    usual = median(steps) if steps else 0.0
    edge = min((line.x0 for line in lines), default=0.0)
    for index, line in enumerate(lines):
        if index == 0:
            yield line, True
            continue
        above = lines[index - 1]
        step = line.base - above.base
        usual_here = min(max(usual, line.size), 1.6 * line.size) if usual else 1.25 * line.size
        is_apart = step > 1.25 * usual_here or step < -0.5 * line.size
        is_resized = abs(line.size - above.size) > 0.12 * max(line.size, above.size)
        below = lines[index + 1] if index + 1 < len(lines) else None
        yield line, is_apart or is_resized or _is_indented(above, line, below, edge)


def _is_indented(above: PageLine, line: PageLine, below: PageLine | None, edge: float) -> bool:
    indent = (line.x0 - above.x0) / line.size
    if not 0.8 <= indent <= 4.0 or above.x0 > edge + 0.5 * line.size:
        return False
    return below is not None and below.x0 < line.x0 - 0.5 * line.size and above.text[-1] in ".!?:…"
