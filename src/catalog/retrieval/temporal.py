"""Temporal expansion: passages of recordings with the lines said and shown around them.

    window of a transcript = its seconds ± 15, of a frame ± 10 (settings), within the recording

Windows of one recording that overlap or touch are joined, so nearby passages share one bundle of
evidence. Two transcripts of the same seconds do not share one. Passages, their order and their
scores stay the same.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from catalog.core.documents import Chunk
from catalog.core.results import TIMED_MODALITIES, Evidence
from catalog.retrieval.citations import recording_link
from catalog.retrieval.evidence import (
    TimeWindow,
    best_line,
    build_evidence_lines,
    drop_repeated,
    group_transcripts,
    keep_nearest,
    repeats,
    times_of,
)
from catalog.retrieval.passages import Passage
from catalog.retrieval.snippets import find_snippet
from catalog.store.document_names import original_of
from catalog.store.recordings import (
    find_media_end,
    find_media_file,
    load_chunks_between,
    media_key,
    recording_name,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.core.settings import RAGv2Settings
    from catalog.store import Database
    from catalog.store.engine_types import Restriction

_log = logging.getLogger(__name__)
_SENTENCE_CHARS = 300
"""Characters of a sentence at most; of captions without full stops, of a caption."""


def is_timed(chunk: Chunk) -> bool:
    """Return whether the passage belongs to a moment of a recording."""
    start = chunk.locator.time_start
    return chunk.modality in TIMED_MODALITIES and start is not None and math.isfinite(start)


def seconds_around(
    chunk: Chunk, *, transcript_seconds: float, frame_seconds: float, media_end: float
) -> TimeWindow:
    """Return the window of a passage: within 0 and ``media_end``, or the passage's own end."""
    around = frame_seconds if chunk.modality == "video_frame" else transcript_seconds
    times = times_of(chunk)
    start = min(times.start, max(0.0, times.start - around))
    return TimeWindow(start, max(times.end, min(media_end, times.end + around)))


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


class _Bundles(NamedTuple):
    """Passages of one recording, never from two transcripts at once, and their joined windows."""

    chunks: list[Chunk]
    windows: list[TimeWindow]

    def has_room(self, chunk: Chunk) -> bool:
        """Return whether no other transcript's passage covers seconds of this one."""
        return not any(repeats(chunk, other) for other in self.chunks)

    def touched(self, window: TimeWindow) -> list[TimeWindow]:
        """Return the windows that an additional one would join."""
        return [w for w in self.windows if w.start <= window.end and window.start <= w.end]

    def add(self, chunk: Chunk, window: TimeWindow) -> None:
        """Add a passage, and join its window with those that it touches."""
        touched = [*self.touched(window), window]
        apart = [one for one in self.windows if one not in touched]
        start, end = min(one.start for one in touched), max(one.end for one in touched)
        self.chunks.append(chunk)
        self.windows[:] = [*apart, TimeWindow(start, end)]


class Recordings(Protocol):
    """What is known of the recordings of passages."""

    def end(self, chunk: Chunk) -> float:
        """Return the end of the passage's recording in seconds."""
        ...

    def between(
        self, restriction: Restriction | None, chunk: Chunk, window: TimeWindow
    ) -> list[Chunk]:
        """Return the passages of its recording within the window, in order of time."""
        ...

    def file(self, chunk: Chunk) -> str | None:
        """Return the recording's file, ``None`` if unknown."""
        ...


