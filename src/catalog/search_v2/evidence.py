"""What was said and shown around a moment of a recording, line by line in the order of time."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from catalog.core.documents import Chunk, Cue
from catalog.core.results import Evidence, EvidenceLine

FRAME_CHARS = 600
"""Characters of one frame's line at most."""
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


def short_frame_text(text: str) -> str:
    """What a frame shows, on one line: without its heading, the fields under it, and pictures.

    Of a heading below its own the text stays, as of a slide's title, unless it is only a label
    (``### Description``).

    At most :data:`FRAME_CHARS` characters. A frame that has nothing else is its heading.
    """
    shown = frame_text(text)
    if len(shown) <= FRAME_CHARS:
        return shown
    cut = shown.rfind(" ", FRAME_CHARS // 2, FRAME_CHARS)
    return f"{shown[: cut if cut > 0 else FRAME_CHARS - 1]}…"


def frame_text(text: str) -> str:
    """The same in full."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    heading = lines.pop(0).lstrip("# \t") if lines and _HEADING.match(lines[0]) else ""
    told = [_titled(line) for line in _without_fields(lines)]
    return " ".join(_IMAGE.sub(" ", " ".join(told)).split()) or heading


def _titled(line: str) -> str:
    """A line as it is, a heading without its marks, a label as nothing."""
    mark = _HEADING.match(line)
    if mark is None:
        return line
    title = line[mark.end() :].strip().rstrip("#").rstrip()
    return "" if _LABEL.fullmatch(title.rstrip(":")) else title


def _without_fields(lines: list[str]) -> list[str]:
    """Without ``name: value`` lines between two ``---`` at the top."""
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return lines
    end = lines.index("---", 1)
    return lines[end + 1 :] if all(map(_FIELD.fullmatch, lines[1:end])) else lines


_FRAME = "video_frame"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Seconds of a recording, ``start <= end``, both included."""

    start: float
    end: float


def format_evidence(evidence: Evidence) -> str:
    """The lines as a person or a language model reads them, one under the other."""
    return "\n".join(format_line(line) for line in evidence.lines)


def format_line(line: EvidenceLine) -> str:
    """``00:01:05–00:01:18 (Audio, Anna): "…"``; one time where both are of the same second."""
    first, last = format_timecode(line.time_start), format_timecode(line.time_end)
    times = first if first == last else f"{first}–{last}"
    return f'{times} ({", ".join(filter(None, (line.kind, line.speaker)))}): "{line.text}"'


def format_timecode(seconds: float) -> str:
    """``HH:MM:SS``; a part of a second is dropped."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def times_of(chunk: Chunk) -> TimeWindow:
    """When a timed passage begins and ends; without an end, or one before its start, at once."""
    first = chunk.locator.time_start or 0.0
    last = chunk.locator.time_end
    return TimeWindow(first, first if last is None else max(first, last))


def build_evidence_lines(
    anchors: Sequence[Chunk], others: Iterable[Chunk], window: TimeWindow, *, max_chars: int
) -> tuple[EvidenceLine, ...]:
    """The anchors whole, and of the other passages what falls into the window, by time.

    Cues that follow one another are one line until the speaker changes, a frame comes, or the
    passage ends. Of other passages' frames that show the same one after another, the first is
    told, until the last of them; if an anchor is among them, that. Other passages' lines are
    taken, the nearest to an anchor first, while all together are within ``max_chars`` characters
    of text.
    """
    ours = {chunk.chunk_id: times_of(chunk) for chunk in anchors}
    moments = [moment for chunk in anchors for moment in _moments(chunk)]
    for chunk in others:
        if chunk.chunk_id not in ours:
            moments += (one for one in _moments(chunk) if one.is_in(window))
    lines = list(_grouped(_shown_once(sorted(moments, key=_Moment.order), ours)))
    left = max_chars - sum(len(line.text) for line in lines if line.chunk_id in ours)
    kept = {number for number, line in enumerate(lines) if line.chunk_id in ours}
    further = [number for number in range(len(lines)) if number not in kept]
    for number in sorted(further, key=lambda number: _gap(lines[number], ours.values())):
        left -= len(lines[number].text)
        if left < 0:
            break
        kept.add(number)
    return tuple(line for number, line in enumerate(lines) if number in kept)


def drop_repeated(anchors: Sequence[Chunk], near: Sequence[Chunk]) -> list[Chunk]:
    """The neighbours without what an anchor's recording tells twice.

    That is another transcript (a second format or language) of seconds that one has been taken
    for: an anchor's before any other, then the one of the shortest path. It is also a passage of
    another revision of an anchor's document.
    """
    revisions = {chunk.source_doc_id: chunk.docid for chunk in anchors}
    taken = [chunk for chunk in anchors if chunk.modality != "video_frame"]
    speaking = {chunk.source_doc_id for chunk in taken}
    kept = []

    def later(chunk: Chunk) -> tuple[bool, int, str]:
        return chunk.source_doc_id not in speaking, len(chunk.path), chunk.path

    for chunk in sorted(near, key=later):
        if revisions.get(chunk.source_doc_id, chunk.docid) != chunk.docid:
            continue
        if chunk.modality != "video_frame":
            if any(_tells_again(chunk, one) for one in taken):
                continue
            taken.append(chunk)
        kept.append(chunk)
    return kept


def group_transcripts(found: Sequence[Chunk]) -> list[list[int]]:
    """The numbers of a recording's passages, apart where transcripts tell the same seconds.

    Each goes with the first ones possible, so that frames go with the first transcript.
    """
    groups: list[list[int]] = []
    for number, chunk in enumerate(found):
        for group in groups:
            if not any(_tells_again(chunk, found[other]) for other in group):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _tells_again(chunk: Chunk, taken: Chunk) -> bool:
    if chunk.source_doc_id == taken.source_doc_id or _FRAME in (chunk.modality, taken.modality):
        return False
    one, other = times_of(chunk), times_of(taken)
    return min(one.end, other.end) > max(one.start, other.start)


@dataclass(frozen=True, slots=True)
class _Moment:
    """One cue or one frame."""

    chunk: Chunk
    start: float
    end: float
    speaker: str | None
    text: str

    @property
    def is_frame(self) -> bool:
        return self.chunk.modality == _FRAME

    def order(self) -> tuple[float, bool, int]:
        return self.start, self.is_frame, self.chunk.seq

    def is_in(self, window: TimeWindow) -> bool:
        if self.start == self.end:
            return window.start <= self.start <= window.end
        return self.start < window.end and self.end > window.start

    def goes_on(self, before: _Moment) -> bool:
        same = self.chunk.chunk_id == before.chunk.chunk_id and self.speaker == before.speaker
        return same and not self.is_frame


def _moments(chunk: Chunk) -> Iterator[_Moment]:
    whole = times_of(chunk)
    if chunk.modality == _FRAME:
        yield _Moment(chunk, whole.start, whole.end, None, short_frame_text(chunk.text))
        return
    for cue in chunk.cues or (Cue(0, len(chunk.text), whole.start, whole.end),):
        text = _one_line(chunk.text[cue.start : cue.end])
        speaker = _one_line(cue.speaker or "") or None
        if speaker is not None:
            text = text.removeprefix(f"{speaker}:").lstrip()
        if text:
            end = max(cue.time_start, cue.time_end)
            yield _Moment(chunk, cue.time_start, end, speaker, text)


def _shown_once(moments: Sequence[_Moment], anchors: Container[str]) -> Iterator[_Moment]:
    """Of frames after one another that show the same, the anchors, else the first for all."""
    frames = [number for number, moment in enumerate(moments) if moment.is_frame]
    told: dict[int, _Moment] = {}
    for _, run in groupby(frames, key=lambda number: moments[number].text):
        same = list(run)
        ours = [number for number in same if moments[number].chunk.chunk_id in anchors]
        told.update((number, moments[number]) for number in ours)
        if not ours:
            told[same[0]] = replace(moments[same[0]], end=max(moments[n].end for n in same))
    for number, moment in enumerate(moments):
        if not moment.is_frame:
            yield moment
        elif number in told:
            yield told[number]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _grouped(moments: Iterable[_Moment]) -> Iterator[EvidenceLine]:
    group: list[_Moment] = []
    for moment in moments:
        if group and not moment.goes_on(group[-1]):
            yield _line(group)
            group = []
        group.append(moment)
    if group:
        yield _line(group)


def _line(group: Sequence[_Moment]) -> EvidenceLine:
    first = group[0]
    return EvidenceLine(
        time_start=first.start,
        time_end=max(one.end for one in group),
        kind="Screen" if first.is_frame else "Audio",
        speaker=first.speaker,
        text=" ".join(one.text for one in group),
        chunk_id=first.chunk.chunk_id,
    )


def _gap(line: EvidenceLine, anchors: Iterable[TimeWindow]) -> float:
    """Seconds between a line and the nearest anchor."""
    return min(max(0.0, line.time_start - one.end, one.start - line.time_end) for one in anchors)
