"""Cutting text: at headings first, then paragraphs, sentences, words."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.core.errors import ConfigError
from catalog.core.models import ParsedDocument
from catalog.ingest.chunking.atoms import Atoms
from catalog.ingest.chunking.band import Band
from catalog.ingest.chunking.grouping import grouped
from catalog.ingest.chunking.measure import Measure
from catalog.ingest.chunking.packing import Packer
from catalog.ingest.chunking.sections import Outline

SMALLEST_CHUNK_SIZE = 16

_LINE_ORIENTED_TEXT = """
    bash bat c cc cfg clj conf cpp cs css csv cxx dart env erl ex exs fish go gradle h hh hpp hs
    ini java jl js json jsx kt kts less log lua m mjs ml php pl plist proto ps1 psv py pyi r rb rs
    sass scala scss sh sql svelte swift tf toml ts tsv tsx vb vue xml yaml yml zig zsh"""
_LINE_ORIENTED = frozenset(_LINE_ORIENTED_TEXT.split())


class TextCutter:
    """Cuts any stretch of one document as text.

    A section within the band is one passage; one under it is joined with its neighbours. A
    larger section ends its passages at paragraphs, else sentences, else words, else anywhere;
    consecutive passages of it share up to ``band.overlap`` tokens. ``band.chunk_size`` is never
    exceeded; ``band.min_size`` is kept wherever the document and its tables allow it.
    """

    def __init__(self, doc: ParsedDocument, outline: Outline, sizes: Measure, band: Band) -> None:
        self._outline = outline
        self._sizes = sizes
        self._band = band
        self._packer = Packer(
            doc.text,
            sizes,
            Atoms(doc.atomic, sizes, band.chunk_size),
            band,
            lines_first=doc.file_type in _LINE_ORIENTED,
        )

    def cut(self, start: int, end: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Start, end and heading path of every passage of ``text[start:end]``."""
        for group in grouped(self._outline.sections(start, end), self._sizes, self._band):
            for begin, stop in self._packer.pieces(group):
                yield begin, stop, group.path(begin, stop)


def checked(chunk_size: int, chunk_overlap: int, min_size: int) -> Band:
    """The band of these settings; raises ``ConfigError`` for sizes without a meaning."""
    if chunk_size < SMALLEST_CHUNK_SIZE:
        raise ConfigError(f"chunk_size is {chunk_size}: use {SMALLEST_CHUNK_SIZE} or more")
    if not 0 <= 2 * chunk_overlap < chunk_size:
        raise ConfigError(
            f"chunk_overlap is {chunk_overlap}: use 0 or more, and less than half of "
            f"chunk_size ({chunk_size})"
        )
    if min_size < 0:
        raise ConfigError(f"min_size is {min_size}: use 0 or more")
    return Band(chunk_size, chunk_overlap, min(min_size, chunk_size - 1))