class _Stored:
    """The recordings of a store; passages without a restriction have no neighbours."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def end(self, chunk: Chunk) -> float:
        return find_media_end(self._connection, chunk)

    def between(
        self, restriction: Restriction | None, chunk: Chunk, window: TimeWindow
    ) -> list[Chunk]:
        if restriction is None:
            return []
        return load_chunks_between(self._connection, restriction, chunk, *window)

    def file(self, chunk: Chunk) -> str | None:
        return find_media_file(self._connection, chunk)


class GivenRecordings:
    """The recordings of these passages, which no store has."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks: dict[str, list[Chunk]] = {}
        for chunk in sorted(filter(is_timed, chunks), key=times_of):
            self._chunks.setdefault(self._key(chunk), []).append(chunk)

    def end(self, chunk: Chunk) -> float:
        """Return the latest end of its passages."""
        return max((times_of(one).end for one in self._of(chunk)), default=0.0)

    def between(
        self,
        restriction: Restriction | None,  # noqa: ARG002 - these passages are all allowed
        chunk: Chunk,
        window: TimeWindow,
    ) -> list[Chunk]:
        """Return its passages within the window, in order of time."""
        times = [(one, times_of(one)) for one in self._of(chunk)]
        return [one for one, at in times if at.start <= window.end and at.end >= window.start]

    def file(self, chunk: Chunk) -> str | None:
        """Return the file that the passage names."""
        return original_of(chunk)

    def _of(self, chunk: Chunk) -> list[Chunk]:
        return self._chunks.get(self._key(chunk), [])

    @staticmethod
    def _key(chunk: Chunk) -> str:
        return media_key(chunk) or chunk.source_doc_id


