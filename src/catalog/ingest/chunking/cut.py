"""Cut sections into passages by size: along headings, paragraphs, lines, sentences, words."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from catalog.core.documents import ParsedDocument
from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.ingest.chunking import boundaries
from catalog.ingest.chunking.sections import Outline, Section

Span = tuple[int, int]
CHARS_PER_SIZE = 8  # at most: a tokenizer may call a megabyte of base64 one token
_LINE_ORIENTED = """
    bash bat c cc cfg clj conf cpp cs css csv cxx dart env erl ex exs fish go gradle h hh hpp hs
    ini java jl js json jsx kt kts less log lua m mjs ml php pl plist proto ps1 psv py pyi r rb rs
    sass scala scss sh sql svelte swift tf toml ts tsv tsx vb vue xml yaml yml zig zsh"""


class TokenSizes:
    """Sizes of stretches of one text: the tokens that touch it, or an eighth of its characters.

    ``fallback`` says why four characters were counted as a token, if they were.
    """

    def __init__(self, text: str, counter: TokenCounter) -> None:
        import numpy as np

        self.fallback: str | None = None
        try:
            spans = counter.spans(text)
        except Exception as error:  # noqa: BLE001  tokenizers raise bare exceptions; reported
            reason, substitute = f"{type(error).__name__}: {error}", CharTokenCounter()
            spans = substitute.spans(text)
            self.fallback = f"{counter.name} failed ({reason}); {substitute.name} used"
        starts, ends = spans[spans[:, 1] > spans[:, 0]].T
        # Bisecting plain arrays is many times faster than bisecting NumPy's.
        self._starts = array("q", starts.tobytes())
        self._ends = array("q", np.maximum.accumulate(ends).tobytes())

    def size(self, start: int, end: int) -> int:
        """Return the size of ``[start, end)``."""
        tokens = bisect_left(self._starts, end) - bisect_right(self._ends, start)
        return max(tokens, -((start - end) // CHARS_PER_SIZE))

    def furthest_end(self, start: int, budget: int) -> int:
        """Return the largest end, perhaps beyond the text, with a size of at most ``budget``."""
        beyond = bisect_right(self._ends, start) + budget
        limit = start + CHARS_PER_SIZE * budget
        return min(self._starts[beyond], limit) if beyond < len(self._starts) else limit

    def earliest_start(self, end: int, budget: int) -> int:
        """Return the smallest start with a size of at most ``budget``."""
        before = bisect_left(self._starts, end) - budget - 1
        limit = max(0, end - CHARS_PER_SIZE * budget)
        return max(self._ends[before], limit) if before >= 0 else limit


class Band(NamedTuple):
    """Sizes in tokens: ``least`` to ``most`` for a passage, up to ``overlap`` of them shared."""

    most: int
    overlap: int
    least: int

    def holds(self, size: int) -> bool:
        """Return whether a text of that size can be cut into passages within the band."""
        return size >= self.least if size <= self.most else self._further(size, self._room) > 0

    def first(self, size: int) -> Span:
        """Return the sizes of a larger text's first passage with which the rest fits, if any do."""
        if further := self._further(size, self._room) or self._further(size, 0):
            least = max(self.least, size - further * (self.most - self.overlap))
            return least, min(self.most, size - further * self.least)
        return self.least, self.least + self._room

    @property
    def _room(self) -> int:  # that several passages have to spare, so that breaks can be chosen
        return (self.most - self.least) // 4

    def _further(self, size: int, room: int) -> int:  # passages after the first, 0 if too small
        further = -((self.most - size - room) // (self.most - self.overlap))
        return further if (further + 1) * self.least + room <= size else 0


class Cutter:
    """Cut sections into passages within a band; atoms (tables, fences) stay whole if they fit."""

    def __init__(
        self, doc: ParsedDocument, outline: Outline, sizes: TokenSizes, band: Band
    ) -> None:
        self._text, self._path_at = doc.text, outline.path_at
        self._sizes, self._band = sizes, band
        self._is_code = doc.file_type in _LINE_ORIENTED.split()
        self._atoms = disjoint(span for span in doc.atomic if self._fits(*span))
        self._large_atoms = disjoint(span for span in doc.atomic if not self._fits(*span))

    def cut(self, sections: Iterable[Section], turns: Sequence[int] = ()) -> Iterator[Section]:
        """Yield the passages, which preferably begin at ``turns``, where another person speaks."""
        for group in self._groups(sections):
            # A cut before an outer heading is better than one before an inner one.
            breaks = [(each.start, len(self._path_at(each.start))) for each in group[1:]]
            yield from self._split(group, breaks or [(turn, 0) for turn in turns])

    def _groups(self, sections: Iterable[Section]) -> list[list[Section]]:
        """Return the sections in the smallest groups that can be cut within the band.

        A small one joins those after it; if the next one would not fit, or is none, those before.
        """
        groups: list[list[Section]] = [[]]  # the last one is still too small
        for section in sections:
            is_over = bool(groups[-1]) and not self._fits(groups[-1][0].start, section.end)
            if is_over and groups[1:] and self._fits(groups[-2][0].start, groups[-1][-1].end):
                groups[-2:] = [groups[-2] + groups[-1], []]
            groups[-1].append(section)
            if self._is_held(groups[-1]):
                groups.append([])
        while groups[-1] and groups[1:] and not self._is_held(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
        return groups if groups[-1] else groups[:-1]

    def _is_held(self, group: list[Section]) -> bool:
        return self._band.holds(self._sizes.size(group[0].start, group[-1].end))

    def _split(self, group: list[Section], breaks: list[Span]) -> Iterator[Section]:
        """Yield the passages of a group; only those within one section overlap."""
        starts, end = [section.start for section in group], group[-1].end
        start = core = starts[0]  # the passage's new text begins at its core
        while core < end:
            start, cut = self._next(start, core, end, breaks)
            section = group[bisect_right(starts, start) - 1]
            is_over = cut > section.end and start == section.start
            path = self._path_at(start) if is_over else section.path
            yield Section(start, boundaries.trim_end(self._text, start, cut), path)
            core = boundaries.skip_space(self._text, cut, end)
            low = max(self._sizes.earliest_start(core, self._band.overlap), start + 1)
            start = core
            if self._band.overlap and low < core < section.end:
                shared = boundaries.overlap_starts(self._text, low, core, lines_first=self._is_code)
                start = next((at for at in shared if not around(self._atoms, at)), core)

    def _next(self, start: int, core: int, end: int, breaks: list[Span]) -> Span:
        """Return the passage's start, later than proposed if the overlap must go, and its end."""
        sizes = self._sizes
        if self._fits(start, end):
            return start, end
        least, most = self._band.first(sizes.size(start, end))
        low = max(core, sizes.furthest_end(start, least - 1))
        high = max(low + 1, min(sizes.furthest_end(start, most), end))
        atom = around(self._atoms, high)
        if atom and atom[0] <= low and start < core and not self._fits(start, atom[1]):
            return self._next(core, core, end, breaks)
        held = breaks[bisect_left(breaks, (low + 1,)) : bisect_left(breaks, (high + 1,))]
        if held := [(depth, -at) for at, depth in held if not around(self._atoms, at)]:
            return start, -min(held)[1]
        return start, atom[0] if atom and atom[0] > low else self._break(low, core, high, end)

    def _break(self, low: int, core: int, high: int, end: int) -> int:
        """Return the best break in ``(low, high]``, better in the second half of the passage."""
        kinds = [boundaries.last_paragraph, boundaries.last_sentence, boundaries.last_line]
        if self._is_code or around(self._large_atoms, high):
            kinds[1:] = kinds[:0:-1]
        reach = boundaries.skip_space(self._text, high, end)
        for bottom in dict.fromkeys((max(low, (core + high) // 2), low)):
            for find in kinds:
                if cut := self._outside_atoms(find, bottom, reach):
                    return cut
        if atom := around(self._atoms, high):
            return atom[0] if atom[0] > core else min(atom[1], end)
        words = (self._outside_atoms(boundaries.last_word, least, reach) for least in (low, core))
        return next(filter(None, words), None) or boundaries.last_character(self._text, core, high)

    def _outside_atoms(
        self, find: Callable[[str, int, int], int | None], low: int, high: int
    ) -> int | None:
        while high > low and (cut := find(self._text, low, high)) is not None:
            if (atom := around(self._atoms, cut)) is None:
                return cut if cut > low else None
            high = atom[0]
        return None

    def _fits(self, start: int, end: int) -> bool:
        return self._sizes.size(start, end) <= self._band.most


def disjoint(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, without those that overlap an earlier or longer one."""
    kept: list[Span] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start < end and (not kept or start >= kept[-1][1]):
            kept.append((start, end))
    return kept


def around(spans: list[Span], offset: int) -> Span | None:
    """Return the one of the disjoint spans that a cut at ``offset`` would split."""
    at = bisect_left(spans, (offset,)) - 1
    return spans[at] if at >= 0 and offset < spans[at][1] else None
