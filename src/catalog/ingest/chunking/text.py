"""The chunker for text: headings first, then paragraphs, sentences, words."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.core.errors import ConfigError
from catalog.core.models import ChunkSpan, ParsedDocument
from catalog.core.tokens import TokenCounter
from catalog.ingest.chunking.base import Cut
from catalog.ingest.chunking.lines import LineIndex
from catalog.ingest.chunking.measure import Measure, measure
from catalog.ingest.chunking.packing import Atoms, Limits, Packer
from catalog.ingest.chunking.sections import Section, merged, sections

SMALLEST_CHUNK_SIZE = 16

_LINE_ORIENTED_TEXT = """
    bash bat c cc cfg clj conf cpp cs css csv cxx dart env erl ex exs fish go gradle h hh hpp hs
    ini java jl js json jsx kt kts less log lua m mjs ml php pl plist proto ps1 psv py pyi r rb rs
    sass scala scss sh sql svelte swift tf toml ts tsv tsx vb vue xml yaml yml zig zsh"""
_LINE_ORIENTED = frozenset(_LINE_ORIENTED_TEXT.split())


class TextChunker:
    """Cuts documents into passages of at most ``chunk_size`` tokens.

    Sizes are the counter's tokens, or eight characters each where tokens are longer than that.
    A section that fits is one passage; one under ``min_size`` is joined with those after it
    while they fit. A larger section ends its passages at paragraphs, else sentences, else words,
    else anywhere; consecutive passages of it share up to ``chunk_overlap`` tokens.

    Raises ``ConfigError`` unless ``chunk_size >= 16`` and ``0 <= chunk_overlap < chunk_size / 2``
    and ``min_size >= 0`` (one above half the chunk size counts as half of it).
    """

    def __init__(
        self,
        counter: TokenCounter,
        *,
        chunk_size: int = 800,
        chunk_overlap: int = 120,
        min_size: int = 64,
    ) -> None:
        _check(chunk_size, chunk_overlap, min_size)
        self._counter = counter
        self._limits = Limits(chunk_size, chunk_overlap, min(min_size, chunk_size // 2))

    def chunk(self, doc: ParsedDocument) -> tuple[ChunkSpan, ...]:
        """The passages in order of their start; none for a document without text."""
        return self.cut(doc).spans

    def cut(self, doc: ParsedDocument) -> Cut:
        """The passages, and whether a substitute had to count their tokens."""
        sizes, fallback = measure(doc.text, self._counter)
        lines = LineIndex(doc.text)
        return Cut(
            tuple(
                ChunkSpan(start, end, section.path, locator=lines.locator(start, end))
                for section, start, end in self._passages(doc, sizes)
            ),
            fallback,
        )

    def _passages(self, doc: ParsedDocument, sizes: Measure) -> Iterator[tuple[Section, int, int]]:
        limits = self._limits
        packer = Packer(
            doc.text,
            sizes,
            Atoms(doc.atomic, sizes, limits.chunk_size),
            limits,
            lines_first=doc.file_type in _LINE_ORIENTED,
        )
        whole = merged(sections(doc), sizes, min_size=limits.min_size, chunk_size=limits.chunk_size)
        for section in whole:
            for start, end in packer.pieces(section.start, section.end):
                yield section, start, end


def _check(chunk_size: int, chunk_overlap: int, min_size: int) -> None:
    if chunk_size < SMALLEST_CHUNK_SIZE:
        raise ConfigError(f"chunk_size is {chunk_size}: use {SMALLEST_CHUNK_SIZE} or more")
    if not 0 <= 2 * chunk_overlap < chunk_size:
        raise ConfigError(
            f"chunk_overlap is {chunk_overlap}: use 0 or more, and less than half of "
            f"chunk_size ({chunk_size})"
        )
    if min_size < 0:
        raise ConfigError(f"min_size is {min_size}: use 0 or more")
