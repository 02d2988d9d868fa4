"""Evidence: the lines said and shown around a moment of a recording, in order of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from catalog.core.documents import Chunk, Cue
from catalog.core.results import Evidence, EvidenceLine
from catalog.core.text import format_timecode
from catalog.retrieval.frame_text import FRAME_CHARS, short_frame_text

_SPARE = 4
_LINE_SECONDS = 15  # of a line at most, unless a single cue is longer
_FRAME = "video_frame"


class TimeWindow(NamedTuple):
    """Seconds of a recording, ``start <= end``, both included."""

    start: float
    end: float


def times_of(chunk: Chunk) -> TimeWindow:
    """Return begin and end of a timed passage; the end is the begin if it is missing or earlier."""
    first, last = chunk.locator.time_start or 0.0, chunk.locator.time_end
    return TimeWindow(first, first if last is None else max(first, last))


def format_evidence(evidence: Evidence) -> str:
    """Return the lines as text for a person or a language model, one below the other."""
    return "\n".join(format_lines(evidence.lines, evidence.best_sentence))


def format_lines(
    lines: Iterable[EvidenceLine], best_sentence: EvidenceLine | None, indent: str = ""
) -> Iterator[str]:
    """Yield each line after the indent; ``>`` marks the best sentence of the best passage."""
    for line in lines:
        chunk_id = None if best_sentence is None else best_sentence.chunk_id
        is_marked = line.is_best and line.chunk_id == chunk_id
        yield f"{f'{indent[:-2]}> ' if is_marked else indent}{format_line(line)}"


def format_line(line: EvidenceLine) -> str:
    """Return ``00:01:05–00:01:18 (Audio, Anna): "…"``; one time if both are the same second."""
    first, last = format_timecode(line.time_start), format_timecode(line.time_end)
    times = first if first == last else f"{first}–{last}"
    return f'{times} ({", ".join(filter(None, (line.kind, line.speaker)))}): "{line.text}"'


def build_evidence_lines(
    anchors: Sequence[Chunk],
    others: Iterable[Chunk],
    window: TimeWindow,
    *,
    max_chars: int,
    best: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[EvidenceLine, ...]:
    """Return the lines of the anchors and of other passages within the window, by time.

    Consecutive cues are joined to lines of up to 15 seconds; a line ends where the speaker changes,
    a frame comes, or the passage ends. ``best`` has the place of an anchor's best sentence by chunk
    id; that sentence gets its own line. If frames of other passages show the same one after
    another, the first stands for all of them, or an anchor if there is one. :func:`cut_lines`
    limits the text to ``max_chars`` characters.
    """
    best = best or {}
    times = {chunk.chunk_id: times_of(chunk) for chunk in anchors}
    neighbours = [chunk for chunk in others if chunk.chunk_id not in times]
    moments = [
        moment
        for chunk, cues in _without_overlaps([*_by_row(anchors), *_by_row(neighbours)])
        for moment in _moments(chunk, cues, best.get(chunk.chunk_id))
        if chunk.chunk_id in times or _is_within(moment, window)
    ]
    moments.sort(key=lambda moment: (moment.time_start, _is_frame(moment)))
    return cut_lines(_join_cues(_show_once(moments, times)), max_chars, anchors=times)


def keep_nearest(anchor: Chunk, near: Iterable[Chunk], max_chars: int) -> list[Chunk]:
    """Return the neighbours nearest in time, up to a small multiple of ``max_chars`` characters.

    More could never be shown, and a hostile transcript may have thousands of cues in a second.
    """
    middle, room = times_of(anchor).start, max(1, _SPARE * max_chars)
    kept = []
    for chunk in sorted(near, key=lambda one: (abs(times_of(one).start - middle), one.seq)):
        if room <= 0:
            break
        room -= len(chunk.text) if chunk.modality != _FRAME else min(len(chunk.text), FRAME_CHARS)
        kept.append(chunk)
    return kept


def drop_repeated(anchors: Sequence[Chunk], near: Sequence[Chunk]) -> list[Chunk]:
    """Return the neighbours without lines that the recording has twice.

    Lines are repeated by a second transcript of the same seconds (another format or language) and
    by another revision of an anchor's document. The transcript of an anchor is preferred, then the
    one with the shortest path.
    """
    revisions = {chunk.source_doc_id: chunk.docid for chunk in anchors}
    transcripts = [chunk for chunk in anchors if chunk.modality != _FRAME]
    preferred = {chunk.source_doc_id for chunk in transcripts}
    kept = []

    def precedence(chunk: Chunk) -> tuple[bool, int, str]:
        return chunk.source_doc_id not in preferred, len(chunk.path), chunk.path

    for chunk in sorted(near, key=precedence):
        if revisions.get(chunk.source_doc_id, chunk.docid) != chunk.docid:
            continue
        if chunk.modality != _FRAME:
            if any(repeats(chunk, other) for other in transcripts):
                continue
            transcripts.append(chunk)
        kept.append(chunk)
    return kept


def group_transcripts(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group the positions of a recording's passages so that no group has two transcripts at once.

    Each passage joins the first possible group, so frames join the first transcript.
    """
    groups: list[list[int]] = []
    for number, chunk in enumerate(chunks):
        for group in groups:
            if not any(repeats(chunk, chunks[other]) for other in group):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def repeats(chunk: Chunk, other: Chunk) -> bool:
    """Return whether two transcripts of different documents cover the same seconds."""
    if chunk.source_doc_id == other.source_doc_id or _FRAME in (chunk.modality, other.modality):
        return False
    a, b = times_of(chunk), times_of(other)
    return min(a.end, b.end) > max(a.start, b.start)


