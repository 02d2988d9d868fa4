"""Passages as searches work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from catalog.core.documents import Chunk
from catalog.core.query import SubQueryKind
from catalog.core.results import Certainty, Evidence, Recency, Reranked
from catalog.retrieval.fusion import FusedHit
from catalog.store.document_names import document_key

if TYPE_CHECKING:
    from catalog.retrieval.snippets import Snippet
    from catalog.store.restriction import Restriction


class Passage(NamedTuple):
    """A stored chunk that a search found, with its score and the parts of the score."""

    chunk: Chunk
    score: float
    fused: FusedHit
    kinds_answered: frozenset[SubQueryKind] = frozenset()
    reranked: Reranked | None = None
    relevance: float | None = None
    certainty: Certainty | None = None
    restriction: Restriction | None = None
    snippet: Snippet | None = None
    evidence: Evidence | None = None
    repeats_evidence: bool = False  # an earlier passage has the evidence already
    recency: Recency | None = None
    copies: tuple[Chunk, ...] = ()  # passages that say the same

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The passage's chunk, then those of its copies."""
        return (self.chunk, *self.copies)

    @property
    def document(self) -> str:
        """The key of its document; the files of one recording are one document."""
        return document_key(self.chunk)
