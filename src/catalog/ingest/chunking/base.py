"""What every chunker answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from catalog.core.models import ChunkSpan, ParsedDocument


@dataclass(frozen=True, slots=True)
class Cut:
    """The passages of one document.

    ``fallback`` is ``None`` when sizes were counted in the model's tokens; otherwise it says
    what was counted instead, and why, for the report of the run.
    """

    spans: tuple[ChunkSpan, ...]
    fallback: str | None = None


class Chunker(Protocol):
    """Cuts one kind of document.

    ``doc.text[span.start:span.end]`` is the passage, starts are strictly increasing, no
    passage is empty, and together they hold every character from ``doc.body_start`` on that
    is not white space. The same document always gives the same spans.
    """

    def chunk(self, doc: ParsedDocument) -> tuple[ChunkSpan, ...]:
        """The passages in order of their start; none for a document without text."""
        ...

    def cut(self, doc: ParsedDocument) -> Cut:
        """The same, and whether a substitute had to count their tokens."""
        ...