def _by_row(chunks: Iterable[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.seq)


def _without_overlaps(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Cue]]]:
    """Yield each passage with the cues that no earlier passage of its document has."""
    told: dict[str, list[tuple[int, int]]] = {}
    for chunk in chunks:
        times, base = times_of(chunk), chunk.start_offset
        cues = chunk.cues or (Cue(0, len(chunk.text), *times),)
        before = told.setdefault(chunk.source_doc_id, [])
        yield (
            chunk,
            [
                cue._replace(start=start - base, end=end - base)
                for cue in cues
                for start, end in _subtract((base + cue.start, base + cue.end), before)
            ],
        )
        _add(before, (chunk.start_offset, chunk.end_offset))


def _subtract(span: tuple[int, int], told: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a span that are outside the disjoint, sorted spans."""
    start, end = span
    for low, high in told[bisect_right(told, start, key=itemgetter(1)) :]:
        if low >= end:
            break
        if start < low:
            yield start, low
        start = high
    if start < end:
        yield start, end


def _add(told: list[tuple[int, int]], span: tuple[int, int]) -> None:
    """Add a span to disjoint, sorted ones, and join those that it touches."""
    first = bisect_left(told, span[0], key=itemgetter(1))
    last = bisect_right(told, span[1], key=itemgetter(0))
    touched = [span, *told[first:last]]
    told[first:last] = [(min(map(itemgetter(0), touched)), max(map(itemgetter(1), touched)))]


def best_line(chunk: Chunk, best: tuple[int, int]) -> EvidenceLine | None:
    """Return the sentence at ``best`` in a passage as one line; for a frame, the whole text."""
    cues = chunk.cues or (Cue(0, len(chunk.text), *times_of(chunk)),)
    lines = [line for line in _moments(chunk, cues, best) if line.is_best]
    if not lines:
        return None
    text = " ".join(line.text for line in lines)
    end = max(line.time_end for line in lines)
    return lines[0].model_copy(update={"text": text, "time_end": end})


def _split_at(cue: Cue, best: tuple[int, int] | None) -> Iterator[tuple[Cue, bool]]:
    """Yield the parts of a cue before, in and after the best sentence, and which one is in it."""
    low, high = (cue.end, cue.end) if best is None else best
    low, high = (min(max(offset, cue.start), cue.end) for offset in (low, high))
    for start, end, is_best in ((cue.start, low, False), (low, high, True), (high, cue.end, False)):
        if start < end:
            yield cue._replace(start=start, end=end), is_best


def _moments(
    chunk: Chunk, cues: Iterable[Cue], best: tuple[int, int] | None
) -> Iterator[EvidenceLine]:
    """Return a line for each cue of a passage, or one for its frame."""
    whole = times_of(chunk)
    if chunk.modality == _FRAME:
        yield EvidenceLine(
            time_start=whole.start,
            time_end=whole.end,
            kind="Screen",
            speaker=None,
            text=short_frame_text(chunk.text),
            chunk_id=chunk.chunk_id,
            is_best=best is not None,
        )
        return
    for cue, is_best in (part for whole_cue in cues for part in _split_at(whole_cue, best)):
        text = _one_line(chunk.text[cue.start : cue.end])
        speaker = _one_line(cue.speaker or "") or None
        if speaker is not None:
            text = text.removeprefix(f"{speaker}:").lstrip()
        if text:
            yield EvidenceLine(
                time_start=cue.time_start,
                time_end=max(cue.time_start, cue.time_end),
                kind="Audio",
                speaker=speaker,
                text=text,
                chunk_id=chunk.chunk_id,
                is_best=is_best,
            )


def _is_frame(line: EvidenceLine) -> bool:
    return line.kind == "Screen"


def _is_within(line: EvidenceLine, window: TimeWindow) -> bool:
    if line.time_start == line.time_end:
        return window.start <= line.time_start <= window.end
    return line.time_start < window.end and line.time_end > window.start


def _show_once(moments: Sequence[EvidenceLine], anchors: Container[str]) -> Iterator[EvidenceLine]:
    """Reduce consecutive frames that show the same to the anchors among them, or else to one."""
    frames = [number for number, moment in enumerate(moments) if _is_frame(moment)]
    shown: dict[int, EvidenceLine] = {}
    for _, run in groupby(frames, key=lambda number: moments[number].text):
        same = list(run)
        of_anchors = [number for number in same if moments[number].chunk_id in anchors]
        shown.update((number, moments[number]) for number in of_anchors)
        if not of_anchors:
            end = max(moments[number].time_end for number in same)
            shown[same[0]] = moments[same[0]].model_copy(update={"time_end": end})
    for number, moment in enumerate(moments):
        if not _is_frame(moment):
            yield moment
        elif number in shown:
            yield shown[number]


def _join_cues(moments: Iterable[EvidenceLine]) -> list[EvidenceLine]:
    """Join consecutive cues of one passage and speaker to lines that can be followed by ear.

    The best sentence is one line however long it is.
    """
    lines: list[EvidenceLine] = []
    for moment in moments:
        last = lines[-1] if lines else None
        if (
            last is not None
            and _join_key(last) == _join_key(moment)
            and (moment.is_best or moment.time_end - last.time_start <= _LINE_SECONDS)
        ):
            end = max(last.time_end, moment.time_end)
            text = f"{last.text} {moment.text}"
            lines[-1] = last.model_copy(update={"time_end": end, "text": text})
        else:
            lines.append(moment)
    return lines


def _join_key(moment: EvidenceLine) -> tuple[str, str | None, bool]:
    return moment.chunk_id, moment.speaker, moment.is_best


def _one_line(text: str) -> str:
    return " ".join(text.split())


_LEAST_CHARS = 20
"""Characters of a line that is cut at least."""
_Window = tuple[float, float]  # first and last second


def cut_lines(
    lines: Sequence[EvidenceLine], max_chars: int, *, anchors: Container[str] = ()
) -> tuple[EvidenceLine, ...]:
    """Return the best sentences, and the nearest lines around them within ``max_chars`` characters.

    Lines of the found passages (``anchors``, by chunk id) come before other lines. The last line
    that has room is cut, with an ellipsis. Without a best sentence the lines of ``anchors`` are
    kept whole.
    """
    if sum(len(line.text) for line in lines) <= max_chars:
        return tuple(lines)
    kept = {number: line for number, line in enumerate(lines) if line.is_best}
    if not kept:
        kept = {number: line for number, line in enumerate(lines) if line.chunk_id in anchors}
    middles = list(kept)
    times = ((line.time_start, line.time_end) for line in kept.values())
    windows = _merge(times)
    room = max_chars - sum(len(line.text) for line in kept.values())

    def side(number: int) -> tuple[int, bool]:
        place = bisect_left(middles, number)
        nearest = middles[max(0, place - 1) : place + 1]
        middle = min(nearest, key=lambda middle: abs(number - middle), default=0)
        return middle, number < middle

    def distance(number: int) -> tuple[bool, float, int]:
        line = lines[number]
        return line.chunk_id not in anchors, _gap(line, windows), abs(number - side(number)[0])

    further = sorted((number for number in range(len(lines)) if number not in kept), key=distance)
    waiting = Counter(map(side, further))  # lines of each side that still has room
    for number in further:
        line, where = lines[number], side(number)
        if where not in waiting:
            continue
        waiting[where] -= 1
        if not waiting[where] or len(line.text) > room:
            del waiting[where]
        if len(line.text) > room:
            text = _cut_text(line.text, room // 2 if waiting else room, at_end=where[1])
            if not text or line.chunk_id not in anchors:
                continue
            line = line.model_copy(update={"text": text})
        kept[number], room = line, room - len(line.text)
    return tuple(kept[number] for number in sorted(kept))


def _cut_text(text: str, max_chars: int, *, at_end: bool) -> str:
    """Return the words at one end of a text within ``max_chars``; "" if these are too few."""
    if max_chars < _LEAST_CHARS:
        return ""
    if at_end:
        _, _, rest = text[len(text) - max_chars + 2 :].partition(" ")
        return f"… {rest}" if rest else ""
    rest, _, _ = text[: max_chars - 2].rpartition(" ")
    return f"{rest} …" if rest else ""


def _merge(windows: Iterable[_Window]) -> list[_Window]:
    """Return the union of the windows as disjoint windows, by time."""
    merged: list[_Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _gap(line: EvidenceLine, windows: Sequence[_Window]) -> float:
    """Return the seconds between a line and the nearest of disjoint, sorted windows."""
    place = bisect_right(windows, line.time_end, key=itemgetter(0))
    gaps = [
        max(0.0, line.time_start - end, start - line.time_end)
        for start, end in windows[max(0, place - 1) : place + 1]
    ]
    return min(gaps, default=0.0)
