"""Parts a transcript where a listener would: into windows of about a minute, or by size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from catalog.core.documents import Cue

SHORTEST, LONGEST = 3 / 4, 5 / 4
"""When a window may close, as shares of its nominal length."""
SHORTEST_TURN = 1 / 2
"""From when on it may close before another speaker, as a share of the nominal length."""
SHORTEST_LAST = 1 / 3
"""A last window under this share of the nominal length is joined to the one before."""

_SENTENCE_END = re.compile(r"""[.!?…。！？｡]["'”’»)\]」』）】]*\s*\Z""")
_TAIL = 8


@dataclass(frozen=True, slots=True)
class TranscriptWindows:
    """Groups the cues of one transcript.

    ``seconds`` is the nominal length of a window; ``fits`` says whether the text from one
    offset to another is small enough for one passage.
    """

    text: str
    seconds: float
    fits: Callable[[int, int], bool]

    def split(self, cues: Sequence[Cue], start: int) -> Iterator[tuple[int, Sequence[Cue]]]:
        """Yield where the text of every window begins (the first one's at ``start``), and its cues.

        The cues are in the order of the text. A window closes between 3/4 and 5/4 of ``seconds``
        after it began: before another speaker or at the end of the transcript (before another
        speaker from 1/2 on, if there is no such place later), else after a sentence, of several
        places the nearest to ``seconds``; else in the longest pause; else where it must. A cue
        that alone is too long or too large is a window of its own.
        """
        begin = before = before_start = 0
        while begin < len(cues):
            end = self._close(cues, begin, start)
            is_last = end == len(cues) and begin > before
            if is_last and self._belongs_to_the_one_before(cues, before, begin, before_start):
                yield before_start, cues[before:]
                return
            if begin > before:
                yield before_start, cues[before:begin]
            before, before_start, begin = begin, start, end
            start = cues[end].start if end < len(cues) else start
        if before < len(cues):
            yield before_start, cues[before:]

    def _close(self, cues: Sequence[Cue], begin: int, start: int) -> int:
        """Return where the window of ``cues[begin]``, whose text begins at ``start``, ends."""
        opened = latest = cues[begin].time_start
        end, best, chosen = begin, (9, 0.0), begin
        for at in range(begin, len(cues)):
            cue = cues[at]
            latest = max(latest, cue.time_end)
            is_over = latest - opened > LONGEST * self.seconds or cue.time_start < opened
            if at > begin and (is_over or not self.fits(start, cue.end)):
                break
            end = at + 1
            rank = self._rank(cues, at, latest - opened, latest)
            if rank is not None and rank < best:
                best, chosen = rank, end
        return chosen if chosen > begin else end

    def _rank(
        self, cues: Sequence[Cue], at: int, length: float, latest: float
    ) -> tuple[int, float] | None:
        """Rate closing after ``cues[at]``, the smaller the better; ``None``: not there."""
        is_last = at + 1 == len(cues)
        is_turn = is_last or cues[at].speaker != cues[at + 1].speaker
        off = abs(length - self.seconds)
        if length < SHORTEST * self.seconds:
            is_early = is_turn and not is_last and length >= SHORTEST_TURN * self.seconds
            return (1, off) if is_early else None
        if is_turn:
            return 0, off
        if self._ends_sentence(cues[at]):
            return 2, off
        pause = cues[at + 1].time_start - latest
        return (3, -pause) if pause > 0 else None

    def _belongs_to_the_one_before(
        self, cues: Sequence[Cue], before: int, begin: int, start: int
    ) -> bool:
        """Return whether the last window, of ``cues[begin:]``, is too short to stand alone.

        The one before is that of ``cues[before:begin]``, and its text begins at ``start``.
        """
        opened, reopened = cues[before].time_start, cues[begin].time_start
        ends = max(cue.time_end for cue in cues[before:])
        return (
            max(cue.time_end for cue in cues[begin:]) - reopened < SHORTEST_LAST * self.seconds
            and ends - opened <= (LONGEST + SHORTEST_LAST) * self.seconds
            and reopened >= opened
            and self.fits(start, cues[-1].end)
        )

    def _ends_sentence(self, cue: Cue) -> bool:
        return _ends_sentence(self.text, cue)


def find_turns(text: str, cues: Sequence[Cue]) -> tuple[list[int], list[int]]:
    """Return where another speaker begins, and where a cue follows the end of a sentence."""
    pairs = list(pairwise(cues))
    turns = [after.start for before, after in pairs if before.speaker != after.speaker]
    return turns, [after.start for before, after in pairs if _ends_sentence(text, before)]


def _ends_sentence(text: str, cue: Cue) -> bool:
    return _SENTENCE_END.search(text, max(cue.start, cue.end - _TAIL), cue.end) is not None