@dataclass(frozen=True, slots=True)
class TemporalExpander:
    """Give passages of recordings their evidence; other passages do not change.

    Neighbours are passages that ``restriction`` allows, by default that of the passage's own
    search. Without either, the evidence is the passage itself. Recordings that are ``given`` are
    read instead of a store.
    """

    database: Database | None
    transcript_seconds: float = 15.0
    frame_seconds: float = 10.0
    max_chars: int = 6000
    restriction: Restriction | None = None
    given: GivenRecordings | None = None

    @classmethod
    def of(cls, database: Database, rag: RAGv2Settings) -> TemporalExpander:
        """Return the stage as the settings say."""
        return cls(
            database,
            transcript_seconds=rag.temporal_transcript_seconds,
            frame_seconds=rag.temporal_frame_seconds,
            max_chars=rag.temporal_max_chars,
        )

    def expand(self, passages: Sequence[Passage], words: str = "") -> tuple[list[Passage], str]:
        """Return the passages with their evidence, and a note on the number of bundles.

        The best sentence is that of a passage's snippet, else the one with most of ``words``.
        Without timed passages the store is not read and the note is "".
        """
        timed = _timed(passages)
        expanded, bundles = list(passages), 0
        if not timed:
            return expanded, ""
        with self._recordings() as recordings:
            groups: dict[object, list[int]] = {}
            for place in timed:
                groups.setdefault(self._recording_of(passages[place]), []).append(place)
            for group in groups.values():
                chunks = [timed[place] for place in group]
                restriction = self._restriction_of(passages[group[0]])
                end = recordings.end(chunks[0])
                for window, numbers in self._bundles(chunks, end):
                    bundles += 1
                    first, *others = sorted(group[number] for number in numbers)
                    anchors = [timed[place] for place in (first, *others)]
                    best = {
                        timed[place].chunk_id: span
                        for place in (first, *others)
                        if (span := _best_sentence(passages[place], words)) is not None
                    }
                    evidence = self._evidence(recordings, anchors, best, window, restriction)
                    expanded[first] = passages[first]._replace(evidence=evidence)
                    for place in others:
                        expanded[place] = passages[place]._replace(
                            evidence=evidence, repeats_evidence=True
                        )
        hits = f"{len(timed)} {'hit' if len(timed) == 1 else 'hits'}"
        return expanded, f"{hits} in {bundles} {'bundle' if bundles == 1 else 'bundles'}"

    def take(self, passages: Sequence[Passage], limit: int) -> list[Passage]:
        """Return the first ``limit`` passages, and one more for each that shares a bundle.

        A passage shares a bundle if an earlier one is near it. Additional passages do not earn
        more.
        """
        taken: list[Passage] = list(passages[:limit])
        others = passages[limit:]
        if not (others and _timed(taken)):
            return taken
        bundles: dict[object, list[_Bundles]] = {}  # of each recording
        ends: dict[object, float] = {}
        shared = 0
        with self._recordings() as recordings:
            for number, passage in enumerate(passages):
                if number >= limit and len(taken) - shared >= limit:
                    break
                if not is_timed(passage.chunk):
                    taken += [] if number < limit else [passage]
                    continue
                key = self._recording_of(passage)
                if key not in ends:
                    ends[key] = recordings.end(passage.chunk)
                window = self._window(passage.chunk, ends[key])
                of_recording = bundles.setdefault(key, [])
                fitting = (one for one in of_recording if one.has_room(passage.chunk))
                if (joined := next(fitting, None)) is None:
                    of_recording.append(joined := _Bundles([], []))
                touched = joined.touched(window)
                if number >= limit:
                    if touched:
                        continue
                    taken.append(passage)
                joined.add(passage.chunk, window)
                shared += len(touched)
        return taken

    @contextmanager
    def _recordings(self) -> Iterator[Recordings]:
        if self.given is not None:
            yield self.given
            return
        assert self.database is not None
        with self.database.read() as connection:
            yield _Stored(connection)

    def _restriction_of(self, passage: Passage) -> Restriction | None:
        return passage.restriction if self.restriction is None else self.restriction

    def _recording_of(self, passage: Passage) -> object:
        """Return a key of recording and restriction; passages with equal keys may be neighbours."""
        chunk = passage.chunk
        key = media_key(chunk)
        recording = (chunk.dataset, key, chunk.source_doc_id if key is None else "")
        return (recording, self._restriction_of(passage))

    def _bundles(
        self, chunks: Sequence[Chunk], end: float
    ) -> Iterator[tuple[TimeWindow, list[int]]]:
        """Return the windows of a recording's passages, each with the numbers of its passages."""
        windows = [self._window(chunk, end) for chunk in chunks]
        for group in group_transcripts(chunks):
            for window, places in merge_windows([windows[number] for number in group]):
                yield window, [group[place] for place in places]

    def _window(self, chunk: Chunk, end: float) -> TimeWindow:
        return seconds_around(
            chunk,
            transcript_seconds=self.transcript_seconds,
            frame_seconds=self.frame_seconds,
            media_end=end,
        )

    def _evidence(
        self,
        recordings: Recordings,
        anchors: Sequence[Chunk],
        best: Mapping[str, tuple[int, int]],
        window: TimeWindow,
        restriction: Restriction | None,
    ) -> Evidence:
        """Return the evidence of the anchors, best first; ``best`` are their best sentences."""
        span = best.get(anchors[0].chunk_id)
        best_sentence = None if span is None else best_line(anchors[0], span)
        near = recordings.between(restriction, anchors[0], window)
        near = keep_nearest(anchors[0], near, self.max_chars)
        anchors = sorted(anchors, key=lambda chunk: (times_of(chunk).start, chunk.seq))
        others = drop_repeated(anchors, near)
        first = anchors[0]
        metadata = [chunk.metadata for chunk in (*anchors, *others)]
        addresses = (fields["source_url"] for fields in metadata if "source_url" in fields)
        files = (fields.get("media_file") for fields in metadata)
        named = next((file for file in files if isinstance(file, str)), "")
        file = named or recordings.file(first)
        lines = build_evidence_lines(anchors, others, window, max_chars=self.max_chars, best=best)
        return Evidence(
            best_sentence=best_sentence,
            media=recording_name(file, first),
            dataset=first.dataset,
            start=window.start,
            end=window.end,
            lines=lines,
            anchors=tuple(chunk.chunk_id for chunk in anchors),
            link=recording_link(next(addresses, None), file or first.path, times_of(first).start),
        )


def keep_telling(
    temporal: TemporalExpander, passages: Sequence[Passage], limit: int
) -> list[Passage]:
    """Keep the first ``limit`` passages, and one more for each that shares its evidence.

    For example, three hits within one minute count as one.
    """
    try:
        return temporal.take(passages, limit)
    except Exception as error:  # noqa: BLE001 - the expansion that follows fails and says so
        _log.warning("passages of recordings count one by one: %s", error)
        return list(passages[:limit])


def _timed(passages: Sequence[Passage]) -> dict[int, Chunk]:
    """Return the passages of recordings by their position."""
    return {place: one.chunk for place, one in enumerate(passages) if is_timed(one.chunk)}


def _best_sentence(passage: Passage, words: str) -> tuple[int, int] | None:
    """Return the place of a passage's best sentence; ``None`` without a query."""
    if passage.snippet is not None:
        return passage.snippet.best
    return find_snippet(passage.chunk, words, _SENTENCE_CHARS).best if words else None
