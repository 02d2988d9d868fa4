"""Group the cues of a transcript into windows of time."""

import re
from collections.abc import Callable, Iterator, Sequence

from catalog.core.documents import Cue

# Shares of the nominal length: a window of a minute has 45 to 75 seconds, or 30 before another
# speaker; a last one under 20 seconds is joined to the one before.
SHORTEST, LONGEST, SHORTEST_TURN, SHORTEST_LAST = 3 / 4, 5 / 4, 1 / 2, 1 / 3
_SENTENCE_END = re.compile(r"""[.!?…。！？｡]["'”’»)\]」』）】]*\s*\Z""")

Fits = Callable[[int, int], bool]


def split_windows(
    text: str, cues: Sequence[Cue], start: int, seconds: float, fits: Fits
) -> Iterator[tuple[int, Sequence[Cue]]]:
    """Yield the start of each window's text (the first is ``start``) and its cues.

    The cues are in the order of the text, and ``fits`` says whether the text between two offsets
    is small enough for one passage. A window closes between 3/4 and 5/4 of ``seconds`` after its
    start. The best place is before another speaker or at the end of the transcript (before another
    speaker already from 1/2 on, if there is no later place). The next best is after a sentence,
    nearest to ``seconds``, then in the longest pause, then wherever necessary. A single cue that is
    too long or too large is a window by itself.
    """
    windows, begin = list[tuple[int, int]](), 0
    while begin < len(cues):
        windows.append((begin, start if begin == 0 else cues[begin].start))
        begin = _close(text, cues, begin, windows[-1][1], seconds, fits)
    if len(windows) > 1:
        (before, at), (last, _) = windows[-2:]
        opened, reopened = cues[before].time_start, cues[last].time_start
        rest = max(cue.time_end for cue in cues[last:]) - reopened
        length = max(cue.time_end for cue in cues[before:]) - opened
        is_short = rest < SHORTEST_LAST * seconds and length <= (LONGEST + SHORTEST_LAST) * seconds
        if is_short and reopened >= opened and fits(at, cues[-1].end):
            windows.pop()
    ends = [begin for begin, _ in windows[1:]]
    for (begin, at), end in zip(windows, [*ends, len(cues)], strict=True):
        yield at, cues[begin:end]


def _close(
    text: str, cues: Sequence[Cue], begin: int, start: int, seconds: float, fits: Fits
) -> int:
    """Return the end of the window of ``cues[begin]``, whose text begins at ``start``."""
    opened = latest = cues[begin].time_start
    end, best, chosen = begin + 1, (9, 0.0), 0
    for at in range(begin, len(cues)):
        cue = cues[at]
        latest = max(latest, cue.time_end)
        is_over = latest - opened > LONGEST * seconds or cue.time_start < opened
        if at > begin and (is_over or not fits(start, cue.end)):
            break
        end = at + 1
        following = cues[end] if end < len(cues) else None
        rank = _rank(text, cue, following, latest, (latest - opened) / seconds)
        if rank <= best:  # of equal places the later one: each cue is looked at a few times only
            best, chosen = rank, end
    return chosen or end


def _rank(
    text: str, cue: Cue, following: Cue | None, latest: float, length: float
) -> tuple[int, float]:
    """Rate a close after ``cue``, smaller is better; ``length`` is the window's share of a full."""
    off = abs(length - 1)
    is_turn = following is not None and following.speaker != cue.speaker
    if length < SHORTEST:
        return (1, off) if is_turn and length >= SHORTEST_TURN else (9, 1.0)
    if is_turn or following is None:
        return 0, off
    if _SENTENCE_END.search(text, max(cue.start, cue.end - 8), cue.end):
        return 2, off
    pause = following.time_start - latest
    return (3, -pause) if pause > 0 else (9, 1.0)
