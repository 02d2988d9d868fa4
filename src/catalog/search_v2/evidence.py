"""What was said and shown around a moment of a recording, line by line in the order of time."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from catalog.core.documents import Chunk, Cue
from catalog.core.results import Evidence, EvidenceLine
from catalog.ingest.readers.timed.frames import is_frame_title, is_time_line, title_without_time

FRAME_CHARS = 600
"""Characters of one frame's line at most."""
_FRAME = "video_frame"
_HEADING = re.compile(r"#{1,6}[ \t]")
_FIELD = re.compile(r"[\w .-]{1,40}:(\s.*)?")
_LABEL = re.compile(
    r"(?:(?:visual|image|frame|scene|slide|detailed|short) )?"
    r"(?:descriptions?|captions?|contents?|summary|analysis)|alt(?: text)?"
    r"|ocr(?: text| output| results?)?"
    r"|(?:(?:visible|on-?screen|extracted|recogni[sz]ed|transcribed|slide) )?text"
    r"|text (?:in|on) (?:the )?(?:image|frame|screen|slide)",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")


class TimeWindow(NamedTuple):
    """Seconds of a recording, ``start <= end``, both included."""

    start: float
    end: float


def times_of(chunk: Chunk) -> TimeWindow:
    """Return when a timed passage begins and ends; at once, if it has no end or an earlier one."""
    first, last = chunk.locator.time_start or 0.0, chunk.locator.time_end
    return TimeWindow(first, first if last is None else max(first, last))


def format_evidence(evidence: Evidence) -> str:
    """Return the lines as a person or a language model reads them, one under the other."""
    return "\n".join(format_line(line) for line in evidence.lines)


def format_line(line: EvidenceLine) -> str:
    """Return ``00:01:05–00:01:18 (Audio, Anna): "…"``; one time where both are the same second."""
    first, last = format_timecode(line.time_start), format_timecode(line.time_end)
    times = first if first == last else f"{first}–{last}"
    return f'{times} ({", ".join(filter(None, (line.kind, line.speaker)))}): "{line.text}"'


def format_timecode(seconds: float) -> str:
    """Return ``HH:MM:SS``; a part of a second is dropped."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def short_frame_text(text: str) -> str:
    """Return what :func:`frame_text` does, at most :data:`FRAME_CHARS` characters of it."""
    shown = frame_text(text)
    if len(shown) <= FRAME_CHARS:
        return shown
    cut = shown.rfind(" ", FRAME_CHARS // 2, FRAME_CHARS)
    return f"{shown[: cut if cut > 0 else FRAME_CHARS - 1]}…"


def frame_text(text: str) -> str:
    """Return what a frame shows, on one line: without its heading, fields under it, and pictures.

    Of a heading that says more than when the frame is shown the rest stays, as of a slide's title,
    unless it is only a label (``### Description``). A frame that has nothing else is its heading.
    """
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    titles = [line.lstrip("# \t") for line in lines if _HEADING.match(line)]
    heading = titles[0] if titles and _HEADING.match(lines[0]) else ""
    if heading and any(map(is_frame_title, titles)):
        del lines[0]
    if heading and lines and lines[0] == "---":
        lines = _without_fields(lines)
    elif heading and lines[1:2] == ["---"]:
        lines[1:] = _without_fields(lines[1:])
    shown = " ".join(_strip_heading(line) for line in lines if not is_time_line(line))
    return _one_line(_IMAGE.sub(" ", shown)) or heading


def _strip_heading(line: str) -> str:
    """Return a line as it is, a heading without its marks and time, a label as nothing."""
    mark = _HEADING.match(line)
    if mark is None:
        return line
    title = line[mark.end() :].strip().rstrip("#").rstrip()
    return "" if _LABEL.fullmatch(title.rstrip(":")) else title_without_time(title)


def _without_fields(lines: list[str]) -> list[str]:
    """Drop ``name: value`` lines between two ``---`` at the top."""
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return lines
    end = lines.index("---", 1)
    return lines[end + 1 :] if all(map(_FIELD.fullmatch, lines[1:end])) else lines


def build_evidence_lines(
    anchors: Sequence[Chunk], others: Iterable[Chunk], window: TimeWindow, *, max_chars: int
) -> tuple[EvidenceLine, ...]:
    """Return the anchors whole, and of the other passages what falls into the window, by time.

    Cues that follow one another are one line until the speaker changes, a frame comes, or the
    passage ends. Of other passages' frames that show the same one after another, the first is
    told, until the last of them; if an anchor is among them, that. Other passages' lines are
    taken, the nearest to an anchor first, while all together are within ``max_chars`` characters
    of text.
    """
    times = {chunk.chunk_id: times_of(chunk) for chunk in anchors}
    neighbours = [chunk for chunk in others if chunk.chunk_id not in times]
    moments = [
        moment
        for chunk, cues in _without_overlaps([*_by_row(anchors), *_by_row(neighbours)])
        for moment in _moments(chunk, cues)
        if chunk.chunk_id in times or _is_within(moment, window)
    ]
    moments.sort(key=lambda moment: (moment.time_start, _is_frame(moment)))
    lines = _join_cues(_show_once(moments, times))
    room = max_chars - sum(len(line.text) for line in lines if line.chunk_id in times)
    shown = {number for number, line in enumerate(lines) if line.chunk_id in times}
    further = [number for number in range(len(lines)) if number not in shown]
    for number in sorted(further, key=lambda number: _gap(lines[number], times.values())):
        room -= len(lines[number].text)
        if room < 0:
            break
        shown.add(number)
    return tuple(line for number, line in enumerate(lines) if number in shown)


def drop_repeated(anchors: Sequence[Chunk], near: Sequence[Chunk]) -> list[Chunk]:
    """Return the neighbours without what an anchor's recording tells twice.

    That is another transcript (a second format or language) of seconds that one has been taken
    for: an anchor's before any other, then the one of the shortest path. It is also a passage of
    another revision of an anchor's document.
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
            if any(_repeats(chunk, other) for other in transcripts):
                continue
            transcripts.append(chunk)
        kept.append(chunk)
    return kept


def group_transcripts(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group the numbers of a recording's passages: apart where transcripts tell the same seconds.

    Each goes with the first ones possible, so that frames go with the first transcript.
    """
    groups: list[list[int]] = []
    for number, chunk in enumerate(chunks):
        for group in groups:
            if not any(_repeats(chunk, chunks[other]) for other in group):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _repeats(chunk: Chunk, other: Chunk) -> bool:
    """Return whether two transcripts of different documents tell the same seconds."""
    if chunk.source_doc_id == other.source_doc_id or _FRAME in (chunk.modality, other.modality):
        return False
    a, b = times_of(chunk), times_of(other)
    return min(a.end, b.end) > max(a.start, b.start)


def _by_row(chunks: Iterable[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.seq)


def _without_overlaps(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Cue]]]:
    """Yield each passage with its cues, less what an earlier one of the document has of them."""
    told: dict[str, list[tuple[int, int]]] = {}
    for chunk in chunks:
        times, base = times_of(chunk), chunk.start_offset
        cues = chunk.cues or (Cue(0, len(chunk.text), *times),)
        before = told.setdefault(chunk.source_doc_id, [])
        yield (
            chunk,
            [
                replace(cue, start=start - base, end=end - base)
                for cue in cues
                for start, end in _subtract((base + cue.start, base + cue.end), before)
            ],
        )
        before.append((chunk.start_offset, chunk.end_offset))


def _subtract(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is left of a span without the others."""
    left = [span]
    for low, high in others:
        parts = ((start, min(end, low), max(start, high), end) for start, end in left)
        left = [
            (first, last)
            for start, before, after, end in parts
            for first, last in ((start, before), (after, end))
            if first < last
        ]
    return left


def _moments(chunk: Chunk, cues: Iterable[Cue]) -> Iterator[EvidenceLine]:
    """Return a line for each of the cues of a passage, or for its frame."""
    whole = times_of(chunk)
    if chunk.modality == _FRAME:
        yield EvidenceLine(
            time_start=whole.start,
            time_end=whole.end,
            kind="Screen",
            speaker=None,
            text=short_frame_text(chunk.text),
            chunk_id=chunk.chunk_id,
        )
        return
    for cue in cues:
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
            )


def _is_frame(line: EvidenceLine) -> bool:
    return line.kind == "Screen"


def _is_within(line: EvidenceLine, window: TimeWindow) -> bool:
    if line.time_start == line.time_end:
        return window.start <= line.time_start <= window.end
    return line.time_start < window.end and line.time_end > window.start


def _show_once(moments: Sequence[EvidenceLine], anchors: Container[str]) -> Iterator[EvidenceLine]:
    """Return, of frames after one another that show the same, the anchors, else one for all."""
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
    """Join cues of one passage and speaker that follow one another into one line."""
    lines: list[EvidenceLine] = []
    for _, run in groupby(moments, key=_join_key):
        first, *more = run
        if more:
            end = max(moment.time_end for moment in (first, *more))
            text = " ".join(moment.text for moment in (first, *more))
            first = first.model_copy(update={"time_end": end, "text": text})
        lines.append(first)
    return lines


def _join_key(moment: EvidenceLine) -> tuple[str, str | None]:
    return moment.chunk_id, moment.speaker


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _gap(line: EvidenceLine, anchors: Iterable[TimeWindow]) -> float:
    """Return the seconds between a line and the nearest anchor."""
    return min(
        max(0.0, line.time_start - anchor.end, anchor.start - line.time_end) for anchor in anchors
    )
