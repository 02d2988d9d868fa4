"""Text that is put together piece by piece, with white space as a browser would show it."""

from __future__ import annotations

from dataclasses import dataclass, field

from catalog.ingest.readers.base import MAX_TITLE


@dataclass(slots=True)
class Mark:
    """An open element whose place in the text matters; its first character sets ``start``."""

    tag: str
    piece: int
    start: int = -1


@dataclass(slots=True)
class FlowingText:
    """Pieces of text with white space as a browser would show it."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0
    breaks: int = 0
    is_soft: bool = False
    """Whether the breaks requested are only those of paragraphs and line breaks."""
    has_space: bool = False
    marks: list[Mark] = field(default_factory=list)
    unplaced: int = 0
    visible_end: int = 0
    is_paragraph: bool = True
    """Whether the next text begins a paragraph."""

    def break_lines(self, count: int, *, soft: bool = False, is_paragraph: bool = True) -> None:
        """Ask for so many line breaks before the next text."""
        self.is_paragraph |= is_paragraph
        self.is_soft = soft and (self.is_soft or not self.breaks)
        self.breaks = max(self.breaks, count)

    def drop_soft_breaks(self) -> None:
        """Take back the breaks if only soft ones were asked for."""
        if self.is_soft:
            self.breaks, self.is_soft, self.is_paragraph = 0, False, not self.length

    def write(self, piece: str) -> None:
        """Add visible text, after the line breaks or the space that were requested."""
        if self.length and self.breaks:
            self._append("\n" * self.breaks)
        elif self.length and self.has_space:
            self._append(" ")
        self.breaks, self.is_soft, self.has_space = 0, False, False
        while self.unplaced:
            mark = self.marks[-self.unplaced]
            mark.start, mark.piece = self.length, len(self.pieces)
            self.unplaced -= 1
        self._append(piece)

    def open(self, tag: str) -> None:
        """Open a mark, which is placed at the next text."""
        self.marks.append(Mark(tag, len(self.pieces)))
        self.unplaced += 1

    def close(self, tag: str) -> Mark | None:
        """Close and return the innermost mark if it is of that tag and holds text."""
        if not self.marks or self.marks[-1].tag != tag:
            return None
        mark = self.marks.pop()
        if mark.start < 0:
            self.unplaced -= 1
            return None
        return mark

    def beginning(self, mark: Mark) -> str:
        """Return enough of the text since ``mark`` for a title; all of it may be a whole page."""
        text = ""
        for at in range(mark.piece, len(self.pieces)):
            if len(text) > 2 * MAX_TITLE:
                break
            text += self.pieces[at]
        return text

    def _append(self, piece: str) -> None:
        self.pieces.append(piece)
        if visible := len(piece.rstrip()):
            self.visible_end = self.length + visible
        self.length += len(piece)
