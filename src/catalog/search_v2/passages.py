"""Stored chunks as LlamaIndex nodes, fused passages with their record, stages over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from pydantic import PrivateAttr

from catalog.core.documents import Chunk
from catalog.core.query import SubQueryKind
from catalog.core.results import Evidence, Reranked
from catalog.search_v2.fusion import FusedHit

if TYPE_CHECKING:
    from catalog.search_v2.snippets import Snippet
    from catalog.store.engine_types import Restriction


class PassageNode(TextNode):
    """A LlamaIndex node of one stored chunk; ``node_id`` is the chunk id."""

    _chunk: Chunk = PrivateAttr()

    @classmethod
    def of(cls, chunk: Chunk) -> PassageNode:
        """Return the node of a chunk, with metadata as LlamaIndex users expect, free to change."""
        node = cls(
            id_=chunk.chunk_id,
            text=chunk.text,
            start_char_idx=chunk.start_offset,
            end_char_idx=chunk.end_offset,
            metadata={
                **{name: _copy_value(value) for name, value in chunk.metadata.items()},
                "source_doc_id": chunk.source_doc_id,
                "path": chunk.path,
                "title": chunk.title,
                "heading_path": list(chunk.heading_path),
                "unit": chunk.locator.unit,
                "line_start": chunk.locator.line_start,
                "line_end": chunk.locator.line_end,
            },
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=chunk.source_doc_id)},
        )
        node._chunk = chunk
        return node

    def with_metadata(self, *, is_read: bool = True, **more: str) -> PassageNode:
        """Return the same node with more metadata, not to be embedded.

        A language model reads it, unless ``is_read`` says that it does elsewhere.
        """
        unread = () if is_read else more
        changed = {
            "metadata": {**self.metadata, **more},
            "excluded_embed_metadata_keys": [*self.excluded_embed_metadata_keys, *more],
            "excluded_llm_metadata_keys": [*self.excluded_llm_metadata_keys, *unread],
        }
        return self.model_copy(update=changed)

    @property
    def chunk(self) -> Chunk:
        """The stored chunk."""
        return self._chunk


class ScoredPassage(NodeWithScore):
    """A :class:`PassageNode` with its score and how that came about."""

    _fused: FusedHit = PrivateAttr()
    _reranked: Reranked | None = PrivateAttr(default=None)
    _relevance: float | None = PrivateAttr(default=None)
    _kinds_answered: frozenset[SubQueryKind] = PrivateAttr(default=frozenset())
    _restriction: Restriction | None = PrivateAttr(default=None)
    _snippet: Snippet | None = PrivateAttr(default=None)
    _evidence: Evidence | None = PrivateAttr(default=None)

    @classmethod
    def of(
        cls,
        node: PassageNode,
        fused: FusedHit,
        kinds_answered: frozenset[SubQueryKind] = frozenset(),
    ) -> ScoredPassage:
        """Pair a node with its fusion record and the kinds of original parts that answered."""
        scored = cls(node=node, score=fused.score)
        scored._fused, scored._kinds_answered = fused, kinds_answered
        return scored

    def with_rerank(self, score: float, record: Reranked) -> ScoredPassage:
        """Return the same passage under the score a reranker led to."""
        scored = self.model_copy(update={"score": score})
        scored._reranked = record
        return scored

    def with_relevance(self, relevance: float) -> ScoredPassage:
        """Return the same passage with its relevance, 0 to 1."""
        scored = self.model_copy()
        scored._relevance = relevance
        return scored

    def with_restriction(self, restriction: Restriction) -> ScoredPassage:
        """Return the same passage with what its search let answer."""
        scored = self.model_copy()
        scored._restriction = restriction
        return scored

    def with_snippet(self, snippet: Snippet) -> ScoredPassage:
        """Return the same passage with the part of it to show."""
        scored = self.model_copy()
        scored._snippet = snippet
        return scored

    def with_evidence(self, node: PassageNode, evidence: Evidence) -> ScoredPassage:
        """Return the same passage by another node, with what its recording holds around it."""
        scored = self.model_copy(update={"node": node})
        scored._evidence = evidence
        return scored

    @property
    def _node(self) -> PassageNode:
        assert isinstance(self.node, PassageNode)
        return self.node

    @property
    def chunk(self) -> Chunk:
        """The stored chunk."""
        return self._node.chunk

    @property
    def fused(self) -> FusedHit:
        """Contributions and bonus that add up to the fused score."""
        return self._fused

    @property
    def kinds_answered(self) -> frozenset[SubQueryKind]:
        """The kinds of the user's own sub-queries that were answered, by hits or by none."""
        return self._kinds_answered

    @property
    def reranked(self) -> Reranked | None:
        """What a reranker made of the fused score, if one was asked."""
        return self._reranked

    @property
    def relevance(self) -> float | None:
        """The estimated probability that the passage answers; ``None`` if not calibrated."""
        return self._relevance

    @property
    def restriction(self) -> Restriction | None:
        """What the passage's search let answer, exclusions included; ``None`` if not known."""
        return self._restriction

    @property
    def snippet(self) -> Snippet | None:
        """The part of it to show, around its best sentence; ``None`` until that is looked for."""
        return self._snippet

    @property
    def evidence(self) -> Evidence | None:
        """What its recording holds around it; ``None`` unless it is timed and was expanded."""
        return self._evidence


class PassagePostprocessor(BaseNodePostprocessor):
    """A stage between fusion and answer; LlamaIndex serialises it under its class's name."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises."""
        return cls.__name__


def _copy_value(value: Any) -> Any:
    """Return a copy that shares no list or mapping with the value."""
    if isinstance(value, list):
        return [_copy_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _copy_value(item) for name, item in value.items()}
    return value
