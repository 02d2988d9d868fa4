"""A result's snippet as lines of a terminal: prose wrapped and cut at sentences.

All other text is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from catalog.core.results import SearchResult
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.interfaces.text_layout import (
    Atom,
    Block,
    cut_line,
    fill_block,
    find_blocks,
    hanging_indent,
    is_source,
    visible_text,
)

_ELLIPSIS = "…"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"
_ENDED = re.compile(r"[.!?…。！？｡:|]['\"”’»)\]」』`*_]*\s*\Z")
_PARAGRAPH_ENDS = re.compile(r"[^\S\n]*(?:\n[^\S\n]*(?:\n|[#|`~]|[-*+] |\d+[.)] )|\Z)")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)", re.MULTILINE)
_TAB = 4


def snippet_lines(result: SearchResult, *, width: int | None, bold: bool) -> list[str]:
    """Return the lines of the snippet, safe to print; matches are bold if wanted.

    A paragraph that the snippet cuts is shown in whole sentences, with an ellipsis where it
    continues. ``width`` is in columns: prose is wrapped to it, lines of code and tables are cut.
    With ``None`` every line is as in the file.
    """
    return [line.rstrip() for line in _Snippet(result, width, bold=bold).lines()]


class _Snippet:
    """Lay out one snippet; offsets are those of its text."""

    def __init__(self, result: SearchResult, width: int | None, *, bold: bool) -> None:
        self._text = visible_text(result.snippet)
        self._matches = result.matches
        self._width = width
        self._marks = (_BOLD, _PLAIN) if bold else ("", "")
        passage = visible_text(result.text)
        self._before, _, self._after = passage.partition(self._text or "\n")
        self._is_code = is_source(result.file_type)
        self._is_first = result.start_offset == 0
        *_, last = result.title, *(result.sections or result.heading_path)
        self._heading = " ".join(last.split()).casefold()

    def lines(self) -> Iterator[str]:
        blocks = self._blocks()
        for number, block in enumerate(blocks):
            if not block.is_prose:
                yield from self._verbatim(block)
                continue
            start, end = block.start, block.end
            head = tail = ""
            if number == 0 and self._begins_within():
                start, head = self._cut_head(block), f"{_ELLIPSIS} "
            if number == len(blocks) - 1 and self._ends_within():
                end, tail = self._cut_tail(block, start)
            yield from self._prose(block, start, end, head, tail)

    def _blocks(self) -> list[Block]:
        """Return the blocks to show, without blank ends and the heading printed above."""
        in_fence = len(_FENCE.findall(self._before)) % 2 == 1
        blocks = find_blocks(self._text, is_code=self._is_code, in_fence=in_fence)
        blocks = self._without_blank_ends(blocks)
        first = self._text[blocks[0].start : blocks[0].end] if blocks else ""
        is_told = first.startswith("#") and first.strip("# ").casefold() == self._heading
        if is_told and len(blocks) > 1 and not self._is_code:
            blocks = self._without_blank_ends(blocks[1:])
        return [
            block
            for at, block in enumerate(blocks)
            if not (self._is_blank(block) and self._is_blank(blocks[at - 1]))
        ]

    def _without_blank_ends(self, blocks: list[Block]) -> list[Block]:
        shown = [at for at, block in enumerate(blocks) if not self._is_blank(block)]
        return blocks[shown[0] : shown[-1] + 1] if shown else []

    def _is_blank(self, block: Block) -> bool:
        return not self._text[block.start : block.end].strip()

    def _begins_within(self) -> bool:
        """Return whether the snippet begins inside a sentence."""
        before = self._before.rstrip(" \t")
        if not before.strip():
            return not self._is_first and self._text.lstrip()[:1].islower()
        return not before.endswith("\n\n") and _ENDED.search(before) is None

    def _ends_within(self) -> bool:
        """Return whether the paragraph continues after the snippet."""
        if self._after.strip():
            return _PARAGRAPH_ENDS.match(self._after) is None
        end = len(self._text.rstrip())
        last = self._text.rfind("\n\n", 0, end) + 1
        is_text = len(list(sentence_spans(self._text, last, end))) > 1  # rather than a label
        return is_text and _ENDED.search(self._text) is None

    def _cut_head(self, block: Block) -> int:
        """Return the start of the first whole sentence, unless that would cut a match."""
        spans = list(sentence_spans(self._text, block.start, block.end))
        begins = spans[1][0] if len(spans) > 1 else block.start
        is_short = 2 * (begins - block.start) <= block.end - block.start
        return begins if is_short and not self._has_match(block.start, begins) else block.start

    def _cut_tail(self, block: Block, start: int) -> tuple[int, str]:
        """Return the end of the last whole sentence, and the mark for a text that continues."""
        if _ENDED.search(self._text[start : block.end]):
            return block.end, f" {_ELLIPSIS}"
        spans = list(sentence_spans(self._text, start, block.end))
        if len(spans) > 1 and not self._has_match(*spans[-1]):
            end = spans[-2][1]
            if 2 * (block.end - end) <= block.end - start:
                return end, f" {_ELLIPSIS}"
        return block.end, _ELLIPSIS

    def _has_match(self, start: int, end: int) -> bool:
        return any(low < end and high > start for low, high in self._matches)

    def _prose(self, block: Block, start: int, end: int, head: str, tail: str) -> Iterator[str]:
        spans = ((max(low, start), min(high, end)) for low, high in block.lines)
        block = Block(tuple((low, high) for low, high in spans if low < high), is_prose=True)
        hang = ""
        if self._width is None:
            lines = [self._marked(low, high) for low, high in block.lines]
        else:
            hang = hanging_indent(self._text, block)
            room = self._width - len(head + tail + hang)
            lines = [self._joined(atoms) for atoms in fill_block(self._text, block, room)]
        lines[0] = f"{head}{lines[0].lstrip() if head else lines[0]}"
        lines[-1] = f"{lines[-1]}{tail}"
        yield from (f"{hang if number else ''}{line}" for number, line in enumerate(lines))

    def _verbatim(self, block: Block) -> Iterator[str]:
        for start, end in block.lines:
            if self._width is None:
                yield self._marked(start, end)
                continue
            first = next((low for low, high in self._matches if start <= low < end), start)
            low, high = cut_line(self._text, start, end, first, self._width)
            line = self._marked(low, high).expandtabs(_TAB)
            tail = _ELLIPSIS if self._text[high:end].strip() else ""
            yield f"{_ELLIPSIS if low > start else ''}{line.rstrip()}{tail}"

    def _joined(self, atoms: Sequence[Atom]) -> str:
        """Return the atoms as one line; a match over several of them is bold throughout."""
        pieces = []
        for number, atom in enumerate(atoms):
            if number and atom.is_apart:
                pieces.append(" ")
            pieces.append(self._marked(atom.start, atom.end))
        return "".join(pieces)

    def _marked(self, start: int, end: int) -> str:
        """Return a part of the text, with marks around the matches."""
        before, after = self._marks
        if not before:
            return self._text[start:end]
        pieces, at = [], start
        for low, high in self._matches:
            low, high = max(low, at), min(high, end)
            if low < high:
                pieces += [self._text[at:low], before, self._text[low:high], after]
                at = high
        return "".join([*pieces, self._text[at:end]])
