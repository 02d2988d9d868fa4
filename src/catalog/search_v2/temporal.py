"""Temporal expansion: passages of recordings with what was said and shown around them.

    window of a transcript = its seconds ± 15, of a frame ± 10 (settings), within the recording

Windows of one recording that overlap or touch become one, so that passages near one another
share one bundle of evidence; two transcripts of the same seconds do not. The passages, their
order and their scores stay as they are.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, PrivateAttr

from catalog.core.documents import Chunk
from catalog.core.errors import CatalogError
from catalog.core.results import TIMED_MODALITIES, Evidence
from catalog.search_v2.citations import recording_link
from catalog.search_v2.evidence import (
    TimeWindow,
    build_evidence_lines,
    drop_repeated,
    format_evidence,
    group_transcripts,
    times_of,
)
from catalog.search_v2.passages import PassageNode, ScoredPassage
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


def is_timed(chunk: Chunk) -> bool:
    """Whether the passage belongs to a moment of a recording."""
    start = chunk.locator.time_start
    return chunk.modality in TIMED_MODALITIES and start is not None and math.isfinite(start)


def seconds_around(
    chunk: Chunk, *, transcript_seconds: float, frame_seconds: float, media_end: float
) -> tuple[float, float]:
    """The seconds around a timed passage: from 0 or later to ``media_end`` or the passage's end."""
    around = frame_seconds if chunk.modality == "video_frame" else transcript_seconds
    times = times_of(chunk)
    start = min(times.start, max(0.0, times.start - around))
    return start, max(times.end, min(media_end, times.end + around))


def merge_windows(windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[int]]]:
    """The windows' union as disjoint ones by time, each with the numbers of those it is made of.

    Windows that touch are one.
    """
    done: list[tuple[TimeWindow, list[int]]] = []
    for number in sorted(range(len(windows)), key=lambda number: windows[number].start):
        one = windows[number]
        if done and one.start <= done[-1][0].end:
            last, numbers = done[-1]
            done[-1] = TimeWindow(last.start, max(last.end, one.end)), [*numbers, number]
        else:
            done.append((one, [number]))
    return done


@dataclass(frozen=True, slots=True)
class TimedExpansion:
    """The nodes, how many of them are timed, and how many bundles of evidence these share."""

    nodes: list[NodeWithScore]
    timed: int
    bundles: int


