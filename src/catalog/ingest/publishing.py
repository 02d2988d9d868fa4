"""Publishes changed documents in groups: cut each, embed all together, commit each by itself.

What fails is noted on the file it came from, and the rest of the group goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from catalog.core.errors import EmbeddingError
from catalog.ingest.comparing import Change
from catalog.ingest.outcome import DEFECTS, FileOutcome
from catalog.ingest.recording import Recorder
from catalog.ingest.stages import PipelineSteps


@dataclass(frozen=True, slots=True)
class _Pending:
    """A change waiting for its group to be full, and the file to note its failures on."""

    change: Change
    file: FileOutcome

    def fail(self, reason: str, *, retry: bool = False) -> None:
        self.file.fail(self.change.source.parsed.path, reason, retry=retry)


class Publisher:
    """Collects changes until they have ``group_chars`` characters, then publishes them.

    ``added`` and ``updated`` count documents published, ``unfinished`` those that were not
    because the model was down.
    """

    def __init__(self, stages: PipelineSteps, recorder: Recorder, *, group_chars: int) -> None:
        self._stages, self._recorder, self._group_chars = stages, recorder, group_chars
        self._group: list[_Pending] = []
        self._chars = 0
        self.added = self.updated = self.unfinished = 0

    def add(self, change: Change, file: FileOutcome) -> None:
        """Publish a document with its group, now if that is full."""
        self._group.append(_Pending(change, file))
        self._chars += len(change.source.parsed.text)
        if self._chars >= self._group_chars:
            self.flush()

    def flush(self) -> None:
        """Publish what is collected, and have the files noted that are wholly published."""
        group, self._group, self._chars = self._group, [], 0
        cut = [(one, nodes) for one in group if (nodes := self._cut(one)) is not None]
        down = self._embed([node for _, nodes in cut for node in nodes])
        self._recorder.begin(one.file.source for one, _ in cut)
        for one, nodes in cut:
            if down is not None:
                one.fail(down, retry=True)
                self.unfinished += 1
            elif not nodes:
                one.fail("it holds no text to search")
            else:
                self._publish(one, nodes)
        self._recorder.note_waiting()

    def _cut(self, one: _Pending) -> list[BaseNode] | None:
        try:
            return self._stages.cut(one.change.source)
        except DEFECTS as error:
            one.fail(f"it cannot be cut: {type(error).__name__}: {error}", retry=True)
            return None

    def _embed(self, nodes: list[BaseNode]) -> str | None:
        """Why the model gave no vectors, ``None`` if it did."""
        try:
            self._stages.embed(nodes)
        except EmbeddingError as error:
            return str(error)
        return None

    def _publish(self, one: _Pending, nodes: list[BaseNode]) -> None:
        failures = self._stages.embedding.failures
        bad = [node.node_id for node in nodes if node.node_id in failures]
        if bad:
            why = f"{len(bad)} of {len(nodes)} chunks not embedded: {failures[bad[0]]}"
            one.fail(why, retry=True)
        if one.change.lacking and set(bad) == one.change.lacking:
            return  # what is published is already all there is
        self._stages.publish(nodes)
        if one.change.is_new:
            self.added += 1
        else:
            self.updated += 1
