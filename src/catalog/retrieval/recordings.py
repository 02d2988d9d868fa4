"""Recordings: give found passages the lines said and shown around them, in order of time.

    window of a transcript = its seconds ± 15, of a frame ± 10 (settings), within the recording

Windows of one recording that overlap or touch are joined, so nearby passages share one bundle of
evidence. Two transcripts of the same seconds do not share one. Passages, their order and their
scores stay the same.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from catalog.core.documents import Chunk, Cue
from catalog.core.results import TIMED_MODALITIES, Evidence, EvidenceLine
from catalog.core.text import format_timecode
from catalog.ingest.readers.timed.frames import is_frame_title, is_time_line, title_without_time
from catalog.retrieval.citations import recording_link
from catalog.retrieval.passages import Passage
from catalog.retrieval.snippets import find_snippet
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
    from catalog.store.engine_types import Restriction

FRAME_CHARS = 600
"""Characters of one frame's line at most."""
_SENTENCE_CHARS = 300  # of a sentence at most; of captions without full stops, of a caption
_LINE_SECONDS = 15  # of a line at most, unless a single cue is longer
_LEAST_CHARS = 20  # of a line that is cut
_SPARE = 4  # times the characters of a bundle that are looked at
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
    the one with most of ``words``. Without timed passages the store is not read and the note is "".
    """
    expanded, bundles = list(passages), 0
    timed = [place for place, passage in enumerate(passages) if is_timed(passage.chunk)]
    if not timed:
        return expanded, ""
    with database.read() as connection:
        for (*_, allowed), places in _by_recording(passages, timed, restriction).items():
            chunks = [passages[place].chunk for place in places]
            end = find_media_end(connection, chunks[0])
            windows = [
                seconds_around(
                    chunk,
                    transcript_seconds=transcript_seconds,
                    frame_seconds=frame_seconds,
                    media_end=end,
                )
                for chunk in chunks
            ]
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
    hits = f"{len(timed)} {'hit' if len(timed) == 1 else 'hits'}"
    return expanded, f"{hits} in {bundles} {'bundle' if bundles == 1 else 'bundles'}"


def _by_recording(
    passages: Sequence[Passage], timed: Iterable[int], restriction: Restriction | None
) -> dict[tuple[str, str | None, str, Restriction | None], list[int]]:
    """Group the places of passages that may be neighbours: by recording and restriction."""
    groups: dict[tuple[str, str | None, str, Restriction | None], list[int]] = {}
    for place in timed:
        chunk, allowed = passages[place].chunk, restriction or passages[place].restriction
        media = media_key(chunk)
        key = chunk.dataset, media, chunk.source_doc_id if media is None else "", allowed
        groups.setdefault(key, []).append(place)
    return groups


def merge_windows(windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[int]]]:
    """Return the union of windows as disjoint windows by time, with the numbers of their parts.

    Windows that touch are joined.
    """
    merged: list[tuple[TimeWindow, list[int]]] = []
    for number in sorted(range(len(windows)), key=lambda number: windows[number].start):
        window = windows[number]
        if merged and window.start <= merged[-1][0].end:
            last, numbers = merged[-1]
            whole = TimeWindow(last.start, max(last.end, window.end))
            merged[-1] = whole, [*numbers, number]
        else:
            merged.append((window, [number]))
    return merged


def group_transcripts(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group the positions of a recording's passages so that no group has two transcripts at once.

    Each passage joins the first possible group, so frames join the first transcript.
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
    """Return the evidence of passages in one window, best first."""
    first = passages[0].chunk
    best = {
        passage.chunk.chunk_id: span
        for passage in passages
        if (span := _best_sentence(passage, words)) is not None
    }
    anchors = sorted(
        (one.chunk for one in passages), key=lambda chunk: (times_of(chunk).start, chunk.seq)
    )
    near: list[Chunk] = []
    if restriction is not None:
        near = load_chunks_between(connection, restriction, first, *window)
    others = drop_repeated(anchors, keep_nearest(first, near, max_chars))
    metadata = [chunk.metadata for chunk in (*anchors, *others)]
    addresses = (fields["source_url"] for fields in metadata if "source_url" in fields)
    files = (fields.get("media_file") for fields in metadata)
    file = next((file for file in files if isinstance(file, str) and file), None)
    file = file or find_media_file(connection, anchors[0])
    return Evidence(
        best_sentence=_best_line(first, best.get(first.chunk_id)),
        media=recording_name(file, anchors[0]),
        dataset=first.dataset,
        start=window.start,
        end=window.end,
        lines=build_evidence_lines(anchors, others, window, max_chars=max_chars, best=best),
        anchors=tuple(chunk.chunk_id for chunk in anchors),
        link=recording_link(
            next(addresses, None), file or anchors[0].path, times_of(anchors[0]).start
        ),
    )


def _best_sentence(passage: Passage, words: str) -> tuple[int, int] | None:
    """Return the place of a passage's best sentence; ``None`` without a query."""
    if passage.snippet is not None:
        return passage.snippet.best
    return find_snippet(passage.chunk, words, _SENTENCE_CHARS).best if words else None


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

    Consecutive cues are joined to lines of up to 15 seconds; a line ends where the speaker changes,
    a frame comes, or the passage ends. ``best`` has the place of an anchor's best sentence by chunk
    id; that sentence gets its own line. If frames of other passages show the same one after
    another, the first stands for all of them, or an anchor if there is one. :func:`cut_lines`
    limits the text to ``max_chars`` characters.
    """
    found = {chunk.chunk_id for chunk in anchors}
    by_row = sorted(anchors, key=lambda chunk: chunk.seq)
    by_row += sorted(
        (one for one in others if one.chunk_id not in found), key=lambda chunk: chunk.seq
    )
    told: dict[str, list[tuple[int, int]]] = {}  # passages overlap, and each word is shown once
    moments = []
    for chunk in by_row:
        before, base = told.setdefault(chunk.source_doc_id, []), chunk.start_offset
        cues = [
            cue._replace(start=start - base, end=end - base)
            for cue in _cues_of(chunk)
            for start, end in _untold((base + cue.start, base + cue.end), before)
        ]
        before.append((base, chunk.end_offset))
        span = (best or {}).get(chunk.chunk_id)
        is_found = chunk.chunk_id in found
        moments += [
            line for line in _moments(chunk, cues, span) if is_found or _is_within(line, window)
        ]
    moments.sort(key=lambda moment: (moment.time_start, moment.kind == "Screen"))
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
    for cue in cues:
        low, high = (min(max(at, cue.start), cue.end) for at in best or (cue.end, cue.end))
        speaker = _one_line(cue.speaker or "") or None
        for start, end in ((cue.start, low), (low, high), (high, cue.end)):
            text = _one_line(chunk.text[start:end])
            text = text if speaker is None else text.removeprefix(f"{speaker}:").lstrip()
            if text:
                yield EvidenceLine(
                    time_start=cue.time_start,
                    time_end=max(cue.time_start, cue.time_end),
                    kind="Audio",
                    speaker=speaker,
                    text=text,
                    chunk_id=chunk.chunk_id,
                    is_best=(start, end) == (low, high),
                )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _is_within(line: EvidenceLine, window: TimeWindow) -> bool:
    if line.time_start == line.time_end:
        return window.start <= line.time_start <= window.end
    return line.time_start < window.end and line.time_end > window.start


def _show_once(moments: Sequence[EvidenceLine], anchors: Container[str]) -> Iterator[EvidenceLine]:
    """Reduce consecutive frames that show the same to the anchors among them, or else to one."""
    frames = [number for number, moment in enumerate(moments) if moment.kind == "Screen"]
    shown: dict[int, EvidenceLine] = {}
    for _, run in groupby(frames, key=lambda number: moments[number].text):
        same = list(run)
        of_anchors = [number for number in same if moments[number].chunk_id in anchors]
        shown.update((number, moments[number]) for number in of_anchors)
        if not of_anchors:
            end = max(moments[number].time_end for number in same)
            shown[same[0]] = moments[same[0]].model_copy(update={"time_end": end})
    for number, moment in enumerate(moments):
        if moment.kind != "Screen":
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
    times = [TimeWindow(line.time_start, line.time_end) for line in kept.values()]
    windows = [window for window, _ in merge_windows(times)]
    room = max_chars - sum(len(line.text) for line in kept.values())

    def side(number: int) -> tuple[int, bool]:
        """Return the nearest kept line, and whether ``number`` is before it."""
        place = bisect_left(middles, number)
        nearest = middles[max(0, place - 1) : place + 1]
        middle = min(nearest, key=lambda middle: abs(number - middle), default=0)
        return middle, number < middle

    def distance(number: int) -> tuple[bool, float, int]:
        line = lines[number]
        return line.chunk_id not in anchors, _gap(line, windows), abs(number - side(number)[0])

    further = sorted((number for number in range(len(lines)) if number not in kept), key=distance)
    open_sides = set(map(side, further))
    for number in further:
        line, where = lines[number], side(number)
        if where not in open_sides:
            continue
        if len(line.text) > room:  # the next line of this side would leave a hole
            open_sides.remove(where)
            text = _cut_text(line.text, room // 2 if open_sides else room, at_end=where[1])
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


def _gap(line: EvidenceLine, windows: Sequence[TimeWindow]) -> float:
    """Return the seconds between a line and the nearest of disjoint, sorted windows."""
    place = bisect_right(windows, line.time_end, key=itemgetter(0))
    gaps = [
        max(0.0, line.time_start - end, start - line.time_end)
        for start, end in windows[max(0, place - 1) : place + 1]
    ]
    return min(gaps, default=0.0)


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

    If the heading has more than the frame's time, such as a slide's title, the rest stays, unless
    it is just a label (``### Description``). A frame with nothing else gives its heading.
    """
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
    shown = " ".join(_strip_heading(line) for line in lines if not is_time_line(line))
    return " ".join(_IMAGE.sub(" ", shown).split()) or heading


def _strip_heading(line: str) -> str:
    """Return a line unchanged, a heading without its marks and time, a label as ""."""
    mark = _HEADING.match(line)
    if mark is None:
        return line
    title = line[mark.end() :].strip().rstrip("#").rstrip()
    return "" if _LABEL.fullmatch(title.rstrip(":")) else title_without_time(title)
