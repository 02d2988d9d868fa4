"""Puts the words of a PDF page into pieces, lines, blocks and paragraphs."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from catalog.ingest.readers.pdf.words import Word


@dataclass(slots=True)
class Piece:
    """Words on one baseline without a wide gap; ``first`` and ``last`` as they were drawn."""

    words: list[Word]
    x0: float
    x1: float
    base: float
    size: float
    first: int
    last: int
    letters: int

    def add(self, other: Piece) -> None:
        """Add the words of a piece beside it."""
        if other.letters > self.letters:
            self.base, self.size = other.base, other.size
        self.words += other.words
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.letters += other.letters

    def append(self, word: Word) -> None:
        """Add a word drawn after it."""
        if len(word.text) > self.letters:
            self.base, self.size = word.base, word.size
        self.words.append(word)
        self.x0 = word.x0 if word.x0 < self.x0 else self.x0
        self.x1 = word.x1 if word.x1 > self.x1 else self.x1
        self.last = word.order
        self.letters += len(word.text)

    @property
    def top(self) -> float:
        """Estimate the upper edge of its letters."""
        return self.base - 0.75 * self.size

    @property
    def bottom(self) -> float:
        """Estimate the lower edge of its letters."""
        return self.base + 0.2 * self.size


def share_line(one: Piece | Word, other: Piece | Word) -> bool:
    """Return whether the letters of two share at least half of the smaller ones' height."""
    if one.base == other.base:
        return True
    bottom = min(one.base + 0.2 * one.size, other.base + 0.2 * other.size)
    top = max(one.base - 0.75 * one.size, other.base - 0.75 * other.size)
    return bottom - top >= 0.475 * min(one.size, other.size)


def join_words(words: Sequence[Word]) -> list[Piece]:
    """Join words that follow one another closely on one line, then pieces by place alone."""
    drawn: list[Piece] = []
    for word in words:
        if drawn and share_line(drawn[-1], word) and -0.3 <= _gap(drawn[-1], word) <= 1.0:
            drawn[-1].append(word)
        else:
            drawn.append(_new_piece(word))
    return _join_touching(drawn)


def _new_piece(word: Word) -> Piece:
    return Piece(
        [word], word.x0, word.x1, word.base, word.size, word.order, word.order, len(word.text)
    )


def _gap(one: Piece, other: Piece | Word) -> float:
    """Measure the white space from one to the next, in letter sizes."""
    return (other.x0 - one.x1) / max(one.size, other.size)


def _join_touching(drawn: list[Piece]) -> list[Piece]:
    """Join pieces that touch, however far apart they were drawn."""
    joined: list[Piece] = []
    for row in _rows(drawn):
        current = row[0]
        for piece in row[1:]:
            limit = 1.0 if piece.first == current.last + 1 else 0.5
            if -0.3 <= _gap(current, piece) <= limit:
                current.add(piece)
            else:
                joined.append(current)
                current = piece
        joined.append(current)
    return joined


