"""Puts the pieces of a region of a PDF page into lines, and its lines into blocks."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from catalog.ingest.readers.pdf.pieces import Piece, rows
from catalog.ingest.readers.pdf.words import Word

_MOST_BLOCKS = 50
"""Blocks side by side."""
_SOFT_HYPHEN = "\u00ad"


@dataclass(slots=True)
class Placed:
    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool
    first: int


def lines_by_height(region: Sequence[Piece]) -> Iterator[list[Placed]]:
    """The lines at each height. Pieces drawn one after the other are one line, as in tables."""
    for row in rows(region):
        lines = [row[0]]
        for piece in row[1:]:
            before = lines[-1]
            gap = (piece.x0 - before.x1) / max(before.size, piece.size)
            if piece.first == before.last + 1 or gap <= 1.0:
                before.add(piece)
            else:
                lines.append(piece)
        yield [placed(piece.words) for piece in lines]


def blocks_of(table: list[list[Placed]]) -> list[list[Placed]]:
    """Lines that stand under one another; without lines side by side that is all of them.

    Blocks are taken as they were drawn, unless that went hither and thither, and read by their
    first line: the cells of a row of a table from left to right, a note in the margin after the
    text that begins above it.
    """
    if all(len(row) == 1 for row in table):
        return [[row[0] for row in table]]
    lines = [line for row in table for line in row]
    blocks: list[list[Placed]] = []
    for line in sorted(lines, key=lambda line: line.first):
        if blocks and _is_under(line, blocks[-1][-1]):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    if 2 * len(blocks) > len(lines) + 2:
        blocks = _blocks_by_place(lines)
    return _by_first_lines(blocks)


def _blocks_by_place(lines: Sequence[Placed]) -> list[list[Placed]]:
    blocks: list[list[Placed]] = []
    current: list[list[Placed]] = []
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


def _is_under(line: Placed, above: Placed) -> bool:
    near = 0 < line.base - above.base <= 1.8 * max(above.size, line.size)
    return near and line.x0 < above.x1 and above.x0 < line.x1


def _by_first_lines(blocks: list[list[Placed]]) -> list[list[Placed]]:
    """From top to bottom; those that begin at one height from left to right."""
    blocks = sorted(blocks, key=lambda block: block[0].base)
    ordered: list[list[Placed]] = []
    level: list[list[Placed]] = []
    for block in blocks:
        if level and block[0].base - level[0][0].base > 0.3 * block[0].size:
            ordered += sorted(level, key=lambda block: block[0].x0)
            level = []
        level.append(block)
    return ordered + sorted(level, key=lambda block: block[0].x0)


def placed(words: list[Word]) -> Placed:
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
    return Placed(text, x0, x1, base, size, 2 * bold > letters.total(), first)


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
