"""Pieces of the lines of a PDF page: words that stand close together on one baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
        """Takes the words of a piece beside it."""
        if other.letters > self.letters:
            self.base, self.size = other.base, other.size
        self.words += other.words
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.letters += other.letters

    def follow(self, word: Word) -> None:
        """Takes a word drawn after it."""
        if len(word.text) > self.letters:
            self.base, self.size = word.base, word.size
        self.words.append(word)
        self.x0 = word.x0 if word.x0 < self.x0 else self.x0
        self.x1 = word.x1 if word.x1 > self.x1 else self.x1
        self.last = word.order
        self.letters += len(word.text)

    @property
    def top(self) -> float:
        """Where its letters begin, about."""
        return self.base - 0.75 * self.size

    @property
    def bottom(self) -> float:
        """Where its letters end, about."""
        return self.base + 0.2 * self.size


def beside(one: Piece | Word, other: Piece | Word) -> bool:
    """Whether two share a line: their letters share half of the smaller ones' height, or more."""
    if one.base == other.base:
        return True
    bottom = min(one.base + 0.2 * one.size, other.base + 0.2 * other.size)
    top = max(one.base - 0.75 * one.size, other.base - 0.75 * other.size)
    return bottom - top >= 0.475 * min(one.size, other.size)


def pieces(words: Sequence[Word]) -> list[Piece]:
    """Words joined where they follow one another closely on one line, then by place alone."""
    drawn: list[Piece] = []
    for word in words:
        if drawn and beside(drawn[-1], word) and -0.3 <= _gap(drawn[-1], word) <= 1.0:
            drawn[-1].follow(word)
        else:
            drawn.append(_begun(word))
    return _joined(drawn)


def _begun(word: Word) -> Piece:
    return Piece(
        [word], word.x0, word.x1, word.base, word.size, word.order, word.order, len(word.text)
    )


def _gap(one: Piece, other: Piece | Word) -> float:
    """The white space from one to the next, in letter sizes."""
    return (other.x0 - one.x1) / max(one.size, other.size)


def _joined(drawn: list[Piece]) -> list[Piece]:
    """Pieces that touch are one, however far apart they were drawn."""
    joined: list[Piece] = []
    for row in rows(drawn):
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


def rows(region: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces that share a line, from left to right; the lines from top to bottom."""
    row: list[Piece] = []
    tallest: Piece | None = None
    for piece in sorted(region, key=lambda piece: (piece.base, piece.x0)):
        if tallest is not None and not beside(tallest, piece):
            yield sorted(row, key=lambda piece: piece.x0)
            row, tallest = [], None
        row.append(piece)
        if tallest is None or piece.size > tallest.size:
            tallest = piece
    if row:
        yield sorted(row, key=lambda piece: piece.x0)


def pieces_as_drawn(words: Sequence[Word]) -> Iterator[Piece]:
    """Lines by the order of drawing alone."""
    line: Piece | None = None
    for word in words:
        if line is not None and beside(line, word) and word.x0 >= line.x0:
            line.follow(word)
            continue
        if line is not None:
            yield line
        line = _begun(word)
    if line is not None:
        yield line
