"""Recordings: give found passages the lines said and shown around them, in order of time.

    window of a transcript = its seconds ± 15, of a frame ± 10 (settings), within the recording

Windows of one recording that overlap or touch are joined, so nearby passages share one bundle of
evidence. Two transcripts of the same seconds do not share one. Passages, their order and their
scores stay the same.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.documents import Chunk, Cue
from catalog.core.results import TIMED_MODALITIES, Evidence, EvidenceLine
from catalog.core.text import counted, format_timecode
from catalog.retrieval.citations import recording_link
from catalog.retrieval.snippets import Passage, find_snippet
from catalog.store.recordings import (
    find_media_end,
    find_media_file,
    load_chunks_between,
    media_key,
    recording_name,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.store import Database
    from catalog.store.restriction import Restriction

FRAME_CHARS = 600  # of one frame's line at most
_SENTENCE_CHARS = 300  # of a sentence at most; of captions without full stops, of a caption
_LINE_SECONDS = 15  # of a line at most, unless a single cue is longer
_FRAME, _by_time = "video_frame", attrgetter("time_start", "kind")  # Audio before Screen
_HEADING = re.compile(r"#{1,6}[ \t]")
_FIELD = re.compile(r"[\w .-]{1,40}:(\s.*)?")
_IMAGE = re.compile(r"!\[[^\[\]]*+\]\([^()]*+\)")


class TimeWindow(NamedTuple):
    """Seconds of a recording, ``start <= end``, both included."""

    start: float
    end: float


def is_timed(chunk: Chunk) -> bool:
    """Return whether the passage belongs to a moment of a recording."""
    start = chunk.locator.time_start
    return chunk.modality in TIMED_MODALITIES and start is not None and math.isfinite(start)


def times_of(chunk: Chunk) -> TimeWindow:
    """Return begin and end of a timed passage; the end is the begin if it is missing or earlier."""
    first, last = chunk.locator.time_start or 0.0, chunk.locator.time_end
    return TimeWindow(first, first if last is None else max(first, last))


def seconds_around(
    chunk: Chunk, *, transcript_seconds: float, frame_seconds: float, media_end: float
) -> TimeWindow:
    """Return the window of a passage: within 0 and ``media_end``, or the passage's own end."""
    around = frame_seconds if chunk.modality == _FRAME else transcript_seconds
    times = times_of(chunk)
    start = min(times.start, max(0.0, times.start - around))
    return TimeWindow(start, max(times.end, min(media_end, times.end + around)))


def add_evidence(
    passages: Sequence[Passage],
    database: Database,
    *,
    transcript_seconds: float = 15.0,
    frame_seconds: float = 10.0,
    max_chars: int = 6000,
    restriction: Restriction | None = None,
    words: str = "",
) -> tuple[list[Passage], str]:
    """Return the passages, those of recordings with evidence, and a note on the bundles.

    Neighbours are passages that ``restriction`` allows, by default that of the passage's own
    search; without either there are none. The best sentence is that of a passage's snippet, else
    the one with most of ``words``.
    """
    expanded, bundles = list(passages), 0
    timed = [place for place, passage in enumerate(passages) if is_timed(passage.chunk)]
    if not timed:
        return expanded, ""
    recordings: dict[tuple[str, str | None, str, Restriction | None], list[int]] = defaultdict(list)
    for place in timed:
        chunk, media = passages[place].chunk, media_key(passages[place].chunk)
        document = chunk.source_doc_id if media is None else ""
        allowed = restriction or passages[place].restriction
        recordings[chunk.dataset, media, document, allowed].append(place)
    sizes = {"transcript_seconds": transcript_seconds, "frame_seconds": frame_seconds}
    with database.read() as connection:
        for (*_, allowed), places in recordings.items():
            chunks = [passages[place].chunk for place in places]
            end = find_media_end(connection, chunks[0])
            windows = [seconds_around(chunk, **sizes, media_end=end) for chunk in chunks]
            for group in group_transcripts(chunks):
                for window, joined in merge_windows([windows[number] for number in group]):
                    bundles += 1
                    anchors = sorted(places[group[number]] for number in joined)
                    found = [passages[place] for place in anchors]
                    evidence = _evidence(connection, found, window, allowed, max_chars, words)
                    for place in anchors:
                        expanded[place] = passages[place]._replace(
                            evidence=evidence, repeats_evidence=place != anchors[0]
                        )
    return expanded, f"{counted(len(timed), 'hit')} in {counted(bundles, 'bundle')}"