class TemporalExpansion(BaseNodePostprocessor):
    """Gives passages of recordings their evidence; other nodes go through untouched.

    A node with evidence is a new one: the metadata ``evidence`` is its text, not to be embedded
    and for a language model to read, of nodes that share it in the first one; a
    :class:`ScoredPassage` has it as ``evidence``. Neighbours are what ``restriction`` allows, or
    else what the passage's own search did; of a passage that knows neither, the evidence is the
    passage alone.
    """

    transcript_seconds: float = Field(15.0, ge=0.0, le=600.0)
    frame_seconds: float = Field(10.0, ge=0.0, le=600.0)
    max_chars: int = Field(6000, ge=0)
    _database: Database = PrivateAttr()
    _restriction: Restriction | None = PrivateAttr(default=None)

    def __init__(
        self, database: Database, restriction: Restriction | None = None, **settings: object
    ) -> None:
        super().__init__(**settings)
        self._database, self._restriction = database, restriction

    @classmethod
    def of(cls, database: Database, rag: RAGv2Settings) -> TemporalExpansion:
        """As the settings say."""
        return cls(
            database,
            transcript_seconds=rag.temporal_transcript_seconds,
            frame_seconds=rag.temporal_frame_seconds,
            max_chars=rag.temporal_max_chars,
        )

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex serialises."""
        return "TemporalExpansion"

    def expand(self, nodes: Sequence[NodeWithScore]) -> TimedExpansion:
        """The nodes with their evidence; without a timed one the store is not asked."""
        timed = [place for place, node in enumerate(nodes) if _timed_chunk(node) is not None]
        if not timed:
            return TimedExpansion(list(nodes), 0, 0)
        done, bundles = list(nodes), 0
        with self._database.read() as connection:
            for group in self._by_recording(nodes, timed):
                chunks = [chunk for place in group if (chunk := _timed_chunk(nodes[place]))]
                restriction = self._restriction_of(nodes[group[0]])
                for evidence, numbers in self._bundles(connection, chunks, restriction):
                    bundles += 1
                    places = sorted(group[number] for number in numbers)
                    for place in places:
                        is_first = place == places[0]
                        done[place] = _with_evidence(nodes[place], evidence, is_read=is_first)
        return TimedExpansion(done, len(timed), bundles)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        try:
            return self.expand(nodes).nodes
        except CatalogError as error:
            _log.warning("passages of recordings stand alone: %s", error)
            return nodes

    def _restriction_of(self, node: NodeWithScore) -> Restriction | None:
        if self._restriction is not None:
            return self._restriction
        return node.restriction if isinstance(node, ScoredPassage) else None

    def _by_recording(
        self, nodes: Sequence[NodeWithScore], timed: Sequence[int]
    ) -> Iterable[list[int]]:
        groups: dict[object, list[int]] = {}
        for place in timed:
            chunk = _timed_chunk(nodes[place])
            if chunk is not None:
                key = media_key(chunk)
                recording = (chunk.dataset, key, chunk.source_doc_id if key is None else "")
                whose = (*recording, self._restriction_of(nodes[place]))
                groups.setdefault(whose, []).append(place)
        return groups.values()

    def _bundles(
        self, connection: Connection, found: Sequence[Chunk], restriction: Restriction | None
    ) -> Iterable[tuple[Evidence, list[int]]]:
        """The evidence of passages of one recording, with the numbers of those that share it."""
        end = find_media_end(connection, found[0])
        windows = [
            TimeWindow(
                *seconds_around(
                    chunk,
                    transcript_seconds=self.transcript_seconds,
                    frame_seconds=self.frame_seconds,
                    media_end=end,
                )
            )
            for chunk in found
        ]
        for group in group_transcripts(found):
            for wide, places in merge_windows([windows[number] for number in group]):
                numbers = [group[place] for place in places]
                anchors = [found[number] for number in numbers]
                near: list[Chunk] = []
                if restriction is not None:
                    first, last = wide.start, wide.end
                    near = load_chunks_between(connection, restriction, anchors[0], first, last)
                yield self._evidence(connection, anchors, near, wide), numbers

    def _evidence(
        self,
        connection: Connection,
        anchors: Sequence[Chunk],
        near: Sequence[Chunk],
        wide: TimeWindow,
    ) -> Evidence:
        anchors = sorted(anchors, key=lambda chunk: (times_of(chunk).start, chunk.seq))
        others = drop_repeated(anchors, near)
        first = anchors[0]
        known = [chunk.metadata for chunk in (*anchors, *others)]
        addresses = (one["source_url"] for one in known if "source_url" in one)
        files = (one["media_file"] for one in known if isinstance(one.get("media_file"), str))
        file = str(next(files, "")) or find_media_file(connection, first)
        start = times_of(first).start
        return Evidence(
            media=recording_name(file, first),
            dataset=first.dataset,
            start=wide.start,
            end=wide.end,
            lines=build_evidence_lines(anchors, others, wide, max_chars=self.max_chars),
            anchors=tuple(chunk.chunk_id for chunk in anchors),
            link=recording_link(next(addresses, None), file or first.path, start),
        )


def _timed_chunk(node: NodeWithScore) -> Chunk | None:
    if not isinstance(node.node, PassageNode):
        return None
    return node.node.chunk if is_timed(node.node.chunk) else None


def _with_evidence(node: NodeWithScore, evidence: Evidence, *, is_read: bool) -> NodeWithScore:
    assert isinstance(node.node, PassageNode)
    told = node.node.with_metadata(is_read=is_read, evidence=format_evidence(evidence))
    if isinstance(node, ScoredPassage):
        return node.with_evidence(told, evidence)
    return NodeWithScore(node=told, score=node.score)
