"""Pack sections into passages of a size: along headings, paragraphs, sentences, words."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from catalog.core.documents import Modality, ParsedDocument, Segment
from catalog.core.tokens import CharTokenCounter, TokenCounter
from catalog.ingest.chunking.boundaries import (
    last_character,
    last_line,
    last_paragraph,
    last_sentence,
    last_word,
    overlap_starts,
    skip_space,
    trim_end,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading, without the white space around it.

    A heading followed directly by a deeper heading belongs to the deeper one's section: then
    ``path`` is the deeper path, and ``outer_path`` that of the heading with which it starts.
    """

    start: int
    end: int
    path: tuple[str, ...] = ()
    outer_path: tuple[str, ...] = ()


class Outline:
    """The headings of a document's body, with their paths."""

    def __init__(self, doc: ParsedDocument) -> None:
        self._text = doc.text
        headings = [heading for heading in doc.headings if heading.start >= doc.body_start]
        self._headings = sorted(headings, key=lambda heading: heading.start)
        self._starts = [heading.start for heading in self._headings]
        self._paths = list(self._heading_paths())

    def path_at(self, offset: int) -> tuple[str, ...]:
        """Return the headings above the character at ``offset``, including one that contains it."""
        at = bisect_right(self._starts, offset)
        return self._paths[at - 1] if at else ()

    def sections(self, start: int, end: int) -> list[Section]:
        """Return the sections of ``text[start:end]`` in order, without empty ones."""
        first = bisect_left(self._starts, start)
        stop = bisect_left(self._starts, end)
        begin = self._starts[first] if first < stop else end
        above = self.path_at(start)
        sections = [self._trim(Section(start, begin, above, above))]
        sections.extend(self._under_headings(first, stop, end))
        return [section for section in sections if section.start < section.end]

    def sections_within(self, start: int, end: int, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return further headings of the paths that begin in ``text[start:end]``, in order."""
        held = self._paths[bisect_left(self._starts, start) : bisect_left(self._starts, end)]
        titles = dict.fromkeys(title for titles in held for title in titles)
        return tuple(title for title in titles if title not in path)

    def bare_headings_start(self, start: int, end: int) -> int:
        """Return the start of the headings that end ``text[start:end]``, or ``end`` without any."""
        begin, at = end, bisect_left(self._starts, end)
        while at and self._starts[at - 1] >= start:
            at -= 1
            if skip_space(self._text, self._headings[at].end, begin) < begin:
                break
            begin = self._starts[at]
        return skip_space(self._text, begin, end)

    def _heading_paths(self) -> Iterator[tuple[str, ...]]:
        levels: list[int] = []
        titles: list[str] = []
        for heading in self._headings:
            while levels and levels[-1] >= heading.level:
                levels.pop()
                titles.pop()
            levels.append(heading.level)
            titles.append(heading.title)
            yield tuple(titles)

    def _under_headings(self, first: int, stop: int, limit: int) -> Iterator[Section]:
        start: int | None = None
        outer: tuple[str, ...] = ()
        for at in range(first, stop):
            heading, is_last = self._headings[at], at + 1 == stop
            if start is None:
                start, outer = heading.start, self._paths[at]
            end = limit if is_last else self._starts[at + 1]
            is_bare = skip_space(self._text, heading.end, end) >= end
            if is_bare and not is_last and self._headings[at + 1].level > heading.level:
                continue
            yield self._trim(Section(start, end, self._paths[at], outer))
            start = None

    def _trim(self, section: Section) -> Section:
        start = skip_space(self._text, section.start, section.end)
        return replace(section, start=start, end=trim_end(self._text, start, section.end))


TRANSCRIPTS: frozenset[Modality] = frozenset(("video_transcript", "audio_transcript"))
_JOINED: frozenset[Modality] = TRANSCRIPTS | {"ocr", "image_caption"}


@dataclass(frozen=True, slots=True)
class Stream:
    """A stretch ``text[start:end]`` of one modality, and the segments in it (none in text).

    It may begin with headings that have nothing else below them, before its first segment.
    """

    start: int
    end: int
    modality: Modality = "text"
    segments: tuple[Segment, ...] = ()


def split_streams(doc: ParsedDocument, outline: Outline) -> Iterator[Stream]:
    """Yield the streams of a document's body, in order; together they have all visible text.

    Neighbouring segments of one modality are one stream, unless text is between them; frames stay
    separate. Headings directly above a segment, with nothing else below them, belong to it.
    """
    at = skip_space(doc.text, doc.body_start, len(doc.text))
    start = at
    run: list[Segment] = []
    for segment in _visible_segments(doc):
        if run and not (at >= segment.start and _is_joined(run[-1], segment)):
            yield _stream(start, run)
            run = []
        if not run:
            start = min(outline.bare_headings_start(at, segment.start), segment.start)
            if at < start:
                yield Stream(at, trim_end(doc.text, at, start))
        run.append(segment)
        at = skip_space(doc.text, segment.end, len(doc.text))
    if run:
        yield _stream(start, run)
    if at < len(doc.text):
        yield Stream(at, trim_end(doc.text, at, len(doc.text)))


def _stream(start: int, run: list[Segment]) -> Stream:
    return Stream(start, run[-1].end, run[0].modality, tuple(run))


def _is_joined(before: Segment, after: Segment) -> bool:
    return before.modality == after.modality and after.modality in _JOINED


def _visible_segments(doc: ParsedDocument) -> Iterator[Segment]:
    """Yield the segments within the body, without blank ones and the white space around them."""
    least = doc.body_start
    for segment in doc.segments:
        start = skip_space(doc.text, max(segment.start, least), segment.end)
        end = trim_end(doc.text, start, segment.end)
        if start < end:
            yield replace(segment, start=start, end=end)
            least = end


CHARS_PER_SIZE = 8
"""A tokenizer may call a megabyte of base64 one token: eight characters count as one at least."""


class TokenSizes:
    """Sizes of stretches ``[start, end)`` of one text.

    The size is the number of tokens that touch the stretch, but at least an eighth of its
    characters. A part of a stretch is never larger than the stretch.
    """

    def __init__(self, spans: npt.NDArray[np.int64]) -> None:
        starts, ends = _sort_spans(spans)
        self._starts = _to_array(starts)
        self._ends = _to_array(ends)

    @classmethod
    def count(cls, text: str, counter: TokenCounter) -> tuple[TokenSizes, str | None]:
        """Count ``text`` once; also return why four characters a token were used, if they were."""
        try:
            return cls(counter.spans(text)), None
        except Exception as error:  # noqa: BLE001  tokenizers raise bare exceptions; reported
            substitute = CharTokenCounter()
            reason = f"{counter.name} failed ({type(error).__name__}: {error}); "
            return cls(substitute.spans(text)), f"{reason}{substitute.name} used"

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


def _sort_spans(
    spans: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return starts and ends, both ascending, without empty spans."""
    import numpy as np

    pairs = np.asarray(spans, dtype=np.int64)
    if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise ValueError(f"token spans have shape {pairs.shape}, not (n, 2)")
    pairs = pairs.reshape(-1, 2)
    pairs = pairs[pairs[:, 1] > pairs[:, 0]]
    if np.any(pairs[1:, 0] < pairs[:-1, 0]):
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    return pairs[:, 0], np.maximum.accumulate(pairs[:, 1]) if len(pairs) else pairs[:, 1]


def _to_array(values: npt.NDArray[np.int64]) -> array[int]:
    """Make a plain array: bisecting one is many times faster than bisecting NumPy scalars."""
    result = array("q")
    result.frombytes(values.tobytes())
    return result


class DisjointSpans:
    """Spans that do not overlap, in order; of nested spans the outer one is kept.

    They are given by ascending start, the longest first for equal starts.
    """

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            if start < end and (not self._ends or start >= self._ends[-1]):
                self._starts.append(start)
                self._ends.append(end)

    def around(self, offset: int) -> tuple[int, int] | None:
        """Return the span that a cut at ``offset`` would split."""
        at = bisect_left(self._starts, offset) - 1
        if at >= 0 and offset < self._ends[at]:
            return self._starts[at], self._ends[at]
        return None


_LINE_ORIENTED_TEXT = """
    bash bat c cc cfg clj conf cpp cs css csv cxx dart env erl ex exs fish go gradle h hh hpp hs
    ini java jl js json jsx kt kts less log lua m mjs ml php pl plist proto ps1 psv py pyi r rb rs
    sass scala scss sh sql svelte swift tf toml ts tsv tsx vb vue xml yaml yml zig zsh"""
_LINE_ORIENTED = frozenset(_LINE_ORIENTED_TEXT.split())


@dataclass(frozen=True, slots=True)
class Band:
    """Sizes in tokens: ``min_size`` to ``chunk_size`` for a passage, up to ``overlap`` shared.

    ``k`` passages have at least ``k * min_size`` tokens of text. Each one but the first may begin
    with an overlap, so they have at most ``k * chunk_size - (k - 1) * overlap``. If ``min_size`` is
    over half of ``chunk_size``, some sizes are between two such ranges (1,001 to 1,399 for a band
    of 700 to 1,000): then no cut is good, and the best possible one is taken.
    """

    chunk_size: int
    overlap: int
    min_size: int

    def holds(self, size: int) -> bool:
        """Return whether a text of that size can be cut into passages within the band.

        For several passages there must be some spare room, too, or else breaks could not be chosen.
        """
        if size <= self.chunk_size:
            return size >= self.min_size
        room = (self.chunk_size - self.min_size) // 4
        return self.count_passages(size + room) * self.min_size + room <= size

    def count_passages(self, size: int) -> int:
        """Return the least number of passages for a text of that size."""
        return max(1, -((self.overlap - size) // (self.chunk_size - self.overlap)))

    def rests(self, low: int, high: int, *, shared: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of sizes in ``[low, high]`` that a passage may leave uncut, ascending.

        Each passage of the rest may begin with an overlap; ``shared`` tokens of it count towards
        the lower end of the band.
        """
        least, most = max(1, self.min_size - shared), self.chunk_size - self.overlap
        passages = max(1, -(-low // most))
        while least <= most and passages * least <= high:
            start = max(low, passages * least)
            if (passages + 1) * least <= passages * most + 1:
                yield start, high
                return
            yield start, min(high, passages * most)
            passages += 1


class Group:
    """One or more consecutive sections, none of them empty."""

    def __init__(self, sections: list[Section]) -> None:
        self._sections = sections
        self._starts = [section.start for section in sections]
        self.start = sections[0].start
        self.end = sections[-1].end

    def __len__(self) -> int:
        return len(self._sections)

    def index(self, offset: int) -> int:
        """Return the index of the section that contains the character at ``offset``."""
        return bisect_right(self._starts, offset) - 1

    def path(self, start: int, end: int) -> tuple[str, ...]:
        """Return the heading path of a passage: that of the section in which it starts.

        A passage that starts with a section and extends into the next has the first one's outer
        path.
        """
        section = self._sections[self.index(start)]
        reaches_over = end > section.end and start == section.start
        return section.outer_path if reaches_over else section.path

    def starts(self, low: int, high: int) -> list[int]:
        """Return starts of sections in ``(low, high]``: outer before inner, late before early."""
        indexes = range(bisect_right(self._starts, low), bisect_right(self._starts, high))
        ordered = sorted(indexes, key=lambda at: (len(self._sections[at].outer_path), -at))
        return [self._starts[at] for at in ordered]


def group_sections(sections: Iterable[Section], sizes: TokenSizes, band: Band) -> list[Group]:
    """Return the sections in groups, each of as few sections as the band allows.

    A section that is too small is joined with the following ones until the group is in the band. If
    that would be too large for one passage, it is joined with the group before it if both fit into
    one; at the end, with as many sections before it as needed. A group is outside the band only if
    the document allows nothing else.
    """
    groups: list[list[Section]] = []
    pending: list[Section] = []

    def size(first: Section, last: Section) -> int:
        return sizes.size(first.start, last.end)

    for section in sections:
        is_over = bool(pending) and size(pending[0], section) > band.chunk_size
        if is_over and groups and size(groups[-1][0], pending[-1]) <= band.chunk_size:
            groups[-1].extend(pending)
            pending = []
        pending.append(section)
        if band.holds(size(pending[0], section)):
            groups.append(pending)
            pending = []
    while pending and groups and not band.holds(size(pending[0], pending[-1])):
        pending = groups.pop() + pending
    if pending:
        groups.append(pending)
    return [Group(group) for group in groups]


Range = tuple[int, int]  # (low, high]: where a passage may end
FindBreak = Callable[[str, int, int], int | None]


class Packer:
    """Fill passages up to the limit, and end each at the best break in its second half.

    A passage ends where both it and the rest can be in the band, if there is such a place. The
    document's atoms stay whole if they fit into a passage; otherwise they are cut at lines.
    ``turns`` are ascending offsets at which a passage should preferably begin, the best kind first;
    with turns, at least five sixths of the overlap are always shared.
    """

    def __init__(
        self,
        doc: ParsedDocument,
        sizes: TokenSizes,
        band: Band,
        turns: Sequence[Sequence[int]] = (),
    ) -> None:
        self._text, self._sizes, self._band, self._turns = doc.text, sizes, band, turns
        self._lines_first = doc.file_type in _LINE_ORIENTED
        atoms = sorted(doc.atomic, key=lambda span: (span[0], -span[1]))
        self._atoms = DisjointSpans(span for span in atoms if self._fits(*span))
        self._large_atoms = DisjointSpans(span for span in atoms if not self._fits(*span))

    def cut(self, sections: Iterable[Section]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Yield start, end and heading path of every passage of the sections."""
        for group in group_sections(sections, self._sizes, self._band):
            for start, end in self._split(group):
                yield start, end, group.path(start, end)

    def _split(self, group: Group) -> Iterator[tuple[int, int]]:
        """Yield the passages of a group, which begins and ends with a visible character.

        ``core`` is the start of a passage's new text. The stretch before it is overlap, which only
        passages within one section have.
        """
        start = core = group.start
        while core < group.end:
            start, cut = self._next_passage(start, core, group)
            yield start, trim_end(self._text, start, cut)
            core = skip_space(self._text, cut, group.end)
            is_one_section = group.index(start) == group.index(core)
            start = self._overlap_start(start, core) if is_one_section else core

    def _next_passage(self, start: int, core: int, group: Group) -> tuple[int, int]:
        """Return the passage's end, and its start: later than proposed if the overlap must go."""
        if self._fits(start, group.end):
            return start, group.end
        choices = self._end_ranges(start, core, group)
        furthest = choices[0][0]
        atom = self._atoms.around(furthest[1])
        if atom is not None and start < core and self._fits(core, atom[1]):
            return self._next_passage(core, core, group)
        for ranges in choices:
            cut = self._best_cut(core, ranges, group, None if atom is None else atom[0])
            if cut is not None:
                return start, cut
        if atom is not None:
            return start, atom[0] if atom[0] > core else min(atom[1], group.end)
        return start, self._any_cut(core, furthest, group.end)

    def _end_ranges(self, start: int, core: int, group: Group) -> list[list[Range]]:
        """Return the ranges of possible ends in order of preference, each with the furthest first.

        The best ranges leave a rest that fits the band without counting its overlaps, the next best
        one that fits with most of them. Otherwise the end should be near the lower end of the band.
        """
        band = self._band
        budgets = [band.chunk_size]
        if len(group) > 1:
            size = self._sizes.size(start, group.end)
            even = -(-size // band.count_passages(size))
            budgets.insert(0, min(band.chunk_size, max(band.min_size, even * 5 // 4)))
        choices = [
            ranges
            for shared in (0, band.overlap * 3 // 4)
            for budget in budgets
            if (ranges := self._ranges_in_band(start, core, group.end, budget, shared))
        ]
        if choices:
            return choices
        low = max(core, self._sizes.furthest_end(start, band.min_size - 1))
        spare = (band.chunk_size - band.min_size) // 4
        high = min(self._sizes.furthest_end(start, band.min_size + spare), group.end)
        return [[(low, max(high, low + 1))]]

    def _ranges_in_band(
        self, start: int, core: int, end: int, budget: int, shared: int
    ) -> list[Range]:
        sizes, band = self._sizes, self._band
        least = max(core, sizes.furthest_end(start, band.min_size - 1))
        furthest = max(min(sizes.furthest_end(start, budget), end), core + 1)
        ranges = []
        for fewest, most in band.rests(
            sizes.size(furthest, end), sizes.size(least, end), shared=shared
        ):
            low = max(least, sizes.earliest_start(end, most) - 1)
            high = min(furthest, sizes.earliest_start(end, fewest - 1) - 1)
            if low < high:
                ranges.append((low, high))
        return ranges

    def _best_cut(
        self, core: int, ranges: list[Range], group: Group, atom: int | None
    ) -> int | None:
        """Return the best break; the start of an atom that extends furthest is good, too."""
        for low, high in ranges:
            for at in group.starts(low, high):
                if self._atoms.around(at) is None:
                    return at
        if atom is not None and any(low < atom <= high for low, high in ranges):
            return atom
        furthest = ranges[0][1]
        half = (core + furthest) // 2
        for find_break in self._break_finders(furthest):
            for low, high in ranges:
                reach = skip_space(self._text, high, group.end)
                begin = max(low, half) if half < high else low
                cut = self._outside_atoms(find_break, begin, reach)
                if cut is not None:
                    return cut
        return None

    def _any_cut(self, core: int, allowed: Range, end: int) -> int:
        low, limit = allowed
        high = skip_space(self._text, limit, end)
        for begin in (low, core):
            if (cut := self._outside_atoms(last_word, begin, high)) is not None:
                return cut
        return last_character(self._text, core, limit)

    def _break_finders(self, limit: int) -> tuple[FindBreak, ...]:
        turns = (partial(_last_turn, starts) for starts in self._turns)
        if self._lines_first or self._large_atoms.around(limit) is not None:
            return *turns, last_paragraph, last_line, last_sentence
        return *turns, last_paragraph, last_sentence, last_line

    def _outside_atoms(self, find_break: FindBreak, low: int, high: int) -> int | None:
        while high > low and (cut := find_break(self._text, low, high)) is not None:
            atom = self._atoms.around(cut)
            if atom is None:
                return cut if cut > low else None
            high = atom[0]
        return None

    def _overlap_start(self, start: int, core: int) -> int:
        """Return the start of the next passage: within the one begun at ``start``, or ``core``."""
        low = max(self._sizes.earliest_start(core, self._band.overlap), start + 1)
        if self._band.overlap == 0 or low >= core:
            return core
        if self._turns:
            return self._overlap_with_turns(low, core)
        for at in overlap_starts(self._text, low, core, lines_first=self._lines_first):
            if self._atoms.around(at) is None:
                return at
        return core

    def _overlap_with_turns(self, low: int, core: int) -> int:
        """Return the best start at or after ``low`` that shares five sixths of the overlap."""
        latest = self._sizes.earliest_start(core, self._band.overlap * 5 // 6)
        high = min(max(low + 1, latest + 1), core)
        for starts in self._turns:
            at = bisect_left(starts, low)
            if at < len(starts) and starts[at] < high:
                return starts[at]
        return next(overlap_starts(self._text, low, high, lines_first=False), low)

    def _fits(self, start: int, end: int) -> bool:
        return self._sizes.size(start, end) <= self._band.chunk_size


def _last_turn(starts: Sequence[int], _text: str, low: int, high: int) -> int | None:
    """Return the last of the offsets in ``(low, high]``."""
    at = bisect_right(starts, high)
    return starts[at - 1] if at and starts[at - 1] > low else None