def merge_windows(windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[int]]]:
    """Return the union of windows as disjoint windows by time, with the numbers of their parts."""
    merged: list[tuple[TimeWindow, list[int]]] = []
    for number, window in sorted(enumerate(windows), key=lambda pair: pair[1].start):
        if merged and window.start <= merged[-1][0].end:
            (start, end), numbers = merged[-1]
            merged[-1] = TimeWindow(start, max(end, window.end)), [*numbers, number]
        else:
            merged.append((window, [number]))
    return merged


def group_transcripts(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group positions of a recording's passages: no group has two transcripts of one second."""
    groups: list[list[int]] = []
    for number, chunk in enumerate(chunks):
        for group in groups:
            if not any(_repeats(chunk, chunks[one]) for one in group):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _repeats(chunk: Chunk, other: Chunk) -> bool:
    """Return whether two transcripts of different documents cover the same seconds."""
    if chunk.source_doc_id == other.source_doc_id or _FRAME in (chunk.modality, other.modality):
        return False
    a, b = times_of(chunk), times_of(other)
    return min(a.end, b.end) > max(a.start, b.start)


def _evidence(
    connection: Connection,
    passages: Sequence[Passage],
    window: TimeWindow,
    restriction: Restriction | None,
    max_chars: int,
    words: str,
) -> Evidence:
    first, best = passages[0].chunk, dict[str, tuple[int, int]]()
    for passage in passages:
        if passage.snippet is not None:
            best[passage.chunk.chunk_id] = passage.snippet.best
        elif words:
            best[passage.chunk.chunk_id] = find_snippet(passage.chunk, words, _SENTENCE_CHARS).best
    chunks = (passage.chunk for passage in passages)
    anchors = sorted(chunks, key=lambda chunk: (times_of(chunk).start, chunk.seq))
    near = [*load_chunks_between(connection, restriction, first, *window)] if restriction else []
    others = drop_repeated(anchors, near)
    metadata = [chunk.metadata for chunk in (*anchors, *others)]
    addresses = (fields["source_url"] for fields in metadata if "source_url" in fields)
    files = (fields.get("media_file") for fields in metadata)
    file = next((file for file in files if isinstance(file, str) and file), None)
    file = file or find_media_file(connection, anchors[0])
    second = times_of(anchors[0]).start
    return Evidence(
        best_sentence=_best_line(first, best.get(first.chunk_id)),
        media=recording_name(file, anchors[0]),
        dataset=first.dataset,
        start=window.start,
        end=window.end,
        lines=build_evidence_lines(anchors, others, window, max_chars=max_chars, best=best),
        anchors=tuple(chunk.chunk_id for chunk in anchors),
        link=recording_link(next(addresses, None), file or anchors[0].path, second),
    )


def drop_repeated(anchors: Sequence[Chunk], near: Sequence[Chunk]) -> list[Chunk]:
    """Return the neighbours without second transcripts and other revisions of the anchors.

    The transcript of an anchor is preferred, then the one with the shortest path.
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


def build_evidence_lines(
    anchors: Sequence[Chunk],
    others: Iterable[Chunk],
    window: TimeWindow,
    *,
    max_chars: int,
    best: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[EvidenceLine, ...]:
    """Return the lines of the anchors and of other passages within the window, by time.

    ``best`` has the place of an anchor's best sentence by chunk id; that sentence gets its own
    line. :func:`cut_lines` limits the text to ``max_chars`` characters.
    """
    found, by_row = {chunk.chunk_id for chunk in anchors}, attrgetter("seq")
    rest = (one for one in others if one.chunk_id not in found)
    told: dict[str, list[tuple[int, int]]] = {}  # passages overlap, and each word is shown once
    moments = []
    for chunk in (*sorted(anchors, key=by_row), *sorted(rest, key=by_row)):
        before, base = told.setdefault(chunk.source_doc_id, []), chunk.start_offset
        cues = [
            cue._replace(start=start - base, end=end - base)
            for cue in _cues_of(chunk)
            for start, end in _untold((base + cue.start, base + cue.end), before)
        ]
        before.append((base, chunk.end_offset))
        lines = _moments(chunk, cues, (best or {}).get(chunk.chunk_id))
        is_found = chunk.chunk_id in found
        moments += [line for line in lines if is_found or _is_within(line, window)]
    moments.sort(key=_by_time)
    return cut_lines(_join_cues(_show_once(moments, found)), max_chars, anchors=found)


def _cues_of(chunk: Chunk) -> Sequence[Cue]:
    return chunk.cues or (Cue(0, len(chunk.text), *times_of(chunk)),)


def _untold(span: tuple[int, int], told: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a span that are outside the spans told before."""
    parts = [span]
    for low, high in told:
        before = [(start, min(end, low)) for start, end in parts]
        after = [(max(start, high), end) for start, end in parts]
        parts = [(start, end) for start, end in sorted({*before, *after}) if start < end]
    return parts


def _best_line(chunk: Chunk, best: tuple[int, int] | None) -> EvidenceLine | None:
    """Return the sentence at ``best`` in a passage as one line; for a frame, the whole text."""
    if not (lines := [line for line in _moments(chunk, _cues_of(chunk), best) if line.is_best]):
        return None
    text = " ".join(line.text for line in lines)
    end = max(line.time_end for line in lines)
    return lines[0].model_copy(update={"text": text, "time_end": end})


def _moments(
    chunk: Chunk, cues: Iterable[Cue], best: tuple[int, int] | None
) -> Iterator[EvidenceLine]:
    """Yield a line for each cue of a passage, cut around its best sentence, or one for a frame."""
    line = partial(EvidenceLine, chunk_id=chunk.chunk_id)
    if chunk.modality == _FRAME:
        first, last = times_of(chunk)
        shown = {"text": short_frame_text(chunk.text), "is_best": best is not None}
        yield line(kind="Screen", speaker=None, time_start=first, time_end=last, **shown)
        return
    for cue in cues:
        low, high = (min(max(at, cue.start), cue.end) for at in best or (cue.end, cue.end))
        speaker = " ".join((cue.speaker or "").split()) or None
        last = max(cue.time_start, cue.time_end)
        said = partial(
            line, kind="Audio", time_start=cue.time_start, time_end=last, speaker=speaker
        )
        for span in ((cue.start, low), (low, high), (high, cue.end)):
            text = " ".join(chunk.text[slice(*span)].split())
            if text := text.removeprefix(f"{speaker}:").lstrip():
                yield said(text=text, is_best=span == (low, high))


def _is_within(line: EvidenceLine, window: TimeWindow) -> bool:
    if line.time_start == line.time_end:
        return window.start <= line.time_start <= window.end
    return line.time_start < window.end and line.time_end > window.start


def _show_once(moments: Sequence[EvidenceLine], anchors: Container[str]) -> list[EvidenceLine]:
    """Reduce consecutive frames that show the same to the anchors among them, or else to one."""
    shown = [moment for moment in moments if moment.kind != "Screen"]
    frames = (moment for moment in moments if moment.kind == "Screen")
    for _, run in groupby(frames, key=lambda moment: moment.text):
        same = list(run)
        end = max(frame.time_end for frame in same)
        found = [frame for frame in same if frame.chunk_id in anchors]
        shown += found or [same[0].model_copy(update={"time_end": end})]
    return sorted(shown, key=_by_time)


def _join_cues(moments: Iterable[EvidenceLine]) -> list[EvidenceLine]:
    """Join consecutive cues of one passage and speaker to lines that can be followed by ear."""
    lines, voice = list[EvidenceLine](), attrgetter("chunk_id", "speaker", "is_best")
    for moment in moments:
        last = lines[-1] if lines else moment
        is_short = moment.is_best or moment.time_end - last.time_start <= _LINE_SECONDS
        if lines and voice(last) == voice(moment) and is_short:
            end = max(last.time_end, moment.time_end)
            text = f"{last.text} {moment.text}"
            lines[-1] = last.model_copy(update={"time_end": end, "text": text})
        else:
            lines.append(moment)
    return lines


def cut_lines(
    lines: Sequence[EvidenceLine], max_chars: int, *, anchors: Container[str] = ()
) -> tuple[EvidenceLine, ...]:
    """Return the best sentences, and the nearest lines around them within ``max_chars`` characters.

    Lines of the found passages (``anchors``, by chunk id) come before others, and are kept whole
    without a best sentence. A line that has no room ends its side.
    """
    kept = {number for number, line in enumerate(lines) if line.is_best}
    kept = kept or {number for number, line in enumerate(lines) if line.chunk_id in anchors}
    middles, room = sorted(kept), max_chars - sum(len(lines[number].text) for number in kept)

    def rank(number: int) -> tuple[bool, int, float, int, bool]:
        """Return the order in which lines are added, then the nearest kept line and the side."""
        line = lines[number]
        middle = min(middles, key=lambda one: abs(one - number), default=0)
        start, end = lines[middle].time_start, lines[middle].time_end
        seconds = max(line.time_start - end, start - line.time_end)
        away = abs(number - middle)
        return line.chunk_id not in anchors, away, seconds, middle, number < middle

    full = set[tuple[int, bool]]()
    for *_, middle, is_before, number in sorted(
        (*rank(number), number) for number in range(len(lines)) if number not in kept
    ):
        size = len(lines[number].text)
        if (middle, is_before) in full or size > room:
            full.add((middle, is_before))  # a further line would leave a hole
        else:
            kept.add(number)
            room -= size
    return tuple(lines[number] for number in sorted(kept))


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


def short_frame_text(text: str) -> str:
    """Return the first :data:`FRAME_CHARS` characters of :func:`frame_text`."""
    shown = frame_text(text)
    if len(shown) <= FRAME_CHARS:
        return shown
    cut = shown.rfind(" ", FRAME_CHARS // 2, FRAME_CHARS)
    return f"{shown[: cut if cut > 0 else FRAME_CHARS - 1]}…"


def frame_text(text: str) -> str:
    """Return a frame's description on one line, without its heading, fields below it, and pictures.

    If the heading has more than the frame's time, such as a slide's title, the rest stays. A frame
    with nothing else gives its heading.
    """
    from catalog.ingest.readers.timed.frames import (  # all readers
        is_frame_title,
        is_time_line,
        title_without_time,
    )

    def told(line: str) -> str:
        if (mark := _HEADING.match(line)) is None:
            return line
        return title_without_time(line[mark.end() :].strip().rstrip("#").rstrip())

    lines = [line for line in map(str.strip, text.splitlines()) if line]
    titles = [line.lstrip("# \t") for line in lines if _HEADING.match(line)]
    heading = titles[0] if titles and _HEADING.match(lines[0]) else ""
    if heading and any(map(is_frame_title, titles)):
        del lines[0]
    for at in (0, 1) if heading else ():
        if lines[at : at + 1] == ["---"] and "---" in lines[at + 1 :]:
            end = lines.index("---", at + 1)
            if all(map(_FIELD.fullmatch, lines[at + 1 : end])):
                del lines[at : end + 1]
    shown = " ".join(told(line) for line in lines if not is_time_line(line))
    return " ".join(_IMAGE.sub(" ", shown).split()) or heading