def _rows(region: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield pieces that share a line, from left to right; the lines from top to bottom."""
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


def join_as_drawn(words: Sequence[Word]) -> Iterator[Piece]:
    """Yield lines by the order of drawing alone."""
    line: Piece | None = None
    for word in words:
        if line is not None and share_line(line, word) and word.x0 >= line.x0:
            line.append(word)
            continue
        if line is not None:
            yield line
        line = _new_piece(word)
    if line is not None:
        yield line


_MOST_BLOCKS = 50
"""Blocks side by side."""
_SOFT_HYPHEN = "\u00ad"


@dataclass(slots=True)
class TextLine:
    """A line, or the part of one that belongs to a block; ``first`` as it was drawn."""

    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool
    first: int


def read_rows(region: Sequence[Piece]) -> Iterator[list[TextLine]]:
    """Yield the lines at each height; pieces drawn one after the other are one, as in tables."""
    for row in _rows(region):
        lines = [row[0]]
        for piece in row[1:]:
            before = lines[-1]
            gap = (piece.x0 - before.x1) / max(before.size, piece.size)
            if piece.first == before.last + 1 or gap <= 1.0:
                before.add(piece)
            else:
                lines.append(piece)
        yield [build_line(piece.words) for piece in lines]


def group_blocks(table: list[list[TextLine]]) -> list[list[TextLine]]:
    """Group lines that stand under one another; without lines side by side that is all of them.

    Blocks are taken as they were drawn, unless that went hither and thither, and read by their
    first line: the cells of a row of a table from left to right, a note in the margin after the
    text that begins above it.
    """
    if all(len(row) == 1 for row in table):
        return [[row[0] for row in table]]
    lines = [line for row in table for line in row]
    blocks: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda line: line.first):
        if blocks and _is_under(line, blocks[-1][-1]):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    if 2 * len(blocks) > len(lines) + 2:
        blocks = _blocks_by_place(lines)
    return _order_blocks(blocks)


def _blocks_by_place(lines: Sequence[TextLine]) -> list[list[TextLine]]:
    blocks: list[list[TextLine]] = []
    current: list[list[TextLine]] = []
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


def _is_under(line: TextLine, above: TextLine) -> bool:
    near = 0 < line.base - above.base <= 1.8 * max(above.size, line.size)
    return near and line.x0 < above.x1 and above.x0 < line.x1


def _order_blocks(blocks: list[list[TextLine]]) -> list[list[TextLine]]:
    """Order blocks from top to bottom; those that begin at one height from left to right."""
    blocks = sorted(blocks, key=lambda block: block[0].base)
    ordered: list[list[TextLine]] = []
    level: list[list[TextLine]] = []
    for block in blocks:
        if level and block[0].base - level[0][0].base > 0.3 * block[0].size:
            ordered += sorted(level, key=lambda block: block[0].x0)
            level = []
        level.append(block)
    return ordered + sorted(level, key=lambda block: block[0].x0)


def build_line(words: list[Word]) -> TextLine:
    """Build the line of these words, from right to left where its script runs so."""
    words = sorted(words, key=lambda word: word.x0)
    if _is_right_to_left(words):
        words.reverse()
    letters = Counter[float]()
    bold = 0
    text = words[0].text
    for word in words:
        letters[word.size] += len(word.text)
        bold += len(word.text) * word.bold
    for before, word in pairwise(words):
        text += (" " if _is_space(before, word) else "") + word.text
    text = text[:-1].replace(_SOFT_HYPHEN, "") + text[-1]
    size = max(sorted(letters), key=lambda size: letters[size])
    base = median(word.base for word in words if word.size == size)
    x0, x1 = min(word.x0 for word in words), max(word.x1 for word in words)
    first = min(word.order for word in words)
    return TextLine(text, x0, x1, base, size, 2 * bold > letters.total(), first)


def _is_space(before: Word, word: Word) -> bool:
    if word.order == before.order + 1 and word.spaced:
        return True
    gap = max(word.x0 - before.x1, before.x0 - word.x1)
    return gap > 0.18 * max(before.size, word.size)


def _is_right_to_left(words: Sequence[Word]) -> bool:
    if all(word.text.isascii() for word in words):
        return False
    text = "".join(word.text for word in words)
    kinds = Counter(unicodedata.bidirectional(letter) for letter in text)
    return kinds["R"] + kinds["AL"] > kinds["L"]


def find_paragraphs(lines: Sequence[TextLine]) -> Iterator[tuple[TextLine, bool]]:
    """Yield each line, and whether a paragraph begins with it.

    One does after more white space than lies between most lines, where the size of the letters
    changes, and at an indented line after a line at the edge, unless it stays indented.
    """
    steps = [
        round(two.base - one.base, 1)
        for one, two in pairwise(lines)
        if 0 < two.base - one.base <= 2.5 * two.size
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
        apart = step > 1.25 * usual_here or step < -0.5 * line.size
        resized = abs(line.size - above.size) > 0.12 * max(line.size, above.size)
        below = lines[index + 1] if index + 1 < len(lines) else None
        yield line, apart or resized or _is_indented(above, line, below, edge)


def _is_indented(above: TextLine, line: TextLine, below: TextLine | None, edge: float) -> bool:
    indent = (line.x0 - above.x0) / line.size
    if not 0.8 <= indent <= 4.0 or above.x0 > edge + 0.5 * line.size:
        return False
    return below is not None and below.x0 < line.x0 - 0.5 * line.size and above.text[-1] in ".!?:…"
